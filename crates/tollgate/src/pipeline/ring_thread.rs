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
use bstr::BString;
use crossbeam_channel::{Receiver, Sender};
use engine::{
    Engine, EngineKind, EngineOptions, EngineStats, KernelProbe, LossReason, ObjectSlots,
    ObjectStorage, PendingDetach, ProgramRuns, SkipRisk, Wake,
};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::messages::{info, warn};
use crate::pipeline::batch::Batch;
use crate::pipeline::encoder::Encoder;
use crate::pipeline::handover::{self, PinSetup};
use crate::pipeline::heartbeat::{Heartbeat, skip_warning};
use crate::pipeline::kernel_records::{KernelRecordCounts, KernelRecords};
use crate::pipeline::log_thread::LogCounters;
use crate::pipeline::loss_reporter::Limits;
use crate::pipeline::ring_commands::{
    LockRequest, ReplaceOutcome, RingCommand, RingCommandReceiver,
};
use crate::pipeline::rule_stats::RuleCounters;
use crate::pipeline::{ConsoleEvent, StartReport};
use crate::sinks::queue::SinkQueue;
use start::StartedEngine;

/// A batch goes to the log when it has grown to this, or when the ring is empty.
const BATCH_BYTES: usize = 256 << 10;
/// Events taken from the ring between two looks at the batch and the clock.
const DRAIN: usize = 512;
/// Such rounds between two looks at orders: some 20 ms.
const DRAINS_PER_BATCH: usize = 16;
/// Empty rounds after which the reader sleeps until an event wakes it.
const IDLE_ROUNDS: u32 = 4;
/// Rounds in which messages are taken at the end, should they never cease.
const FINAL_RECEIVES: usize = 64;
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
    pub(crate) not_printed: u64,
    pub(crate) blind: Duration,
    /// Programs that the kernel can skip in its present preemption mode.
    pub(crate) skip_risk: Option<SkipRisk>,
    pub(crate) kernel_records: KernelRecordCounts,
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
    pub(crate) fn backlog(&self, written: u64, unwritten: u64) -> u64 {
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
    pub(crate) commands: RingCommandReceiver,
    pub(crate) full: Sender<Batch>,
    pub(crate) empty: Receiver<Batch>,
    pub(crate) console: Option<Sender<ConsoleEvent>>,
    pub(crate) json: Option<Arc<SinkQueue>>,
    /// What the kernel's audit sends, when it is read.
    pub(crate) kernel_records: Option<KernelRecords>,
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
        let mut slots = storage.slots();
        let StartedEngine {
            mut engine,
            state,
            started,
        } = self.start_engine(&mut slots)?;
        let wakers = self.wakers(&state.borrow());
        let wakers = wakers.context("cannot wait for orders")?;
        if ready.send(started).is_err() {
            return Ok((RingStats::default(), None));
        }
        loop {
            match self.update_watches(&engine, &state, &wakers)? {
                RingCommand::Leave if engine.is_pinned() => {
                    self.drain_up_to_now(&engine, &state)?;
                    return Ok((self.final_stats(&engine, &state)?, None));
                }
                RingCommand::Leave | RingCommand::Stop => break,
                RingCommand::Replace(replace) => {
                    let plan = &replace.plan;
                    let answer = self.replace(&mut engine, &mut slots, &state, plan);
                    // Nobody waits any more when the control connection is gone.
                    let _gone = replace.answer.send(answer);
                }
                RingCommand::Lock(lock) => {
                    let LockRequest {
                        snapshot,
                        files,
                        answer,
                    } = *lock;
                    let locked = engine
                        .write_lock_note(&snapshot)
                        .map_err(anyhow::Error::from);
                    let guard = locked.map(|()| {
                        let guard = engine.install_guard(&mut slots, &self.probe, &files);
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
                    state.borrow_mut().batch.on_written = Some(flushed);
                    self.pass_on(&engine, &state);
                }
                RingCommand::Stats(answer) => {
                    let mut current_stats = state.borrow().current_stats();
                    current_stats.stats = engine.stats();
                    current_stats.runs = engine.run_counts();
                    let mut state = state.borrow_mut();
                    self.settle(&mut state, &engine);
                    current_stats.rules = state.rules.table();
                    // Nobody waits any more when the control connection is gone.
                    let _gone = answer.send(current_stats);
                }
            }
        }
        let detaching = engine.detach();
        while self.drain(&engine, &state)? != Drain::Nothing {}
        let stats = self.final_stats(&engine, &state)?;
        Ok((stats, Some(detaching)))
    }

    /// Takes the last messages, tells all that was lost, and passes everything on.
    fn final_stats(
        &self,
        engine: &Engine<'_>,
        state: &RefCell<Encoder>,
    ) -> anyhow::Result<RingStats> {
        pass_last_kernel_records(state)?;
        let mut stats = state.borrow().current_stats();
        stats.stats = engine.stats();
        {
            let mut state = state.borrow_mut();
            let records = state
                .loss_reporter
                .report_all(&stats, &self.limits, Instant::now());
            state.record_all(&records, engine.read_clock()?);
        }
        self.pass_on(engine, state);
        Ok(stats)
    }

    /// What wakes this thread beside the ring: orders, and messages.
    fn wakers(&self, state: &Encoder) -> nix::Result<Epoll> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        epoll.add(self.commands.as_fd(), readable)?;
        if let Some(kernel_records) = &state.kernel_records {
            epoll.add(kernel_records.stream(), readable)?;
        }
        Ok(epoll)
    }

    /// Puts another plan in force.
    fn replace<'s>(
        &self,
        engine: &mut Engine<'s>,
        slots: &mut ObjectSlots<'s>,
        state: &RefCell<Encoder>,
        plan: &Plan,
    ) -> anyhow::Result<ReplaceOutcome> {
        let mut state = state.borrow_mut();
        self.settle(&mut state, engine);
        engine.replace_plan(slots, &self.probe, plan, &handover::snapshot(plan)?)?;
        Arc::make_mut(&mut state.keys).add(engine.epoch(), plan);
        state.use_plan(engine.epoch(), plan);
        Ok(ReplaceOutcome {
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
    /// cannot stop is never looked at, and sleeps without end.
    fn update_watches(
        &self,
        engine: &Engine<'_>,
        state: &RefCell<Encoder>,
        wakers: &Epoll,
    ) -> anyhow::Result<RingCommand> {
        let ring = engine.ring();
        let waker = wakers.0.as_fd();
        let mut heartbeat = engine.can_stop().then(|| Heartbeat::new(Instant::now()));
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
                poll_heartbeat(heartbeat, engine);
                check_skip_risk(&mut state.borrow_mut().stats.skip_risk, engine)?;
                next = Some(heartbeat.next(now));
            }
            let next_report = self.report_losses(engine, state, now)?;
            next = next.into_iter().chain(next_report).min();
            let wake = if drain == Drain::Some {
                ring.pause(waker, Duration::ZERO)
            } else if quiet < IDLE_ROUNDS {
                // What a drain takes comes on top of what an event has waited for it.
                let rest = self.pause.saturating_sub(now - began);
                ring.pause(waker, next.map_or(rest, |next| next.min(rest)))
            } else {
                ring.sleep(waker, next)
            };
            match wake.context("cannot wait for events")? {
                Wake::Caller => {
                    if let Some(order) = self.commands.next().context("cannot take orders")? {
                        break order;
                    }
                }
                Wake::Events => quiet = 0,
                Wake::Timeout => {}
            }
        };
        if let Some(heartbeat) = &mut heartbeat {
            poll_heartbeat(heartbeat, engine);
            state.borrow_mut().stats.blind += heartbeat.blind();
        }
        Ok(order)
    }

    /// Tells what was lost; the time until more is told, if there is more.
    fn report_losses(
        &self,
        engine: &Engine<'_>,
        state: &RefCell<Encoder>,
        now: Instant,
    ) -> anyhow::Result<Option<Duration>> {
        let mut state = state.borrow_mut();
        let mut counted = state.current_stats();
        counted.stats = engine.program_stats();
        let records = state.loss_reporter.report(&counted, &self.limits, now);
        if !records.is_empty() {
            state.record_all(&records, engine.read_clock()?);
            drop(state);
            return Ok(Some(Duration::ZERO));
        }
        Ok(state.loss_reporter.next_report(&counted, now))
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
        for _ in 0..DRAINS_PER_BATCH {
            {
                let mut state = state.borrow_mut();
                // What is older than these messages is in the ring by now.
                state.receive_kernel_records()?;
                state.clock.sync(engine.read_clock()?);
            }
            let count = engine
                .ring()
                .drain(DRAIN, |sample| state.borrow_mut().take(sample));
            taken += count;
            if count < DRAIN {
                state.borrow_mut().pass_all_kernel_records();
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
        if state.batch.text.is_empty() && state.batch.on_written.is_none() && state.passed == place
        {
            return;
        }
        state.passed = place;
        let told = state.loss_reporter.reported_engine_losses();
        state.batch.commit_token = Some(engine.commit_token(state.serial, told));
        self.send(&mut state);
    }

    fn send(&self, state: &mut Encoder) {
        let mut next = self.empty.try_recv().unwrap_or_default();
        next.json = state.batch.json.take();
        if let (Some(json), Some(json_records)) = (&self.json, &mut next.json) {
            json.append_all(json_records.events, &json_records.text);
            json_records.clear();
        }
        let batch = std::mem::replace(&mut state.batch, next);
        // The log thread outlives this one: it ends when this channel closes.
        let _gone = self.full.send(batch);
    }
}

/// Takes the messages that have come by now, and passes on the calls whose records do not come any more.
fn pass_last_kernel_records(state: &RefCell<Encoder>) -> anyhow::Result<()> {
    let mut state = state.borrow_mut();
    for _ in 0..FINAL_RECEIVES {
        if !state.receive_kernel_records()? {
            break;
        }
        state.pass_all_kernel_records();
    }
    state.pass_last_kernel_records();
    Ok(())
}

/// Looks whether the engine's programs run, and says what has changed.
fn poll_heartbeat(heartbeat: &mut Heartbeat, engine: &Engine<'_>) {
    if let Some(change) = heartbeat.poll(engine.programs_run(), Instant::now()) {
        info(&change.to_string());
    }
}

/// Reads the kernel's preemption mode again, and reports a change of what it can skip.
fn check_skip_risk(risk: &mut Option<SkipRisk>, engine: &Engine<'_>) -> anyhow::Result<()> {
    engine.read_clock()?;
    let now = engine.skip_risk();
    match (*risk, now) {
        (before, after) if before == after => {}
        (_, Some(risk)) => warn(&skip_warning(risk)),
        (Some(_), None) => info("the kernel no longer skips programs: it does not preempt itself"),
        (None, None) => {}
    }
    *risk = now;
    Ok(())
}
