//! Checks that the kernel runs the programs on its functions: at start, and later on request.

use super::Engine;
use crate::attach::heartbeat::Heartbeat;
use crate::error::EngineError;
use crate::hooks::kernel_probe;
use crate::hooks::program::Program;
use audit::plan::hook::EngineKind;

impl Engine<'_> {
    /// Attaches the heartbeat program of the engine `fentry` and checks that it runs.
    ///
    /// # Errors
    /// [`EngineError::Preempts`] on a preemptible kernel, [`EngineError::HooksDisabled`] when the program
    /// does not run, [`EngineError::Attach`].
    pub(super) fn start_heartbeat(&mut self) -> Result<(), EngineError> {
        if self.kind == EngineKind::Fentry {
            self.check_preemption()?;
            let heartbeat = self.program(Program::Heartbeat)?;
            self.heartbeat = Some(Heartbeat::attach(heartbeat, self.globals)?);
            if !self.programs_run() {
                return Err(EngineError::HooksDisabled);
            }
        }
        Ok(())
    }

    /// Refuses preemptible kernels. The kernel skips a program on a function while another task, preempted
    /// inside the same program, occupies the CPU's `active` counter.
    ///
    /// # Source
    /// `prog->active` in `kernel/bpf/trampoline.c`, Linux 6.12.
    fn check_preemption(&self) -> Result<(), EngineError> {
        let mode = match self.globals.preemption_mode() {
            0 | 1 => return Ok(()),
            2 => "full",
            3 => "lazy",
            _ if !kernel_probe::preemptible_by_build() => return Ok(()),
            _ => "unknown mode",
        };
        Err(EngineError::Preempts { mode })
    }

    /// Whether the kernel runs the programs now. Programs on tracepoints always run. Programs on functions
    /// do not run while `kernel.ftrace_enabled` is 0; no counter of the kernel shows that.
    #[must_use]
    pub fn programs_run(&self) -> bool {
        self.heartbeat.as_ref().is_none_or(Heartbeat::programs_run)
    }
}
