//! Whether audit rules record events.

use std::collections::BTreeSet;

use audit::event::Task;
use audit::ids::Auid;
use audit::plan::eval::compare;
use audit::plan::eval::other_lists::{Actor, record_kept};
use audit::plan::name_list::shortened;
use audit::plan::{Operand, Plan, Slot, SyscallId, Test};
use audit::rule::perm::{READ, WRITE};
use audit::rule::{Action, Field, List, Op, Value};
use audit::table;
use bstr::ByteSlice as _;

use super::demand::{Condition, Demand};
use super::feed::Feed;
use crate::sigma::need::Place;

/// Most syscalls that are named.
const MAX_NAMES: usize = 6;

/// Whether audit rules record what a Sigma rule needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    /// No audit rule can.
    Impossible,
    /// They record nothing of it.
    Missing,
    /// They record some of it.
    Partly,
    /// They record all of it.
    Given,
    /// It needs no audit rule.
    Sent,
}

impl Status {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Impossible => "impossible",
            Self::Missing => "missing",
            Self::Partly => "partly",
            Self::Given => "given",
            Self::Sent => "sent",
        }
    }

    /// Status of two feeds together.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Given | Self::Sent, Self::Given | Self::Sent) => Self::Given,
            (Self::Missing, Self::Impossible) | (Self::Impossible, Self::Missing) => Self::Missing,
            _ => Self::Partly,
        }
    }
}

/// What audit rules record of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Coverage {
    pub(super) status: Status,
    /// What is missing, and why.
    pub(super) reasons: BTreeSet<String>,
}

/// The audit rules of a machine.
pub(super) struct AuditRules<'p> {
    pub(super) plan: &'p Plan,
    /// How the line of a rule of the plan is named.
    pub(super) line: &'p dyn Fn(usize, u32) -> String,
}

/// What a slot does with the events of a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// It matches all of them.
    All,
    /// It matches some of them, for all that is known.
    Some,
    /// It matches none of them.
    None,
}

/// Rules, by file and line, that make audit rules miss events.
#[derive(Debug, Default)]
struct Gaps {
    some: BTreeSet<(usize, u32)>,
    suppressed: BTreeSet<(usize, u32)>,
    other_key: BTreeSet<(usize, u32)>,
}

impl Gaps {
    /// Whether a rule after them still gets all events that it matches.
    fn is_harmless(&self) -> bool {
        self.suppressed.is_empty() && self.other_key.is_empty()
    }
}

impl AuditRules<'_> {
    /// What the rules record of a feed.
    pub(super) fn coverage(&self, feed: &Feed) -> Coverage {
        let mut reasons = BTreeSet::new();
        let status = match feed {
            Feed::Nothing(reason) => {
                reasons.insert(reason.clone());
                Status::Impossible
            }
            Feed::Sent { kind, .. } => match self.is_excluded(kind) {
                true => {
                    reasons.insert(excluded(kind));
                    Status::Missing
                }
                false => Status::Sent,
            },
            Feed::Written { key, .. } => {
                let mut rules = self.plan.rules.iter();
                let has = |own: &bstr::BString| own.eq_ignore_ascii_case(key.as_bytes());
                let is_given = rules.any(|planned| {
                    planned.rule.action == Action::Always && planned.rule.keys.iter().any(has)
                });
                if !is_given {
                    reasons.insert(format!("no rule has the key `{key}`"));
                }
                if is_given {
                    Status::Given
                } else {
                    Status::Missing
                }
            }
            Feed::Recorded(demand) => self.of_demand(demand, &mut reasons),
        };
        Coverage { status, reasons }
    }

    fn of_demand(&self, demand: &Demand, reasons: &mut BTreeSet<String>) -> Status {
        if let Some(kind) = demand.types.iter().find(|kind| self.is_excluded(kind)) {
            reasons.insert(excluded(kind));
            return Status::Missing;
        }
        let all_tasks = self.plan.task_slots.first();
        if let Some(slot) =
            all_tasks.filter(|slot| slot.tests.is_empty() && slot.action == Action::Never)
        {
            let place = self.place(slot).map(|(file, line)| (self.line)(file, line));
            reasons.insert(format!(
                "{}: no task is recorded",
                place.unwrap_or_default()
            ));
            return Status::Missing;
        }
        let mut gaps = Gaps::default();
        let (mut missing, mut covered, mut partly) = (Vec::new(), 0_usize, 0_usize);
        for syscall in &demand.syscalls {
            match self.of_syscall(*syscall, demand, &mut gaps) {
                Status::Given => covered += 1,
                Status::Partly => partly += 1,
                _ => missing.push(*syscall),
            }
        }
        if !missing.is_empty() {
            reasons.insert(format!("no rule for {}", names(&missing)));
        }
        for (lines, what) in [
            (gaps.some, "only some of the events"),
            (gaps.suppressed, "can suppress events"),
            (gaps.other_key, "decides first, with another key"),
        ] {
            let lines: Vec<String> = lines
                .into_iter()
                .map(|(file, line)| (self.line)(file, line))
                .collect();
            if !lines.is_empty() {
                reasons.insert(format!("{}: {what}", shortened(&lines)));
            }
        }
        match (covered, partly) {
            (0, 0) => Status::Missing,
            (_, 0) if missing.is_empty() => Status::Given,
            _ => Status::Partly,
        }
    }

    /// Whether the rules record a demand's events of one syscall.
    fn of_syscall(&self, syscall: SyscallId, demand: &Demand, gaps: &mut Gaps) -> Status {
        let slots = self
            .plan
            .syscalls
            .get(&syscall)
            .map(|planned| planned.slots.as_slice());
        let mut own = Gaps::default();
        let mut status = Status::Missing;
        for slot in slots.unwrap_or_default() {
            let relation = self.relation(slot, demand);
            let place = self.place(slot);
            match (relation, slot.action) {
                (Relation::None, _) => {}
                (_, Action::Never) => own.suppressed.extend(place),
                (_, Action::Always) if !self.has_key(slot, demand) => own.other_key.extend(place),
                (Relation::All, Action::Always) if own.is_harmless() => return Status::Given,
                (Relation::All, Action::Always) => status = Status::Partly,
                (Relation::Some, Action::Always) => {
                    status = Status::Partly;
                    own.some.extend(place);
                }
            }
            if relation == Relation::All {
                if slot.action == Action::Always {
                    own.some.clear();
                }
                break;
            }
        }
        gaps.some.append(&mut own.some);
        gaps.suppressed.append(&mut own.suppressed);
        gaps.other_key.append(&mut own.other_key);
        status
    }

    fn has_key(&self, slot: &Slot, demand: &Demand) -> bool {
        let Some(key) = &demand.key else {
            return true;
        };
        let planned = self.plan.rules.get(usize::from(slot.rule.0));
        planned.is_some_and(|planned| {
            planned
                .rule
                .keys
                .iter()
                .any(|own| own.eq_ignore_ascii_case(key.as_bytes()))
        })
    }

    /// File and line of the rule of a slot.
    fn place(&self, slot: &Slot) -> Option<(usize, u32)> {
        let planned = self.plan.rules.get(usize::from(slot.rule.0));
        planned.map(|planned| (planned.source, planned.line))
    }

    fn relation(&self, slot: &Slot, demand: &Demand) -> Relation {
        let mut relation = Relation::All;
        for test in &slot.tests {
            match self.holds(test, demand) {
                Relation::None => return Relation::None,
                Relation::Some => relation = Relation::Some,
                Relation::All => {}
            }
        }
        relation
    }

    /// Whether a test holds for the events of a demand.
    fn holds(&self, test: &Test, demand: &Demand) -> Relation {
        let watch = |value: u32| {
            let index = usize::try_from(value).ok()?;
            self.plan.watches.get(index)?.to_str().ok()
        };
        match test.operand {
            Operand::Field(field) => number_holds(field, test, &demand.tests),
            Operand::Dir => match watch(test.value) {
                Some(directory) if demand.place.is_at_or_below(directory) => Relation::All,
                _ => Relation::Some,
            },
            Operand::Path => match (watch(test.value), &demand.place) {
                (Some(path), Place::Path(own)) if path == own => Relation::All,
                _ => Relation::Some,
            },
            Operand::Exe => {
                let path = watch(test.value);
                let programs = demand
                    .tests
                    .iter()
                    .filter_map(|Condition(own)| match &own.value {
                        Value::Text(text) if own.field == Field::Exe => Some(text),
                        _ => None,
                    });
                let is = programs
                    .into_iter()
                    .next()
                    .map(|own| own.to_str().ok() == path);
                match is {
                    Some(is) if is == (test.op == Op::Equal) => Relation::All,
                    Some(_) => Relation::None,
                    None => Relation::Some,
                }
            }
            Operand::OpenPerm => match test.value & (READ | WRITE) == READ | WRITE {
                true => Relation::All,
                false => Relation::Some,
            },
            Operand::Fields(..) | Operand::AuidSet | Operand::TaskState | Operand::UringEnter => {
                Relation::Some
            }
        }
    }

    /// Whether records of a type are not written.
    fn is_excluded(&self, kind: &str) -> bool {
        let rules = self
            .plan
            .exclude_list
            .rules()
            .iter()
            .map(|listed| &listed.rule);
        let number = table::msg_type_number(kind.as_bytes());
        number.is_some_and(|number| !record_kept(rules, List::Exclude, number, &ANYBODY))
    }
}

/// A task that no condition on a user chooses.
const ANYBODY: Actor<'static> = Actor {
    task: Task {
        ppid: u32::MAX - 1,
        pid: u32::MAX - 1,
        auid: Auid(u32::MAX - 1),
        uid: u32::MAX - 1,
        gid: u32::MAX - 1,
        euid: u32::MAX - 1,
        suid: u32::MAX - 1,
        fsuid: u32::MAX - 1,
        egid: u32::MAX - 1,
        sgid: u32::MAX - 1,
        fsgid: u32::MAX - 1,
        ses: u32::MAX - 1,
        tty: b"",
        comm: b"",
        exe: None,
        subj: None,
    },
    label: None,
};

fn excluded(kind: &str) -> String {
    format!("a rule of the list exclude drops {kind} records")
}

/// Whether a test of a number holds for events that meet conditions.
fn number_holds(field: Field, test: &Test, known: &[Condition]) -> Relation {
    for Condition(own) in known.iter().filter(|Condition(own)| own.field == field) {
        let Value::Number(value) = own.value else {
            continue;
        };
        match (own.op, test.op) {
            (Op::Equal, op) => {
                return match compare(op, value, test.value) {
                    true => Relation::All,
                    false => Relation::None,
                };
            }
            (Op::BitMask, Op::BitMask) if value & test.value == value => return Relation::All,
            (Op::BitMask, Op::BitMask) => return Relation::Some,
            _ => {}
        }
    }
    Relation::Some
}

/// Names of syscalls: those of the 64-bit ABI, and of the other one those that it has not.
fn names(syscalls: &[SyscallId]) -> String {
    let (wide, narrow): (Vec<&SyscallId>, Vec<&SyscallId>) = syscalls
        .iter()
        .partition(|syscall| syscall.arch.is_64_bit());
    let mut parts = Vec::new();
    for (syscalls, what) in [(wide, ""), (narrow, "32-bit ")] {
        let mut names: Vec<String> = syscalls.iter().map(|syscall| syscall.label()).collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(MAX_NAMES);
        names.truncate(MAX_NAMES);
        if !names.is_empty() {
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            parts.push(format!("{what}{}{more}", names.join(", ")));
        }
    }
    parts.join("; ")
}
