//! Keys of rules, by epoch and index.
//!
//! Events can be in the ring while the plan is replaced. Each event has the epoch of its plan, and the keys of a
//! plan are kept until none of its events is left.

use audit::plan::Plan;
use bstr::{BStr, BString, ByteSlice as _};

use crate::epoch::Epoch;

/// Keys of the rules of the active plan and of earlier plans that events can belong to.
#[derive(Clone, Debug)]
pub struct RuleKeys(Vec<(Epoch, Vec<Option<BString>>)>);

impl RuleKeys {
    /// Keys of the first plan.
    #[must_use]
    pub fn new(epoch: Epoch, plan: &Plan) -> Self {
        let mut keys = Self(Vec::new());
        keys.add(epoch, plan);
        keys
    }

    /// Keys of the plans of a previous daemon, oldest first, with one entry per rule.
    #[must_use]
    pub const fn from_plans(plans: Vec<(Epoch, Vec<Option<BString>>)>) -> Self {
        Self(plans)
    }

    /// Whether the keys of a plan are known.
    pub(crate) fn contains(&self, epoch: Epoch) -> bool {
        self.0.iter().any(|(of, _)| *of == epoch)
    }

    /// Adds the keys of a new active plan.
    pub fn add(&mut self, epoch: Epoch, plan: &Plan) {
        let keys = plan.rules.iter().map(|rule| rule.key.clone());
        self.0.push((epoch, keys.collect()));
    }

    /// Removes all but the last two plans. Call it when the ring was empty after the last activation; syscalls
    /// in progress can still use the plan before.
    pub fn forget_old(&mut self) {
        self.0.drain(..self.0.len().saturating_sub(2));
    }

    /// Number of plans.
    #[must_use]
    pub const fn plans(&self) -> usize {
        self.0.len()
    }

    /// The key of a rule, by `rule` of `struct wire_event`; `None` when the rule is unknown.
    pub(crate) fn get(&self, rule: u32) -> Option<Option<&BStr>> {
        let (epoch, index) = Epoch::split_rule(rule);
        let mut newest_first = self.0.iter().rev();
        let (_, keys) = newest_first.find(|(of, _)| *of == epoch)?;
        keys.get(index)
            .map(|key| key.as_ref().map(|key| key.as_bstr()))
    }
}

#[cfg(test)]
impl RuleKeys {
    /// Keys of a plan with one rule without a key.
    pub(crate) fn keyless() -> Self {
        Self(vec![(Epoch::default(), vec![None])])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi;

    fn keys(epoch: Epoch, key: &str) -> (Epoch, Vec<Option<BString>>) {
        (epoch, vec![None, Some(BString::from(key))])
    }

    #[test]
    fn event_gets_key_from_plan_of_its_epoch() {
        let all = RuleKeys(vec![keys(Epoch(7), "old"), keys(Epoch(8), "new")]);
        let rule = |epoch: u32, rule| all.get(epoch << abi::RULE_BITS | rule);
        assert_eq!(rule(7, 1), Some(Some("old".into())));
        assert_eq!(rule(8, 1), Some(Some("new".into())));
        assert_eq!(rule(8, 0), Some(None));
        assert_eq!(rule(8, 2), None, "no such rule");
        assert_eq!(rule(6, 1), None, "no such plan");
    }

    #[test]
    fn last_two_plans_are_kept() {
        let mut all = RuleKeys(vec![keys(Epoch(1), "a"), keys(Epoch(2), "b")]);
        all.forget_old();
        assert_eq!(all.plans(), 2);
        all.0.push(keys(Epoch(3), "c"));
        all.forget_old();
        assert_eq!(all.get(1 << abi::RULE_BITS | 1), None);
        assert_eq!(all.get(2 << abi::RULE_BITS | 1), Some(Some("b".into())));
    }
}
