//! An engine whose programs outlive its process: pinning them, and going on with those of another.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use audit::plan::Plan;
use audit::plan::hook::{EngineKind, HookSelection};

use super::Engine;
use crate::abi;
use crate::attach::AttachedLink;
use crate::compile::watches::Watches;
use crate::decode::rule_keys::RuleKeys;
use crate::epoch::Epoch;
use crate::error::EngineError;
use crate::handover::InheritedState;
use crate::handover::inherited_programs::{self, InheritedProgram};
use crate::handover::pins::{CHECKPOINT_PIN, LINK_PREFIX, MAP_PREFIX, PLAN_PREFIX, PinDirectory};
use crate::handover::plan_snapshot::PlanSnapshot;
use crate::hooks::attach_point::AttachPoint;
use crate::hooks::kernel_probe::KernelProbe;
use crate::hooks::program::Program;
use crate::load::maps::{self, WatchKeys};
use crate::load::{ObjectSlots, Objects};
use crate::options::EngineOptions;
use crate::stats::{self, EngineStats};

impl<'s> Engine<'s> {
    /// Goes on where a daemon has ended that had everything pinned: its programs stay where they are, and
    /// what is in its ring is read next. The plan that is in force is its last one; [`Engine::replace`] puts
    /// another in its place.
    ///
    /// # Errors
    /// [`EngineError`] names what is missing. What is pinned stays as it is.
    pub fn adopt(
        slots: &mut ObjectSlots<'s>,
        probe: &KernelProbe,
        inherited: &InheritedState,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let InheritedState { pins, checkpoint } = inherited;
        let pinned = |what: &str| {
            let what = what.to_owned();
            move |source: io::Error| EngineError::Pin { what, source }
        };
        let fixed = checkpoint.fixed();
        let kind = if fixed.on_functions == 0 {
            EngineKind::Tracepoint
        } else {
            EngineKind::Fentry
        };
        let mut programs = BTreeSet::from([Program::DaemonRegister, Program::InodeIdentity]);
        if kind == EngineKind::Fentry {
            programs.insert(Program::Heartbeat);
        }
        let objects = Objects::reuse_maps(slots, kind, programs, |name| {
            pins.get(&format!("{MAP_PREFIX}{}", map_pin_name(name)))
        })?;
        let mut kernel = probe.kernel;
        kernel.uring &= options.uring;
        let mut selection = HookSelection::of(&Plan::default(), kind, kernel);
        selection.raw_enter = fixed.raw_enter != 0;
        selection.raw_exit = fixed.raw_exit != 0;
        let shared = Arc::clone(checkpoint);
        let mut engine = Self::from_objects(objects, kind, selection, shared, probe, options)?;
        engine.epoch = engine.globals.epoch();
        engine.fast_path = engine.globals.fast_path();
        let note = pins
            .get(&plan_pin_name(engine.epoch))
            .and_then(PlanSnapshot::from_map)
            .map_err(pinned("the note about the plan in force"))?;
        engine.watch_keys = WatchKeys::from_maps(engine.objects.first(), engine.epoch, note.names);
        engine.rule_drops.reset(engine.epoch, 1 << abi::RULE_BITS);
        for name in pins.names(LINK_PREFIX).map_err(pinned("links"))? {
            // A name that is none was not given by a daemon; it goes with the others at the end.
            if let Some(attach_point) = AttachPoint::from_name(&name) {
                let link = AttachedLink::find(pins, attach_point).map_err(pinned(&name))?;
                engine.links.insert(attach_point, link);
            }
        }
        let linked = engine.links.values();
        let linked = linked.filter_map(|link| stats::link_program_id(&link.link));
        let used = linked.chain(engine.objects.tail_call_targets()).collect();
        engine.inherited = InheritedProgram::collect(pins, &used).map_err(pinned("programs"))?;
        engine.detached_misses = checkpoint.detached_misses();
        engine.detacher.set_pins(pins.clone());
        engine.pins = Some(pins.clone());
        let counted = engine.counters.sum();
        let position = checkpoint.position();
        let [full, ..] = position.reported_lost;
        engine.before = EngineStats {
            matched: position.events + full,
            delivered: position.events,
            lost: position.reported_lost,
            truncated: counted.truncated,
        };
        engine.learn_root()?;
        engine.read_clock()?; // from here on this process is not audited
        if kind == EngineKind::Fentry {
            engine.check_preemption(engine.links.keys())?;
        }
        engine.start_heartbeat()?;
        Ok(engine)
    }

    /// Pins everything, so that it outlives this process; `text` is for [`InheritedState::plans`]. What had
    /// names there before loses them.
    ///
    /// # Errors
    /// [`EngineError::Pin`]; nothing is pinned then.
    pub fn pin(&mut self, pins: &PinDirectory, text: &[u8]) -> Result<(), EngineError> {
        let pinned = self.pin_all(pins, text);
        if pinned.is_ok() {
            self.detacher.set_pins(pins.clone());
            self.pins = Some(pins.clone());
        } else {
            // What has kept names from being given is what is to be told.
            let _cleared = pins.clear();
        }
        pinned
    }

    fn pin_all(&self, pins: &PinDirectory, text: &[u8]) -> Result<(), EngineError> {
        let pinned = |what: &str| {
            let what = what.to_owned();
            move |source: io::Error| EngineError::Pin { what, source }
        };
        pins.clear()
            .map_err(|error| pinned("anything")(io::Error::other(error)))?;
        for (name, map) in self.objects.maps() {
            pins.pin(&format!("{MAP_PREFIX}{}", map_pin_name(&name)), map)
                .map_err(pinned(&name))?;
        }
        let [even, odd] = &self.watch_keys;
        let half = if self.epoch.half() == 0 { even } else { odd };
        pin_snapshot(pins, self.epoch, half.name_keys(), text)?;
        self.pin_programs(pins)?;
        for (&attach_point, link) in &self.links {
            link.pin(pins, attach_point)
                .map_err(pinned(&attach_point.to_string()))?;
        }
        // From here on there is something to go on with.
        pins.pin(CHECKPOINT_PIN, &*self.checkpoint)
            .map_err(pinned(CHECKPOINT_PIN))
    }

    /// Has what is new with a plan outlive this process, where things are pinned.
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
        let names: Vec<u64> = maps::name_keys(epoch, watches).collect();
        pin_snapshot(pins, epoch, &names, text)?;
        if self.is_guarded() {
            self.update_guarded_maps()?;
        }
        Ok(())
    }

    /// Gives names to the programs that have none: the kernel counts on them what it skips.
    fn pin_programs(&self, pins: &PinDirectory) -> Result<(), EngineError> {
        for program in self.objects.programs() {
            inherited_programs::pin(pins, program)
                .map_err(|(what, source)| EngineError::Pin { what, source })?;
        }
        Ok(())
    }

    /// Whether its programs were loaded with such options.
    #[must_use]
    pub fn supports(&self, options: EngineOptions) -> bool {
        let same = (self.checkpoint.fixed().context != 0) == options.context;
        same && (!options.avc || self.has_avc_scratch())
    }

    /// Whether all that audits outlives this process.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        self.pins.is_some()
    }

    /// Forgets what was noted of all plans but these: call it when nothing of others is in the ring, or on
    /// its way from there into the log.
    pub fn remove_old_snapshots(&self, keys: &RuleKeys) {
        let Some(pins) = &self.pins else {
            return;
        };
        for name in pins.names(PLAN_PREFIX).unwrap_or_default() {
            if name.parse().is_ok_and(|epoch| !keys.contains(Epoch(epoch))) {
                // A note that stays is of a plan of which there is nothing.
                let _forgotten = pins.remove(&format!("{PLAN_PREFIX}{name}"));
            }
        }
    }
}

/// The name of a map as it can be pinned: there may be no dots in it.
fn map_pin_name(map: &str) -> String {
    map.replace('.', "_")
}

fn plan_pin_name(epoch: Epoch) -> String {
    format!("{PLAN_PREFIX}{}", epoch.0)
}

pub(super) fn pin_snapshot(
    pins: &PinDirectory,
    epoch: Epoch,
    names: &[u64],
    text: &[u8],
) -> Result<(), EngineError> {
    let note = PlanSnapshot {
        names: names.to_vec(),
        text: text.to_vec(),
    };
    let name = plan_pin_name(epoch);
    note.to_map()
        .and_then(|map| pins.pin(&name, map))
        .map_err(|source| EngineError::Pin { what: name, source })
}
