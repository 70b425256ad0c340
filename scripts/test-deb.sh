#!/bin/sh
# test-deb.sh PACKAGE: what lintian says of a built package, whether it installs and goes away cleanly in a
# Debian 12 of its own, alone and beside auditd, and, in test-boot.sh, what systemd does with its service.
# Needs root, the network, and `setup.sh packaging`; takes some minutes, and so is run when it is asked for:
# `make testdeb`.
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
[ "$(id -u)" -eq 0 ] || die 'a chroot needs root'

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
# Nothing is started in there: auditd would arm the audit of this machine's kernel.
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

# files: everything but what apt and dpkg keep for themselves.
files() {
	(cd "$root" && find . -xdev \( -path ./proc -o -path ./var/lib/dpkg -o -path ./var/lib/apt \
		-o -path ./var/cache -o -path ./var/log -o -path ./tmp -o -path ./etc/ld.so.cache \) -prune \
		-o -print | grep -v '^./apt.log$\|^./tollgate.deb$' | sort)
}

# unchanged BEFORE WHAT: fails when the files are not those that they were.
unchanged() {
	files >"$root.after"
	if ! diff "$1" "$root.after"; then
		rm -f "$root.before" "$root.after"
		die "$2 leaves this behind"
	fi
	rm -f "$root.after"
}

cp "$package" "$root/tollgate.deb"
# The libraries that it needs stay: they are others' packages.
libraries=$(dpkg-deb -f "$package" Depends | sed 's/([^)]*)//g; s/,/ /g')
# Unquoted: a list of words.
# shellcheck disable=SC2086
apt install $libraries
files >"$root.before"

say 'install, use, remove'
apt install /tollgate.deb
inside tollgate --version
said=$(inside tollgate check /usr/share/doc/tollgate/examples/first.rules 2>&1) || die "$said"
[ ! -e "$root/usr/sbin/auditctl" ] || die 'the package takes the name auditctl unasked'
inside tollgate-names take
inside auditctl -h | grep -q usage || die 'auditctl is not tollgate when it was asked to be'
apt purge tollgate
unchanged "$root.before" 'the package'

say 'beside auditd'
apt install auditd
stock=$(inside sha256sum /sbin/auditctl)
files >"$root.before"
apt install /tollgate.deb
[ "$(inside sha256sum /sbin/auditctl)" = "$stock" ] || die 'the package replaces auditctl unasked'
inside tollgate-names take
[ "$(inside readlink -f /sbin/auditctl)" = /usr/sbin/tollgate ] || die 'auditctl is not tollgate'
apt purge tollgate
[ "$(inside sha256sum /sbin/auditctl)" = "$stock" ] || die 'auditctl of auditd does not come back'
unchanged "$root.before" 'the package beside auditd'
rm -f "$root.before"

say 'as a service'
apt install systemd-sysv /tollgate.deb
inside systemctl --quiet enable tollgate
mv "$root/tollgate.deb" "$root/root/tollgate.deb"
sh "$(dirname "$0")/test-boot.sh" "$root"
say 'all is well'
