//! Checks whether the kernel accepts the programs of a plan, without attaching them.

use audit::plan::Plan;

use super::Engine;
use crate::engine_kind::EngineKind;
use crate::error::EngineError;
use crate::hooks::kernel_probe::KernelProbe;
use crate::load::ObjectSlots;
use crate::options::EngineOptions;
use crate::preemption::Preemption;
use crate::stats;

/// Programs of an engine that a kernel has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedPrograms {
    /// Preemption mode of the kernel.
    pub preemption: Preemption,
    /// Names, each with the number of instructions that the verifier has processed, sorted by name. Empty before
    /// v5.16.
    pub verified: Vec<(String, u64)>,
}

impl<'s> Engine<'s> {
    /// Checks whether the engine takes a plan: loads the programs and writes the plan, but attaches nothing. Returns
    /// what the kernel makes of the programs.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn check(
        slots: &mut ObjectSlots<'s>,
        probe: &KernelProbe,
        plan: &Plan,
        kind: EngineKind,
        options: EngineOptions,
    ) -> Result<CheckedPrograms, EngineError> {
        let (engine, _) = Self::prepare(slots, probe, plan, kind, options)?;
        let mut verified: Vec<(String, u64)> = engine
            .objects
            .programs()
            .filter_map(|program| {
                let name = program.name().to_string_lossy().into_owned();
                Some((name, stats::verified_instructions(program)?))
            })
            .collect();
        verified.sort_unstable();
        Ok(CheckedPrograms {
            preemption: engine.preemption(),
            verified,
        })
    }
}
