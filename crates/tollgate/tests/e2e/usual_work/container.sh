# Starts a container as its runtime does: namespaces, a root of layers, and /proc. What is done there leaves this machine as
# it is. `pivot_root` makes paths those of the container.
# container.sh DIRECTORY SCRIPT: executes SCRIPT with an empty DIRECTORY as the place of the upper layer.
set -eu
if [ "${3:-}" != inside ]; then
	exec unshare --mount --pid --net --ipc --uts --fork --propagation private sh "$0" "$1" "$2" inside
fi
mount -t tmpfs -o mode=755 tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
cp "$2" "$1/root/work.sh"
cd "$1/root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount --rbind /dev dev
mkdir -p .old
pivot_root . .old
hostname container
cd /
umount -l /.old
exec sh -eu /work.sh
