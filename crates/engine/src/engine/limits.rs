//! Checks that an engine can run a plan.

use audit::plan::Plan;

use crate::engine_kind::EngineKind;
use crate::error::EngineError;
use crate::hooks::hook_selection::HookSelection;

/// Syscalls inside which the kernel runs task work, so that their end is not seen.
const RUN_TASK_WORK: [&str; 1] = ["io_uring_enter"];

/// Checks that an engine can run a plan.
///
/// # Errors
/// [`EngineError::DenyNeedsFunctions`], [`EngineError::NoDenyFunction`], [`EngineError::Unseen`].
pub(super) fn check(plan: &Plan, selection: HookSelection) -> Result<(), EngineError> {
    if selection.engine() == EngineKind::Lsm {
        check_seen(plan, selection)?;
    }
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

/// Refuses rules about what the engine `lsm` does not see.
fn check_seen(plan: &Plan, selection: HookSelection) -> Result<(), EngineError> {
    let unseen = |what: &str| {
        let what = what.to_owned();
        Err(EngineError::Unseen { what })
    };
    if selection.uses_raw_tracepoint() {
        return unseen("more than 250 syscalls, and a rule, or all together, name more");
    }
    if !plan.task_slots.is_empty() {
        return unseen("new tasks, and a rule of the list `task` does");
    }
    if !plan.uring_ops.is_empty() {
        return unseen("operations of io_uring, and a rule of the list `io_uring` does");
    }
    let mut names = plan.syscalls.keys().filter_map(|syscall| syscall.name());
    match names.find(|name| RUN_TASK_WORK.contains(name)) {
        Some(name) => unseen(&format!("the end of {name}, and a rule names it")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use audit::ids::{Arch, Syscall};
    use audit::plan::{SyscallId, SyscallPlan};
    use audit::table;

    use super::*;
    use crate::hooks::hook::KernelFeatures;

    /// The refusal of a plan of these syscalls by the engine `lsm`.
    fn refusal(numbers: impl IntoIterator<Item = u32>) -> Option<String> {
        let mut plan = Plan::default();
        for number in numbers {
            let (arch, syscall) = (Arch::X86_64, Syscall(number));
            let syscall = SyscallId { arch, syscall };
            plan.syscalls.insert(syscall, SyscallPlan::default());
        }
        let selection = HookSelection::new(&plan, EngineKind::Lsm, KernelFeatures::ALL);
        check(&plan, selection).err().map(|error| error.to_string())
    }

    #[test]
    fn the_engine_lsm_refuses_what_it_does_not_see() {
        let number = |name: &str| {
            let Syscall(number) = table::syscall_number(Arch::X86_64, name.as_bytes()).unwrap();
            number
        };
        assert_eq!(refusal([number("openat"), number("exit_group")]), None);
        assert_eq!(refusal(0..250), None);
        let many = refusal(0..300).unwrap();
        assert!(many.contains("more than 250 syscalls"), "{many}");
        let named = refusal([number("io_uring_enter")]).unwrap();
        assert!(named.contains("the end of io_uring_enter"), "{named}");
    }
}
