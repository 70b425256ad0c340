#!/bin/sh
# audit-testsuite.sh DIR [TEST...]: runs the Linux audit test suite in the directory DIR
# (https://github.com/linux-audit/audit-testsuite) against tollgate in place of auditd, prints each check that fails,
# and passed and failed checks of each test. docs/compat.md explains the failures.
#
# As root, on a machine that is otherwise idle. Without TEST all tests run except time_change, which sets the clock.
# Needs ausearch, gcc and perl; tests need what DIR/README.md lists, and the locale en_DK.UTF-8. The suite runs in a
# mount name space where sh is bash and in a network name space, with commands of its own for auditctl, ausearch,
# service and killall; nothing on the machine is replaced.
#
# TOLLGATE is the program, ENGINE the engine (default: auto), AUSEARCH the command that reads the log (default:
# ausearch), TEST_SECONDS the longest time of a test (default: 300).
set -eu
umask 077

usage() {
	echo "usage: $0 DIR [TEST...]" >&2
	exit 2
}

[ $# -ge 1 ] || usage
suite=$(realpath "$1")
shift
[ -d "$suite/tests" ] || usage
[ "$(id -u)" = 0 ] || {
	echo "audit-testsuite: needs root" >&2
	exit 2
}
tollgate=$(realpath "${TOLLGATE:-$(dirname "$0")/../target/release/tollgate}")
for tool in ausearch gcc ip make perl bash script unshare timeout; do
	command -v "$tool" >/dev/null || {
		echo "audit-testsuite: $tool is missing" >&2
		exit 2
	}
done
# Tests give ausearch the time in this locale's form.
locale -a | grep -qix 'en_DK\.utf-\{0,1\}8' && [ "$(LC_TIME=en_DK.utf8 date -d 2001-02-03 +%x)" = 2001-02-03 ] || {
	echo "audit-testsuite: the locale en_DK.utf8 is missing (localedef -i en_DK -f UTF-8 en_DK.UTF-8)" >&2
	exit 2
}
ausearch=${AUSEARCH:-$(command -v ausearch)}
killall=$(command -v killall || echo false)

work=$(mktemp -d /tmp/audit-testsuite.XXXXXX)
daemon=
end() {
	stop
	rm -rf "$work"
}
trap end EXIT
trap 'exit 1' INT TERM HUP

log=$work/audit.log
control=$work/run/control
mkdir "$work/bin"
cp -a "$suite/tests" "$work/tests"
chmod 0755 "$work"
: >"$work/empty.rules"

command_of() {
	printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
	chmod 0755 "$work/bin/$1"
}
command_of auditctl "exec '$tollgate' auditctl --control '$control' \"\$@\""
command_of ausearch "exec $ausearch --input '$log' \"\$@\""
# A restarted auditd has the rules of its files: none here.
command_of service "[ \"\$2\" = stop ] || exec '$tollgate' auditctl --control '$control' -D"
command_of killall "case \"\$*\" in
*auditd) kill \"\$1\" \"\$(cat '$work/pid')\" ;;
*) exec '$killall' \"\$@\" ;;
esac"

# A daemon, and a log, for each test: ausearch reads the whole log.
start() {
	rm -f "$log"
	"$tollgate" daemon --foreground --engine "${ENGINE:-auto}" --no-pins --kernel-messages auto \
		--rules "$work/empty.rules" --log "$log" --control "$control" >"$work/daemon.out" 2>&1 &
	daemon=$!
	echo "$daemon" >"$work/pid"
	tries=0
	until "$tollgate" auditctl --control "$control" -s >/dev/null 2>&1; do
		tries=$((tries + 1))
		kill -0 "$daemon" 2>/dev/null && [ "$tries" -lt 300 ] || {
			cat "$work/daemon.out" >&2
			daemon=
			exit 1
		}
		sleep 0.1
	done
}

stop() {
	[ -z "$daemon" ] || {
		kill -CONT "$daemon"
		kill "$daemon" && wait "$daemon" || :
	}
	daemon=
}

if [ $# -eq 0 ]; then
	for directory in "$work"/tests/*/; do
		test=$(basename "$directory")
		[ "$test" = time_change ] || set -- "$@" "$test"
	done
fi

# As in a login of root on a terminal, whose sh is bash.
cat >"$work/one" <<'END'
case $2 in */bash) ;; *) mount --bind "$(command -v bash)" "$2" ;; esac
ip link set lo up
[ "$(cat /proc/self/loginuid)" != 4294967295 ] || echo 0 >/proc/self/loginuid
cd "$1/tests" && exec perl "./$3/test" >"$1/out" 2>"$1/err"
END
shell=$(realpath /bin/sh)
all=0
good=0
for test in "$@"; do
	[ -f "$work/tests/$test/test" ] || usage
	out=$work/out
	make -C "$work/tests/$test" CFLAGS="-g -O0 -D_GNU_SOURCE ${CFLAGS-}" >"$work/make.out" 2>&1 || :
	start
	: >"$out"
	: >"$work/err"
	PATH="$work/bin:$PATH" DISTRO=Debian MODE=64 timeout "${TEST_SECONDS:-300}" script -qec \
		"unshare --mount --net bash '$work/one' '$work' '$shell' '$test'" /dev/null </dev/null >/dev/null || :
	planned=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$out" | head -n 1)
	planned=${planned:-$(sed -n 's/.*plan tests => \([0-9 +*]*\).*/\1/p' "$work/tests/$test/test" | head -n 1)}
	planned=$((planned))
	passed=$(grep -c '^ok ' "$out" || :)
	# Each failed check, as Test.pm shows its line.
	sed -n "s/^# *[^ ]* line \([0-9]*\) is: /$test: line \1: /p" "$work/err"
	[ "$((passed + $(grep -c '^not ok ' "$out" || :)))" -eq "$planned" ] || {
		echo "$test: ended early:"
		tail -n 3 "$work/err" | sed "s/^/$test: /"
	}
	printf '%-32s %3d passed %3d failed\n' "$test" "$passed" "$((planned - passed))"
	all=$((all + planned))
	good=$((good + passed))
	stop
done
echo "total: $good of $all checks passed"
[ "$good" -eq "$all" ]
