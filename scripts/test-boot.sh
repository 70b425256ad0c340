#!/bin/sh
# test-boot.sh ROOT: boots the Debian 12 in the directory ROOT, with the packages tollgate and auditd, in QEMU
# with systemd, and runs scripts/test-service.sh in it. Takes 3 GiB of memory and about five minutes.
# Called by test-deb.sh. VMLINUZ=FILE boots that kernel instead of Debian 12's.
set -eu
root=$(realpath "$1")
here=$(dirname "$0")
timeout_s=${TIMEOUT:-900}

say() {
	printf 'test-boot: %s\n' "$*"
}

die() {
	printf 'test-boot: %s\n' "$*" >&2
	exit 1
}

for tool in qemu-system-x86_64 cpio; do
	command -v "$tool" >/dev/null || die "$tool is missing: sh scripts/setup.sh packaging"
done

work=$(mktemp -d)
serial=${SERIAL:-$work/serial}
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# The kernel package is unpacked, not installed: the machine has no boot loader and no disk.
kernel=${VMLINUZ:-}
if [ -z "$kernel" ]; then
	package=$(chroot "$root" apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
	say "fetching $package"
	chroot "$root" sh -c 'cd /tmp && apt-get -qq -o APT::Sandbox::User=root download "$1"' sh "$package"
	dpkg-deb -x "$root/tmp/$package"_*.deb "$work/kernel"
	rm "$root/tmp/$package"_*.deb
	kernel=$(echo "$work"/kernel/boot/vmlinuz-*)
fi

# The test needs rules, a log path that is not the default, and a plugin.
mkdir -p "$root/srv/watched" "$root/srv/other" "$root/srv/third"
echo '-w /srv/watched -p wa -k watched' >"$root/etc/audit/rules.d/50-watched.rules"
sed -i 's,^log_file = .*,log_file = /var/log/audit/machine.log,' "$root/etc/audit/auditd.conf"
printf '#!/bin/sh\nexec cat >>/var/log/plugin.out\n' >"$root/usr/local/sbin/plugin"
chmod 0750 "$root/usr/local/sbin/plugin"
cat >"$root/etc/audit/plugins.d/test.conf" <<PLUGIN
active = yes
direction = out
path = /usr/local/sbin/plugin
type = always
format = string
PLUGIN
install -m 0755 "$here/test-service.sh" "$root/usr/local/sbin/test-service"
cat >"$root/etc/systemd/system/test-service.service" <<UNIT
[Unit]
Description=Test of tollgate.service
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/test-service
ExecStopPost=/bin/systemctl --no-block poweroff
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0

[Install]
WantedBy=graphical.target
UNIT
chroot "$root" systemctl --quiet enable test-service.service
chroot "$root" systemctl --quiet mask serial-getty@ttyS0.service getty@tty1.service \
	systemd-networkd-wait-online.service
# The file system is in memory: remove what the test does not need.
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/locale \
	"$root"/usr/share/doc/[!t]* "$root"/tmp/*
rm -f "$root/usr/sbin/policy-rc.d"
ln -sf /lib/systemd/systemd "$root/init"

say 'packing the initramfs'
(cd "$root" && find . -xdev \( -path ./proc/\* -o -path ./sys/\* \) -prune -o -print0 |
	cpio --quiet --null --create --format=newc) >"$work/initramfs"

say "booting $(basename "$kernel") with an initramfs of $(($(stat -c %s "$work/initramfs") >> 20)) MiB"
# One thread of the host emulates all processors in turn: see xtask/src/vm/boot.rs.
status=0
timeout "$timeout_s" qemu-system-x86_64 -accel tcg,thread=single -cpu max,la57=off -smp 2 \
	-machine q35 -m 3072 -nodefaults -no-reboot -display none -serial "file:$serial" \
	-kernel "$kernel" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1 oops=panic \
	mitigations=off systemd.show_status=0 systemd.unit=graphical.target ${KERNEL_ARGS:-}" </dev/null || status=$?
tr -d '\r' <"$serial" >"$work/output"
sed -n '/^\(ok\|FAILED\|  \)/p' "$work/output"
[ "$status" -eq 0 ] || die 'QEMU failed or timed out'
grep -q '^test-service: done$' "$work/output" || {
	tail -n 30 "$work/output"
	die 'test-service.sh did not finish'
}
! grep -q '^FAILED' "$work/output" || die 'checks of the service failed'
