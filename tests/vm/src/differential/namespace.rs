//! Syscalls that create, remove and rename names.

use nix::libc::{S_IFCHR, S_IFIFO, S_IFREG};

use super::steps::{CWD, ProgramStep, Run, RunAs, step};
use crate::program::{Arg, Entry};

const AT_REMOVEDIR: i32 = 0x200;
const AT_SYMLINK_FOLLOW: i32 = 0x400;
const AT_EMPTY_PATH: i32 = 0x1000;
const NOREPLACE: i32 = 1;
const EXCHANGE: i32 = 2;
const WHITEOUT: i32 = 4;
const O_PATH: i32 = 0o10_000_000;
const O_DIRECTORY: i32 = 0o200_000;

pub(super) fn runs(entry: Entry) -> Vec<Run> {
    let run = |user, steps| Run { user, entry, steps };
    let mut steps = vec![step!("openat", CWD, "/tmp/w/sub", O_DIRECTORY).save("dfd")];
    steps.extend(makes());
    steps.extend(links());
    steps.extend(renames());
    steps.extend(removes());
    vec![run(RunAs::Root, steps), run(RunAs::User, refused())]
}

fn dfd() -> Arg {
    Arg::Saved("dfd")
}

fn makes() -> Vec<ProgramStep> {
    vec![
        step!("mkdir", "/tmp/w/d1", 0o755),
        step!("mkdir", "d2", 0o700),
        step!("mkdir", "d3/", 0o755),
        step!("mkdirat", CWD, "d1/below", 0o755),
        step!("mkdirat", dfd(), "d4", 0o755),
        step!("mkdirat", dfd(), "../d5", 0o755),
        step!("mkdir", "d1", 0o755),
        step!("mkdir", ".", 0o755),
        step!("mkdir", "/", 0o755),
        step!("mkdir", "missing/d", 0o755),
        step!("mkdir", "file/d", 0o755),
        step!("mkdir", "dangling", 0o755),
        step!("mkdir", "", 0o755),
        step!("mkdir", 1, 0o755),
        step!("mkdirat", 77, "d6", 0o755),
        step!("mknod", "/tmp/w/fifo", i64::from(S_IFIFO | 0o600), 0),
        step!("mknod", "device", i64::from(S_IFCHR | 0o600), 0x103),
        step!("mknodat", CWD, "regular", i64::from(S_IFREG | 0o640), 0),
        step!("mknodat", dfd(), "fifo2", i64::from(S_IFIFO | 0o600), 0),
        step!("mknod", "fifo", i64::from(S_IFIFO | 0o600), 0),
        step!("mknod", "missing/fifo", i64::from(S_IFIFO | 0o600), 0),
        step!("mknod", "fifo3/", i64::from(S_IFIFO | 0o600), 0),
        step!("mknod", "odd", 0o170_600, 0),
        step!("symlink", "file", "/tmp/w/s1"),
        step!("symlink", "a target with blanks", "s2"),
        step!("symlinkat", "../file", dfd(), "s3"),
        step!("symlinkat", "file", CWD, "sub/s4"),
        step!("symlink", "file", "s1"),
        step!("symlink", "", "s5"),
        step!("symlink", "file", "missing/s6"),
        step!("symlink", "file", "s7/"),
        step!("symlink", 1, "s8"),
    ]
}

fn links() -> Vec<ProgramStep> {
    vec![
        step!("link", "file", "l1"),
        step!("link", "/tmp/w/file", "/tmp/w/l2"),
        step!("linkat", CWD, "file", dfd(), "l3", 0),
        step!("linkat", dfd(), "l3", CWD, "l4", 0),
        step!("linkat", CWD, "link", CWD, "l5", 0),
        step!("linkat", CWD, "link", CWD, "l6", AT_SYMLINK_FOLLOW),
        step!("openat", CWD, "file", O_PATH).save("fd"),
        step!("linkat", Arg::Saved("fd"), "", CWD, "l7", AT_EMPTY_PATH),
        step!("link", "file", "l1"),
        step!("link", "missing", "l8"),
        step!("link", "file", "missing/l8"),
        step!("link", "sub", "l8"),
        step!("link", "file", "l8/"),
        step!("linkat", 77, "file", CWD, "l8", 0),
        step!("linkat", CWD, "file", CWD, "l8", 0x8000),
        step!("link", "/proc/self/status", "l8"),
    ]
}

fn renames() -> Vec<ProgramStep> {
    let shared = || Arg::Shared("same", b"same\0".into());
    vec![
        step!("rename", "l1", "r1"),
        step!("rename", "/tmp/w/r1", "/tmp/w/sub/r2"),
        step!("rename", "./l2", "../w/r3"),
        step!("renameat", dfd(), "r2", CWD, "r4"),
        step!("renameat", CWD, "r4", dfd(), "r5"),
        step!("creat", "over", 0o600),
        step!("rename", "secret", "over"),
        step!("renameat2", CWD, "over", CWD, "secret", NOREPLACE),
        step!("renameat2", CWD, "secret", CWD, "file", NOREPLACE),
        step!(
            "renameat2",
            CWD,
            "/tmp/w/secret",
            CWD,
            "/tmp/w/sub/below",
            EXCHANGE
        ),
        step!("renameat2", CWD, "secret", CWD, "missing", EXCHANGE),
        step!("renameat2", CWD, "secret", CWD, "white", WHITEOUT),
        step!("renameat2", CWD, "white", CWD, "r6", 0x80),
        step!("creat", "same", 0o600),
        step!("renameat", CWD, shared(), dfd(), shared()),
        step!("renameat", dfd(), shared(), CWD, shared()),
        step!("rename", shared(), shared()),
        step!("rename", "l4", "r3"),
        step!("rename", "d1", "r7"),
        step!("rename", "r7", "d1"),
        step!("rename", "d2", "d3"),
        step!("rename", "d3", "full"),
        step!("rename", "d3", "file"),
        step!("rename", "file", "d3"),
        step!("rename", "d1", "d1/below/d"),
        step!("rename", "missing", "r8"),
        step!("rename", "missing/a", "r8"),
        step!("rename", "file", "missing/r8"),
        step!("rename", "file/", "r8"),
        step!("rename", "file", "r8/"),
        step!("rename", ".", "r8"),
        step!("rename", "file", ".."),
        step!("rename", "link", "r9"),
        step!("rename", "r9", "link"),
        step!("rename", "file", "/proc/file"),
        step!("renameat2", 77, "file", CWD, "r8", 0),
    ]
}

fn removes() -> Vec<ProgramStep> {
    vec![
        step!("unlink", "l5"),
        step!("unlink", "/tmp/w/l6"),
        step!("unlinkat", CWD, "./l7", 0),
        step!("unlinkat", dfd(), "l3", 0),
        step!("unlinkat", dfd(), "../fifo", 0),
        step!("unlink", "way/s4"),
        step!("unlink", "link"),
        step!("unlink", "missing"),
        step!("unlink", "missing/file"),
        step!("unlink", "file/below"),
        step!("unlink", "sub"),
        step!("unlink", "sub/"),
        step!("unlink", "file/"),
        step!("unlink", "missing/"),
        step!("unlink", "."),
        step!("unlink", ".."),
        step!("unlink", "/"),
        step!("unlink", ""),
        step!("unlink", 1),
        step!("unlinkat", CWD, "full", AT_REMOVEDIR),
        step!("unlinkat", CWD, "d5", AT_REMOVEDIR),
        step!("unlinkat", CWD, "file", AT_REMOVEDIR),
        step!("unlinkat", CWD, "file", 0x8000),
        step!("unlinkat", 77, "file", 0),
        step!("rmdir", "d1/below"),
        step!("rmdir", "/tmp/w/d1"),
        step!("rmdir", "d3/"),
        step!("rmdir", "full"),
        step!("rmdir", "file"),
        step!("rmdir", "missing"),
        step!("rmdir", "."),
        step!("rmdir", ".."),
        step!("rmdir", "full/."),
        step!("rmdir", "full/.."),
        step!("rmdir", "way"),
        step!("rmdir", "/proc/self"),
    ]
}

fn refused() -> Vec<ProgramStep> {
    vec![
        step!("unlink", "own/file"),
        step!("unlink", "/proc/cmdline"),
        step!("unlink", "/etc/passwd"),
        step!("mkdir", "own/d", 0o755),
        step!("mkdir", "/etc/d", 0o755),
        step!("mknod", "device2", i64::from(S_IFCHR | 0o600), 0x103),
        step!("symlink", "file", "/etc/s"),
        step!("link", "own/file", "l"),
        step!("link", "file", "/etc/l"),
        step!("rename", "own/file", "r"),
        step!("rename", "file", "own/r"),
        step!("rename", "/etc/passwd", "r"),
        step!("rename", "file", "/etc/r"),
        step!("rmdir", "/etc"),
        step!("rename", "other", "mine"),
        step!("unlink", "mine"),
    ]
}
