//! The two ways to stop a syscall, and which one a plan needs.

use audit::plan::{Operand, Plan, SyscallPlan};
use audit::rule::Field;

/// How calls are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// By ptrace, twice where the result is wanted.
    Ptrace,
    /// By notification of a supervisor, before the call is made.
    Notify,
}

/// Whether records have the results of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultCapture {
    /// They have.
    Always,
    /// Only those of calls that some rule chooses by result.
    IfTested,
}

impl Backend {
    /// The cheapest way that gives what is wanted.
    #[must_use]
    pub fn select(plan: &Plan, results: ResultCapture) -> Self {
        if results == ResultCapture::Always || plan_tests_result(plan) {
            Self::Ptrace
        } else {
            Self::Notify
        }
    }
}

/// Whether any call of the plan has a rule that asks for its result.
fn plan_tests_result(plan: &Plan) -> bool {
    plan.syscalls
        .iter()
        .any(|(call, rules)| call.returns() && syscall_tests_result(rules))
}

/// Whether some rule of a call can only be decided when the call has ended.
pub(crate) fn syscall_tests_result(rules: &SyscallPlan) -> bool {
    let tests = || rules.slots.iter().flat_map(|slot| &slot.tests);
    let of_end = [Field::Exit, Field::Success, Field::SaddrFam].map(Operand::Field);
    tests().any(|test| of_end.contains(&test.operand))
}
