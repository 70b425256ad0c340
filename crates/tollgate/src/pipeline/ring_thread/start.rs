//! How the ring thread begins: with an engine of its own, or with what a daemon before this one has left.

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use audit::ids::Serial;
use crossbeam_channel::bounded;
use engine::{Decoder, Engine, InheritedState, ObjectSlots, PinDirectory, RuleKeys};

use super::{DRAIN, Drain, RingStats, RingThread, last_messages};
use crate::messages::warn;
use crate::pipeline::StartReport;
use crate::pipeline::batch::Batch;
use crate::pipeline::encoder::Encoder;
use crate::pipeline::handover::{self as survive, PinSetup, Takeover};
use crate::pipeline::loss_reporter::{LossReporter, RateLimiter};
use crate::pipeline::rule_stats::RuleStats;

/// An engine that audits, and what its events need.
pub(super) struct Begun<'s> {
    pub(super) engine: Engine<'s>,
    pub(super) state: RefCell<Encoder>,
    pub(super) started: StartReport,
}

impl<'s> Begun<'s> {
    fn new(
        engine: Engine<'s>,
        state: RefCell<Encoder>,
        why_not: Option<String>,
        adopted: bool,
    ) -> Self {
        let started = StartReport {
            engine: engine.kind(),
            attached: engine.attached().clone(),
            why_not,
            adopted,
            pinned: engine.is_pinned(),
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
    pub(super) fn begin<'s>(&mut self, places: &mut ObjectSlots<'s>) -> anyhow::Result<Begun<'s>> {
        let mut begun = self.begin_alone(places)?;
        if !self.options.avc {
            return Ok(begun);
        }
        match begun.engine.attach_avc_hook(places) {
            Ok(()) => begun.state.get_mut().expect_calls(),
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
    fn begin_alone<'s>(&mut self, places: &mut ObjectSlots<'s>) -> anyhow::Result<Begun<'s>> {
        let PinSetup {
            pins,
            found,
            locked,
            mut lost,
        } = std::mem::take(&mut self.pinning);
        match found {
            Takeover::Nothing => {}
            Takeover::Whole(inherited) => match self.adopt(places, &inherited) {
                Ok((engine, state)) if locked => return Ok(self.go_on(engine, places, state)),
                Err(error) if locked => return Err(survive::stays(inherited.pins(), &error)),
                Ok((engine, state)) => return self.take_over(engine, places, state, pins.as_ref()),
                Err(error) => {
                    let unread = inherited.unread_bytes().ok();
                    let reason = format!("{error:#}");
                    lost = Some(survive::given_up(inherited.pins(), &reason, unread)?);
                }
            },
            Takeover::Events(inherited) if locked => {
                let other = anyhow!("it was pinned by another build of tollgate");
                return Err(survive::stays(inherited.pins(), &other));
            }
            Takeover::Events(inherited) => {
                warn(
                    "the daemon before this one had other programs: what they have recorded is \
                     kept, and auditing starts anew, with a gap",
                );
                inherited.detach().context("cannot take programs off")?;
                let (engine, why_not) = self.start(places)?;
                let state = RefCell::new(self.read_out(&engine, &inherited)?);
                inherited.pins().clear()?;
                state.borrow_mut().renew(&engine, &self.plan)?;
                return self.pin(engine, state, why_not, pins.as_ref());
            }
        }
        let (engine, why_not) = self.start(places)?;
        let keys = RuleKeys::new(engine.epoch(), &self.plan);
        let mut state = self.encoding(&engine, keys, Serial::FIRST)?;
        state.rules.add(engine.epoch(), &self.plan);
        if let Some(record) = lost {
            state.record(&record, engine.read_clock()?);
        }
        self.pin(engine, RefCell::new(state), why_not, pins.as_ref())
    }

    /// The engine of a daemon that has ended, which goes by its last plan, and what its events need.
    fn adopt<'s>(
        &mut self,
        places: &mut ObjectSlots<'s>,
        inherited: &InheritedState,
    ) -> anyhow::Result<(Engine<'s>, Encoder)> {
        let engine = Engine::adopt(places, &self.probe, inherited, self.options)?;
        let (keys, rules) = survive::plans(inherited, engine.epoch())?;
        let mut state = self.encoding(&engine, keys, serial_of(inherited)?)?;
        state.rules = rules;
        Ok((engine, state))
    }

    /// Goes on with an engine that is locked: its plan is that of this daemon, and is put in force once more only
    /// to look up what is watched.
    fn go_on<'s>(
        &mut self,
        mut engine: Engine<'s>,
        places: &mut ObjectSlots<'s>,
        state: Encoder,
    ) -> Begun<'s> {
        let state = RefCell::new(state);
        if let Err(error) = self.replace(&mut engine, places, &state, &self.plan) {
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
        Begun::new(engine, state, None, true)
    }

    /// Puts the plan of this daemon in force in an engine that goes by that of another; starts anew where
    /// that cannot be.
    fn take_over<'s>(
        &self,
        mut engine: Engine<'s>,
        places: &mut ObjectSlots<'s>,
        state: Encoder,
        pins: Option<&PinDirectory>,
    ) -> anyhow::Result<Begun<'s>> {
        let state = RefCell::new(state);
        let replaced = if !engine.supports(self.options) {
            Err(anyhow!("its programs were loaded with other options"))
        } else if self.engines.contains(&engine.kind()) {
            self.replace(&mut engine, places, &state, &self.plan)
        } else {
            let name = engine.kind().name();
            Err(anyhow!("it has audited with the engine {name}"))
        };
        let Err(error) = replaced else {
            return Ok(Begun::new(engine, state, None, true));
        };
        warn(&format!(
            "the daemon before this one cannot be followed without a gap: {error:#}; what it has \
             recorded is kept, and auditing starts anew"
        ));
        self.end(engine, &state)?;
        let (engine, why_not) = self.start(places)?;
        state.borrow_mut().renew(&engine, &self.plan)?;
        self.pin(engine, state, why_not, pins)
    }

    /// Has what programs of another build have left written; gives what comes after it.
    fn read_out(
        &mut self,
        engine: &Engine<'_>,
        inherited: &InheritedState,
    ) -> anyhow::Result<Encoder> {
        let (keys, _counts) = survive::plans(inherited, engine.epoch())?;
        let mut state = self.encoding(engine, keys, serial_of(inherited)?)?;
        let events = inherited.ring_reader().context("cannot read the ring")?;
        while events.drain(DRAIN, |sample| state.take(sample)) != 0 {
            state.batch.receipt = Some(inherited.commit_token(&events, state.serial));
            self.send(&mut state);
        }
        let (written, is_written) = bounded(1);
        state.batch.then = Some(written);
        self.send(&mut state);
        // What cannot be written is counted where all is.
        let _written = is_written.recv();
        Ok(state)
    }

    /// Detaches an engine, and has all that it has recorded written.
    fn end(&self, mut engine: Engine<'_>, state: &RefCell<Encoder>) -> anyhow::Result<()> {
        let detaching = engine.detach();
        while self.drain(&engine, state)? != Drain::Nothing {}
        last_messages(state)?;
        let (written, is_written) = bounded(1);
        state.borrow_mut().batch.then = Some(written);
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
    ) -> anyhow::Result<Begun<'s>> {
        if let Some(pins) = pins
            && let Err(error) = engine.pin(pins, &survive::note(&self.plan)?)
        {
            let error = anyhow::Error::from(error);
            warn(&format!(
                "auditing ends with this daemon, however it ends: {error:#}"
            ));
        }
        Ok(Begun::new(engine, state, why_not, false))
    }

    /// What turns samples of an engine into text.
    fn encoding(
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
            shown: self.shown.clone(),
            drained: RingStats::default(),
            messages: self.messages.take(),
            limits: Arc::clone(&self.limits),
            rate: RateLimiter::default(),
            losses: LossReporter::default(),
            rules: RuleStats::default(),
        })
    }

    /// Starts the best engine that works here; says why a better one does not.
    fn start<'s>(
        &self,
        places: &mut ObjectSlots<'s>,
    ) -> anyhow::Result<(Engine<'s>, Option<String>)> {
        let [best, rest @ ..] = self.engines.as_slice() else {
            anyhow::bail!("no engine was asked for");
        };
        match (
            Engine::start(places, &self.probe, &self.plan, *best, self.options),
            rest,
        ) {
            (Ok(engine), _) => Ok((engine, None)),
            (Err(refused), [next, ..]) => {
                let refused = anyhow::Error::from(refused);
                let why_not = format!("{}: {refused:#}", best.name());
                let engine = Engine::start(places, &self.probe, &self.plan, *next, self.options)?;
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
