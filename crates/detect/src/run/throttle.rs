//! Which alerts are shown: the first of each rule and entity within a window, and not more than so many a minute.
//!
//! What is left out is counted and told: with the next alert of the rule and entity after the window, or when the window
//! is over, and in a summary of the rate limit. Memory is bounded; what must be forgotten is told before.
//!
//! The first alert of a rule and user in a minute is shown above the rate too: who makes many alerts of one rule hides
//! no other.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use crate::alert::{Alert, Kind};

/// Most rules and entities that are remembered.
const MAX_ENTITIES: usize = 4096;
/// Most bytes of their alerts, most of which can be texts that users chose.
const MAX_BYTES: usize = 16 << 20;
/// Minutes that an event may be older than the one before without a new count.
const MAX_DISORDER_MINUTES: u64 = 10;
/// Most rules in a summary of the rate limit.
const MAX_SUMMARY: usize = 64;

/// Bounds of what is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Time in which events of one rule and entity are one alert; 0 for each event.
    ///
    /// # Units
    /// Seconds of the log's time.
    pub(super) window_secs: u64,
    /// Most alerts in a minute, but for the first of each rule and user; summaries are not counted.
    pub(super) per_minute: usize,
}

/// Decides about alerts.
#[derive(Debug)]
pub(super) struct Throttle {
    limits: Limits,
    hasher: RandomState,
    entities: HashMap<u64, Entity>,
    /// Entities by the begin of their windows.
    order: VecDeque<(u64, u64)>,
    /// Bytes of the alerts of all entities.
    bytes: usize,
    /// The minute, and how many alerts it has.
    minute: (u64, usize),
    /// Rules and users with an alert in the minute.
    shown: HashSet<u64>,
    /// The last alert that the rate limit left out, and their numbers by rule.
    left_out: Option<Alert>,
    by_rule: BTreeMap<String, u64>,
    left_out_count: u64,
}

/// A rule and entity.
#[derive(Debug)]
struct Entity {
    first: Alert,
    repeated: u64,
}

impl Throttle {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            hasher: RandomState::new(),
            entities: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            minute: (0, 0),
            shown: HashSet::new(),
            left_out: None,
            by_rule: BTreeMap::new(),
            left_out_count: 0,
        }
    }

    /// Takes an alert, and passes what is to be shown.
    pub(super) fn take(&mut self, alert: Alert, show: &mut Vec<Alert>) {
        self.expire(alert.time.sec, show);
        if self.limits.window_secs == 0 {
            return self.limit(alert, show);
        }
        let key = self.key(&alert);
        if let Some(entity) = self.entities.get_mut(&key) {
            entity.repeated += 1;
            return;
        }
        self.bytes += alert.text_bytes();
        while !self.order.is_empty()
            && (self.entities.len() >= MAX_ENTITIES || self.bytes > MAX_BYTES)
        {
            self.end_oldest(show);
        }
        self.order.push_back((alert.time.sec, key));
        let entity = Entity {
            first: alert.clone(),
            repeated: 0,
        };
        self.entities.insert(key, entity);
        self.limit(alert, show);
    }

    /// Ends windows at a time of the log.
    pub(super) fn expire(&mut self, now_secs: u64, show: &mut Vec<Alert>) {
        let window = self.limits.window_secs;
        // The clock may have been set back.
        let is_over = |begin: u64| now_secs.abs_diff(begin) >= window;
        while self.order.front().is_some_and(|(begin, _)| is_over(*begin)) {
            self.end_oldest(show);
        }
    }

    /// Ends all windows.
    pub(super) fn end(&mut self, show: &mut Vec<Alert>) {
        while !self.order.is_empty() {
            self.end_oldest(show);
        }
        self.summarise(show);
    }

    /// Whether alerts were left out by the rate limit that no summary has told.
    pub(super) const fn has_left_out(&self) -> bool {
        self.left_out.is_some()
    }

    /// Tells what the rate limit left out.
    pub(super) fn summarise(&mut self, show: &mut Vec<Alert>) {
        if let Some(last) = self.left_out.take() {
            let by_rule = std::mem::take(&mut self.by_rule).into_iter().collect();
            let count = std::mem::take(&mut self.left_out_count);
            show.push(Alert::left_out(&last, count, by_rule));
        }
    }

    fn key(&self, alert: &Alert) -> u64 {
        let group = alert
            .correlated
            .as_ref()
            .map(|correlated| &correlated.group);
        self.hasher
            .hash_one((self.rule_and_user(alert), &alert.subject.image, group))
    }

    fn rule_and_user(&self, alert: &Alert) -> u64 {
        let subject = &alert.subject;
        let user = subject.user.as_ref().map(|(uid, _)| uid);
        let login = subject.login.as_ref().map(|(uid, _)| uid);
        self.hasher
            .hash_one((&alert.rule.id, &alert.node, user, login))
    }

    fn end_oldest(&mut self, show: &mut Vec<Alert>) {
        let Some((_, key)) = self.order.pop_front() else {
            return;
        };
        if let Some(Entity {
            mut first,
            repeated,
        }) = self.entities.remove(&key)
        {
            self.bytes -= first.text_bytes();
            if repeated > 0 {
                first.kind = Kind::Repeated(repeated);
                self.limit(first, show);
            }
        }
    }

    /// Shows an alert unless the minute has too many.
    fn limit(&mut self, alert: Alert, show: &mut Vec<Alert>) {
        let minute = alert.time.sec / 60;
        // Events of several nodes are not in order; a clock that was set back must not stop alerts.
        if minute > self.minute.0 || minute + MAX_DISORDER_MINUTES < self.minute.0 {
            self.minute = (minute, 0);
            self.shown.clear();
        }
        let rule_and_user = self.rule_and_user(&alert);
        let is_first = alert.kind == Kind::New
            && self.shown.len() < MAX_ENTITIES
            && self.shown.insert(rule_and_user);
        if is_first || self.minute.1 < self.limits.per_minute {
            self.minute.1 += 1;
            show.push(alert);
            return;
        }
        let count = alert.kind.count();
        self.left_out_count += count;
        let is_known = self.by_rule.contains_key(&alert.rule.id);
        let name = match is_known || self.by_rule.len() < MAX_SUMMARY {
            true => alert.rule.id.clone(),
            false => "others".to_owned(),
        };
        *self.by_rule.entry(name).or_default() += count;
        let last = self.left_out.as_ref();
        // The summary is as severe as the most severe of them.
        if last.is_none_or(|last| alert.rule.level >= last.rule.level) {
            self.left_out = Some(alert);
        }
    }
}

#[cfg(test)]
mod tests;
