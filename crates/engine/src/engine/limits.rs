//! What an engine does not take on.

use audit::plan::Plan;
use audit::plan::hook::{EngineKind, HookSelection};

use crate::error::EngineError;

/// Calls whose functions are hooked at most: the kernel needs some 130 ms to free each again.
const MAX_SYSCALLS: usize = 250;

/// Whether an engine can do what a plan asks for.
///
/// # Errors
/// What is too much, or missing here.
pub(super) fn check(plan: &Plan, selection: HookSelection) -> Result<(), EngineError> {
    let on_functions = selection.engine() == EngineKind::Fentry;
    if on_functions && plan.syscalls.len() > MAX_SYSCALLS {
        return Err(EngineError::TooManySyscalls {
            calls: plan.syscalls.len(),
            most: MAX_SYSCALLS,
        });
    }
    if !on_functions && plan.denying() != 0 {
        return Err(EngineError::DenyNeedsFentry);
    }
    let mut calls = plan.syscalls.iter();
    let missing = calls.find_map(|(&call, rules)| selection.missing_denial(plan, call, rules));
    missing.map_or(Ok(()), |inner| {
        let function = inner.function();
        Err(EngineError::NoDenyFunction { function })
    })
}
