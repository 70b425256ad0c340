//! One rule made ready: each condition is turned into what is left to ask, once for all syscalls.
//!
//! [`Condition::on`] then decides it for one syscall.

use bstr::BString;

use crate::ids::Auid;
use crate::rule::perm::{READ, WRITE};
use crate::rule::{Field, FieldTest, Op, Rule, Value};

use super::eval::other_lists::without_call;
use super::eval::{compare, trim_slashes};
use super::labels::is_label;
use super::perm::{self, PermClass};
use super::unsupported::{self, Refusal};
use super::{Operand, SyscallId, Test, WatchId, objects, sockaddr};

/// What one syscall decides by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyscallTraits {
    pub(super) call: SyscallId,
    class: PermClass,
    names_objects: bool,
    has_address: bool,
    returns: bool,
}

impl SyscallTraits {
    pub(super) fn of(call: SyscallId) -> Self {
        Self {
            call,
            class: perm::class(call.arch, call.syscall),
            names_objects: !objects::objects(call.arch, call.syscall).is_empty()
                || creates_socket_file(call),
            has_address: sockaddr::of(call.arch, call.syscall).is_some(),
            returns: call.returns(),
        }
    }
}

/// Whether the syscall can bind a socket to a path: the socket address is the name.
fn creates_socket_file(syscall: SyscallId) -> bool {
    matches!(syscall.name(), Some("bind" | "socketcall"))
}

/// One condition of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Condition {
    /// The ABI decides.
    Arch(Op, u32),
    /// The perm class decides, or what is left of it.
    Perm { bits: u32, negated: bool },
    /// No object is of a type: holds by itself where no object is named.
    NoObjectOfType(Test),
    /// Only the event can tell, and only on calls that have what it asks for.
    Ask(Test, Needs),
}

/// What a call must have for a test to be able to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    Objects,
    SyscallSockaddr,
    Return,
}

/// What is left of a condition on one syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Holds,
    Fails,
    Ask(Test),
}

/// What a condition says before any syscall is looked at.
enum Early {
    Holds,
    Fails,
    Later(Condition),
}

/// The conditions of a rule.
#[derive(Debug)]
pub(super) enum Prepared {
    /// All of these must hold.
    Conditions(Vec<Condition>),
    /// They contradict themselves: the rule matches no call.
    Never,
}

/// The conditions of a rule. `watch` gives the number of a path.
///
/// # Errors
/// Why this version cannot honour the rule.
pub(super) fn prepare(
    rule: &Rule,
    watch: &mut impl FnMut(BString) -> Option<WatchId>,
) -> Result<Prepared, Refusal> {
    unsupported::check(rule)?;
    let mut conditions = Vec::with_capacity(rule.fields.len());
    let mut never = false;
    for test in &rule.fields {
        match early(test, watch).map_err(|reason| Refusal::of(rule, reason))? {
            Early::Holds => {}
            Early::Fails => never = true,
            Early::Later(condition) => conditions.push(condition),
        }
    }
    Ok(if never {
        Prepared::Never
    } else {
        Prepared::Conditions(conditions)
    })
}

/// What a rule of the task list asks of a new task; `None` when none can satisfy it.
///
/// # Errors
/// Why this version cannot honour the rule.
pub(super) fn prepare_fork(rule: &Rule) -> Result<Option<Vec<Test>>, Refusal> {
    unsupported::check(rule)?;
    let mut tests = Vec::with_capacity(rule.fields.len());
    for given in &rule.fields {
        match without_call(given) {
            Some(true) => continue,
            Some(false) => return Ok(None),
            None => {}
        }
        let left = early(given, &mut |_| None).map_err(|reason| Refusal::of(rule, reason))?;
        match left {
            Early::Holds => {}
            Early::Later(Condition::Ask(test, Needs::Nothing)) => tests.push(test),
            Early::Fails | Early::Later(_) => return Ok(None),
        }
    }
    Ok(Some(tests))
}

impl Condition {
    /// What is left of it on one syscall.
    pub(super) fn on(&self, traits: &SyscallTraits) -> Outcome {
        match *self {
            Self::Arch(op, arch) => decided(compare(op, traits.call.arch.0, arch)),
            Self::Perm { bits, negated } => on_class(traits.class, bits, negated),
            Self::NoObjectOfType(_) if !traits.names_objects => Outcome::Holds,
            Self::Ask(_, Needs::Objects) if !traits.names_objects => Outcome::Fails,
            Self::Ask(_, Needs::SyscallSockaddr) if !traits.has_address => Outcome::Fails,
            Self::Ask(_, Needs::Return) if !traits.returns => Outcome::Fails,
            Self::NoObjectOfType(test) | Self::Ask(test, _) => Outcome::Ask(test),
        }
    }
}

const fn test(operand: Operand, op: Op, value: u32) -> Test {
    Test { operand, op, value }
}

const fn decided(holds: bool) -> Outcome {
    if holds {
        Outcome::Holds
    } else {
        Outcome::Fails
    }
}

fn on_class(class: PermClass, bits: u32, negated: bool) -> Outcome {
    match class {
        PermClass::Fixed(of_call) => decided((of_call & bits != 0) != negated),
        PermClass::SocketCall if bits & WRITE == 0 => decided(negated),
        PermClass::SocketCall => Outcome::Ask(test(
            Operand::Field(Field::A0),
            if negated { Op::NotEqual } else { Op::Equal },
            perm::SOCKETCALL_BIND,
        )),
        // An open has the read bit, the write bit, or both.
        PermClass::Open(_) => {
            let mode = bits & (READ | WRITE);
            let open = |op, value| Outcome::Ask(test(Operand::OpenPerm, op, value));
            match (mode, negated) {
                (0, _) => decided(negated),
                (READ | WRITE, false) => open(Op::BitMask, mode),
                (READ | WRITE, true) => open(Op::Equal, mode ^ (READ | WRITE)),
                (_, negated) => decided(!negated),
            }
        }
    }
}

/// Turns one condition into what is left to ask.
fn early(
    given: &FieldTest,
    watch: &mut impl FnMut(BString) -> Option<WatchId>,
) -> Result<Early, String> {
    let ask =
        |operand, value, needs| Early::Later(Condition::Ask(test(operand, given.op, value), needs));
    let mut path = |operand, path: &[u8], needs| match watch(path.into()) {
        Some(WatchId(id)) => Ok(ask(operand, u32::from(id), needs)),
        None => Err("more than 65536 different paths".to_owned()),
    };
    match (given.field, &given.value) {
        // No module compares labels: see [`super::labels`].
        (label, Value::Number(_) | Value::Text(_)) if is_label(label) => Ok(Early::Fails),
        (Field::Arch, &Value::Number(arch)) => Ok(Early::Later(Condition::Arch(given.op, arch))),
        (Field::Perm, &Value::Number(bits)) => {
            let negated = given.op == Op::NotEqual;
            Ok(Early::Later(Condition::Perm { bits, negated }))
        }
        (Field::Auid, &Value::Number(value)) if value == Auid::UNSET.0 => Ok(two_way(
            given.op,
            [0, 1].map(|set| (set, set)),
            0,
            Operand::AuidSet,
            None,
        )),
        (Field::Success, &Value::Number(value)) => {
            // The kernel compares 1 for success and 2 for failure.
            let right = if value == 0 { 2 } else { 1 };
            let sides = [(0, 2), (1, 1)];
            Ok(two_way(
                given.op,
                sides,
                right,
                Operand::Field(Field::Success),
                Some(returned()),
            ))
        }
        (Field::FileType, &Value::Number(value)) if given.op == Op::NotEqual => {
            let none = test(Operand::Field(Field::FileType), given.op, value);
            Ok(Early::Later(Condition::NoObjectOfType(none)))
        }
        (field, &Value::Number(value)) => Ok(match constant(given.op, value) {
            Some(false) => Early::Fails,
            Some(true) if needs(field) == Needs::Nothing => Early::Holds,
            _ => ask(Operand::Field(field), value, needs(field)),
        }),
        (left, &Value::Field(right)) => {
            let (left, right) = if is_owner(left) {
                (right, left)
            } else {
                (left, right)
            };
            let needs = if is_owner(right) {
                Needs::Objects
            } else {
                Needs::Nothing
            };
            Ok(ask(Operand::Fields(left, right), 0, needs))
        }
        (Field::Path, Value::Text(text)) => path(Operand::Path, text, Needs::Objects),
        (Field::Dir, Value::Text(text)) => {
            let trimmed = trim_slashes(text);
            let directory = if trimmed.is_empty() {
                text.get(..1).unwrap_or_default()
            } else {
                trimmed
            };
            path(Operand::Dir, directory, Needs::Objects)
        }
        (_, Value::Text(text)) => path(Operand::Exe, text, Needs::Nothing),
    }
}

/// A comparison whose left side can only be one of two: `sides` pairs the number that the test will
/// look at with the number that the kernel compares. When both satisfy it, `always` is left.
fn two_way(
    op: Op,
    sides: [(u32, u32); 2],
    right: u32,
    operand: Operand,
    always: Option<Condition>,
) -> Early {
    let [(first, left), (second, other)] = sides;
    let equal = |value| {
        let needs = if always.is_some() {
            Needs::Return
        } else {
            Needs::Nothing
        };
        Early::Later(Condition::Ask(test(operand, Op::Equal, value), needs))
    };
    match (compare(op, left, right), compare(op, other, right)) {
        (false, false) => Early::Fails,
        (true, false) => equal(first),
        (false, true) => equal(second),
        (true, true) => always.map_or(Early::Holds, Early::Later),
    }
}

/// Holds for every call that returned: what is left of a test of `success` that any outcome passes.
const fn returned() -> Condition {
    let operand = Operand::Field(Field::Exit);
    Condition::Ask(test(operand, Op::GreaterOrEqual, 0), Needs::Return)
}

/// What a comparison of unsigned numbers comes to whatever the left side is.
const fn constant(op: Op, value: u32) -> Option<bool> {
    match (op, value) {
        (Op::Less | Op::BitMask, 0) | (Op::Greater, u32::MAX) => Some(false),
        (Op::GreaterOrEqual | Op::BitTest, 0) | (Op::LessOrEqual, u32::MAX) => Some(true),
        _ => None,
    }
}

const fn needs(field: Field) -> Needs {
    match field {
        Field::Exit => Needs::Return,
        Field::SaddrFam => Needs::SyscallSockaddr,
        Field::ObjUid
        | Field::ObjGid
        | Field::Inode
        | Field::DevMajor
        | Field::DevMinor
        | Field::FileType => Needs::Objects,
        _ => Needs::Nothing,
    }
}

const fn is_owner(field: Field) -> bool {
    matches!(field, Field::ObjUid | Field::ObjGid)
}
