//! Which hooks inside the kernel serve a syscall.

use audit::plan::SyscallId;

use crate::abi;
use crate::hooks::internal_hook::InternalHook;
use crate::hooks::syscall_hooks::object_hooks;

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
