#!/bin/sh
# test-dist.sh ARCHIVE: builds the archive of dist.sh once more, in another directory, and compares both; then installs
# it in a Debian 11 and a Debian 13 made with debootstrap, runs its programs there, and removes it.
# Needs root, the network, a committed work tree, and `setup.sh packaging`. Run by `make testdist`.
set -eu
archive=$(realpath "$1")
cd "$(dirname "$0")/.."
mirror=${MIRROR:-http://deb.debian.org/debian}

say() {
	printf 'test-dist: %s\n' "$*"
}

die() {
	printf 'test-dist: %s\n' "$*" >&2
	exit 1
}

[ "$(id -u)" -eq 0 ] || die 'chroot needs root'
command -v debootstrap >/dev/null || die 'debootstrap is missing: sh scripts/setup.sh packaging'

work=$(mktemp -d)
root=
end() {
	[ -z "$root" ] || umount -q "$root/proc" || true
	rm -rf --one-file-system "$work"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

say 'building the archive again, in another directory'
git clone -q . "$work/elsewhere"
CARGO_TARGET_DIR=$work/target sh "$work/elsewhere/scripts/dist.sh" "$work" >"$work/build.log" 2>&1 || {
	tail -n 20 "$work/build.log"
	die 'the second build failed'
}
cmp "$archive" "$work/$(basename "$archive")" || die 'two builds of one commit differ'
rm -rf "$work/target" "$work/elsewhere"

for release in bullseye trixie; do
	say "debootstrap of $release"
	root=$work/$release
	# libnss-systemd: a static program that loaded it would abort.
	debootstrap --variant=minbase --include=libnss-systemd "$release" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || {
		tail -n 20 "$work/debootstrap.log"
		die 'debootstrap failed'
	}
	mount -t proc proc "$root/proc"
	grep -q '^passwd:.*systemd' "$root/etc/nsswitch.conf" || die "$release does not use libnss-systemd"
	tar --extract --file "$archive" --directory "$root" --strip-components=1 --one-top-level=tollgate
	echo '-a always,exit -F arch=b64 -S openat -F uid=daemon -F gid=daemon -k by-name' >"$root/named.rules"
	echo '-a always,exit -F arch=b64 -S openat -F uid=nobody-has-this-name' >"$root/unknown.rules"
	# shellcheck disable=SC2016
	chroot "$root" sh -euc '
		cd /tollgate
		sha256sum --quiet --check SHA256SUMS
		sh scripts/install.sh bin "" /usr/local
		export PATH=/usr/local/sbin:$PATH
		tollgate check /named.rules >/dev/null
		! tollgate check /unknown.rules >/unknown.out 2>&1
		grep -q "unknown user" /unknown.out
		tollgate run --rules examples/first.rules --log /run.log -- cat /etc/shadow >/dev/null
		grep -q "^type=SYSCALL" /run.log
		tollgate search --log /run.log "type=SYSCALL" | grep -q .
		tollgate ausearch --input /run.log --interpret --uid root | grep -q "uid=root"
		tollgate report --help >/dev/null
		sh scripts/uninstall.sh bin "" /usr/local
		! [ -e /usr/local/sbin/tollgate ]
	' || die "$release: the programs do not work"
	umount "$root/proc"
	root=
	say "$release: installed, ran and removed"
done
say 'passed'
