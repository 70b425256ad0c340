# detection.sh: what the state `detection` of states.sh does: tollgate-detect.service under systemd. Sourced by run.sh.
# shellcheck shell=sh

alerts_of_program=/var/lib/tollgate-detect/alerts

# detect_with OPTIONS: the unit of the package, with a log that is not the default, a program for alerts and syslog.
detect_with() {
	mkdir -p /etc/systemd/system/tollgate-detect.service.d /etc/tollgate/sigma
	cat >/etc/systemd/system/tollgate-detect.service.d/test.conf <<-UNIT
		[Unit]
		AssertPathExists=
		[Service]
		ExecStart=
		ExecStart=/usr/sbin/tollgate-detect run /usr/share/tollgate/sigma /etc/tollgate/sigma --log $log --silences /etc/tollgate/silences.toml --window 0 $*
		RestrictAddressFamilies=AF_UNIX
	UNIT
	systemctl daemon-reload
}

# absent_log_is_told: the log of the unit of the package is another one than that of this machine.
absent_log_is_told() {
	fails systemctl start tollgate-detect && prints 'Assertion failed on job' systemctl start tollgate-detect
}

# prepare_detection: a rule of the machine, its audit rules, and a program that keeps the alerts.
prepare_detection() {
	detect_with --syslog --on-alert /usr/local/bin/on-alert
	cat >/etc/tollgate/sigma/third.yml <<-'RULE'
		title: File Created In Third
		logsource:
		    product: linux
		    category: file_event
		detection:
		    created:
		        TargetFilename|startswith: /srv/third/
		    condition: created
		level: high
	RULE
	cat >/usr/local/bin/on-alert <<-PROGRAM
		#!/bin/sh
		{
			grep '^Cap\|^NoNewPrivs\|^Seccomp:\|^Uid' /proc/self/status
			env
			cat
		} >>$alerts_of_program
	PROGRAM
	chmod 0755 /usr/local/bin/on-alert
	tollgate detect explain /etc/tollgate/sigma /usr/share/tollgate/sigma/exec-from-memory.yml --audit-rules \
		>/etc/audit/rules.d/60-sigma.rules && tollgate augenrules --load
}

# detection_starts: as a user of its own with one capability, and ready when it has told so.
detection_starts() {
	set_mark
	systemctl start tollgate-detect && soon detection_told enforced && is_active tollgate-detect &&
		prints 'CapEff:	0000000000000004' cat "/proc/$(show MainPID tollgate-detect)/status" &&
		fails prints 'Uid:	0' cat "/proc/$(show MainPID tollgate-detect)/status"
}

# detection_told TEXT: since the mark.
detection_told() {
	journalctl --sync
	prints "$1" journalctl -q -b -u tollgate-detect --after-cursor="$mark" -o cat
}

# alerted NAME: whether a new file is an alert, in the journal, for the program and at the socket of syslog.
alerted() {
	: >"/srv/third/$1"
	was_alerted "$1"
}

was_alerted() {
	soon detection_told "TargetFilename=/srv/third/$1" && soon grep "/srv/third/$1" $alerts_of_program &&
		soon detection_told "TargetFilename=/srv/third/$1; records"
}

attack_is_alerted() {
	cp /usr/bin/true /dev/shm/attack && /dev/shm/attack && soon detection_told 'Program Executed From Memory' && alerted one
}

# program_has_no_rights: the program has no capabilities, and the filter of the unit.
program_has_no_rights() {
	grep 'CapEff:	0000000000000000' $alerts_of_program && grep 'CapAmb:	0000000000000000' $alerts_of_program &&
		grep 'NoNewPrivs:	1' $alerts_of_program && grep 'Seccomp:	2' $alerts_of_program &&
		grep '^TOLLGATE_ALERT_LEVEL=high' $alerts_of_program && fails grep '^Uid:	0' $alerts_of_program
}

detection_status_is_good() {
	tollgate detect status --log $log && prints 'runs, process' tollgate detect status --log $log
}

# between_runs_is_alerted: what happens while the service is stopped is an alert of the next run.
between_runs_is_alerted() {
	systemctl stop tollgate-detect && has_no_detection && : >/srv/third/between && set_mark &&
		systemctl start tollgate-detect && was_alerted between
}

has_no_detection() {
	! grep '^tollgate-detect$\|^tlg-on-alert' /proc/[0-9]*/task/*/comm
}

# killed_is_alerted: systemd starts the service again, which continues where the killed one was.
killed_is_alerted() {
	alerted before-kill || return 1
	killed=$(show MainPID tollgate-detect)
	systemctl kill --kill-whom=main -s KILL tollgate-detect
	: >/srv/third/killed
	soon detection_is_new "$killed" && was_alerted killed && fails detection_told 'events may be missing'
}

detection_is_new() {
	pid=$(show MainPID tollgate-detect)
	[ "$pid" != 0 ] && [ "$pid" != "$1" ] && is_active tollgate-detect
}

# one_helper: neither a killed run nor a stopped one leaves a helper.
one_helper() {
	pgrep -f on-alert-helper
	[ "$(pgrep -c -f on-alert-helper)" -eq 1 ]
}

daemon_restart_is_survived() {
	systemctl restart tollgate && soon is_active && alerted restarted &&
		systemctl kill -s KILL tollgate && soon is_active && alerted daemon-killed
}

# syslog_restart_is_survived: a daemon with a new socket gets alerts again.
syslog_restart_is_survived() {
	systemctl restart systemd-journald && sleep 2 && alerted journal
}

# end_detection: nothing is left for the next state.
end_detection() {
	systemctl stop tollgate-detect && has_no_detection && rm -r /etc/systemd/system/tollgate-detect.service.d \
		/usr/local/bin/on-alert && systemctl daemon-reload && rm -rf /var/lib/private/tollgate-detect /var/lib/tollgate-detect
}
