//! Size of the active plan, for the status.

use audit::plan::Plan;

/// Size of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlanSize {
    /// Number of syscalls that the rules cover.
    pub(super) calls: u64,
    /// Number of rules that deny a syscall which cannot be recorded.
    pub(super) denying: u64,
}

impl PlanSize {
    pub(super) fn of(plan: &Plan) -> Self {
        Self {
            calls: count(plan.syscalls.len()),
            denying: count(plan.denying()),
        }
    }
}

pub(super) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
