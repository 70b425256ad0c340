#!/bin/sh
# Compares what Sigma rules match in audit logs: tollgate-detect, and pySigma with its SQLite backend.
#
# usage: compare.sh RULES LOG DETECT...
#        compare.sh --make LOG
#
#   RULES   directory with Sigma rules, or a file
#   LOG     audit log of an x86-64 machine
#   DETECT  program tollgate-detect; several are compared one after the other
#   --make  write LOG with events made from the commands in tests/vm/src/detections/sigmahq.txt
#
# Exit status: 0 if nothing differs but what permitted.toml lists, 1 if something does, 2 for an error.
# Needs Python 3.11 with venv, unshare, linux-libc-dev, and PyPI once.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
venv=$here/../../target/sigma-venv
pins=$here/requirements.txt

fail() {
	printf 'compare: %s\n' "$*" >&2
	exit 2
}

[ "${1-}" != --make ] || {
	[ $# -eq 2 ] || fail 'usage: compare.sh --make LOG'
	exec python3 -B "$here/make_log.py" "$here/../vm/src/detections/sigmahq.txt" "$2"
}
[ $# -ge 3 ] || fail 'usage: compare.sh RULES LOG DETECT...'

if ! cmp -s "$pins" "$venv/installed.txt"; then
	python3 -m venv "$venv" || fail "cannot make $venv"
	"$venv/bin/pip" install --quiet --requirement "$pins" || fail 'cannot install pySigma'
	cp "$pins" "$venv/installed.txt"
fi
exec nice -n 10 "$venv/bin/python" -B "$here/compare.py" "$@"
