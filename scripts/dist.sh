#!/bin/sh
# dist.sh OUT: builds programs that run on any x86_64 distribution and packs them into the directory OUT:
# tollgate-VERSION-x86_64.tar.gz, with lists of what was linked into them, and its checksum.
#
# The programs are static: they need no library of the host, and read users from /etc/passwd only.
# A commit gives the same bytes in every directory, with the same compilers.
# Needs `setup.sh packaging`, and the network for cargo-cyclonedx, which is built once.
set -eu
umask 022
mkdir -p "$1"
out=$(realpath "$1")
cd "$(dirname "$0")/.."

target=x86_64-unknown-linux-gnu
cyclonedx=0.5.9
packages='tollgate ausearch bench detect search ship top'
programs='tollgate tollgate-ausearch tollgate-aureport tollgate-bench tollgate-collect tollgate-detect tollgate-report tollgate-search tollgate-ship tollgate-top'

source=$(pwd)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
build=$(realpath -m "${CARGO_TARGET_DIR:-target}")/static
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
end() {
	rm -rf "$work"
	find "$source/crates" "$source/tests" "$source/xtask" -name dist-sbom.json -delete
}
trap end EXIT
trap 'exit 1' HUP INT TERM

# Messages about bugs name source files: by names that do not depend on the directory.
rust_maps="--remap-path-prefix=$source=/tollgate --remap-path-prefix=$cargo_home=/cargo"
c_maps="-ffile-prefix-map=$source=/tollgate -ffile-prefix-map=$cargo_home=/cargo"
set --
for package in $packages; do
	set -- "$@" --package "$package"
done
CARGO_TARGET_DIR=$build CFLAGS=$c_maps RUSTFLAGS="-C target-feature=+crt-static $rust_maps" \
	cargo build --locked --release --target "$target" "$@"
binaries=$build/$target/release

version=$("$binaries/tollgate" --version | cut -d ' ' -f 2)
name=tollgate-$version-x86_64
stage=$work/$name
mkdir -p "$stage/bin" "$stage/sbom"
for program in $programs; do
	strip --strip-all -o "$stage/bin/$program" "$binaries/$program"
done
# What install.sh and uninstall.sh need.
install -D -m 0755 -t "$stage/scripts" scripts/install.sh scripts/uninstall.sh
install -D -m 0644 -t "$stage/man" man/*.5 man/*.8
install -D -m 0644 -t "$stage/packaging" packaging/tollgate-alternatives packaging/tollgate.service packaging/tollgate-collect.service \
	packaging/tollgate-detect.service packaging/tollgate-ship.service packaging/tollgate.tmpfiles packaging/journald.conf
install -D -m 0644 -t "$stage/packaging/sigma" packaging/sigma/*.yml
install -D -m 0644 -t "$stage/examples" examples/*
for file in deploy/*/*.sql; do
	install -D -m 0644 "$file" "$stage/$file"
done
install -m 0644 -t "$stage" README.md CHANGELOG.md LICENSE.md LICENSE-APACHE LICENSE-BSD-2-Clause LICENSE-GPL-2.0

[ -x "$build/bin/cargo-cyclonedx" ] ||
	cargo install --quiet --locked --root "$build" --version "$cyclonedx" cargo-cyclonedx
# Writes a file beside the manifest of each crate.
"$build/bin/cargo-cyclonedx" cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps \
	--target "$target" --override-filename dist-sbom
for package in $packages; do
	sed "s,path+file://$source,path+file:///tollgate,g" "crates/$package/dist-sbom.json" \
		>"$stage/sbom/$package.cdx.json"
done
dpkg-query -W -f '${Package} ${Version}\n' libc6-dev libelf-dev zlib1g-dev >"$stage/sbom/c-libraries.txt"

(cd "$stage" && find . -type f ! -name SHA256SUMS -print0 | sort -z | xargs -0 sha256sum >SHA256SUMS)
tar --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
	--format=gnu --create "$name" | gzip -9n >"$out/$name.tar.gz"
cd "$out"
sha256sum "$name.tar.gz" | tee "$name.tar.gz.sha256"
