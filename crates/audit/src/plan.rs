//! The plan: rules compiled to what each syscall must look at.
//!
//! [`Plan::compile`] takes the exit rules in list order and gives, for every (arch, syscall) that
//! some rule can match, the rules in order with what the syscall alone decides (arch, perm class,
//! list) taken out. A syscall that is not in the plan needs no hook. Operations of `io_uring` have
//! theirs in the same way: [`uring`]. [`eval::first_match`] is the
//! reference for the meaning of rules: it reads them one by one and knows nothing of plans.
//!
//! The rules of the exclude list are kept beside, for when an event has become lines: [`exclude_list`].
//! So are those of the user list, for when a program sends a message: [`user_list`]; and those of the
//! filesystem list, for when a call is under way: [`filesystem_list`].
//!
//! [`rule_list`] turns the commands of rule files into the one ordered list that is compiled, and [`cost`]
//! estimates how much each rule burdens the machine. Which kernel functions an engine hooks for a plan is the
//! engine's business.

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

use crate::ids::{Arch, Syscall};
use crate::rule::{Action, Field, Op, Rule};
use crate::table;

/// A syscall in an ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SyscallId {
    /// The ABI.
    pub arch: Arch,
    /// The number in it.
    pub syscall: Syscall,
}

impl SyscallId {
    /// Name of the syscall; `None` for a number that no syscall has.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        table::syscall_name(self.arch, self.syscall)
    }

    /// Name of the syscall, or its number when it has no name.
    #[must_use]
    pub fn label(self) -> String {
        self.name()
            .map_or_else(|| self.syscall.0.to_string(), str::to_owned)
    }

    /// Whether the syscall executes a program: the registers of the caller do not survive it.
    #[must_use]
    pub fn is_exec(self) -> bool {
        matches!(self.name(), Some("execve" | "execveat"))
    }

    /// Whether the syscall can return.
    #[must_use]
    pub fn returns(self) -> bool {
        !matches!(self.name(), Some("exit" | "exit_group"))
    }
}

/// Index of a rule in [`Plan::rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u16);

/// Index of a watched path in [`Plan::watches`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u16);

/// Rules, compiled.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The rules of the lists exit, task and `io_uring`, each list's in evaluation order.
    pub rules: Vec<PlannedRule>,
    /// What a new task is asked, in order; the first rule whose tests all hold gives it its mark.
    pub task_slots: Vec<Slot>,
    /// What every call that pays must evaluate; each has a slot that records. A call without an
    /// entry pays nothing.
    pub syscalls: BTreeMap<SyscallId, SyscallPlan>,
    /// What operations of `io_uring` evaluate by rules of their own, by number; [`Plan::operation`] has what
    /// comes behind.
    pub uring_ops: BTreeMap<u8, SyscallPlan>,
    /// Paths that `path`, `dir` and `exe` tests refer to, each once. A directory has no slash at
    /// its end, the root apart.
    pub watches: Vec<BString>,
    /// Which records are not written.
    pub exclude_list: exclude_list::ExcludeList,
    /// On which file systems names are not looked at.
    pub filesystem_list: filesystem_list::FilesystemList,
    /// Which messages of programs are not written.
    pub user_list: user_list::UserList,
    /// Rules that this version cannot honour, with the reason. Nothing is dropped in silence.
    pub unsupported: Vec<UnsupportedRule>,
}

impl Plan {
    /// Whether anything can be recorded.
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
    /// Where it came from: index of the source file given by the caller.
    pub source: usize,
    /// Line in that file.
    pub line: u32,
    /// Its keys as records carry them: joined by 0x01; `None` when it has none.
    pub key: Option<BString>,
    /// Whether calls that it would record fail when they cannot be recorded: [`Plan::deny`].
    pub denies: bool,
}

/// A rule that this version cannot honour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedRule {
    /// Index of the source file.
    pub source: usize,
    /// Line in that file.
    pub line: u32,
    /// Whether leaving it out can lose records: false for rules that tollgate needs not, such as
    /// `-a never,task`.
    pub loses_records: bool,
    /// What cannot be honoured and why.
    pub reason: String,
}

/// What one syscall must evaluate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyscallPlan {
    /// Rules that can match it, in order; the first whose tests all hold decides.
    pub slots: Vec<Slot>,
    /// Facts that the tests look at, beyond what is always at hand.
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

/// One rule as one syscall sees it.
///
/// A slot with a `path` test, or with `inode=`, is about one object: its tests of `path`, `inode`,
/// `obj_uid`, `obj_gid`, `devmajor` and `devminor` must all hold for the same one. In every other
/// slot, and for every other operand, each test may be satisfied by another object.
///
/// # Source
/// `audit_filter_inode_name` in `kernel/auditsc.c`, Linux 6.12, which hands one name to the rules
/// that it keeps by inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The rule.
    pub rule: RuleId,
    /// What its match decides.
    pub action: Action,
    /// Conditions that are left. An empty list always matches.
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

/// One condition that the syscall number does not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Fact that is looked at.
    pub operand: Operand,
    /// How it is compared.
    pub op: Op,
    /// With what: a number, unless the subject says otherwise.
    pub value: u32,
}

/// What a test looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A number of the event: ids, arguments, exit, success, personality, session.
    ///
    /// `gid=` and `egid=` hold for a supplementary group too, `gid!=` and `egid!=` only when it is
    /// none of them. `obj_*`, `inode` and `dev*` hold when any object satisfies them; `filetype=`
    /// likewise, but `filetype!=` when no object is of that type. A name that led nowhere counts as
    /// [`eval::MISSING_INODE`]. Tests of `exit` and `success` do
    /// not hold when the call never returned; `success` is 1 or 0 and only compared with `=`. Tests of
    /// `saddr_fam` do not hold when there was no socket address.
    /// Arguments, exit and inode numbers are cut to their low 32 bits; comparison is unsigned.
    Field(Field),
    /// Two numbers of the event are compared; the value is not used. An object's owner is always
    /// the second, and any object may satisfy the test. Supplementary groups do not count.
    Fields(Field, Field),
    /// Whether the login uid is set, 1 or 0 (`auid` compared with unset). Only compared with `=`.
    AuidSet,
    /// What the task list decided about the task when it was made: the value is a [`task_list::TaskState`]. Only
    /// compared with `=`.
    TaskState,
    /// Access mode with which an open asks, as perm bits: `READ`, `WRITE` or both. Compared like
    /// any number, with `&` or `=`; only open, openat, openat2. See [`perm::access_mode`].
    OpenPerm,
    /// Some object is this path itself, by the path that it has or by the name that was given. The
    /// value is a [`WatchId`]; only compared with `=`.
    Path,
    /// Some object is this directory or below it. The value is a [`WatchId`]; only compared with
    /// `=`.
    Dir,
    /// The program is this path. The value is a [`WatchId`]; compared with `=` and `!=`, and a task
    /// without a program is never at any path.
    Exe,
}

bitflags! {
    /// Groups of facts that have a price of their own.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Facts: u32 {
        /// uid and gid family.
        const CREDS = 1;
        /// Supplementary groups.
        const GROUPS = 2;
        /// Parent, login uid, session, personality.
        const TASK = 4;
        /// Objects that the call names.
        const OBJECTS = 8;
        /// Path of the program.
        const EXE = 16;
        /// What the task list decided about the task.
        const TASK_STATE = 32;
        /// Socket address that the call was given or has given.
        const ADDRESS = 64;
    }
}

/// For tests: the plan of these lines for 64-bit calls.
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
