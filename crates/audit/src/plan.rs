//! The plan: rules compiled per syscall.
//!
//! [`Plan::compile`] takes the exit rules in list order. For every (arch, syscall) that a rule can match it
//! returns the rules in order, without the conditions that the syscall alone decides (arch, perm class, list).
//! A syscall that is not in the plan needs no hook. [`uring`] does the same for `io_uring` operations.
//! [`eval::first_match`] is the reference for the meaning of rules. It evaluates them one by one, without a plan.
//!
//! Three lists are not compiled: [`exclude_list`] applies to encoded lines, [`user_list`] to messages of programs,
//! and [`filesystem_list`] to names during a syscall.
//!
//! [`rule_list`] applies the commands of rule files to one ordered list, which is compiled. [`cost`] estimates the
//! cost of each rule. The engine chooses the kernel functions to hook for a plan.

mod compile;
pub mod cost;
mod denial;
pub mod eval;
pub mod exclude_list;
pub mod filesystem_list;
pub mod labels;
pub mod lint;
pub mod name_list;
pub mod objects;
pub mod perm;
mod prepare;
pub mod rule_list;
pub mod sockaddr;
mod syscall_class;
pub mod task_list;
mod unsupported;
pub mod uring;
pub mod user_list;
pub mod verdict;

use std::collections::BTreeMap;

use bitflags::bitflags;
use bstr::BString;

use crate::ids::{Arch, NativeArch, Syscall};
use crate::rule::{Action, Field, Op, Rule};
use crate::table;

/// A syscall in an ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SyscallId {
    /// The ABI.
    pub arch: Arch,
    /// The number in that ABI.
    pub syscall: Syscall,
}

impl SyscallId {
    /// Name of the syscall; `None` for an unused number.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        table::syscall_name(self.arch, self.syscall)
    }

    /// Name of the syscall, or its number.
    #[must_use]
    pub fn label(self) -> String {
        self.name()
            .map_or_else(|| self.syscall.0.to_string(), str::to_owned)
    }

    /// Whether the syscall executes a program, which replaces the caller's registers.
    #[must_use]
    pub fn is_exec(self) -> bool {
        matches!(self.name(), Some("execve" | "execveat"))
    }

    /// Whether the syscall makes a task.
    #[must_use]
    pub fn forks(self) -> bool {
        matches!(self.name(), Some("fork" | "vfork" | "clone" | "clone3"))
    }

    /// Index of the argument that has the flags of an open.
    #[must_use]
    pub fn open_flags_arg(self) -> Option<u8> {
        match self.name() {
            Some("open") => Some(1),
            Some("openat") => Some(2),
            _ => None,
        }
    }

    /// Whether the syscall ends the task.
    #[must_use]
    pub fn ends_task(self) -> bool {
        matches!(self.name(), Some("exit" | "exit_group"))
    }

    /// Whether the syscall returns a result. `sigreturn` does not: it restores all registers, also the one that has
    /// the number of the syscall.
    #[must_use]
    pub fn returns(self) -> bool {
        !self.ends_task() && !matches!(self.name(), Some("rt_sigreturn" | "sigreturn"))
    }
}

/// Index of a rule in [`Plan::rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u16);

/// Index of a watched path in [`Plan::watches`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u16);

/// Compiled rules.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Architecture that the plan is for.
    pub native: NativeArch,
    /// Rules of the lists exit, task and `io_uring`, each list in evaluation order.
    pub rules: Vec<PlannedRule>,
    /// Slots for new tasks, in order. The first matching slot decides the state of the task.
    pub task_slots: Vec<Slot>,
    /// Slots of every syscall that some rule can record. Other syscalls have no overhead.
    pub syscalls: BTreeMap<SyscallId, SyscallPlan>,
    /// Slots of `io_uring` operations from rules of the `io_uring` list, by number. [`Plan::operation`] adds those of the
    /// exit list.
    pub uring_ops: BTreeMap<u8, SyscallPlan>,
    /// All slots of `io_uring_enter` in each ABI, for the operations in it: rules that suppress count there even if none
    /// records the call.
    pub uring_enters: BTreeMap<Arch, Vec<Slot>>,
    /// Paths of `path`, `dir` and `exe` tests, without duplicates. A directory does not end in a slash, except the
    /// root.
    pub watches: Vec<BString>,
    /// Rules for records that are not written.
    pub exclude_list: exclude_list::ExcludeList,
    /// Rules for file systems whose names are not collected.
    pub filesystem_list: filesystem_list::FilesystemList,
    /// Rules for messages of programs that are not written.
    pub user_list: user_list::UserList,
    /// Rules that this version does not support, with the reason.
    pub unsupported: Vec<UnsupportedRule>,
}

impl Plan {
    /// Whether any rule records.
    #[must_use]
    pub fn records(&self) -> bool {
        let is_kept = |slot: &Slot| slot.action == Action::Always;
        let mut operations = self.uring_ops.values();
        !self.syscalls.is_empty() || operations.any(|own| own.slots.iter().any(is_kept))
    }
}

/// A rule of the plan.
#[derive(Clone, Debug)]
pub struct PlannedRule {
    /// The rule as written.
    pub rule: Rule,
    /// Index of the source file, given by the caller.
    pub source: usize,
    /// Line in that file.
    pub line: u32,
    /// Keys in record format, joined by 0x01; `None` if the rule has none.
    pub key: Option<BString>,
    /// Whether its syscalls fail if they cannot be recorded: [`Plan::deny`].
    pub denies: bool,
}

/// A rule that this version does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedRule {
    /// Index of the source file.
    pub source: usize,
    /// Line in that file.
    pub line: u32,
    /// Whether refusing the rule can lose records: false for rules that only suppress.
    pub loses_records: bool,
    /// The reason.
    pub reason: String,
}

/// Rules of one syscall.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyscallPlan {
    /// Rules that can match the syscall, in order. The first one whose tests all hold decides.
    pub slots: Vec<Slot>,
    /// Facts that the tests need in addition to those that are always available.
    pub facts: Facts,
}

impl SyscallPlan {
    /// Whether every rule that records needs a watched object.
    #[must_use]
    pub fn needs_watch(&self) -> bool {
        let mut slots = self.slots.iter();
        slots.all(|slot| slot.action == Action::Never || slot.needs_watch())
    }
}

/// One rule, reduced for one syscall.
///
/// In a slot with a `path` test, or with `inode=`, the tests of `path`, `inode`, `obj_uid`, `obj_gid`, `devmajor` and
/// `devminor` must all hold for the same object. In other slots, and for other fields, different objects may
/// satisfy different tests.
///
/// # Source
/// `audit_filter_inode_name` in `kernel/auditsc.c`, Linux 6.12, which passes one name to the rules that it stores by
/// inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The rule.
    pub rule: RuleId,
    /// Action of a match.
    pub action: Action,
    /// Remaining conditions. An empty list always matches.
    pub tests: Vec<Test>,
}

impl Slot {
    /// Whether the rule can match only an object at or below a watched path.
    #[must_use]
    pub fn needs_watch(&self) -> bool {
        let mut operands = self.tests.iter().map(|test| test.operand);
        operands.any(|operand| matches!(operand, Operand::Path | Operand::Dir))
    }
}

/// A condition that the syscall number does not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Left-hand side.
    pub operand: Operand,
    /// Operator.
    pub op: Op,
    /// Right-hand side: a number, unless the subject defines otherwise.
    pub value: u32,
}

/// Left-hand side of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A number of the event: ids, arguments, exit, success, personality, session.
    ///
    /// `gid=` and `egid=` also hold for a supplementary group; `gid!=` and `egid!=` hold when no supplementary group
    /// equals the value either. `obj_*`, `inode`, `dev*` and `filetype=` hold when any object satisfies them;
    /// `filetype!=` holds when no object has that type. A name without an inode counts as
    /// [`eval::MISSING_INODE`]. Tests of `exit` and `success` fail when the syscall never returned; `success` is 1 or
    /// 0 and is only compared with `=`. Tests of `saddr_fam` fail without a socket address. Arguments, exit and
    /// inode numbers are truncated to their low 32 bits; comparison is unsigned.
    Field(Field),
    /// Two numbers of the event; the value is unused. The owner of an object is always the second, and any object may
    /// satisfy the test. Supplementary groups do not count.
    Fields(Field, Field),
    /// Whether the login uid is set, 1 or 0, for `auid` compared with unset. Only compared with `=`.
    AuidSet,
    /// State that the task list set when the task was created: a [`task_list::TaskState`]. Only compared with `=`.
    TaskState,
    /// The operation of `io_uring` runs in an `io_uring_enter` of this ABI, an [`Arch`]. Only compared with `=`.
    UringEnter,
    /// Access mode of an open, as perm bits: `READ`, `WRITE` or both. Compared as a number, with `&` or `=`; only for
    /// open, openat and openat2. See [`perm::access_mode`].
    OpenPerm,
    /// Some object has this path, or was given by this name. The value is a [`WatchId`]; only compared with `=`.
    Path,
    /// Some object is this directory or below it. The value is a [`WatchId`]; only compared with `=`.
    Dir,
    /// The program of the task has this path. The value is a [`WatchId`]; compared with `=` and `!=`. A task without
    /// a program has no path.
    Exe,
}

bitflags! {
    /// Groups of facts, each with a separate cost.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Facts: u32 {
        /// uid and gid family.
        const CREDS = 1;
        /// Supplementary groups.
        const GROUPS = 2;
        /// Parent, login uid, session, personality.
        const TASK = 4;
        /// Objects that the syscall names.
        const OBJECTS = 8;
        /// Path of the program.
        const EXE = 16;
        /// State of the task, set by the task list.
        const TASK_STATE = 32;
        /// Socket address that the syscall passed or returned.
        const ADDRESS = 64;
    }
}

/// For tests: the plan of these lines for 64-bit syscalls.
#[cfg(test)]
pub(crate) fn planned(lines: &[&str]) -> Plan {
    use crate::rule::test_host::TestHost;
    use crate::rule::{Command, parse_line};

    let listed = (1..).zip(lines).map(|(line, text)| {
        let (command, findings) = parse_line(text.as_bytes(), &TestHost);
        let Some(Command::Add { rule, .. }) = command else {
            panic!("{text}: {findings:?}");
        };
        let source = 0;
        rule_list::RuleEntry { rule, source, line }
    });
    Plan::compile(listed, &[Arch::X86_64])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unnamed_syscalls_are_labelled_by_number() {
        let label = |number| {
            let (arch, syscall) = (Arch::X86_64, Syscall(number));
            SyscallId { arch, syscall }.label()
        };
        assert_eq!(label(1500), "1500");
        assert_eq!(label(257), "openat");
    }
}
