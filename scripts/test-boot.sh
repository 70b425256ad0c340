#!/bin/sh
# test-boot.sh ROOT KERNEL: boots the Debian in the directory ROOT, with the packages tollgate and auditd, and the kernel
# of the package KERNEL, in QEMU with systemd and a disk, and runs scripts/guest/run.sh in it. The machine reboots some
# times; all of it takes about 15 minutes of an idle processor. Called by test-deb.sh.
#
# ONLY=NAME,NAME runs these states of scripts/guest/states.sh only.
# CPUS=1 is faster on a busy machine.
set -eu
root=$(realpath "$1")
here=$(dirname "$0")
timeout_s=${TIMEOUT:-3600}
test=/usr/local/lib/audit-test

say() {
	printf 'test-boot: %s\n' "$*"
}

die() {
	printf 'test-boot: %s\n' "$*" >&2
	exit 1
}

for tool in qemu-system-x86_64 cpio mke2fs depmod modprobe busybox; do
	command -v "$tool" >/dev/null || die "$tool is missing: sh scripts/setup.sh packaging"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# The kernel package is unpacked, not installed: the machine has no boot loader.
dpkg-deb -x "$2" "$work/kernel"
kernel=$(echo "$work"/kernel/boot/vmlinuz-*)
version=${kernel##*/vmlinuz-}
[ -d "$work/kernel/lib/modules" ] || ln -s usr/lib "$work/kernel/lib"

# The first file system has the modules that the disk needs, and starts systemd there.
mkdir -p "$work/initramfs/bin" "$work/initramfs/modules" "$work/initramfs/root"
cp "$(command -v busybox)" "$work/initramfs/bin/busybox"
depmod -b "$work/kernel" "$version"
number=10
for module in virtio_pci virtio_blk ext4; do
	modprobe -d "$work/kernel" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | awk '!seen[$0]++' | while read -r file; do
	cp "$file" "$work/initramfs/modules/$number-$(basename "$file")"
	number=$((number + 1))
done
! ls "$work"/initramfs/modules/*.xz >/dev/null 2>&1 || xz -d "$work"/initramfs/modules/*.xz
cat >"$work/initramfs/init" <<'INIT'
#!/bin/busybox sh
busybox mkdir -p /dev /proc
busybox mount -t devtmpfs none /dev
for module in /modules/*; do busybox insmod "$module"; done
busybox mount -t ext4 -o rw /dev/vda /root
exec busybox switch_root /root /lib/systemd/systemd
INIT
chmod 0755 "$work/initramfs/init"
(cd "$work/initramfs" && find . | cpio --quiet --create --format=newc | gzip -1) >"$work/initramfs.gz"

# The tests need rules, a log path that is not the default, and a plugin.
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
install -D -m 0755 -t "$root$test" "$here"/guest/*.sh
cat >"$root/etc/systemd/system/audit-test.service" <<UNIT
[Unit]
Description=Test of tollgate
After=multi-user.target
IgnoreOnIsolate=yes

[Service]
Type=oneshot
ExecStart=$test/run.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS1

[Install]
WantedBy=graphical.target
UNIT
chroot "$root" systemctl --quiet enable audit-test.service
# The kernel is not installed, so it has no other modules.
chroot "$root" systemctl --quiet mask serial-getty@ttyS0.service getty@tty1.service \
	systemd-networkd-wait-online.service systemd-modules-load.service
# A smaller disk: remove what the tests do not need.
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/locale \
	"$root"/usr/share/doc/[!t]* "$root"/tmp/*
rm -f "$root/usr/sbin/policy-rc.d"

size=$(($(du -sxk "$root" | cut -f 1) / 1024 + 400))
say "making a disk of $size MiB"
mke2fs -q -t ext4 -d "$root" "$work/disk" "${size}M"

say "booting Linux $version"
# One thread of the host emulates all processors in turn, and without features that are slow to emulate: see
# xtask/src/vm/boot.rs. The first serial port is the console, also of rescue mode; the tests print on the second.
mkfifo "$work/serial"
timeout "$timeout_s" qemu-system-x86_64 -accel tcg,thread=single \
	-cpu max,la57=off,smap=off,smep=off,erms=off,avx=off,avx2=off -smp "${CPUS:-2}" -machine q35 -m 1536 -nodefaults \
	-display none -serial "file:$work/console" -serial stdio -drive "file=$work/disk,format=raw,if=virtio,snapshot=on,cache=unsafe" \
	-kernel "$kernel" -initrd "$work/initramfs.gz" -append "console=ttyS0 quiet panic=-1 oops=panic mitigations=off \
	no_timer_check systemd.show_status=0 systemd.unit=graphical.target test.only=${ONLY:-} ${KERNEL_ARGS:-}" \
	</dev/null >"$work/serial" 2>&1 &
sed -u 's/\r$//' <"$work/serial" | tee "$work/output" | sed -u -n "s/^\(ok\|FAILED\|  \)/$version: &/p"
wait $! || die 'QEMU failed or timed out'
grep -q '^tests: done$' "$work/output" || {
	tail -n 30 "$work/console" "$work/output"
	die 'the tests did not finish'
}
! grep -q '^FAILED' "$work/output" || die 'checks failed'
