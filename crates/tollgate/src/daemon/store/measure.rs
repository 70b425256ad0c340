//! What the status tells of the plan in force.

use audit::plan::Plan;

/// How much a plan asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measure {
    /// Calls that the rules are about.
    pub(super) calls: usize,
    /// Rules whose calls are denied when they could not be recorded.
    pub(super) denying: usize,
}

impl Measure {
    pub(super) fn of(plan: &Plan) -> Self {
        Self {
            calls: plan.calls.len(),
            denying: plan.denying(),
        }
    }
}
