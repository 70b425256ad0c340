//! Waiting for tracees and telling them to go on. What nix offers lacks real-time signals, without which
//! programs cannot be passed what they are sent.

use libc::{c_int, c_uint, c_void};
use nix::errno::Errno;
use nix::unistd::Pid;

/// Why a tracee, or the command's first process, is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has exited with this status.
    Exited(i32),
    /// This signal has killed it.
    Killed(i32),
    /// The filter has stopped a call.
    Filtered,
    /// The call that was waited for has ended.
    CallEnded,
    /// It has become another program.
    Execed,
    /// It is about to be given this signal.
    Signal(i32),
    /// This signal has stopped its whole process.
    GroupStopped(i32),
    /// It has stopped for another reason: it has made a process, is new, or goes on after a stop.
    Passing,
}

/// How a tracee goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
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
pub(crate) fn wait(pid: Option<Pid>, flags: c_int) -> Result<Option<(Pid, Change)>, Errno> {
    let mut status = 0;
    let whom = pid.map_or(-1, Pid::as_raw);
    // SAFETY: `status` may be written to.
    let pid = Errno::result(unsafe { libc::waitpid(whom, &raw mut status, flags) })?;
    Ok((pid != 0).then(|| (Pid::from_raw(pid), change(status))))
}

fn change(status: c_int) -> Change {
    /// What `PTRACE_O_TRACESYSGOOD` adds to SIGTRAP.
    const CALL: i32 = libc::SIGTRAP | 0x80;
    if libc::WIFEXITED(status) {
        return Change::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Change::Killed(libc::WTERMSIG(status));
    }
    let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
    match (event, signal) {
        (libc::PTRACE_EVENT_SECCOMP, _) => Change::Filtered,
        (libc::PTRACE_EVENT_EXEC, _) => Change::Execed,
        (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => Change::Passing,
        (libc::PTRACE_EVENT_STOP, signal) => Change::GroupStopped(signal),
        (0, CALL) => Change::CallEnded,
        (0, signal) => Change::Signal(signal),
        _ => Change::Passing,
    }
}

/// Lets a tracee go on, with a signal unless that is 0. One that has been killed meanwhile is none of
/// our business any more.
pub(crate) fn resume(pid: Pid, request: Request, signal: i32) -> bool {
    let request = match request {
        Request::Cont => libc::PTRACE_CONT,
        Request::Syscall => libc::PTRACE_SYSCALL,
        Request::Listen => libc::PTRACE_LISTEN,
    };
    let data = usize::try_from(signal).unwrap_or(0);
    ask(request, pid, 0, data).is_ok()
}

/// Number that an exec's thread had before it became the leader of its process.
pub(crate) fn former_tid(pid: Pid) -> Option<Pid> {
    let number = nix::sys::ptrace::getevent(pid).ok()?;
    Some(Pid::from_raw(i32::try_from(number).ok()?))
}

/// A call as it stands at a stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    /// It will be made.
    Start {
        arch: u32,
        number: u32,
        args: [u64; 6],
    },
    /// It has ended.
    End { arch: u32, exit: i64, stack: u64 },
}

/// The call at which a tracee has stopped; since v5.3.
pub(crate) fn at(pid: Pid) -> Option<At> {
    let info = nix::sys::ptrace::syscall_info(pid).ok()?;
    match info.op {
        libc::PTRACE_SYSCALL_INFO_SECCOMP => {
            // SAFETY: `op` says that this is the part which the kernel has written.
            let call = unsafe { info.u.seccomp };
            Some(At::Start {
                arch: info.arch,
                number: u32::try_from(call.nr & 0xffff_ffff).unwrap_or(u32::MAX),
                args: call.args,
            })
        }
        libc::PTRACE_SYSCALL_INFO_EXIT => {
            // SAFETY: as above.
            let exit = unsafe { info.u.exit };
            Some(At::End {
                arch: info.arch,
                exit: exit.sval,
                stack: info.stack_pointer,
            })
        }
        _ => None,
    }
}

fn ask(request: c_uint, pid: Pid, addr: usize, data: usize) -> Result<(), Errno> {
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
    fn statuses_are_told_apart() {
        let stopped = |event: i32, signal: i32| (event << 16) | (signal << 8) | 0x7f;
        for (status, expected) in [
            (7 << 8, Change::Exited(7)),
            (9, Change::Killed(9)),
            (stopped(0, libc::SIGTRAP | 0x80), Change::CallEnded),
            (stopped(0, libc::SIGTRAP), Change::Signal(libc::SIGTRAP)),
            (stopped(0, 64), Change::Signal(64)),
            (
                stopped(128, libc::SIGTSTP),
                Change::GroupStopped(libc::SIGTSTP),
            ),
            (stopped(128, libc::SIGTRAP), Change::Passing),
            (stopped(7, libc::SIGTRAP), Change::Filtered),
            (stopped(4, libc::SIGTRAP), Change::Execed),
            (stopped(1, libc::SIGTRAP), Change::Passing),
        ] {
            assert_eq!(change(status), expected, "{status:#x}");
        }
    }
}
