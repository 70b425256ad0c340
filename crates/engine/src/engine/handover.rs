//! Pinning an engine, so that it outlives its process, and adopting a pinned one.

use std::io;
use std::sync::Arc;

use audit::plan::Plan;

use super::Engine;
use crate::abi;
use crate::attach::AttachedLink;
use crate::compile::watches::Watches;
use crate::decode::rule_keys::RuleKeys;
use crate::engine_kind::EngineKind;
use crate::epoch::Epoch;
use crate::error::EngineError;
use crate::handover::InheritedState;
use crate::handover::inherited_programs::{self, InheritedProgram};
use crate::handover::pins::{CHECKPOINT_PIN, LINK_PREFIX, MAP_PREFIX, PLAN_PREFIX, PinDirectory};
use crate::handover::plan_snapshot::PlanSnapshot;
use crate::hooks::attach_point::AttachPoint;
use crate::hooks::hook_selection::HookSelection;
use crate::hooks::kernel_probe::KernelProbe;
use crate::hooks::program;
use crate::load::maps::{self, WatchKeys};
use crate::load::{ObjectSlots, Objects};
use crate::options::EngineOptions;
use crate::stats::{self, EngineStats};

impl<'s> Engine<'s> {
    /// Continues the pinned engine of a previous daemon: its programs stay attached, and reading continues at
    /// its checkpoint. Its last plan stays active until [`Engine::replace_plan`].
    ///
    /// # Errors
    /// [`EngineError`] names the missing object. The pins stay unchanged.
    pub fn adopt(
        slots: &mut ObjectSlots<'s>,
        probe: &KernelProbe,
        inherited: &InheritedState,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let InheritedState { pins, checkpoint } = inherited;
        let fixed = checkpoint.fixed();
        let unknown = || EngineError::pin("the engine")(io::ErrorKind::InvalidData.into());
        let kind = EngineKind::from_number(fixed.kind).ok_or_else(unknown)?;
        let programs = program::of_daemon(kind).collect();
        let objects =
            Objects::reuse_maps(slots, kind, probe.kernel.internal_hooks, programs, |name| {
                pins.get(&map_pin_name(name))
            })?;
        let mut kernel = probe.kernel;
        kernel.uring &= options.uring;
        kernel.skips_single_syscalls = fixed.skips_single_syscalls != 0;
        let mut selection = HookSelection::new(&Plan::default(), kind, kernel);
        selection.raw_enter = fixed.raw_enter != 0;
        selection.raw_exit = fixed.raw_exit != 0;
        let shared = Arc::clone(checkpoint);
        let mut engine = Self::from_objects(objects, kind, selection, shared, probe, options)?;
        engine.epoch = engine.globals.epoch();
        engine.fast_path = engine.globals.fast_path();
        let snapshot = pins
            .get(&plan_pin_name(engine.epoch))
            .and_then(PlanSnapshot::from_map)
            .map_err(EngineError::pin("the snapshot of the active plan"))?;
        engine.watch_keys =
            WatchKeys::from_maps(engine.objects.first(), engine.epoch, snapshot.names);
        engine.rule_drops.reset(engine.epoch, 1 << abi::RULE_BITS);
        let links = pins.names(LINK_PREFIX).map_err(EngineError::pin("links"))?;
        for name in links {
            // Names that no daemon makes are ignored; `PinDirectory::clear` removes them.
            if let Some(attach_point) = AttachPoint::from_name(&name) {
                let link = AttachedLink::open(pins, attach_point);
                let link = link.map_err(EngineError::pin(name))?;
                engine.links.insert(attach_point, link);
            }
        }
        let linked = engine.links.values();
        let linked = linked.filter_map(|link| stats::link_program_id(&link.link));
        let used = linked.chain(engine.objects.tail_call_targets()).collect();
        let inherited = InheritedProgram::collect(pins, &used);
        engine.inherited = inherited.map_err(EngineError::pin("programs"))?;
        engine.detached_misses = checkpoint.detached_misses();
        engine.detacher.set_pins(pins.clone());
        engine.pins = Some(pins.clone());
        let counted = engine.counters.sum();
        let position = checkpoint.position();
        let [ring_full, ..] = position.reported_lost;
        engine.baseline = EngineStats {
            matched: position.events + ring_full,
            delivered: position.events,
            lost: position.reported_lost,
            truncated: counted.truncated,
        };
        engine.learn_root()?;
        engine.read_clock()?; // runs `daemon_register`, which exempts this process from auditing
        // Nothing may end a locked engine: [`Engine::skip_risk`] reports that its programs can be skipped.
        if kind == EngineKind::Fentry && !pins.is_locked() {
            engine.check_preemption(engine.links.keys())?;
        }
        engine.start_heartbeat()?;
        Ok(engine)
    }

    /// Pins everything, so that it outlives this process. Removes all earlier pins. `text` is the plan snapshot
    /// for [`InheritedState::plan_snapshots`].
    ///
    /// # Errors
    /// [`EngineError::Pin`]; then nothing is pinned.
    pub fn pin(&mut self, pins: &PinDirectory, text: &[u8]) -> Result<(), EngineError> {
        let pinned = self.pin_all(pins, text);
        // Without it the next daemon reports a gap that there was not.
        let _result = pins.end_restart();
        if pinned.is_ok() {
            self.detacher.set_pins(pins.clone());
            self.pins = Some(pins.clone());
        } else {
            // The error of the pin is the one to report.
            let _result = pins.clear();
        }
        pinned
    }

    fn pin_all(&self, pins: &PinDirectory, text: &[u8]) -> Result<(), EngineError> {
        pins.clear()
            .map_err(|error| EngineError::pin("the engine")(io::Error::other(error)))?;
        for (name, map) in self.objects.maps() {
            pins.pin(&map_pin_name(&name), map)
                .map_err(EngineError::pin(name))?;
        }
        let [even, odd] = &self.watch_keys;
        let half = if self.epoch.half() == 0 { even } else { odd };
        pin_plan_snapshot(pins, self.epoch, half.name_keys(), text)?;
        self.pin_programs(pins)?;
        for (&attach_point, link) in &self.links {
            link.pin(pins, attach_point)
                .map_err(EngineError::pin(attach_point.to_string()))?;
        }
        // Last: this pin makes the set complete.
        pins.pin(CHECKPOINT_PIN, &*self.checkpoint)
            .map_err(EngineError::pin(CHECKPOINT_PIN))
    }

    /// Pins the objects that are new with a plan, if the engine is pinned.
    pub(super) fn pin_plan(
        &self,
        epoch: Epoch,
        watches: &Watches,
        text: &[u8],
    ) -> Result<(), EngineError> {
        let Some(pins) = &self.pins else {
            return Ok(());
        };
        self.pin_programs(pins)?;
        let _accesses = self.begin_map_accesses();
        let names: Vec<u64> = maps::name_keys(epoch, watches).collect();
        pin_plan_snapshot(pins, epoch, &names, text)?;
        if self.is_guarded() {
            self.update_guarded_maps()?;
        }
        Ok(())
    }

    /// Pins the programs that are not pinned. The kernel counts recursion misses in the program.
    fn pin_programs(&self, pins: &PinDirectory) -> Result<(), EngineError> {
        for program in self.objects.programs() {
            inherited_programs::pin(pins, program)
                .map_err(|(what, source)| EngineError::Pin { what, source })?;
        }
        Ok(())
    }

    /// Whether the programs were loaded with these options.
    #[must_use]
    pub fn supports(&self, options: EngineOptions) -> bool {
        let same = (self.checkpoint.fixed().context != 0) == options.context;
        same && (!options.avc || self.has_avc_scratch())
    }

    /// Whether the engine outlives this process.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        self.pins.is_some()
    }

    /// Removes the snapshots of all plans that are not in `keys`. Call it when no event of another plan is in
    /// the ring or on its way to the log.
    pub fn remove_old_snapshots(&self, keys: &RuleKeys) {
        let Some(pins) = &self.pins else {
            return;
        };
        for name in pins.names(PLAN_PREFIX).unwrap_or_default() {
            if name.parse().is_ok_and(|epoch| !keys.contains(Epoch(epoch))) {
                // A snapshot that stays is of a plan without events.
                let _result = pins.remove(&format!("{PLAN_PREFIX}{name}"));
            }
        }
    }
}

/// Name of the pin of a map. bpffs does not allow dots in names.
fn map_pin_name(map: &str) -> String {
    format!("{MAP_PREFIX}{}", map.replace('.', "_"))
}

/// Name of the pin of a plan snapshot.
fn plan_pin_name(epoch: Epoch) -> String {
    format!("{PLAN_PREFIX}{}", epoch.0)
}

pub(super) fn pin_plan_snapshot(
    pins: &PinDirectory,
    epoch: Epoch,
    names: &[u64],
    text: &[u8],
) -> Result<(), EngineError> {
    let snapshot = PlanSnapshot {
        names: names.to_vec(),
        text: text.to_vec(),
    };
    let name = plan_pin_name(epoch);
    snapshot
        .to_map()
        .and_then(|map| pins.pin(&name, map))
        .map_err(EngineError::pin(name))
}
