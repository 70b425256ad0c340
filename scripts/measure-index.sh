#!/bin/sh
# Measures what the daemon pays for the index and for archives: CPU time an event, and bytes on disk.
#
# usage: measure-index.sh [--runs N] [--one-cpu] [PAIRS]
#
#   PAIRS        opens and closes of one file in each run, all recorded: two events each (1000000)
#   --runs N     runs of each variant, interleaved (5)
#   --one-cpu    the opens and closes share a CPU with the daemon, with the least priority: they never outrun it
#
# Build first: cargo build --release --locked. Needs root; no other daemon may audit.
# CPU is the user and system time of the daemon until it has compressed everything. Under more events than it can read it
# leaves the index to the first search: the column `index` shows how much there is.
set -eu

say() {
	printf 'measure-index: %s\n' "$*" >&2
}

fail() {
	say "$*"
	exit 2
}

runs=5
pairs=1000000
daemon_on=
loader_on=
while [ $# -gt 0 ]; do
	case $1 in
	--runs)
		runs=$2
		shift 2
		;;
	--one-cpu)
		daemon_on='taskset -c 0'
		loader_on='taskset -c 0 nice -n 19'
		shift
		;;
	-*) fail "unknown option $1: see the head of this script" ;;
	*)
		pairs=$1
		shift
		;;
	esac
done
[ "$(id -u)" = 0 ] || fail "must run as root"
cd "$(dirname "$0")/.."
tollgate=$PWD/target/release/tollgate
bench=$PWD/target/release/tollgate-bench
search=$PWD/target/release/tollgate-search
[ -x "$tollgate" ] && [ -x "$bench" ] && [ -x "$search" ] || fail "run cargo build --release --locked first"

place=$(mktemp -d)
daemon=
end() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	rm -rf "$place"
}
trap end EXIT
mkdir -m 0755 "$place/work"
chmod 0755 "$place"
: >"$place/work/file1"
chown -R 65534 "$place/work"
printf '%s\n' '-a always,exit -F arch=b64 -S open,openat,close -F uid=65534' >"$place/rules"

# cpu: nanoseconds that the daemon's threads ran so far.
cpu() {
	cat "/proc/$daemon/task"/*/schedstat | awk '{ ns += $1 } END { printf "%d\n", ns }'
}

# quiet: waits until the daemon does nothing.
quiet() {
	last=0
	now=$(cpu)
	while [ $((now - last)) -gt 20000000 ]; do
		sleep 1
		last=$now
		now=$(cpu)
	done
}

# run VARIANT: prints microseconds of CPU an event, bytes of text and bytes on disk an event.
run() {
	logs=$place/logs
	rm -rf "$logs"
	mkdir -m 0700 "$logs"
	cat >"$place/auditd.conf" <<-CONF
		log_file = $logs/audit.log
		log_format = RAW
		max_log_file = 64
		num_logs = 99
		max_log_file_action = ROTATE
		flush = INCREMENTAL_ASYNC
		freq = 50
		space_left = 75
		admin_space_left = 50
		plugin_dir = $place/none
	CONF
	case $1 in
	plain) settings='index = false' ;;
	index) settings='index = true' ;;
	compress) settings='compress = true' ;;
	esac
	printf 'auditd_conf = "%s"\npins = false\n%s\n' "$place/auditd.conf" "$settings" >"$place/tollgate.toml"
	$daemon_on "$tollgate" daemon --foreground --config "$place/tollgate.toml" --rules "$place/rules" --no-control \
		2>"$place/messages" &
	daemon=$!
	until grep -q 'auditing' "$place/messages"; do
		kill -0 "$daemon" 2>/dev/null || fail "the daemon ended: $(cat "$place/messages")"
		sleep 0.1
	done
	quiet
	before=$(cpu)
	(cd "$place/work" && $loader_on setpriv --reuid 65534 --regid 65534 --clear-groups \
		"$bench" --workload open-close "$pairs" <"$place/work/file1" >/dev/null)
	# The last part becomes an old log too.
	kill -USR1 "$daemon"
	quiet
	ns=$(($(cpu) - before))
	kill -TERM "$daemon"
	wait "$daemon" || say "the daemon failed: $(tail -n 1 "$place/messages")"
	daemon=
	# Before the search below indexes the rest.
	index=0
	[ ! -d "$logs/.tollgate-index" ] || index=$(cat "$logs"/.tollgate-index/* | wc -c)
	events=$("$search" --count --log "$logs" 'type=SYSCALL')
	[ "$events" -ge $((pairs * 2)) ] || say "$events of $((pairs * 2)) events are in the log"
	text=$("$log" cat "$logs" | wc -c)
	stored=$(cat "$logs"/audit.log* | wc -c)
	awk -v ns="$ns" -v events="$events" -v text="$text" -v stored="$stored" \
		-v index_bytes="$index" 'BEGIN {
			printf "%.4f %.1f %.1f %.2f\n", ns / 1000 / events, text / events, stored / events,
				index_bytes / events
		}'
}

ln -s "$search" "$place/tollgate-log"
log=$place/tollgate-log
for number in $(seq "$runs"); do
	for variant in plain index compress; do
		run "$variant" >>"$place/$variant"
		say "run $number of $runs, $variant: $(tail -n 1 "$place/$variant")"
	done
done

# median VARIANT COLUMN
median() {
	cut -d ' ' -f "$2" "$place/$1" | sort -n | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}

printf '| %s | %s | %s | %s | %s |\n' variant 'CPU, us/event' 'text, B/event' 'logs, B/event' 'index, B/event'
printf '| --- | --- | --- | --- | --- |\n'
for variant in plain index compress; do
	printf '| %s | %s | %s | %s | %s |\n' "$variant" "$(median "$variant" 1)" "$(median "$variant" 2)" \
		"$(median "$variant" 3)" "$(median "$variant" 4)"
done
