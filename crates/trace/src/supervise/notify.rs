//! Backend `Notify`: the kernel stops a syscall at entry until the supervisor continues it. The result is not
//! known.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, raise};
use nix::unistd::{Pid, getpgid, getpgrp};

use super::{CommandStatus, RunSummary};
use crate::launch::RunError;
use crate::launch::TracedCommand;
use crate::ptrace::{StopEvent, wait};
use crate::recorder::Observer;
use crate::recorder::{Recorder, SyscallEntry, SyscallResult, call};

/// Handles notifications until no task uses the filter any more.
pub(crate) fn follow<O: Observer>(
    started: TracedCommand,
    mut recorder: Recorder<'_, O>,
) -> Result<RunSummary, RunError> {
    let TracedCommand {
        child,
        listener,
        shared,
        early_stop,
        ..
    } = started;
    let listener = listener.ok_or(RunError::Filter(Errno::ENOSYS))?;
    let waiter = thread::Builder::new()
        .name("tlg-wait".into())
        .spawn(move || wait_for_exit(child, early_stop))
        .map_err(RunError::Start)?;
    let polls = !receive_reports_end();
    while let Some(notification) = receive(&listener, polls).map_err(RunError::Wait)? {
        handle(&mut recorder, &listener, &notification);
    }
    let status = waiter.join().unwrap_or(CommandStatus::Exited(1));
    Ok(RunSummary {
        status: shared
            .exec_error()
            .map_or(status, CommandStatus::ExecFailed),
        stats: recorder.stats,
    })
}

fn handle<O: Observer>(
    recorder: &mut Recorder<'_, O>,
    listener: &OwnedFd,
    notification: &libc::seccomp_notif,
) {
    let resume_task = || continue_syscall(listener, notification.id);
    let data = &notification.data;
    let Ok(tid) = i32::try_from(notification.pid) else {
        let _present = resume_task();
        return;
    };
    let stop = SyscallEntry {
        tid: Pid::from_raw(tid),
        call: call(data.arch, data.nr.cast_unsigned()),
        args: data.args,
    };
    let pending = recorder.begin(stop);
    if stop.call.is_exec() {
        recorder.exec_attempted(stop);
    }
    match pending {
        Some(pending) => recorder.end(pending, SyscallResult::Unknown, resume_task),
        None => {
            let _present = resume_task();
        }
    }
}

/// Whether `SECCOMP_IOCTL_NOTIF_RECV` fails when no task uses the filter any more: since v6.11. Before, it
/// blocks forever.
fn receive_reports_end() -> bool {
    let release = nix::sys::utsname::uname().ok();
    let release = release.as_ref().and_then(|name| name.release().to_str());
    let mut numbers = release
        .unwrap_or_default()
        .split(|letter: char| !letter.is_ascii_digit())
        .map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(11))
}

/// The next notification; `None` when no task uses the filter any more.
fn receive(listener: &OwnedFd, polls: bool) -> Result<Option<libc::seccomp_notif>, Errno> {
    loop {
        if polls && !wait_for_call(listener)? {
            return Ok(None);
        }
        // SAFETY: all members are integers; the kernel requires all of them to be 0.
        let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the request writes a `struct seccomp_notif` to the address, which is writable.
        let answer = unsafe {
            libc::ioctl(
                listener.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                &raw mut notification,
            )
        };
        match Errno::result(answer) {
            Ok(_) => return Ok(Some(notification)),
            // The stopped task was killed, or no task uses the filter any more.
            Err(Errno::ENOENT) if polls || wait_for_call(listener)? => {}
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Waits for a notification; false when no task uses the filter any more.
fn wait_for_call(listener: &OwnedFd) -> Result<bool, Errno> {
    loop {
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let [fd] = fds;
        let ready = fd.revents().unwrap_or(PollFlags::empty());
        if ready.contains(PollFlags::POLLIN) {
            return Ok(true);
        }
        if ready.contains(PollFlags::POLLHUP) {
            return Ok(false);
        }
    }
}

/// Continues a stopped syscall; false when its task was killed.
fn continue_syscall(listener: &OwnedFd, id: u64) -> bool {
    const SECCOMP_USER_NOTIF_FLAG_CONTINUE: u32 = 1;
    let mut response = libc::seccomp_notif_resp {
        id,
        val: 0,
        error: 0,
        flags: SECCOMP_USER_NOTIF_FLAG_CONTINUE,
    };
    // SAFETY: the request reads a `struct seccomp_notif_resp` from the address.
    let answer = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            &raw mut response,
        )
    };
    answer == 0
}

/// Waits for the end of the first process. Stops this process when a job-control signal stops it and both are
/// in the same process group.
fn wait_for_exit(child: Pid, early_stop: Option<StopEvent>) -> CommandStatus {
    let mut known = early_stop;
    loop {
        let change = match known.take() {
            Some(change) => Ok(Some(change)),
            None => {
                let found = wait(Some(child), libc::__WALL | libc::WUNTRACED);
                found.map(|found| found.map(|(_, change)| change))
            }
        };
        match change {
            Ok(Some(StopEvent::Exited(code))) => return CommandStatus::Exited(code),
            Ok(Some(StopEvent::Signaled(signal))) => {
                return Signal::try_from(signal)
                    .map_or(CommandStatus::Exited(128 + signal), CommandStatus::Signaled);
            }
            Ok(Some(_)) if getpgid(Some(child)) == Ok(getpgrp()) => {
                let _stopped = raise(Signal::SIGSTOP);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return CommandStatus::ExecFailed(errno),
        }
    }
}
