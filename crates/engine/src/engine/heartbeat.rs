//! Checks that the kernel runs the programs on its functions: at start, and later on request.

use super::Engine;
use crate::attach::heartbeat::Heartbeat;
use crate::engine_kind::EngineKind;
use crate::error::EngineError;
use crate::hooks::program::Program;

impl Engine<'_> {
    /// Attaches the heartbeat program of the engine `fentry` and checks that it runs.
    ///
    /// # Errors
    /// [`EngineError::HooksDisabled`] when the program does not run, [`EngineError::Attach`].
    pub(super) fn start_heartbeat(&mut self) -> Result<(), EngineError> {
        if self.kind == EngineKind::Fentry {
            let heartbeat = self.program(Program::Heartbeat)?;
            self.heartbeat = Some(Heartbeat::attach(heartbeat, self.globals)?);
            if !self.programs_run() {
                return Err(EngineError::HooksDisabled);
            }
        }
        Ok(())
    }

    /// Whether the kernel runs the programs now. Programs on tracepoints always run. Programs on functions
    /// do not run while `kernel.ftrace_enabled` is 0; no counter of the kernel shows that.
    #[must_use]
    pub fn programs_run(&self) -> bool {
        self.heartbeat.as_ref().is_none_or(Heartbeat::programs_run)
    }
}
