//! Syscalls that read or change the attributes of an object, or use it as a directory or mount point.

use nix::libc::O_DIRECTORY;

use super::steps::{CWD, ProgramStep, Run, RunAs, numbers, step};
use super::watched::{ACL, ACL_BYTES, acl};
use crate::program::{Arg, Entry};

const O_RDWR: i32 = 2;
const O_CREAT: i32 = 0o100;
const O_PATH: i32 = 0o10_000_000;
const AT_SYMLINK_NOFOLLOW: i32 = 0x100;
const AT_EACCESS: i32 = 0x200;
const AT_EMPTY_PATH: i32 = 0x1000;
const MS_BIND: i32 = 4096;
const MS_REMOUNT: i32 = 32;
const MNT_DETACH: i32 = 2;
const UMOUNT_NOFOLLOW: i32 = 8;

pub(super) fn runs(entry: Entry) -> Vec<Run> {
    let run = |user, steps| Run { user, entry, steps };
    let mut steps = vec![
        step!("openat", CWD, "/tmp/w/sub", O_DIRECTORY).save("dfd"),
        step!("openat", CWD, "/tmp/w/file", O_RDWR).save("fd"),
        step!("openat", CWD, "/tmp/w/file", O_PATH).save("path"),
    ];
    steps.extend(modes());
    steps.extend(owners());
    steps.extend(sizes_and_times());
    steps.extend(extended());
    steps.extend(looks());
    // A 32-bit program has no other syscall for some of these.
    if entry == Entry::Syscall {
        steps.extend(looks_of_64_bits());
    }
    steps.extend(places());
    let chroot = vec![
        step!("chroot", "missing"),
        step!("chroot", "file"),
        step!("chroot", "/tmp/w"),
        step!("open", "/file", 0),
        step!("open", "file", 0),
        step!("chdir", "/sub"),
        step!("open", "below", 0),
        step!("creat", "new", 0o600),
    ];
    vec![
        run(RunAs::Root, steps),
        run(RunAs::Root, chroot),
        run(RunAs::User, refused()),
    ]
}

fn dfd() -> Arg {
    Arg::Saved("dfd")
}

fn fd() -> Arg {
    Arg::Saved("fd")
}

fn created() -> Arg {
    Arg::Saved("created")
}

fn modes() -> Vec<ProgramStep> {
    vec![
        step!("chmod", "/tmp/w/file", 0o640),
        step!("chmod", "link", 0o644),
        step!("chmod", "sub/", 0o755),
        step!("chmod", ".", 0o777),
        step!("chmod", "missing", 0o600),
        step!("chmod", "dangling", 0o600),
        step!("chmod", "loop", 0o600),
        step!("chmod", "file/below", 0o600),
        step!("chmod", "/proc/cmdline", 0o600),
        step!("fchmodat", CWD, "./file", 0o600),
        step!("fchmodat", dfd(), "below", 0o644),
        step!("fchmodat", 77, "below", 0o644),
        step!("fchmod", fd(), 0o644),
        step!("fchmod", dfd(), 0o755),
        step!("fchmod", Arg::Saved("path"), 0o755),
        step!("fchmod", 77, 0o644),
    ]
}

fn owners() -> Vec<ProgramStep> {
    vec![
        step!("chown", "/tmp/w/file", 0, 0),
        step!("chown", "link", 1001, -1),
        step!("lchown", "link", 1001, 4242),
        step!("chown", "missing", 0, 0),
        step!("lchown", "missing", 0, 0),
        step!("fchown", fd(), 0, 0),
        step!("fchown", 77, 0, 0),
        step!("fchownat", CWD, "sub/below", 0, 0, 0),
        step!("fchownat", CWD, "link", 0, 0, AT_SYMLINK_NOFOLLOW),
        step!("fchownat", dfd(), "below", 0, 0, 0),
        step!("fchownat", dfd(), "", 0, 0, AT_EMPTY_PATH),
        step!("fchownat", Arg::Saved("path"), "", 0, 0, AT_EMPTY_PATH),
        step!("fchownat", dfd(), "", 0, 0, 0),
        step!("fchownat", CWD, "file", 0, 0, 0x8000),
        // A descriptor remembers for its whole life that its open has created the file.
        step!("openat", CWD, "/tmp/w/created", O_RDWR | O_CREAT, 0o600).save("created"),
        step!("fchownat", created(), "", 0, 0, AT_EMPTY_PATH),
        step!("fchown", created(), 0, 0),
    ]
}

fn sizes_and_times() -> Vec<ProgramStep> {
    let times = || numbers([1_u64, 2, 3, 4].map(u64::to_ne_bytes));
    vec![
        step!("truncate", "/tmp/w/file", 100),
        step!("truncate", "link", 5),
        step!("truncate", "sub", 0),
        step!("truncate", "missing", 0),
        step!("truncate", "file", -1),
        step!("ftruncate", fd(), 7),
        step!("ftruncate", dfd(), 0),
        step!("ftruncate", 77, 0),
        step!("utimensat", CWD, "/tmp/w/file", 0, 0),
        step!("utimensat", CWD, "link", times(), AT_SYMLINK_NOFOLLOW),
        step!("utimensat", dfd(), "below", times(), 0),
        step!("utimensat", fd(), 0, 0, 0),
        step!("utimensat", fd(), "", 0, AT_EMPTY_PATH),
        step!("utimensat", CWD, "missing", 0, 0),
        step!("utime", "file", 0),
        step!("utimes", "file", 0),
        step!("futimesat", CWD, "file", 0),
        step!("futimesat", fd(), 0, 0),
    ]
}

fn extended() -> Vec<ProgramStep> {
    let room = || Arg::Shared("room", vec![0; 256]);
    let value = || Arg::Bytes(b"value".into());
    vec![
        step!("setxattr", "/tmp/w/file", "trusted.a", value(), 5, 0),
        step!("setxattr", "link", "security.b", value(), 5, 0),
        step!("lsetxattr", "link", "trusted.c", value(), 5, 0),
        step!("fsetxattr", fd(), "trusted.d", value(), 5, 0),
        step!("setxattr", "file", "trusted.a", value(), 5, 1),
        step!("setxattr", "file", "odd", value(), 5, 0),
        step!("setxattr", "missing", "trusted.a", value(), 5, 0),
        step!("fsetxattr", 77, "trusted.a", value(), 5, 0),
        step!("getxattr", "file", "trusted.a", room(), 100),
        step!("lgetxattr", "link", "trusted.c", room(), 100),
        step!("fgetxattr", fd(), "trusted.d", room(), 100),
        step!("getxattr", "file", "trusted.missing", room(), 100),
        step!("getxattr", "missing", "trusted.a", room(), 100),
        step!("listxattr", "file", room(), 200),
        step!("llistxattr", "link", room(), 200),
        step!("flistxattr", fd(), room(), 200),
        step!("removexattr", "file", "trusted.a"),
        step!("lremovexattr", "link", "trusted.c"),
        step!("fremovexattr", fd(), "trusted.d"),
        step!("removexattr", "file", "trusted.a"),
        step!("removexattr", "missing", "trusted.a"),
        step!("setxattr", "file", ACL, acl(), ACL_BYTES, 0),
        step!("fsetxattr", fd(), ACL, acl(), ACL_BYTES, 0),
        step!("getxattr", "file", ACL, room(), 256),
        step!("fgetxattr", fd(), ACL, room(), 256),
        step!("removexattr", "/tmp/w/file", ACL),
        step!("fremovexattr", fd(), ACL),
    ]
}

fn looks() -> Vec<ProgramStep> {
    let room = || Arg::Shared("room", vec![0; 256]);
    vec![
        step!("stat", "/tmp/w/file", room()),
        step!("stat", "link", room()),
        step!("stat", "missing", room()),
        step!("stat", "file/below", room()),
        step!("lstat", "link", room()),
        step!("statx", CWD, "file", 0, 0xfff, room()),
        step!("statx", fd(), "", AT_EMPTY_PATH, 0xfff, room()),
        step!("statx", CWD, "missing", 0, 0xfff, room()),
        step!("access", "/tmp/w/file", 4),
        step!("access", "missing", 0),
        step!("faccessat", CWD, "file", 4),
        step!("faccessat", dfd(), "below", 2),
        step!(
            "faccessat2",
            CWD,
            "link",
            4,
            AT_EACCESS | AT_SYMLINK_NOFOLLOW
        ),
        step!("readlink", "/tmp/w/link", room(), 100),
        step!("readlink", "file", room(), 100),
        step!("readlink", "missing", room(), 100),
        step!("readlinkat", CWD, "dangling", room(), 100),
        step!("statfs", "/tmp/w", room()),
        step!("statfs", "missing", room()),
        step!("fstatfs", fd(), room()),
        step!("inotify_add_watch", 0, "/tmp/w", 0),
    ]
}

fn looks_of_64_bits() -> Vec<ProgramStep> {
    let room = || Arg::Shared("room", vec![0; 256]);
    vec![
        step!("newfstatat", CWD, "file", room(), 0),
        step!("newfstatat", CWD, "link", room(), AT_SYMLINK_NOFOLLOW),
        step!("newfstatat", dfd(), "below", room(), 0),
        step!("newfstatat", fd(), "", room(), AT_EMPTY_PATH),
        step!("newfstatat", created(), "", room(), AT_EMPTY_PATH),
        step!("newfstatat", CWD, "missing", room(), 0),
        step!("fstat", fd(), room()),
    ]
}

fn places() -> Vec<ProgramStep> {
    vec![
        step!("chdir", "/tmp/w/sub"),
        step!("open", "below", 0),
        step!("chdir", ".."),
        step!("chdir", "missing"),
        step!("chdir", "file"),
        step!("fchdir", dfd()),
        step!("creat", "new", 0o600),
        step!("fchdir", 77),
        step!("chdir", "/tmp/w"),
        step!("mount", "source", "/tmp/w/sub", "tmpfs", 0, 0),
        step!("open", "sub/new", 0o100 | O_RDWR, 0o600),
        // An open file prevents the unmount.
        step!("close", Arg::Result),
        step!("mount", "source", "sub", "tmpfs", MS_REMOUNT, 0),
        step!("umount2", "/tmp/w/sub", 0),
        step!("mount", "/tmp/w/full", "/tmp/w/sub", 0, MS_BIND, 0),
        step!("open", "sub/file", 0),
        step!("chdir", "sub"),
        step!("open", "file", O_RDWR),
        step!("chdir", ".."),
        step!("umount2", "sub", MNT_DETACH),
        step!("umount2", "sub", UMOUNT_NOFOLLOW),
        step!("umount2", "missing", 0),
        step!("umount2", "file", 0),
        step!("mount", "source", "missing", "tmpfs", 0, 0),
        step!("mount", "missing", "sub", 0, MS_BIND, 0),
        step!("mount", "source", "sub", "nosuchfs", 0, 0),
        step!("mount", 0, "file", "tmpfs", 0, 0),
        step!("swapon", "/tmp/w/file", 0),
        step!("swapon", "missing", 0),
        step!("swapoff", "file"),
        step!("acct", "missing"),
        step!("acct", "sub"),
        step!("acct", 0),
        step!("pivot_root", "sub", "missing"),
        step!("pivot_root", "sub", "sub"),
    ]
}

fn refused() -> Vec<ProgramStep> {
    vec![
        step!("chmod", "file", 0o600),
        step!("chmod", "own/file", 0o600),
        step!("chmod", "other", 0o600),
        step!("chown", "file", 1001, 1001),
        step!("lchown", "link", 1001, 1001),
        step!("truncate", "file", 0),
        step!("truncate", "secret", 0),
        step!("truncate", "other", 3),
        step!("utimensat", CWD, "file", 0, 0),
        step!("setxattr", "file", "trusted.a", "x", 1, 0),
        step!("removexattr", "file", "trusted.a"),
        step!("access", "secret", 4),
        step!("access", "own/file", 4),
        step!("chdir", "own"),
        step!("chroot", "sub"),
        step!("mount", "source", "sub", "tmpfs", 0, 0),
        step!("umount2", "/proc", 0),
        step!("swapon", "file", 0),
        step!("acct", "file"),
        step!("readlink", "own/link", Arg::Bytes(vec![0; 64]), 64),
    ]
}
