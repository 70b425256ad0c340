//! Notes for the author of a rule: limitations and cost.

use std::fmt;

use audit::ids::Arch;
use audit::plan::name_list::shortened;

/// A note about a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleNote {
    /// Matches no syscall: its conditions exclude each other, or an earlier rule matches all that it matches.
    MatchesNothing,
    /// Compares security labels, which no security module of this machine does.
    NoLabels,
    /// Is a `never` rule.
    OnlySuppresses,
    /// Is evaluated when a task is created: running tasks are not affected.
    NewTasks,
    /// Is evaluated for nearly all syscalls of an ABI.
    EverySyscall(Arch),
    /// Adds overhead to every operation of `io_uring`, of which only completions are seen.
    EveryOperation,
    /// Covers 32-bit syscalls because it names that ABI.
    Compat,
    /// Covers 32-bit syscalls because it names no ABI.
    CompatUnasked,
    /// Covers 32-bit syscalls because it is a watch, and `-w` takes no ABI.
    CompatWatch,
    /// Needs name arguments of these syscalls, which are read from the memory of the task.
    NamesFromTask(Vec<&'static str>),
    /// Has a condition on objects, which never holds on these syscalls: their objects are not seen.
    UnseenObjects(Vec<&'static str>),
    /// Needs the flags of openat2, which are read from the memory of the task.
    FlagsFromTask,
    /// Needs the family of a socket address, which is read from the memory of the task.
    FamilyFromTask,
}

impl RuleNote {
    /// Stable short name.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::MatchesNothing => "matches-nothing",
            Self::NoLabels => "no-labels",
            Self::OnlySuppresses => "only-suppresses",
            Self::NewTasks => "new-tasks",
            Self::EverySyscall(_) => "every-syscall",
            Self::EveryOperation => "every-operation",
            Self::Compat => "compat",
            Self::CompatUnasked => "compat-unasked",
            Self::CompatWatch => "compat-watch",
            Self::NamesFromTask(_) => "names-from-task",
            Self::UnseenObjects(_) => "unseen-objects",
            Self::FlagsFromTask => "flags-from-task",
            Self::FamilyFromTask => "family-from-task",
        }
    }
}

impl fmt::Display for RuleNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MatchesNothing => f.write_str(
                "matches nothing: its conditions exclude each other, or an earlier rule matches everything",
            ),
            Self::NoLabels => f.write_str(
                "matches nothing: no active security module compares its security labels",
            ),
            Self::OnlySuppresses => f.write_str("records nothing: needs no hook"),
            Self::NewTasks => f.write_str(
                "is evaluated when a task is created; running tasks are not affected",
            ),
            Self::EverySyscall(arch) => {
                write!(f, "is evaluated for nearly every {} syscall", arch.bits())
            }
            Self::EveryOperation => f.write_str(
                "adds 40 % of the cost of a NOP to every io_uring operation; names and objects are not seen, and \
                 ids are those of the completing task",
            ),
            Self::Compat => f.write_str("covers 32-bit syscalls: needs the raw tracepoint"),
            Self::CompatUnasked => f.write_str(
                "covers 32-bit syscalls: needs the raw tracepoint; add `-F arch=b64` to exclude them",
            ),
            Self::CompatWatch => f.write_str(
                "covers 32-bit syscalls: needs the raw tracepoint; `-w` takes no arch: to exclude them, write \
                 `-a always,exit -F arch=b64 -F path=FILE -F perm=PERMS -k KEY`, for a directory with `-F dir=`",
            ),
            Self::NamesFromTask(names) => write!(
                f,
                "names are read from task memory, where another thread can change them, for {}",
                shortened(names)
            ),
            Self::UnseenObjects(names) => write!(
                f,
                "a condition on objects never holds on {}: their objects are not seen",
                shortened(names)
            ),
            Self::FlagsFromTask => f.write_str(
                "flags of openat2 are read from task memory, where another thread can change them",
            ),
            Self::FamilyFromTask => f.write_str(
                "the family of socket addresses is read from task memory, where another thread can change it",
            ),
        }
    }
}
