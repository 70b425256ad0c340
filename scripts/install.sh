#!/bin/sh
# install.sh BINARIES DESTDIR PREFIX: installs the programs in the directory BINARIES, their manual pages,
# completions and systemd files below DESTDIR/PREFIX. Replaces no command of another package.
#
# EMULATOR runs programs of another architecture than the host's, to ask one for its completions.
set -eu
umask 022
binaries=$(realpath "$1")
prefix=${3%/}
root=${2%/}$prefix
cd "$(dirname "$0")/.."

for name in tollgate tollgate-ausearch tollgate-aureport tollgate-bench tollgate-collect tollgate-detect tollgate-report tollgate-search tollgate-ship tollgate-top; do
	install -D -m 0755 -t "$root/sbin" "$binaries/$name"
done
ln -sf tollgate-search "$root/sbin/tollgate-replay"
ln -sf tollgate-search "$root/sbin/tollgate-log"
sed "s,/usr/lib/tollgate,$prefix/lib/tollgate,g" packaging/tollgate-alternatives >"$root/sbin/tollgate-alternatives"
chmod 0755 "$root/sbin/tollgate-alternatives"
install -D -m 0644 -t "$root/share/man/man8" man/*.8
install -D -m 0644 -t "$root/share/man/man5" man/*.5
install -D -m 0644 -t "$root/share/tollgate/sigma" packaging/sigma/*.yml
# The service reads the rules of the machine there; the directory may be empty.
install -d "${2%/}/etc/tollgate/sigma"
install -D -m 0644 packaging/tollgate.tmpfiles "$root/lib/tmpfiles.d/tollgate.conf"
install -D -m 0644 packaging/journald.conf "$root/lib/systemd/journald.conf.d/10-tollgate.conf"
install -d "$root/lib/systemd/system"
for unit in tollgate.service tollgate-collect.service tollgate-detect.service tollgate-ship.service; do
	sed "s,/usr/sbin/tollgate,$prefix/sbin/tollgate,g; s,/usr/share/tollgate,$prefix/share/tollgate,g" "packaging/$unit" >"$root/lib/systemd/system/$unit"
	chmod 0644 "$root/lib/systemd/system/$unit"
done

# Commands for tollgate-alternatives(8). Invoked by the name auditctl, the program behaves like it.
install -d "$root/lib/tollgate"
ln -sf ../../sbin/tollgate "$root/lib/tollgate/auditctl"
ln -sf ../../sbin/tollgate-ausearch "$root/lib/tollgate/ausearch"
ln -sf ../../sbin/tollgate-aureport "$root/lib/tollgate/aureport"

complete() {
	install -d "$(dirname "$2")"
	${EMULATOR:+"$EMULATOR"} "$binaries/tollgate" completions "$1" >"$2"
	chmod 0644 "$2"
}
complete bash "$root/share/bash-completion/completions/tollgate"
complete zsh "$root/share/zsh/vendor-completions/_tollgate"
complete fish "$root/share/fish/vendor_completions.d/tollgate.fish"
