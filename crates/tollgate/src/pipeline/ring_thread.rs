//! The ring thread: drains the ring, has events turned into text ([`crate::pipeline::encoder`]), and replaces the
//! rules between two drains.

mod start;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use audit::plan::Plan;
use audit::plan::hook::EngineKind;
use bstr::BString;
use crossbeam_channel::{Receiver, Sender};
use engine::{
    Engine, EngineOptions, EngineStats, KernelProbe, LossReason, ObjectSlots, ObjectStorage,
    PendingDetach, ProgramRuns, Wake,
};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::messages::info;
use crate::pipeline::batch::Batch;
use crate::pipeline::encoder::Encoder;
use crate::pipeline::handover::{self as survive, PinSetup};
use crate::pipeline::heartbeat::Heartbeat;
use crate::pipeline::kernel_records::{KernelRecordCounts, KernelRecords};
use crate::pipeline::log_thread::LogCounters;
use crate::pipeline::loss_reporter::Limits;
use crate::pipeline::ring_commands::{Lock, Replaced, RingCommand, RingCommandReceiver};
use crate::pipeline::rule_stats::RuleCounters;
use crate::pipeline::{Shown, StartReport};
use crate::sinks::queue::SinkQueue;
use start::Begun;

/// A batch goes to the log when it has grown to this, or when the ring is empty.
const BATCH_BYTES: usize = 256 << 10;
/// Events taken from the ring between two looks at the batch and the clock.
const DRAIN: usize = 512;
/// Such rounds between two looks at orders: some 20 ms.
const DRAINS: usize = 16;
/// Empty rounds after which the reader sleeps until an event wakes it.
const QUIET_ROUNDS: u32 = 4;
/// Rounds in which messages are taken at the end, should they never cease.
const LAST_MESSAGES: usize = 64;
/// The reader must get the CPU when audited tasks want all of it; auditd's `priority_boost` is 4.
const NICE: i32 = -10;

/// What the ring thread counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct RingStats {
    pub(crate) stats: EngineStats,
    /// Of an engine that runs.
    pub(crate) runs: Vec<ProgramRuns>,
    pub(crate) undecodable: u64,
    /// Events that the rate limit keeps out.
    pub(crate) limited: u64,
    pub(crate) unshown: u64,
    pub(crate) blind: Duration,
    pub(crate) messages: KernelRecordCounts,
    /// Of each rule that has chosen something; filled in when it is asked for.
    pub(crate) rules: BTreeMap<BString, RuleCounters>,
}

impl RingStats {
    /// Events lost before they came to the log thread, by reason.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let of_kernel = LossReason::ALL
            .into_iter()
            .map(LossReason::as_str)
            .zip(self.stats.lost);
        of_kernel.chain([
            ("rate limit", self.limited),
            ("not decodable", self.undecodable),
        ])
    }

    /// Events that the kernel has delivered and of which nothing is known yet: neither that so many are
    /// written or could not be, nor that they were lost before.
    pub(crate) fn waiting(&self, written: u64, unwritten: u64) -> u64 {
        let Self {
            stats,
            undecodable,
            limited,
            ..
        } = self;
        let known = written + unwritten + undecodable + limited;
        // The log thread goes on between the counts.
        stats.delivered.saturating_sub(known)
    }
}

/// How much of the ring was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    /// It was empty.
    Nothing,
    /// It is empty now.
    All,
    /// There is more.
    Some,
}

/// The ring thread.
pub(crate) struct RingThread {
    pub(crate) plan: Plan,
    /// Engines to try, the best first.
    pub(crate) engines: Vec<EngineKind>,
    pub(crate) options: EngineOptions,
    pub(crate) probe: KernelProbe,
    /// From the begin of a drain to that of the next one, while events come.
    pub(crate) pause: Duration,
    pub(crate) orders: RingCommandReceiver,
    pub(crate) full: Sender<Batch>,
    pub(crate) empty: Receiver<Batch>,
    pub(crate) shown: Option<Sender<Shown>>,
    pub(crate) json: Option<Arc<SinkQueue>>,
    /// What the kernel's audit sends, when it is read.
    pub(crate) messages: Option<KernelRecords>,
    /// What `-r` and `-f` ask for.
    pub(crate) limits: Arc<Limits>,
    /// Where to pin what audits, and what is pinned there.
    pub(crate) pinning: PinSetup,
    /// What became of the events behind this thread.
    pub(crate) written: Arc<LogCounters>,
}

impl RingThread {
    pub(crate) fn run(
        mut self,
        ready: &Sender<StartReport>,
    ) -> anyhow::Result<(RingStats, Option<PendingDetach>)> {
        engine::set_nice(NICE);
        let mut storage = ObjectStorage::default();
        let mut places = storage.slots();
        let Begun {
            mut engine,
            state,
            started,
        } = self.begin(&mut places)?;
        let wakers = self.wakers(&state.borrow());
        let wakers = wakers.context("cannot wait for orders")?;
        if ready.send(started).is_err() {
            return Ok((RingStats::default(), None));
        }
        loop {
            match self.follow(&engine, &state, &wakers)? {
                RingCommand::Leave if engine.is_pinned() => {
                    self.drain_up_to_now(&engine, &state)?;
                    return Ok((self.account_at_end(&engine, &state)?, None));
                }
                RingCommand::Leave | RingCommand::Stop => break,
                RingCommand::Replace(replace) => {
                    let plan = &replace.plan;
                    let answer = self.replace(&mut engine, &mut places, &state, plan);
                    // Nobody waits any more when the control connection is gone.
                    let _gone = replace.answer.send(answer);
                }
                RingCommand::Lock(lock) => {
                    let Lock {
                        note,
                        files,
                        answer,
                    } = *lock;
                    let locked = engine.write_lock_note(&note).map_err(anyhow::Error::from);
                    let guard = locked.map(|()| {
                        let guard = engine.install_guard(&mut places, &self.probe, &files);
                        guard.map_err(|error| format!("{:#}", anyhow::Error::from(error)))
                    });
                    // Who has asked waits for the answer.
                    let _gone = answer.send(guard);
                }
                RingCommand::Record(record) => {
                    self.drain_up_to_now(&engine, &state)?;
                    state.borrow_mut().record(&record, engine.read_clock()?);
                }
                RingCommand::Flush(flushed) => {
                    self.drain_up_to_now(&engine, &state)?;
                    state.borrow_mut().batch.then = Some(flushed);
                    self.pass_on(&engine, &state);
                }
                RingCommand::Account(answer) => {
                    let mut account = state.borrow().account();
                    account.stats = engine.stats();
                    account.runs = engine.run_counts();
                    let mut state = state.borrow_mut();
                    self.settle(&mut state, &engine);
                    account.rules = state.rules.table();
                    // Nobody waits any more when the control connection is gone.
                    let _gone = answer.send(account);
                }
            }
        }
        let detaching = engine.detach();
        while self.drain(&engine, &state)? != Drain::Nothing {}
        let drained = self.account_at_end(&engine, &state)?;
        Ok((drained, Some(detaching)))
    }

    /// Takes the last messages, tells all that was lost, and passes everything on.
    fn account_at_end(
        &self,
        engine: &Engine<'_>,
        state: &RefCell<Encoder>,
    ) -> anyhow::Result<RingStats> {
        last_messages(state)?;
        let mut drained = state.borrow().account();
        drained.stats = engine.stats();
        {
            let mut state = state.borrow_mut();
            let records = state
                .losses
                .tell_all(&drained, &self.limits, Instant::now());
            state.record_all(&records, engine.read_clock()?);
        }
        self.pass_on(engine, state);
        Ok(drained)
    }

    /// What wakes this thread beside the ring: orders, and messages.
    fn wakers(&self, state: &Encoder) -> nix::Result<Epoll> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        epoll.add(self.orders.as_fd(), readable)?;
        if let Some(messages) = &state.messages {
            epoll.add(messages.stream(), readable)?;
        }
        Ok(epoll)
    }

    /// Puts another plan in force.
    fn replace<'s>(
        &self,
        engine: &mut Engine<'s>,
        places: &mut ObjectSlots<'s>,
        state: &RefCell<Encoder>,
        plan: &Plan,
    ) -> anyhow::Result<Replaced> {
        let mut state = state.borrow_mut();
        self.settle(&mut state, engine);
        engine.replace_plan(places, &self.probe, plan, &survive::note(plan)?)?;
        Arc::make_mut(&mut state.keys).add(engine.epoch(), plan);
        state.go_by(engine.epoch(), plan);
        Ok(Replaced {
            attached: engine.attached().clone(),
        })
    }

    /// Takes over what others have counted of each rule.
    fn settle(&self, state: &mut Encoder, engine: &Engine<'_>) {
        state
            .rules
            .settle(|epoch, rule| engine.rule_drops(epoch, rule));
        if let Ok(mut rules) = self.written.unwritten_rules.lock() {
            for (rule, events) in std::mem::take(&mut *rules) {
                state.rules.of(rule).unwritten += events;
            }
        }
    }

    /// Drains until an order comes: by the clock while events come, asleep while none do. An engine that
    /// cannot be blind is never looked at, and sleeps without end.
    fn follow(
        &self,
        engine: &Engine<'_>,
        state: &RefCell<Encoder>,
        wakers: &Epoll,
    ) -> anyhow::Result<RingCommand> {
        let ring = engine.ring();
        let waker = wakers.0.as_fd();
        let on_functions = engine.kind() == EngineKind::Fentry;
        let mut heartbeat = on_functions.then(|| Heartbeat::new(Instant::now()));
        let mut quiet = 0;
        let order = loop {
            let began = Instant::now();
            let drain = self.drain(engine, state)?;
            quiet = if drain == Drain::Nothing {
                quiet + 1
            } else {
                0
            };
            let now = Instant::now();
            let mut next = heartbeat.as_ref().map(|heartbeat| heartbeat.next(now));
            if let Some(heartbeat) = &mut heartbeat
                && next == Some(Duration::ZERO)
            {
                look(heartbeat, engine);
                next = Some(heartbeat.next(now));
            }
            let due = self.tell_losses(engine, state, now)?;
            next = next.into_iter().chain(due).min();
            let wake = if drain == Drain::Some {
                ring.pause(waker, Duration::ZERO)
            } else if quiet < QUIET_ROUNDS {
                // What a drain takes comes on top of what an event has waited for it.
                let rest = self.pause.saturating_sub(now - began);
                ring.pause(waker, next.map_or(rest, |next| next.min(rest)))
            } else {
                ring.sleep(waker, next)
            };
            match wake.context("cannot wait for events")? {
                Wake::Caller => {
                    if let Some(order) = self.orders.next().context("cannot take orders")? {
                        break order;
                    }
                }
                Wake::Events => quiet = 0,
                Wake::Timeout => {}
            }
        };
        if let Some(heartbeat) = &mut heartbeat {
            look(heartbeat, engine);
            state.borrow_mut().drained.blind += heartbeat.blind();
        }
        Ok(order)
    }

    /// Tells what was lost; the time until more is told, if there is more.
    fn tell_losses(
        &self,
        engine: &Engine<'_>,
        state: &RefCell<Encoder>,
        now: Instant,
    ) -> anyhow::Result<Option<Duration>> {
        let mut state = state.borrow_mut();
        let mut counted = state.account();
        counted.stats = engine.program_stats();
        let records = state.losses.tell(&counted, &self.limits, now);
        if !records.is_empty() {
            state.record_all(&records, engine.read_clock()?);
            drop(state);
            return Ok(Some(Duration::ZERO));
        }
        Ok(state.losses.due(&counted, now))
    }

    /// Takes all that is in the ring at this moment, and what else comes meanwhile.
    fn drain_up_to_now(&self, engine: &Engine<'_>, state: &RefCell<Encoder>) -> anyhow::Result<()> {
        let now = engine.ring().produced();
        loop {
            self.drain(engine, state)?;
            // An event that is being written keeps those after it back for a moment.
            if engine.ring().position() >= now {
                return Ok(());
            }
        }
    }

    /// Takes what the ring holds now and passes it on, so much at most that orders do not wait for long.
    fn drain(&self, engine: &Engine<'_>, state: &RefCell<Encoder>) -> anyhow::Result<Drain> {
        let mut taken = 0;
        for _ in 0..DRAINS {
            {
                let mut state = state.borrow_mut();
                // What is older than these messages is in the ring by now.
                state.receive()?;
                state.clock.sync(engine.read_clock()?);
            }
            let count = engine
                .ring()
                .drain(DRAIN, |sample| state.borrow_mut().take(sample));
            taken += count;
            if count < DRAIN {
                state.borrow_mut().all_messages();
            }
            let full = state.borrow().batch.text.len() >= BATCH_BYTES;
            if full || count < DRAIN {
                self.pass_on(engine, state);
            }
            if count < DRAIN {
                state.borrow_mut().forget_keys(engine);
                return Ok(match taken {
                    0 => Drain::Nothing,
                    _ => Drain::All,
                });
            }
        }
        Ok(Drain::Some)
    }

    /// Hands the current batch to the log thread, waiting while it is behind. A batch without text gives
    /// back what events without text have taken in the ring.
    fn pass_on(&self, engine: &Engine<'_>, state: &RefCell<Encoder>) {
        let mut state = state.borrow_mut();
        let place = Some(engine.ring().position());
        if state.batch.text.is_empty() && state.batch.then.is_none() && state.passed == place {
            return;
        }
        state.passed = place;
        let told = state.losses.told_of_engine();
        state.batch.receipt = Some(engine.commit_token(state.serial, told));
        self.send(&mut state);
    }

    fn send(&self, state: &mut Encoder) {
        let mut next = self.empty.try_recv().unwrap_or_default();
        next.copied = state.batch.copied.take();
        if let (Some(json), Some(copied)) = (&self.json, &mut next.copied) {
            json.append_all(copied.events, &copied.text);
            copied.clear();
        }
        let batch = std::mem::replace(&mut state.batch, next);
        // The log thread outlives this one: it ends when this channel closes.
        let _gone = self.full.send(batch);
    }
}

/// Takes the messages that have come by now, and passes on the calls whose records do not come any more.
fn last_messages(state: &RefCell<Encoder>) -> anyhow::Result<()> {
    let mut state = state.borrow_mut();
    for _ in 0..LAST_MESSAGES {
        if !state.receive()? {
            break;
        }
        state.all_messages();
    }
    state.last_messages();
    Ok(())
}

/// Looks whether the engine's programs run, and says what has changed.
fn look(heartbeat: &mut Heartbeat, engine: &Engine<'_>) {
    if let Some(change) = heartbeat.look(engine.programs_run(), Instant::now()) {
        info(&change.to_string());
    }
}
