#!/bin/sh
# Measures searching a large log: tollgate search and tollgate ausearch, cold and warm, and the stock ausearch.
#
# usage: measure-search.sh [--log FILE] [--runs N] [--stock MIB] [MIB]
#
#   MIB          make a log of this size (1024) with `cargo xtask log`, and remove it at the end
#   --log FILE   use this log, which `cargo xtask log` made
#   --runs N     repetitions of each question, interleaved (5)
#   --stock MIB  compare with the stock ausearch over the first MIB of the log
#
# Build first: cargo build --release --locked -p ausearch -p search
# Cold means with dropped caches, which needs root. CPU is user and system time; the kernel counts it in 10 ms, so
# short questions are repeated when warm. Bytes are those read from the disk, those of the program included.
set -eu

say() {
	printf 'measure-search: %s\n' "$*" >&2
}

fail() {
	say "$*"
	exit 2
}

# cold: drops the caches.
cold() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

# once TIMES COMMAND...: runs the command so many times. Prints for one of them: wall in ms, CPU in ms, MiB read.
once() {
	# shellcheck disable=SC2016 # for the inner shell
	TZ=UTC LC_ALL=C sh -c '
		scratch=$1 count=$2
		shift 2
		read_bytes() {
			while read -r name value; do
				[ "$name" != read_bytes: ] || printf "io %s\n" "$value"
			done <"/proc/$$/io"
		}
		begin=$(date +%s%N)
		{ read_bytes; times; } >"$scratch/times"
		left=$count
		while [ "$left" -gt 0 ]; do
			status=0
			"$@" </dev/null >"$scratch/out" 2>"$scratch/err" || status=$?
			[ "$status" -le 1 ] || exit "$status"
			left=$((left - 1))
		done
		{ read_bytes; times; } >>"$scratch/times"
		end=$(date +%s%N)
		echo "$((end - begin)) $count" >>"$scratch/times"' sh "$scratch" "$@" || {
		cat "$scratch/err" >&2
		fail "failed: $*"
	}
	# Lines: bytes read, own times, times of the children; the same again; nanoseconds and count.
	awk '
		function seconds(time, parts) {
			split(time, parts, /[ms]/)
			return parts[1] * 60 + parts[2]
		}
		$1 == "io" { bytes = $2 - bytes; next }
		/m.*s/ { if (++line % 2 == 0) cpu = seconds($1) + seconds($2) - cpu; next }
		{ printf "%.3f %.3f %.3f\n", $1 / $2 / 1e6, cpu * 1e3 / $2, bytes / $2 / 1048576 }
	' "$scratch/times"
}

# median COLUMN: of the lines on standard input.
median() {
	awk -v column="$1" '{ print $column }' | sort -g |
		awk '{ value[NR] = $1 } END { if (NR) printf "%.1f", (value[int((NR + 1) / 2)] + value[int(NR / 2) + 1]) / 2 }'
}

# batch MS: how often a command of this duration is repeated.
batch() {
	awk -v ms="$1" 'BEGIN { n = int(500 / (ms + 0.1)); print (n < 1 ? 1 : (n > 20 ? 20 : n)) }'
}

# stock_words NAME: the words of a question for ausearch; search_words NAME: for tollgate search.
stock_words() {
	case $1 in
	key) set -- -k incident ;;
	pid) set -- -p "$pid" ;;
	file) set -- -f /etc/rare.conf ;;
	uid) set -- -ui 1077 ;;
	time)
		from=$(date -u -d "@$second" '+%m/%d/%y %H:%M:%S')
		until=$(date -u -d "@$((second + 1))" '+%m/%d/%y %H:%M:%S')
		set -- -ts "${from% *}" "${from#* }" -te "${until% *}" "${until#* }"
		;;
	key+pid) set -- -k exec -p "$pid" ;;
	esac
	printf '%s\n' "$@"
}

search_words() {
	case $1 in
	key) set -- key=incident ;;
	pid) set -- "pid=$pid" ;;
	file) set -- path=/etc/rare.conf ;;
	uid) set -- uid=1077 ;;
	time) set -- --since "@$second" --until "@$((second + 2))" ;;
	key+pid) set -- key=exec and "pid=$pid" ;;
	esac
	printf '%s\n' "$@"
}

# ask TOOL NAME LOG TIMES: asks a question.
ask() {
	tool=$1 name=$2 file=$3 times=$4
	case $tool in
	search) words=$(search_words "$name") ;;
	*) words=$(stock_words "$name") ;;
	esac
	# One word on a line.
	old=$IFS
	IFS='
'
	# shellcheck disable=SC2086 # split into words
	set -- $words
	IFS=$old
	case $tool in
	search) once "$times" "$programs/tollgate-search" --raw --log "$file" "$@" ;;
	ausearch) once "$times" "$programs/tollgate-ausearch" --raw -if "$file" "$@" ;;
	stock) once "$times" ausearch --raw -if "$file" "$@" ;;
	esac
}

# index_bytes LOG: size of the indexes beside a log.
index_bytes() {
	find "$(dirname "$1")/.tollgate-index" -type f -exec stat -c %s {} + 2>/dev/null |
		awk '{ sum += $1 } END { print sum + 0 }'
}

# table QUESTIONS FILE: medians of lines "question tool state wall cpu read".
table() {
	printf '%-9s %-9s %-5s %12s %12s %12s\n' question program state 'wall ms' 'CPU ms' 'MiB read'
	for name in $1; do
		for tool in search ausearch stock; do
			for state in cold warm; do
				grep "^$name $tool $state " "$2" >"$scratch/lines" || continue
				printf '%-9s %-9s %-5s %12s %12s %12s\n' "$name" "$tool" "$state" \
					"$(median 4 <"$scratch/lines")" "$(median 5 <"$scratch/lines")" \
					"$(median 6 <"$scratch/lines")"
			done
		done
	done
}

log='' runs=5 stock='' mib=1024
while [ $# -gt 0 ]; do
	case $1 in
	--log | --runs | --stock)
		[ $# -ge 2 ] || fail "$1 needs a value"
		case $1 in
		--log) log=$2 ;;
		--runs) runs=$2 ;;
		--stock) stock=$2 ;;
		esac
		shift
		;;
	-*) fail "unknown option $1" ;;
	*) mib=$1 ;;
	esac
	shift
done

[ -z "$log" ] || log=$(realpath "$log")
cd "$(dirname "$0")/.."
programs=$(realpath "${CARGO_TARGET_DIR:-target}/release")
for program in tollgate-search tollgate-ausearch; do
	[ -x "$programs/$program" ] || fail "no $programs/$program: cargo build --release --locked -p ausearch -p search"
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
if [ -z "$log" ]; then
	mkdir "$scratch/log"
	log=$scratch/log/audit.log
	say "writing $mib MiB to $log"
	cargo xtask log "$log" "$mib" >&2
fi
bytes=$(stat -c %s "$log")
can_drop=
if [ -w /proc/sys/vm/drop_caches ]; then
	can_drop=1
else
	say 'not root: nothing is measured cold'
fi

# A process and a second in the middle of the log.
line=$(tail -c "+$((bytes / 2))" "$log" | sed -n '2,$ { /^type=SYSCALL/ { p; q; }; }')
pid=$(printf '%s\n' "$line" | sed 's/.* pid=\([0-9]*\) .*/\1/')
second=$(printf '%s\n' "$line" | sed 's/.*audit(\([0-9]*\)\..*/\1/')

printf '%s: %s bytes; %s; Linux %s; %s CPUs; load %s; %s runs\n' "$log" "$bytes" "$(date -u +%Y-%m-%d)" \
	"$(uname -r)" "$(nproc)" "$(cut -d ' ' -f 1 /proc/loadavg)" "$runs"
sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1

# The first question builds the index.
[ -z "$can_drop" ] || cold
before=$(index_bytes "$log")
built=$(once 1 "$programs/tollgate-search" --count --log "$log" key=no-such-key)
size=$(index_bytes "$log")
if [ "$before" -ne 0 ]; then
	echo 'The index was there.'
else
	echo "$built" | awk -v bytes="$bytes" '{
		printf "Building the index: %.1f s, %.1f s of CPU, %.0f MB/s of CPU\n", $1 / 1e3, $2 / 1e3, bytes / 1e3 / ($2 + 0.001)
	}'
fi
awk -v size="$size" -v bytes="$bytes" 'BEGIN { printf "Index: %d bytes, %.3f %% of the log\n\n", size, size * 100 / bytes }'

questions='key pid file uid time key+pid'
for name in $questions; do
	for tool in search ausearch; do
		ask "$tool" "$name" "$log" 1 >"$scratch/first.$name.$tool"
		mv "$scratch/out" "$scratch/$tool.out"
	done
	events=$(sed -n 's/.*msg=audit(\([^)]*\)).*/\1/p' "$scratch/search.out" | sort -u | wc -l)
	cmp -s "$scratch/search.out" "$scratch/ausearch.out" || fail "$name: the programs find different events"
	[ "$events" -gt 0 ] || say "$name: nothing is found in this log"
	[ "$events" -le 1000 ] || say "$name: more than 1,000 events"
	printf '%-9s %6d events: search %s; ausearch %s\n' "$name" "$events" \
		"$(search_words "$name" | tr '\n' ' ')" "$(stock_words "$name" | tr '\n' ' ')"
done
echo

: >"$scratch/samples"
run=0
while [ "$run" -lt "$runs" ]; do
	for name in $questions; do
		for tool in search ausearch; do
			read -r first _ <"$scratch/first.$name.$tool"
			if [ -n "$can_drop" ]; then
				cold
				sample=$(ask "$tool" "$name" "$log" 1)
				echo "$name $tool cold $sample" >>"$scratch/samples"
			fi
			ask "$tool" "$name" "$log" 1 >/dev/null
			sample=$(ask "$tool" "$name" "$log" "$(batch "$first")")
			echo "$name $tool warm $sample" >>"$scratch/samples"
		done
	done
	run=$((run + 1))
done
table "$questions" "$scratch/samples"
echo

# Scans: a text within a path, which no index can exclude, and all events.
: >"$scratch/scans"
run=0
while [ "$run" -le "$runs" ]; do
	text=$(once 1 "$programs/tollgate-search" --count --log "$log" 'path~no-such-name')
	parse=$(once 1 "$programs/tollgate-search" --count --log "$log")
	# The first fills the cache.
	[ "$run" -eq 0 ] || printf 'text %s\nparse %s\n' "$text" "$parse" >>"$scratch/scans"
	run=$((run + 1))
done
for scan in text parse; do
	cpu=$(grep "^$scan " "$scratch/scans" | median 3)
	wall=$(grep "^$scan " "$scratch/scans" | median 2)
	read=$(grep "^$scan " "$scratch/scans" | median 4)
	awk -v scan="$scan" -v cpu="$cpu" -v wall="$wall" -v read="$read" -v bytes="$bytes" 'BEGIN {
		what = scan == "text" ? "Scan for a text (path~no-such-name)" : "Scan that parses each event (--count)"
		printf "%s, warm: %.2f s, %.2f s of CPU, %.2f GB/s of CPU, %.0f MiB read\n", what, wall / 1e3, cpu / 1e3, bytes / 1e6 / (cpu + 0.001), read
	}'
done
[ -n "$stock" ] || exit 0

command -v ausearch >/dev/null || fail 'the stock ausearch is not installed (Debian package auditd)'
mkdir "$scratch/first"
piece=$scratch/first/audit.log
# Without the last line, which may be cut.
head -c "$((stock * 1048576))" "$log" | sed '$d' >"$piece"
# A process and a second of the piece.
line=$(tail -c "+$(($(stat -c %s "$piece") / 2))" "$piece" | sed -n '2,$ { /^type=SYSCALL/ { p; q; }; }')
pid=$(printf '%s\n' "$line" | sed 's/.* pid=\([0-9]*\) .*/\1/')
second=$(printf '%s\n' "$line" | sed 's/.*audit(\([0-9]*\)\..*/\1/')
echo
echo "The first $stock MiB, $(ausearch -v | head -n 1):"
: >"$scratch/samples"
once 1 "$programs/tollgate-search" --count --log "$piece" key=no-such-key >/dev/null
run=0
while [ "$run" -lt "$runs" ]; do
	for name in $questions; do
		for tool in search ausearch stock; do
			sample=$(ask "$tool" "$name" "$piece" 1)
			mv "$scratch/out" "$scratch/$tool.out"
			echo "$name $tool warm $sample" >>"$scratch/samples"
		done
		for tool in search ausearch; do
			cmp -s "$scratch/$tool.out" "$scratch/stock.out" || say "$name: $tool and the stock tool find different events"
		done
	done
	run=$((run + 1))
done
table "$questions" "$scratch/samples"
echo
for name in $questions; do
	for tool in search ausearch; do
		for column in 4 5; do
			theirs=$(grep "^$name stock " "$scratch/samples" | median "$column")
			ours=$(grep "^$name $tool " "$scratch/samples" | median "$column")
			echo "$name $tool $column $theirs $ours"
		done
	done
done | awk '{
	ratio = $4 / ($5 > 0 ? $5 : 5)
	sign = $5 > 0 ? "" : "at least "
	if ($3 == 4) wall = sprintf("%.0f", ratio)
	else printf "%-9s %-9s stock takes %s times the wall time, %s%.0f times the CPU time\n", $1, $2, wall, sign, ratio
}'
