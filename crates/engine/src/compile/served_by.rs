//! Which hooks inside the kernel serve a syscall.

use audit::plan::SyscallId;

use crate::abi;
use crate::hooks::hook_selection::HookSelection;
use crate::hooks::internal_hook::InternalHook;
use crate::hooks::syscall_hooks::{object_hooks, shows_every_name};

/// The hooks that count for a syscall, as a set of `abi::HOOKS_*`.
pub(crate) fn wire_hooks(syscall: SyscallId) -> u8 {
    let kind = |hook: &InternalHook| match hook {
        InternalHook::OpenFilp => abi::HOOKS_OPEN,
        InternalHook::NamesParent => abi::HOOKS_NAMES,
        InternalHook::SockaddrKernel | InternalHook::SockaddrUser => abi::HOOKS_ADDRESS,
        _ => 0,
    };
    let hooks = object_hooks(syscall).iter();
    hooks.map(kind).fold(0, |all, kind| all | kind)
}

/// Facts of a syscall whose objects hooks show.
pub(super) fn hooked_facts(syscall: SyscallId, selection: HookSelection) -> u32 {
    let names = match shows_every_name(syscall) {
        true => abi::FACT_HOOKED_NAMES,
        false => 0,
    };
    let found_only = match selection.sees_found_only(syscall) {
        true => abi::FACT_FOUND_ONLY,
        false => 0,
    };
    abi::FACT_HOOKED | names | found_only
}

#[cfg(test)]
mod tests {
    use audit::ids::Arch;
    use audit::table;

    use super::*;

    #[test]
    fn hooks_of_other_syscalls_do_not_count() {
        for (name, hooks) in [
            ("openat2", abi::HOOKS_OPEN),
            ("renameat2", abi::HOOKS_NAMES),
            ("bind", abi::HOOKS_NAMES | abi::HOOKS_ADDRESS),
            ("accept4", abi::HOOKS_ADDRESS),
            ("chmod", 0),
            ("execve", 0),
        ] {
            let arch = Arch::X86_64;
            let syscall = table::syscall_number(arch, name.as_bytes()).unwrap();
            assert_eq!(wire_hooks(SyscallId { arch, syscall }), hooks, "{name}");
        }
    }
}
