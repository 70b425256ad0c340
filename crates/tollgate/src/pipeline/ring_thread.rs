//! The ring thread: drains the ring, encodes events ([`crate::pipeline::encoder`]), and replaces plans between two
//! drains.

mod losses;
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
    ObjectStorage, OwnerLoss, PendingDetach, ProgramRuns, SkipRisk, Wake,
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
use crate::sinks::viewers::ViewerFeed;
use start::StartedEngine;

/// A batch is sent to the log when it has this size, or when the ring is empty. The kernel gets larger parts of the page
/// cache for larger writes: per event, those of 1 MiB take 15 % less than those of 256 KiB.
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// Events per drain, between checks of batch and clock.
const DRAIN: usize = 512;
/// Drains between checks for commands: about 20 ms.
const DRAINS_PER_BATCH: usize = 16;
/// Empty rounds before the thread sleeps until an event wakes it.
const IDLE_ROUNDS: u32 = 4;
/// Limit of receive rounds at the end, in case kernel records never cease.
const FINAL_RECEIVES: usize = 64;
/// The reader must get the CPU when audited tasks use all of it; auditd's `priority_boost` is 4.
const NICE: i32 = -10;

/// Counters of the ring thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct RingStats {
    pub(crate) stats: EngineStats,
    /// Run counts of the BPF programs.
    pub(crate) runs: Vec<ProgramRuns>,
    pub(crate) undecodable: u64,
    /// Events dropped by the rate limit.
    pub(crate) limited: u64,
    pub(crate) not_printed: u64,
    pub(crate) disabled_time: Duration,
    /// Programs that the kernel can skip in its present preemption mode.
    pub(crate) skip_risk: Option<SkipRisk>,
    pub(crate) kernel_records: KernelRecordCounts,
    /// Counters of each rule that matched; filled in on request.
    pub(crate) rules: BTreeMap<BString, RuleCounters>,
    /// Owners that have lost events because the ring was full; filled in on request.
    pub(crate) owners: Vec<OwnerLoss>,
}

impl RingStats {
    /// Events lost before the log thread, by reason.
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

    /// Delivered events that are neither written nor counted as lost yet.
    pub(crate) fn backlog(&self, written: u64, unwritten: u64) -> u64 {
        let Self {
            stats,
            undecodable,
            limited,
            ..
        } = self;
        let known = written + unwritten + undecodable + limited;
        // The log thread continues between the two reads.
        stats.delivered.saturating_sub(known)
    }
}

/// Reason of events that the log thread could not write.
pub(crate) const NOT_WRITTEN: &str = "not written";

/// Every reason for which an event can be missing in the log.
pub(crate) fn loss_reasons() -> impl Iterator<Item = &'static str> {
    let names: Vec<&str> = RingStats::default()
        .losses()
        .map(|(name, _)| name)
        .collect();
    names.into_iter().chain([NOT_WRITTEN])
}

/// How much of the ring was drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    /// The ring was empty.
    Nothing,
    /// The ring is empty now.
    All,
    /// The ring has more.
    Some,
}

/// The ring thread.
pub(crate) struct RingThread {
    pub(crate) plan: Plan,
    /// Engines to try, in order of preference.
    pub(crate) engines: Vec<EngineKind>,
    pub(crate) options: EngineOptions,
    pub(crate) probe: KernelProbe,
    /// Time between the starts of two drains while events arrive.
    pub(crate) pause: Duration,
    pub(crate) commands: RingCommandReceiver,
    pub(crate) full: Sender<Batch>,
    pub(crate) empty: Receiver<Batch>,
    pub(crate) console: Option<Sender<ConsoleEvent>>,
    pub(crate) json: Option<Arc<SinkQueue>>,
    pub(crate) viewers: Arc<ViewerFeed>,
    /// Records of the kernel's audit, if they are read.
    pub(crate) kernel_records: Option<KernelRecords>,
    /// Rate limit and failure mode (`-r`, `-f`).
    pub(crate) limits: Arc<Limits>,
    /// Pin directory and the state found there.
    pub(crate) pinning: PinSetup,
    /// Counters of the log thread.
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
        let wakers = wakers.context("cannot poll for commands")?;
        if ready.send(started).is_err() {
            return Ok((RingStats::default(), None));
        }
        loop {
            match self.drain_until_command(&engine, &state, &wakers)? {
                RingCommand::Leave if engine.is_pinned() => {
                    self.drain_up_to_now(&engine, &state)?;
                    let stats = self.final_stats(&engine, &state)?;
                    engine.leave();
                    return Ok((stats, None));
                }
                RingCommand::Leave | RingCommand::Stop => break,
                RingCommand::Replace(replace) => {
                    let plan = &replace.plan;
                    let answer = self.replace(&mut engine, &mut slots, &state, plan);
                    // The requester may have gone away.
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
                    state.borrow_mut().add_own_programs(&engine);
                    // The requester may have gone away.
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
                    current_stats.owners = engine.owner_losses().read();
                    let mut state = state.borrow_mut();
                    self.collect_rule_stats(&mut state, &engine);
                    current_stats.rules = state.rules.table();
                    // The requester may have gone away.
                    let _gone = answer.send(current_stats);
                }
            }
        }
        let detaching = engine.detach();
        while self.drain(&engine, &state)? != Drain::Nothing {}
        let stats = self.final_stats(&engine, &state)?;
        Ok((stats, Some(detaching)))
    }

    /// Receives the last kernel records, reports all losses, and sends the last batch.
    fn final_stats(
        &self,
        engine: &Engine<'_>,
        state: &RefCell<Encoder>,
    ) -> anyhow::Result<RingStats> {
        pass_last_kernel_records(state)?;
        let mut stats = state.borrow().current_stats();
        let owners = engine.owner_losses().read();
        stats.stats = engine.stats();
        self.record_losses(
            engine,
            &mut state.borrow_mut(),
            &stats,
            &owners,
            Instant::now(),
        )?;
        self.pass_on(engine, state);
        Ok(stats)
    }

    /// Wakes this thread besides the ring: commands and kernel records.
    fn wakers(&self, state: &Encoder) -> nix::Result<Epoll> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        epoll.add(self.commands.as_fd(), readable)?;
        if let Some(kernel_records) = &state.kernel_records {
            epoll.add(kernel_records.stream(), readable)?;
        }
        Ok(epoll)
    }

    /// Replaces the plan.
    fn replace<'s>(
        &self,
        engine: &mut Engine<'s>,
        slots: &mut ObjectSlots<'s>,
        state: &RefCell<Encoder>,
        plan: &Plan,
    ) -> anyhow::Result<ReplaceOutcome> {
        let mut state = state.borrow_mut();
        self.collect_rule_stats(&mut state, engine);
        engine.replace_plan(slots, &self.probe, plan, &handover::snapshot(plan)?)?;
        start::warn_name_only_watches(engine);
        state.add_own_programs(engine);
        Arc::make_mut(&mut state.keys).add(engine.epoch(), plan);
        state.use_plan(engine.epoch(), plan);
        Ok(ReplaceOutcome {
            attached: engine.attached().clone(),
        })
    }

    /// Collects per-rule counters of the log thread and the kernel.
    fn collect_rule_stats(&self, state: &mut Encoder, engine: &Engine<'_>) {
        state
            .rules
            .settle(|epoch, rule| engine.rule_drops(epoch, rule));
        if let Ok(mut rules) = self.written.unwritten_rules.lock() {
            for (rule, events) in std::mem::take(&mut *rules) {
                state.rules.of(rule).unwritten += events;
            }
        }
    }

    /// Drains until a command arrives: periodically while events arrive, asleep otherwise. An engine that cannot stop
    /// is not checked and may sleep forever.
    fn drain_until_command(
        &self,
        engine: &Engine<'_>,
        state: &RefCell<Encoder>,
        wakers: &Epoll,
    ) -> anyhow::Result<RingCommand> {
        let ring = engine.ring();
        let waker = wakers.0.as_fd();
        let mut heartbeat = engine.can_stop().then(|| Heartbeat::new(Instant::now()));
        let mut quiet = 0;
        let command = loop {
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
                // The drain adds to the time that an event has waited.
                let rest = self.pause.saturating_sub(now - began);
                ring.pause(waker, next.map_or(rest, |next| next.min(rest)))
            } else {
                ring.sleep(waker, next)
            };
            match wake.context("cannot poll the ring")? {
                Wake::Caller => {
                    if let Some(command) = self.commands.next().context("cannot read commands")? {
                        break command;
                    }
                }
                Wake::Events => quiet = 0,
                Wake::Timeout => {}
            }
        };
        if let Some(heartbeat) = &mut heartbeat {
            poll_heartbeat(heartbeat, engine);
            check_skip_risk(&mut state.borrow_mut().stats.skip_risk, engine)?;
            state.borrow_mut().stats.disabled_time += heartbeat.disabled_time();
        }
        Ok(command)
    }

    /// Drains everything that is in the ring at this moment.
    fn drain_up_to_now(&self, engine: &Engine<'_>, state: &RefCell<Encoder>) -> anyhow::Result<()> {
        let now = engine.ring().produced();
        loop {
            self.drain(engine, state)?;
            // An event that is being written delays those after it.
            if engine.ring().position() >= now {
                let mut state = state.borrow_mut();
                // The records of held events may have arrived since.
                state.receive_kernel_records()?;
                state.take_all_held();
                return Ok(());
            }
        }
    }

    /// Drains the ring, limited so that commands do not wait long.
    fn drain(&self, engine: &Engine<'_>, state: &RefCell<Encoder>) -> anyhow::Result<Drain> {
        let mut taken = 0;
        for _ in 0..DRAINS_PER_BATCH {
            {
                let mut state = state.borrow_mut();
                state.serve_viewers();
                // Events older than these records are in the ring by now.
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
                let mut state = state.borrow_mut();
                state.forget_keys(engine);
                return Ok(if taken == 0 && !state.holds_events() {
                    Drain::Nothing
                } else {
                    Drain::All
                });
            }
        }
        Ok(Drain::Some)
    }

    /// Sends the current batch to the log thread, and waits while that is behind. A batch without text releases ring
    /// space of events without text.
    fn pass_on(&self, engine: &Engine<'_>, state: &RefCell<Encoder>) {
        let mut state = state.borrow_mut();
        let place = Some(engine.ring().position());
        if state.batch.text.is_empty() && state.batch.on_written.is_none() && state.passed == place
        {
            return;
        }
        state.passed = place;
        let reported = state.loss_reporter.reported_engine_losses();
        state.batch.commit_token = Some(engine.commit_token(state.serial, reported));
        state.batch.ring_is_filling = engine.ring().is_filling();
        self.send(&mut state);
    }

    fn send(&self, state: &mut Encoder) {
        let mut next = self.empty.try_recv().unwrap_or_default();
        next.json = state.batch.json.take();
        if let (Some(json), Some(json_records)) = (&self.json, &mut next.json) {
            json.append_all(json_records.events, &json_records.text);
            json_records.clear();
        }
        if let Some(live) = state.batch.live.take()
            && !live.text.is_empty()
        {
            self.viewers.pass(live);
        }
        let batch = std::mem::replace(&mut state.batch, next);
        // The log thread ends only when this channel closes.
        let _gone = self.full.send(batch);
    }
}

/// Receives waiting kernel records, and passes on syscalls whose record has not arrived.
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

/// Checks that the BPF programs run, and reports changes.
fn poll_heartbeat(heartbeat: &mut Heartbeat, engine: &Engine<'_>) {
    if let Some(change) = heartbeat.poll(engine.programs_run(), Instant::now()) {
        info(&change.to_string());
    }
}

/// Reads the kernel's preemption mode again, and reports a change of the skip risk.
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
