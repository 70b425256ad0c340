#!/bin/sh
# test-service.sh: tests tollgate.service under systemd, from the boot beside auditd to the removal of the
# package. Runs in the machine that test-boot.sh boots. Prints `ok` or `FAILED` for each check, and
# `test-service: done` at the end.
set -u
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin

log=/var/log/audit/machine.log
watched=/srv/watched
tmp=$(mktemp -d)

# check WHAT COMMAND...: prints whether the command succeeds; if not, also its output.
check() {
	what=$1
	shift
	if "$@" >"$tmp/out" 2>&1 </dev/null; then
		echo "ok $what"
	else
		echo "FAILED $what"
		tail -n 25 "$tmp/out" | sed 's/^/  /'
	fi
}

# soon COMMAND...: waits up to a minute (this is an emulator) until the command succeeds.
soon() {
	end=$(($(date +%s) + 60))
	until "$@"; do
		[ "$(date +%s)" -lt "$end" ] || return 1
		sleep 0.5
	done
}

fails() {
	! "$@"
}

# logged TEXT: whether the daemon has written TEXT to the journal since the mark.
logged() {
	journalctl --sync
	journalctl -q -u tollgate --after-cursor="$mark" -o cat >"$tmp/journal"
	cat "$tmp/journal"
	grep -q -F -e "$1" "$tmp/journal"
}

set_mark() {
	mark=$(journalctl -q -n 0 --show-cursor | sed -n 's/^-- cursor: //p')
}

show() {
	systemctl show --value -p "$1" "${2:-tollgate}"
}

# found KEY TEXT: whether ausearch finds TEXT in an event with this key in the log of auditd.conf.
found() {
	ausearch --input-logs -k "$1" --raw </dev/null | grep -F -e "$2"
}

# begin NAME: starts to create files in the background; each is an event.
begin() {
	rm -f "$tmp/stop" "$watched"/*
	generation=$1
	(
		number=0
		while [ ! -e "$tmp/stop" ]; do
			for _in_a_row in 1 2 3 4 5 6 7 8 9 10; do
				number=$((number + 1))
				: >"$watched/$generation-$number"
			done
			sleep 0.1
		done
		echo "$number" >"$tmp/created"
	) &
}

# whole: whether each created file is in the log exactly once, and no other file.
whole() {
	touch "$tmp/stop"
	wait
	tollgate auditctl -m "end of $generation"
	created=$(cat "$tmp/created")
	cat $log.[1-9] $log 2>/dev/null | sed -n "s/.*name=\"$(echo $watched | sed 's,/,\\/,g')\/\($generation-[0-9]*\)\".*nametype=CREATE.*/\1/p" |
		sort >"$tmp/logged"
	seq -f "$generation-%.0f" "$created" | sort >"$tmp/expected"
	echo "$created files were created, $(wc -l <"$tmp/logged") are in the log"
	tollgate status
	[ "$created" -gt 20 ] && cmp "$tmp/expected" "$tmp/logged"
}

# dense: whether the daemon's serial numbers in the log have no gap. They are above 2^31, too large for
# mawk's integers.
dense() {
	cat $log.[1-9] $log 2>/dev/null | sed -n 's/.*msg=audit([0-9.]*:\([0-9]*\)).*/\1/p' |
		awk '{ at = $1 - 2147483648 }
			at > 0 { seen[at] = 1; if (!least || at < least) least = at; if (at > most) most = at }
			END { for (at = least; at <= most; at++) if (!(at in seen)) { print "no", at; missing++ }
				print least, most; exit(missing != 0 || most - least < 100) }'
}

restarts() {
	[ "$(show NRestarts)" -ge "$1" ] && [ "$(show ActiveState)" = active ]
}

new_main() {
	pid=$(show MainPID)
	[ "$pid" != 0 ] && [ "$pid" != "$1" ] && [ "$(show ActiveState)" = active ]
}

nothing_left() {
	ls -lR /sys/fs/bpf
	[ ! -e /sys/fs/bpf/tollgate ] || [ -z "$(ls -A /sys/fs/bpf/tollgate)" ] || return 1
	mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
	cat /sys/kernel/tracing/enabled_functions
	[ -z "$(cat /sys/kernel/tracing/enabled_functions)" ] || return 1
	! grep '^tollgate$\|^tlg-' /proc/[0-9]*/comm
}

kernel_audit_is_off() {
	auditctl -s
	auditctl -l
	auditctl -s | grep -x 'enabled 0' && auditctl -l | grep -x 'No rules'
}

before_sysinit() {
	ours=$(show ActiveEnterTimestampMonotonic)
	theirs=$(show ActiveEnterTimestampMonotonic sysinit.target)
	echo "$ours $theirs"
	[ "$ours" -gt 0 ] && [ "$ours" -le "$theirs" ]
}

priorities() {
	journalctl -q -u tollgate -o json | grep '"_COMM":"tollgate"\|"SYSLOG_IDENTIFIER":"tollgate"' >"$tmp/lines"
	[ -s "$tmp/lines" ] || return 1
	# The text has no priority prefix, and errors have a higher priority than information.
	grep '"MESSAGE":"<[0-9]>' "$tmp/lines" && return 1
	cat "$tmp/lines"
	grep '"PRIORITY":"6"' "$tmp/lines" | grep -q 'engine fentry' || return 1
	grep '"PRIORITY":"[34]"' "$tmp/lines" | grep -q 'the old rules stay in force'
}

uptime=$(cut -d ' ' -f 1 /proc/uptime)
echo "ok booted in $uptime s: $(uname -r), $(systemctl --version | head -n 1)"

# -- the boot, with both enabled
mark=$(journalctl -q -n 1 -b -o export --no-pager | sed -n 's/^__CURSOR=//p')
check 'boot: both were enabled' systemctl is-enabled auditd tollgate
check 'boot: tollgate is active' systemctl is-active tollgate
check 'boot: auditd is not active' fails systemctl is-active auditd
check 'boot: before sysinit.target' before_sysinit
check 'boot: no unit has failed' sh -c '! systemctl --failed --no-legend | grep .'
check 'boot: the kernel has only the rule never,task' [ "$(/sbin/auditctl -l)" = '-a never,task' ]
systemctl disable auditd >/dev/null 2>&1

# -- enable --now
check 'disable --now' systemctl disable --now tollgate
check 'disable: no pins, hooks or processes left' nothing_left
check 'disable: kernel audit is off' kernel_audit_is_off
set_mark
check 'enable --now' systemctl enable --now tollgate
check 'enable: active' [ "$(show ActiveState)" = active ]
check 'enable: engine fentry' logged 'engine fentry'
check 'enable: confined' logged 'confined: '
check 'enable: pinned' logged 'pinned in'
check 'enable: systemd shows the state' [ "$(show StatusText)" = 'auditing with engine fentry' ]

# -- events
echo x >$watched/first
check 'log: an event of the watched directory' soon grep -q 'name="/srv/watched/first"' $log
check 'log: ausearch finds it' soon found watched 'name="/srv/watched/first"'
check 'log: records of systemd' soon sh -c 'ausearch --input-logs -m SERVICE_START </dev/null | grep tollgate'
check 'plugin: gets the event' soon grep -q 'name="/srv/watched/first"' /var/log/plugin.out

# -- reload
echo '-w /srv/other -p wa -k other' >/etc/audit/rules.d/60-other.rules
check 'reload' systemctl reload tollgate
check 'reload: the new rules are loaded' sh -c 'tollgate auditctl -l | grep -e "-k other"'
echo x >/srv/other/second
check 'reload: the new rules record events' soon found other 'name="/srv/other/second"'
set_mark
echo '-w' >/etc/audit/rules.d/70-wrong.rules
check 'reload: wrong rules make it fail' fails systemctl reload tollgate
check 'reload: wrong rules are reported' soon logged 'the old rules stay in force'
check 'reload: wrong rules change nothing' sh -c 'tollgate auditctl -l | grep -e "-k other"'
check 'reload: the daemon stays active' [ "$(show ActiveState)" = active ]
check 'reload: systemd shows the refusal' sh -c 'systemctl status tollgate | grep "FILES REFUSED"'
check 'reload: the exit status of status is 3' sh -c 'tollgate status; [ $? -eq 3 ]'

# -- restart with wrong rules
set_mark
check 'wrong rules: restart' systemctl restart tollgate
check 'wrong rules: active' [ "$(show ActiveState)" = active ]
check 'wrong rules: reported' soon logged 'starting with the last good rules'
echo x >/srv/other/third
check 'wrong rules: the last good ones record events' soon found other 'name="/srv/other/third"'
check 'wrong rules: stop' systemctl stop tollgate
check 'wrong rules: start' systemctl start tollgate
check 'wrong rules: the last good ones are loaded' sh -c 'tollgate auditctl -l | grep -e "-k other"'
rm /etc/audit/rules.d/70-wrong.rules
check 'wrong rules: corrected by a reload' systemctl reload tollgate
check 'wrong rules: status is good again' tollgate status
check 'journal: lines have their priority' priorities

# -- restart, kill, watchdog, reinstalled package: no event is lost
rm -f $log.*
check 'restart: stop before' systemctl stop tollgate
: >$log
systemctl start tollgate
begin restart
for _time in 1 2; do
	check 'restart' systemctl restart tollgate
done
check 'restart: no event is missing or duplicated' whole
check 'restart: serials are dense' dense

begin kill
check 'kill -9: no restart before' [ "$(show NRestarts)" = 0 ]
for time in 1 2; do
	pid=$(show MainPID)
	systemctl kill --kill-whom=main -s KILL tollgate
	check 'kill -9: restarted' soon new_main "$pid"
	check 'kill -9: restarted by systemd' restarts $time
done
check 'kill -9: no event is missing or duplicated' whole
check 'kill -9: serials are dense' dense
check 'kill -9: plugin restarted' soon grep -q "kill-$(cat "$tmp/created")\"" /var/log/plugin.out

check 'watchdog: configured' [ "$(show WatchdogUSec)" = 1min ]
mkdir -p /run/systemd/system/tollgate.service.d
printf '[Service]\nWatchdogSec=20\n' >/run/systemd/system/tollgate.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart tollgate
begin watchdog
pid=$(show MainPID)
set_mark
kill -STOP "$pid"
check 'watchdog: restarts a daemon that hangs' soon new_main "$pid"
check 'watchdog: reported by systemd' logged "Failed with result 'watchdog'"
check 'watchdog: no event is missing or duplicated' whole
check 'watchdog: serials are dense' dense
rm -r /run/systemd/system/tollgate.service.d
systemctl daemon-reload

begin reinstall
pid=$(show MainPID)
set_mark
check 'reinstalled' dpkg --install /root/tollgate.deb
check 'reinstalled: new daemon' new_main "$pid"
check 'reinstalled: continues' logged 'took over the BPF programs of the previous daemon'
check 'reinstalled: no event is missing or duplicated' whole
check 'reinstalled: serials are dense' dense

systemd-analyze --no-pager security tollgate | tail -n 1 | sed 's/^/ok systemd-analyze security: /'

# -- stop
check 'stop' systemctl stop tollgate
check 'stop: no failure' [ "$(show Result)" = success ]
check 'stop: no pins, hooks or processes left' nothing_left
check 'stop: kernel audit is off' kernel_audit_is_off

# -- journald, which enables the kernel's audit when it starts (Debian's only if configured)
mkdir -p /etc/systemd
printf '[Journal]\nAudit=yes\n' >/etc/systemd/journald.conf
systemctl restart systemd-journald
check 'journald: leaves the kernel audit off' kernel_audit_is_off

# -- auditd
systemctl start tollgate
check 'auditd: start' systemctl start auditd
check 'auditd: stops tollgate' [ "$(show ActiveState)/$(show ActiveState auditd)" = inactive/active ]
check 'auditd: is registered' sh -c 'auditctl -s | grep -x "pid $(cat /run/auditd.pid)"'
set_mark
check 'auditd: start tollgate' systemctl start tollgate
check 'auditd: is stopped' [ "$(show ActiveState)/$(show ActiveState auditd)" = active/inactive ]
check 'auditd: its remaining rules are reported' logged "the kernel's own audit is also active"
systemctl stop tollgate
auditctl -D >/dev/null
auditctl -e 0 >/dev/null
systemctl start tollgate

# -- alternatives
check 'alternatives: install' tollgate-alternatives install
check 'alternatives: auditctl runs tollgate' sh -c '[ "$(auditctl -l)" = "$(tollgate auditctl -l)" ]'
check 'alternatives: auditctl lists its rules' sh -c 'auditctl -l | grep -e "-k watched"'
echo '-w /srv/third -p wa -k third' >/etc/audit/rules.d/70-third.rules
check 'alternatives: augenrules --load' augenrules --load
check 'alternatives: augenrules loads into tollgate' sh -c 'auditctl -l | grep -e "-k third"'

# -- remove, in the worst state: killed, with programs attached and the kernel's audit enabled
mkdir -p /run/systemd/system/tollgate.service.d
printf '[Service]\nRestart=no\n' >/run/systemd/system/tollgate.service.d/restart.conf
systemctl daemon-reload
systemctl kill --kill-whom=all -s KILL tollgate
check 'remove: the service has failed' soon systemctl is-failed tollgate
check 'remove: a killed daemon has left pins' fails nothing_left
check 'remove: status names them' sh -c 'tollgate status 2>&1 | grep "are still attached"'
rm -r /run/systemd/system/tollgate.service.d
systemctl daemon-reload
check 'purge' apt-get -q -y --no-download purge tollgate
check 'purge: no pins, hooks or processes left' nothing_left
check 'purge: unit is gone' [ "$(show LoadState)" = not-found ]
check 'purge: auditctl is auditd'"'"'s' sh -c '[ ! -L /sbin/auditctl ] && dpkg -S /sbin/auditctl | grep auditd'
check 'purge: kernel audit is off' kernel_audit_is_off
systemctl restart systemd-journald
check 'purge: journald enables the kernel audit again' sh -c 'auditctl -s | grep -x "enabled 1"'
check 'purge: no file left' sh -c '! find / -xdev \( -path /proc -o -path /sys -o -path /var/log -o -path /root -o -path /var/lib/dpkg -o -path /usr/local \) -prune -o -name "*tollgate*" -print | grep .'
check 'purge: /run/tollgate is gone' [ ! -e /run/tollgate ]
check 'purge: /var/lib/tollgate is gone' [ ! -e /var/lib/tollgate ]

echo 'test-service: done'
