#!/bin/sh
# deb.sh BINARIES OUT [ARCHITECTURE]: builds the Debian package of the optimised programs in the directory BINARIES, for
# x86_64 or aarch64, by default that of this machine, into the directory OUT.
#
# The package of static programs depends on no library; that of others, which `make deb` builds, on those of this
# release of Debian, and knows the users of its directory services.
# EMULATOR runs programs of another architecture than the host's.
# Uses dpkg-deb instead of cargo-deb: it is part of every Debian and needs no further tool.
set -eu
umask 022
binaries=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
machine=${3:-$(uname -m)}
cd "$(dirname "$0")/.."

case $machine in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*)
	echo "deb: unknown architecture '$machine': expected x86_64 or aarch64" >&2
	exit 1
	;;
esac
for tool in dpkg-deb dpkg-shlibdeps "$machine-linux-gnu-strip" readelf; do
	command -v "$tool" >/dev/null || {
		echo "deb: $tool is missing: sh scripts/setup.sh packaging" >&2
		exit 1
	}
done

version=$(${EMULATOR:+"$EMULATOR"} "$binaries/tollgate" --version | cut -d ' ' -f 2)-1
maintainer="${DEBFULLNAME:-tollgate maintainers} <${DEBEMAIL:-maintainers@tollgate.invalid}>"
# Reproducible: the same sources give the same package.
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH="$time"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/stage
docs=$stage/usr/share/doc/tollgate

sh scripts/install.sh "$binaries" "$stage" /usr
set --
for name in tollgate tollgate-ausearch tollgate-aureport tollgate-bench tollgate-collect tollgate-detect tollgate-report tollgate-search tollgate-ship tollgate-top; do
	set -- "$@" "$stage/usr/sbin/$name"
done
"$machine-linux-gnu-strip" --strip-unneeded "$@"
find "$stage/usr/share/man" -type f -exec gzip -9n {} +
install -D -m 0644 -t "$docs" README.md
install -D -m 0644 -t "$docs/examples" examples/*
for file in deploy/*/*.sql; do
	install -D -m 0644 "$file" "$docs/$file"
done
gzip -9nc CHANGELOG.md >"$docs/changelog.gz"
gzip -9n >"$docs/changelog.Debian.gz" <<END
tollgate ($version) unstable; urgency=medium

  * See changelog.gz for changes.

 -- $maintainer  $(date -u -R -d "@$time")
END
{
	cat <<-END
		Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
		Upstream-Name: tollgate

		Files: *
		Copyright: the authors of tollgate
		License: Apache-2.0
		 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.

		Files: crates/engine/bpf/*
		Copyright: the authors of tollgate
		License: GPL-2.0-only or BSD-2-Clause
		 On Debian systems the text of the first is in /usr/share/common-licenses/GPL-2;
		 the second follows.
		 .
	END
	sed 's/^$/./; s/^/ /' LICENSE-BSD-2-Clause
} >"$docs/copyright"
install -D -m 0644 packaging/lintian-overrides "$stage/usr/share/lintian/overrides/tollgate"

depends=
static=
if readelf --dynamic "$stage/usr/sbin/tollgate" | grep -q NEEDED; then
	# dpkg-shlibdeps expects the layout of a source package.
	mkdir "$work/debian"
	printf 'Source: tollgate\n\nPackage: tollgate\nArchitecture: any\n' >"$work/debian/control"
	libraries=$(cd "$work" && dpkg-shlibdeps -O "$@" 2>/dev/null)
	depends="Depends: ${libraries#shlibs:Depends=}
"
else
	static='
 .
 The programs are static: they run on every release, and know the users and
 groups of /etc/passwd and /etc/group only.'
fi

# In KiB, as dpkg-gencontrol counts: what files take on the disk differs between file systems.
size=$(find "$stage" -printf '%y %s\n' | awk '{ kib += $1 == "d" ? 1 : int(($2 + 1023) / 1024) } END { print kib }')
mkdir "$stage/DEBIAN"
cat >"$stage/DEBIAN/control" <<END
Package: tollgate
Version: $version
Architecture: $architecture
Section: admin
Priority: optional
Maintainer: $maintainer
Installed-Size: $size
${depends}Recommends: auditd
Description: audit daemon that slows down only the syscalls your rules name
 tollgate reads auditctl rules and writes auditd records. Instead of enabling
 the kernel's syscall auditing, which slows down every syscall, it attaches eBPF
 programs only to the syscalls that the rules name.
 .
 It installs beside auditd, replaces none of its commands unless asked to, and
 starts only when the service is enabled.$static
END
for script in postinst prerm postrm; do
	install -m 0755 "packaging/deb/$script" "$stage/DEBIAN/$script"
done
(cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"

rm -f "$out"/tollgate_*"_$architecture.deb"
# The compressor of every release, whose result depends on the number of threads.
dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$stage" "$out/tollgate_${version}_$architecture.deb"
