#!/bin/sh
# `make run`: audits with examples/first.rules (first-aarch64.rules on arm64) and prints events as they happen.
# As root it audits this machine: on a terminal until Ctrl-C, otherwise for 10 seconds.
# Without root it audits a small example command with `tollgate run`.
#
# Exit status: 0 if the daemon ended normally and recorded events, else 1.
set -eu

seconds=10
ready_line='tollgate: auditing'
logs=/var/log/tollgate-demo # only root can write here

say() {
	printf 'run: %s\n' "$*" >&2
}

# Background commands of a shell ignore SIGINT, so Ctrl-C does not reach the daemon.
end_daemon() {
	kill -TERM "$daemon" 2>/dev/null || true
}

# relay: copies the daemon's standard error, and writes one word to the pipe "state":
# "ready" once the daemon has attached, "ended" if it exited before.
relay() {
	trap '' HUP INT TERM
	state=ended
	while IFS= read -r line || [ -n "$line" ]; do
		printf '%s\n' "$line" >&2
		case $line in
		"$ready_line"*)
			if [ "$state" = ended ]; then
				state=ready
				echo ready >"$pipes/state"
			fi
			;;
		esac
	done <"$pipes/stderr"
	if [ "$state" = ended ]; then
		echo ended >"$pipes/state"
	fi
}

# A few calls, so that there is something to see at once.
harmless_commands() {
	say 'running: ls -l /etc/hostname; touch, chmod and rm of a file of its own'
	scratch=$(mktemp -d "$target/run.XXXXXX")
	ls -l /etc/hostname >/dev/null || true
	touch "$scratch/toll"
	chmod 0600 "$scratch/toll"
	rm "$scratch/toll"
	rmdir "$scratch"
}

# count_events LOG: counts with ausearch if it is installed.
count_events() {
	if command -v ausearch >/dev/null; then
		ausearch -if "$1" --raw 2>/dev/null </dev/null | grep -c '^type=SYSCALL' || true
	else
		grep -c '^type=SYSCALL' "$1" || true
	fi
}

# Without root: a command that creates, changes, moves and removes files, and one denied open.
example_command() {
	"${MAKE:-make}" tollgate || {
		say 'run `make setup` for what the build needs'
		return 1
	}
	say 'without root: auditing one command; with root, `make run` audits the machine'
	scratch=$(mktemp -d)
	status=0
	"${CARGO_TARGET_DIR:-target}/release/tollgate" run --rules "$rules" --print --interpret \
		--log "$scratch/audit.log" -- sh -c '
			cd "$1" && cp /etc/passwd x && chmod 600 x && mv x y && rm y && id
			cat /etc/shadow 2>/dev/null || true' sh "$scratch" || status=$?
	events=$(grep -c '^type=SYSCALL' "$scratch/audit.log") || true
	rm -rf "$scratch"
	[ "$status" -eq 0 ] && [ "${events:-0}" -gt 0 ] || return 1
	say "$events events; now try: tollgate run --rules FILE --print -- COMMAND"
}

cd "$(dirname "$0")/.."
rules=examples/first.rules
if [ "$(uname -m)" = aarch64 ]; then rules=examples/first-aarch64.rules; fi
if [ "$(id -u)" -ne 0 ]; then
	example_command
	exit
fi
"${MAKE:-make}" setup tollgate

target=${CARGO_TARGET_DIR:-target}
umask 077
mkdir -p "$logs"
directory=$(mktemp -d "$logs/$(date +%Y-%m-%d-%H%M%S).XXXXXX")
log=$directory/audit.log
pipes=$(mktemp -d)
daemon=
timer=
trap 'rm -rf "$pipes"' EXIT
mkfifo "$pipes/stderr" "$pipes/state"

relay &
relay=$!
"$target/release/tollgate" daemon --rules "$rules" --log "$log" --print --interpret \
	2>"$pipes/stderr" &
daemon=$!
trap end_daemon HUP INT TERM

state=
read -r state <"$pipes/state" || true
if [ "$state" = ready ]; then
	if [ -t 0 ]; then
		say 'use this machine in another shell and watch; Ctrl-C stops auditing'
		harmless_commands
	else
		say "no terminal: stopping after $seconds s"
		harmless_commands
		(
			sleep "$seconds"
			end_daemon
		) </dev/null >/dev/null 2>&1 &
		timer=$!
	fi
fi

# A signal interrupts `wait` before the daemon has exited.
status=0
while kill -0 "$daemon" 2>/dev/null; do
	status=0
	wait "$daemon" || status=$?
done
if [ -n "$timer" ]; then
	kill "$timer" 2>/dev/null || true
fi
wait "$relay" || true

if [ "$state" != ready ] || [ "$status" -ne 0 ]; then
	say "the daemon exited with status $status"
	exit 1
fi
events=$(count_events "$log")
say "$events events in $log; read them with: ausearch -i -if $log"
[ "$events" -gt 0 ]
