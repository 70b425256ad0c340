//! What an engine does not take on.

use audit::plan::Plan;
use audit::plan::hook::{EngineKind, HookSelection};

use crate::error::EngineError;

/// Calls whose functions are hooked at most: the kernel needs some 130 ms to free each again.
const MOST_FUNCTIONS: usize = 250;

/// Whether an engine can do what a plan asks for.
///
/// # Errors
/// What is too much, or missing here.
pub(super) fn check(plan: &Plan, sides: HookSelection) -> Result<(), EngineError> {
    let on_functions = sides.engine() == EngineKind::Fentry;
    if on_functions && plan.syscalls.len() > MOST_FUNCTIONS {
        return Err(EngineError::TooMany {
            calls: plan.syscalls.len(),
            most: MOST_FUNCTIONS,
        });
    }
    if !on_functions && plan.denying() != 0 {
        return Err(EngineError::CannotDeny);
    }
    let mut calls = plan.syscalls.iter();
    let missing = calls.find_map(|(&call, rules)| sides.missing_denial(plan, call, rules));
    missing.map_or(Ok(()), |inner| {
        let function = inner.function();
        Err(EngineError::NoDenial { function })
    })
}
