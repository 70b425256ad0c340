//! Supervises a command until its last process ends.

mod notify;
mod tracer;

use audit::plan::Plan;
use nix::errno::Errno;
use nix::sys::signal::Signal;

use crate::backend::{Backend, ResultCapture};
use crate::launch::{RunError, TracedCommand, raise_fd_limit};
use crate::recorder::{Observer, Recorder, RunStats};

/// How the first process of a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandStatus {
    /// It exited with this status.
    Exited(i32),
    /// A signal killed it.
    Signaled(Signal),
    /// The program could not be executed.
    ExecFailed(Errno),
}

/// Result of a supervised command.
#[derive(Clone, Debug)]
pub struct RunSummary {
    /// How the first process ended.
    pub status: CommandStatus,
    /// Counters.
    pub stats: RunStats,
}

impl TracedCommand {
    /// Supervises the command until all its processes have ended.
    ///
    /// # Errors
    /// [`RunError`] when the kernel ends the supervision; then the remaining processes are killed.
    pub fn supervise(
        self,
        plan: &Plan,
        results: ResultCapture,
        observer: &mut impl Observer,
    ) -> Result<RunSummary, RunError> {
        raise_fd_limit();
        let recorder = Recorder::new(plan, results, observer);
        match self.backend {
            Backend::Ptrace => tracer::follow(self, recorder),
            Backend::Notify => notify::follow(self, recorder),
        }
    }
}
