//! Syscalls on a file system that the filesystem list excludes, and on one that it does not.

use super::steps::{CWD, Run, RunAs, step};
use crate::program::{Arg, Entry};

const O_CREAT_RDWR: i32 = 0o102;
const O_RDWR: i32 = 2;
const O_DIRECTORY: i32 = 0o200_000;
const AT_REMOVEDIR: i32 = 0x200;

pub(super) fn runs() -> Vec<Run> {
    let steps = vec![
        step!("openat", CWD, "file", 0),
        step!("openat", CWD, "/tmp/w/new", O_CREAT_RDWR, 0o600),
        step!("openat", CWD, "sub/below", O_RDWR).save("below"),
        step!("openat", CWD, "missing", 0),
        step!("openat", CWD, "/proc/version", 0),
        step!("openat", CWD, "/proc/missing", 0),
        step!("mkdir", "made", 0o700),
        step!("mkdir", "made", 0o700),
        step!("symlink", "target", "sub/link"),
        step!("link", "new", "sub/new"),
        step!("rename", "sub/new", "other"),
        step!("rename", "missing", "made/x"),
        step!("chmod", "file", 0o600),
        step!("fchmod", Arg::Saved("below"), 0o600),
        step!("truncate", "file", 1),
        step!("unlink", "sub/link"),
        step!("unlink", "missing"),
        step!("unlinkat", CWD, "made", AT_REMOVEDIR),
        step!("openat", CWD, "/proc", O_DIRECTORY).save("proc"),
        step!("openat", Arg::Saved("proc"), "version", 0),
        step!("exit", 0),
    ];
    vec![Run {
        user: RunAs::Root,
        entry: Entry::Syscall,
        steps,
    }]
}
