#!/bin/sh
# bench.sh XTASK ARGUMENTS...: runs `XTASK bench guarded DIRECTORY ARGUMENTS...` with the machine
# to itself, and leaves the kernel's audit as it was, also when it is interrupted.
#
# `cargo xtask bench` becomes this script: putting things back after Ctrl-C takes a `trap`.
# Nothing but SIGKILL to this very shell keeps it from doing so.
set -eu

lock=/tmp/tollgate-machine.lock # one measurement, or one user of kernel audit, at a time
watched=/tmp/audit-bench        # the ten directories that the rules of `getpid` name

say() {
	printf 'bench: %s\n' "$*" >&2
}

# setting NAME: of the kernel's audit.
setting() {
	auditctl -s | awk -v name="$1" '$1 == name { print $2 }'
}

# End what the measurement has left running, then undo in the opposite order.
restore() {
	trap '' HUP INT TERM
	auditctl -D >/dev/null || true
	if daemon=$(cat "$work/daemon.pid" 2>/dev/null); then
		kill -TERM "$daemon" 2>/dev/null || true
		tries=100
		while [ "$tries" -gt 0 ] && kill -0 "$daemon" 2>/dev/null; do
			sleep 0.1
			tries=$((tries - 1))
		done
		kill -KILL "$daemon" 2>/dev/null || true
	fi
	auditctl -e "$enabled" >/dev/null || say "cannot set kernel audit back to -e $enabled"
	auditctl -f "$failure" >/dev/null || true
	auditctl -r "$rate" >/dev/null || true
	auditctl -b "$backlog" >/dev/null || true
	auditctl --backlog_wait_time "$wait_time" >/dev/null || true
	if ! grep -qx 'No rules' "$work/saved.rules"; then
		auditctl -R "$work/saved.rules" >/dev/null || {
			say "cannot load these rules of the kernel's audit again:"
			cat "$work/saved.rules" >&2
		}
	fi
	if [ -n "$made" ]; then
		rmdir "$watched"/[0-9] "$watched" 2>/dev/null || true
	fi
	rm -rf "$work"
}

for tool in auditctl auditd ausearch chrt flock setpriv strace taskset; do
	command -v "$tool" >/dev/null || {
		say "$tool is not there; see \`make setup\`"
		exit 1
	}
done

# Append: whatever the name is found to be, it is not emptied.
exec 9>>"$lock"
flock -n 9 || {
	say "waiting for $lock"
	flock 9
}

enabled=$(setting enabled)
failure=$(setting failure)
rate=$(setting rate_limit)
backlog=$(setting backlog_limit)
wait_time=$(setting backlog_wait_time)
if [ "$(setting pid)" != 0 ]; then
	say 'an audit daemon is running: stop it first, because only one can receive records'
	exit 1
fi
if [ "$enabled" = 2 ]; then
	say "the kernel's audit is locked (-e 2) until the next boot"
	exit 1
fi

work=$(mktemp -d "${TMPDIR:-/var/tmp}/tollgate-bench.XXXXXX")
made=
auditctl -l >"$work/saved.rules"
trap restore EXIT
trap 'exit 1' HUP INT TERM
chmod 0755 "$work"
if mkdir "$watched" 2>/dev/null; then
	made=yes
fi
for n in 0 1 2 3 4 5 6 7 8 9; do
	mkdir -p "$watched/$n"
done

# In the background, so that a signal ends `wait` and not only what follows the measurement.
xtask=$1
shift
"$xtask" bench guarded "$work" "$@" 9>&- </dev/null &
child=$!
trap 'kill -TERM "$child" 2>/dev/null || true' HUP INT TERM
while :; do
	status=0
	wait "$child" || status=$?
	kill -0 "$child" 2>/dev/null || break
done
exit "$status"
