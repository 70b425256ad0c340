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
use crate::launch::{Page, TracedCommand};
use crate::ptrace::{At, Change, Request, at, former_tid, resume, wait};
use crate::recorder::Observer;
use crate::recorder::{Begun, End, Recorder, Stop, call};

/// How long the next stop is waited for without sleeping: going to sleep and being woken, often on
/// another CPU, takes longer than most calls do.
const AWAKE: Duration = Duration::from_micros(30);
/// A process group is stopped signal by signal: how long none may come before we stop with it.
const SETTLE_MS: u16 = 10;

/// Follows the command until nobody of it is left.
pub(crate) fn follow<O: Observer>(
    started: TracedCommand,
    mut recorder: Recorder<'_, O>,
) -> Result<RunSummary, RunError> {
    recorder.execs_are_told();
    let mut tracer = Tracer {
        recorder,
        root: started.child,
        page: started.page,
        ending: None,
        under_way: HashMap::new(),
        group_stopped: false,
        awake: true,
        several_cpus: std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1),
        refused: filter::calls_named("ptrace"),
        told_of_tracer: false,
    };
    if let Some(change) = started.early {
        tracer.take(tracer.root, change);
    }
    loop {
        match tracer.next() {
            Ok((pid, change)) => tracer.take(pid, change),
            Err(Errno::ECHILD) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(RunError::Wait(errno)),
        }
    }
    let ending = tracer.ending.unwrap_or(CommandStatus::Code(0));
    Ok(RunSummary {
        ending: tracer
            .page
            .exec_error()
            .map_or(ending, CommandStatus::NotStarted),
        counts: tracer.recorder.counts,
    })
}

struct Tracer<'a, O> {
    recorder: Recorder<'a, O>,
    root: Pid,
    page: Page,
    ending: Option<CommandStatus>,
    /// Calls whose end is waited for, by thread.
    under_way: HashMap<i32, Begun>,
    /// The first process has been stopped as one of our own process group.
    group_stopped: bool,
    /// A call was let go a moment ago: the next stop may be near.
    awake: bool,
    several_cpus: bool,
    /// `ptrace`, which fails for who is traced.
    refused: Vec<SyscallId>,
    told_of_tracer: bool,
}

impl<O: Observer> Tracer<'_, O> {
    fn next(&mut self) -> Result<(Pid, Change), Errno> {
        if self.group_stopped {
            self.stop_with_the_group();
        }
        // On one CPU, whoever stays awake keeps the others from coming to a stop.
        if std::mem::take(&mut self.awake) && self.several_cpus {
            let until = Instant::now() + AWAKE;
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

    fn take(&mut self, pid: Pid, change: Change) {
        match change {
            Change::Exited(code) => self.ended(pid, CommandStatus::Code(code)),
            Change::Killed(signal) => {
                // The numbers above are real-time signals, which have no name.
                let ending = Signal::try_from(signal)
                    .map_or(CommandStatus::Code(128 + signal), CommandStatus::Signal);
                self.ended(pid, ending);
            }
            Change::Filtered => self.begin(pid),
            Change::CallEnded => self.end(pid),
            Change::Execed => {
                self.execed(pid);
                self.go_on(pid, 0);
            }
            Change::Signal(signal) => self.go_on(pid, signal),
            Change::GroupStopped(_) => {
                resume(pid, Request::Listen, 0);
                self.group_stopped |= pid == self.root && getpgid(Some(pid)) == Ok(getpgrp());
            }
            Change::Passing => self.go_on(pid, 0),
        }
    }

    fn begin(&mut self, pid: Pid) {
        let Some(At::Start { arch, number, args }) = at(pid) else {
            self.go_on(pid, 0);
            return;
        };
        let call = call(arch, number);
        if self.refused.contains(&call) {
            self.tell_of_tracer();
        }
        let stop = Stop {
            tid: pid,
            call,
            args,
        };
        match self.recorder.begin(stop) {
            Some(begun) if begun.waits => {
                if resume(pid, Request::Syscall, 0) {
                    self.under_way.insert(pid.as_raw(), begun);
                }
            }
            Some(begun) => {
                let go = || resume(pid, Request::Cont, 0);
                self.recorder.end(begun, End::Unknown, go);
            }
            None => self.go_on(pid, 0),
        }
        self.awake = true;
    }

    fn end(&mut self, pid: Pid) {
        let Some(begun) = self.under_way.remove(&pid.as_raw()) else {
            self.go_on(pid, 0);
            return;
        };
        let end = match at(pid) {
            Some(At::End { arch, exit, stack }) => End::Returned {
                exit,
                stack,
                arch: Arch(arch),
            },
            _ => End::Gone,
        };
        self.recorder.end(begun, end, || {
            resume(pid, Request::Cont, 0);
            true
        });
        self.awake = true;
    }

    /// A thread that execs becomes the leader of its process; all others have ended.
    fn execed(&mut self, pid: Pid) {
        if let Some(former) = former_tid(pid).filter(|&former| former != pid) {
            self.gone(pid);
            if let Some(begun) = self.under_way.remove(&former.as_raw()) {
                self.under_way.insert(pid.as_raw(), begun.by(pid));
            }
            self.recorder.tasks.forget(former);
            self.recorder.tasks.forget(pid);
        }
        self.recorder.exec_completed(pid);
    }

    fn ended(&mut self, pid: Pid, ending: CommandStatus) {
        self.gone(pid);
        self.recorder.tasks.forget(pid);
        if pid == self.root {
            self.ending = Some(ending);
        }
    }

    fn gone(&mut self, pid: Pid) {
        if let Some(begun) = self.under_way.remove(&pid.as_raw()) {
            self.recorder.end(begun, End::Gone, || true);
        }
    }

    fn go_on(&self, pid: Pid, signal: i32) {
        let request = if self.under_way.contains_key(&pid.as_raw()) {
            Request::Syscall
        } else {
            Request::Cont
        };
        resume(pid, request, signal);
    }

    /// Stops as the command did, so that the shell which waits for us takes the terminal back. First,
    /// every process of the group gets its own signal, which only we can pass on.
    fn stop_with_the_group(&mut self) {
        self.group_stopped = false;
        loop {
            match wait(None, libc::__WALL | libc::WNOHANG) {
                Ok(Some((pid, change))) => self.take(pid, change),
                Ok(None) if matches!(poll(&mut [], PollTimeout::from(SETTLE_MS)), Ok(0)) => {
                    match wait(None, libc::__WALL | libc::WNOHANG) {
                        Ok(Some((pid, change))) => self.take(pid, change),
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

    fn tell_of_tracer(&mut self) {
        if !std::mem::replace(&mut self.told_of_tracer, true) {
            self.recorder.remark(
                "a process of the command uses ptrace, which is refused: a task can have one tracer, \
                 and that is tollgate; with --no-result and rules that do not ask for exit or success \
                 it is none",
            );
        }
    }
}
