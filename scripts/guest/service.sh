# service.sh: tests tollgate.service under systemd, from the boot beside auditd to the alternatives of auditctl.
# Sourced by run.sh, at the first boot.
# shellcheck shell=sh

restarts() {
	[ "$(show NRestarts)" -ge "$1" ] && [ "$(show ActiveState)" = active ]
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

# -- the boot, with both enabled
check 'boot: both were enabled' systemctl is-enabled auditd tollgate
check 'boot: tollgate is active' systemctl is-active tollgate
check 'boot: auditd is not active' fails systemctl is-active auditd
check 'boot: before sysinit.target' before_sysinit
check 'boot: no unit has failed' sh -c '! systemctl --failed --no-legend | grep .'
check 'boot: the kernel has only the rule never,task' [ "$(/sbin/auditctl -l)" = '-a never,task' ]
systemctl disable auditd >/dev/null 2>&1

# -- enable --now
check 'disable --now' systemctl disable --now tollgate
check 'disable: no pins, hooks or processes left' no_programs
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
check 'stop: no pins, hooks or processes left' no_programs
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
check 'alternatives: remove' tollgate-alternatives remove
check 'alternatives: auditctl is that of auditd' auditctl_is_stock
rm /etc/audit/rules.d/60-other.rules /etc/audit/rules.d/70-third.rules
