//! Checks that an engine can run a plan.

use audit::plan::Plan;

use crate::error::EngineError;
use crate::hooks::hook_selection::HookSelection;

/// Checks that an engine can run a plan.
///
/// # Errors
/// [`EngineError::DenyNeedsFunctions`], [`EngineError::NoDenyFunction`].
pub(super) fn check(plan: &Plan, selection: HookSelection) -> Result<(), EngineError> {
    if !selection.engine().is_on_functions() && plan.denying() != 0 {
        return Err(EngineError::DenyNeedsFunctions);
    }
    let mut syscalls = plan.syscalls.iter();
    let missing =
        syscalls.find_map(|(&syscall_id, rules)| selection.missing_denial(plan, syscall_id, rules));
    missing.map_or(Ok(()), |hook| {
        let function = hook.function();
        Err(EngineError::NoDenyFunction { function })
    })
}
