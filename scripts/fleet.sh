#!/bin/sh
# fleet.sh SHIP: sends logs to real collectors while both sides are killed, compares serials, and measures.
#
#   SHIP   program tollgate-ship
#
# Builds the collector of tests/fleet/collector in target/fleet. Needs Go 1.26, Python 3.10 and, once, the network;
# the first run takes some five minutes.
#
# Exit status: 0 if every serial arrives, 1 if not, 2 for an error.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
place=${CARGO_TARGET_DIR:-$here/target}/fleet

fail() {
	printf 'fleet: %s\n' "$*" >&2
	exit 2
}

[ $# -eq 1 ] || fail 'usage: fleet.sh SHIP'
command -v go >/dev/null || fail 'Go is missing: install it (golang-go of Debian 13, or a newer one)'

mkdir -p "$place"
(cd "$here/tests/fleet/collector" && go build -trimpath -ldflags '-s -w' -o "$place/collector" .) ||
	fail 'the collector cannot be built'
exec python3 -B "$here/tests/fleet/otlp.py" "$1" "$place/collector" "$place/otlp"
