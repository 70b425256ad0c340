//! What correlation rules remember, as text that the next run reads.
//!
//! The text is of one version and names the position in the log to which it belongs. It is untrusted: what is larger
//! than windows become, or has another form than a rule of today, is left out.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Correlations;
use super::definition::{Definition, MAX_VALUE_BYTES};
use super::group::{Group, LATE};
use super::recent::Recent;
use super::window::{EventId, Link, Number, Window};

/// Version of the text: another one cannot be read.
const VERSION: u32 = 1;
/// Most bytes of a text that is read. In memory groups have at most 16 MiB; a control character, which users can put
/// into the values of a group, has six bytes in the text.
pub const MAX_TEXT_BYTES: u64 = 128 << 20;
/// Most bytes of the name of a node.
pub(super) const MAX_NODE_BYTES: usize = 255;

/// The text.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    version: u32,
    /// Position in the log behind the last event that was added.
    pub cursor: String,
    /// The position that was saved before, to which the state may belong yet.
    pub before: Option<String>,
    rules: Vec<SavedRule>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedRule {
    id: String,
    definition: u64,
    forgotten: u64,
    late: u64,
    groups: Vec<SavedGroup>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedGroup {
    key: Vec<String>,
    latest_ms: u64,
    matched_ms: Option<u64>,
    holds: bool,
    window: SavedWindow,
}

#[derive(Debug, Serialize, Deserialize)]
enum SavedWindow {
    Events(Vec<EventId>),
    Values(Vec<(String, EventId)>),
    Rules(Vec<Option<EventId>>),
    Order(Vec<Link>),
    Numbers(Vec<Number>),
}

impl Saved {
    /// Reads a text.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let saved: Self = serde_json::from_str(text)?;
        anyhow::ensure!(
            saved.version == VERSION,
            "it has version {}, and this program reads {VERSION}",
            saved.version
        );
        Ok(saved)
    }
}

impl Correlations {
    /// What is remembered, for a position in the log.
    #[must_use]
    pub fn save(&self, cursor: String) -> Saved {
        let rules = self.rules.iter().zip(&self.correlations);
        let rules = rules.map(|(rule, own)| SavedRule {
            id: rule.id.clone(),
            definition: own.definition.fingerprint(),
            forgotten: own.forgotten,
            late: own.late,
            groups: own.groups.iter().map(SavedGroup::of).collect(),
        });
        Saved {
            version: VERSION,
            cursor,
            before: None,
            rules: rules.collect(),
        }
    }

    /// Remembers what was saved. Returns the number of groups that are left out, because their rule is another one.
    pub fn restore(&mut self, saved: Saved) -> usize {
        let rules = self.rules.iter().enumerate();
        let numbers: HashMap<String, usize> = rules
            .map(|(number, rule)| (rule.id.clone(), number))
            .collect();
        let mut left_out = 0;
        for rule in saved.rules {
            let number = numbers.get(&rule.id);
            let known = number.and_then(|number| self.correlations.get_mut(*number));
            match known.filter(|known| known.definition.fingerprint() == rule.definition) {
                Some(known) => {
                    known.late = rule.late;
                    known.forgotten = rule.forgotten;
                    for group in rule.groups {
                        match group.checked(&known.definition, known.most) {
                            Some((key, group)) => known.put(&key, group),
                            None => left_out += 1,
                        }
                    }
                }
                None => left_out += rule.groups.len(),
            }
        }
        left_out
    }
}

impl SavedGroup {
    fn of((key, group): (&Arc<[String]>, &Group)) -> Self {
        Self {
            key: key.to_vec(),
            latest_ms: group.latest_ms,
            matched_ms: group.matched_ms,
            holds: group.holds,
            window: match &group.window {
                Window::Events(events) => SavedWindow::Events(events.iter().cloned().collect()),
                Window::Values(values, _) => {
                    let values = values.iter();
                    let values = values.map(|(text, event)| (text.clone(), event.clone()));
                    SavedWindow::Values(values.collect())
                }
                Window::Rules(events) => SavedWindow::Rules(events.clone()),
                Window::Order(links) => SavedWindow::Order(links.clone()),
                Window::Numbers(numbers) => SavedWindow::Numbers(numbers.iter().cloned().collect()),
            },
        }
    }

    /// The group, if it is one of a definition.
    fn checked(self, definition: &Definition, most: usize) -> Option<(Arc<[String]>, Group)> {
        let is_short = |text: &String| text.len() <= MAX_VALUE_BYTES;
        let rules = definition.references.len();
        let is_key = match self.key.len().checked_sub(definition.group_by.len()) {
            Some(0) => true,
            Some(1) => self.key.last().is_some_and(|last| last == LATE),
            _ => false,
        };
        if !is_key || !self.key.iter().all(is_short) {
            return None;
        }
        let mut window = Window::new(definition.condition.kind, rules);
        match (&mut window, self.window) {
            (Window::Events(known), SavedWindow::Events(events)) if events.len() <= most => {
                *known = sorted(events, |event| event)?;
            }
            (Window::Values(known, bytes), SavedWindow::Values(values)) if values.len() <= most => {
                let is_short =
                    |text: &String| text.len() <= definition.fields.len() * (MAX_VALUE_BYTES + 1);
                let mut all = Recent::default();
                for (text, event) in values {
                    *bytes += text.len();
                    let is_good = is_known(&event) && is_short(&text);
                    if !is_good || all.put(text, event.0, event).is_some() {
                        return None;
                    }
                }
                *known = all;
            }
            (Window::Rules(known), SavedWindow::Rules(events)) if events.len() == rules => {
                events.iter().flatten().all(is_known).then_some(())?;
                *known = events;
            }
            (Window::Order(known), SavedWindow::Order(links)) if links.len() == rules => {
                let is_link = |(number, link): (usize, &Link)| {
                    let Link { last, chain } = link;
                    (chain.is_empty() || chain.len() == number + 1)
                        && chain.iter().chain(last).all(is_known)
                };
                links.iter().enumerate().all(is_link).then_some(())?;
                *known = links;
            }
            (Window::Numbers(known), SavedWindow::Numbers(numbers))
                if numbers.len() <= super::window::MAX_NUMBERS
                    && numbers.iter().all(|number| number.sum.is_finite()) =>
            {
                *known = sorted(numbers, |number| &number.event)?;
            }
            _ => return None,
        }
        let group = Group {
            latest_ms: self.latest_ms,
            matched_ms: self.matched_ms,
            holds: self.holds,
            window,
        };
        Some((self.key.into(), group))
    }
}

/// Whether an event can be one: times are those that dates have.
fn is_known(event: &EventId) -> bool {
    const MAX_MS: u64 = 1 << 53;
    let node = event.2.as_ref();
    event.0 <= MAX_MS && node.is_none_or(|node| node.len() <= MAX_NODE_BYTES)
}

/// Events in the order of their times; `None` if they are not.
fn sorted<T>(all: Vec<T>, event: impl Fn(&T) -> &EventId) -> Option<VecDeque<T>> {
    let is_sorted = all.is_sorted_by_key(|one| event(one).0);
    let is_good = is_sorted && all.iter().all(|one| is_known(event(one)));
    is_good.then(|| all.into())
}
