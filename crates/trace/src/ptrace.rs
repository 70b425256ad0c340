//! Waiting for tracees and resuming them. nix does not support real-time signals, which must be passed to the
//! tracee.

use libc::{c_int, c_uint, c_void};
use nix::errno::Errno;
use nix::unistd::Pid;

/// A change of state of a tracee or of the first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopEvent {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Signaled(i32),
    /// The filter stopped a syscall.
    Seccomp,
    /// Stop at syscall exit.
    SyscallExit,
    /// It executed another program.
    Exec,
    /// This signal is about to be delivered.
    Signal(i32),
    /// This signal stopped its process.
    GroupStop(i32),
    /// Another ptrace stop: a fork or clone, the start of a new task, the end of a group stop.
    Other,
}

/// How a tracee is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResumeMode {
    /// `PTRACE_CONT`.
    Cont,
    /// `PTRACE_SYSCALL`: stops at syscall exit.
    Syscall,
    /// `PTRACE_LISTEN`: stays in the group stop until SIGCONT.
    Listen,
}

/// Waits for a child or tracee; any, without `pid`. `None` when `flags` contain `WNOHANG` and nothing changed.
///
/// # Errors
/// `ECHILD` when none is left; `EINTR`.
pub(crate) fn wait(pid: Option<Pid>, flags: c_int) -> Result<Option<(Pid, StopEvent)>, Errno> {
    let mut status = 0;
    let whom = pid.map_or(-1, Pid::as_raw);
    // SAFETY: `status` is writable.
    let pid = Errno::result(unsafe { libc::waitpid(whom, &raw mut status, flags) })?;
    Ok((pid != 0).then(|| (Pid::from_raw(pid), stop_event(status))))
}

fn stop_event(status: c_int) -> StopEvent {
    /// SIGTRAP with the bit that `PTRACE_O_TRACESYSGOOD` adds.
    const CALL: i32 = libc::SIGTRAP | 0x80;
    if libc::WIFEXITED(status) {
        return StopEvent::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return StopEvent::Signaled(libc::WTERMSIG(status));
    }
    let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
    match (event, signal) {
        (libc::PTRACE_EVENT_SECCOMP, _) => StopEvent::Seccomp,
        (libc::PTRACE_EVENT_EXEC, _) => StopEvent::Exec,
        (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => StopEvent::Other,
        (libc::PTRACE_EVENT_STOP, signal) => StopEvent::GroupStop(signal),
        (0, CALL) => StopEvent::SyscallExit,
        (0, signal) => StopEvent::Signal(signal),
        _ => StopEvent::Other,
    }
}

/// Resumes a tracee and delivers a signal unless it is 0. Returns false when the tracee was killed.
pub(crate) fn resume(pid: Pid, mode: ResumeMode, signal: i32) -> bool {
    let request = match mode {
        ResumeMode::Cont => libc::PTRACE_CONT,
        ResumeMode::Syscall => libc::PTRACE_SYSCALL,
        ResumeMode::Listen => libc::PTRACE_LISTEN,
    };
    let data = usize::try_from(signal).unwrap_or(0);
    ptrace(request, pid, 0, data).is_ok()
}

/// Thread id that an exec's thread had before it became the thread group leader.
pub(crate) fn previous_tid(pid: Pid) -> Option<Pid> {
    let number = nix::sys::ptrace::getevent(pid).ok()?;
    Some(Pid::from_raw(i32::try_from(number).ok()?))
}

/// A syscall at a stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SyscallInfo {
    /// At entry.
    Entry {
        arch: u32,
        number: u32,
        args: [u64; 6],
    },
    /// At exit; `stack` is the stack pointer.
    Exit { arch: u32, exit: i64, stack: u64 },
}

/// The syscall at which a tracee has stopped (`PTRACE_GET_SYSCALL_INFO`, v5.3).
pub(crate) fn syscall_info(pid: Pid) -> Option<SyscallInfo> {
    let info = nix::sys::ptrace::syscall_info(pid).ok()?;
    match info.op {
        libc::PTRACE_SYSCALL_INFO_SECCOMP => {
            // SAFETY: `op` shows that the kernel wrote this member of the union.
            let call = unsafe { info.u.seccomp };
            Some(SyscallInfo::Entry {
                arch: info.arch,
                number: u32::try_from(call.nr & 0xffff_ffff).unwrap_or(u32::MAX),
                args: call.args,
            })
        }
        libc::PTRACE_SYSCALL_INFO_EXIT => {
            // SAFETY: as above.
            let exit = unsafe { info.u.exit };
            Some(SyscallInfo::Exit {
                arch: info.arch,
                exit: exit.sval,
                stack: info.stack_pointer,
            })
        }
        _ => None,
    }
}

fn ptrace(request: c_uint, pid: Pid, addr: usize, data: usize) -> Result<(), Errno> {
    let (addr, data) = (
        std::ptr::without_provenance_mut::<c_void>(addr),
        std::ptr::without_provenance_mut::<c_void>(data),
    );
    // SAFETY: the requests of this module do not use `addr` and `data` as addresses in this process.
    let answer = unsafe { libc::ptrace(request, pid.as_raw(), addr, data) };
    Errno::result(answer).map(|_zero| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_are_classified() {
        let stopped = |event: i32, signal: i32| (event << 16) | (signal << 8) | 0x7f;
        for (status, expected) in [
            (7 << 8, StopEvent::Exited(7)),
            (9, StopEvent::Signaled(9)),
            (stopped(0, libc::SIGTRAP | 0x80), StopEvent::SyscallExit),
            (stopped(0, libc::SIGTRAP), StopEvent::Signal(libc::SIGTRAP)),
            (stopped(0, 64), StopEvent::Signal(64)),
            (
                stopped(128, libc::SIGTSTP),
                StopEvent::GroupStop(libc::SIGTSTP),
            ),
            (stopped(128, libc::SIGTRAP), StopEvent::Other),
            (stopped(7, libc::SIGTRAP), StopEvent::Seccomp),
            (stopped(4, libc::SIGTRAP), StopEvent::Exec),
            (stopped(1, libc::SIGTRAP), StopEvent::Other),
        ] {
            assert_eq!(stop_event(status), expected, "{status:#x}");
        }
    }
}
