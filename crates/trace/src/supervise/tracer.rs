//! Stops by ptrace: one before each call that the filter stops, and one at its end where its result is
//! wanted. New processes and threads are tracees from their start.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollTimeout, poll};
use nix::sys::signal::{Signal, raise};
use nix::unistd::{Pid, getpgid, getpgrp};

use audit::ids::Arch;
use audit::plan::SyscallId;

use super::{CommandStatus, RunSummary};
use crate::filter;
use crate::launch::RunError;
use crate::launch::{SharedPage, TracedCommand};
use crate::ptrace::{ResumeMode, StopEvent, SyscallInfo, previous_tid, resume, syscall_info, wait};
use crate::recorder::Observer;
use crate::recorder::{PendingSyscall, Recorder, SyscallEntry, SyscallResult, call};

/// How long the next stop is waited for without sleeping: going to sleep and being woken, often on
/// another CPU, takes longer than most calls do.
const SPIN: Duration = Duration::from_micros(30);
/// A process group is stopped signal by signal: how long none may come before we stop with it.
const GROUP_STOP_QUIET_MS: u16 = 10;

/// Follows the command until nobody of it is left.
pub(crate) fn follow<O: Observer>(
    started: TracedCommand,
    mut recorder: Recorder<'_, O>,
) -> Result<RunSummary, RunError> {
    recorder.track_execs();
    let mut tracer = Tracer {
        recorder,
        root: started.child,
        shared: started.shared,
        status: None,
        pending: HashMap::new(),
        group_stopped: false,
        spin: true,
        is_smp: std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1),
        ptrace_syscalls: filter::syscalls_named("ptrace"),
        warned_ptrace: false,
    };
    if let Some(change) = started.early_stop {
        tracer.handle(tracer.root, change);
    }
    loop {
        match tracer.next() {
            Ok((pid, change)) => tracer.handle(pid, change),
            Err(Errno::ECHILD) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(RunError::Wait(errno)),
        }
    }
    let status = tracer.status.unwrap_or(CommandStatus::Exited(0));
    Ok(RunSummary {
        status: tracer
            .shared
            .exec_error()
            .map_or(status, CommandStatus::ExecFailed),
        stats: tracer.recorder.stats,
    })
}

struct Tracer<'a, O> {
    recorder: Recorder<'a, O>,
    root: Pid,
    shared: SharedPage,
    status: Option<CommandStatus>,
    /// Calls whose end is waited for, by thread.
    pending: HashMap<i32, PendingSyscall>,
    /// The first process has been stopped as one of our own process group.
    group_stopped: bool,
    /// A call was let go a moment ago: the next stop may be near.
    spin: bool,
    is_smp: bool,
    /// `ptrace`, which fails for who is traced.
    ptrace_syscalls: Vec<SyscallId>,
    warned_ptrace: bool,
}

impl<O: Observer> Tracer<'_, O> {
    fn next(&mut self) -> Result<(Pid, StopEvent), Errno> {
        if self.group_stopped {
            self.stop_with_group();
        }
        // On one CPU, whoever stays awake keeps the others from coming to a stop.
        if std::mem::take(&mut self.spin) && self.is_smp {
            let until = Instant::now() + SPIN;
            loop {
                if let Some(found) = wait(None, libc::__WALL | libc::WNOHANG)? {
                    return Ok(found);
                }
                if Instant::now() >= until {
                    break;
                }
                std::thread::yield_now();
            }
        }
        wait(None, libc::__WALL)?.ok_or(Errno::EINTR)
    }

    fn handle(&mut self, pid: Pid, change: StopEvent) {
        match change {
            StopEvent::Exited(code) => self.handle_end(pid, CommandStatus::Exited(code)),
            StopEvent::Signaled(signal) => {
                // The numbers above are real-time signals, which have no name.
                let status = Signal::try_from(signal)
                    .map_or(CommandStatus::Exited(128 + signal), CommandStatus::Signaled);
                self.handle_end(pid, status);
            }
            StopEvent::Seccomp => self.begin(pid),
            StopEvent::SyscallExit => self.end(pid),
            StopEvent::Exec => {
                self.handle_exec(pid);
                self.resume_tracee(pid, 0);
            }
            StopEvent::Signal(signal) => self.resume_tracee(pid, signal),
            StopEvent::GroupStop(_) => {
                resume(pid, ResumeMode::Listen, 0);
                self.group_stopped |= pid == self.root && getpgid(Some(pid)) == Ok(getpgrp());
            }
            StopEvent::Other => self.resume_tracee(pid, 0),
        }
    }

    fn begin(&mut self, pid: Pid) {
        let Some(SyscallInfo::Entry { arch, number, args }) = syscall_info(pid) else {
            self.resume_tracee(pid, 0);
            return;
        };
        let call = call(arch, number);
        if self.ptrace_syscalls.contains(&call) {
            self.warn_ptrace();
        }
        let stop = SyscallEntry {
            tid: pid,
            call,
            args,
        };
        match self.recorder.begin(stop) {
            Some(pending) if pending.wants_result => {
                if resume(pid, ResumeMode::Syscall, 0) {
                    self.pending.insert(pid.as_raw(), pending);
                }
            }
            Some(pending) => {
                let resume_task = || resume(pid, ResumeMode::Cont, 0);
                self.recorder
                    .end(pending, SyscallResult::Unknown, resume_task);
            }
            None => self.resume_tracee(pid, 0),
        }
        self.spin = true;
    }

    fn end(&mut self, pid: Pid) {
        let Some(pending) = self.pending.remove(&pid.as_raw()) else {
            self.resume_tracee(pid, 0);
            return;
        };
        let end = match syscall_info(pid) {
            Some(SyscallInfo::Exit { arch, exit, stack }) => SyscallResult::Returned {
                exit,
                stack,
                arch: Arch(arch),
            },
            _ => SyscallResult::TaskGone,
        };
        self.recorder.end(pending, end, || {
            resume(pid, ResumeMode::Cont, 0);
            true
        });
        self.spin = true;
    }

    /// A thread that execs becomes the leader of its process; all others have ended.
    fn handle_exec(&mut self, pid: Pid) {
        if let Some(former) = previous_tid(pid).filter(|&former| former != pid) {
            self.end_pending(pid);
            if let Some(pending) = self.pending.remove(&former.as_raw()) {
                self.pending.insert(pid.as_raw(), pending.with_tid(pid));
            }
            self.recorder.tasks.remove(former);
            self.recorder.tasks.remove(pid);
        }
        self.recorder.exec_completed(pid);
    }

    fn handle_end(&mut self, pid: Pid, status: CommandStatus) {
        self.end_pending(pid);
        self.recorder.tasks.remove(pid);
        if pid == self.root {
            self.status = Some(status);
        }
    }

    fn end_pending(&mut self, pid: Pid) {
        if let Some(pending) = self.pending.remove(&pid.as_raw()) {
            self.recorder.end(pending, SyscallResult::TaskGone, || true);
        }
    }

    fn resume_tracee(&self, pid: Pid, signal: i32) {
        let request = if self.pending.contains_key(&pid.as_raw()) {
            ResumeMode::Syscall
        } else {
            ResumeMode::Cont
        };
        resume(pid, request, signal);
    }

    /// Stops as the command did, so that the shell which waits for us takes the terminal back. First,
    /// every process of the group gets its own signal, which only we can pass on.
    fn stop_with_group(&mut self) {
        self.group_stopped = false;
        loop {
            match wait(None, libc::__WALL | libc::WNOHANG) {
                Ok(Some((pid, change))) => self.handle(pid, change),
                Ok(None)
                    if matches!(poll(&mut [], PollTimeout::from(GROUP_STOP_QUIET_MS)), Ok(0)) =>
                {
                    match wait(None, libc::__WALL | libc::WNOHANG) {
                        Ok(Some((pid, change))) => self.handle(pid, change),
                        _ => break,
                    }
                }
                Ok(None) => {}
                Err(_) => return,
            }
        }
        self.group_stopped = false;
        // We go on when the shell says so, and so does the command.
        let _stopped = raise(Signal::SIGSTOP);
    }

    fn warn_ptrace(&mut self) {
        if !std::mem::replace(&mut self.warned_ptrace, true) {
            self.recorder.warn(
                "a process of the command uses ptrace, which is refused: a task can have one tracer, \
                 and that is tollgate; with --no-result and rules that do not ask for exit or success \
                 it is none",
            );
        }
    }
}
