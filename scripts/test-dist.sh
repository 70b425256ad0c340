#!/bin/sh
# test-dist.sh DIST: installs the archive, the .deb and the .rpm for this machine in the directory DIST, which dist.sh has
# made, in a Debian 11 and a Debian 13 made with debootstrap, runs the programs there, and removes them. Programs for
# the other architecture run in an emulator. Then builds everything once more in another directory, and compares both.
# Needs root, the network, a committed work tree, and `setup.sh packaging`. Run by `make testdist`.
set -eu
dist=$(realpath "$1")
cd "$(dirname "$0")/.."
mirror=${MIRROR:-http://deb.debian.org/debian}
machine=$(uname -m)
debian=$(dpkg --print-architecture)

say() {
	printf 'test-dist: %s\n' "$*"
}

die() {
	printf 'test-dist: %s\n' "$*" >&2
	exit 1
}

[ "$(id -u)" -eq 0 ] || die 'chroot needs root'
for tool in lintian debootstrap rpm; do
	command -v "$tool" >/dev/null || die "$tool is missing: sh scripts/setup.sh packaging"
done

work=$(mktemp -d)
root=
end() {
	[ -z "$root" ] || umount -q "$root/proc" || true
	rm -rf --one-file-system "$work"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

# tell_differences: names the files of the archives that differ in the second build.
tell_differences() {
	mkdir "$work/first" "$work/second"
	for archive in "$dist"/*.tar.gz; do
		tar -xzf "$archive" -C "$work/first"
		tar -xzf "$work/dist/${archive##*/}" -C "$work/second"
	done
	diff -rq "$work/first" "$work/second" || true
}

# build_again: builds the same architectures in other directories.
build_again() {
	say 'building everything again, in another directory'
	git clone -q . "$work/elsewhere"
	# A tool: its build is not compared.
	install -D -t "$work/target/static/bin" "$(realpath -m "${CARGO_TARGET_DIR:-target}")/static/bin/cargo-cyclonedx"
	# Unquoted: a list of words.
	# shellcheck disable=SC2046
	CARGO_TARGET_DIR=$work/target sh "$work/elsewhere/scripts/dist.sh" "$work/dist" \
		$(sed -n 's/.*-\([^-]*\)\.tar\.gz$/\1/p' "$dist/SHA256SUMS") >"$work/build.log" 2>&1 || {
		tail -n 20 "$work/build.log"
		die 'the second build failed'
	}
	(cd "$dist" && sha256sum --quiet --check SHA256SUMS) || die "$dist has not the files of its build"
	diff "$dist/SHA256SUMS" "$work/dist/SHA256SUMS" || {
		tell_differences
		die 'two builds of one commit differ'
	}
	rm -rf "$work/target" "$work/elsewhere" "$work/dist"
}

# contents PACKAGE: lists names, modes and owners of a .deb or .rpm.
contents() {
	case $1 in
	*.deb) dpkg-deb --contents "$1" | awk '{ print $1, $2, $6, $7, $8 }' ;;
	*.rpm) rpm --query --package --queryformat '[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES} %{FILELINKTOS}\n]' "$1" ;;
	esac
}

# test_packages: checks all packages without installing them.
test_packages() {
	say 'lintian, contents and scripts of the packages'
	lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$dist"/tollgate_*.deb
	for kind in deb rpm; do
		rm -f "$work/contents"
		for package in "$dist"/tollgate*."$kind"; do
			contents "$package" >"$work/of-this"
			[ -e "$work/contents" ] || cp "$work/of-this" "$work/contents"
			diff "$work/contents" "$work/of-this" || die "$package has other files than that of the other architecture"
		done
	done
	for package in "$dist"/tollgate-*.rpm; do
		rpm --query --package --requires "$package" | grep -v -x -e '/bin/sh' -e '/usr/bin/awk' -e '/usr/bin/find' \
			-e 'rpmlib(.*' >"$work/requires" || true
		[ ! -s "$work/requires" ] || die "$package requires $(cat "$work/requires")"
	done
}

# test_emulated ARCHIVE: runs programs of another architecture.
test_emulated() {
	architecture=$(basename "$1" .tar.gz | sed 's/.*-//')
	say "$architecture: running programs in an emulator"
	mkdir "$work/emulated"
	tar --extract --file "$1" --directory "$work/emulated" --strip-components=1
	emulator=qemu-$architecture-static
	for program in "$work"/emulated/bin/*; do
		"$emulator" "$program" --help >/dev/null || die "$architecture: $(basename "$program") does not run"
	done
	"$emulator" "$work/emulated/bin/tollgate" check "$work/named.rules" >/dev/null 2>&1 ||
		die "$architecture: tollgate check fails"
	rm -rf "$work/emulated"
}

# files [TEST...]: all files that pass the test of find, except databases and logs of package managers, and what is gone
# after a boot.
files() {
	(cd "$root" && find . -xdev \( -path ./proc -o -path ./var/lib/dpkg -o -path ./var/lib/rpm -o -path ./var/cache \
		-o -path ./var/log -o -path ./tmp -o -path ./run \) -prune -o "$@" -print | sort)
}

# programs_work: runs the installed programs.
programs_work() {
	# shellcheck disable=SC2016
	chroot "$root" sh -euc '
		export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
		tollgate check /tmp/named.rules >/dev/null
		! tollgate check /tmp/unknown.rules >/tmp/unknown.out 2>&1
		grep -q "unknown user" /tmp/unknown.out
		rm -f /tmp/run.log*
		tollgate run --rules /tmp/first.rules --log /tmp/run.log -- cat /etc/shadow >/dev/null
		grep -q "^type=SYSCALL" /tmp/run.log
		tollgate search --log /tmp/run.log "type=SYSCALL" | grep -q .
		tollgate ausearch --input /tmp/run.log --interpret --uid root 2>/dev/null | grep -q "uid=root"
		tollgate report --help >/dev/null
		[ ! -e /usr/sbin/auditctl ] && [ ! -e /usr/local/sbin/auditctl ]
		tollgate-alternatives install >/dev/null
		auditctl -h 2>/dev/null | grep -q usage
	' || die "$release, $1: the programs do not work"
}

# unchanged WHAT [TEST...]: fails unless the files are those of before.
unchanged() {
	what=$1
	shift
	files "$@" >"$work/after"
	diff "$work/before" "$work/after" || die "$release: removing $what leaves these files behind"
	say "$release: $what installed, ran and removed"
}

# test_archive: empty directories stay; others may want them.
test_archive() {
	files ! -type d >"$work/before"
	tar --extract --file "$dist"/tollgate-*"-$machine.tar.gz" --directory "$root" --strip-components=1 --one-top-level=tollgate
	chroot "$root" sh -euc 'cd /tollgate && sha256sum --quiet --check SHA256SUMS && sh scripts/install.sh bin "" /usr/local'
	programs_work 'the archive'
	chroot "$root" sh -euc 'cd /tollgate && sh scripts/uninstall.sh bin "" /usr/local'
	rm -rf "$root/tollgate"
	unchanged 'the archive' ! -type d
}

test_deb() {
	files >"$work/before"
	cp "$dist"/tollgate_*"_$debian.deb" "$root/tmp/tollgate.deb"
	chroot "$root" dpkg --install /tmp/tollgate.deb >"$work/dpkg.log" 2>&1 || {
		cat "$work/dpkg.log"
		die "$release: dpkg does not install the package"
	}
	programs_work 'the .deb'
	chroot "$root" dpkg --purge tollgate >>"$work/dpkg.log" 2>&1 || {
		cat "$work/dpkg.log"
		die "$release: dpkg does not remove the package"
	}
	unchanged 'the .deb'
}

# rpm_in_root WORD...: runs rpm on a database of its own in the root, whose programs no package of it owns.
rpm_in_root() {
	status=0
	rpm --root "$root" --dbpath /var/lib/rpm --force-debian --nodeps "$@" >"$work/rpm.log" 2>&1 || status=$?
	if [ "$status" -ne 0 ] || [ -s "$work/rpm.log" ]; then
		cat "$work/rpm.log"
		die "$release: rpm $* fails"
	fi
}

# test_rpm: as on a system without dpkg.
test_rpm() {
	rm "$root/usr/bin/dpkg-divert"
	# That every system with rpm has.
	mkdir -p "$root/usr/share/licenses"
	files >"$work/before"
	package=$(echo "$dist"/tollgate-*".$machine.rpm")
	rpm_in_root --install "$package"
	programs_work 'the .rpm'
	# An upgrade.
	rpm_in_root --upgrade --replacepkgs "$package"
	rpm --root "$root" --dbpath /var/lib/rpm --verify --nodeps tollgate || die "$release: files of the .rpm were changed"
	rpm_in_root --erase tollgate
	unchanged 'the .rpm'
}

first=examples/first.rules
if [ "$machine" = aarch64 ]; then first=examples/first-aarch64.rules; fi
cp "$first" "$work/first.rules"
echo '-a always,exit -F arch=b64 -S openat -F uid=daemon -F gid=daemon -k by-name' >"$work/named.rules"
echo '-a always,exit -F arch=b64 -S openat -F uid=nobody-has-this-name' >"$work/unknown.rules"
test_packages
for archive in "$dist"/tollgate-*.tar.gz; do
	case $archive in
	*"-$machine.tar.gz") ;;
	*) test_emulated "$archive" ;;
	esac
done
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
	cp "$work"/*.rules "$root/tmp"
	test_archive
	test_deb
	test_rpm
	umount "$root/proc"
	rm -rf --one-file-system "$root"
	root=
done
build_again
say 'passed'
