//! Kinds of syscalls that need hooks of their own.

use audit::plan::SyscallId;

/// Whether the syscall opens a file by name, so that the LSM hook `file_open` shows its object.
pub(super) fn opens(syscall: SyscallId) -> bool {
    matches!(
        syscall.name(),
        Some("open" | "openat" | "openat2" | "creat")
    )
}

/// Whether the kernel runs task work inside the syscall, so that task work does not show its end.
pub(super) fn runs_task_work(syscall: SyscallId) -> bool {
    syscall.name() == Some("io_uring_enter")
}

/// Whether programs make the syscall to wait: an event has the time of entry, which may be long before the
/// exit. For other syscalls both are the same tick, or nearly.
pub(super) fn waits(syscall: SyscallId) -> bool {
    matches!(
        syscall.name(),
        Some(
            "accept"
                | "accept4"
                | "clock_nanosleep"
                | "clock_nanosleep_time64"
                | "connect"
                | "epoll_wait"
                | "epoll_pwait"
                | "epoll_pwait2"
                | "fcntl"
                | "fcntl64"
                | "flock"
                | "futex"
                | "futex_time64"
                | "nanosleep"
                | "pause"
                | "poll"
                | "ppoll"
                | "ppoll_time64"
                | "pselect6"
                | "pselect6_time64"
                | "recvfrom"
                | "recvmsg"
                | "rt_sigtimedwait"
                | "rt_sigtimedwait_time64"
                | "select"
                | "_newselect"
                | "wait4"
                | "waitid"
        )
    )
}
