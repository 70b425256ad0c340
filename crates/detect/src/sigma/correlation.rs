//! Correlation rules: several events, or none of them alone, are the alert.
//!
//! Each match of a rule that a correlation refers to is added to the window of its group, and the condition is evaluated
//! then, by the times of the events and not by the clock. A correlation matches with an event of a group for which its
//! condition holds, if it did not hold with the event before, or if a timespan has passed since the last match. Its match
//! is an event for correlations that refer to it; for temporal ones, each event for which its condition holds is one.
//!
//! The engine is our own and not that of `rsigma-eval`: it must evaluate the matches of [`super::Engine`], which decides
//! fast which rules to evaluate; tell what it forgets, and forget nothing of one rule because of another, as users
//! choose the values of groups; keep of a group only what decides; and name the events of a match. `rsigma-eval` has one
//! bound for all rules, beyond which it drops a tenth of all groups, and counts in seconds.
//!
//! What is remembered is kept with the position in the log ([`saved`]) and not made again by reading the log from the
//! begin of the longest window: that log may be days long and rotated away, and the rules that look at parents of
//! processes would not match the same events with another table of processes.
//!
//! # Source
//! Sigma specification 2.1.0, "Sigma Correlation Rules".

mod definition;
mod group;
mod recent;
mod resolve;
pub mod saved;
mod window;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Value, json};

use super::need::Need;
use super::{Match, Rule};
use group::{Correlation, Outcome};
pub use resolve::resolve;
pub use window::EventId;

/// Most events of a match that are named.
const MAX_NAMED: usize = 16;

/// A correlation rule that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correlated {
    /// Number of the rule: those of the engine come first.
    pub rule: usize,
    /// Fields by which it groups, with their values.
    pub group: Vec<(String, String)>,
    /// The last of the events that led to it, by `TIME:SERIAL` and the node.
    pub events: Vec<String>,
    /// Number of these events that are remembered.
    pub event_count: usize,
    /// What was compared, and its value.
    pub measure: (String, String),
}

impl Correlated {
    /// The group and the events as JSON.
    pub(crate) fn as_json(&self) -> Value {
        let group = self.group.iter();
        let group = group.map(|(name, value)| json!({"name": name, "value": value}));
        json!({
            "group": group.collect::<Vec<_>>(),
            "events": self.events,
            "event_count": self.event_count,
        })
    }

    /// Bytes of the texts.
    pub(crate) fn text_bytes(&self) -> usize {
        let group = self.group.iter().map(|(_, value)| value.len());
        let events = self.events.iter().map(String::len);
        group.chain(events).sum()
    }
}

/// Numbers of what is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Groups.
    pub groups: usize,
    /// Groups that were forgotten before their time, because there were too many.
    pub forgotten: u64,
    /// Events that came after others of their group that were more than a timespan later.
    pub late: u64,
}

/// The correlation rules, and what they remember.
#[derive(Debug, Default)]
pub struct Correlations {
    /// Number of rules of the engine.
    first: usize,
    rules: Vec<Rule>,
    correlations: Vec<Correlation>,
    /// The place of each in an order in which those come first to which others refer.
    ranks: Vec<usize>,
    /// Numbers of the rules of the engine that each rule needs.
    needs: Vec<Vec<usize>>,
    /// Correlations, and the numbers in them, of each rule to which some refer.
    references: HashMap<usize, Vec<(usize, usize)>>,
    /// Rules whose matches are no alerts.
    silent: HashSet<usize>,
    /// Whether it was told that something is forgotten.
    has_told: bool,
}

impl Correlations {
    /// The rules; the first has the number after those of the engine.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Numbers of the rules of the engine whose matches a rule needs, by its number; none for one of the engine.
    #[must_use]
    pub fn needed_by(&self, rule: usize) -> &[usize] {
        let own = rule.checked_sub(self.first);
        let needs = own.and_then(|own| self.needs.get(own));
        needs.map_or(&[], Vec::as_slice)
    }

    /// What events must have so that a rule can match, by its number, of all needs of the engine.
    #[must_use]
    pub fn needs_of<'n>(&self, rule: usize, all: &'n [Need]) -> Vec<&'n Need> {
        match rule.checked_sub(self.first) {
            None => all.get(rule).into_iter().collect(),
            Some(_) => {
                let needed = self.needed_by(rule).iter();
                needed.filter_map(|rule| all.get(*rule)).collect()
            }
        }
    }

    /// Whether matches of a rule are no alerts, because a correlation without `generate` refers to it.
    #[must_use]
    pub fn is_silent(&self, rule: usize) -> bool {
        self.silent.contains(&rule)
    }

    /// Adds the matches of an event, and appends the correlations that match with it.
    pub fn find(&mut self, event: &EventId, found: &[Match], matched: &mut Vec<Correlated>) {
        if self.references.is_empty() {
            return;
        }
        // Those to which others refer come first, and of an order the last rule: an event does not come before itself.
        let ranks = &self.ranks;
        let mut count = 0;
        let mut key = |number: usize, in_it: usize| {
            count += 1;
            (ranks.get(number).copied(), Reverse(in_it), count)
        };
        let mut pending = BTreeMap::new();
        for found in found {
            for context in &found.contexts {
                for &(number, in_it) in self.references.get(&found.rule).into_iter().flatten() {
                    pending.insert(key(number, in_it), (number, in_it, context));
                }
            }
        }
        // A correlation refers to no rule that refers to it, and gets a match once from each of its rules.
        let mut seen = HashSet::new();
        while let Some((_, (number, in_it, context))) = pending.pop_first() {
            let Some(correlation) = self.correlations.get_mut(number) else {
                continue;
            };
            if !seen.insert((number, in_it, std::ptr::from_ref(context))) {
                continue;
            }
            let outcome = correlation.add(in_it, event, context);
            if matches!(outcome, Outcome::Silent) {
                continue;
            }
            let rule = self.first + number;
            let outer = self.references.get(&rule).into_iter().flatten();
            let is_match = matches!(outcome, Outcome::Matches(_));
            let takes = |number: usize| {
                let outer = self.correlations.get(number);
                is_match || outer.is_some_and(Correlation::is_temporal)
            };
            for &(number, in_it) in outer.filter(|(number, _)| takes(*number)) {
                pending.insert(key(number, in_it), (number, in_it, context));
            }
            if let Outcome::Matches(mut correlated) = outcome {
                correlated.rule = rule;
                matched.push(correlated);
            }
        }
    }

    /// Forgets all events.
    pub fn forget(&mut self) {
        self.correlations.iter_mut().for_each(Correlation::forget);
    }

    /// Numbers of what is remembered.
    #[must_use]
    pub fn remembered(&self) -> Remembered {
        let all = self.correlations.iter().map(Correlation::remembered);
        all.fold(Remembered::default(), |sum, own| Remembered {
            groups: sum.groups + own.groups,
            forgotten: sum.forgotten.saturating_add(own.forgotten),
            late: sum.late.saturating_add(own.late),
        })
    }

    /// What to tell, once, if a group was forgotten.
    pub fn warning(&mut self) -> Option<String> {
        if self.has_told {
            return None;
        }
        let mut forgetful = self.correlations.iter().zip(&self.rules);
        let (_, rule) = forgetful.find(|(own, _)| own.remembered().forgotten > 0)?;
        self.has_told = true;
        Some(format!(
            "correlation rule `{}` has too many groups: the oldest are forgotten, and what they would match is not \
             found; `tollgate detect status` has their number. Group by fields with fewer values",
            rule.title
        ))
    }
}

#[cfg(test)]
mod tests;
