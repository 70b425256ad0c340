//! The syscalls that the tasks of a list make, in both ABIs.

use super::list_workload::ListWorkload;
use crate::differential::steps::{CWD, ProgramStep, numbers, step};
use crate::program::Arg;

pub(super) const O_WRONLY: i32 = 1;
const O_RDWR: i32 = 2;
const O_CREAT: i32 = 0o100;
const O_EXCL: i32 = 0o200;
const O_TRUNC: i32 = 0o1000;
const O_DIRECTORY: i32 = 0o200_000;
const AT_REMOVEDIR: i32 = 0x200;
const S_IFIFO: i32 = 0o010_000;
const S_IFREG: i32 = 0o100_000;
const ADDR_NO_RANDOMIZE: i32 = 0x0004_0000;

/// A `struct open_how` without mode and resolve flags.
fn open_how(flags: i32) -> Arg {
    numbers([u64::from(flags.cast_unsigned()), 0, 0].map(u64::to_ne_bytes))
}

/// 64-bit syscalls.
pub(super) fn wide(workload: &ListWorkload) -> Vec<ProgramStep> {
    let room = || Arg::Bytes(vec![0; 256]);
    let group = || i64::from(workload.group());
    let mut steps = vec![
        step!("getpid"),
        step!("open", "file", 0),
        step!("open", "file", O_RDWR).save("file"),
        step!("fchmod", Arg::Saved("file"), 0o640),
        step!("ftruncate", Arg::Saved("file"), 2),
        step!("fchown", Arg::Saved("file"), -1, group()),
        step!("openat", CWD, "new", O_CREAT | O_WRONLY, 0o600),
        step!("openat", CWD, "new", O_CREAT | O_EXCL | O_WRONLY, 0o600),
        step!("openat", CWD, "kept", O_WRONLY | O_TRUNC),
        step!("openat", CWD, "twin", 0),
        step!("openat", CWD, "link", O_WRONLY),
        step!("openat", CWD, "missing", 0),
        step!("openat", CWD, "dangling", O_RDWR),
        step!("openat", CWD, "secret", 0),
        step!("openat", CWD, "other", O_WRONLY),
        step!("openat", CWD, "way/below", O_RDWR),
        step!("openat", CWD, "sub", O_DIRECTORY).save("sub"),
        step!("openat", Arg::Saved("sub"), "below", 0),
        step!("openat", Arg::Saved("sub"), "../full/file", 3),
        step!("openat", -1, "below", 0),
        step!("openat2", CWD, "file", open_how(O_RDWR), 24),
        step!("openat2", CWD, "missing", open_how(0), 24),
        step!("creat", "made", 0o644),
        step!("open", "/etc/passwd", 0),
        step!("openat", CWD, "/proc/version", 0),
        step!("openat", CWD, "/proc/version", O_RDWR),
        step!("access", "file", 4),
        step!("access", "missing", 0),
        step!("stat", "file", room()),
        step!("newfstatat", CWD, "sub/below", room(), 0),
        step!("readlink", "link", room(), 64),
        step!("readlink", "file", room(), 64),
        step!("mkdir", "dir", 0o755),
        step!("mkdir", "dir", 0o755),
        step!("mkdirat", CWD, "dir/in", 0o700),
        step!("mkdir", "theirs/dir", 0o700),
        step!("rmdir", "dir"),
        step!("unlinkat", CWD, "dir/in", AT_REMOVEDIR),
        step!("mknodat", CWD, "fifo", S_IFIFO | 0o600, 0),
        step!("mknod", "regular", S_IFREG | 0o600, 0),
        step!("symlink", "made", "made.link"),
        step!("link", "made", "made.too"),
        step!("linkat", CWD, "made", CWD, "kept", 0),
        step!("rename", "made.too", "sub/moved"),
        step!("rename", "missing", "dir/x"),
        step!("renameat2", CWD, "sub/moved", CWD, "regular", 0),
        step!("chmod", "made", 0o600),
        step!("chmod", "other", 0o600),
        step!("chmod", "missing", 0o600),
        step!("fchmodat", CWD, "sub", 0o711),
        step!("chown", "made", -1, group()),
        step!("chown", "file", 0, 0),
        step!("lchown", "made.link", -1, group()),
        step!("truncate", "made", 1),
        step!("truncate", "secret", 1),
        step!("setxattr", "file", "user.x", "v", 1, 0),
        step!("getxattr", "file", "user.x", room(), 16),
        step!("utimensat", CWD, "kept", 0, 0),
        step!("unlink", "made.link"),
        step!("unlink", "new"),
        step!("unlink", "theirs/file"),
        step!("unlink", "missing"),
        step!("unlinkat", Arg::Saved("sub"), "below", 0),
        step!("openat", CWD, "new", O_CREAT | O_RDWR, 0o644),
        step!("chdir", "sub"),
        step!("openat", CWD, "../kept", 0),
        step!("openat", CWD, "again", O_CREAT | O_WRONLY, 0o600),
        step!("chdir", "missing"),
        step!("chdir", ".."),
    ];
    steps.extend(on_sockets());
    steps.extend([
        step!("personality", ADDR_NO_RANDOMIZE),
        step!("getpid"),
        step!("openat", CWD, "file", 0),
        step!("personality", 0),
        step!("setfsuid", i64::from(workload.suid())),
        step!("openat", CWD, "kept", O_RDWR),
        step!("openat", CWD, "file", O_RDWR),
        step!("chmod", "full/file", 0o600),
        step!("mkdir", "sub/no", 0o700),
        step!("setresgid", -1, i64::from(workload.sgid()), -1),
        step!("setresuid", -1, i64::from(workload.suid()), -1),
        step!("setuid", 0),
        step!("kill", 1, 0),
        step!("mount", 0, "sub", 0, 0, 0),
        step!("getpid"),
        step!("execve", "missing", 0, 0),
        step!("execve", "secret", 0, 0),
        step!("execve", "text", 0, 0),
    ]);
    steps
}

/// Syscalls with socket addresses.
fn on_sockets() -> Vec<ProgramStep> {
    let room = || Arg::Bytes(vec![0; 256]);
    vec![
        step!("socket", 1, 1, 0).save("socket"),
        step!("bind", Arg::Saved("socket"), address(b"bound"), 110),
        step!("connect", Arg::Saved("socket"), address(b"nobody"), 110),
        step!(
            "getsockname",
            Arg::Saved("socket"),
            room(),
            numbers([110_u32.to_ne_bytes()])
        ),
        step!(
            "sendto",
            Arg::Saved("socket"),
            "x",
            1,
            0,
            address(b"nobody"),
            110
        ),
        step!("sendto", Arg::Saved("socket"), "x", 1, 0, 0, 0),
        step!("connect", Arg::Saved("file"), inet(), 16),
        step!("connect", 99, inet(), 16),
        step!("connect", Arg::Saved("socket"), inet(), 500),
        step!("socket", 2, 2, 0).save("inet"),
        step!("connect", Arg::Saved("inet"), inet(), 16),
        step!("sendmsg", Arg::Saved("inet"), message(), 0),
        step!(
            "getsockname",
            Arg::Saved("inet"),
            room(),
            numbers([16_u32.to_ne_bytes()])
        ),
    ]
}

/// A `struct sockaddr_un`.
fn address(name: &[u8]) -> Arg {
    let mut bytes = 1_u16.to_ne_bytes().to_vec();
    bytes.extend(name);
    bytes.resize(110, 0);
    Arg::Bytes(bytes)
}

/// A `struct sockaddr_in`.
fn inet() -> Arg {
    let mut bytes = 2_u16.to_ne_bytes().to_vec();
    bytes.extend([0, 9, 127, 0, 0, 1]);
    bytes.resize(16, 0);
    Arg::Bytes(bytes)
}

/// A `struct msghdr` with an address only.
fn message() -> Arg {
    let mut words = vec![inet(), 16.into()];
    words.resize(7, 0.into());
    Arg::Words(words)
}

/// Syscalls through the 32-bit entry.
pub(super) fn narrow(workload: &ListWorkload) -> Vec<ProgramStep> {
    vec![
        step!("getpid"),
        step!("open", "file", 0),
        step!("open", "n", O_CREAT | O_RDWR, 0o600),
        step!("open", "secret", O_WRONLY),
        step!("open", "missing", 0),
        step!("openat", CWD, "twin", O_WRONLY),
        step!("mkdir", "narrow.dir", 0o700),
        step!("rmdir", "narrow.dir"),
        step!("rename", "n", "full/n"),
        step!("chmod", "full/n", 0o644),
        step!("chown32", "full/n", -1, i64::from(workload.group())),
        step!("truncate", "kept", 1),
        step!("unlink", "full/n"),
        step!("unlink", "theirs/file"),
        step!(
            "socketcall",
            1,
            numbers([1_u32, 1, 0].map(u32::to_ne_bytes))
        ),
        step!(
            "socketcall",
            2,
            numbers([99_u32, 0, 0].map(u32::to_ne_bytes))
        ),
        step!(
            "socketcall",
            2,
            Arg::Words(vec![7.into(), address(b"narrow"), 110.into()])
        ),
        step!(
            "socketcall",
            3,
            Arg::Words(vec![7.into(), inet(), 16.into()])
        ),
        step!("connect", 7, inet(), 16),
        step!("setfsuid32", i64::from(workload.suid())),
        step!("open", "kept", O_RDWR),
        step!("execve", "missing", 0, 0),
    ]
}
