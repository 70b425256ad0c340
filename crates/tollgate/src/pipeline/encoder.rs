//! Samples of the ring to text, and what is counted meanwhile.

use std::sync::Arc;

use anyhow::Context as _;
use audit::ids::Serial;
use audit::plan::exclude_list::ExcludeList;
use audit::plan::{Plan, user_list};
use audit::record::encode;
use crossbeam_channel::{Sender, TrySendError};
use engine::{ClockReading, Decoder, Engine, Epoch, EventContext, RuleKeys, TickClock};

use crate::pipeline::ConsoleEvent;
use crate::pipeline::batch::Batch;
use crate::pipeline::kernel_records::{KernelRecordCounts, KernelRecords};
use crate::pipeline::loss_reporter::{Limits, LossReporter, RateLimiter};
use crate::pipeline::ring_commands::Record;
use crate::pipeline::ring_thread::RingStats;
use crate::pipeline::rule_stats::RuleStats;

/// Plans whose keys are kept: the one in force and the one before.
const RETAINED_PLANS: usize = 2;

/// What turns samples into text.
pub(crate) struct Encoder {
    pub(crate) decoder: Decoder,
    pub(crate) keys: Arc<RuleKeys>,
    pub(crate) exclude: ExcludeList,
    /// About messages of programs.
    pub(crate) user: user_list::UserList,
    pub(crate) clock: TickClock,
    pub(crate) serial: Serial,
    /// Up to where the ring was read when a batch was passed on; nothing before the first one.
    pub(crate) passed: Option<u64>,
    /// Where in the ring it ended when there were keys to forget and it was found empty.
    pub(crate) empty_at: Option<u64>,
    pub(crate) batch: Batch,
    pub(crate) console: Option<Sender<ConsoleEvent>>,
    pub(crate) stats: RingStats,
    pub(crate) kernel_records: Option<KernelRecords>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) rate: RateLimiter,
    pub(crate) loss_reporter: LossReporter,
    pub(crate) rules: RuleStats,
}

impl Encoder {
    /// Takes messages of the kernel's audit; whether there were any.
    pub(crate) fn receive_kernel_records(&mut self) -> anyhow::Result<bool> {
        match &mut self.kernel_records {
            Some(kernel_records) => kernel_records
                .receive(&self.exclude, &self.user)
                .context("cannot read the kernel's audit"),
            None => Ok(false),
        }
    }

    /// From now on calls come for what security modules record.
    pub(crate) fn expect_syscalls(&mut self) {
        if let Some(kernel_records) = &mut self.kernel_records {
            kernel_records.expect_syscalls();
        }
    }

    /// Passes on all messages that were taken.
    pub(crate) fn pass_all_kernel_records(&mut self) {
        if let Some(kernel_records) = &mut self.kernel_records {
            kernel_records.pass_all(&mut self.batch);
        }
    }

    pub(crate) fn current_stats(&self) -> RingStats {
        let kernel_records = self.kernel_records.as_ref();
        RingStats {
            kernel_records: kernel_records
                .map_or_else(KernelRecordCounts::default, |kernel_records| {
                    kernel_records.counts
                }),
            ..self.stats.clone()
        }
    }

    /// Appends a record that is an event of its own.
    pub(crate) fn record(&mut self, record: &Record, now: ClockReading) {
        self.clock.sync(now);
        let time = self.clock.time_at(now.jiffies);
        let mut line = Vec::new();
        encode::message(record.kind, time, self.serial, &record.body, &mut line);
        self.batch.message(&line, (time, self.serial));
        self.serial = self.serial.next();
    }

    pub(crate) fn record_all(&mut self, records: &[Record], now: ClockReading) {
        for record in records {
            self.record(record, now);
        }
    }

    /// The ring was found empty: once all that was in it is written, no event of an earlier plan is left.
    pub(crate) fn forget_keys(&mut self, engine: &Engine<'_>) {
        if self.keys.plans() <= RETAINED_PLANS {
            return;
        }
        let empty = *self
            .empty_at
            .get_or_insert_with(|| engine.ring().position());
        if engine.ring().is_committed(empty) {
            Arc::make_mut(&mut self.keys).forget_old();
            engine.remove_old_snapshots(&self.keys);
            self.empty_at = None;
        }
    }

    /// Takes samples of another engine from now on, which goes by this plan.
    pub(crate) fn switch_plan(&mut self, engine: &Engine<'_>, plan: &Plan) -> anyhow::Result<()> {
        self.keys = Arc::new(RuleKeys::new(engine.epoch(), plan));
        self.clock = engine.clock()?;
        self.passed = None;
        self.empty_at = None;
        self.loss_reporter = LossReporter::default();
        self.rules = RuleStats::default();
        self.use_plan(engine.epoch(), plan);
        Ok(())
    }

    /// Counts and leaves out by the plan that was put in force.
    pub(crate) fn use_plan(&mut self, epoch: Epoch, plan: &Plan) {
        self.rules.add(epoch, plan);
        self.exclude = plan.exclude_list.clone();
        self.user = plan.user_list.clone();
        // Its predecessors have events in the ring that nobody has seen.
        self.empty_at = None;
    }

    /// Passes on the calls that still wait for a record of the kernel's audit.
    pub(crate) fn pass_last_kernel_records(&mut self) {
        if let Some(kernel_records) = &mut self.kernel_records {
            kernel_records.pass_last(&mut self.batch);
        }
    }

    pub(crate) fn take(&mut self, sample: &[u8]) {
        let (Ok(jiffies), Ok(rule)) = (engine::sample_jiffies(sample), engine::sample_rule(sample))
        else {
            self.stats.undecodable += 1;
            return;
        };
        let time = self.clock.time_at(jiffies);
        let context = EventContext {
            keys: &self.keys,
            time,
            serial: self.serial,
        };
        let Ok(event) = self.decoder.event(sample, context) else {
            self.stats.undecodable += 1;
            return;
        };
        if engine::has_kernel_stamp(sample) == Ok(true) {
            // Without messages there is no record that it could belong to.
            if let Some(kernel_records) = &mut self.kernel_records {
                kernel_records.add_syscall(&event, &self.exclude);
            }
            return;
        }
        if let Some(kernel_records) = &mut self.kernel_records {
            kernel_records.pass_until(time, &mut self.batch);
        }
        let start = self.batch.text.len();
        encode::event(&event, &mut self.batch.text);
        self.exclude
            .remove_excluded(&event.task, &mut self.batch.text, start);
        let count = self.rules.of(rule);
        count.taken += 1;
        let text = self.batch.text.get(start..).unwrap_or_default();
        if !self.rate.admits(&self.limits, time.sec, text) {
            self.batch.text.truncate(start);
            self.stats.limited += 1;
            count.limited += 1;
            return;
        }
        self.batch.event(&event, rule, start);
        if let Some(console) = &self.console {
            let words = words(sample);
            match console.try_send(ConsoleEvent {
                words,
                keys: Arc::clone(&self.keys),
                time,
                serial: self.serial,
            }) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => {}
                Err(TrySendError::Full(_)) => self.stats.not_printed += 1,
            }
        }
        self.serial = self.serial.next();
    }
}

/// A copy of a sample that is aligned as the ring's own bytes are.
fn words(sample: &[u8]) -> Vec<u64> {
    sample
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            u64::from_ne_bytes(word)
        })
        .collect()
}
