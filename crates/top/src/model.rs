//! What is shown: rates and tables, computed from two states of the daemon and the events in between.
//!
//! Counts of rules and losses are those of the daemon, and exact. Programs, users and keys are counted in the events
//! that arrive; if those are a sample, each stands for as many as were skipped.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use serde::Serialize;

use crate::control::Filter;
use crate::status::{RuleCosts, Status};
use crate::stream::{OTHERS, Sample, float};
use crate::users::Users;

/// Intervals over which programs, users and keys are counted.
const SAMPLES: usize = 5;
/// Intervals of the curve.
pub(crate) const HISTORY: usize = 240;
/// Reasons that do not belong to the kernel side.
const DAEMON_REASONS: [&str; 2] = ["rate limit", "not decodable"];
const LOG_REASON: &str = "not written";

/// Everything that is shown.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) status: Status,
    pub(crate) costs: RuleCosts,
    /// Why the daemon does not answer.
    pub(crate) error: Option<String>,
    /// Events per second, newest last.
    pub(crate) history: VecDeque<u64>,
    /// Rates of the last interval.
    pub(crate) rates: Rates,
    rule_rates: HashMap<String, f64>,
    loss_rates: HashMap<(&'static str, String), f64>,
    samples: VecDeque<(Sample, f64)>,
    pub(crate) users: Users,
}

/// Events per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) matched: f64,
    pub(crate) written: f64,
    pub(crate) lost: f64,
    /// Share of one CPU that the BPF programs take; `None` unless `kernel.bpf_stats_enabled` is 1.
    pub(crate) programs: Option<f64>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RuleRow {
    pub(crate) rule: String,
    pub(crate) keys: Vec<String>,
    pub(crate) cost: String,
    pub(crate) syscalls: Option<u64>,
    pub(crate) per_second: f64,
    pub(crate) share: f64,
    pub(crate) matched: u64,
    pub(crate) lost: u64,
}

/// A program, a user or a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct NameRow {
    pub(crate) name: String,
    pub(crate) per_second: f64,
    pub(crate) share: f64,
    #[serde(skip)]
    pub(crate) filter: Filter,
}

/// A reason for lost or incomplete events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LossRow {
    pub(crate) stage: &'static str,
    pub(crate) reason: String,
    pub(crate) per_second: f64,
    pub(crate) total: u64,
}

/// Order of rules; other tables are in the order of their rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RuleOrder {
    #[default]
    Rate,
    Total,
    Lost,
    /// As they are evaluated.
    List,
}

impl RuleOrder {
    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Rate => Self::Total,
            Self::Total => Self::Lost,
            Self::Lost => Self::List,
            Self::List => Self::Rate,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rate => "events/s",
            Self::Total => "total",
            Self::Lost => "lost",
            Self::List => "list",
        }
    }
}

impl Model {
    /// Nothing yet, with these users.
    pub(crate) fn new(users: Users) -> Self {
        Self {
            users,
            ..Self::default()
        }
    }

    /// Takes over the state of the daemon after an interval.
    pub(crate) fn update(&mut self, status: Status, passed: Duration) {
        let before = &self.status;
        // Counters of another daemon start anew.
        let is_same = before.settings.pid == status.settings.pid
            && before.counts.matched <= status.counts.matched
            && self.error.is_none();
        let seconds = passed.as_secs_f64();
        let rate = |before: u64, now: u64| {
            if is_same && seconds > 0.0 {
                float(now.saturating_sub(before)) / seconds
            } else {
                0.0
            }
        };
        let run_time = |status: &Status| status.runs.iter().map(|run| run.nanoseconds).sum();
        self.rates = Rates {
            matched: rate(before.counts.matched, status.counts.matched),
            written: rate(before.counts.written, status.counts.written),
            lost: rate(lost(before), lost(&status)),
            programs: (is_same && !before.runs.is_empty() && !status.runs.is_empty())
                .then(|| rate(run_time(before), run_time(&status)) / 1e9),
        };
        let old_rules: HashMap<&str, u64> = before
            .by_rule
            .iter()
            .map(|rule| (rule.rule.0.as_str(), rule.matched))
            .collect();
        self.rule_rates = status
            .by_rule
            .iter()
            .map(|rule| {
                let old = old_rules.get(rule.rule.0.as_str()).copied();
                let rate = rate(old.unwrap_or_default(), rule.matched);
                (rule.rule.0.clone(), rate)
            })
            .collect();
        let old_losses: HashMap<_, _> = losses(before).collect();
        self.loss_rates = losses(&status)
            .map(|(name, total)| {
                let old = old_losses.get(&name).copied().unwrap_or_default();
                (name, rate(old, total))
            })
            .collect();
        if self.history.len() >= HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(rounded(self.rates.matched));
        self.error = None;
        self.status = status;
    }

    /// Takes over what has arrived in an interval.
    pub(crate) fn add_sample(&mut self, mut sample: Sample, passed: Duration) {
        sample.events.clear();
        if self.samples.len() >= SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((sample, passed.as_secs_f64()));
    }

    /// Whether the costs of a rule are missing: the rules have changed.
    pub(crate) fn lacks_costs(&self) -> bool {
        let known = |rule: &str| self.costs.rules.iter().any(|cost| cost.rule.0 == rule);
        let is_listed = |rule: &str| rule.starts_with('-');
        self.costs.rules.is_empty()
            || (self.costs.omitted == 0
                && self
                    .status
                    .by_rule
                    .iter()
                    .any(|rule| is_listed(&rule.rule.0) && !known(&rule.rule.0)))
    }

    /// Number of events of the sample, and of all that it stands for, over the last intervals.
    pub(crate) fn sampled(&self) -> (u64, u64) {
        let samples = self.samples.iter().map(|(sample, _)| sample);
        samples.fold((0, 0), |(taken, all), sample| {
            let of_this = sample.taken + sample.skipped + sample.lost;
            (taken + sample.taken, all + of_this)
        })
    }

    /// The rules: those that are loaded, then removed ones.
    pub(crate) fn rules(&self, order: RuleOrder) -> Vec<RuleRow> {
        let counts = self.status.by_rule.iter();
        let mut counts: BTreeMap<&str, _> =
            counts.map(|rule| (rule.rule.0.as_str(), rule)).collect();
        let all = self.rule_rates.values().sum::<f64>();
        let row = |rule: &str,
                   keys: Vec<String>,
                   cost: &str,
                   syscalls,
                   counts: Option<&crate::status::RuleCounts>| {
            let per_second = self.rule_rates.get(rule).copied().unwrap_or_default();
            RuleRow {
                rule: rule.to_owned(),
                keys,
                cost: cost.to_owned(),
                syscalls,
                per_second,
                share: share(per_second, all),
                matched: counts.map_or(0, |counts| counts.matched),
                lost: counts.map_or(0, |counts| counts.lost.values().sum()),
            }
        };
        let mut rows: Vec<RuleRow> = self
            .costs
            .rules
            .iter()
            .map(|cost| {
                let rule = cost.rule.0.as_str();
                let keys = cost.keys.iter().map(|key| key.0.clone()).collect();
                let counts = counts.remove(rule);
                row(rule, keys, &cost.cost, Some(cost.syscalls), counts)
            })
            .collect();
        rows.extend(
            counts
                .into_iter()
                .map(|(rule, counts)| row(rule, Vec::new(), "-", None, Some(counts))),
        );
        match order {
            RuleOrder::Rate => rows.sort_by(|a, b| {
                descending(a.per_second, b.per_second).then(b.matched.cmp(&a.matched))
            }),
            RuleOrder::Total => rows.sort_by_key(|row| std::cmp::Reverse(row.matched)),
            RuleOrder::Lost => rows.sort_by_key(|row| std::cmp::Reverse((row.lost, row.matched))),
            RuleOrder::List => {}
        }
        rows
    }

    /// The programs with the most events.
    pub(crate) fn programs(&self) -> Vec<NameRow> {
        self.names(
            |sample| &sample.programs,
            |name| {
                let filter = Filter {
                    programs: vec![name.clone()],
                    ..Filter::default()
                };
                (name.clone(), filter)
            },
        )
    }

    /// The users with the most events.
    pub(crate) fn users(&self) -> Vec<NameRow> {
        self.names(
            |sample| &sample.users,
            |&uid| {
                let filter = Filter {
                    users: vec![uid],
                    ..Filter::default()
                };
                (self.users.name(uid), filter)
            },
        )
    }

    /// The keys with the most events.
    pub(crate) fn keys(&self) -> Vec<NameRow> {
        self.names(
            |sample| &sample.keys,
            |name| {
                let filter = Filter {
                    keys: vec![name.clone()],
                    ..Filter::default()
                };
                (name.clone(), filter)
            },
        )
    }

    fn names<N: Clone + Ord + std::hash::Hash>(
        &self,
        counts: impl Fn(&Sample) -> &HashMap<N, u64>,
        describe: impl Fn(&N) -> (String, Filter),
    ) -> Vec<NameRow> {
        let mut sums: BTreeMap<N, f64> = BTreeMap::new();
        let (mut all, mut seconds) = (0.0, 0.0);
        for (sample, passed) in &self.samples {
            let factor = sample.factor();
            seconds += passed;
            all += float(sample.taken) * factor;
            for (name, count) in counts(sample) {
                *sums.entry(name.clone()).or_default() += float(*count) * factor;
            }
        }
        let rows = sums.iter().map(|(name, sum)| {
            let (name, filter) = describe(name);
            NameRow {
                name,
                per_second: if seconds > 0.0 { sum / seconds } else { 0.0 },
                share: share(*sum, all),
                filter,
            }
        });
        let mut rows: Vec<NameRow> = rows.collect();
        rows.sort_by(|a, b| {
            (a.name == OTHERS)
                .cmp(&(b.name == OTHERS))
                .then(descending(a.per_second, b.per_second))
        });
        rows
    }

    /// Losses by stage and reason: the stages of every event first, then others that have lost something.
    pub(crate) fn losses(&self) -> Vec<LossRow> {
        losses(&self.status)
            .map(|(name, total)| LossRow {
                per_second: self.loss_rates.get(&name).copied().unwrap_or_default(),
                stage: name.0,
                reason: name.1,
                total,
            })
            .collect()
    }

    /// What needs attention, the most serious first.
    pub(crate) fn alerts(&self) -> Vec<String> {
        let status = &self.status;
        let mut alerts = Vec::new();
        if let Some(error) = &self.error {
            alerts.push(error.clone());
            return alerts;
        }
        if let Some(suspended) = &status.suspended {
            let events = suspended.events;
            let reason = crate::status::escaped(suspended.reason.as_bytes());
            alerts.push(format!(
                "the log is suspended, {events} events not written: {reason}"
            ));
        }
        if let Some(refused) = &status.refused {
            let reason = crate::status::escaped(refused.reason.as_bytes());
            alerts.push(format!("older rules or settings are in force: {reason}"));
        }
        if let Some(risk) = &status.skip_risk {
            alerts.push(format!("events can be lost: {risk}"));
        }
        if status
            .kernel_audit
            .as_ref()
            .is_some_and(|kernel| kernel.slows_syscalls)
        {
            alerts.push("the kernel's own audit is active too: it slows every syscall".to_owned());
        }
        if status.settings.enabled == 0 && !status.version.is_empty() {
            alerts.push("auditing is disabled (-e 0)".to_owned());
        }
        alerts
    }
}

/// Events that were lost before the log.
pub(crate) fn lost(status: &Status) -> u64 {
    status.counts.lost.values().sum()
}

/// Lost and incomplete events, by stage and reason.
fn losses(status: &Status) -> impl Iterator<Item = ((&'static str, String), u64)> {
    let mut losses = vec![
        ("kernel", "ring full".to_owned(), 0),
        ("daemon", DAEMON_REASONS[0].to_owned(), 0),
        ("log", LOG_REASON.to_owned(), 0),
    ];
    for (reason, &count) in &status.counts.lost {
        let stage = match reason.as_str() {
            LOG_REASON => "log",
            reason if DAEMON_REASONS.contains(&reason) => "daemon",
            _ => "kernel",
        };
        match losses.iter_mut().find(|loss| loss.1 == *reason) {
            Some(loss) => loss.2 = count,
            None => losses.push((stage, reason.clone(), count)),
        }
    }
    if let Some(json) = &status.json {
        losses.push(("JSON log", "left out".to_owned(), json.left_out));
    }
    for (plugin, &count) in &status.plugins {
        losses.push(("plugin", plugin.clone(), count));
    }
    if let Some(kernel) = &status.kernel_messages {
        for (reason, count) in [
            ("lost by the kernel", kernel.lost),
            ("receive buffer full", kernel.overruns),
            ("malformed", kernel.refused),
            ("not written", kernel.unwritten),
        ] {
            if count != 0 || reason == "lost by the kernel" {
                losses.push(("kernel records", reason.to_owned(), count));
            }
        }
    }
    for (part, &count) in &status.counts.incomplete {
        losses.push(("incomplete", part.clone(), count));
    }
    if status.counts.blind_seconds != 0 {
        let seconds = status.counts.blind_seconds;
        losses.push(("kernel", "seconds with hooks disabled".to_owned(), seconds));
    }
    losses
        .into_iter()
        .map(|(stage, reason, count)| ((stage, reason), count))
}

fn share(part: f64, all: f64) -> f64 {
    if all > 0.0 { part / all } else { 0.0 }
}

fn descending(a: f64, b: f64) -> Ordering {
    b.total_cmp(&a)
}

/// A rate as a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive, and `as` saturates"
)]
pub(crate) const fn rounded(rate: f64) -> u64 {
    rate.round() as u64
}
