//! Following the programs of another build, or other hooks of this one, which go on recording until this engine is
//! attached.

use std::sync::atomic::Ordering;

use audit::plan::Plan;

use super::Engine;
use crate::engine_kind::EngineKind;
use crate::epoch::Epoch;
use crate::error::EngineError;
use crate::handover::plan_switch::PlanSwitch;
use crate::hooks::kernel_probe::KernelProbe;
use crate::load::ObjectSlots;
use crate::options::EngineOptions;
use crate::stats::EngineStats;
use crate::sys::rcu;

impl<'s> Engine<'s> {
    /// As [`Engine::start`], but the programs record nothing before [`Engine::begin_after`] or
    /// [`Engine::begin_in_place_of`].
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start_silent(
        slots: &mut ObjectSlots<'s>,
        probe: &KernelProbe,
        plan: &Plan,
        kind: EngineKind,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let (mut engine, attach_points) = Self::prepare(slots, probe, plan, kind, options)?;
        engine.write_empty_plan(Epoch::BEFORE_FIRST)?;
        engine
            .globals
            .switch_epoch(engine.epoch, Epoch::BEFORE_FIRST, engine.globals.jiffies());
        engine.globals.clear_previous_epoch();
        engine.attach_all(attach_points)
    }

    /// Activates the plan of an engine that started silently, and ends the recording of the programs of
    /// `previous`, which must be prepared. Between the two stores a call that ends is recorded by both.
    ///
    /// # Errors
    /// The clock or the variables cannot be read; then nothing has changed.
    pub fn begin_after(&self, previous: &PlanSwitch) -> Result<(), EngineError> {
        let jiffies = self.read_clock()?.jiffies;
        let (epoch, empty) = previous.last_store(jiffies).map_err(EngineError::system(
            "end the recording of the previous programs",
        ))?;
        self.globals
            .switch_epoch(Epoch::BEFORE_FIRST, self.epoch, jiffies);
        epoch.store(empty, Ordering::Release);
        // What they are writing is in their ring then. Without the wait it can be missing, but nothing is undone.
        let _waited = rcu::wait_for_programs();
        Ok(())
    }

    /// Activates the plan of an engine that started silently, and ends the recording of `previous`. Between the two
    /// stores a call that ends is recorded by both.
    ///
    /// # Errors
    /// The clock cannot be read, or `previous` cannot get a plan without rules; then its plan stays active.
    pub fn begin_in_place_of(&self, previous: &mut Engine<'_>) -> Result<(), EngineError> {
        let empty = previous.prepare_empty_plan()?;
        let jiffies = self.read_clock()?.jiffies;
        self.globals
            .switch_epoch(Epoch::BEFORE_FIRST, self.epoch, jiffies);
        previous
            .globals
            .switch_epoch(previous.epoch, empty, jiffies);
        previous.epoch = empty;
        Ok(())
    }

    /// Adds the counters of the engine before this one, whose events are in the same log.
    pub fn add_followed(&mut self, stats: EngineStats) {
        self.followed += stats;
    }
}
