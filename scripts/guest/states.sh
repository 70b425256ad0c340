# states.sh: states of the machine, and what must hold in each: the tables of docs/operations.md. Sourced by run.sh.
# shellcheck shell=sh

# states: a line for each state: its name, and the steps and expectations in order. Each word is a function below or
# in checks.sh. Before its first word, `begin_state` makes the machine good again. `reboot` continues after a boot.
# To add a state, add a line.
states() {
	cat <<-'END'
		wrong-rule-at-reload      write_wrong_rule reload_fails is_refused old_rules_audit
		wrong-rule-at-restart     write_wrong_rule restart is_refused last_good_rules_audit
		wrong-rule-at-boot        write_wrong_rule reboot is_refused last_good_rules_audit kernel_has_no_rules
		                          reload_corrected is_good
		wrong-toml-at-restart     write_wrong_toml restart is_refused last_good_rules_audit
		wrong-conf-at-restart     write_wrong_conf restart is_refused last_good_rules_audit
		removed-user-at-boot      load_rule_of_user remove_user reboot is_refused user_rule_audits
		full-disk-at-boot         fill_disk reboot is_suspended make_room resume audits is_good
		rescue                    enter_rescue no_programs leave_rescue audits is_good
		detection                 absent_log_is_told prepare_detection detection_starts attack_is_alerted program_has_no_rights
		                          detection_status_is_good between_runs_is_alerted killed_is_alerted one_helper
		                          daemon_restart_is_survived syslog_restart_is_survived end_detection
		stock-augenrules          stock_augenrules kernel_audit_is_told audits stock_delete_all audits is_good

		killed                    kill_for_good programs_are_told start audits
		removed-running           remove removed_all
		purged-running            purge purged_all
		purged-stopped            stop no_programs purge purged_all
		purged-failed             fail_with_wrong_rule programs_are_told wrong_rule_is_told purge purged_all
		purged-killed             install_alternatives configure_journald kill_for_good programs_are_told purge purged_all
		                          journald_enables_audit
		purged-locked             disable_audit_rules lock audits purge says_programs_stay programs_stay auditd_cannot_start
		                          reboot purged_all auditd_works

		upgrade                   load upgrade runs_new whole_but_for_one_gap audits is_good
		downgrade                 upgrade load downgrade runs_old whole_but_for_one_gap audits is_good
		upgrade-wrong-rule        write_wrong_rule load upgrade runs_new whole_but_for_one_gap is_refused last_good_rules_audit
		upgrade-locked            lock load upgrade says_next_boot whole restart_fails programs_are_told reboot runs_new audits is_good
		downgrade-locked          upgrade lock load downgrade says_next_boot whole reboot runs_old audits is_good

		replace-auditd            only_auditd start_clock install_package enable_now take_over audits stop_clock_120
		                          start_clock remove enable_auditd stock_audits stop_clock_60
	END
}

wrong=/etc/audit/rules.d/70-wrong.rules

# begin_state: auditd is disabled, and the first version of the package is enabled and audits with good rules.
begin_state() {
	detail=
	set_mark
	rm -f /etc/audit/rules.d/[67]*.rules /var/ballast /etc/systemd/journald.conf
	rm -rf /etc/tollgate/*
	sed -i '/^wrong/d' /etc/audit/auditd.conf
	systemctl --quiet disable --now auditd 2>&1
	systemctl --quiet enable audit-rules 2>/dev/null
	auditctl -D >/dev/null 2>&1
	# dpkg also knows the version of a removed package.
	[ "$(dpkg-query -W -f '${Status} ${Version}' tollgate 2>&1)" = \
		"install ok installed $(package_version /root/tollgate.deb)" ] ||
		dpkg --install /root/tollgate.deb >/dev/null 2>&1
	systemctl reset-failed tollgate 2>/dev/null
	systemctl --quiet enable --now tollgate
	{ tollgate augenrules --load && tollgate status; } >"$tmp/out" 2>&1 || {
		echo 'FAILED to make the machine good'
		sed 's/^/  /' "$tmp/out"
	}
}

package_version() {
	dpkg-deb -f "$1" Version
}

# -- files with errors

write_wrong_rule() {
	echo '-a always,exit -F arch=b64 -S opne -k wrong' >$wrong
}

write_wrong_toml() {
	mkdir -p /etc/tollgate
	echo 'rulse = []' >/etc/tollgate/tollgate.toml
}

write_wrong_conf() {
	echo 'wrong = 1' >>/etc/audit/auditd.conf
}

load_rule_of_user() {
	useradd --system chrony && echo '-a always,exit -F arch=b64 -S chmod,fchmodat -F uid=chrony -k user' >$wrong &&
		echo '-w /srv/other -p wa -k user' >>$wrong && tollgate augenrules --load
}

remove_user() {
	userdel chrony
}

reload_fails() {
	fails systemctl reload tollgate
}

restart() {
	systemctl restart tollgate
}

reload_corrected() {
	rm $wrong && systemctl reload tollgate
}

# is_refused: whether journal, status and systemd tell that files are refused.
is_refused() {
	status_is 3 && grep REFUSED "$tmp/status" && prints 'FILES REFUSED' systemctl status --no-pager tollgate &&
		prints '"refused": {' tollgate status --json && journal_names_the_advice
}

journal_names_the_advice() {
	logged 'correct the file, then run' || logged 'the old rules stay in force' || logged 'the last good'
}

# status_is EXIT-STATUS: leaves the output in $tmp/status.
status_is() {
	tollgate status >"$tmp/status" 2>&1
	[ $? -eq "$1" ]
}

old_rules_audit() {
	audits && prints '-k watched' tollgate auditctl -l
}

last_good_rules_audit() {
	prints 'last good' tollgate status && audits
}

user_rule_audits() {
	audits user /srv/other && audits
}

is_good() {
	tollgate status && is_active
}

# -- the disk

fill_disk() {
	df /var/log
	dd if=/dev/zero of=/var/ballast bs=1M 2>/dev/null
	dd if=/dev/zero of=/var/ballast bs=1k oflag=append conv=notrunc 2>/dev/null
	sync
	df /var/log
	[ "$(df --output=avail /var/log | tail -n 1)" -eq 0 ]
}

is_suspended() {
	status_is 3 && grep 'not written: .*/var/log' "$tmp/status" && is_active &&
		prints 'signal resume' journalctl -q -b -u tollgate -o cat
}

make_room() {
	rm /var/ballast
}

resume() {
	tollgate auditctl --signal resume
}

# -- other programs

enter_rescue() {
	systemctl rescue && soon is_rescue
}

is_rescue() {
	[ "$(show ActiveState rescue.target)" = active ] && [ "$(show ActiveState)" = inactive ]
}

leave_rescue() {
	systemctl --no-block default
	soon is_active
}

stock_augenrules() {
	/sbin/augenrules --load && /sbin/auditctl -l | grep -e '-k watched\|key=watched'
}

kernel_audit_is_told() {
	prints 'slows every syscall' tollgate status || return 1
	prints '"slows_syscalls": true' tollgate status --json && soon logged "the kernel's own audit is also active"
}

stock_delete_all() {
	/sbin/auditctl -D
	prints '"slows_syscalls": false' tollgate status --json || prints '"slows_syscalls": false' tollgate status --json
}

# kernel_has_no_rules: auditd 4 has a unit that loads its rules at boot, even if auditd is disabled.
kernel_has_no_rules() {
	/sbin/auditctl -l
	[ "$(/sbin/auditctl -l)" = '-a never,task' ]
}

configure_journald() {
	mkdir -p /etc/systemd
	printf '[Journal]\nAudit=yes\n' >/etc/systemd/journald.conf
}

# journald_enables_audit: the drop-in that keeps journald from it has gone. Debian 13's journald reads no audit records.
journald_enables_audit() {
	systemctl is-active systemd-journald-audit.socket || return 0
	systemctl restart systemd-journald && prints 'enabled 1' auditctl -s && auditctl -e 0
}

# -- no daemon

start() {
	systemctl reset-failed tollgate
	systemctl start tollgate
}

stop() {
	systemctl stop tollgate
}

# kill_for_good: kills the daemon, and systemd does not start another one.
kill_for_good() {
	mkdir -p /run/systemd/system/tollgate.service.d
	printf '[Service]\nRestart=no\n' >/run/systemd/system/tollgate.service.d/restart.conf
	systemctl daemon-reload
	systemctl kill --kill-whom=all -s KILL tollgate
	soon has_failed
	killed=$?
	rm -r /run/systemd/system/tollgate.service.d
	systemctl daemon-reload
	[ $killed -eq 0 ] && [ -n "$(ls $pins)" ]
}

# fail_with_wrong_rule: systemd starts the daemon again in vain: there are no last good rules.
fail_with_wrong_rule() {
	write_wrong_rule
	rm -r /var/lib/tollgate/*
	systemctl kill --kill-whom=all -s KILL tollgate
	soon has_failed && [ -n "$(ls $pins)" ]
}

programs_are_told() {
	prints 'are still attached' tollgate status && grep 'no daemon has read their events since' "$tmp/printed"
}

wrong_rule_is_told() {
	prints 'opne' tollgate status && grep 'systemctl start tollgate' "$tmp/printed"
}

lock() {
	tollgate auditctl -e 2
}

# -- the package

install_package() {
	dpkg --install /root/tollgate.deb
}

install_alternatives() {
	tollgate-alternatives install
}

remove() {
	apt-get -q -y --no-download remove tollgate >"$tmp/apt" 2>&1
	status=$?
	cat "$tmp/apt"
	return $status
}

purge() {
	apt-get -q -y --no-download purge tollgate >"$tmp/apt" 2>&1
	status=$?
	cat "$tmp/apt"
	return $status
}

removed_all() {
	no_programs && kernel_audit_is_off && auditctl_is_stock && [ "$(show LoadState)" = not-found ] &&
		no_file_but '/var/lib/tollgate*' && [ ! -e /run/tollgate/control ]
}

purged_all() {
	no_programs && kernel_audit_is_off && auditctl_is_stock && [ "$(show LoadState)" = not-found ] &&
		no_file_but /nothing && [ ! -e /run/tollgate ]
}

auditctl_is_stock() {
	[ ! -L /sbin/auditctl ] && prints auditd dpkg-query -S '*sbin/auditctl'
}

# no_file_but PATTERN: whether no file is left but logs and what matches.
no_file_but() {
	! find / -xdev \( -path /proc -o -path /sys -o -path /var/log -o -path /root -o -path /var/lib/dpkg \
		-o -path /var/cache -o -path /usr/local -o -path "$1" \) -prune -o -name '*tollgate*' -print | grep .
}

says_programs_stay() {
	prints 'stay attached until the machine restarts' cat "$tmp/apt"
}

programs_stay() {
	ls $pins
	[ -n "$(ls $pins)" ] && fails has_no_hooks && kernel_audit_is_off
}

# auditd_cannot_start: `-e 2` protects the log until the next boot, from auditd too.
auditd_cannot_start() {
	fails systemctl start auditd && systemctl reset-failed auditd
}

# disable_audit_rules: otherwise auditd 4 loads its rules at boot, even if auditd is disabled.
disable_audit_rules() {
	systemctl disable audit-rules || true
}

auditd_works() {
	systemctl start auditd && stock_audits && systemctl stop auditd && auditctl -D && auditctl -e 0
}

other_version() {
	dpkg --install "$1" >"$tmp/apt" 2>&1
	status=$?
	cat "$tmp/apt"
	return $status
}

load() {
	rm -f $log.*
	set_mark
	begin "$state" >/dev/null 2>&1
}

upgrade() {
	other_version /root/other.deb
}

downgrade() {
	other_version /root/tollgate.deb
}

# runs VERSION: whether the daemon's program is the installed one, and that is this version.
runs_version() {
	soon is_active
	# Of `load`.
	detail="$(find $watched -type f | wc -l) files so far"
	[ "$(dpkg-query -W -f '${Version}' tollgate)" = "$1" ] && ls -l "/proc/$(show MainPID)/exe" &&
		[ "$(readlink "/proc/$(show MainPID)/exe")" = /usr/sbin/tollgate ]
}

runs_new() {
	runs_version "$(package_version /root/other.deb)"
}

runs_old() {
	runs_version "$(package_version /root/tollgate.deb)"
}

says_next_boot() {
	prints 'the new version starts at the next boot' cat "$tmp/apt"
}

restart_fails() {
	fails systemctl restart tollgate
	soon has_failed && prints 'until the machine restarts' journalctl -q -b -u tollgate -o cat
}

# -- a newcomer's clock

only_auditd() {
	purge && systemctl enable --now auditd && stock_audits && rm -rf /var/log/audit/*
}

enable_now() {
	systemctl enable --now tollgate
}

# take_over: as the README says.
take_over() {
	/sbin/auditctl -D && prints 'audit       enabled' tollgate status && fails prints 'slows every syscall' tollgate status
}

enable_auditd() {
	systemctl enable --now auditd
}

stock_audits() {
	is_active auditd && audits && prints 'watched' /sbin/auditctl -l
}

start_clock() {
	clock=$(date +%s)
}

stop_clock_120() {
	stop_clock 120
}

stop_clock_60() {
	stop_clock 60
}

stop_clock() {
	detail="$(($(date +%s) - clock)) s"
	[ $(($(date +%s) - clock)) -lt "$1" ]
}
