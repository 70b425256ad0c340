//! Prepares the conditions of a rule once for all syscalls; [`Condition::on`] then evaluates a condition for one
//! syscall.

use bstr::BString;

use crate::ids::Auid;
use crate::rule::perm::{READ, WRITE};
use crate::rule::{Field, FieldTest, Op, Rule, Value};

use super::eval::other_lists::without_call;
use super::eval::{compare, trim_slashes};
use super::labels::is_label;
use super::perm::{self, PermClass};
use super::unsupported::{self, UnsupportedReason};
use super::{Operand, SyscallId, Test, WatchId, objects, sockaddr};

/// Properties of a syscall that decide conditions.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyscallTraits {
    pub(super) syscall_id: SyscallId,
    class: PermClass,
    names_objects: bool,
    has_address: bool,
    returns: bool,
}

impl SyscallTraits {
    pub(super) fn of(syscall_id: SyscallId) -> Self {
        Self {
            syscall_id,
            class: perm::class(syscall_id.arch, syscall_id.syscall),
            names_objects: !objects::objects(syscall_id.arch, syscall_id.syscall).is_empty()
                || creates_socket_file(syscall_id),
            has_address: sockaddr::of(syscall_id.arch, syscall_id.syscall).is_some(),
            returns: syscall_id.returns(),
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
    /// Decided by the ABI.
    Arch(Op, u32),
    /// Decided by the perm class, for some classes together with an argument.
    Perm { bits: u32, negated: bool },
    /// No object has a type: always holds for a syscall that names no object.
    NoObjectOfType(Test),
    /// Decided by the event, for syscalls that have what the test needs.
    Ask(Test, Requirement),
}

/// What a syscall must have so that a test can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requirement {
    Nothing,
    Objects,
    SyscallSockaddr,
    Return,
}

/// Result of a condition for one syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionResult {
    Holds,
    Fails,
    Ask(Test),
}

/// Result of a condition before a syscall is known.
enum EarlyResult {
    Holds,
    Fails,
    Later(Condition),
}

/// The prepared conditions of a rule.
#[derive(Debug)]
pub(super) enum Prepared {
    /// All of these must hold.
    Conditions(Vec<Condition>),
    /// A condition never holds: the rule matches no syscall.
    Never,
}

/// Prepares the conditions of a rule. `watch` returns the index of a path.
///
/// # Errors
/// The reason why the rule is not supported.
pub(super) fn prepare(
    rule: &Rule,
    watch: &mut impl FnMut(BString) -> Option<WatchId>,
) -> Result<Prepared, UnsupportedReason> {
    unsupported::check(rule)?;
    let mut conditions = Vec::with_capacity(rule.fields.len());
    let mut never = false;
    for test in &rule.fields {
        match prepare_condition(test, watch)
            .map_err(|reason| UnsupportedReason::of(rule, reason))?
        {
            EarlyResult::Holds => {}
            EarlyResult::Fails => never = true,
            EarlyResult::Later(condition) => conditions.push(condition),
        }
    }
    Ok(if never {
        Prepared::Never
    } else {
        Prepared::Conditions(conditions)
    })
}

/// Tests of a rule of the task list; `None` when no new task can satisfy them.
///
/// # Errors
/// The reason why the rule is not supported.
pub(super) fn prepare_fork(rule: &Rule) -> Result<Option<Vec<Test>>, UnsupportedReason> {
    unsupported::check(rule)?;
    let mut tests = Vec::with_capacity(rule.fields.len());
    for given in &rule.fields {
        match without_call(given) {
            Some(true) => continue,
            Some(false) => return Ok(None),
            None => {}
        }
        let left = prepare_condition(given, &mut |_| None)
            .map_err(|reason| UnsupportedReason::of(rule, reason))?;
        match left {
            EarlyResult::Holds => {}
            EarlyResult::Later(Condition::Ask(test, Requirement::Nothing)) => tests.push(test),
            EarlyResult::Fails | EarlyResult::Later(_) => return Ok(None),
        }
    }
    Ok(Some(tests))
}

impl Condition {
    /// Evaluates the condition for one syscall.
    pub(super) fn on(&self, traits: &SyscallTraits) -> ConditionResult {
        match *self {
            Self::Arch(op, arch) => decided(compare(op, traits.syscall_id.arch.0, arch)),
            Self::Perm { bits, negated } => on_class(traits.class, bits, negated),
            Self::NoObjectOfType(_) if !traits.names_objects => ConditionResult::Holds,
            Self::Ask(_, Requirement::Objects) if !traits.names_objects => ConditionResult::Fails,
            Self::Ask(_, Requirement::SyscallSockaddr) if !traits.has_address => {
                ConditionResult::Fails
            }
            Self::Ask(_, Requirement::Return) if !traits.returns => ConditionResult::Fails,
            Self::NoObjectOfType(test) | Self::Ask(test, _) => ConditionResult::Ask(test),
        }
    }
}

const fn test(operand: Operand, op: Op, value: u32) -> Test {
    Test { operand, op, value }
}

const fn decided(holds: bool) -> ConditionResult {
    if holds {
        ConditionResult::Holds
    } else {
        ConditionResult::Fails
    }
}

fn on_class(class: PermClass, bits: u32, negated: bool) -> ConditionResult {
    match class {
        PermClass::Fixed(of_call) => decided((of_call & bits != 0) != negated),
        PermClass::SocketCall if bits & WRITE == 0 => decided(negated),
        PermClass::SocketCall => ConditionResult::Ask(test(
            Operand::Field(Field::A0),
            if negated { Op::NotEqual } else { Op::Equal },
            perm::SOCKETCALL_BIND,
        )),
        // An open has the read bit, the write bit, or both.
        PermClass::Open(_) => {
            let mode = bits & (READ | WRITE);
            let open = |op, value| ConditionResult::Ask(test(Operand::OpenPerm, op, value));
            match (mode, negated) {
                (0, _) => decided(negated),
                (READ | WRITE, false) => open(Op::BitMask, mode),
                (READ | WRITE, true) => open(Op::Equal, mode ^ (READ | WRITE)),
                (_, negated) => decided(!negated),
            }
        }
    }
}

/// Prepares one condition.
fn prepare_condition(
    given: &FieldTest,
    watch: &mut impl FnMut(BString) -> Option<WatchId>,
) -> Result<EarlyResult, String> {
    let ask = |operand, value, needs| {
        EarlyResult::Later(Condition::Ask(test(operand, given.op, value), needs))
    };
    let mut path = |operand, path: &[u8], needs| match watch(path.into()) {
        Some(WatchId(id)) => Ok(ask(operand, u32::from(id), needs)),
        None => Err("more than 65536 different paths".to_owned()),
    };
    match (given.field, &given.value) {
        // No module compares labels: see [`super::labels`].
        (label, Value::Number(_) | Value::Text(_)) if is_label(label) => Ok(EarlyResult::Fails),
        (Field::Arch, &Value::Number(arch)) => {
            Ok(EarlyResult::Later(Condition::Arch(given.op, arch)))
        }
        (Field::Perm, &Value::Number(bits)) => {
            let negated = given.op == Op::NotEqual;
            Ok(EarlyResult::Later(Condition::Perm { bits, negated }))
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
            Ok(EarlyResult::Later(Condition::NoObjectOfType(none)))
        }
        (field, &Value::Number(value)) => Ok(match constant(given.op, value) {
            Some(false) => EarlyResult::Fails,
            Some(true) if needs(field) == Requirement::Nothing => EarlyResult::Holds,
            _ => ask(Operand::Field(field), value, needs(field)),
        }),
        (left, &Value::Field(right)) => {
            let (left, right) = if is_owner(left) {
                (right, left)
            } else {
                (left, right)
            };
            let needs = if is_owner(right) {
                Requirement::Objects
            } else {
                Requirement::Nothing
            };
            Ok(ask(Operand::Fields(left, right), 0, needs))
        }
        (Field::Path, Value::Text(text)) => path(Operand::Path, text, Requirement::Objects),
        (Field::Dir, Value::Text(text)) => {
            let trimmed = trim_slashes(text);
            let directory = if trimmed.is_empty() {
                text.get(..1).unwrap_or_default()
            } else {
                trimmed
            };
            path(Operand::Dir, directory, Requirement::Objects)
        }
        (_, Value::Text(text)) => path(Operand::Exe, text, Requirement::Nothing),
    }
}

/// Prepares a comparison whose left side has two possible values: `sides` pairs the value that the test compares with
/// the value that the kernel compares. When both satisfy the condition, `always` remains.
fn two_way(
    op: Op,
    sides: [(u32, u32); 2],
    right: u32,
    operand: Operand,
    always: Option<Condition>,
) -> EarlyResult {
    let [(first, left), (second, other)] = sides;
    let equal = |value| {
        let needs = if always.is_some() {
            Requirement::Return
        } else {
            Requirement::Nothing
        };
        EarlyResult::Later(Condition::Ask(test(operand, Op::Equal, value), needs))
    };
    match (compare(op, left, right), compare(op, other, right)) {
        (false, false) => EarlyResult::Fails,
        (true, false) => equal(first),
        (false, true) => equal(second),
        (true, true) => always.map_or(EarlyResult::Holds, EarlyResult::Later),
    }
}

/// Holds for every syscall that returned: a test of `success` that any result satisfies.
const fn returned() -> Condition {
    let operand = Operand::Field(Field::Exit);
    Condition::Ask(test(operand, Op::GreaterOrEqual, 0), Requirement::Return)
}

/// Result of an unsigned comparison that does not depend on the left side.
const fn constant(op: Op, value: u32) -> Option<bool> {
    match (op, value) {
        (Op::Less | Op::BitMask, 0) | (Op::Greater, u32::MAX) => Some(false),
        (Op::GreaterOrEqual | Op::BitTest, 0) | (Op::LessOrEqual, u32::MAX) => Some(true),
        _ => None,
    }
}

const fn needs(field: Field) -> Requirement {
    match field {
        Field::Exit => Requirement::Return,
        Field::SaddrFam => Requirement::SyscallSockaddr,
        Field::ObjUid
        | Field::ObjGid
        | Field::Inode
        | Field::DevMajor
        | Field::DevMinor
        | Field::FileType => Requirement::Objects,
        _ => Requirement::Nothing,
    }
}

const fn is_owner(field: Field) -> bool {
    matches!(field, Field::ObjUid | Field::ObjGid)
}
