#!/bin/sh
# run.sh: runs the tests in the machine that test-boot.sh boots, after each of its boots: service.sh at the first one,
# then the states of states.sh. Prints a line for each check, `ok` or `FAILED`, and at the end `tests: done`.
#
# The kernel option test.only=NAME,NAME selects states; the name of service.sh is `service`.
set -u
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /usr/local/lib/audit-test || exit
. ./checks.sh
. ./states.sh
. ./detection.sh
only=$(sed -n 's/.*test\.only=\([^ ]*\).*/\1/p' /proc/cmdline)
mark=

# A script that fails must not leave the machine running.
trap 'systemctl --no-block poweroff' EXIT

# set_position STATE WORD: where the next boot continues. Overwrites a block that exists: the disk can be full.
set_position() {
	printf '%-60s\n' "$*" | dd of=position conv=notrunc 2>/dev/null
	sync
}

selected() {
	[ -z "$only" ] || case ",$only," in *",$1,"*) ;; *) return 1 ;; esac
}

# run_state NAME FIRST WORD...: runs the words from the number FIRST, counted from 1.
run_state() {
	state=$1 first=$2 number=0 started=$(date +%s) detail=
	shift 2
	[ "$first" -gt 1 ] || begin_state
	for word in "$@"; do
		number=$((number + 1))
		[ "$number" -ge "$first" ] || continue
		if [ "$word" = reboot ]; then
			set_position "$state" $((number + 1))
			trap - EXIT
			systemctl --no-block reboot
			exit
		fi
		check "$state: $word" "$word"
		[ -z "$detail" ] || echo "ok $state: $word: $detail"
		detail=
	done
	echo "ok $state: ended after $(($(date +%s) - started)) s"
}

echo "ok booted in $(cut -d ' ' -f 1 /proc/uptime) s: $(uname -r), $(systemctl --version | head -n 1)"
position=first resume_at=1
[ ! -e position ] || read -r position resume_at <position
set_position none 0
case $position in
first) ! selected service || . ./service.sh ;;
none)
	echo 'FAILED: the machine has restarted by itself'
	exit
	;;
esac

# A line that begins with blanks continues the line above.
states | sed -e ':a' -e 'N' -e '$!ba' -e 's/\n  */ /g' | grep . >"$tmp/table"
# Descriptor 3: the checks must not read the table.
while read -r name words <&3; do
	if [ "$position" = "$name" ]; then
		position=first
	elif [ "$position" = first ] && selected "$name"; then
		resume_at=1
	else
		continue
	fi
	# Unquoted: a list of words.
	# shellcheck disable=SC2086
	run_state "$name" "$resume_at" $words
done 3<"$tmp/table"
echo 'tests: done'
