//! One audited syscall, borrowed from the bytes that the engine received.
//!
//! The model does not depend on rings, on rules (except for the key of the matching rule), or on the text
//! that [`crate::record`] encodes.

pub mod aux_record;

use smallvec::SmallVec;

use crate::ids::{Arch, Auid, Dev, Serial, Syscall};
use aux_record::AuxRecord;

/// Wall-clock time of an event.
///
/// # Units
/// `CLOCK_REALTIME_COARSE`, in seconds and milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub sec: u64,
    /// Milliseconds within the second, 0..=999.
    pub milli: u16,
}

/// One audited syscall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Time of the syscall.
    pub time: Timestamp,
    /// Serial number of the event.
    pub serial: Serial,
    /// ABI of the syscall.
    pub arch: Arch,
    /// Syscall number in that ABI.
    pub syscall: Syscall,
    /// `io_uring` operation equivalent to the syscall; `None` for a syscall.
    pub uring_op: Option<u8>,
    /// The `io_uring_enter` in which the operation ran, or on tracepoints completed; `None` for a worker, for the thread that polls the queue, and
    /// for a syscall.
    pub uring_enter: Option<UringEnter>,
    /// Execution domain. 0 is the default and is not printed.
    pub personality: u32,
    /// Return value; `None` if the syscall did not return (exit, or the task was killed in it).
    pub exit: Option<i64>,
    /// Whether the kernel may not have executed the syscall: a seccomp filter or a tracer may have answered it.
    pub unproven: bool,
    /// The first four arguments.
    pub args: [u64; 4],
    /// The task that made the syscall.
    pub task: Task<'a>,
    /// Key of the matching rule. Several keys are joined by 0x01.
    pub key: Option<&'a [u8]>,
    /// Arguments of the program that the syscall executed.
    pub argv: Option<Argv<'a>>,
    /// Socket address that the syscall passed or received, as raw bytes.
    pub sockaddr: Option<&'a [u8]>,
    /// Data of auxiliary records, in order of occurrence.
    pub aux_records: SmallVec<[AuxRecord<'a>; 1]>,
    /// Working directory; set if the syscall named an object.
    pub cwd: Option<&'a [u8]>,
    /// Objects that the syscall named, in record order.
    pub items: SmallVec<[PathItem<'a>; 5]>,
    /// First bytes of the task's command line, NUL-separated.
    pub proctitle: &'a [u8],
    /// Origin of the task; `None` unless a sink requested it. Records do not contain it.
    pub task_context: Option<TaskContext<'a>>,
}

/// An `io_uring_enter` in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringEnter {
    /// Its ABI.
    pub arch: Arch,
    /// Its first four arguments.
    pub args: [u64; 4],
}

/// Origin of a task, beyond what records contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskContext<'a> {
    /// Command name of the parent.
    pub parent_comm: &'a [u8],
    /// Path of the control group, from the root of the cgroup v2 hierarchy.
    pub cgroup: &'a [u8],
}

/// Identity of a task at the end of its syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task<'a> {
    /// Thread group id of the parent, in the initial pid namespace.
    pub ppid: u32,
    /// Thread group id, in the initial pid namespace.
    pub pid: u32,
    /// Login uid.
    pub auid: Auid,
    /// Real uid.
    pub uid: u32,
    /// Real gid.
    pub gid: u32,
    /// Effective uid.
    pub euid: u32,
    /// Saved uid.
    pub suid: u32,
    /// File-system uid.
    pub fsuid: u32,
    /// Effective gid.
    pub egid: u32,
    /// Saved gid.
    pub sgid: u32,
    /// File-system gid.
    pub fsgid: u32,
    /// Login session; 4294967295 when unset.
    pub ses: u32,
    /// Name of the controlling terminal; empty if there is none.
    pub tty: &'a [u8],
    /// Command name of the task.
    pub comm: &'a [u8],
    /// Path of the program; `None` if the task has none.
    pub exe: Option<&'a [u8]>,
    /// Security label; `None` if no security module provides a readable label.
    pub subj: Option<SecurityLabel<'a>>,
}

/// A security label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecurityLabel<'a> {
    /// Text of the label.
    pub name: &'a [u8],
    /// Mode of an AppArmor profile, if the kernel shows it.
    pub mode: Option<&'static str>,
}

/// Arguments of an executed program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argv<'a> {
    /// Number of arguments.
    pub argc: u32,
    /// The arguments, each terminated by NUL. If the engine truncated them, there are fewer than `argc`, and the
    /// last may lack its NUL.
    pub bytes: &'a [u8],
}

impl<'a> Argv<'a> {
    /// The arguments that were captured, without their NULs.
    pub fn args(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let at_most = usize::try_from(self.argc).unwrap_or(usize::MAX);
        let ended = self.bytes.strip_suffix(b"\0").unwrap_or(self.bytes);
        let some = !self.bytes.is_empty();
        some.then(|| ended.split(|&byte| byte == 0))
            .into_iter()
            .flatten()
            .take(at_most)
    }

    /// Whether the program has arguments, or bytes of the last one, that were not captured.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        let argc = usize::try_from(self.argc).unwrap_or(usize::MAX);
        argc > 0 && (!self.bytes.ends_with(b"\0") || self.args().count() < argc)
    }
}

/// An object that a syscall named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathItem<'a> {
    /// Name as passed; `None` if the syscall named the object by descriptor.
    pub name: Option<&'a [u8]>,
    /// Where the name was read.
    pub source: NameSource,
    /// Inode of the object; `None` if the lookup failed or the engine did not see it.
    pub inode: Option<Inode>,
    /// Role of the object.
    pub nametype: NameType,
    /// Resolved path of the object below the task's root directory, with ` (deleted)` appended if it was
    /// unlinked; `None` if paths were not requested or the engine did not see the object. Records do not
    /// contain it.
    pub path: Option<&'a [u8]>,
}

/// Source of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameSource {
    /// The kernel's copy or its dentry tree: the name that the kernel used.
    Kernel,
    /// The task's memory: another thread may have changed the name since the kernel read it.
    User,
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Inode number.
    pub ino: u64,
    /// Device of its file system.
    pub dev: Dev,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: Dev,
}

/// Role of an object in a syscall.
///
/// # Source
/// `AUDIT_TYPE_*` in `include/linux/audit.h`, Linux 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameType {
    /// Unknown: the lookup failed, or the string is not a path.
    Unknown,
    /// An object that was accessed.
    Normal,
    /// Parent directory of an object that was created or removed.
    Parent,
    /// Object that was removed.
    Delete,
    /// Object that was created.
    Create,
}

/// Returns the exit value that records and rules use for a syscall that returned `raw`.
///
/// A syscall that a signal interrupts may return a kernel-internal restart code. User space never sees these
/// codes, and audit reports them as `EINTR`.
///
/// # Source
/// `audit_return_fixup` in `kernel/auditsc.c`, Linux 6.12. It skips `ENOIOCTLCMD`, whose number is between the
/// restart codes.
#[must_use]
pub const fn reported_exit(raw: i64) -> i64 {
    const EINTR: i64 = 4;
    const ERESTARTSYS: i64 = 512;
    const ERESTARTNOINTR: i64 = 513;
    const ERESTARTNOHAND: i64 = 514;
    const ERESTART_RESTARTBLOCK: i64 = 516;
    match raw.wrapping_neg() {
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK => -EINTR,
        _ => raw,
    }
}

/// Whether a syscall that returned `exit` succeeded.
///
/// # Source
/// `is_syscall_success` of x86 and `MAX_ERRNO` in `include/linux/err.h`, Linux 6.12.
#[must_use]
pub const fn succeeded(exit: i64) -> bool {
    const MAX_ERRNO: i64 = 4095;
    exit < -MAX_ERRNO || exit >= 0
}

/// Returns the parent directory of `name`: the part up to the last slash, or `cwd` for a name without a slash.
///
/// # Source
/// `parent_len()` and `audit_log_name()` in `kernel/audit.c`, Linux 6.12.
#[must_use]
pub fn parent_name<'a>(name: &'a [u8], cwd: &'a [u8]) -> &'a [u8] {
    let trimmed = name
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    let head = name.get(..trimmed).unwrap_or_default();
    match head.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => name.get(..=slash).unwrap_or_default(),
        None if name.starts_with(b"/") => b"/",
        None => cwd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(argc: u32, bytes: &[u8]) -> Vec<&[u8]> {
        Argv { argc, bytes }.args().collect()
    }

    #[test]
    fn arguments_are_split_at_nul() {
        assert_eq!(args(2, b"ls\0-l\0"), [b"ls", b"-l"]);
        assert_eq!(args(3, b"a\0\0\0"), [b"a".as_slice(), b"", b""]);
        assert_eq!(args(1, b"\0"), [b""]);
    }

    #[test]
    fn truncated_argv_yields_what_is_there() {
        assert_eq!(args(5, b"ls\0-l"), [b"ls", b"-l"]);
        assert_eq!(args(5, b""), [b""; 0]);
        assert_eq!(args(1, b"ls\0-l\0"), [b"ls"]);
    }

    #[test]
    fn truncated_argv_is_known() {
        let is_truncated = |argc, bytes| Argv { argc, bytes }.is_truncated();
        for (argc, bytes) in [(2, &b"ls\0-l"[..]), (3, b"ls\0-l\0"), (1, b"")] {
            assert!(is_truncated(argc, bytes), "{argc} {bytes:?}");
        }
        for (argc, bytes) in [(2, &b"ls\0-l\0"[..]), (1, b"\0"), (0, b"")] {
            assert!(!is_truncated(argc, bytes), "{argc} {bytes:?}");
        }
    }

    #[test]
    fn restart_codes_are_reported_as_eintr() {
        for raw in [-512, -513, -514, -516] {
            assert_eq!(reported_exit(raw), -4);
        }
        for raw in [-515, -511, -517, -4, 0, 512, i64::MIN, i64::MAX] {
            assert_eq!(reported_exit(raw), raw);
        }
    }

    #[test]
    fn only_errno_range_means_failure() {
        for exit in [-1, -4095] {
            assert!(!succeeded(exit));
        }
        for exit in [0, 3, -4096, i64::MIN, i64::MAX] {
            assert!(succeeded(exit));
        }
    }

    #[test]
    fn parent_name_ends_as_in_the_kernel() {
        for (name, expected) in [
            ("/tmp/a", "/tmp/"),
            ("a", "/cwd"),
            ("b/a", "b/"),
            ("/tmp/d/", "/tmp/"),
            ("/a", "/"),
            ("/", "/"),
        ] {
            let parent = parent_name(name.as_bytes(), b"/cwd");
            assert_eq!(parent, expected.as_bytes(), "{name}");
        }
    }
}
