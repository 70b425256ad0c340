//! Waiting for tracees and telling them to go on. What nix offers lacks real-time signals, without which
//! programs cannot be passed what they are sent.

use libc::{c_int, c_uint, c_void};
use nix::errno::Errno;
use nix::unistd::Pid;

/// Why a tracee, or the command's first process, is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopEvent {
    /// It has exited with this status.
    Exited(i32),
    /// This signal has killed it.
    Signaled(i32),
    /// The filter has stopped a call.
    Seccomp,
    /// The call that was waited for has ended.
    SyscallExit,
    /// It has become another program.
    Exec,
    /// It is about to be given this signal.
    Signal(i32),
    /// This signal has stopped its whole process.
    GroupStop(i32),
    /// It has stopped for another reason: it has made a process, is new, or goes on after a stop.
    Other,
}

/// How a tracee goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResumeMode {
    /// Until it stops again.
    Cont,
    /// Also until its call ends.
    Syscall,
    /// Not at all, until a signal makes its process go on.
    Listen,
}

/// Waits for any child or tracee; `None` when `flags` say not to wait and nothing has changed.
///
/// # Errors
/// `ECHILD` when there is none left; `EINTR`.
pub(crate) fn wait(pid: Option<Pid>, flags: c_int) -> Result<Option<(Pid, StopEvent)>, Errno> {
    let mut status = 0;
    let whom = pid.map_or(-1, Pid::as_raw);
    // SAFETY: `status` may be written to.
    let pid = Errno::result(unsafe { libc::waitpid(whom, &raw mut status, flags) })?;
    Ok((pid != 0).then(|| (Pid::from_raw(pid), stop_event(status))))
}

fn stop_event(status: c_int) -> StopEvent {
    /// What `PTRACE_O_TRACESYSGOOD` adds to SIGTRAP.
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

/// Lets a tracee go on, with a signal unless that is 0. One that has been killed meanwhile is none of
/// our business any more.
pub(crate) fn resume(pid: Pid, mode: ResumeMode, signal: i32) -> bool {
    let request = match mode {
        ResumeMode::Cont => libc::PTRACE_CONT,
        ResumeMode::Syscall => libc::PTRACE_SYSCALL,
        ResumeMode::Listen => libc::PTRACE_LISTEN,
    };
    let data = usize::try_from(signal).unwrap_or(0);
    ptrace(request, pid, 0, data).is_ok()
}

/// Number that an exec's thread had before it became the leader of its process.
pub(crate) fn previous_tid(pid: Pid) -> Option<Pid> {
    let number = nix::sys::ptrace::getevent(pid).ok()?;
    Some(Pid::from_raw(i32::try_from(number).ok()?))
}

/// A call as it stands at a stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SyscallInfo {
    /// It will be made.
    Entry {
        arch: u32,
        number: u32,
        args: [u64; 6],
    },
    /// It has ended.
    Exit { arch: u32, exit: i64, stack: u64 },
}

/// The call at which a tracee has stopped; since v5.3.
pub(crate) fn syscall_info(pid: Pid) -> Option<SyscallInfo> {
    let info = nix::sys::ptrace::syscall_info(pid).ok()?;
    match info.op {
        libc::PTRACE_SYSCALL_INFO_SECCOMP => {
            // SAFETY: `op` says that this is the part which the kernel has written.
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
    // SAFETY: none of our requests has the kernel use the two as addresses in this process.
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
