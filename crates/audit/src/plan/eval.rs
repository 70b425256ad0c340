//! The reference evaluator: evaluates rules one by one for one finished syscall.
//!
//! The plan and the BPF filter must agree with it. It does not use plans and is not optimised. It shares
//! [`EventFacts::compare`], which compares single numbers, with [`super::verdict`].
//! [`other_lists`] has the lists other than exit. This evaluator compares labels as SELinux does. The plan treats them
//! as a kernel without such a module does, and refuses them if there is one.

pub mod label;
pub mod other_lists;

use crate::event::succeeded;
use crate::event::{Inode, Task};
use crate::ids::{Arch, Auid, Dev, Syscall};
use crate::rule::{Action, Field, FieldTest, List, Op, Rule, SyscallMask, Value};

use super::perm::{self, OpenFlags, PermClass};
use super::task_list::TaskState;
use label::SelinuxLabel;

/// Facts about one finished syscall, as far as rules can test them.
#[derive(Clone, Debug)]
pub struct EventFacts<'a> {
    /// ABI of the syscall.
    pub arch: Arch,
    /// Syscall number in that ABI.
    pub syscall: Syscall,
    /// Return value as reported: EINTR for an interrupted syscall that the kernel restarts. `None` if the syscall did
    /// not return.
    pub exit: Option<i64>,
    /// The first four arguments.
    pub args: [u64; 4],
    /// `how.flags` that the kernel copied for openat2; 0 for other syscalls.
    pub open_how_flags: u64,
    /// The task, at the end of the syscall.
    pub task: Task<'a>,
    /// Supplementary groups of the task.
    pub groups: &'a [u32],
    /// Execution domain.
    pub personality: u32,
    /// Security label of the task.
    pub label: Option<SelinuxLabel<'a>>,
    /// Family of the socket address that the syscall passed.
    pub socket_family: Option<u32>,
    /// State of the task, set by the task list.
    pub task_state: Option<TaskState>,
    /// ABI of the `io_uring_enter` in which the operation of `io_uring` runs; `None` in a worker, and for syscalls.
    pub uring_enter: Option<Arch>,
    /// Objects with a PATH record, including parents.
    pub objects: &'a [ObjectFacts<'a>],
}

/// An object that the syscall named.
#[derive(Clone, Copy, Debug)]
pub struct ObjectFacts<'a> {
    /// Resolved absolute path, without a slash at the end; empty if unknown.
    pub path: &'a [u8],
    /// Name as passed; `None` if the syscall named the object by descriptor.
    pub name: Option<&'a [u8]>,
    /// Inode; `None` if the lookup failed. The kernel then compares initial values: see [`MISSING_INODE`].
    pub inode: Option<Inode>,
    /// Its security label.
    pub label: Option<SelinuxLabel<'a>>,
}

/// Returns the index of the first matching rule, which decides. `None` if no rule matches: nothing is recorded.
///
/// A rule of the task list matches every syscall of a task whose state it set, before all other rules. Rules of
/// other lists never match.
///
/// # Source
/// `audit_filter_syscall` and `audit_filter_inodes` in `kernel/auditsc.c`, Linux 6.12. Their two passes and the
/// priorities of rules give this order.
#[must_use]
pub fn first_match(rules: &[Rule], observed: &EventFacts<'_>) -> Option<usize> {
    if let Some(index) = task_state_match(rules, observed) {
        return Some(index);
    }
    rules.iter().position(|rule| matches(rule, observed))
}

/// Whether the event is recorded: the action of the first matching rule is `always`.
#[must_use]
pub fn recorded(rules: &[Rule], observed: &EventFacts<'_>) -> bool {
    first_match(rules, observed)
        .and_then(|index| rules.get(index))
        .is_some_and(|rule| rule.action == Action::Always)
}

/// Returns the index of the rule whose key the record has; `None` if it has no key.
///
/// The kernel evaluates the rules about one inode after all others. If an inode rule matches that is earlier in the
/// list, it decides. If it has no key, the record keeps the key of the other rule.
///
/// # Source
/// `audit_filter_rules` in `kernel/auditsc.c`, Linux 6.12, which replaces `ctx->filterkey` and never clears it.
#[must_use]
pub fn recorded_key(rules: &[Rule], observed: &EventFacts<'_>) -> Option<usize> {
    let winner = first_match(rules, observed)?;
    let is_keyed = |index: &usize| rules.get(*index).is_some_and(|rule| !rule.keys.is_empty());
    if task_state_match(rules, observed).is_some() {
        return Some(winner).filter(is_keyed);
    }
    let is_about_event = |rule: &Rule| !rule.fields.iter().any(tests_one_object);
    let of_event = || {
        let first = rules
            .iter()
            .position(|rule| is_about_event(rule) && matches(rule, observed));
        first.filter(is_keyed)
    };
    Some(winner).filter(is_keyed).or_else(of_event)
}

/// Returns the exit value that records and rules use: EINTR for an interrupted syscall that the kernel restarts.
///
/// # Source
/// `audit_return_fixup` in `kernel/auditsc.c`, Linux 6.12.
#[must_use]
pub const fn reported(exit: i64) -> i64 {
    const EINTR: i64 = 4;
    match -exit {
        // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK
        512 | 513 | 514 | 516 => -EINTR,
        _ => exit,
    }
}

/// Compares as the kernel does: unsigned, on 32 bits.
///
/// # Source
/// `audit_comparator` in `kernel/auditfilter.c`, Linux 6.12.
#[must_use]
pub const fn compare(op: Op, left: u32, right: u32) -> bool {
    match op {
        Op::Equal => left == right,
        Op::NotEqual => left != right,
        Op::Greater => left > right,
        Op::GreaterOrEqual => left >= right,
        Op::Less => left < right,
        Op::LessOrEqual => left <= right,
        Op::BitMask => left & right != 0,
        Op::BitTest => left & right == right,
    }
}

/// Whether `path` is `directory` or below it, by whole components.
#[must_use]
pub fn is_at_or_below(path: &[u8], directory: &[u8]) -> bool {
    let absolute = path.starts_with(b"/") && directory.starts_with(b"/");
    let rest = path.strip_prefix(trim_slashes(directory));
    absolute && rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// Removes slashes at the end of a directory; the root becomes empty.
pub(super) fn trim_slashes(directory: &[u8]) -> &[u8] {
    let end = directory.iter().rposition(|&byte| byte != b'/');
    directory
        .get(..end.map_or(0, |last| last + 1))
        .unwrap_or_default()
}

impl ObjectFacts<'_> {
    /// Whether `watch` is this object, by its path or by the passed name.
    #[must_use]
    pub fn is(&self, watch: &[u8]) -> bool {
        !watch.is_empty() && (self.path == watch || self.name == Some(watch))
    }

    /// Whether a number of the object in `field` satisfies the comparison.
    fn compare(&self, field: Field, op: Op, value: u32) -> bool {
        let inode = self.inode.unwrap_or(MISSING_INODE);
        match field {
            Field::ObjUid => compare(op, inode.uid, value),
            Field::ObjGid => compare(op, inode.gid, value),
            Field::Inode => compare(op, low32(inode.ino), value),
            Field::DevMajor => {
                compare(op, inode.dev.major(), value) || compare(op, inode.rdev.major(), value)
            }
            Field::DevMinor => {
                compare(op, inode.dev.minor(), value) || compare(op, inode.rdev.minor(), value)
            }
            _ => false,
        }
    }
}

impl<'a> EventFacts<'a> {
    /// Facts about a task outside a syscall.
    fn of_task(task: Task<'a>, groups: &'a [u32], personality: u32) -> Self {
        Self {
            arch: Arch(0),
            syscall: Syscall(0),
            exit: None,
            args: [0; 4],
            open_how_flags: 0,
            task,
            groups,
            personality,
            label: None,
            socket_family: None,
            task_state: None,
            uring_enter: None,
            objects: &[],
        }
    }
}

impl EventFacts<'_> {
    /// Returns the number of the event in `field`; `None` if it has none or several.
    #[must_use]
    pub fn number(&self, field: Field) -> Option<u32> {
        let task = &self.task;
        Some(match field {
            Field::Pid => task.pid,
            Field::Ppid => task.ppid,
            Field::Uid => task.uid,
            Field::Euid => task.euid,
            Field::Suid => task.suid,
            Field::Fsuid => task.fsuid,
            Field::Gid => task.gid,
            Field::Egid => task.egid,
            Field::Sgid => task.sgid,
            Field::Fsgid => task.fsgid,
            Field::Auid => task.auid.0,
            Field::SessionId => task.ses,
            Field::Pers => self.personality,
            Field::Arch => self.arch.0,
            Field::Exit => low32(self.exit?.cast_unsigned()),
            Field::Success => u32::from(self.succeeded()?),
            Field::A0 => low32(self.args[0]),
            Field::A1 => low32(self.args[1]),
            Field::A2 => low32(self.args[2]),
            Field::A3 => low32(self.args[3]),
            Field::SaddrFam => self.socket_family?,
            _ => return None,
        })
    }

    /// Compares a field with a number, as the kernel does: supplementary groups count for `gid` and `egid`, and any
    /// object may satisfy an object test, unless only object `one` is tested.
    #[must_use]
    pub fn compare(&self, field: Field, op: Op, value: u32, one: Option<&ObjectFacts<'_>>) -> bool {
        match field {
            Field::Gid | Field::Egid => {
                let plain = self
                    .number(field)
                    .is_some_and(|gid| compare(op, gid, value));
                match op {
                    Op::Equal => plain || self.groups.contains(&value),
                    Op::NotEqual => plain && !self.groups.contains(&value),
                    _ => plain,
                }
            }
            Field::ObjUid | Field::ObjGid | Field::Inode | Field::DevMajor | Field::DevMinor => {
                match one {
                    Some(object) => object.compare(field, op, value),
                    None => self
                        .objects
                        .iter()
                        .any(|object| object.compare(field, op, value)),
                }
            }
            Field::FileType => {
                let found = self.has_file_type(value);
                (op == Op::Equal && found) || (op == Op::NotEqual && !found)
            }
            _ => self
                .number(field)
                .is_some_and(|number| compare(op, number, value)),
        }
    }

    /// Compares two numbers of the event (`-C`). Any object may satisfy a comparison with an owner.
    #[must_use]
    pub fn compare_fields(&self, left: Field, op: Op, right: Field) -> bool {
        match (left, right) {
            (Field::ObjUid | Field::ObjGid, _) => self.compare_owner(right, op, left),
            (_, Field::ObjUid | Field::ObjGid) => self.compare_owner(left, op, right),
            _ => match (self.number(left), self.number(right)) {
                (Some(left), Some(right)) => compare(op, left, right),
                _ => false,
            },
        }
    }

    /// Access mode of an open as perm bits; 0 for other syscalls.
    #[must_use]
    pub fn open_perm(&self) -> u32 {
        match perm::class(self.arch, self.syscall) {
            PermClass::Open(OpenFlags::Argument(index)) => {
                perm::access_mode(self.args.get(index).map_or(0, |&flags| low32(flags)))
            }
            PermClass::Open(OpenFlags::OpenHow) => perm::access_mode(low32(self.open_how_flags)),
            PermClass::Fixed(_) | PermClass::SocketCall => 0,
        }
    }

    /// Perm bits of the syscall.
    fn perm(&self) -> u32 {
        match perm::class(self.arch, self.syscall) {
            PermClass::Fixed(bits) => bits,
            PermClass::Open(_) => self.open_perm(),
            PermClass::SocketCall if low32(self.args[0]) == perm::SOCKETCALL_BIND => {
                crate::rule::perm::WRITE
            }
            PermClass::SocketCall => 0,
        }
    }

    /// Whether the syscall succeeded; `None` if it did not return.
    fn succeeded(&self) -> Option<bool> {
        self.exit.map(succeeded)
    }

    fn has_file_type(&self, format: u32) -> bool {
        self.objects
            .iter()
            .filter_map(|object| object.inode)
            .any(|inode| inode.mode & S_IFMT == format)
    }

    fn compare_owner(&self, field: Field, op: Op, owner: Field) -> bool {
        self.number(field).is_some_and(|number| {
            self.objects
                .iter()
                .map(|object| object.inode.unwrap_or(MISSING_INODE))
                .any(|inode| {
                    let owner = if owner == Field::ObjUid {
                        inode.uid
                    } else {
                        inode.gid
                    };
                    compare(op, number, owner)
                })
        })
    }
}

/// Attributes that the kernel compares for a name without an inode: owner root, device 0, no type.
///
/// # Source
/// `audit_alloc_name` in `kernel/auditsc.c`, Linux 6.12. The session `lists` of `tests/vm` compares them.
pub const MISSING_INODE: Inode = Inode {
    ino: u64::MAX,
    dev: Dev(0),
    mode: 0,
    uid: 0,
    gid: 0,
    rdev: Dev(0),
};

/// Bits of a mode that hold the file type.
const S_IFMT: u32 = 0o170_000;

const fn low32(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Index of the rule of the task list that set the state of the task.
fn task_state_match(rules: &[Rule], observed: &EventFacts<'_>) -> Option<usize> {
    let task_state = observed.task_state?;
    rules
        .iter()
        .position(|rule| rule.list == List::Task && TaskState::of(rule) == task_state)
}

fn matches(rule: &Rule, observed: &EventFacts<'_>) -> bool {
    let number = observed.syscall.0;
    let selected = number < SyscallMask::LIMIT - 32 && rule.syscalls.contains(number);
    rule.list == List::Exit && selected && conditions_hold(rule, observed)
}

fn conditions_hold(rule: &Rule, observed: &EventFacts<'_>) -> bool {
    let all_hold = |one| rule.fields.iter().all(|test| holds(test, observed, one));
    if rule.fields.iter().any(tests_one_object) {
        observed.objects.iter().any(|object| all_hold(Some(object)))
    } else {
        all_hold(None)
    }
}

/// Whether the kernel stores the rule of this test by inode, and evaluates it for one name at a time.
fn tests_one_object(test: &FieldTest) -> bool {
    test.op == Op::Equal && matches!(test.field, Field::Path | Field::Inode)
}

/// Whether one condition holds.
fn holds(test: &FieldTest, observed: &EventFacts<'_>, one: Option<&ObjectFacts<'_>>) -> bool {
    let op = test.op;
    match (test.field, &test.value) {
        (Field::Auid, &Value::Number(value)) if value == Auid::UNSET.0 => {
            compare(op, u32::from(observed.task.auid != Auid::UNSET), 0)
        }
        (Field::Success, &Value::Number(value)) => {
            let code = |success| if success { 1 } else { 2 };
            observed
                .succeeded()
                .is_some_and(|success| compare(op, code(success), code(value != 0)))
        }
        (Field::Perm, &Value::Number(bits)) => equals(op, observed.perm() & bits != 0),
        (field, &Value::Number(value)) => observed.compare(field, op, value, one),
        (field, &Value::Field(other)) => observed.compare_fields(field, op, other),
        (Field::Path, Value::Text(path)) => equals(op, one.is_some_and(|object| object.is(path))),
        (Field::Dir, Value::Text(directory)) => {
            let below = |object: &ObjectFacts<'_>| is_at_or_below(object.path, directory);
            equals(op, observed.objects.iter().any(below))
        }
        (Field::Exe, Value::Text(path)) => equals(op, observed.task.exe == Some(path.as_slice())),
        (
            Field::ObjUser | Field::ObjRole | Field::ObjType | Field::ObjLevLow | Field::ObjLevHigh,
            Value::Text(text),
        ) => {
            let satisfies = |object: &ObjectFacts<'_>| {
                let label = object.label;
                label.is_some_and(|label| label.satisfies(test.field, op, text))
            };
            match one {
                Some(object) => satisfies(object),
                None => observed.objects.iter().any(satisfies),
            }
        }
        (field, Value::Text(text)) => observed
            .label
            .is_some_and(|label| label.satisfies(field, op, text)),
    }
}

/// Applies `=` or `!=` to a fact; false for other operators.
const fn equals(op: Op, fact: bool) -> bool {
    match op {
        Op::Equal => fact,
        Op::NotEqual => !fact,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
