//! Kernel functions that programs of the BPF object are declared for, on the architecture of the build.

use audit::ids::NativeArch;

/// Takes the registers, as most syscalls do.
pub(crate) const CLOSE: &str = match NativeArch::BUILD {
    NativeArch::X86_64 => "__x64_sys_close",
    NativeArch::Aarch64 => "__arm64_sys_close",
};

/// Takes no argument.
pub(crate) const GETPID: &str = match NativeArch::BUILD {
    NativeArch::X86_64 => "__do_sys_getpid",
    NativeArch::Aarch64 => "__arm64_sys_getpid",
};

/// That of the heartbeat.
pub(crate) const SCHED_RR_GET_INTERVAL: &str = match NativeArch::BUILD {
    NativeArch::X86_64 => "__x64_sys_sched_rr_get_interval",
    NativeArch::Aarch64 => "__arm64_sys_sched_rr_get_interval",
};
