//! Flags the deciding tests of rules that deny syscalls which could not be recorded.

use audit::plan::{Plan, RuleId};

use crate::abi::{self, WireTest};

/// Sets `WIRE_DENY` in the deciding tests of such rules.
pub(super) fn mark_tests(tests: &mut [WireTest], plan: &Plan) {
    for test in tests {
        let rule = u16::try_from(test.value & !abi::RECORD).map(RuleId);
        if test.kind == abi::TEST_DECIDE && rule.is_ok_and(|rule| plan.is_denied(rule)) {
            test.value |= abi::DENY;
        }
    }
}
