#!/bin/sh
# test-deb.sh PACKAGE: runs lintian on a built package; then, in a Debian 12 and in a Debian 13 made with debootstrap,
# installs and removes it, alone and beside auditd, and boots that Debian with the package (test-boot.sh).
# Needs root, the network, and `setup.sh packaging`; takes half an hour. Run by `make testdeb`.
#
# RELEASES='bookworm' tests Debian 12 (Linux 6.1) only, 'trixie' Debian 13 (6.12).
# OTHER=PACKAGE is another version, for upgrades and downgrades; by default one is made with other-build.sh.
# ONLY=NAME,NAME boots only, and runs these states of scripts/guest/states.sh.
set -eu
package=$(realpath "$1")
here=$(dirname "$0")
mirror=${MIRROR:-http://deb.debian.org/debian}
only=${ONLY:-}

say() {
	printf 'test-deb: %s\n' "$*"
}

die() {
	printf 'test-deb: %s\n' "$*" >&2
	exit 1
}

for tool in lintian debootstrap dpkg-deb; do
	command -v "$tool" >/dev/null || die "$tool is missing: sh scripts/setup.sh packaging"
done
[ "$(id -u)" -eq 0 ] || die 'chroot needs root'

work=$(mktemp -d)
root=
end() {
	[ -z "$root" ] || umount -q "$root/proc" || true
	rm -rf --one-file-system "$work"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

other=${OTHER:-$work/other.deb}
if [ -z "${OTHER:-}" ]; then
	hashes=$(sed -n 's/^cargo::rustc-env=TOLLGATE_OBJECT=//p' \
		"$(dirname "$package")"/../release/build/engine-*/output)
	sh "$here/other-build.sh" "$package" "$hashes" "$other"
fi

inside() {
	chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

apt() {
	inside apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >"$work/apt.log" 2>&1 || {
		cat "$work/apt.log"
		die "apt-get $* failed"
	}
}

# files: all files except the databases of apt and dpkg.
files() {
	(cd "$root" && find . -xdev \( -path ./proc -o -path ./var/lib/dpkg -o -path ./var/lib/apt \
		-o -path ./var/cache -o -path ./var/log -o -path ./tmp -o -path ./etc/ld.so.cache \) -prune \
		-o -print | grep -v '^./tollgate.deb$' | sort)
}

# unchanged WHAT: fails if the list of files differs from the one before.
unchanged() {
	files >"$work/after"
	diff "$work/before" "$work/after" || die "$1 leaves these files behind"
}

# make_root RELEASE: makes $root, a Debian in which no service starts: auditd would enable this machine's audit.
make_root() {
	say "debootstrap of $1"
	root=$work/$1
	debootstrap --variant=minbase --include=ca-certificates "$1" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || {
		tail -n 20 "$work/debootstrap.log"
		die 'debootstrap failed'
	}
	mount -t proc proc "$root/proc"
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 0755 "$root/usr/sbin/policy-rc.d"
	cp "$package" "$root/tollgate.deb"
}

# test_files: whether installing and removing leaves the files as they were.
test_files() {
	# Install the libraries first: they stay when the package is removed.
	libraries=$(dpkg-deb -f "$package" Depends | sed 's/([^)]*)//g; s/,/ /g')
	# Unquoted: a list of words.
	# shellcheck disable=SC2086
	apt install $libraries
	files >"$work/before"

	say 'install, use, remove'
	apt install /tollgate.deb
	inside tollgate --version
	output=$(inside tollgate check /usr/share/doc/tollgate/examples/first.rules 2>&1) || die "$output"
	[ ! -e "$root/usr/sbin/auditctl" ] || die 'the package installs auditctl without being asked'
	inside tollgate-alternatives install
	inside auditctl -h | grep -q usage || die 'auditctl does not run tollgate after tollgate-alternatives install'
	apt purge tollgate
	unchanged 'the package'

	say 'beside auditd'
	apt install auditd
	stock=$(inside sha256sum /sbin/auditctl)
	files >"$work/before"
	apt install /tollgate.deb
	[ "$(inside sha256sum /sbin/auditctl)" = "$stock" ] || die 'the package replaces auditctl without being asked'
	inside tollgate-alternatives install
	[ "$(inside readlink -f /sbin/auditctl)" = /usr/sbin/tollgate ] || die 'auditctl does not run tollgate'
	apt purge tollgate
	[ "$(inside sha256sum /sbin/auditctl)" = "$stock" ] || die 'removing the package does not restore auditctl'
	unchanged 'the package beside auditd'
}

if [ -z "$only" ]; then
	say 'lintian'
	lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$package"
fi
for release in ${RELEASES:-bookworm trixie}; do
	make_root "$release"
	[ -n "$only" ] || test_files
	say 'as a service'
	apt install auditd systemd-sysv /tollgate.deb
	inside systemctl --quiet enable auditd tollgate
	mv "$root/tollgate.deb" "$root/root/tollgate.deb"
	cp "$other" "$root/root/other.deb"
	kernel=$(inside apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
	say "fetching $kernel"
	inside sh -c 'cd /var/tmp && apt-get -qq -o APT::Sandbox::User=root download "$1"' sh "$kernel"
	mv "$root/var/tmp/$kernel"_*.deb "$work/kernel.deb"
	umount "$root/proc"
	sh "$here/test-boot.sh" "$root" "$work/kernel.deb"
	rm -rf --one-file-system "$root"
done
say 'passed'
