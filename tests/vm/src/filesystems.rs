//! Watches on the file systems that Debian's kernels for virtual machines bring, by all names that an object can have.
//! btrfs with its subvolumes and overlayfs show other device and inode numbers than the kernel compares; for some tests
//! the daemon's `/` is btrfs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::chroot;
use support::event::{self, Event};
use support::wait::wait_for;

use crate::daemon::Daemon;
use crate::deny::set_xattr;
use crate::differential::steps::{self, step};
use crate::differential::uring::{Layout, Queue, openat2};
use crate::differential::watched::{ACL, ACL_BYTES, acl};
use crate::machine::PROGRAMS;
use crate::program::Entry;
use crate::suite::{Rules, Session};

mod nfs;
mod removed_directories;

/// Below a root that is no btrfs.
pub(crate) const SESSION: Session = Session {
    name: "filesystems",
    engine: "fentry",
    prepare: || {
        shell(LOAD_MODULES)?;
        shell(MOUNT)?;
        nfs::mount_loopback()?;
        for place in [
            "tmpfs",
            "ext4",
            "xfs",
            "vfat",
            "fuse",
            "btrfs",
            "btrfs/sub",
            "btrfs/twin",
            "overlay",
            "nfs",
        ] {
            make(&Path::new(PLACE).join(place))?;
        }
        Ok(())
    },
    rules: Rules::Text(
        "-w /tmp/fs/tmpfs/file -p rwa -k file\n\
         -w /tmp/fs/tmpfs/dir -p rwa -k dir\n\
         -w /tmp/fs/ext4/file -p rwa -k file\n\
         -w /tmp/fs/ext4/dir -p rwa -k dir\n\
         -w /tmp/fs/xfs/file -p rwa -k file\n\
         -w /tmp/fs/xfs/dir -p rwa -k dir\n\
         -w /tmp/fs/vfat/file -p rwa -k file\n\
         -w /tmp/fs/vfat/dir -p rwa -k dir\n\
         -w /tmp/fs/fuse/file -p rwa -k file\n\
         -w /tmp/fs/fuse/dir -p rwa -k dir\n\
         -w /tmp/fs/btrfs/file -p rwa -k file\n\
         -w /tmp/fs/btrfs/dir -p rwa -k dir\n\
         -w /tmp/fs/btrfs/sub/file -p rwa -k file\n\
         -w /tmp/fs/btrfs/sub/dir -p rwa -k dir\n\
         -w /tmp/fs/overlay/file -p rwa -k file\n\
         -w /tmp/fs/overlay/dir -p rwa -k dir\n\
         -w /tmp/fs/nfs/file -p rwa -k file\n\
         -w /tmp/fs/nfs/dir -p rwa -k dir\n\
         -a always,exit -F arch=b64 -S chmod -F a1=0711 -k mode\n\
         -a always,exit -F arch=b64 -S getxattr -F a0=1 -k xattr\n",
    ),
    tests: &[
        ("tmpfs", |daemon| objects(daemon, "/tmp/fs/tmpfs", &ALL)),
        ("ext4", |daemon| objects(daemon, "/tmp/fs/ext4", &ALL)),
        ("xfs", |daemon| objects(daemon, "/tmp/fs/xfs", &ALL)),
        ("vfat", |daemon| objects(daemon, "/tmp/fs/vfat", &VFAT)),
        ("fuse", |daemon| objects(daemon, "/tmp/fs/fuse", &FUSE)),
        ("btrfs", |daemon| objects(daemon, "/tmp/fs/btrfs", &ALL)),
        ("btrfs_subvolume", |daemon| {
            objects(daemon, "/tmp/fs/btrfs/sub", &ALL)
        }),
        ("overlayfs", |daemon| {
            objects(daemon, "/tmp/fs/overlay", &ALL)
        }),
        ("nfs", |daemon| objects(daemon, "/tmp/fs/nfs", &NFS)),
        ("overlayfs_lookup", overlayfs_lookup),
        ("subvolumes_differ", subvolumes_differ),
        (
            "snapshot_is_another_directory",
            removed_directories::snapshot_is_another_directory,
        ),
        (
            "same_number_is_another_directory",
            removed_directories::same_number_is_another_directory,
        ),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// In a root directory that is a subvolume, with another one as `/home`: both are inode 256.
pub(crate) const SESSION_ROOT: Session = Session {
    name: "filesystems_root",
    engine: "fentry",
    prepare: || {
        shell(LOAD_MODULES)?;
        shell(MOUNT)?;
        shell(ROOT)?;
        for place in ["root/srv", "root/home"] {
            make(&Path::new(PLACE).join(place))?;
        }
        for session in [SESSION_ROOT, SESSION_ROOT_TRACEPOINT] {
            let start = format!("/tmp/{}.start", session.name);
            fs::write(&start, START)?;
            fs::set_permissions(&start, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    },
    rules: Rules::Text(
        "-w /srv/file -p rwa -k file\n\
         -w /srv/dir -p rwa -k dir\n\
         -w /home/file -p rwa -k file\n\
         -w /home/dir -p rwa -k dir\n\
         -w /home -p a -k home\n",
    ),
    tests: &[
        ("root_subvolume", |daemon| {
            in_root(|| objects(daemon, "/srv", &IN_ROOT))
        }),
        ("home_subvolume", |daemon| {
            in_root(|| objects(daemon, "/home", &IN_ROOT))
        }),
        ("a_watched_subvolume", |daemon| {
            in_root(|| a_watched_subvolume(daemon))
        }),
    ],
    ..SESSION
};

/// The same for an engine that reads names when a call has ended.
pub(crate) const SESSION_ROOT_TRACEPOINT: Session = Session {
    name: "filesystems_root_tracepoint",
    engine: "tracepoint",
    ..SESSION_ROOT
};

/// Where the file systems are mounted.
const PLACE: &str = "/tmp/fs";

/// Mounts everything once.
const MOUNT: &str = "
[ -d /tmp/fs ] && exit 0
mkdir -p /tmp/fs/tmpfs /tmp/fs/btrfs /tmp/fs/overlay /tmp/fs/upper /tmp/fs/work
mkdir /tmp/fs/ext4 /tmp/fs/xfs /tmp/fs/vfat /tmp/fs/fuse /tmp/fs/below
truncate -s 32M /tmp/fs/ext4.disk /tmp/fs/xfs.disk /tmp/fs/vfat.disk
/usr/sbin/mke2fs -q -t ext4 /tmp/fs/ext4.disk
/usr/sbin/mkfs.xfs --unsupported -q /tmp/fs/xfs.disk
mkdosfs /tmp/fs/vfat.disk
mount -t ext4 -o loop /tmp/fs/ext4.disk /tmp/fs/ext4
mount -t xfs -o loop /tmp/fs/xfs.disk /tmp/fs/xfs
mount -t vfat -o loop,codepage=437,iocharset=ascii /tmp/fs/vfat.disk /tmp/fs/vfat
/usr/bin/bindfs /tmp/fs/below /tmp/fs/fuse
truncate -s 256M /tmp/fs/disk
/usr/sbin/mkfs.btrfs -q /tmp/fs/disk
mount -t btrfs -o loop /tmp/fs/disk /tmp/fs/btrfs
for name in sub twin lower root home; do /usr/bin/btrfs -q subvolume create /tmp/fs/btrfs/$name; done
echo text > /tmp/fs/btrfs/lower/file
mkdir /tmp/fs/btrfs/lower/dir
echo text > /tmp/fs/btrfs/lower/dir/below
mount -t overlay -o lowerdir=/tmp/fs/btrfs/lower,upperdir=/tmp/fs/upper,workdir=/tmp/fs/work overlay \
    /tmp/fs/overlay
";

/// Makes the subvolumes a root directory that the daemon can start in.
const ROOT: &str = "
[ -d /tmp/fs/root ] && exit 0
mkdir /tmp/fs/root
disk=$(losetup -a | sed -n 's,^\\([^:]*\\):.* /tmp/fs/disk$,\\1,p')
mount -t btrfs -o subvol=root $disk /tmp/fs/root
cd /tmp/fs/root
mkdir -p etc home run srv var/lib var/log
mount -t btrfs -o subvol=home $disk home
cp /etc/passwd /etc/group etc/
for name in bin sbin lib lib64 usr proc sys dev tmp; do
    if [ -d /$name ]; then mkdir $name; mount -o bind /$name $name; fi
done
";

/// Starts the daemon in that root directory.
const START: &str = "#!/bin/busybox sh
exec /bin/busybox chroot /tmp/fs/root /bin/tollgate \"$@\"
";

/// Loads the modules of file systems and of loop devices once.
pub(crate) const LOAD_MODULES: &str = "
[ -d /sys/module/loop ] && exit 0
for module in /modules/$(uname -r)/*; do insmod $module; done
";

/// Runs a script.
///
/// # Errors
/// If it fails.
pub(crate) fn shell(script: &str) -> anyhow::Result<()> {
    let mut shell = Command::new("/bin/busybox");
    let ended = shell.args(["sh", "-ec", script]).status()?;
    ensure!(ended.success(), "a script ended with {ended}: {script}");
    Ok(())
}

/// What is watched, and beside it what is not.
fn make(place: &Path) -> anyhow::Result<()> {
    let at = |name: &str| place.join(name);
    for left in ["dir", "file", "other", "second"] {
        let _absent = fs::remove_dir_all(at(left)).or_else(|_| fs::remove_file(at(left)));
    }
    fs::create_dir_all(at("dir")).context("cannot make a directory")?;
    for name in ["file", "other", "dir/below"] {
        fs::write(at(name), "text\n").with_context(|| format!("cannot make {name}"))?;
    }
    Ok(())
}

/// The ways to an object that not every place has.
struct Ways {
    hard_links: bool,
    attributes: bool,
    acls: bool,
    user_namespaces: bool,
}

const ALL: Ways = Ways {
    hard_links: true,
    attributes: true,
    acls: true,
    user_namespaces: true,
};

const VFAT: Ways = Ways {
    hard_links: false,
    attributes: false,
    acls: false,
    ..ALL
};

const FUSE: Ways = Ways { acls: false, ..ALL };

/// The server keeps no attributes in the name space of root, and no ACLs of POSIX.
const NFS: Ways = Ways {
    attributes: false,
    acls: false,
    ..ALL
};

/// A process in another root directory can make no user namespace.
const IN_ROOT: Ways = Ways {
    user_namespaces: false,
    ..ALL
};

/// Works in the root directory of the daemon.
fn in_root(work: impl FnOnce() -> anyhow::Result<()> + Send) -> anyhow::Result<()> {
    with_root(&Path::new(PLACE).join("root"), work)
}

/// Works in another root directory, which is that of one thread.
fn with_root(root: &Path, work: impl FnOnce() -> anyhow::Result<()> + Send) -> anyhow::Result<()> {
    let inside = || {
        unshare(CloneFlags::CLONE_FS)?;
        chroot(root)?;
        std::env::set_current_dir("/")?;
        work()
    };
    let ended = thread::scope(|scope| scope.spawn(inside).join());
    ended.unwrap_or_else(|_panic| anyhow::bail!("a thread has panicked"))
}

fn read(path: PathBuf) -> anyhow::Result<()> {
    fs::read(path).map(drop).context("cannot read")
}

/// Opens a file by an `io_uring` operation.
fn open_by_operation(file: &Path, by_worker: bool) -> anyhow::Result<()> {
    let mut queue = Queue::new(Layout::ask(Path::new(PROGRAMS))?, false);
    let mut steps = queue.made();
    let name = file.to_str().context("no text")?;
    steps.push(queue.give(openat2(name, 0), by_worker));
    steps.push(step!("exit_group", 0));
    let program = steps::program(Entry::Syscall, &steps)?.install("open_by_operation")?;
    let status = Command::new(program).status()?;
    ensure!(status.success(), "the program ended with {status}");
    Ok(())
}

/// Reads a file through a bind mount in a user namespace.
fn in_namespace(place: &Path, name: &str) -> anyhow::Result<()> {
    let inside = format!("mount -o bind . /tmp; cat /tmp/{name} > /dev/null");
    let script = format!("unshare -U -r -m sh -ec '{inside}'");
    let mut shell = Command::new("/bin/busybox");
    let ended = shell
        .args(["sh", "-ec", &script])
        .current_dir(place)
        .status()?;
    ensure!(ended.success(), "a script ended with {ended}: {script}");
    Ok(())
}

/// Does what the kernel's own audit records, by all names that an object can have; fails unless each is in the
/// log, and no access to what is not watched.
fn objects(daemon: &Daemon, place: &str, has: &Ways) -> anyhow::Result<()> {
    let place = Path::new(place);
    let at = |name: &str| place.join(name);
    let bound = Path::new("/tmp/bound").join(place.strip_prefix("/")?);
    let bind = || -> anyhow::Result<()> {
        fs::create_dir_all(&bound)?;
        let (none, flags) = (None::<&str>, MsFlags::MS_BIND);
        mount(Some(place), &bound, none, flags, none)?;
        Ok(())
    };
    let replace = || -> anyhow::Result<()> {
        fs::write(at("new"), "text\n")?;
        Ok(fs::rename(at("new"), at("file"))?)
    };
    let mut missing = Vec::new();
    let mut record = |what: &'static str, key: &str, work: &dyn Fn() -> anyhow::Result<()>| {
        let before = events(daemon, key)?.len();
        work().with_context(|| what.to_owned())?;
        let found = wait_for(what, || {
            Ok((events(daemon, key)?.len() > before).then_some(()))
        });
        if found.is_err() {
            missing.push(what);
        }
        anyhow::Ok(())
    };
    record("open", "file", &|| read(at("file")))?;
    record("open in a directory", "dir", &|| read(at("dir/below")))?;
    record("write", "file", &|| Ok(fs::write(at("file"), "more\n")?))?;
    record("create", "dir", &|| Ok(fs::write(at("dir/new"), "more\n")?))?;
    record("mkdir", "dir", &|| Ok(fs::create_dir(at("dir/more"))?))?;
    if daemon.sees_inside() {
        for (what, by_worker) in [("io_uring", false), ("io_uring by a worker", true)] {
            record(what, "file", &|| open_by_operation(&at("file"), by_worker))?;
        }
    }
    if has.attributes {
        record("xattr", "file", &|| {
            Ok(set_xattr(&at("file"), "trusted.a", "x".into(), 1)?)
        })?;
    }
    if has.acls {
        record("ACL", "file", &|| {
            Ok(set_xattr(&at("file"), ACL, acl(), ACL_BYTES)?)
        })?;
    }
    if has.hard_links {
        fs::hard_link(at("file"), at("second")).context("cannot link")?;
        record("hard link", "file", &|| read(at("second")))?;
    }
    record("chroot", "file", &|| {
        with_root(place, || read("/file".into()))
    })?;
    record("directory in a chroot", "dir", &|| {
        with_root(place, || read("/dir/below".into()))
    })?;
    if has.user_namespaces {
        record("user namespace", "file", &|| in_namespace(place, "file"))?;
        record("directory in a user namespace", "dir", &|| {
            in_namespace(place, "dir/below")
        })?;
    }
    bind().context("cannot bind")?;
    record("bind mount", "file", &|| read(bound.join("file")))?;
    record("directory in a bind mount", "dir", &|| {
        read(bound.join("dir/below"))
    })?;
    record("rename over", "file", &replace)?;
    record("open of what replaces it", "file", &|| read(at("file")))?;
    let unwatched = at("other");
    read(unwatched.clone())?;
    record("unlink", "file", &|| Ok(fs::remove_file(at("file"))?))?;
    ensure!(missing.is_empty(), "not recorded: {missing:?}");
    named(daemon, &unwatched, 0)
}

/// Fails unless a path is named by so many events.
fn named(daemon: &Daemon, path: &Path, count: usize) -> anyhow::Result<()> {
    let path = path.to_str().context("no text")?;
    let mut events = event::parse(&daemon.log_text()?)?;
    events.retain(|event| event.fields("PATH", "name").iter().any(|name| name == path));
    ensure!(events.len() == count, "{}", event::show(&events));
    Ok(())
}

/// The events of a key in the log.
///
/// # Errors
/// If the log cannot be read.
pub(crate) fn events(daemon: &Daemon, key: &str) -> anyhow::Result<Vec<Event>> {
    let mut events = event::parse(&daemon.log_text()?)?;
    let has_key = |event: &Event| {
        let heads = ["SYSCALL", "URINGOP"].iter();
        heads.copied().any(|head| event.field(head, "key") == key)
    };
    events.retain(|event| event.is_from_tollgate() && has_key(event));
    Ok(events)
}

/// While `chmod` looks up a directory, overlayfs reads extended attributes of the directory in its upper layer: the
/// event names the directory of the overlay.
fn overlayfs_lookup(daemon: &Daemon) -> anyhow::Result<()> {
    let path = Path::new(PLACE).join("overlay/looked-up");
    fs::create_dir_all(&path)?;
    fs::write("/proc/sys/vm/drop_caches", "2")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o711))?;
    let found = wait_for("the event", || {
        Ok(events(daemon, "mode")?.into_iter().next())
    })?;
    let names = found.fields("PATH", "name");
    ensure!(
        names == [path.to_string_lossy()],
        "{}",
        event::show(&[found])
    );
    Ok(())
}

/// Files of two subvolumes have one inode number: only one of them is watched.
fn subvolumes_differ(daemon: &Daemon) -> anyhow::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let place = Path::new(PLACE).join("btrfs");
    let [watched, twin] = ["sub/dir", "twin/dir"].map(|name| place.join(name));
    let numbers = [fs::metadata(&watched)?.ino(), fs::metadata(&twin)?.ino()];
    let [first, second] = numbers;
    ensure!(first == second, "{first} and {second} prove nothing");
    for name in ["file", "dir/below"] {
        read(place.join("twin").join(name))?;
    }
    read(watched.join("below"))?;
    wait_for("the last event", || {
        let path = watched.join("below");
        Ok(named(daemon, &path, 2).is_ok().then_some(()))
    })?;
    named(daemon, &twin.join("below"), 0)?;
    named(daemon, &place.join("twin/file"), 0)
}

/// A directory that is the root of a subvolume, as that of the root directory is.
fn a_watched_subvolume(daemon: &Daemon) -> anyhow::Result<()> {
    let change = |path: PathBuf| fs::set_permissions(path, fs::Permissions::from_mode(0o644));
    let before = events(daemon, "home")?.len();
    change("/srv/other".into())?;
    change("/home/other".into())?;
    wait_for("the event", || {
        Ok((events(daemon, "home")?.len() > before).then_some(()))
    })?;
    named(daemon, Path::new("/home/other"), 1)?;
    named(daemon, Path::new("/srv/other"), 0)
}
