#!/bin/sh
# other-build.sh PACKAGE HASHES OUT: makes the package OUT of a newer version, whose daemon is another build: it can
# read the events of PACKAGE's daemon but not continue with its programs, nor the other way round.
#
# A daemon knows another build by the hash of its BPF object. HASHES are those that cargo's builds have, one of which
# is in the program; here it is changed.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dpkg-deb -R "$1" "$work/stage"
program=$work/stage/usr/sbin/tollgate
before=$(sha256sum "$program")
for hash in $2; do
	# The compiler may have split the sixteen digits.
	first=$(printf '%.8s' "$hash")
	perl -0pi -e "s/$first/00000000/g" "$program"
done
[ "$(sha256sum "$program")" != "$before" ] || {
	echo 'other-build: the program has none of the hashes; build it with `make deb`' >&2
	exit 1
}
sed -i 's/^Version: .*/&+other/' "$work/stage/DEBIAN/control"
(cd "$work/stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$work/stage/DEBIAN/md5sums"
dpkg-deb --root-owner-group --build "$work/stage" "$3" >/dev/null
