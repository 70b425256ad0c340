#!/bin/sh
# dist.sh OUT [ARCHITECTURE...]: builds programs that run on any distribution, by default for x86_64 and aarch64, and packs
# them into the directory OUT, for each architecture as an archive with lists of what was linked into them, a .deb and a
# .rpm; SHA256SUMS has the checksums. Removes what it packed there before.
#
# The programs are static: they need no library of the host, and read users from /etc/passwd only.
# A commit gives the same bytes in every directory, with the same compilers.
# Needs `setup.sh packaging`, for another architecture than the host's `setup.sh arm64`, and the network for
# cargo-cyclonedx, which is built once.
set -eu
umask 022

die() {
	printf 'dist: %s\n' "$*" >&2
	exit 1
}

[ $# -gt 0 ] || die 'usage: dist.sh OUT [x86_64 | aarch64]...'
mkdir -p "$1"
out=$(realpath "$1")
shift
architectures=${*:-x86_64 aarch64}
cd "$(dirname "$0")/.."

cyclonedx=0.5.9
packages='tollgate ausearch bench detect search ship top'
programs='tollgate tollgate-ausearch tollgate-aureport tollgate-bench tollgate-collect tollgate-detect tollgate-report tollgate-search tollgate-ship tollgate-top'

# need COMMAND: stops if it is missing.
need() {
	command -v "$1" >/dev/null || die "$1 is missing: $advice"
}

for architecture in $architectures; do
	case $architecture in
	x86_64 | aarch64) ;;
	*) die "unknown architecture '$architecture': expected x86_64 or aarch64" ;;
	esac
	advice='sh scripts/setup.sh packaging'
	need rpmbuild
	need dpkg-deb
	if [ "$architecture" != "$(uname -m)" ]; then
		advice="sh scripts/setup.sh arm64; or build for this machine only: sh scripts/dist.sh $out $(uname -m)"
		need "qemu-$architecture-static"
		[ -d "$(rustc --print target-libdir --target "$architecture-unknown-linux-gnu")" ] ||
			die "Rust's library for $architecture is missing: $advice"
	fi
	need "$architecture-linux-gnu-gcc"
	for library in libc.a libelf.a libz.a; do
		[ -f "$("$architecture-linux-gnu-gcc" -print-file-name=$library)" ] || die "$library for $architecture is missing: $advice"
	done
done

source=$(pwd)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
build=$(realpath -m "${CARGO_TARGET_DIR:-target}")/static
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
# Messages about bugs name source files, also generated ones: by names that do not depend on the directory. The last
# name that fits is taken.
rust_maps="--remap-path-prefix=$source=/tollgate --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$build=/build"
c_maps="-ffile-prefix-map=$source=/tollgate -ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$build=/build"

work=$(mktemp -d)
end() {
	rm -rf "$work"
	find "$source/crates" "$source/tests" "$source/xtask" -name dist-sbom.json -delete
}
trap end EXIT
trap 'exit 1' HUP INT TERM

# write_sbom DIRECTORY: lists what is linked into the programs for $architecture: crates, and libraries in C.
write_sbom() {
	mkdir "$1"
	# Writes a file beside the manifest of each crate.
	"$build/bin/cargo-cyclonedx" cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps \
		--target "$architecture-unknown-linux-gnu" --override-filename dist-sbom
	for package in $packages; do
		sed "s,path+file://$source,path+file:///tollgate,g" "crates/$package/dist-sbom.json" >"$1/$package.cdx.json"
	done
	for library in libc.a libelf.a libz.a; do
		file=$(realpath "$("$architecture-linux-gnu-gcc" -print-file-name=$library)")
		owner=$(dpkg-query -S "$file" | cut -d ' ' -f 1)
		dpkg-query -W -f '${Package} ${Version}\n' "${owner%:}"
	done >"$1/c-libraries.txt"
}

# pack: packs the programs for $architecture.
pack() {
	binaries=$build/$architecture-unknown-linux-gnu/release
	# install.sh, deb.sh and rpm.sh run a program, too.
	EMULATOR=
	[ "$architecture" = "$(uname -m)" ] || EMULATOR=qemu-$architecture-static
	export EMULATOR
	version=$(${EMULATOR:+"$EMULATOR"} "$binaries/tollgate" --version | cut -d ' ' -f 2)
	name=tollgate-$version-$architecture
	stage=$work/$name
	mkdir -p "$stage/bin"
	for program in $programs; do
		"$architecture-linux-gnu-strip" --strip-all -o "$stage/bin/$program" "$binaries/$program"
	done
	# What install.sh and uninstall.sh need.
	install -D -m 0755 -t "$stage/scripts" scripts/install.sh scripts/uninstall.sh
	install -D -m 0644 -t "$stage/man" man/*.5 man/*.8
	install -D -m 0644 -t "$stage/packaging" packaging/tollgate-alternatives packaging/*.service packaging/tollgate.tmpfiles \
		packaging/journald.conf
	install -D -m 0644 -t "$stage/packaging/sigma" packaging/sigma/*.yml
	install -D -m 0644 -t "$stage/examples" examples/*
	for file in deploy/*/*.sql; do
		install -D -m 0644 "$file" "$stage/$file"
	done
	install -m 0644 -t "$stage" README.md CHANGELOG.md LICENSE.md LICENSE-APACHE LICENSE-BSD-2-Clause LICENSE-GPL-2.0
	write_sbom "$stage/sbom"
	(cd "$stage" && find . -type f ! -name SHA256SUMS -print0 | sort -z | xargs -0 sha256sum >SHA256SUMS)
	tar --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
		--format=gnu --create "$name" | gzip -9n >"$out/$name.tar.gz"
	sh scripts/deb.sh "$stage/bin" "$out" "$architecture"
	sh scripts/rpm.sh "$stage/bin" "$out" "$architecture"
}

rm -f "$out"/tollgate-*.tar.gz "$out"/tollgate_*.deb "$out"/tollgate-*.rpm "$out/SHA256SUMS"
[ -x "$build/bin/cargo-cyclonedx" ] ||
	cargo install --quiet --locked --root "$build" --version "$cyclonedx" cargo-cyclonedx
set --
for package in $packages; do
	set -- "$@" --package "$package"
done
for architecture in $architectures; do
	# Names of symbols, which differ between builds, have no part in the build id then.
	CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_TARGET_DIR=$build CFLAGS=$c_maps RUSTFLAGS="-C target-feature=+crt-static $rust_maps" \
		CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=x86_64-linux-gnu-gcc \
		CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
		cargo build --locked --release --target "$architecture-unknown-linux-gnu" "$@"
	pack
done
cd "$out"
sha256sum tollgate-*.tar.gz tollgate_*.deb tollgate-*.rpm | tee SHA256SUMS
