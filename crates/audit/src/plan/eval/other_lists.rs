//! The lists beside exit: what their rules decide, read one by one.
//!
//! Each list is evaluated by kernel code of its own, with fewer facts and rules of its own. Labels
//! and conditions mean the same everywhere.

use crate::event::Task;
use crate::ids::{Auid, MsgType};
use crate::rule::{Action, Field, FieldTest, List, Op, Rule, Value};

use super::label::SelinuxLabel;
use super::{EventFacts, compare, conditions_hold, equals, first_match, holds, task_state_match};
use crate::plan::uring::UringOp;

/// What is known of whoever causes a record: for the exclude list the current task, for the user
/// list the sender.
#[derive(Clone, Copy, Debug)]
pub struct Actor<'a> {
    /// The task.
    pub task: Task<'a>,
    /// Its security label.
    pub label: Option<SelinuxLabel<'a>>,
}

/// Whether a record is kept by the rules of the exclude list, or a message by those of the user
/// list.
///
/// The first rule that matches decides. On the exclude list its action does not count: what matches
/// is dropped. A rule without conditions matches nothing. A condition that the list does not know,
/// a key among them, ends the list: the record is kept.
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
        // Nothing stands before the key.
        if rule.fields.is_empty() && !rule.keys.is_empty() {
            return true;
        }
    }
    true
}

/// Whether a condition on a record holds; `None` when these lists do not know it.
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
                // Supplementary groups do not count here.
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

/// Whether names on a file system become PATH records: no rule of the filesystem list says never
/// and has a condition on `fstype` that holds. Order does not count, `always` says nothing, and of
/// several conditions one is enough.
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

/// What the task list decides about a new task, for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskVerdict {
    /// It is never audited, whatever the other lists say.
    Never,
    /// Its syscalls are decided by the exit list.
    ByCall,
    /// Every syscall of it is recorded, whatever the exit list says.
    Always,
}

/// Decides about a new task. It is in no syscall: conditions on one do not hold, and `exe=` never
/// does, because only the task that forks could be asked.
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

/// Index of the rule that decides about a new task; as [`task_verdict`].
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

/// What a condition comes to where there is no call; `None` when it is about the task alone.
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
        // Of nothing, none is of the type, in the class, or at the path.
        (Exe | FileType | Perm, _) => Some(test.op == Op::NotEqual),
        _ => None,
    }
}

/// Index of the first rule of the `io_uring` list that matches an operation. The operation takes the place
/// of the syscall.
///
/// # Source
/// `audit_filter_uring` in `kernel/auditsc.c`, Linux 6.12. A rule with `path=` or `inode=` is about the
/// operations that it names, as any other; the kernel looks for the number of the syscall around the
/// operation in the mask of such a rule.
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

/// Index of the rule that decides about an operation: what the task list has said about the task, then the
/// first rule of the `io_uring` list that matches. Where there is none, and `with_calls` says so, the first
/// rule of the exit list that would match if the call had been made that does the same. What no such rule
/// can be about is not looked at, whatever the task list has said.
#[must_use]
pub fn first_operation_match(
    rules: &[Rule],
    operation: &UringOp,
    observed: &EventFacts<'_>,
    with_calls: bool,
) -> Option<usize> {
    let is_named = rules
        .iter()
        .any(|rule| rule.list == List::IoUring && operation.is_in(&rule.syscalls));
    let is_asked = with_calls && operation.is_audited() && operation.syscall.is_some();
    if !is_named && !is_asked {
        return None;
    }
    let of_call = || first_match(rules, observed).filter(|_| is_asked);
    task_state_match(rules, observed)
        .or_else(|| first_uring_match(rules, operation, observed))
        .or_else(of_call)
}

#[cfg(test)]
mod tests;
