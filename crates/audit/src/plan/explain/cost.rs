//! How much of a machine a rule burdens, judged by how often programs do what it is about.

use crate::plan::SyscallId;
use crate::plan::hook::HookSelection;
use crate::plan::uring::UringOp;
use crate::table;

/// How much of a machine a rule burdens, relative to other rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// Needs no hook: it matches nothing, or only suppresses.
    Nothing,
    /// Only calls that programs make now and then.
    Low,
    /// Calls that a busy program makes thousands of times a second, such as opens.
    Medium,
    /// Calls that a busy program makes all the time, such as read.
    High,
    /// Every syscall, or nearly.
    Everything,
}

/// How often programs have an operation done. Those that the kernel's audit passes over are those that busy
/// programs live on.
pub(super) fn cost_of_operation(operation: &UringOp, sides: HookSelection) -> Cost {
    if sides.sees_completions_only() || !operation.is_audited() {
        Cost::High
    } else {
        cost_of(operation.call())
    }
}

/// How often programs make a call. A judgement, in three steps, of ordinary servers and desktops.
pub(super) fn cost_of(call: SyscallId) -> Cost {
    match table::syscall_name(call.arch, call.syscall).unwrap_or_default() {
        "read" | "write" | "readv" | "writev" | "pread64" | "pwrite64" | "recvfrom" | "sendto"
        | "recvmsg" | "sendmsg" | "recv" | "send" | "futex" | "futex_time64" | "epoll_wait"
        | "epoll_pwait" | "epoll_pwait2" | "epoll_ctl" | "poll" | "ppoll" | "select"
        | "_newselect" | "pselect6" | "getpid" | "gettid" | "lseek" | "_llseek"
        | "clock_gettime" | "clock_gettime64" | "gettimeofday" | "sched_yield" | "ioctl"
        | "io_uring_enter" | "rt_sigprocmask" => Cost::High,
        "open" | "openat" | "close" | "stat" | "lstat" | "fstat" | "newfstatat" | "stat64"
        | "lstat64" | "fstat64" | "fstatat64" | "statx" | "access" | "faccessat" | "faccessat2"
        | "readlink" | "readlinkat" | "mmap" | "mmap2" | "munmap" | "mprotect" | "madvise"
        | "brk" | "fcntl" | "fcntl64" | "getdents64" | "rt_sigaction" | "connect" | "accept"
        | "accept4" | "nanosleep" | "clock_nanosleep" | "getxattr" | "lgetxattr" | "fgetxattr" => {
            Cost::Medium
        }
        _ => Cost::Low,
    }
}
