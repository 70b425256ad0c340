//! Registers of a traced task. The tests that change them run on x86-64; they are compiled everywhere.

use nix::libc::{c_ulonglong, user_regs_struct};

/// The number of the task's syscall.
pub(crate) const fn number(registers: &mut user_regs_struct) -> &mut c_ulonglong {
    #[cfg(target_arch = "x86_64")]
    return &mut registers.orig_rax;
    #[cfg(target_arch = "aarch64")]
    return &mut registers.regs[8];
}

/// The first argument of the task's syscall.
pub(crate) const fn argument(registers: &mut user_regs_struct) -> &mut c_ulonglong {
    #[cfg(target_arch = "x86_64")]
    return &mut registers.rdi;
    #[cfg(target_arch = "aarch64")]
    return &mut registers.regs[0];
}

/// The result of the task's syscall.
pub(crate) const fn result(registers: &mut user_regs_struct) -> &mut c_ulonglong {
    #[cfg(target_arch = "x86_64")]
    return &mut registers.rax;
    #[cfg(target_arch = "aarch64")]
    return &mut registers.regs[0];
}
