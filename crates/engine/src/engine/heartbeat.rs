//! Checks that the kernel runs the programs on its functions: at start, and later on request.

use libbpf_rs::ProgramMut;

use super::Engine;
use crate::attach::heartbeat::Heartbeat;
use crate::engine_kind::EngineKind;
use crate::error::EngineError;
use crate::hooks::program::Program;
use crate::stats;

impl Engine<'_> {
    /// Attaches the heartbeat program of an engine on functions and checks that it runs.
    ///
    /// # Errors
    /// [`EngineError::HooksDisabled`] when the program does not run, [`EngineError::Attach`].
    pub(super) fn start_heartbeat(&mut self) -> Result<(), EngineError> {
        self.heartbeat = match self.kind {
            EngineKind::Fentry => {
                let program = self.program(Program::Heartbeat)?;
                Some(Heartbeat::attach(program, self.globals)?)
            }
            EngineKind::Lsm => {
                let program = self.program(Program::HeartbeatKprobe)?;
                Some(Heartbeat::attach_kprobe(
                    program,
                    self.kprobes,
                    self.globals,
                )?)
            }
            EngineKind::Tracepoint => None,
        };
        if !self.programs_run() {
            return Err(EngineError::HooksDisabled);
        }
        Ok(())
    }

    /// How often the kernel skipped the heartbeat program, which loses no event.
    fn heartbeat_misses(&self) -> u64 {
        let program = self.heartbeat_kprobe();
        program.map_or(0, stats::recursion_misses)
    }

    fn heartbeat_kprobe(&self) -> Option<&ProgramMut<'_>> {
        self.objects.find(Program::HeartbeatKprobe)
    }

    /// Whether the kernel runs the programs now. Programs on tracepoints always run. Programs on functions
    /// do not run while `kernel.ftrace_enabled` is 0; no counter of the kernel shows that.
    #[must_use]
    pub fn programs_run(&self) -> bool {
        let before = self.heartbeat_misses();
        // A skipped run proves as well that the hook is enabled.
        self.heartbeat
            .as_ref()
            .is_none_or(|heartbeat| heartbeat.programs_run() || self.heartbeat_misses() != before)
    }
}
