//! The engine `seccomp`: the calls of one command and of all that it starts, without any privilege.
//!
//! A filter that the command cannot take off stops the calls that rules may keep; this process looks at
//! each stopped call, reads what the rules and the records need, and lets it go on. There are two ways to
//! stop, [`Backend`]:
//!
//! - `Trace`: the filter answers `SECCOMP_RET_TRACE`, the supervisor is the tasks' tracer, and a call whose
//!   result is wanted stops a second time when it ends;
//! - `Notify`: the filter answers `SECCOMP_RET_USER_NOTIF`. It costs a third of the other way, needs no
//!   tracer, and never knows the result.
//!
//! It observes programs that do not hide: names are read from their memory, and a hostile program could
//! change them between that reading and the kernel's. It is no security boundary.
//!
//! | module | does |
//! | --- | --- |
//! | `filter` | plan to filter |
//! | `launch` | starts the command under it |
//! | `trace`, `notify` | take the stops |
//! | `recorder` | one stopped call to an event, or to none |
//! | `task`, `ids`, `memory` | who makes it; what lies in its memory |
//! | `object`, `items` | what it names, and the PATH items of that |
//! | `exec`, `socket` | programs and addresses that it is given |
//! | `ptrace` | requests to tracees that no library offers whole |

mod exec;
mod filter;
mod ids;
mod items;
mod launch;
mod memory;
mod notify;
mod object;
mod ptrace;
mod recorder;
mod socket;
mod task;
mod trace;

use audit::event::Event;
use audit::plan::{CallPlan, Plan, Subject};
use audit::rule::Field;
use nix::errno::Errno;
use nix::sys::signal::Signal;

pub use launch::{CommandSpec, TracedCommand, exit_by_signal};
pub use recorder::RunStats;

/// How calls are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// By ptrace, twice where the result is wanted.
    Trace,
    /// By notification of a supervisor, before the call is made.
    Notify,
}

/// Whether records have the results of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultCapture {
    /// They have.
    Wanted,
    /// Only those of calls that some rule chooses by result.
    Unneeded,
}

/// Takes the events, one by one, and the remarks.
pub trait Observer {
    /// A call that a rule keeps.
    fn event(&mut self, event: &Event<'_>);
    /// Something that a person at the terminal should know.
    fn remark(&mut self, text: &str);
}

/// How the command's first process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandStatus {
    /// It exited with this status.
    Code(i32),
    /// A signal killed it.
    Signal(Signal),
    /// The program could not be executed.
    NotStarted(Errno),
}

/// What happened, when nobody of the command is left.
#[derive(Clone, Debug)]
pub struct RunSummary {
    /// How the first process ended.
    pub ending: CommandStatus,
    /// What was seen, and what was not.
    pub counts: RunStats,
}

/// Why a command cannot be audited here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No process could be made for it.
    #[error("cannot start the command")]
    Start(#[source] std::io::Error),
    /// The kernel did not take the filter.
    #[error("cannot install the seccomp filter")]
    Filter(#[source] Errno),
    /// The supervisor may not trace its own child.
    #[error("cannot trace the command")]
    Trace(#[source] Errno),
    /// The memory of its own child may not be read.
    #[error("cannot read the memory of the command")]
    Read(#[source] Errno),
    /// Waiting for stops failed.
    #[error("cannot wait for the command")]
    Wait(#[source] Errno),
}

impl Backend {
    /// The cheapest way that gives what is wanted.
    #[must_use]
    pub fn of(plan: &Plan, results: ResultCapture) -> Self {
        if results == ResultCapture::Wanted || launch::asks_for_result(plan) {
            Self::Trace
        } else {
            Self::Notify
        }
    }
}

impl TracedCommand {
    /// Follows the command until all of its processes have ended.
    ///
    /// # Errors
    /// When the kernel does not let it be followed any more; what is left of it is killed.
    pub fn follow(
        self,
        plan: &Plan,
        results: ResultCapture,
        observer: &mut impl Observer,
    ) -> Result<RunSummary, RunError> {
        launch::want_descriptors();
        let recorder = recorder::Recorder::new(plan, results, observer);
        match self.carrier {
            Backend::Trace => trace::follow(self, recorder),
            Backend::Notify => notify::follow(self, recorder),
        }
    }
}

/// Whether some rule of a call can only be decided when the call has ended.
fn asks_for_result(rules: &CallPlan) -> bool {
    let tests = || rules.slots.iter().flat_map(|slot| &slot.tests);
    let of_end = [Field::Exit, Field::Success, Field::SaddrFam].map(Subject::Field);
    tests().any(|test| of_end.contains(&test.subject))
}
