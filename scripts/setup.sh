#!/bin/sh
# setup.sh [packages | tests | packaging | arm64]...: installs missing Debian packages for `make build` and `make run`, and
# tells how to get Rust if it is missing or too old. `tests` also installs what `make test` and `make check` need,
# `packaging` what `make deb`, `make dist` and their tests need, `arm64` what programs and test machines for arm64 need;
# with nothing but `packages` and `packaging`, Rust is not looked for. Changes nothing if nothing is missing.
#
# Exit status: 0 ready to build; 1 something is missing that this script could not install; 2 usage error.
set -eu

rust_minor=95 # rust-version in Cargo.toml is 1.95
policy=/usr/sbin/policy-rc.d
policy_saved=$policy.tollgate-saved
policy_mark='Written by tollgate: scripts/setup.sh'

# clang-19           compiles the BPF programs; clang 14, Debian 12's default, is too old
# gcc libc6-dev      link the Rust binaries and compile libbpf
# libelf-dev zlib1g-dev pkg-config make   needed by libbpf
# auditd             ausearch and aureport read the log; its daemon is not left running
packages='clang-19 gcc libc6-dev libelf-dev zlib1g-dev pkg-config make auditd'

# clang-format-19    formats the BPF programs
# auditd             also aulast, auditctl, audisp-syslog and the daemon, for comparison
# audispd-plugins    audisp-remote, the peer of tollgate collect
# libauparse-dev     test programs that use auparse
# qemu-system-x86 busybox-static   test machines with other kernels, and their shell
# btrfs-progs, e2fsprogs, xfsprogs make file systems in test machines, and bindfs one in user space
# checkpolicy        compiles the SELinux policy of one test machine
# bpftool            the tool with which root could remove hooks and maps
# git golang-go python3 redis-tools strace   programs that must work unchanged under `tollgate run`;
#                    redis-tools has the server under another name, without a service
# util-linux-extra   fincore, which reports what the page cache holds of a log
# groff-base         checks the manual pages
# logrotate          rotates logs in the usual work that must raise no alert
# fio sysbench       workloads of `tollgate bench`
# chromium-headless-shell   renders its HTML report in a test
# systemd            systemd-analyze verifies the unit
# zstd               decompresses archives of logs
# rsyslog rsyslog-gnutls   the peer of tollgate ship; its daemon is not left running
# gnutls-bin         certtool, which makes certificates
for_tests='clang-format-19 groff-base audispd-plugins libauparse-dev qemu-system-x86 busybox-static btrfs-progs e2fsprogs xfsprogs bindfs checkpolicy bpftool'
for_tests="$for_tests git golang-go python3 redis-tools strace fio sysbench chromium-headless-shell systemd util-linux-extra zstd logrotate rsyslog rsyslog-gnutls"
for_tests="$for_tests gnutls-bin"

# dpkg-dev lintian debootstrap   build and check the package, and install it in a separate Debian
# qemu-system-x86 busybox-static cpio kmod xz-utils e2fsprogs   boot that Debian: its disk, and a first file system
#                    with the modules that the disk needs
# rpm                rpmbuild, and rpm, which installs the result in a directory of its own
for_packaging='dpkg-dev lintian debootstrap qemu-system-x86 busybox-static cpio kmod xz-utils e2fsprogs rpm'

# gcc-aarch64-linux-gnu   compiles programs for arm64
# gcc-arm-linux-gnueabihf   compiles the 32-bit program of the tests
# libelf-dev:arm64 zlib1g-dev:arm64   linked into static programs; dpkg must know the architecture
# qemu-system-arm    emulates test machines
# qemu-user-static   runs a program for arm64 here: its completions become part of packages; without binfmt-support
#                    the kernel does not use it by itself
for_arm64='gcc-aarch64-linux-gnu gcc-arm-linux-gnueabihf libelf-dev:arm64 zlib1g-dev:arm64 qemu-system-arm qemu-user-static'
arm64_target=aarch64-unknown-linux-gnu

with_rust=no
with_rust_tools=no
with_arm64=no
[ $# -gt 0 ] || with_rust=yes
for part in "$@"; do
	case $part in
	packages) ;;
	tests)
		packages="$packages $for_tests"
		with_rust=yes
		with_rust_tools=yes
		;;
	packaging) packages="$packages $for_packaging" ;;
	arm64)
		packages="$packages $for_arm64"
		with_rust=yes
		with_arm64=yes
		;;
	*)
		echo "setup: unknown argument '$part': expected packages, tests, packaging or arm64" >&2
		exit 2
		;;
	esac
done

say() {
	printf 'setup: %s\n' "$*"
}

complain() {
	printf 'setup: %s\n' "$*" >&2
}

# missing_packages: prints the packages that are not fully installed, on one line.
missing_packages() {
	missing_list=
	native=$(dpkg --print-architecture 2>/dev/null) || native=
	for package in $packages; do
		case " $missing_list " in *" $package "*) continue ;; esac
		# A package of two architectures has two lines.
		wanted=$native
		case $package in *:*) wanted=${package##*:} ;; esac
		dpkg-query -W -f '${db:Status-Status} ${Architecture}\n' "$package" 2>/dev/null |
			grep -q -x -e "installed $wanted" -e 'installed all' || missing_list="$missing_list $package"
	done
	printf '%s' "${missing_list# }"
}

auditd_runs() {
	grep -qsx auditd /proc/[0-9]*/comm
}

# Installing auditd would start it and enable the kernel's audit, which makes every syscall of this
# machine slower; rsyslog would begin to write /var/log. invoke-rc.d and deb-systemd-invoke ask policy-rc.d
# first: during the installation it refuses both, and answers as before for other services.
forbid_auditd() {
	if [ -e "$policy" ] || [ -L "$policy" ]; then
		mv "$policy" "$policy_saved" || return 1
	fi
	cat >"$policy" <<-EOF || return 1
		#!/bin/sh
		# $policy_mark; removed after the installation.
		case "\$*" in
		*auditd* | *rsyslog*) exit 101 ;;
		esac
		[ ! -x $policy_saved ] || exec $policy_saved "\$@"
		exit 0
	EOF
	chmod 0755 "$policy"
}

policy_forbids_auditd() {
	[ -x "$policy" ] || return 1
	answer=0
	"$policy" auditd start >/dev/null 2>&1 || answer=$?
	[ "$answer" -eq 101 ]
}

# Also cleans up after a killed run.
restore_policy() {
	if grep -qs "$policy_mark" "$policy"; then
		rm -f "$policy"
	fi
	if [ -e "$policy_saved" ] || [ -L "$policy_saved" ]; then
		mv "$policy_saved" "$policy"
	fi
}

# disable_service NAME: the package also enables its service for the next boot.
disable_service() {
	if command -v systemctl >/dev/null; then
		systemctl --quiet disable "$1.service" 2>/dev/null || true
	elif command -v update-rc.d >/dev/null; then
		update-rc.d "$1" disable >/dev/null 2>&1 || true
	fi
}

# apt_get WORD...: without questions, and without restarting services that use updated libraries.
apt_get() {
	DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
		apt-get -q -y -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

install_packages() {
	install_auditd=no
	install_rsyslog=no
	case " $1 " in *' rsyslog '*) install_rsyslog=yes ;; esac
	case " $1 " in
	*' auditd '* | *' rsyslog '*)
		case " $1 " in *' auditd '*) install_auditd=yes ;; esac
		ran_before=no
		if auditd_runs; then ran_before=yes; fi
		trap restore_policy EXIT
		trap 'exit 1' HUP INT TERM
		restore_policy
		if ! policy_forbids_auditd && ! forbid_auditd; then
			complain "cannot write $policy; without it, installing auditd or rsyslog would start its daemon"
			exit 1
		fi
		;;
	esac

	say "installing $1"
	case " $1 " in
	*':arm64 '*)
		if ! dpkg --add-architecture arm64; then
			complain 'dpkg cannot add the architecture arm64'
			exit 1
		fi
		;;
	esac
	if ! apt_get update; then
		complain 'apt-get update failed; check the package sources and the network'
		exit 1
	fi
	# Unquoted: a list of words.
	# shellcheck disable=SC2086
	if ! apt_get install --no-install-recommends $1; then
		complain "apt-get could not install: $1"
		exit 1
	fi

	if [ "$install_auditd" = yes ] || [ "$install_rsyslog" = yes ]; then
		restore_policy
	fi
	if [ "$install_rsyslog" = yes ]; then
		disable_service rsyslog
	fi
	if [ "$install_auditd" = yes ] && [ "$ran_before" = no ]; then
		disable_service auditd
		if auditd_runs; then
			complain 'installing the package auditd started its daemon in spite of policy-rc.d;'
			complain 'end it with: auditctl --signal stop; auditctl -e 0'
			exit 1
		fi
		say 'auditd is installed for ausearch and auditctl; its daemon is neither started nor enabled'
	fi
}

need_packages() {
	if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
		complain "this is not a Debian system; install your distribution's packages of: $packages"
		return 0
	fi
	missing=$(missing_packages)
	if [ -z "$missing" ]; then
		say 'all Debian packages are installed'
	elif [ "$(id -u)" -eq 0 ]; then
		install_packages "$missing"
	else
		complain "missing: $missing"
		complain 'installing packages needs root; run this, then repeat your command:'
		complain "  sudo sh scripts/setup.sh ${*:-packages}"
		return 1
	fi
}

# how_to_get_rust REASON
how_to_get_rust() {
	complain "$1; tollgate needs Rust 1.$rust_minor or newer, and Debian 12's rustc is older"
	complain 'install rustup, the Rust toolchain installer, as https://rustup.rs describes'
	if [ -n "${SUDO_USER:-}" ]; then
		complain "or, if $SUDO_USER has it already: sudo env PATH=\"\$PATH\" HOME=\"\$HOME\" make ..."
	fi
}

need_rust() {
	PATH=$PATH:${HOME:-/root}/.cargo/bin
	if ! command -v cargo >/dev/null; then
		how_to_get_rust 'cargo is not installed'
		return 1
	fi
	# "cargo 1.95.0 (f2d3ce0bd 2026-03-21)"; the first call may make rustup fetch the toolchain.
	if ! version=$(cargo --version </dev/null); then
		how_to_get_rust 'cargo --version fails'
		return 1
	fi
	version=${version#cargo }
	version=${version%% *}
	major=${version%%.*}
	minor=${version#*.}
	minor=${minor%%.*}
	case $major$minor in
	'' | *[!0-9]*)
		how_to_get_rust "unexpected version of cargo: '$version'"
		return 1
		;;
	esac
	if [ "$major" -eq 1 ] && [ "$minor" -lt "$rust_minor" ]; then
		how_to_get_rust "cargo $version is too old"
		if command -v rustup >/dev/null; then
			complain 'run: rustup update stable'
		fi
		return 1
	fi
	# Building needs neither.
	if [ "$with_rust_tools" = yes ] && { ! cargo fmt --version || ! cargo clippy --version; } >/dev/null 2>&1; then
		complain 'rustfmt or clippy is missing; run: rustup component add rustfmt clippy'
		return 1
	fi
	say "cargo $version is new enough"
}

# Rust's library for arm64.
need_arm64_target() {
	if ! command -v rustup >/dev/null; then
		complain "install Rust's target $arm64_target, for example with rustup"
		return 1
	fi
	rustup --quiet target add "$arm64_target" || {
		complain "run: rustup target add $arm64_target"
		return 1
	}
}

cd "$(dirname "$0")/.."
ready=0
need_packages "$@" || ready=1
if [ "$with_rust" = yes ]; then
	need_rust || ready=1
fi
if [ "$with_arm64" = yes ] && [ "$ready" -eq 0 ]; then
	need_arm64_target || ready=1
fi
exit "$ready"
