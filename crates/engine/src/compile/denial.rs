//! Flags the verdicts of rules that deny syscalls which could not be recorded.

use audit::plan::{Plan, RuleId};

use crate::abi::{self, WireTest};

/// Sets `WIRE_DENY` in the verdicts of such rules.
pub(super) fn mark_tests(tests: &mut [WireTest], plan: &Plan) {
    for test in tests {
        let rule = u16::try_from(test.verdict & !abi::RECORD).map(RuleId);
        if rule.is_ok_and(|rule| plan.is_denied(rule)) {
            test.verdict |= abi::DENY;
        }
    }
}
