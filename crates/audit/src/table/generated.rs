//! Tables written by `cargo xtask tables`. Do not edit them.

pub(super) mod errno;
pub(super) mod syscalls_aarch64;
pub(super) mod syscalls_arm;
pub(super) mod syscalls_i386;
pub(super) mod syscalls_ppc;
pub(super) mod syscalls_ppc64;
pub(super) mod syscalls_riscv32;
pub(super) mod syscalls_riscv64;
pub(super) mod syscalls_s390x;
pub(super) mod syscalls_x86_64;
