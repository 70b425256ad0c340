//! How the ring thread begins: with an engine of its own, or with what a daemon before this one has left.

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use audit::ids::Serial;
use crossbeam_channel::bounded;
use engine::{Decoder, Engine, InheritedState, ObjectSlots, PinDirectory, RuleKeys};

use super::{DRAIN, Drain, RingStats, RingThread, pass_last_kernel_records};
use crate::messages::warn;
use crate::pipeline::StartReport;
use crate::pipeline::batch::Batch;
use crate::pipeline::encoder::Encoder;
use crate::pipeline::handover::{self, PinSetup, Takeover};
use crate::pipeline::loss_reporter::{LossReporter, RateLimiter};
use crate::pipeline::rule_stats::RuleStats;

/// An engine that audits, and what its events need.
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
        };
        Self {
            engine,
            state,
            started,
        }
    }
}

impl RingThread {
    /// Begins, with the calls of what security modules record where that can be.
    pub(super) fn start_engine<'s>(
        &mut self,
        slots: &mut ObjectSlots<'s>,
    ) -> anyhow::Result<StartedEngine<'s>> {
        let mut begun = self.start_or_adopt(slots)?;
        if !self.options.avc {
            return Ok(begun);
        }
        match begun.engine.attach_avc_hook(slots) {
            Ok(()) => begun.state.get_mut().expect_syscalls(),
            Err(error) => {
                let error = anyhow::Error::from(error);
                warn(&format!(
                    "records of security modules, such as AVC, stand without their calls: {error:#}"
                ));
            }
        }
        Ok(begun)
    }

    /// Goes on where another daemon has ended, or starts; pins what audits.
    fn start_or_adopt<'s>(
        &mut self,
        slots: &mut ObjectSlots<'s>,
    ) -> anyhow::Result<StartedEngine<'s>> {
        let PinSetup {
            pins,
            takeover,
            locked,
            mut discarded,
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
            Takeover::Events(inherited) if locked => {
                let other = anyhow!("it was pinned by another build of tollgate");
                return Err(handover::locked_state_error(inherited.pins(), &other));
            }
            Takeover::Events(inherited) => {
                warn(
                    "the daemon before this one had other programs: what they have recorded is \
                     kept, and auditing starts anew, with a gap",
                );
                inherited.detach().context("cannot take programs off")?;
                let (engine, why_not) = self.start(slots)?;
                let state = RefCell::new(self.drain_inherited(&engine, &inherited)?);
                inherited.pins().clear()?;
                state.borrow_mut().switch_plan(&engine, &self.plan)?;
                return self.pin(engine, state, why_not, pins.as_ref());
            }
        }
        let (engine, why_not) = self.start(slots)?;
        let keys = RuleKeys::new(engine.epoch(), &self.plan);
        let mut state = self.encoder(&engine, keys, Serial::FIRST)?;
        state.rules.add(engine.epoch(), &self.plan);
        if let Some(record) = discarded {
            state.record(&record, engine.read_clock()?);
        }
        self.pin(engine, RefCell::new(state), why_not, pins.as_ref())
    }

    /// The engine of a daemon that has ended, which goes by its last plan, and what its events need.
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

    /// Goes on with an engine that is locked: its plan is that of this daemon, and is put in force once more only
    /// to look up what is watched.
    fn resume_locked<'s>(
        &mut self,
        mut engine: Engine<'s>,
        slots: &mut ObjectSlots<'s>,
        state: Encoder,
    ) -> StartedEngine<'s> {
        let state = RefCell::new(state);
        if let Err(error) = self.replace(&mut engine, slots, &state, &self.plan) {
            warn(&format!(
                "what `-e 2` has locked stays in force as it was found: {error:#}"
            ));
        }
        if !engine.supports(self.options) {
            self.options.avc = false;
            warn(
                "records of security modules, such as AVC, stand without their calls: `-e 2` has locked \
                 programs that were loaded without room for them",
            );
        }
        StartedEngine::new(engine, state, None, true)
    }

    /// Puts the plan of this daemon in force in an engine that goes by that of another; starts anew where
    /// that cannot be.
    fn take_over<'s>(
        &self,
        mut engine: Engine<'s>,
        slots: &mut ObjectSlots<'s>,
        state: Encoder,
        pins: Option<&PinDirectory>,
    ) -> anyhow::Result<StartedEngine<'s>> {
        let state = RefCell::new(state);
        let replaced = if !engine.supports(self.options) {
            Err(anyhow!("its programs were loaded with other options"))
        } else if self.engines.contains(&engine.kind()) {
            self.replace(&mut engine, slots, &state, &self.plan)
        } else {
            let name = engine.kind().name();
            Err(anyhow!("it has audited with the engine {name}"))
        };
        let Err(error) = replaced else {
            return Ok(StartedEngine::new(engine, state, None, true));
        };
        warn(&format!(
            "the daemon before this one cannot be followed without a gap: {error:#}; what it has \
             recorded is kept, and auditing starts anew"
        ));
        self.end(engine, &state)?;
        let (engine, why_not) = self.start(slots)?;
        state.borrow_mut().switch_plan(&engine, &self.plan)?;
        self.pin(engine, state, why_not, pins)
    }

    /// Has what programs of another build have left written; gives what comes after it.
    fn drain_inherited(
        &mut self,
        engine: &Engine<'_>,
        inherited: &InheritedState,
    ) -> anyhow::Result<Encoder> {
        let (keys, _counts) = handover::restore_plans(inherited, engine.epoch())?;
        let mut state = self.encoder(engine, keys, serial_of(inherited)?)?;
        let events = inherited.ring_reader().context("cannot read the ring")?;
        while events.drain(DRAIN, |sample| state.take(sample)) != 0 {
            state.batch.commit_token = Some(inherited.commit_token(&events, state.serial));
            self.send(&mut state);
        }
        let (written, is_written) = bounded(1);
        state.batch.on_written = Some(written);
        self.send(&mut state);
        // What cannot be written is counted where all is.
        let _written = is_written.recv();
        Ok(state)
    }

    /// Detaches an engine, and has all that it has recorded written.
    fn end(&self, mut engine: Engine<'_>, state: &RefCell<Encoder>) -> anyhow::Result<()> {
        let detaching = engine.detach();
        while self.drain(&engine, state)? != Drain::Nothing {}
        pass_last_kernel_records(state)?;
        let (written, is_written) = bounded(1);
        state.borrow_mut().batch.on_written = Some(written);
        self.pass_on(&engine, state);
        // What cannot be written is counted where all is.
        let _written = is_written.recv();
        Ok(detaching.wait()?)
    }

    /// Pins an engine, where that is wanted; says why it cannot be.
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
                "auditing ends with this daemon, however it ends: {error:#}"
            ));
        }
        Ok(StartedEngine::new(engine, state, why_not, false))
    }

    /// What turns samples of an engine into text.
    fn encoder(
        &mut self,
        engine: &Engine<'_>,
        keys: RuleKeys,
        serial: Serial,
    ) -> anyhow::Result<Encoder> {
        Ok(Encoder {
            decoder: Decoder::default(),
            keys: Arc::new(keys),
            exclude: self.plan.exclude_list.clone(),
            user: self.plan.user_list.clone(),
            clock: engine.clock()?,
            serial,
            passed: None,
            empty_at: None,
            batch: Batch::new(self.json.is_some()),
            console: self.console.clone(),
            stats: RingStats::default(),
            kernel_records: self.kernel_records.take(),
            limits: Arc::clone(&self.limits),
            rate: RateLimiter::default(),
            loss_reporter: LossReporter::default(),
            rules: RuleStats::default(),
        })
    }

    /// Starts the best engine that works here; says why a better one does not.
    fn start<'s>(
        &self,
        slots: &mut ObjectSlots<'s>,
    ) -> anyhow::Result<(Engine<'s>, Option<String>)> {
        let [best, rest @ ..] = self.engines.as_slice() else {
            anyhow::bail!("no engine was asked for");
        };
        match (
            Engine::start(slots, &self.probe, &self.plan, *best, self.options),
            rest,
        ) {
            (Ok(engine), _) => Ok((engine, None)),
            (Err(refused), [next, ..]) => {
                let refused = anyhow::Error::from(refused);
                let why_not = format!("{}: {refused:#}", best.name());
                let started = Engine::start(slots, &self.probe, &self.plan, *next, self.options);
                if started.is_err() {
                    warn(&format!("engine {why_not}"));
                }
                let engine = started.with_context(|| format!("engine {}", next.name()))?;
                Ok((engine, Some(why_not)))
            }
            (Err(refused), []) => Err(refused.into()),
        }
    }
}

/// The serial of the first event that the daemon before this one has not written.
fn serial_of(inherited: &InheritedState) -> anyhow::Result<Serial> {
    let serial = inherited.position().serial;
    u32::try_from(serial)
        .map(Serial)
        .context("what is pinned has a serial that is none")
}
