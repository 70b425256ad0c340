//! The request `rule_costs`: what each loaded rule costs, as `tollgate explain` prints it.

use audit::ids::{Dialect, NativeArch};
use audit::plan::Plan;
use audit::rule::print;
use engine::Explanation;
use serde::{Deserialize, Serialize};

use crate::json_bytes::JsonBytes;

/// Maximum number of rules in an answer.
const MAX_RULES: usize = 2000;

/// What the loaded rules cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleCosts {
    /// Overhead of each syscall, also of those that no rule names.
    pub(crate) every_syscall_ns: u32,
    /// Further overhead of a syscall that a rule names; `None` if no other syscall has overhead.
    pub(crate) paying_syscall_ns: Option<u32>,
    pub(crate) rules: Vec<RuleCost>,
    /// Number of rules beyond the limit.
    pub(crate) omitted: u64,
}

/// What a rule costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleCost {
    /// The rule as `auditctl -l` prints it.
    pub(crate) rule: JsonBytes,
    pub(crate) keys: Vec<JsonBytes>,
    /// `none`, `low`, `medium`, `high` or `everything`.
    pub(crate) cost: String,
    /// Number of syscalls and `io_uring` operations that evaluate the rule.
    pub(crate) syscalls: u64,
}

impl RuleCosts {
    /// Reads the costs from an explanation of the plan.
    pub(crate) fn of(plan: &Plan, explanation: &Explanation) -> Self {
        let rules = plan.rules.iter().zip(&explanation.rules);
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let costs = rules.take(MAX_RULES).map(|(planned, cost)| {
            let keys = planned.rule.keys.iter();
            RuleCost {
                rule: JsonBytes::new(&print(
                    &planned.rule,
                    NativeArch::BUILD.b64(),
                    Dialect::default(),
                )),
                keys: keys.map(|key| JsonBytes::new(key)).collect(),
                cost: cost.scope.cost.name().to_owned(),
                syscalls: count(cost.scope.syscall_ids().count() + cost.scope.operations.len()),
            }
        });
        Self {
            every_syscall_ns: explanation.price.every_syscall_ns,
            paying_syscall_ns: explanation.price.paying_syscall_ns,
            rules: costs.collect(),
            omitted: count(plan.rules.len().saturating_sub(MAX_RULES)),
        }
    }
}
