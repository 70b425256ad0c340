#!/bin/sh
# fleet.sh RELEASE: tests and measures `tollgate ship` with real collectors, brokers of Kafka and a stock auditd, queries of its
# files in real engines, and `tollgate collect` with its real peers.
#
#   RELEASE   directory of the programs tollgate-collect, tollgate-ship and tollgate-search
#
# tests/fleet/collect.py sends events by Debian's audisp-remote, and by tollgate-ship with OTLP and syslog over TLS, to
# tollgate-collect while that is killed, compares lines, and measures; tests/fleet/auditd.py does so by tollgate-ship to
# Debian's auditd while both sides are killed. Both need root. tests/fleet/otlp.py sends logs to an OpenTelemetry Collector
# while both sides are killed, compares serials, and measures; tests/fleet/kafka.py does so with three brokers of Kafka, which
# EVENTS=1000000 in the environment sends more events than 100,000; tests/fleet/s3.py puts Parquet files into a bucket of moto,
# which checks signatures, while the shipper is killed. tests/fleet/compare.py runs deploy/queries in DuckDB,
# ClickHouse (chdb) and Spark on Parquet files of simulated hosts, and compares the answers. The collector, the brokers and the
# engines are kept in target/fleet.
# Needs Go 1.26, Python 3.10, Java, Maven and, once, the network; the first run takes some five minutes more.
#
# Exit status: 0 if every serial arrives and every answer is right, 1 if not, 2 for an error.
set -eu

fail() {
	printf 'fleet: %s\n' "$*" >&2
	exit 2
}

[ $# -eq 1 ] || fail 'usage: fleet.sh RELEASE'
release=$(cd "$1" && pwd) || fail "$1 is no directory: run make build"
cd "$(dirname "$0")/.."
place=${CARGO_TARGET_DIR:-target}/fleet

for program in tollgate-collect tollgate-ship tollgate-search; do
	[ -x "$release/$program" ] || fail "$release/$program is missing: run make build"
done
command -v go >/dev/null || fail 'Go is missing: install it (golang-go of Debian 13, or a newer one)'
command -v java >/dev/null || fail 'Spark needs Java: apt-get install openjdk-17-jre-headless'

command -v mvn >/dev/null || fail 'the brokers need Maven: apt-get install maven'
[ -x /sbin/audisp-remote ] || fail 'audisp-remote is missing: apt-get install audispd-plugins'
[ -x /sbin/auditd ] || fail 'auditd is missing: run sh scripts/setup.sh'
command -v certtool >/dev/null || fail 'certtool is missing: apt-get install gnutls-bin'

mkdir -p "$place"
place=$(cd "$place" && pwd)
(cd tests/fleet/collector && go build -trimpath -ldflags '-s -w' -o "$place/collector" .) ||
	fail 'the collector cannot be built'
if ! cmp -s tests/fleet/requirements.txt "$place/venv/installed"; then
	rm -rf "$place/venv"
	python3 -m venv "$place/venv" || fail 'a Python environment cannot be made: apt-get install python3-venv'
	"$place/venv/bin/pip" install --quiet --requirement tests/fleet/requirements.txt ||
		fail 'the engines cannot be installed'
	cp tests/fleet/requirements.txt "$place/venv/installed"
fi

if ! cmp -s tests/fleet/broker/pom.xml "$place/broker/installed"; then
	rm -rf "$place/broker"
	mvn --quiet --batch-mode --file tests/fleet/broker/pom.xml dependency:copy-dependencies \
		-DoutputDirectory="$place/broker" || fail 'the brokers cannot be installed'
	cp tests/fleet/broker/pom.xml "$place/broker/installed"
fi

python3 -B tests/fleet/collect.py "$release" "$place/collect"
python3 -B tests/fleet/auditd.py "$release/tollgate-ship" "$place/auditd"
python3 -B tests/fleet/otlp.py "$release/tollgate-ship" "$place/collector" "$place/otlp"
python3 -B tests/fleet/kafka.py "$release/tollgate-ship" "$place/broker" "$place/kafka" "${EVENTS:-100000}"
"$place/venv/bin/python" -B tests/fleet/s3.py "$release/tollgate-ship" "$place/s3" "${EVENTS:-100000}"
rm -rf "$place/work"
mkdir "$place/work"
TZ=UTC exec "$place/venv/bin/python" -B tests/fleet/compare.py "$release" "$place/work"
