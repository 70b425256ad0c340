//! Reference evaluator for the lists other than exit.
//!
//! The kernel evaluates each list by separate code, with fewer facts and its own semantics. Conditions mean the
//! same on all lists.

use crate::event::Task;
use crate::ids::{Auid, MsgType};
use crate::rule::{Action, Field, FieldTest, List, Op, Rule, Value};

use super::label::SelinuxLabel;
use super::{
    EventFacts, compare, conditions_hold, equals, first_match, holds, matches, task_state_match,
};
use crate::plan::uring::UringOp;
use crate::table;

/// The cause of a record: the current task for the exclude list, the sender for the user list.
#[derive(Clone, Copy, Debug)]
pub struct Actor<'a> {
    /// The task.
    pub task: Task<'a>,
    /// Its security label.
    pub label: Option<SelinuxLabel<'a>>,
}

/// Whether the rules of the exclude list keep a record, or those of the user list a message.
///
/// The first matching rule decides. The exclude list ignores the action and drops every match. A rule without
/// conditions matches nothing. A condition that the list does not support, such as a key, ends the list: the
/// record is kept.
///
/// # Source
/// `audit_filter` in `kernel/auditfilter.c`, Linux 6.12.
#[must_use]
pub fn record_kept<'r>(
    rules: impl IntoIterator<Item = &'r Rule>,
    list: List,
    msg_type: MsgType,
    sender: &Actor<'_>,
) -> bool {
    for rule in rules.into_iter().filter(|rule| rule.list == list) {
        let mut matches = false;
        for test in &rule.fields {
            match record_test(test, msg_type, sender) {
                Some(holds) => matches = holds,
                None => return true,
            }
            if !matches {
                break;
            }
        }
        // The key is the last condition.
        if matches && !rule.keys.is_empty() {
            return true;
        }
        if matches {
            return rule.action != Action::Never && list != List::Exclude;
        }
        // No condition precedes the key.
        if rule.fields.is_empty() && !rule.keys.is_empty() {
            return true;
        }
    }
    true
}

/// Whether a condition on a record holds; `None` if these lists do not support it.
fn record_test(test: &FieldTest, msg_type: MsgType, sender: &Actor<'_>) -> Option<bool> {
    let Actor { task, label } = sender;
    Some(match (test.field, &test.value) {
        (Field::Auid, &Value::Number(value)) if value == Auid::UNSET.0 => {
            compare(test.op, u32::from(task.auid != Auid::UNSET), 0)
        }
        (field, &Value::Number(value)) => {
            let number = match field {
                Field::Pid => task.pid,
                Field::Uid => task.uid,
                // Supplementary groups are not compared here.
                Field::Gid => task.gid,
                Field::Auid => task.auid.0,
                Field::MsgType => msg_type.0.into(),
                _ => return None,
            };
            compare(test.op, number, value)
        }
        (
            Field::SubjUser | Field::SubjRole | Field::SubjType | Field::SubjSen | Field::SubjClr,
            Value::Text(text),
        ) => label.is_some_and(|label| label.satisfies(test.field, test.op, text)),
        (Field::Exe, Value::Text(path)) => equals(test.op, task.exe == Some(path.as_slice())),
        _ => return None,
    })
}

/// Whether names on a file system are collected: no `never` rule of the filesystem list has a matching condition
/// on `fstype`. Order and `always` rules have no effect. One matching condition is enough.
///
/// # Source
/// `__audit_inode` and `__audit_inode_child` in `kernel/auditsc.c`, Linux 6.12.
#[must_use]
pub fn path_collected(rules: &[Rule], magic: u32) -> bool {
    let holds = |test: &FieldTest| match (test.field, &test.value) {
        (Field::FsType, &Value::Number(value)) => compare(test.op, magic, value),
        _ => false,
    };
    !rules
        .iter()
        .filter(|rule| rule.list == List::Filesystem && rule.action == Action::Never)
        .any(|rule| rule.fields.iter().any(holds))
}

/// Decision of the task list about a new task, for its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskVerdict {
    /// The task is never audited, regardless of other lists.
    Never,
    /// The exit list decides about its syscalls.
    ByCall,
    /// Every syscall of the task is recorded, regardless of the exit list.
    Always,
}

/// Decides about a new task. It is in no syscall: conditions on syscalls do not match, and `exe=` never does,
/// because only the forking task has a program.
///
/// # Source
/// `audit_filter_task` and `audit_filter_rules` in `kernel/auditsc.c`, Linux 6.12.
#[must_use]
pub fn task_verdict(
    rules: &[Rule],
    new: &Actor<'_>,
    groups: &[u32],
    personality: u32,
) -> TaskVerdict {
    let first = first_task_match(rules, new, groups, personality);
    match first.and_then(|index| rules.get(index)) {
        Some(rule) if rule.action == Action::Never => TaskVerdict::Never,
        Some(_) => TaskVerdict::Always,
        None => TaskVerdict::ByCall,
    }
}

/// Returns the index of the rule that decides about a new task, as [`task_verdict`].
#[must_use]
pub fn first_task_match(
    rules: &[Rule],
    new: &Actor<'_>,
    groups: &[u32],
    personality: u32,
) -> Option<usize> {
    let all_hold = |rule: &Rule| {
        let mut fields = rule.fields.iter();
        fields.all(|test| task_test(test, new, groups, personality))
    };
    rules
        .iter()
        .position(|rule| rule.list == List::Task && all_hold(rule))
}

fn task_test(test: &FieldTest, new: &Actor<'_>, groups: &[u32], personality: u32) -> bool {
    without_call(test).unwrap_or_else(|| {
        let observed = EventFacts {
            label: new.label,
            ..EventFacts::of_task(new.task, groups, personality)
        };
        holds(test, &observed, None)
    })
}

/// Result of a condition without a syscall; `None` if it tests the task only.
pub(in crate::plan) fn without_call(test: &FieldTest) -> Option<bool> {
    use Field::{
        A0, A1, A2, A3, Arch, DevMajor, DevMinor, Dir, Exe, Exit, FileType, Inode, ObjGid, ObjUid,
        Path, Perm, Ppid, SaddrFam, Success,
    };
    let fails = Some(false);
    match (test.field, &test.value) {
        (Arch | Ppid | Exit | Success | A0 | A1 | A2 | A3 | SaddrFam | Path | Dir, _) => fails,
        (Inode | DevMajor | DevMinor | ObjUid | ObjGid, _) => fails,
        (_, Value::Field(ObjUid | ObjGid)) => fails,
        // A task outside a syscall has no object, perm class or path.
        (Exe | FileType | Perm, _) => Some(test.op == Op::NotEqual),
        _ => None,
    }
}

/// Returns the index of the first rule of the `io_uring` list that matches an operation. The operation replaces
/// the syscall.
///
/// # Source
/// `audit_filter_uring` in `kernel/auditsc.c`, Linux 6.12. A rule with `path=` or `inode=` covers the operations that
/// it names, like other rules. The kernel compares the mask of such a rule with the number of the surrounding
/// syscall.
#[must_use]
pub fn first_uring_match(
    rules: &[Rule],
    operation: &UringOp,
    observed: &EventFacts<'_>,
) -> Option<usize> {
    rules.iter().position(|rule| {
        rule.list == List::IoUring
            && operation.is_in(&rule.syscalls)
            && conditions_hold(rule, observed)
    })
}

/// Whether a rule of the `io_uring` list covers an operation.
fn is_named(rules: &[Rule], operation: &UringOp) -> bool {
    rules
        .iter()
        .any(|rule| rule.list == List::IoUring && operation.is_in(&rule.syscalls))
}

/// Returns the index of the rule that decides about an operation: the state of the task, then the first matching rule
/// of the `io_uring` list, then, with `with_syscalls`, the first rule of the exit list that matches the equivalent
/// syscall. Operations that no such rule can cover are not evaluated, regardless of the state of the task.
#[must_use]
pub fn first_operation_match(
    rules: &[Rule],
    operation: &UringOp,
    observed: &EventFacts<'_>,
    with_syscalls: bool,
) -> Option<usize> {
    let is_asked = with_syscalls && operation.is_audited() && operation.syscall.is_some();
    if !is_named(rules, operation) && !is_asked {
        return None;
    }
    let of_call = || first_match(rules, observed).filter(|_| is_asked);
    task_state_match(rules, observed)
        .or_else(|| first_uring_match(rules, operation, observed))
        .or_else(of_call)
}

/// Returns the index of the rule that decides about an operation of which only the completion is seen, as in the kernel:
/// the state of the task, then the first rule of the exit list that matches the `io_uring_enter` in which the operation
/// ran, then the first matching rule of the `io_uring` list. Of the latter, those loaded before a rule of the exit list
/// that suppresses come before it. A completion shows no objects and no addresses.
///
/// # Source
/// `__audit_uring_exit` and `audit_filter_rules` (`rule->prio`) in `kernel/auditsc.c`, Linux 6.12.
#[must_use]
pub fn first_completion_match(
    rules: &[Rule],
    operation: &UringOp,
    observed: &EventFacts<'_>,
) -> Option<usize> {
    let enter = observed.uring_enter.filter(|_| operation.is_audited());
    let enter = enter.and_then(|arch| {
        let syscall = table::syscall_number(arch, b"io_uring_enter")?;
        Some(EventFacts {
            arch,
            syscall,
            objects: &[],
            ..observed.clone()
        })
    });
    if enter.is_none() && !is_named(rules, operation) {
        return None;
    }
    let of_task = task_state_match(rules, observed);
    if of_task.is_some() {
        return of_task;
    }
    let of_enter = enter.and_then(|enter| rules.iter().position(|rule| matches(rule, &enter)));
    let own = first_uring_match(rules, operation, observed);
    let suppresses = |index: &usize| {
        rules
            .get(*index)
            .is_some_and(|rule| rule.action == Action::Never)
    };
    let before = own.filter(|own| {
        of_enter
            .filter(suppresses)
            .is_some_and(|enter| *own < enter)
    });
    before.or(of_enter).or(own)
}

#[cfg(test)]
mod tests;
