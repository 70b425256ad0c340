//! Syscalls of all kinds that name objects, and the expected PATH records of each.

use super::step::{Arg, CWD, WorkloadStep, step};

const CREATE: i32 = libc::O_CREAT | libc::O_WRONLY;

/// A syscall and its expected PATH records: `NAMETYPE name`, with a trailing `*` if this engine knows the inode.
pub(crate) struct Case {
    pub(crate) step: WorkloadStep,
    pub(crate) paths: &'static [&'static str],
}

const fn case(step: WorkloadStep, paths: &'static [&'static str]) -> Case {
    Case { step, paths }
}

/// Syscalls that succeed in this order.
pub(crate) fn cases() -> Vec<Case> {
    let how = Arg::Words(vec![0, 0, 0]);
    vec![
        case(step!("creat", "a", 0o640), &["PARENT CWD*", "CREATE a*"]),
        case(step!("open", "a", 0), &["NORMAL a*"]),
        case(
            step!("open", "./b", CREATE, 0o600),
            &["PARENT ./*", "CREATE ./b*"],
        ),
        case(step!("openat", CWD, "a", 2), &["NORMAL a*"]),
        case(step!("openat", CWD, ".", 0o200_000), &["NORMAL .*"]),
        case(
            WorkloadStep {
                args: vec![CWD.into(), "a".into(), how, 24.into()],
                ..step!("openat2")
            },
            &["NORMAL a*"],
        ),
        case(step!("mkdir", "d", 0o755), &["PARENT CWD*", "CREATE d"]),
        case(
            step!("mkdirat", CWD, "d/e", 0o755),
            &["PARENT d/", "CREATE d/e"],
        ),
        case(
            step!("mknod", "p", 0o10644, 0),
            &["PARENT CWD*", "CREATE p"],
        ),
        case(
            step!("rename", "a", "c"),
            &["PARENT CWD*", "PARENT CWD*", "DELETE a", "CREATE c"],
        ),
        case(
            step!("renameat", CWD, "c", CWD, "d/c"),
            &["PARENT d/", "PARENT CWD*", "DELETE c", "CREATE d/c"],
        ),
        case(
            step!("renameat2", CWD, "d/c", CWD, "f"),
            &["PARENT CWD*", "PARENT d/", "DELETE d/c", "CREATE f"],
        ),
        case(
            step!("link", "f", "g"),
            &["PARENT CWD*", "NORMAL f", "CREATE g"],
        ),
        case(
            step!("linkat", CWD, "f", CWD, "d/g"),
            &["PARENT d/", "NORMAL f", "CREATE d/g"],
        ),
        case(
            step!("symlink", "f", "s"),
            &["PARENT CWD*", "UNKNOWN f", "CREATE s"],
        ),
        case(
            step!("symlinkat", "../f", CWD, "d/s"),
            &["PARENT d/", "UNKNOWN ../f", "CREATE d/s"],
        ),
        case(step!("openat", CWD, "s", 0), &["NORMAL s*"]),
        case(step!("chmod", "f", 0o600), &["NORMAL f"]),
        case(step!("fchmodat", CWD, "f", 0o640), &["NORMAL f"]),
        case(step!("open", "f", 2), &["NORMAL f*"]),
        case(
            WorkloadStep {
                args: vec![Arg::Result(19), 0o600.into()],
                ..step!("fchmod")
            },
            &["NORMAL (null)*"],
        ),
        case(
            WorkloadStep {
                args: vec![Arg::Result(19), (-1).into(), (-1).into()],
                ..step!("fchown")
            },
            &["NORMAL (null)*"],
        ),
        case(step!("chown", "f", -1, -1), &["NORMAL f"]),
        case(step!("lchown", "s", -1, -1), &["NORMAL s"]),
        case(step!("fchownat", CWD, "f", -1, -1), &["NORMAL f"]),
        case(step!("truncate", "f", 10), &["NORMAL f"]),
        case(step!("unlink", "g"), &["PARENT CWD*", "DELETE g"]),
        case(
            step!("unlinkat", CWD, "d/g", 0),
            &["PARENT d/", "DELETE d/g"],
        ),
        case(
            step!("unlinkat", CWD, "d/e", 0x200),
            &["PARENT d/", "DELETE d/e"],
        ),
        case(step!("unlink", "d/s"), &["PARENT d/", "DELETE d/s"]),
        case(step!("rmdir", "d"), &["PARENT CWD*", "DELETE d"]),
        case(step!("setresuid", -1, -1, -1), &[]),
    ]
}

/// The syscall names of some steps, for `-S`.
pub(crate) fn names(steps: &[WorkloadStep]) -> String {
    let mut names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(",")
}

/// Syscalls that fail.
pub(crate) fn failing() -> Vec<WorkloadStep> {
    vec![
        step!("openat", CWD, "missing", 0),
        step!("open", "missing/below", 0),
        step!("openat", CWD, "/etc/shadow", 0),
        step!("openat", CWD, "/etc/new", CREATE, 0o600),
        step!("unlink", "missing"),
        step!("unlinkat", CWD, "/etc/passwd", 0),
        step!("rmdir", "/etc"),
        step!("rename", "missing", "other"),
        step!("chmod", "/etc/passwd", 0o777),
        step!("truncate", "/etc/passwd", 0),
        step!("mkdir", "/etc", 0o755),
        step!("fchmod", 999, 0),
        step!("open", 1, 0),
    ]
}
