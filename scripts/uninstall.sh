#!/bin/sh
# uninstall.sh BINARIES DESTDIR PREFIX: ends auditing and removes what install.sh has installed below DESTDIR/PREFIX.
# Rules, settings, logs and the last good rules stay. Without DESTDIR it also stops the service.
set -eu
binaries=$(realpath "$1")
destination=${2%/}
prefix=${3%/}
here=$(dirname "$0")

# The same names, from an installation elsewhere; first, because it fails without a build.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
sh "$here/install.sh" "$binaries" "$stage" "$prefix"

if [ -z "$destination" ]; then
	if [ -d /run/systemd/system ]; then
		systemctl --quiet disable --now tollgate-collect.service tollgate-detect.service tollgate-ship.service tollgate.service || true
	fi
	# A daemon that was killed has left its programs, and this is the only tool that removes them.
	if [ -d /sys/fs/bpf/tollgate ] || [ -s /run/tollgate/kernel-audit ]; then
		if [ -x "$prefix/sbin/tollgate" ] && ! "$prefix/sbin/tollgate" unpin; then
			echo 'uninstall: nothing was removed: auditing goes on; end the daemon, or restart the machine if -e 2 locked the rules' >&2
			exit 1
		fi
		rmdir /sys/fs/bpf/tollgate 2>/dev/null || true
	fi
	if [ -x "$prefix/sbin/tollgate-alternatives" ]; then
		"$prefix/sbin/tollgate-alternatives" remove
	fi
fi

(cd "$stage" && find . ! -type d) | while IFS= read -r file; do
	rm -f "$destination/${file#./}"
done
rmdir "$destination$prefix/lib/tollgate" "$destination$prefix/share/tollgate/sigma" "$destination$prefix/share/tollgate" \
	"$destination/etc/tollgate/sigma" "$destination/etc/tollgate" 2>/dev/null || true

if [ -z "$destination" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
