//! Backend `Ptrace`: a stop at the entry of each syscall that the filter selects, and one at its exit when the
//! result is needed. New processes and threads are traced from their start.

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

/// How long to poll for the next stop before sleeping. Sleeping and waking, often on another CPU, takes longer
/// than most syscalls.
const SPIN: Duration = Duration::from_micros(30);
/// A process group is stopped one process at a time: how long no stop may arrive before the group counts as
/// stopped.
const GROUP_STOP_QUIET_MS: u16 = 10;

/// Handles stops until all tasks of the command have ended.
pub(crate) fn follow<O: Observer>(
    started: TracedCommand,
    mut recorder: Recorder<'_, O>,
) -> Result<RunSummary, RunError> {
    recorder.track_execs();
    let ptrace_syscalls = filter::syscalls_named("ptrace", recorder.native());
    let mut tracer = Tracer {
        recorder,
        root: started.child,
        shared: started.shared,
        status: None,
        pending: HashMap::new(),
        group_stopped: false,
        spin: true,
        is_smp: std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1),
        ptrace_syscalls,
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
    /// Syscalls in progress whose exit stops, by thread.
    pending: HashMap<i32, PendingSyscall>,
    /// The first process was stopped with the process group of this process.
    group_stopped: bool,
    /// A task was resumed just now; the next stop may follow soon.
    spin: bool,
    is_smp: bool,
    /// `ptrace(2)` of both ABIs, which fails for tasks that are traced already.
    ptrace_syscalls: Vec<SyscallId>,
    warned_ptrace: bool,
}

impl<O: Observer> Tracer<'_, O> {
    fn next(&mut self) -> Result<(Pid, StopEvent), Errno> {
        if self.group_stopped {
            self.stop_with_group();
        }
        // With one CPU, polling would keep the tracees from running.
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
                // Real-time signals are not in `Signal`.
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

    /// A thread that execs becomes the thread group leader; all other threads have ended.
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

    /// Stops this process as the command was stopped, so that the shell takes the terminal back. First passes
    /// the stop signal to every process of the group, which only the tracer can do.
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
        // SIGCONT from the shell continues this process and the command.
        let _stopped = raise(Signal::SIGSTOP);
    }

    fn warn_ptrace(&mut self) {
        if !std::mem::replace(&mut self.warned_ptrace, true) {
            self.recorder.warn(
                "ptrace(2) fails in this command: a task can have one tracer, and tollgate traces it; \
                 --no-result, with rules that do not test exit or success, needs no tracer",
            );
        }
    }
}
