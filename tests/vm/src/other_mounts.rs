//! Objects below a watched directory that are reached through other mounts than that of the watch: trees that are
//! attached nowhere, and calls about attributes whose working directory is in a bind mount of the same file system.

use anyhow::ensure;
use support::event::{self, Event};

use crate::daemon::Daemon;
use crate::filesystems::{LOAD_MODULES, shell};
use crate::half_seen::events_of;
use crate::machine::USER;
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// Hooks see objects.
pub(crate) const SESSION: Session = Session {
    name: "other_mounts",
    engine: "fentry",
    prepare: || {
        shell(LOAD_MODULES)?;
        shell(PREPARE)
    },
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S getpgid -F uid=1001 -k last\n\
         -w /tmp/mounts/ext4/dir -p rwa -k tree\n\
         -w /tmp/mounts/tmpfs/dir -p rwa -k tree\n\
         -w /tmp/mounts/ext4/file -p ra -k attributes\n\
         -w /tmp/mounts/bound/file -p a -k bound\n",
    ),
    tests: &[
        ("detached_tree", detached_tree),
        ("root_tree", root_tree),
        ("user_tree", user_tree),
        ("attr_cwd", attr_cwd),
        ("setxattr_bind_name", setxattr_bind_name),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// The same where names are read when a call has ended, and those in `/proc` are not followed.
pub(crate) const SESSION_TRACEPOINT: Session = Session {
    name: "other_mounts_tracepoint",
    engine: "tracepoint",
    tests: &[("detached_tree", detached_tree), ("user_tree", user_tree)],
    ..SESSION
};

const PREPARE: &str = "
umount /tmp/mounts/bound 2>/dev/null || true
umount /tmp/mounts/ext4 2>/dev/null || true
rm -rf /tmp/mounts
mkdir -p /tmp/mounts/ext4 /tmp/mounts/tmpfs /tmp/mounts/bound /tmp/mounts/point
truncate -s 8M /tmp/mounts/disk
/usr/sbin/mke2fs -q -F -t ext4 /tmp/mounts/disk
mount -t ext4 -o loop /tmp/mounts/disk /tmp/mounts/ext4
cd /tmp/mounts
mkdir -p ext4/dir/sub tmpfs/dir/sub ext4/other
for file in ext4/dir/sub/file tmpfs/dir/sub/file ext4/other/file ext4/file; do echo text > $file; done
chown -R 1001:1001 ext4 tmpfs
mount -o bind ext4/other bound
";

/// Syscall numbers of the 64-bit table.
mod nr {
    pub(super) const CHDIR: u32 = 80;
    pub(super) const CHMOD: u32 = 90;
    pub(super) const MOUNT: u32 = 165;
    pub(super) const UMOUNT2: u32 = 166;
    pub(super) const SETXATTR: u32 = 188;
    pub(super) const GETXATTR: u32 = 191;
    pub(super) const REMOVEXATTR: u32 = 197;
    pub(super) const OPENAT: u32 = 257;
    pub(super) const MKDIRAT: u32 = 258;
    pub(super) const UNLINKAT: u32 = 263;
    pub(super) const FCHMODAT: u32 = 268;
    pub(super) const UNSHARE: u32 = 272;
    pub(super) const DUP3: u32 = 292;
    pub(super) const OPEN_TREE: u32 = 428;
}

const AT_FDCWD: i64 = -100;
const AT_REMOVEDIR: i64 = 0x200;
const O_CREAT_RDWR: i64 = 0o102;
const O_PATH: i64 = 0o1000_0000;
const CLONE_NEWNS: i64 = 0x2_0000;
const CLONE_NEWUSER: i64 = 0x1000_0000;
const MS_BIND: i64 = 0x1000;
const MS_REC_PRIVATE: i64 = 0x4_4000;
const MNT_DETACH: i64 = 2;
const OPEN_TREE_CLONE: i64 = 1;

/// Directories below a watched one.
const DIRECTORIES: [&str; 2] = ["/tmp/mounts/ext4/dir/sub", "/tmp/mounts/tmpfs/dir/sub"];
const FILE: &str = "/tmp/mounts/ext4/dir/sub/file";
/// Where a program binds a directory.
const POINT: &str = "/tmp/mounts/point";

/// Whether a program reaches a directory through an attached mount, as a control, or through a detached one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mount {
    Attached,
    Detached,
}

/// What [`relative`] does, as it is recorded.
const RELATIVE: [&str; 6] = [
    "openat", "openat", "fchmodat", "mkdirat", "unlinkat", "unlinkat",
];

/// Adds calls with names relative to the directory that was saved under this name.
fn relative(program: Program, directory: &'static str) -> Program {
    let at = || Arg::Saved(directory);
    program
        .call(nr::OPENAT, args![at(), "file", 0])
        .call(nr::OPENAT, args![at(), "new", O_CREAT_RDWR, 0o600])
        .call(nr::FCHMODAT, args![at(), "file", 0o640])
        .call(nr::MKDIRAT, args![at(), "made", 0o700])
        .call(nr::UNLINKAT, args![at(), "made", AT_REMOVEDIR])
        .call(nr::UNLINKAT, args![at(), "new", 0])
}

/// Adds calls relative to a directory that `open_tree` returns.
fn in_tree(program: Program, directory: &'static str, mount: Mount) -> Program {
    relative(open_tree(program, directory, mount).save("tree"), "tree")
}

/// Adds an `open_tree`, which no watch records.
fn open_tree(program: Program, path: &'static str, mount: Mount) -> Program {
    let flags = if mount == Mount::Detached {
        OPEN_TREE_CLONE
    } else {
        0
    };
    program.call(nr::OPEN_TREE, args![AT_FDCWD, path, flags])
}

/// Adds calls relative to a directory in a bind mount, in a namespace of the program.
fn in_bind_mount(program: Program, directory: &'static str, mount: Mount) -> Program {
    let program = program
        .call(nr::MOUNT, args![directory, POINT, 0, MS_BIND, 0])
        .call(nr::OPENAT, args![AT_FDCWD, POINT, O_PATH])
        .save("bound");
    let program = match mount {
        Mount::Attached => program,
        Mount::Detached => program.call(nr::UMOUNT2, args![POINT, MNT_DETACH]),
    };
    relative(program, "bound")
}

/// What [`in_bind_mount`] does, as it is recorded.
fn bind_mount_records() -> Vec<&'static str> {
    ["openat"].into_iter().chain(RELATIVE).collect()
}

/// Runs a program and fails unless exactly these syscalls are recorded.
fn expect(
    daemon: &Daemon,
    uid: u32,
    program: &Program,
    mount: Mount,
    syscalls: &[&str],
) -> anyhow::Result<()> {
    let pid = daemon.run(uid, &program.install("trees")?, &[])?;
    let events = events_of(daemon, pid)?;
    let summaries: Vec<String> = events.iter().map(Event::summary).collect();
    let found: Vec<&str> = summaries
        .iter()
        .filter_map(|summary| summary.split('=').next())
        .collect();
    ensure!(
        found == syscalls,
        "{mount:?}, {} of {}: {}",
        found.len(),
        syscalls.len(),
        event::show(&events)
    );
    Ok(())
}

/// Objects in a tree that `open_tree` has copied are recorded as those in the mount.
fn detached_tree(daemon: &Daemon) -> anyhow::Result<()> {
    for mount in [Mount::Attached, Mount::Detached] {
        for directory in DIRECTORIES {
            let program = in_tree(Program::new(Entry::Syscall), directory, mount);
            expect(daemon, 0, &program, mount, &RELATIVE)?;
        }
    }
    Ok(())
}

/// What root does in a mount after `umount -l`, or with a copied mount of one file, is recorded as before it.
fn root_tree(daemon: &Daemon) -> anyhow::Result<()> {
    let private = || {
        Program::new(Entry::Syscall)
            .call(nr::UNSHARE, args![CLONE_NEWNS])
            .call(nr::MOUNT, args![0, "/", 0, MS_REC_PRIVATE, 0])
    };
    for mount in [Mount::Attached, Mount::Detached] {
        for directory in DIRECTORIES {
            let program = in_bind_mount(private(), directory, mount);
            expect(daemon, 0, &program, mount, &bind_mount_records())?;
        }
        let program = open_tree(private(), FILE, mount)
            .call(nr::DUP3, args![Arg::Result, 50, 0])
            .call(nr::OPENAT, args![AT_FDCWD, "/proc/self/fd/50", 0])
            .call(nr::CHMOD, args!["/proc/self/fd/50", 0o640]);
        expect(daemon, 0, &program, mount, &["openat", "chmod"])?;
    }
    Ok(())
}

/// The same is recorded of a user, in a user namespace.
fn user_tree(daemon: &Daemon) -> anyhow::Result<()> {
    let namespace =
        || Program::new(Entry::Syscall).call(nr::UNSHARE, args![CLONE_NEWUSER | CLONE_NEWNS]);
    for mount in [Mount::Attached, Mount::Detached] {
        for directory in DIRECTORIES {
            let program = in_tree(namespace(), directory, mount);
            expect(daemon, USER, &program, mount, &RELATIVE)?;
            let program = in_bind_mount(namespace(), directory, mount);
            expect(daemon, USER, &program, mount, &bind_mount_records())?;
        }
    }
    Ok(())
}

/// The value of an attribute.
fn value() -> Arg {
    Arg::Bytes(b"x".to_vec())
}

/// Runs a program; fails unless these events have this path and nothing else is recorded.
fn expect_path(
    daemon: &Daemon,
    what: &str,
    program: &Program,
    path: &str,
    syscalls: &[&str],
) -> anyhow::Result<()> {
    let pid = daemon.run_user(&program.install("attributes")?, &[])?;
    let events = events_of(daemon, pid)?;
    let expected: Vec<String> = syscalls
        .iter()
        .map(|syscall| format!("{syscall} NORMAL:{path}"))
        .collect();
    let found: Vec<String> = events.iter().map(Event::summary).collect();
    ensure!(found == expected, "{what}: {}", event::show(&events));
    Ok(())
}

/// Calls about attributes are recorded, with the path of their file, if the working directory is in a bind mount, also
/// of a file that replaces the watched one.
fn attr_cwd(daemon: &Daemon) -> anyhow::Result<()> {
    const PATH: &str = "/tmp/mounts/ext4/file";
    let program = |directory: &'static str| {
        Program::new(Entry::Syscall)
            .call(nr::CHDIR, args![directory])
            .call(nr::SETXATTR, args![PATH, "user.a", value(), 1, 0])
            .call(nr::GETXATTR, args![PATH, "user.a", Arg::Buffer, 8])
            .call(nr::REMOVEXATTR, args![PATH, "user.a"])
    };
    let recorded = ["setxattr=0", "getxattr=1", "removexattr=0"];
    let expect = |what, directory| expect_path(daemon, what, &program(directory), PATH, &recorded);
    expect("in another file system", "/tmp/work")?;
    shell("cd /tmp/mounts/ext4; echo text > new; chown 1001:1001 new; mv new file")?;
    let replaced = expect("replaced, in a bind mount", "/tmp/mounts/bound");
    expect("replaced, in another file system", "/tmp/work")?;
    let known = expect("in a bind mount", "/tmp/mounts/bound");
    match (known, replaced) {
        (Err(known), Err(replaced)) => anyhow::bail!("{known}; {replaced}"),
        (known, replaced) => known.and(replaced),
    }
}

/// Calls about attributes of a file that replaces one watched by its name in a bind mount are recorded.
fn setxattr_bind_name(daemon: &Daemon) -> anyhow::Result<()> {
    const PATH: &str = "/tmp/mounts/bound/file";
    shell("cd /tmp/mounts/ext4/other; echo text > new; chown 1001:1001 new; mv new file")?;
    let program = Program::new(Entry::Syscall)
        .call(nr::SETXATTR, args![PATH, "user.a", value(), 1, 0])
        .call(nr::REMOVEXATTR, args![PATH, "user.a"])
        .call(nr::CHMOD, args![PATH, 0o640])
        .call(nr::SETXATTR, args![PATH, "user.a", value(), 1, 0]);
    let recorded = ["setxattr=0", "removexattr=0", "chmod=0", "setxattr=0"];
    expect_path(daemon, "replaced", &program, PATH, &recorded)
}
