//! Start of the ring thread: with a new engine, or with the state of a previous daemon.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use audit::ids::Serial;
use audit::plan::Plan;
use crossbeam_channel::bounded;
use engine::{
    Decoder, Engine, EngineError, EngineKind, EngineOptions, EngineStats, InheritedState,
    KernelProbe, ObjectSlots, PinDirectory, PlanSwitch, RepeatedEvents, RuleKeys,
};

use super::{DRAIN, Drain, RingStats, RingThread};
use crate::messages::{info, warn};
use crate::pipeline::StartReport;
use crate::pipeline::batch::Batch;
use crate::pipeline::encoder::Encoder;
use crate::pipeline::handover::{self, PinSetup, Takeover};
use crate::pipeline::loss_reporter::{LossReporter, RateLimiter};
use crate::pipeline::ring_commands::RecordBody;
use crate::pipeline::rule_stats::RuleStats;

/// [`Engine::start`] or [`Engine::start_silent`].
type StartEngine<'s> = fn(
    &mut ObjectSlots<'s>,
    &KernelProbe,
    &Plan,
    EngineKind,
    EngineOptions,
) -> Result<Engine<'s>, EngineError>;

/// An engine that follows another build's.
struct FollowingEngine<'s> {
    engine: Engine<'s>,
    /// Why engines before it do not work.
    why_not: Option<String>,
    /// Record about calls that can be missing.
    gap: Option<RecordBody>,
}

/// A running engine and its encoder.
pub(super) struct StartedEngine<'s> {
    pub(super) engine: Engine<'s>,
    pub(super) state: RefCell<Encoder>,
    pub(super) started: StartReport,
}

impl<'s> StartedEngine<'s> {
    fn new(
        engine: Engine<'s>,
        mut state: RefCell<Encoder>,
        why_not: Option<String>,
        adopted: bool,
    ) -> Self {
        state.get_mut().stats.skip_risk = engine.skip_risk();
        let started = StartReport {
            engine: engine.kind(),
            attached: engine.attached().clone(),
            why_not,
            adopted,
            pinned: engine.is_pinned(),
            skip_risk: engine.skip_risk(),
            kernel: engine.kernel(),
        };
        Self {
            engine,
            state,
            started,
        }
    }
}

impl RingThread {
    /// Starts, with syscalls for records of the kernel where possible.
    pub(super) fn start_engine<'s>(
        &mut self,
        slots: &mut ObjectSlots<'s>,
    ) -> anyhow::Result<StartedEngine<'s>> {
        let gap = self.pinning.gap.take();
        let pins = self.pinning.pins.clone();
        let mut begun = self.start_or_adopt(slots)?;
        if let Some(record) = gap {
            let now = begun.engine.read_clock()?;
            begun.state.get_mut().record(&record, now);
            if let Some(pins) = pins {
                pins.end_restart().context("cannot remove a pin")?;
            }
        }
        if self.options.avc {
            self.attach_avc_hook(&mut begun, slots);
        }
        begun.state.get_mut().add_own_programs(&begun.engine);
        Ok(begun)
    }

    fn attach_avc_hook<'s>(&self, begun: &mut StartedEngine<'s>, slots: &mut ObjectSlots<'s>) {
        match begun.engine.attach_avc_hook(slots) {
            Ok(()) => begun.state.get_mut().expect_syscalls(),
            Err(error) => {
                let error = anyhow::Error::from(error);
                warn(&format!(
                    "records of the kernel, such as AVC and BPF, have no SYSCALL records: {error:#}"
                ));
            }
        }
    }

    /// Takes over a previous daemon's engine or starts one, and pins it.
    fn start_or_adopt<'s>(
        &mut self,
        slots: &mut ObjectSlots<'s>,
    ) -> anyhow::Result<StartedEngine<'s>> {
        let PinSetup {
            pins,
            takeover,
            locked,
            mut discarded,
            gap: _,
        } = std::mem::take(&mut self.pinning);
        match takeover {
            Takeover::Nothing => {}
            Takeover::Whole(inherited) => match self.adopt(slots, &inherited) {
                Ok((engine, state)) if locked => {
                    return Ok(self.resume_locked(engine, slots, state));
                }
                Err(error) if locked => {
                    return Err(handover::locked_state_error(inherited.pins(), &error));
                }
                Ok((engine, state)) => return self.take_over(engine, slots, state, pins.as_ref()),
                Err(error) => {
                    let unread = inherited.unread_bytes().ok();
                    let reason = format!("{error:#}");
                    discarded = Some(handover::discard(inherited.pins(), &reason, unread)?);
                }
            },
            Takeover::Events(inherited, _) if locked => {
                let other = anyhow!("another build of tollgate pinned them");
                return Err(handover::locked_state_error(inherited.pins(), &other));
            }
            Takeover::Events(inherited, plan_switch) => {
                let FollowingEngine {
                    mut engine,
                    why_not,
                    gap,
                } = self.follow_other_build(slots, &inherited, plan_switch)?;
                let (state, events) = self.drain_inherited(&engine, &inherited)?;
                engine.add_followed(EngineStats {
                    matched: events,
                    delivered: events,
                    ..EngineStats::default()
                });
                let state = RefCell::new(state);
                inherited.pins().clear()?;
                state.borrow_mut().switch_plan(&engine, &self.plan)?;
                if let Some(record) = gap {
                    state.borrow_mut().record(&record, engine.read_clock()?);
                }
                return self.pin(engine, state, why_not, pins.as_ref());
            }
        }
        let (engine, why_not) = self.start(slots, Engine::start)?;
        let keys = RuleKeys::new(engine.epoch(), &self.plan);
        let mut state = self.encoder(&engine, keys, Serial::FIRST)?;
        state.rules.add(engine.epoch(), &self.plan);
        if let Some(record) = discarded {
            state.record(&record, engine.read_clock()?);
        }
        self.pin(engine, RefCell::new(state), why_not, pins.as_ref())
    }

    /// Adopts the engine of a previous daemon, with that daemon's last plan.
    fn adopt<'s>(
        &mut self,
        slots: &mut ObjectSlots<'s>,
        inherited: &InheritedState,
    ) -> anyhow::Result<(Engine<'s>, Encoder)> {
        let engine = Engine::adopt(slots, &self.probe, inherited, self.options)?;
        let (keys, rules) = handover::restore_plans(inherited, engine.epoch())?;
        let mut state = self.encoder(&engine, keys, serial_of(inherited)?)?;
        state.rules = rules;
        Ok((engine, state))
    }

    /// Resumes a locked engine: its plan is equal, and is applied again only to resolve watched paths.
    fn resume_locked<'s>(
        &mut self,
        mut engine: Engine<'s>,
        slots: &mut ObjectSlots<'s>,
        state: Encoder,
    ) -> StartedEngine<'s> {
        let state = RefCell::new(state);
        if let Err(error) = self.replace(&mut engine, slots, &state, &self.plan) {
            warn(&format!(
                "the locked rules stay active, but watched paths were not resolved again: {error:#}"
            ));
        }
        if !engine.supports(self.options) {
            self.options.avc = false;
            warn(
                "records of the kernel, such as AVC and BPF, have no SYSCALL records: `-e 2` locked \
                 programs that were loaded without support for them",
            );
        }
        StartedEngine::new(engine, state, None, true)
    }

    /// Applies this daemon's plan to an adopted engine. Starts a new engine if that fails.
    fn take_over<'s>(
        &self,
        mut engine: Engine<'s>,
        slots: &mut ObjectSlots<'s>,
        state: Encoder,
        pins: Option<&PinDirectory>,
    ) -> anyhow::Result<StartedEngine<'s>> {
        let state = RefCell::new(state);
        let replaced = if !engine.supports(self.options) {
            Err(anyhow!("its programs were loaded with different options"))
        } else if !self.engines.contains(&engine.kind()) {
            let name = engine.kind().name();
            Err(anyhow!("it used engine {name}"))
        } else if engine.fits_preemption() {
            self.replace(&mut engine, slots, &state, &self.plan)
        } else {
            match self.start_in_place_of(&mut engine, slots, pins) {
                Ok(next) => return self.exchange(engine, next, state, pins),
                Err(error) => Err(error),
            }
        };
        let Err(error) = replaced else {
            return Ok(StartedEngine::new(engine, state, None, true));
        };
        warn(&format!(
            "cannot take over from the previous daemon without a gap: {error:#}; its recorded events \
             are kept, and auditing restarts",
        ));
        if let Some(pins) = pins {
            note_restart(pins)?;
        }
        let stats = self.end(engine, &state)?;
        let (mut engine, why_not) = self.start(slots, Engine::start)?;
        engine.add_followed(stats);
        state.borrow_mut().switch_plan(&engine, &self.plan)?;
        let record = handover::gap_record("restarted");
        state.borrow_mut().record(&record, engine.read_clock()?);
        self.pin(engine, state, why_not, pins)
    }

    /// Starts an engine, with the hooks for the kernel's present preemption mode, that records in place of an adopted one.
    fn start_in_place_of<'s>(
        &self,
        previous: &mut Engine<'s>,
        slots: &mut ObjectSlots<'s>,
        pins: Option<&PinDirectory>,
    ) -> anyhow::Result<(Engine<'s>, Option<String>)> {
        let (next, why_not) = self.start(slots, Engine::start_silent)?;
        if let Some(pins) = pins {
            note_restart(pins)?;
        }
        next.begin_in_place_of(previous)?;
        info(
            "took over from the previous daemon with other hooks: the kernel's preemption mode has changed",
        );
        Ok((next, why_not))
    }

    /// Writes the events of an engine that records no more, and continues with the one in its place.
    fn exchange<'s>(
        &self,
        previous: Engine<'s>,
        (mut next, why_not): (Engine<'s>, Option<String>),
        state: RefCell<Encoder>,
        pins: Option<&PinDirectory>,
    ) -> anyhow::Result<StartedEngine<'s>> {
        next.add_followed(self.end(previous, &state)?);
        state.borrow_mut().switch_plan(&next, &self.plan)?;
        self.pin(next, state, why_not, pins)
    }

    /// Starts an engine in place of another build's programs, which are detached. Its own programs are attached
    /// before those stop recording, if their plan can be switched.
    fn follow_other_build<'s>(
        &self,
        slots: &mut ObjectSlots<'s>,
        inherited: &InheritedState,
        plan_switch: io::Result<PlanSwitch>,
    ) -> anyhow::Result<FollowingEngine<'s>> {
        let taken = plan_switch.context("its plan cannot be switched");
        let taken = taken.and_then(|plan_switch| {
            let (engine, why_not) = self.start(slots, Engine::start_silent)?;
            let prepared = plan_switch.prepare();
            prepared.context("cannot write a plan of its programs")?;
            // All that can fail comes before its programs stop recording.
            handover::restore_plans(inherited, engine.epoch())?;
            serial_of(inherited)?;
            inherited.ring_reader().context("cannot read its ring")?;
            note_restart(inherited.pins())?;
            engine.begin_after(&plan_switch)?;
            Ok((engine, why_not))
        });
        let detach = || {
            let detached = inherited.detach();
            detached.context("cannot detach the programs of the previous daemon")
        };
        match taken {
            Ok((engine, why_not)) => {
                detach()?;
                info("took over from another build of tollgate");
                Ok(FollowingEngine {
                    engine,
                    why_not,
                    gap: None,
                })
            }
            Err(error) => {
                warn(&format!(
                    "cannot take over from another build of tollgate without a gap: {error:#}; its recorded \
                     events are kept, and auditing restarts"
                ));
                note_restart(inherited.pins())?;
                detach()?;
                let (engine, why_not) = self.start(slots, Engine::start)?;
                Ok(FollowingEngine {
                    engine,
                    why_not,
                    gap: Some(handover::gap_record("restarted")),
                })
            }
        }
    }

    /// Writes the events of another build's programs. Returns the encoder that continues after them, and
    /// their number.
    fn drain_inherited(
        &mut self,
        engine: &Engine<'_>,
        inherited: &InheritedState,
    ) -> anyhow::Result<(Encoder, u64)> {
        let (keys, _counts) = handover::restore_plans(inherited, engine.epoch())?;
        let mut state = self.encoder(engine, keys, serial_of(inherited)?)?;
        let events = inherited.ring_reader().context("cannot read the ring")?;
        let mut number = 0;
        loop {
            let drained = events.drain(DRAIN, |sample| state.take(sample));
            if drained == 0 {
                break;
            }
            number += u64::try_from(drained)?;
            state.batch.commit_token = Some(inherited.commit_token(&events, state.serial));
            self.send(&mut state);
        }
        let (written, is_written) = bounded(1);
        state.batch.on_written = Some(written);
        self.send(&mut state);
        // Write failures are counted with all others.
        let _written = is_written.recv();
        Ok((state, number))
    }

    /// Detaches an engine, writes everything it has recorded, and reports what it has lost. Returns its counters.
    fn end(&self, mut engine: Engine<'_>, state: &RefCell<Encoder>) -> anyhow::Result<EngineStats> {
        let detaching = engine.detach();
        while self.drain(&engine, state)? != Drain::Nothing {}
        let stats = self.final_stats(&engine, state)?.stats;
        let (written, is_written) = bounded(1);
        state.borrow_mut().batch.on_written = Some(written);
        self.pass_on(&engine, state);
        // Write failures are counted with all others.
        let _written = is_written.recv();
        detaching.wait()?;
        Ok(stats)
    }

    /// Pins an engine if configured; reports why it cannot be pinned.
    fn pin<'s>(
        &self,
        mut engine: Engine<'s>,
        state: RefCell<Encoder>,
        why_not: Option<String>,
        pins: Option<&PinDirectory>,
    ) -> anyhow::Result<StartedEngine<'s>> {
        if let Some(pins) = pins
            && let Err(error) = engine.pin(pins, &handover::snapshot(&self.plan)?)
        {
            let error = anyhow::Error::from(error);
            warn(&format!(
                "BPF programs are not pinned, auditing ends with this daemon: {error:#}"
            ));
        }
        warn_name_only_watches(&engine);
        Ok(StartedEngine::new(engine, state, why_not, false))
    }

    /// Creates the encoder of an engine.
    fn encoder(
        &mut self,
        engine: &Engine<'_>,
        keys: RuleKeys,
        serial: Serial,
    ) -> anyhow::Result<Encoder> {
        Ok(Encoder {
            decoder: Decoder::default(),
            repeated: RepeatedEvents::default(),
            keys: Arc::new(keys),
            exclude: self.plan.exclude_list.clone(),
            user: self.plan.user_list.clone(),
            clock: engine.clock()?,
            serial,
            passed: None,
            empty_at: None,
            batch: Batch::new(self.json.is_some()),
            console: self.console.clone(),
            viewers: Arc::clone(&self.viewers),
            stats: RingStats::default(),
            kernel_records: self.kernel_records.take(),
            held: VecDeque::new(),
            limits: Arc::clone(&self.limits),
            rate: RateLimiter::default(),
            loss_reporter: LossReporter::default(),
            rules: RuleStats::default(),
        })
    }

    /// Starts the first engine that works; returns why a preferred one does not.
    fn start<'s>(
        &self,
        slots: &mut ObjectSlots<'s>,
        start: StartEngine<'s>,
    ) -> anyhow::Result<(Engine<'s>, Option<String>)> {
        let [preferred @ .., last] = self.engines.as_slice() else {
            anyhow::bail!("no engine is configured");
        };
        let mut refused = Vec::new();
        // Losses are accepted for the last choice only.
        let options = EngineOptions {
            allow_loss: false,
            ..self.options
        };
        for &kind in preferred {
            match start(slots, &self.probe, &self.plan, kind, options) {
                Ok(engine) => return Ok((engine, why_not(&refused))),
                Err(error) => {
                    let error = anyhow::Error::from(error);
                    refused.push(format!("{}: {error:#}", kind.name()));
                }
            }
        }
        match start(slots, &self.probe, &self.plan, *last, self.options) {
            Ok(engine) => Ok((engine, why_not(&refused))),
            Err(error) if refused.is_empty() => Err(error.into()),
            Err(error) => {
                for refusal in &refused {
                    warn(&format!("engine {refusal}"));
                }
                Err(error).with_context(|| format!("engine {}", last.name()))
            }
        }
    }
}

/// Why engines before the one that started do not work.
fn why_not(refused: &[String]) -> Option<String> {
    (!refused.is_empty()).then(|| refused.join("; engine "))
}

/// Notes that programs are about to be replaced; the new ones are pinned afterwards.
fn note_restart(pins: &PinDirectory) -> anyhow::Result<()> {
    let noted = pins.begin_restart();
    noted.context("cannot note the restart in the pin directory")
}

/// Serial of the first event that the previous daemon has not written.
fn serial_of(inherited: &InheritedState) -> anyhow::Result<Serial> {
    let serial = inherited.position().serial;
    u32::try_from(serial)
        .map(Serial)
        .context("pinned state has an invalid serial number")
}

/// Warns of watched paths that could not be opened.
pub(super) fn warn_name_only_watches(engine: &Engine<'_>) {
    for watch in engine.take_name_only_watches() {
        warn(&format!(
            "watch on {watch}; only this name is matched, not other links or mounts of the object"
        ));
    }
}
