//! What the status tells of the plan in force.

use audit::plan::Plan;

/// How much a plan asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlanSize {
    /// Calls that the rules are about.
    pub(super) calls: u64,
    /// Rules whose calls are denied when they could not be recorded.
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
