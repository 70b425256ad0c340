//! An engine whose programs outlive its process: pinning them, and going on with those of another.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use audit::plan::Plan;
use audit::plan::hook::{EngineKind, Sides};

use super::Engine;
use crate::abi;
use crate::attach::Held;
use crate::compile::watches::Watches;
use crate::decode::rule_keys::Keys;
use crate::epoch::Epoch;
use crate::error::EngineError;
use crate::handover::Survivors;
use crate::handover::inherited_programs::{self, Inherited};
use crate::handover::pins::{HEADER, LINK, MAP, PLAN, Pins};
use crate::handover::plan_snapshot::Note;
use crate::hooks::attach_point::Spot;
use crate::hooks::kernel_probe::Probe;
use crate::hooks::program::Program;
use crate::load::maps::{self, Written};
use crate::load::{Objects, Places};
use crate::options::Options;
use crate::stats::{self, Stats};

impl<'s> Engine<'s> {
    /// Goes on where a daemon has ended that had everything pinned: its programs stay where they are, and
    /// what is in its ring is read next. The plan that is in force is its last one; [`Engine::replace`] puts
    /// another in its place.
    ///
    /// # Errors
    /// [`EngineError`] names what is missing. What is pinned stays as it is.
    pub fn adopt(
        places: &mut Places<'s>,
        probe: &Probe,
        survivors: &Survivors,
        options: Options,
    ) -> Result<Self, EngineError> {
        let Survivors { pins, ledger } = survivors;
        let pinned = |what: &str| {
            let what = what.to_owned();
            move |source: io::Error| EngineError::Pinned { what, source }
        };
        let fixed = ledger.fixed();
        let kind = if fixed.on_functions == 0 {
            EngineKind::Tracepoint
        } else {
            EngineKind::Fentry
        };
        let mut programs = BTreeSet::from([Program::DaemonRegister]);
        if kind == EngineKind::Fentry {
            programs.insert(Program::Heartbeat);
        }
        let objects = Objects::over(places, kind, programs, |name| {
            pins.find(&format!("{MAP}{}", pinned_name(name)))
        })?;
        let mut kernel = probe.kernel;
        kernel.uring &= options.uring;
        let mut sides = Sides::of(&Plan::default(), kind, kernel);
        sides.raw_enter = fixed.raw_enter != 0;
        sides.raw_exit = fixed.raw_exit != 0;
        let mut engine = Self::over(objects, kind, sides, Arc::clone(ledger))?;
        engine.epoch = engine.data.epoch();
        engine.hints = engine.data.hints();
        let note = pins
            .find(&plan_name(engine.epoch))
            .and_then(Note::of_map)
            .map_err(pinned("the note about the plan in force"))?;
        engine.halves = Written::found(engine.objects.first(), engine.epoch, note.names);
        engine.unsent.begin(engine.epoch, 1 << abi::RULE_BITS);
        for name in pins.names(LINK).map_err(pinned("links"))? {
            // A name that is none was not given by a daemon; it goes with the others at the end.
            if let Some(spot) = Spot::of_name(&name) {
                let held = Held::find(pins, spot).map_err(pinned(&name))?;
                engine.links.insert(spot, held);
            }
        }
        let linked = engine.links.values();
        let linked = linked.filter_map(|held| stats::linked(&held.link));
        let used = linked.chain(engine.objects.bodies()).collect();
        engine.inherited = Inherited::all(pins, &used).map_err(pinned("programs"))?;
        engine.skipped_stubs = ledger.skipped();
        engine.reaper.unpin_from(pins.clone());
        engine.pins = Some(pins.clone());
        let counted = engine.counters.sum();
        let mark = ledger.mark();
        let [full, ..] = mark.told;
        engine.before = Stats {
            matched: mark.taken + full,
            delivered: mark.taken,
            lost: mark.told,
            cut: counted.cut,
        };
        engine.now()?; // from here on this process is not audited
        engine.listen()?;
        Ok(engine)
    }

    /// Pins everything, so that it outlives this process; `text` is for [`Survivors::plans`]. What had
    /// names there before loses them.
    ///
    /// # Errors
    /// [`EngineError::Pinned`]; nothing is pinned then.
    pub fn pin(&mut self, pins: &Pins, text: &[u8]) -> Result<(), EngineError> {
        let pinned = self.pin_all(pins, text);
        if pinned.is_ok() {
            self.reaper.unpin_from(pins.clone());
            self.pins = Some(pins.clone());
        } else {
            // What has kept names from being given is what is to be told.
            let _cleared = pins.clear();
        }
        pinned
    }

    fn pin_all(&self, pins: &Pins, text: &[u8]) -> Result<(), EngineError> {
        let pinned = |what: &str| {
            let what = what.to_owned();
            move |source: io::Error| EngineError::Pinned { what, source }
        };
        pins.clear()
            .map_err(|error| pinned("anything")(io::Error::other(error)))?;
        for (name, map) in self.objects.maps() {
            pins.keep(&format!("{MAP}{}", pinned_name(&name)), map)
                .map_err(pinned(&name))?;
        }
        let [even, odd] = &self.halves;
        let half = if self.epoch.half() == 0 { even } else { odd };
        pin_note(pins, self.epoch, half.names(), text)?;
        self.pin_programs(pins)?;
        for (&spot, held) in &self.links {
            held.pin(pins, spot).map_err(pinned(&spot.to_string()))?;
        }
        // From here on there is something to go on with.
        pins.keep(HEADER, &*self.ledger).map_err(pinned(HEADER))
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
        let names: Vec<u64> = maps::names(epoch, watches).collect();
        pin_note(pins, epoch, &names, text)?;
        if self.is_guarded() {
            self.guard_maps()?;
        }
        Ok(())
    }

    /// Gives names to the programs that have none: the kernel counts on them what it skips.
    fn pin_programs(&self, pins: &Pins) -> Result<(), EngineError> {
        for program in self.objects.programs() {
            inherited_programs::pin(pins, program)
                .map_err(|(what, source)| EngineError::Pinned { what, source })?;
        }
        Ok(())
    }

    /// Whether its programs were loaded with such options.
    #[must_use]
    pub fn has(&self, options: Options) -> bool {
        let same = (self.ledger.fixed().context != 0) == options.context;
        same && (!options.avc || self.has_areas_for_calls())
    }

    /// Whether all that audits outlives this process.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        self.pins.is_some()
    }

    /// Forgets what was noted of all plans but these: call it when nothing of others is in the ring, or on
    /// its way from there into the log.
    pub fn forget(&self, keys: &Keys) {
        let Some(pins) = &self.pins else {
            return;
        };
        for name in pins.names(PLAN).unwrap_or_default() {
            if name.parse().is_ok_and(|epoch| !keys.has(Epoch(epoch))) {
                // A note that stays is of a plan of which there is nothing.
                let _forgotten = pins.remove(&format!("{PLAN}{name}"));
            }
        }
    }
}

/// The name of a map as it can be pinned: there may be no dots in it.
fn pinned_name(map: &str) -> String {
    map.replace('.', "_")
}

fn plan_name(epoch: Epoch) -> String {
    format!("{PLAN}{}", epoch.0)
}

pub(super) fn pin_note(
    pins: &Pins,
    epoch: Epoch,
    names: &[u64],
    text: &[u8],
) -> Result<(), EngineError> {
    let note = Note {
        names: names.to_vec(),
        text: text.to_vec(),
    };
    let name = plan_name(epoch);
    note.to_map()
        .and_then(|map| pins.keep(&name, map))
        .map_err(|source| EngineError::Pinned { what: name, source })
}
