//! The steps of a change, on a copy of the state.

use std::mem;

use audit::ids::MsgType;
use audit::plan::rule_list::RuleList;
use audit::rule::{Command, Insertion, Rule};
use nix::errno::Errno;

use super::{DISABLED, ENABLED, IMMUTABLE, SOCKET_SOURCE, State, compiled, count};
use crate::control::change_records::{self, Requester};
use crate::control::protocol::{AuditSettings, Refusal, Step, StepOutcome};
use crate::control::rule_json::RuleJson;
use crate::json_bytes::JsonBytes;
use crate::messages::info;

/// A change in progress: the resulting state, and the outcome of each step.
pub(super) struct Change {
    pub(super) state: State,
    pub(super) author: Requester,
    pub(super) max_backlog_wait: u32,
    pub(super) last_number: u32,
    pub(super) outcomes: Vec<StepOutcome>,
    pub(super) records: Vec<(MsgType, Vec<u8>)>,
    /// Numbers of added rules, with the index of their step.
    pub(super) added: Vec<(u32, usize)>,
}

impl Change {
    /// Executes one step on the copy.
    pub(super) fn step(&mut self, step: &Step) -> Result<StepOutcome, Refusal> {
        match step {
            Step::Append(form) => self.add(form, Insertion::Append),
            Step::Prepend(form) => self.add(form, Insertion::Prepend),
            Step::Delete(form) => self.delete(form),
            Step::DeleteAll(key) => self.delete_all(key.as_ref()),
            Step::Enabled(level) => {
                let known = [DISABLED, ENABLED, IMMUTABLE].contains(level);
                self.set("audit_enabled", (*level).into(), known, |settings| {
                    &mut settings.enabled
                })
            }
            Step::Failure(mode) => {
                self.set("audit_failure", (*mode).into(), *mode <= 2, |settings| {
                    &mut settings.failure
                })
            }
            Step::RateLimit(rate) => self.set("audit_rate_limit", *rate, true, |settings| {
                &mut settings.rate_limit
            }),
            Step::BacklogLimit(limit) => {
                self.set("audit_backlog_limit", *limit, true, |settings| {
                    &mut settings.backlog_limit
                })
            }
            Step::BacklogWaitTime(ticks) => {
                let known = *ticks <= self.max_backlog_wait;
                self.set("audit_backlog_wait_time", *ticks, known, |settings| {
                    &mut settings.backlog_wait_time
                })
            }
        }
    }

    /// Changes a setting.
    fn set<T>(
        &mut self,
        name: &str,
        value: u32,
        known: bool,
        setting: fn(&mut AuditSettings) -> &mut T,
    ) -> Result<StepOutcome, Refusal>
    where
        T: Copy + Into<u32> + TryFrom<u32>,
    {
        let Ok(new) = T::try_from(value) else {
            return Err(Refusal::errno(Errno::EINVAL));
        };
        if !known {
            return Err(Refusal::errno(Errno::EINVAL));
        }
        let is_locked = self.is_locked();
        let old = setting(&mut self.state.settings);
        let before = u64::from((*old).into());
        let body =
            change_records::setting_attempt(&self.author, name, value.into(), before, !is_locked);
        self.records.push((MsgType::CONFIG_CHANGE, body));
        if is_locked {
            return Err(Refusal::errno(Errno::EPERM));
        }
        *old = new;
        Ok(StepOutcome::Set(Box::new(self.state.settings.clone())))
    }

    fn add(&mut self, form: &RuleJson, place: Insertion) -> Result<StepOutcome, Refusal> {
        let rule = self.rule(form, "add_rule")?;
        self.last_number = self.last_number.wrapping_add(1);
        let command = Command::Add {
            rule: rule.clone(),
            insertion: place,
        };
        let added = self
            .state
            .rules
            .apply(SOCKET_SOURCE, self.last_number, command);
        self.record_rule_change("add_rule", &rule, added.is_ok());
        match added {
            Ok(()) => {
                self.added.push((self.last_number, self.outcomes.len()));
                Ok(StepOutcome::Done)
            }
            Err(_) => Err(Refusal::errno(Errno::EEXIST)),
        }
    }

    fn delete(&mut self, form: &RuleJson) -> Result<StepOutcome, Refusal> {
        let rule = self.rule(form, "remove_rule")?;
        let command = Command::Delete(rule.clone());
        let deleted = self.state.rules.apply(SOCKET_SOURCE, 0, command);
        self.record_rule_change("remove_rule", &rule, deleted.is_ok());
        match deleted {
            Ok(()) => Ok(StepOutcome::Done),
            Err(_) => Err(Refusal::errno(Errno::ENOENT)),
        }
    }

    fn delete_all(&mut self, key: Option<&JsonBytes>) -> Result<StepOutcome, Refusal> {
        let invalid = || Refusal::errno(Errno::EINVAL);
        let key = key.map(|key| key.bytes().ok_or_else(invalid)).transpose()?;
        let before = self.state.rules.clone();
        let command = Command::DeleteAll(key);
        // Deleting all rules is never refused.
        let _done = self.state.rules.apply(SOCKET_SOURCE, 0, command);
        let left = self.state.rules.rules();
        let gone: Vec<&Rule> = before
            .rules()
            .iter()
            .filter(|old| !left.contains(old))
            .map(|old| &old.rule)
            .collect();
        if self.is_locked() && !gone.is_empty() {
            let body = change_records::locked(&self.author, "remove_rule");
            self.records.push((MsgType::CONFIG_CHANGE, body));
            self.state.rules = before;
            return Err(Refusal::errno(Errno::EPERM));
        }
        let left = count(left.len());
        for rule in gone {
            let body = change_records::rule(&self.author, "remove_rule", rule, true);
            self.records.push((MsgType::CONFIG_CHANGE, body));
        }
        Ok(StepOutcome::Remaining(left))
    }

    /// Replaces all rules.
    pub(super) fn replace_rules(&mut self, rules: RuleList) {
        let before = mem::replace(&mut self.state.rules, rules);
        let after = self.state.rules.clone();
        for (op, rules) in [("remove_rule", before), ("add_rule", after)] {
            for listed in rules.rules() {
                self.record_rule_change(op, &listed.rule, true);
            }
        }
    }

    /// Converts the rule, unless rules are locked or it is invalid.
    fn rule(&mut self, form: &RuleJson, op: &str) -> Result<Rule, Refusal> {
        if self.is_locked() {
            let body = change_records::locked(&self.author, op);
            self.records.push((MsgType::CONFIG_CHANGE, body));
            return Err(Refusal::errno(Errno::EPERM));
        }
        form.rule()
            .map_err(|reason| Refusal::with_reason(Errno::EINVAL, reason))
    }

    fn record_rule_change(&mut self, op: &str, rule: &Rule, done: bool) {
        let body = change_records::rule(&self.author, op, rule, done);
        self.records.push((MsgType::CONFIG_CHANGE, body));
    }

    fn is_locked(&self) -> bool {
        self.state.settings.enabled == IMMUTABLE
    }

    /// Removes added rules that would lose records and refuses their steps; reports other rules without effect.
    /// Returns the first refused step.
    pub(super) fn reject_unsupported_rules(&mut self) -> Option<usize> {
        let (mut refused, mut first) = (Vec::new(), None);
        if self.added.is_empty() {
            return first;
        }
        for rule in compiled(&self.state).unsupported {
            let added = self.added.iter().find(|&&(number, _)| number == rule.line);
            let (SOCKET_SOURCE, Some(&(number, step))) = (rule.source, added) else {
                continue;
            };
            if !rule.loses_records {
                info(&format!(
                    "rule {number} added over the control socket: {}",
                    rule.reason
                ));
                continue;
            }
            refused.push(number);
            first = Some(first.map_or(step, |first: usize| first.min(step)));
            if let Some(outcome) = self.outcomes.get_mut(step) {
                let refusal = Refusal::with_reason(Errno::EOPNOTSUPP, rule.reason);
                *outcome = StepOutcome::Refused(refusal);
            }
        }
        self.state
            .rules
            .remove(|listed| listed.source == SOCKET_SOURCE && refused.contains(&listed.line));
        first
    }
}
