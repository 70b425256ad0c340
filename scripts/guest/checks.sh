# checks.sh: what the tests in the test machine share: checks, waits, and what they look at. Sourced by run.sh.
# shellcheck shell=sh

log=/var/log/audit/machine.log
watched=/srv/watched
pins=/sys/fs/bpf/tollgate
tmp=$(mktemp -d /run/test.XXXXXX)

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

# soon COMMAND...: waits up to three minutes (this is an emulator, and its host may be busy) until the command succeeds.
soon() {
	end=$(($(date +%s) + 180))
	until "$@"; do
		[ "$(date +%s)" -lt "$end" ] || return 1
		sleep 0.5
	done
}

fails() {
	! "$@"
}

# prints TEXT COMMAND...: whether the command prints the text; its exit status does not matter.
prints() {
	text=$1
	shift
	"$@" >"$tmp/printed" 2>&1 </dev/null || true
	cat "$tmp/printed"
	grep -q -F -e "$text" "$tmp/printed"
}

# logged TEXT: whether the daemon has written TEXT to the journal since the mark, or the boot.
logged() {
	journalctl --sync
	prints "$1" journalctl -q -b -u tollgate ${mark:+--after-cursor="$mark"} -o short-precise
}

set_mark() {
	mark=$(journalctl -q -n 0 --show-cursor | sed -n 's/^-- cursor: //p')
}

show() {
	systemctl show --value -p "$1" "${2:-tollgate}"
}

is_active() {
	systemctl status --no-pager "${1:-tollgate}"
	[ "$(show ActiveState "${1:-tollgate}")" = active ]
}

has_failed() {
	[ "$(show ActiveState)" = failed ]
}

new_main() {
	pid=$(show MainPID)
	[ "$pid" != 0 ] && [ "$pid" != "$1" ] && [ "$(show ActiveState)" = active ]
}

# found KEY TEXT: whether ausearch finds TEXT in an event with this key in the log of auditd.conf.
found() {
	ausearch --input-logs -k "$1" --raw </dev/null | grep -F -e "$2"
}

# audits [KEY [DIRECTORY]]: whether a new file in the directory becomes an event with the key. A new process makes it:
# auditd does not audit those that were started while tollgate kept them out of the kernel's audit (-a never,task).
audits() {
	probe=${2:-$watched}/probe-$(date +%s%N)
	touch "$probe"
	soon found "${1:-watched}" "name=\"$probe\""
	status=$?
	rm -f "$probe"
	return $status
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

# count_created: ends `begin`, and lists the created files, and those that are in the log.
count_created() {
	touch "$tmp/stop"
	wait
	tollgate auditctl -m "end of $generation"
	created=$(cat "$tmp/created")
	cat $log.[1-9] $log 2>/dev/null | sed -n "s/.*name=\"$(echo $watched | sed 's,/,\\/,g')\/\($generation-[0-9]*\)\".*nametype=CREATE.*/\1/p" |
		sort >"$tmp/logged"
	seq -f "$generation-%.0f" "$created" | sort >"$tmp/expected"
	echo "$created files were created, $(wc -l <"$tmp/logged") are in the log"
	tollgate status
	[ "$created" -gt 20 ]
}

# whole: whether each created file is in the log exactly once, and no other file.
whole() {
	count_created && cmp "$tmp/expected" "$tmp/logged"
}

# gaps: prints the ranges of created files that are not in the log.
gaps() {
	comm -23 "$tmp/expected" "$tmp/logged" | sed 's/.*-//' | sort -n |
		awk 'NR == 1 || $1 != last + 1 { if (NR > 1) print first, last; first = $1 } { last = $1 } END { if (NR) print first, last }'
}

# whole_but_for_one_gap: the same, but for one gap, which the journal reports.
whole_but_for_one_gap() {
	count_created || return 1
	[ -z "$(uniq -d "$tmp/logged")" ] || return 1
	gaps >"$tmp/gaps"
	detail="of $created: missing $(head -n 5 "$tmp/gaps" | tr '\n' ';')"
	[ -s "$tmp/gaps" ] || return 0
	logged 'without a gap: ' && [ "$(wc -l <"$tmp/gaps")" -eq 1 ]
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

# hooked_functions: prints the kernel functions that have programs. The kernel detaches some ten per second.
hooked_functions() {
	mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
	# systemd has programs of its own on functions of this name.
	awk '!/^bpf_lsm_/ { print; found = 1 } END { exit !found }' /sys/kernel/tracing/enabled_functions
}

has_no_hooks() {
	fails hooked_functions
}

# no_programs: neither pins, nor hooks, nor processes.
no_programs() {
	ls -lR $pins
	[ ! -e $pins ] || [ -z "$(ls -A $pins)" ] || return 1
	soon has_no_hooks || return 1
	! grep '^tollgate$\|^tlg-' /proc/[0-9]*/comm
}

kernel_audit_is_off() {
	auditctl -s
	auditctl -l
	auditctl -s | grep -x 'enabled 0' && auditctl -l | grep -x 'No rules'
}
