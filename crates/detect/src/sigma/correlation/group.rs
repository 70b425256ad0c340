//! The groups of a correlation rule, and what is remembered of each.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::definition::{Definition, Kind, MAX_VALUE_BYTES};
use super::recent::Recent;
use super::window::{Addition, EventId, Window};
use super::{Correlated, MAX_NAMED, Remembered};

/// About the bytes of a group without its texts and its window.
const GROUP_BYTES: usize = 320;
/// How long after its time an event may come whose group had no other since.
const MAX_DELAY_MS: u64 = 60_000;
/// Field that stands for the node of the log.
pub(super) const NODE: &str = "node";
/// What the key of a group has behind its values if the group is of events that came late. A task can make such an
/// event, by a call that sleeps for longer than the timespan, and must not end the window of the others so; if the clock
/// was set back, all events are late for a while.
pub(super) const LATE: &str = "late";

/// A correlation rule with its groups.
#[derive(Debug)]
pub(super) struct Correlation {
    pub(super) definition: Definition,
    /// Number of events or values that decide.
    pub(super) most: usize,
    /// The groups, that of the last event last.
    pub(super) groups: Recent<Arc<[String]>, Group>,
    /// About the bytes of the groups.
    pub(super) bytes: usize,
    max_bytes: usize,
    pub(super) forgotten: u64,
    pub(super) late: u64,
}

/// A group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Time of the newest event, in milliseconds.
    pub(super) latest_ms: u64,
    /// Time of the event that matched last.
    pub(super) matched_ms: Option<u64>,
    /// Whether the condition held with the last event.
    pub(super) holds: bool,
    pub(super) window: Window,
}

/// What an event makes of a group.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The condition does not hold.
    Silent,
    /// It holds, and did before.
    Holds,
    /// The correlation matches.
    Matches(Correlated),
}

impl Correlation {
    /// A correlation whose groups may have some bytes.
    pub(super) fn new(definition: Definition, max_bytes: usize) -> Self {
        Self {
            most: definition.condition.most(),
            definition,
            groups: Recent::default(),
            bytes: 0,
            max_bytes,
            forgotten: 0,
            late: 0,
        }
    }

    pub(super) fn forget(&mut self) {
        self.groups = Recent::default();
        self.bytes = 0;
    }

    pub(super) fn remembered(&self) -> Remembered {
        Remembered {
            groups: self.groups.len(),
            forgotten: self.forgotten,
            late: self.late,
        }
    }

    /// Whether it is about when rules match, not how often or with which values.
    pub(super) const fn is_temporal(&self) -> bool {
        matches!(
            self.definition.condition.kind,
            Kind::Temporal | Kind::TemporalOrdered
        )
    }

    /// Adds an event that a rule matched, by the number of the rule in the correlation; the rule of what is returned
    /// is for the caller to set.
    pub(super) fn add(
        &mut self,
        rule: usize,
        event: &EventId,
        context: &[(String, String)],
    ) -> Outcome {
        self.try_add(rule, event, context)
            .unwrap_or(Outcome::Silent)
    }

    /// `None` if the event has nothing that counts.
    fn try_add(
        &mut self,
        rule: usize,
        event: &EventId,
        context: &[(String, String)],
    ) -> Option<Outcome> {
        let definition = &self.definition;
        let value = |field: &super::definition::Field| -> Option<String> {
            let name = field.of_rule.get(rule)?;
            let known = context.iter().find(|(known, _)| known == name);
            match known {
                Some((_, value)) => Some(cut(value)),
                None if name == NODE => Some(cut(event.2.as_deref()?)),
                None => None,
            }
        };
        let kind = definition.condition.kind;
        let values = definition.fields.iter().map(value);
        let values: Vec<String> = values.collect::<Option<_>>()?;
        let text = values.join("\u{1f}");
        let added = match kind {
            Kind::ValueCount => Addition::Value(&text),
            Kind::ValueSum | Kind::ValueAvg => {
                let number: f64 = text.trim().parse().ok()?;
                Addition::Number(Some(number).filter(|number| number.is_finite())?)
            }
            Kind::EventCount | Kind::Temporal | Kind::TemporalOrdered => Addition::Event,
        };
        let fields = definition.group_by.iter();
        let mut key: Vec<String> = fields
            .map(|field| value(field).unwrap_or_default())
            .collect();
        let timespan_ms = definition.timespan_ms;
        self.expire(event.0.saturating_sub(timespan_ms + MAX_DELAY_MS));
        let is_late = |group: &Group| group.latest_ms > event.0.saturating_add(timespan_ms);
        if self.groups.get(key.as_slice()).is_some_and(is_late) {
            key.push(LATE.to_owned());
            self.late += 1;
        }
        let known = self.groups.take(key.as_slice());
        let known = known.inspect(|known| self.bytes -= bytes(&key, known));
        let mut group = known
            .filter(|group| !is_late(group))
            .unwrap_or_else(|| Group {
                latest_ms: event.0,
                matched_ms: None,
                holds: false,
                window: Window::new(kind, self.definition.references.len()),
            });
        let condition = &self.definition.condition;
        group.latest_ms = group.latest_ms.max(event.0);
        let now_ms = group.latest_ms;
        group.window.expire(now_ms.saturating_sub(timespan_ms));
        let has_held = group.holds;
        group.window.add(rule, event, added, self.most);
        group.holds = group.window.meets(condition);
        let is_again = || {
            let matched = group.matched_ms;
            matched.is_none_or(|matched| now_ms.saturating_sub(matched) > timespan_ms)
        };
        let outcome = if !group.holds {
            Outcome::Silent
        } else if has_held && !is_again() {
            Outcome::Holds
        } else {
            group.matched_ms = Some(now_ms);
            let (event_count, events) = group.window.events(MAX_NAMED);
            let measure = group.window.measure(kind).unwrap_or_default();
            let names = self.definition.group_by.iter();
            let names = names.map(|field| field.name.clone());
            Outcome::Matches(Correlated {
                rule: 0,
                group: names.zip(key.iter().cloned()).collect(),
                events: events.iter().map(ToString::to_string).collect(),
                event_count,
                measure: (kind.name().to_owned(), measure.to_string()),
            })
        };
        self.put(&key.into(), group);
        Some(outcome)
    }

    /// Remembers a group as the last one, and forgets the oldest if there are too many.
    pub(super) fn put(&mut self, key: &Arc<[String]>, group: Group) {
        self.bytes += bytes(key, &group);
        if let Some(before) = self.groups.put(Arc::clone(key), 0, group) {
            self.bytes -= bytes(key, &before);
        }
        while self.bytes > self.max_bytes
            && self.groups.len() > 1
            && let Some((key, group)) = self.groups.pop()
        {
            self.bytes -= bytes(&key, &group);
            self.forgotten += 1;
        }
    }

    /// Forgets the oldest groups if they have no event since a time.
    fn expire(&mut self, begin_ms: u64) {
        let is_old = |group: &Group| group.latest_ms < begin_ms;
        while self.groups.first().is_some_and(is_old) {
            if let Some((key, group)) = self.groups.pop() {
                self.bytes -= bytes(&key, &group);
            }
        }
    }
}

/// About the bytes of a group in memory.
fn bytes(key: &[String], group: &Group) -> usize {
    let texts = key.iter().map(|text| text.len() + size_of::<String>());
    GROUP_BYTES + texts.sum::<usize>() + group.window.bytes()
}

/// A value that is not too long. The rest of a longer one is a hash, so that values which begin alike stay apart.
fn cut(value: &str) -> String {
    const HEAD_BYTES: usize = MAX_VALUE_BYTES - 33;
    if value.len() <= MAX_VALUE_BYTES {
        return value.to_owned();
    }
    let head = value.get(..value.floor_char_boundary(HEAD_BYTES));
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, value).hash(&mut hasher);
        hasher.finish()
    };
    let head = head.unwrap_or_default();
    format!("{head}#{:016x}{:016x}", hash(0), hash(1))
}
