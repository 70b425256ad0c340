//! What is remembered of the events of one group of a correlation rule.
//!
//! A window keeps only what decides about the condition, so that no number of events makes it large or hides a match:
//! of events and values, one more than the condition counts, the newest; of rules the last event, and of an order the
//! last chain up to each rule.

use std::collections::VecDeque;

use audit::record::assemble::EventRecords;
use bstr::ByteSlice as _;
use serde::{Deserialize, Serialize};

use super::definition::{Condition, Kind};
use super::recent::Recent;
use super::saved::MAX_NODE_BYTES;

/// Most numbers of a window that sums; the oldest ones of more are added up.
pub(super) const MAX_NUMBERS: usize = 1000;
/// About the bytes of an event, and of a value without its text, in memory.
pub(super) const EVENT_BYTES: usize = 48;
pub(super) const VALUE_BYTES: usize = 160;

/// An event: its time in milliseconds since the epoch, its serial, and the node of the log that has nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventId(
    /// Milliseconds since the epoch.
    pub u64,
    /// Serial.
    pub u32,
    /// Node.
    pub Option<Box<str>>,
);

impl EventId {
    /// The event of some records.
    #[must_use]
    pub fn of(event: &EventRecords) -> Self {
        let time = event.time();
        let seconds = time.sec.saturating_mul(1000);
        let node = event.node().map(|node| {
            let node = node.to_str_lossy();
            let end = node.floor_char_boundary(MAX_NODE_BYTES);
            node.get(..end).unwrap_or_default().into()
        });
        Self(
            seconds.saturating_add(time.milli.into()),
            event.serial().0,
            node,
        )
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(ms, serial, node) = self;
        write!(f, "{}.{:03}:{serial}", ms / 1000, ms % 1000)?;
        node.iter().try_for_each(|node| write!(f, ":{node}"))
    }
}

/// A number of an event, or the sum of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Number {
    /// The newest of the events.
    pub(super) event: EventId,
    pub(super) sum: f64,
    pub(super) count: u64,
}

/// What leads to a rule in an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    /// The last event of the rule.
    pub(super) last: Option<EventId>,
    /// Events of all rules before it and of it, in their order; those that begin last, and none without such events.
    pub(super) chain: Vec<EventId>,
}

/// What is remembered.
#[derive(Clone, Debug)]
pub(super) enum Window {
    /// Events by time.
    Events(VecDeque<EventId>),
    /// Values with the last event of each, by its time, and the bytes of their texts.
    Values(Recent<String, EventId>, usize),
    /// The last event of each rule.
    Rules(Vec<Option<EventId>>),
    /// What leads to each rule in an order.
    Order(Vec<Link>),
    /// Numbers by time.
    Numbers(VecDeque<Number>),
}

/// What an event adds to a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Addition<'e> {
    /// The event itself.
    Event,
    /// A value of it.
    Value(&'e str),
    /// A number of it.
    Number(f64),
}

impl Window {
    /// An empty window of a correlation of some rules.
    pub(super) fn new(kind: Kind, rules: usize) -> Self {
        match kind {
            Kind::EventCount => Self::Events(VecDeque::new()),
            Kind::ValueCount => Self::Values(Recent::default(), 0),
            Kind::Temporal => Self::Rules(vec![None; rules]),
            Kind::TemporalOrdered => Self::Order(vec![Link::default(); rules]),
            Kind::ValueSum | Kind::ValueAvg => Self::Numbers(VecDeque::new()),
        }
    }

    /// Forgets events before a time.
    pub(super) fn expire(&mut self, begin_ms: u64) {
        let is_old = |event: &EventId| event.0 < begin_ms;
        match self {
            Self::Events(events) => while events.pop_front_if(|event| is_old(event)).is_some() {},
            Self::Values(values, bytes) => {
                while values.oldest().is_some_and(|ms| ms < begin_ms) {
                    *bytes -= values.pop().map_or(0, |(text, _)| text.len());
                }
            }
            Self::Rules(events) => {
                for event in events {
                    event.take_if(|event| is_old(event));
                }
            }
            Self::Order(links) => {
                for link in links {
                    link.last.take_if(|event| is_old(event));
                    // All of its events are in the time if the first one is.
                    if link.chain.first().is_some_and(is_old) {
                        link.chain.clear();
                    }
                }
            }
            Self::Numbers(numbers) => {
                while numbers
                    .pop_front_if(|number| is_old(&number.event))
                    .is_some()
                {}
            }
        }
    }

    /// Adds an event that a rule matched, by the number of the rule in the correlation. `most` is the number of events
    /// or values that decide.
    pub(super) fn add(&mut self, rule: usize, event: &EventId, added: Addition<'_>, most: usize) {
        match (self, added) {
            (Self::Events(events), _) => {
                insert(events, event.clone(), |event| event);
                if events.len() > most {
                    events.pop_front();
                }
            }
            (Self::Values(values, bytes), Addition::Value(text)) => {
                let before = values.take(text);
                if before.is_none() {
                    *bytes += text.len();
                }
                let newest = before.filter(|before| before.0 > event.0);
                let newest = newest.unwrap_or_else(|| event.clone());
                values.put(text.to_owned(), newest.0, newest);
                if values.len() > most {
                    *bytes -= values.pop().map_or(0, |(text, _)| text.len());
                }
            }
            (Self::Rules(events), _) => {
                if let Some(last) = events.get_mut(rule)
                    && last.as_ref().is_none_or(|last| last.0 <= event.0)
                {
                    *last = Some(event.clone());
                }
            }
            (Self::Order(links), _) => add_to_order(links, rule, event),
            (Self::Numbers(numbers), Addition::Number(sum)) => {
                let number = Number {
                    event: event.clone(),
                    sum,
                    count: 1,
                };
                insert(numbers, number, |number| &number.event);
                if numbers.len() > MAX_NUMBERS
                    && let Some(oldest) = numbers.pop_front()
                    && let Some(next) = numbers.front_mut()
                {
                    // An infinite one could not be saved.
                    next.sum = (next.sum + oldest.sum).clamp(f64::MIN, f64::MAX);
                    next.count = next.count.saturating_add(oldest.count);
                }
            }
            (Self::Values(..) | Self::Numbers(_), _) => {}
        }
    }

    /// What the condition is compared with; `None` if there is nothing to compare.
    pub(super) fn measure(&self, kind: Kind) -> Option<f64> {
        let count = |count: usize| Some(u32::try_from(count).map_or(f64::MAX, f64::from));
        match self {
            Self::Events(events) => count(events.len()),
            Self::Values(values, _) => count(values.len()),
            Self::Rules(events) => count(events.iter().flatten().count()),
            Self::Order(links) => {
                let complete = links.iter().rposition(|link| !link.chain.is_empty());
                count(complete.map_or(0, |last| last + 1))
            }
            Self::Numbers(numbers) => {
                let sum: f64 = numbers.iter().map(|number| number.sum).sum();
                let counts = numbers.iter().map(|number| number.count);
                let number = counts.fold(0, u64::saturating_add);
                let number = u32::try_from(number).map_or(f64::MAX, f64::from);
                match kind {
                    _ if numbers.is_empty() => None,
                    Kind::ValueAvg => Some(sum / number),
                    _ => Some(sum),
                }
            }
        }
    }

    /// Whether a condition holds.
    pub(super) fn meets(&self, condition: &Condition) -> bool {
        let measure = self.measure(condition.kind);
        measure.is_some_and(|measure| condition.holds(measure))
    }

    /// Number of events that are remembered, and the last of them, oldest first.
    pub(super) fn events(&self, most: usize) -> (usize, Vec<&EventId>) {
        let mut events: Vec<&EventId> = match self {
            Self::Events(events) => events.iter().collect(),
            Self::Values(values, _) => values.iter().map(|(_, event)| event).collect(),
            Self::Rules(events) => events.iter().flatten().collect(),
            Self::Order(links) => {
                let longest = links.iter().rfind(|link| !link.chain.is_empty());
                let longest = longest.into_iter();
                longest.flat_map(|link| &link.chain).collect()
            }
            Self::Numbers(numbers) => numbers.iter().map(|number| &number.event).collect(),
        };
        if matches!(self, Self::Rules(_)) {
            events.sort_by_key(|event| (event.0, event.1));
        }
        events.dedup();
        let first = events.len().saturating_sub(most);
        (events.len(), events.split_off(first))
    }

    /// About the bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Events(events) => events.len() * EVENT_BYTES,
            Self::Values(values, bytes) => values.len() * VALUE_BYTES + 2 * bytes,
            Self::Rules(events) => events.len() * EVENT_BYTES,
            Self::Order(links) => {
                let events: usize = links.iter().map(|link| link.chain.len()).sum();
                (events + 2 * links.len()) * EVENT_BYTES
            }
            Self::Numbers(numbers) => numbers.len() * 2 * EVENT_BYTES,
        }
    }
}

/// Most bytes of a window, about, if no text has more than a number of bytes.
pub(super) fn max_bytes(kind: Kind, rules: usize, most: usize, text_bytes: usize) -> usize {
    match kind {
        Kind::EventCount => (most + 1).saturating_mul(EVENT_BYTES),
        Kind::ValueCount => (most + 1).saturating_mul(VALUE_BYTES + 2 * text_bytes),
        Kind::Temporal => rules.saturating_mul(EVENT_BYTES),
        Kind::TemporalOrdered => rules.saturating_mul(rules + 2).saturating_mul(EVENT_BYTES),
        Kind::ValueSum | Kind::ValueAvg => (MAX_NUMBERS + 1) * 2 * EVENT_BYTES,
    }
}

/// Adds an event of a rule to an order. Records of an event come when its syscall ends, and the time is that of its
/// begin, so that the event may come after one that is later.
fn add_to_order(links: &mut [Link], rule: usize, event: &EventId) {
    let moment = |event: &EventId| (event.0, event.1);
    if let Some(link) = links.get_mut(rule)
        && link
            .last
            .as_ref()
            .is_none_or(|last| moment(last) <= moment(event))
    {
        link.last = Some(event.clone());
    }
    let mut event = event.clone();
    for number in rule..links.len() {
        let before = match number.checked_sub(1) {
            None => Some(Vec::new()),
            Some(before) => links
                .get(before)
                .filter(|link| !link.chain.is_empty())
                .map(|link| link.chain.clone()),
        };
        let is_behind = |chain: &Vec<EventId>| {
            let last = chain.last();
            last.is_none_or(|last| *last != event && moment(last) <= moment(&event))
        };
        let Some(mut chain) = before.filter(is_behind) else {
            return;
        };
        chain.push(event);
        let Some(link) = links.get_mut(number) else {
            return;
        };
        let begin = |chain: &[EventId]| chain.first().map(moment);
        if begin(&link.chain) <= begin(&chain) {
            link.chain = chain;
        }
        let next = links.get(number + 1);
        let Some(last) = next.and_then(|link| link.last.clone()) else {
            return;
        };
        event = last;
    }
}

/// Inserts by time; most events are the newest. An event that is there is not counted twice.
fn insert<T>(all: &mut VecDeque<T>, new: T, event: impl Fn(&T) -> &EventId) {
    let ms = event(&new).0;
    let is_later = |known: &&T| event(known).0 > ms;
    let at = all.len() - all.iter().rev().take_while(is_later).count();
    let mut before = all.range(..at).rev();
    let mut same = before.by_ref().take_while(|known| event(known).0 == ms);
    if !same.any(|known| event(known) == event(&new)) {
        all.insert(at, new);
    }
}
