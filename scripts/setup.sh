#!/bin/sh
# setup.sh [packages | packaging]: installs the Debian packages that the build and the tests need and
# this machine lacks, and says how to get Rust where it is missing or too old; with the word
# `packages` it leaves Rust alone, for a root who has none; with `packaging` it installs what
# `make deb` and `make testdeb` need as well. Changes nothing when nothing is missing.
#
# Exit status: 0 ready to build; 1 something is missing that this script could not install.
set -eu

rust_minor=95 # rust-version in Cargo.toml is 1.95
policy=/usr/sbin/policy-rc.d
policy_saved=$policy.tollgate-saved
policy_mark='Written by tollgate: scripts/setup.sh'

# clang-19           compiles the BPF programs; clang 14, Debian 12's default, is too old for them
# clang-format-19    formats them
# gcc libc6-dev      link the Rust binaries and compile the C library libbpf
# libelf-dev zlib1g-dev pkg-config make   libbpf's own needs
# auditd             ausearch, aureport, aulast, auditctl, audisp-syslog and the daemon itself, which the
#                    tests compare with; it is not left running
# libauparse-dev     programs that read events with auparse
# qemu-system-x86 busybox-static   machines for the tests on other kernels, and a shell in them
# checkpolicy        makes a policy for SELinux in one of them
# bpftool            what root would take hooks and maps away with
# git golang-go python3 redis-tools strace   real programs that `tollgate run` must leave as they are;
#                    redis-tools holds the server too, under another name, without making it a service
# util-linux-extra   fincore, which tells what the page cache holds of a log
# fio sysbench       cases of `tollgate bench`
# chromium-headless-shell   looks at the page that it writes
# systemd            systemd-analyze, which looks at the unit
packages='clang-19 clang-format-19 gcc libc6-dev libelf-dev zlib1g-dev pkg-config make auditd'
packages="$packages libauparse-dev qemu-system-x86 busybox-static checkpolicy bpftool git golang-go"
packages="$packages python3 redis-tools strace fio sysbench chromium-headless-shell systemd util-linux-extra"
# dpkg-dev lintian debootstrap cpio   build the package, look at it, install it in a Debian of its own, and
#                    pack that for a machine
if [ "${1:-}" = packaging ]; then
	packages="$packages dpkg-dev lintian debootstrap cpio"
fi

say() {
	printf 'setup: %s\n' "$*"
}

complain() {
	printf 'setup: %s\n' "$*" >&2
}

# missing_packages: those of $packages that are not fully installed, on one line.
missing_packages() {
	lacking=
	for package in $packages; do
		status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=absent
		[ "$status" = installed ] || lacking="$lacking $package"
	done
	printf '%s' "${lacking# }"
}

auditd_runs() {
	grep -qsx auditd /proc/[0-9]*/comm
}

# Installing auditd would start it, and auditd arms the kernel's audit: every syscall of this
# machine would pay from then on. invoke-rc.d and deb-systemd-invoke ask policy-rc.d first, so
# that for the time of the installation it answers "no" for auditd and as before for the rest.
forbid_auditd() {
	if [ -e "$policy" ] || [ -L "$policy" ]; then
		mv "$policy" "$policy_saved" || return 1
	fi
	cat >"$policy" <<-EOF || return 1
		#!/bin/sh
		# $policy_mark; removed when the installation ends.
		case "\$*" in
		*auditd*) exit 101 ;;
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

# Also cleans up after a run that was killed.
restore_policy() {
	if grep -qs "$policy_mark" "$policy"; then
		rm -f "$policy"
	fi
	if [ -e "$policy_saved" ] || [ -L "$policy_saved" ]; then
		mv "$policy_saved" "$policy"
	fi
}

# The package enables auditd for the next boot as well.
disable_auditd() {
	if command -v systemctl >/dev/null; then
		systemctl --quiet disable auditd.service 2>/dev/null || true
	elif command -v update-rc.d >/dev/null; then
		update-rc.d auditd disable >/dev/null 2>&1 || true
	fi
}

# apt_get WORD...: no questions, and no restart of services that use updated libraries.
apt_get() {
	DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
		apt-get -q -y -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

install_packages() {
	install_auditd=no
	case " $1 " in
	*' auditd '*)
		install_auditd=yes
		ran_before=no
		if auditd_runs; then ran_before=yes; fi
		trap restore_policy EXIT
		trap 'exit 1' HUP INT TERM
		restore_policy
		if ! policy_forbids_auditd && ! forbid_auditd; then
			complain "cannot write $policy, without which installing auditd would start it"
			exit 1
		fi
		;;
	esac

	say "installing $1"
	if ! apt_get update; then
		complain 'apt-get update failed; are the package sources right and is there a network?'
		exit 1
	fi
	# Unquoted: a list of words.
	# shellcheck disable=SC2086
	if ! apt_get install --no-install-recommends $1; then
		complain "apt-get could not install: $1"
		exit 1
	fi

	if [ "$install_auditd" = yes ]; then
		restore_policy
	fi
	if [ "$install_auditd" = yes ] && [ "$ran_before" = no ]; then
		disable_auditd
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
		complain "this is not a Debian system; install what your distribution calls: $packages"
		return 0
	fi
	missing=$(missing_packages)
	if [ -z "$missing" ]; then
		say 'all Debian packages are there'
	elif [ "$(id -u)" -eq 0 ]; then
		install_packages "$missing"
	else
		complain "missing: $missing"
		complain 'installing packages needs root; run this, then again what you ran:'
		complain '  sudo sh scripts/setup.sh packages'
		return 1
	fi
}

# how_to_get_rust REASON
how_to_get_rust() {
	complain "$1; tollgate needs Rust 1.$rust_minor or newer, and Debian 12's rustc is older"
	complain 'install rustup, the Rust toolchain installer, as https://rustup.rs describes'
	if [ -n "${SUDO_USER:-}" ]; then
		complain "or, where $SUDO_USER has it already: sudo env PATH=\"\$PATH\" HOME=\"\$HOME\" make ..."
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
		how_to_get_rust 'cargo does not start'
		return 1
	fi
	version=${version#cargo }
	version=${version%% *}
	major=${version%%.*}
	minor=${version#*.}
	minor=${minor%%.*}
	case $major$minor in
	'' | *[!0-9]*)
		how_to_get_rust "cargo's version '$version' is not understood"
		return 1
		;;
	esac
	if [ "$major" -eq 1 ] && [ "$minor" -lt "$rust_minor" ]; then
		how_to_get_rust "cargo $version is too old"
		if command -v rustup >/dev/null; then
			complain 'rustup is there: run rustup update stable'
		fi
		return 1
	fi
	if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
		complain 'rustfmt or clippy is missing; run rustup component add rustfmt clippy'
		return 1
	fi
	say "cargo $version is new enough"
}

cd "$(dirname "$0")/.."
ready=0
need_packages || ready=1
if [ "${1:-}" != packages ]; then
	need_rust || ready=1
fi
exit "$ready"
