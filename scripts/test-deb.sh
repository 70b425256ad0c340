#!/bin/sh
# test-deb.sh PACKAGE: runs lintian on a built package, installs and removes it in a Debian 12 made with
# debootstrap, alone and beside auditd, and tests the systemd service (test-boot.sh).
# Needs root, the network, and `setup.sh packaging`; takes some minutes. Run by `make testdeb`.
set -eu
package=$(realpath "$1")
mirror=${MIRROR:-http://deb.debian.org/debian}

say() {
	printf 'test-deb: %s\n' "$*"
}

die() {
	printf 'test-deb: %s\n' "$*" >&2
	exit 1
}

for tool in lintian debootstrap dpkg-deb cpio qemu-system-x86_64; do
	command -v "$tool" >/dev/null || die "$tool is missing: sh scripts/setup.sh packaging"
done
[ "$(id -u)" -eq 0 ] || die 'chroot needs root'

say 'lintian'
lintian --allow-root --fail-on error --tag-display-limit 0 "$package"

root=$(mktemp -d)
end() {
	umount -q "$root/proc" || true
	rm -rf --one-file-system "$root"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

say 'debootstrap of Debian 12'
debootstrap --variant=minbase --include=ca-certificates bookworm "$root" "$mirror" >"$root.log" 2>&1 || {
	tail -n 20 "$root.log"
	die 'debootstrap failed'
}
rm -f "$root.log"
mount -t proc proc "$root/proc"
# Start no service in the chroot: auditd would enable this machine's kernel audit.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 0755 "$root/usr/sbin/policy-rc.d"

inside() {
	chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

apt() {
	inside apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >"$root/apt.log" 2>&1 || {
		cat "$root/apt.log"
		die "apt-get $* failed"
	}
}

# files: all files except the databases of apt and dpkg.
files() {
	(cd "$root" && find . -xdev \( -path ./proc -o -path ./var/lib/dpkg -o -path ./var/lib/apt \
		-o -path ./var/cache -o -path ./var/log -o -path ./tmp -o -path ./etc/ld.so.cache \) -prune \
		-o -print | grep -v '^./apt.log$\|^./tollgate.deb$' | sort)
}

# unchanged BEFORE WHAT: fails if the list of files differs from BEFORE.
unchanged() {
	files >"$root.after"
	if ! diff "$1" "$root.after"; then
		rm -f "$root.before" "$root.after"
		die "$2 leaves these files behind"
	fi
	rm -f "$root.after"
}

cp "$package" "$root/tollgate.deb"
# Install the libraries first: they stay when the package is removed.
libraries=$(dpkg-deb -f "$package" Depends | sed 's/([^)]*)//g; s/,/ /g')
# Unquoted: a list of words.
# shellcheck disable=SC2086
apt install $libraries
files >"$root.before"

say 'install, use, remove'
apt install /tollgate.deb
inside tollgate --version
output=$(inside tollgate check /usr/share/doc/tollgate/examples/first.rules 2>&1) || die "$output"
[ ! -e "$root/usr/sbin/auditctl" ] || die 'the package installs auditctl without being asked'
inside tollgate-alternatives install
inside auditctl -h | grep -q usage || die 'auditctl does not run tollgate after tollgate-alternatives install'
apt purge tollgate
unchanged "$root.before" 'the package'

say 'beside auditd'
apt install auditd
stock=$(inside sha256sum /sbin/auditctl)
files >"$root.before"
apt install /tollgate.deb
[ "$(inside sha256sum /sbin/auditctl)" = "$stock" ] || die 'the package replaces auditctl without being asked'
inside tollgate-alternatives install
[ "$(inside readlink -f /sbin/auditctl)" = /usr/sbin/tollgate ] || die 'auditctl does not run tollgate'
apt purge tollgate
[ "$(inside sha256sum /sbin/auditctl)" = "$stock" ] || die 'removing the package does not restore auditctl'
unchanged "$root.before" 'the package beside auditd'
rm -f "$root.before"

say 'as a service'
apt install systemd-sysv /tollgate.deb
inside systemctl --quiet enable tollgate
mv "$root/tollgate.deb" "$root/root/tollgate.deb"
sh "$(dirname "$0")/test-boot.sh" "$root"
say 'passed'
