//! What an event must have so that a rule can match it.
//!
//! A rule is reduced to [`Way`]s: each event that the rule matches is one of at least one of them. What restricts
//! nothing that audit rules can choose, such as a negation or a regular expression, is left out, so ways may allow more
//! events than the rule, and never less. Two things are taken as written although Sigma ignores case: paths and keys.

mod item;
mod place;

use std::collections::{BTreeMap, BTreeSet};

use audit::plan::SyscallId;
use audit::rule::Field;
use rsigma_parser::{ConditionExpr, Detection, Detections, Quantifier};

pub use place::Place;

use super::Source;

/// Most ways of a rule. A condition that has more of them restricts less.
const MAX_WAYS: usize = 128;

/// What events of one kind must have so that a rule can match them. Each member that is not known allows all.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// Types of the record, in upper case.
    pub types: Option<BTreeSet<String>>,
    /// Syscalls.
    pub syscalls: Option<BTreeSet<SyscallId>>,
    /// Places one of which a name is at.
    pub places: Option<BTreeSet<Place>>,
    /// Whether the syscall succeeds.
    pub success: Option<bool>,
    /// Whether a connection goes out.
    pub is_initiated: Option<bool>,
    /// The name is that of a new object.
    pub creates: bool,
    /// Values of ids and arguments.
    pub numbers: BTreeMap<Field, BTreeSet<u32>>,
    /// Paths of the program.
    pub programs: Option<BTreeSet<String>>,
    /// Keys of audit rules, one of which the event must have; none of them is known if this is empty.
    pub keys: Option<BTreeSet<String>>,
    /// The rule looks at what a process is from the execution of its program on: the program, the login.
    pub tests_process: bool,
    /// The rule looks at something else that is not known here, or that a process can change.
    pub tests_other: bool,
    /// A field that no event of the log source has.
    pub absent: Option<String>,
}

/// The ways of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Log source of the rule.
    pub source: Source,
    /// The ways, sorted; none if the rule contradicts itself.
    pub ways: Vec<Way>,
    /// What the author says about the log source.
    pub definition: Option<String>,
}

impl Need {
    /// The need of a rule.
    #[must_use]
    pub(super) fn of(detections: &Detections, source: Source, definition: Option<&str>) -> Self {
        let rule = Rule { detections, source };
        let conditions = detections.conditions.iter();
        let mut ways = any(conditions.map(|condition| rule.of_condition(condition)));
        // A way that is one of another one adds nothing.
        let everything = ways.contains(&Way::default());
        ways.retain(|way| !everything || *way == Way::default());
        Self {
            source,
            ways,
            definition: definition.map(str::to_owned),
        }
    }
}

/// One of several must hold.
fn any(parts: impl Iterator<Item = Vec<Way>>) -> Vec<Way> {
    let mut ways: Vec<Way> = parts.flatten().collect();
    ways.sort_unstable();
    ways.dedup();
    match ways.len() > MAX_WAYS {
        true => vec![Way::default()],
        false => ways,
    }
}

/// All of several must hold.
fn all(parts: impl Iterator<Item = Vec<Way>>) -> Vec<Way> {
    parts.fold(vec![Way::default()], |left, right| {
        if left.len() * right.len() > MAX_WAYS {
            // Either one alone allows more.
            return match left.len() <= right.len() && left != [Way::default()] {
                true => left,
                false => right,
            };
        }
        let pairs = left
            .iter()
            .flat_map(|left| right.iter().map(move |right| left.and(right)));
        any(std::iter::once(pairs.flatten().collect()))
    })
}

/// A rule of a log source.
#[derive(Clone, Copy)]
struct Rule<'r> {
    detections: &'r Detections,
    source: Source,
}

impl Rule<'_> {
    fn of_condition(self, condition: &ConditionExpr) -> Vec<Way> {
        let of = |condition| self.of_condition(condition);
        match condition {
            ConditionExpr::And(parts) => all(parts.iter().map(of)),
            ConditionExpr::Or(parts) => any(parts.iter().map(of)),
            ConditionExpr::Not(_) => vec![Way::default()],
            ConditionExpr::Identifier(name) => match self.detections.named.get(name) {
                Some(detection) => self.of_detection(detection),
                None => vec![Way::default()],
            },
            ConditionExpr::Selector {
                quantifier,
                pattern,
            } => {
                let mut named: Vec<_> = self.detections.named.iter().collect();
                named.sort_unstable_by_key(|(name, _)| *name);
                named.retain(|(name, _)| pattern.matches_detection_name(name));
                let ways = named
                    .iter()
                    .map(|(_, detection)| self.of_detection(detection));
                match quantifier {
                    Quantifier::All => all(ways),
                    Quantifier::Any | Quantifier::Count(1..) => any(ways),
                    Quantifier::Count(0) => vec![Way::default()],
                }
            }
        }
    }

    fn of_detection(self, detection: &Detection) -> Vec<Way> {
        match detection {
            Detection::AllOf(items) => all(items
                .iter()
                .map(|item| item::ways(item, self.source).into_iter().collect())),
            Detection::AnyOf(parts) => any(parts.iter().map(|part| self.of_detection(part))),
            Detection::And(parts) => all(parts.iter().map(|part| self.of_detection(part))),
            Detection::Keywords(_)
            | Detection::ArrayMatch { .. }
            | Detection::Conditional { .. } => vec![Way::default()],
        }
    }
}

impl Way {
    /// Events of both; `None` if there are none.
    fn and(&self, other: &Self) -> Option<Self> {
        let mut numbers = self.numbers.clone();
        for (field, values) in &other.numbers {
            let known = numbers.entry(*field).or_insert_with(|| values.clone());
            known.retain(|value| values.contains(value));
            if known.is_empty() {
                return None;
            }
        }
        Some(Self {
            types: common(self.types.as_ref(), other.types.as_ref())?,
            syscalls: common(self.syscalls.as_ref(), other.syscalls.as_ref())?,
            places: narrower(self.places.as_ref(), other.places.as_ref(), |places| {
                (places.contains(&Place::Anywhere), places.len())
            }),
            success: same(self.success, other.success)?,
            is_initiated: same(self.is_initiated, other.is_initiated)?,
            creates: self.creates || other.creates,
            numbers,
            programs: narrower(self.programs.as_ref(), other.programs.as_ref(), |paths| {
                (false, paths.len())
            }),
            keys: narrower(self.keys.as_ref(), other.keys.as_ref(), |keys| {
                (keys.is_empty(), keys.len())
            }),
            tests_process: self.tests_process || other.tests_process,
            tests_other: self.tests_other || other.tests_other,
            absent: self.absent.clone().or_else(|| other.absent.clone()),
        })
    }
}

/// Members of both sets; `None` if there are none.
#[expect(
    clippy::option_option,
    reason = "the inner one is a set that is not known"
)]
fn common<T: Ord + Clone>(
    left: Option<&BTreeSet<T>>,
    right: Option<&BTreeSet<T>>,
) -> Option<Option<BTreeSet<T>>> {
    match (left, right) {
        (Some(left), Some(right)) => {
            let both: BTreeSet<T> = left.intersection(right).cloned().collect();
            (!both.is_empty()).then_some(Some(both))
        }
        (set, other) => Some(set.or(other).cloned()),
    }
}

/// The set of less order. Both hold, but members may overlap.
fn narrower<T: Ord + Clone, O: Ord>(
    left: Option<&BTreeSet<T>>,
    right: Option<&BTreeSet<T>>,
    order: impl Fn(&BTreeSet<T>) -> O,
) -> Option<BTreeSet<T>> {
    match (left, right) {
        (Some(left), Some(right)) if order(right) < order(left) => Some(right.clone()),
        (set, other) => set.or(other).cloned(),
    }
}

#[expect(
    clippy::option_option,
    reason = "the inner one is a value that is not known"
)]
fn same(left: Option<bool>, right: Option<bool>) -> Option<Option<bool>> {
    match (left, right) {
        (Some(left), Some(right)) if left != right => None,
        (value, other) => Some(value.or(other)),
    }
}

#[cfg(test)]
mod tests;
