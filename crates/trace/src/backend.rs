//! The two backends that stop syscalls, and the choice between them.

use audit::plan::{Operand, Plan, SyscallPlan};
use audit::rule::Field;

/// How syscalls are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// By ptrace: at entry, and also at exit when the result is needed.
    Ptrace,
    /// By seccomp notification, at entry.
    Notify,
}

/// Which records contain the result of the syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultCapture {
    /// All records.
    Always,
    /// Only records of syscalls for which a rule tests the result.
    IfTested,
}

impl Backend {
    /// The cheapest backend that can run the plan and capture the results.
    #[must_use]
    pub fn select(plan: &Plan, results: ResultCapture) -> Self {
        if results == ResultCapture::Always || plan_tests_result(plan) {
            Self::Ptrace
        } else {
            Self::Notify
        }
    }
}

/// Whether a rule of the plan tests a result.
fn plan_tests_result(plan: &Plan) -> bool {
    plan.syscalls
        .iter()
        .any(|(call, rules)| call.returns() && syscall_tests_result(rules))
}

/// Whether a rule of a syscall can only be evaluated at syscall exit.
pub(crate) fn syscall_tests_result(rules: &SyscallPlan) -> bool {
    let tests = || rules.slots.iter().flat_map(|slot| &slot.tests);
    let of_end = [Field::Exit, Field::Success, Field::SaddrFam].map(Operand::Field);
    tests().any(|test| of_end.contains(&test.operand))
}
