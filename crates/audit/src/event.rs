//! What happened: one audited syscall, borrowed from the bytes that the engine received.
//!
//! The model knows nothing of rings, of rules beyond the key that the winning rule carries, or of
//! the text that [`crate::record`] makes of it.

pub mod aux_record;

use smallvec::SmallVec;

use crate::ids::{Arch, Auid, Dev, Serial, Syscall};
use aux_record::AuxRecord;

/// Wall-clock time of an event.
///
/// # Units
/// Seconds and milliseconds of `CLOCK_REALTIME_COARSE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds since 1970.
    pub sec: u64,
    /// Milliseconds within the second, 0..=999.
    pub milli: u16,
}

/// One audited syscall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// When the call was made.
    pub time: Timestamp,
    /// Shared by all records of the event.
    pub serial: Serial,
    /// ABI through which the call came.
    pub arch: Arch,
    /// Its number in that ABI.
    pub syscall: Syscall,
    /// Operation of `io_uring` that did what the call does; `None` for a call.
    pub uring_op: Option<u8>,
    /// Execution domain; 0 is the ordinary one and is not printed.
    pub personality: u32,
    /// What the call returned; `None` when it never did (exit, or killed inside it).
    pub exit: Option<i64>,
    /// First four arguments as passed.
    pub args: [u64; 4],
    /// Who made the call.
    pub task: Task<'a>,
    /// Key of the winning rule; several keys are joined by 0x01, no key is `None`.
    pub key: Option<&'a [u8]>,
    /// Arguments of the program that the call started, when it started one.
    pub argv: Option<Argv<'a>>,
    /// Socket address that the call gave or got, as it lies in memory.
    pub sockaddr: Option<&'a [u8]>,
    /// What the call has besides, in the order in which it happened.
    pub aux_records: SmallVec<[AuxRecord<'a>; 1]>,
    /// Working directory; present when the call named an object.
    pub cwd: Option<&'a [u8]>,
    /// Objects that the call named, in record order.
    pub items: SmallVec<[PathItem<'a>; 5]>,
    /// First bytes of the task's command line, NUL-separated.
    pub proctitle: &'a [u8],
    /// Who stands behind the task; `None` when nobody asked. No record holds it.
    pub task_context: Option<TaskContext<'a>>,
}

/// Who stands behind a task, as far as no record says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskContext<'a> {
    /// Name of the parent.
    pub parent_comm: &'a [u8],
    /// Path of the control group in the second version's hierarchy, seen from its root.
    pub cgroup: &'a [u8],
}

/// Identity of the task that made a call, after the call.
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
    /// Name of the controlling terminal; empty when there is none.
    pub tty: &'a [u8],
    /// Name of the task.
    pub comm: &'a [u8],
    /// Path of the program; `None` when the task has none.
    pub exe: Option<&'a [u8]>,
    /// Security label; `None` when no security module gives one that can be read.
    pub subj: Option<SecurityLabel<'a>>,
}

/// A security label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecurityLabel<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Mode of an AppArmor profile, where the kernel shows it.
    pub mode: Option<&'static str>,
}

/// Arguments of a started program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argv<'a> {
    /// How many arguments there are.
    pub argc: u32,
    /// The arguments, each ended by NUL. Holds fewer than `argc` when the engine had to cut them;
    /// the last one may then lack its NUL.
    pub bytes: &'a [u8],
}

impl<'a> Argv<'a> {
    /// The arguments at hand, without their NULs.
    pub fn args(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let at_most = usize::try_from(self.argc).unwrap_or(usize::MAX);
        let ended = self.bytes.strip_suffix(b"\0").unwrap_or(self.bytes);
        let some = !self.bytes.is_empty();
        some.then(|| ended.split(|&byte| byte == 0))
            .into_iter()
            .flatten()
            .take(at_most)
    }
}

/// An object that a call named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathItem<'a> {
    /// Name as given; `None` when the call named the object by descriptor.
    pub name: Option<&'a [u8]>,
    /// How far the name can be trusted.
    pub source: NameSource,
    /// What the name led to; `None` when nothing was found or the engine could not see it.
    pub inode: Option<Inode>,
    /// Part that the object played.
    pub nametype: NameType,
    /// Where it lies below the root directory of the task, links followed and mounts crossed, with
    /// ` (deleted)` behind it when nothing stands there any more; `None` when nobody asked for paths, or the
    /// engine could not see the object. No record holds it.
    pub path: Option<&'a [u8]>,
}

/// Where a name was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameSource {
    /// From the kernel's own copy or from its directory tree: what was used.
    Kernel,
    /// From the task's memory around the call: another thread may have changed it in between.
    User,
}

/// Facts of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Inode number.
    pub ino: u64,
    /// File system it is on.
    pub dev: Dev,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device that a special file stands for.
    pub rdev: Dev,
}

/// Part that an object played in a call.
///
/// # Source
/// `AUDIT_TYPE_*` in `include/linux/audit.h`, Linux 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameType {
    /// Not known: the lookup failed, or the string is data.
    Unknown,
    /// An object that was used.
    Normal,
    /// Directory of an object that was made or removed.
    Parent,
    /// Object that was removed.
    Delete,
    /// Object that was made.
    Create,
}

/// What the records and the rules call the outcome of a call that returned `raw`.
///
/// A call that a signal interrupts may return a code that tells the kernel to restart it. User
/// space never sees these codes; audit says `EINTR`.
///
/// # Source
/// `audit_return_fixup` in `kernel/auditsc.c`, Linux 6.12. It leaves out `ENOIOCTLCMD`, which lies
/// between the restart codes.
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

/// Whether a call that returned `exit` did what it was asked to do.
///
/// # Source
/// `is_syscall_success` of x86 and `MAX_ERRNO` in `include/linux/err.h`, Linux 6.12.
#[must_use]
pub const fn succeeded(exit: i64) -> bool {
    const MAX_ERRNO: i64 = 4095;
    exit < -MAX_ERRNO || exit >= 0
}

/// Name of the parent directory of `name`: up to the last slash, or `cwd` for a name without one.
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
