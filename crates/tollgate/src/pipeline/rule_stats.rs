//! Counters per rule, up to the log.
//!
//! Rules are identified by their text: a rule that is loaded again continues its counters.

use std::collections::BTreeMap;

use audit::ids::{Dialect, NativeArch};
use audit::plan::Plan;
use audit::rule::print;
use bstr::BString;
use engine::Epoch;

/// Name for all rules that were removed.
const REMOVED_RULES: &str = "removed rules";

/// Events of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleCounters {
    /// Taken from the ring.
    pub(crate) taken: u64,
    /// Of those, dropped by the rate limit.
    pub(crate) limited: u64,
    /// Of those, not written to the log.
    pub(crate) unwritten: u64,
    /// Lost because the ring was full.
    pub(crate) ring_full: u64,
}

/// A rule as plan epoch and index.
pub(crate) type PlanRule = (Epoch, usize);

/// Counters of all rules.
#[derive(Debug, Default)]
pub(crate) struct RuleStats {
    /// The active plan and its predecessor.
    plans: Vec<(Epoch, Vec<CountedRule>)>,
    /// Counters of loaded rules from earlier plans.
    earlier: BTreeMap<BString, RuleCounters>,
    removed: RuleCounters,
}

#[derive(Debug)]
struct CountedRule {
    text: BString,
    count: RuleCounters,
}

impl RuleCounters {
    fn add(&mut self, other: Self) {
        self.taken += other.taken;
        self.limited += other.limited;
        self.unwritten += other.unwritten;
        self.ring_full += other.ring_full;
    }

    /// Events that the rule matched.
    pub(crate) const fn matched(&self) -> u64 {
        self.taken + self.ring_full
    }
}

impl RuleStats {
    /// Adds the rules of a plan that became active.
    pub(crate) fn add(&mut self, epoch: Epoch, plan: &Plan) {
        let rules = plan.rules.iter();
        let rules =
            rules.map(|rule| print(&rule.rule, NativeArch::BUILD.b64(), Dialect::default()));
        self.restore_plan(epoch, rules.collect());
    }

    /// Adds rules of a plan by their text.
    pub(crate) fn restore_plan(&mut self, epoch: Epoch, rules: Vec<BString>) {
        let counted = rules.into_iter().map(|text| CountedRule {
            text,
            count: RuleCounters::default(),
        });
        self.plans.push((epoch, counted.collect()));
        while self.plans.len() > 2 {
            let (_, old) = self.plans.remove(0);
            for CountedRule { text, count } in old {
                self.earlier.entry(text).or_default().add(count);
            }
        }
        let loaded: Vec<&BString> = self
            .plans
            .iter()
            .flat_map(|(_, rules)| rules.iter().map(|rule| &rule.text))
            .collect();
        let removed = &mut self.removed;
        self.earlier.retain(|text, count| {
            let stays = loaded.contains(&text);
            if !stays {
                removed.add(*count);
            }
            stays
        });
    }

    /// Counters of a rule, or of all removed rules if it is one of them.
    pub(crate) fn of(&mut self, (epoch, rule): PlanRule) -> &mut RuleCounters {
        let mut newest_first = self.plans.iter_mut().rev();
        let plan = newest_first.find(|(of, _)| *of == epoch);
        match plan.and_then(|(_, rules)| rules.get_mut(rule)) {
            Some(counted) => &mut counted.count,
            None => &mut self.removed,
        }
    }

    /// Reads the kernel side's counters.
    pub(crate) fn settle(&mut self, ring_full: impl Fn(Epoch, usize) -> u64) {
        for (epoch, rules) in &mut self.plans {
            for (rule, counted) in rules.iter_mut().enumerate() {
                counted.count.ring_full = ring_full(*epoch, rule);
            }
        }
    }

    /// Counters of rules that have matched, by text.
    pub(crate) fn table(&self) -> BTreeMap<BString, RuleCounters> {
        let mut table = self.earlier.clone();
        table.insert(REMOVED_RULES.into(), self.removed);
        for counted in self.plans.iter().flat_map(|(_, rules)| rules) {
            let count = table.entry(counted.text.clone()).or_default();
            count.add(counted.count);
        }
        table.retain(|_, count| count.matched() != 0);
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::ThisMachine;
    use audit::ids::Arch;
    use audit::plan::rule_list::RuleList;
    use audit::rule::parse_file;

    fn plan(text: &str) -> Plan {
        let (lines, _) = parse_file(text.as_bytes(), &ThisMachine);
        let mut list = RuleList::default();
        for line in lines {
            list.apply(0, line.number, line.command).unwrap();
        }
        Plan::compile(list.into_rules(), &[Arch::X86_64])
    }

    #[test]
    fn counters_survive_plan_replacement() {
        let a = "-a always,exit -F arch=b64 -S rmdir -k a\n";
        let b = "-a always,exit -F arch=b64 -S mkdir -k b\n";
        let mut counts = RuleStats::default();
        let mut epoch = Epoch::default();
        for (round, text) in [a.to_owned() + b, b.to_owned(), b.to_owned(), b.to_owned()]
            .iter()
            .enumerate()
        {
            let plan = plan(text);
            counts.add(epoch, &plan);
            for rule in 0..plan.rules.len() {
                counts.of((epoch, rule)).taken += 10;
            }
            counts.settle(|of, _| u64::from(of == epoch && round == 3));
            epoch = epoch.next();
        }
        let table = counts.table();
        let found: Vec<(u64, u64)> = table
            .values()
            .map(|count| (count.matched(), count.ring_full))
            .collect();
        assert_eq!(found, [(41, 1), (10, 0)], "{table:?}");
        assert!(table.keys().any(|text| text == REMOVED_RULES));
    }
}
