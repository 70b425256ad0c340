#!/bin/sh
# Runs the queries of deploy/queries in DuckDB, ClickHouse (chdb) and Spark on files that `tollgate ship` writes from the
# logs of simulated hosts, and compares the answers. The engines come from PyPI, once.
set -eu
cd "$(dirname "$0")/../.."
release=${1:?usage: run.sh DIRECTORY-OF-PROGRAMS}
place=${CARGO_TARGET_DIR:-target}/fleet
for program in tollgate-ship tollgate-search; do
	if [ ! -x "$release/$program" ]; then
		echo "fleet: $release/$program is missing: run make build" >&2
		exit 1
	fi
done
if ! command -v java > /dev/null; then
	echo "fleet: Spark needs Java: apt-get install openjdk-17-jre-headless" >&2
	exit 1
fi
if ! cmp -s tests/fleet/requirements.txt "$place/venv/installed"; then
	rm -rf "$place/venv"
	mkdir -p "$place"
	python3 -m venv "$place/venv"
	"$place/venv/bin/pip" install --quiet --requirement tests/fleet/requirements.txt
	cp tests/fleet/requirements.txt "$place/venv/installed"
fi
rm -rf "$place/work"
mkdir -p "$place/work"
TZ=UTC exec "$place/venv/bin/python" tests/fleet/compare.py "$release" "$place/work"
