#!/bin/sh
# rpm.sh BINARIES OUT ARCHITECTURE: builds the RPM package of the static programs in the directory BINARIES, for x86_64 or
# aarch64, into the directory OUT.
#
# EMULATOR runs programs of another architecture than the host's. rpmbuild of Debian is enough: nothing is compiled.
set -eu
umask 022
binaries=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
architecture=$3
cd "$(dirname "$0")/.."

command -v rpmbuild >/dev/null || {
	echo 'rpm: rpmbuild is missing: sh scripts/setup.sh packaging' >&2
	exit 1
}

version=$(${EMULATOR:+"$EMULATOR"} "$binaries/tollgate" --version | cut -d ' ' -f 2)
# Reproducible: the same sources give the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/stage
docs=$stage/usr/share/doc/tollgate

sh scripts/install.sh "$binaries" "$stage" /usr
# Debian's zsh searches another directory than that of all others.
install -d "$stage/usr/share/zsh/site-functions"
mv "$stage/usr/share/zsh/vendor-completions/_tollgate" "$stage/usr/share/zsh/site-functions/_tollgate"
find "$stage/usr/share/man" -type f -exec gzip -9n {} +
install -D -m 0644 -t "$docs" README.md CHANGELOG.md
install -D -m 0644 -t "$docs/examples" examples/*
for file in deploy/*/*.sql; do
	install -D -m 0644 "$file" "$docs/$file"
done
install -D -m 0644 -t "$stage/usr/share/licenses/tollgate" LICENSE.md LICENSE-APACHE LICENSE-BSD-2-Clause LICENSE-GPL-2.0

# The scripts of the Debian package; the spec calls them as dpkg would.
for script in postinst prerm postrm; do
	sed '1d; s/deb-systemd-invoke/systemctl/' "packaging/deb/$script" >"$work/$script"
done

# rpmbuild reads no settings of the user or the host that would change the package.
HOME=$work rpmbuild --quiet -bb --target "$architecture-linux" \
	--define "_topdir $work/rpm" --define "_rpmdir $work" --define '_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm' \
	--define "stage $stage" --define "scripts $work" --define "program_version $version" \
	packaging/rpm/tollgate.spec >/dev/null
rm -f "$out"/tollgate-*."$architecture".rpm
mv "$work/tollgate-$version-1.$architecture.rpm" "$out"
