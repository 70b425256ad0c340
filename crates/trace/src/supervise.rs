//! Follows a command until its last process ends.

mod notify;
mod tracer;

use audit::plan::Plan;
use nix::errno::Errno;
use nix::sys::signal::Signal;

use crate::backend::{Backend, ResultCapture};
use crate::launch::{RunError, TracedCommand, want_descriptors};
use crate::recorder::{Observer, Recorder, RunStats};

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
        want_descriptors();
        let recorder = Recorder::new(plan, results, observer);
        match self.carrier {
            Backend::Trace => tracer::follow(self, recorder),
            Backend::Notify => notify::follow(self, recorder),
        }
    }
}
