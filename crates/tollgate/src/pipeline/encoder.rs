//! Encodes ring samples as text, and counts them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use audit::event::Timestamp;
use audit::ids::Serial;
use audit::plan::exclude_list::ExcludeList;
use audit::plan::{Plan, user_list};
use audit::record::encode;
use crossbeam_channel::{Sender, TrySendError};
use engine::{
    ClockReading, Decoder, Engine, Epoch, EventContext, RepeatedEvent, RepeatedEvents, RuleKeys,
    TickClock,
};
use zerocopy::IntoBytes as _;

use crate::pipeline::ConsoleEvent;
use crate::pipeline::batch::Batch;
use crate::pipeline::kernel_records::{KernelRecordCounts, KernelRecords};
use crate::pipeline::loss_reporter::{Limits, LossReporter, RateLimiter};
use crate::pipeline::ring_commands::RecordBody;
use crate::pipeline::ring_thread::RingStats;
use crate::pipeline::rule_stats::{PlanRule, RuleStats};
use crate::sinks::viewers::ViewerFeed;

/// Plans whose keys are kept: the active one and its predecessor.
const RETAINED_PLANS: usize = 2;

/// How long an event waits for the kernel record to which it belongs. The kernel sends the record before the syscall
/// ends, by a thread of its own.
const RECORD_WAIT: Duration = Duration::from_millis(100);
/// Limit of events that wait.
const HELD_LIMIT: usize = 256;

/// An event that waits for its kernel record.
#[derive(Debug)]
pub(crate) struct HeldEvent {
    words: Vec<u64>,
    since: Instant,
}

/// Whether an event may wait for its kernel record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Yes,
    No,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoded {
    /// It is encoded, or left out.
    Done,
    /// Its kernel record has not arrived.
    Waits,
}

/// Encoder state.
pub(crate) struct Encoder {
    pub(crate) decoder: Decoder,
    /// Texts of events that occurred before.
    pub(crate) repeated: RepeatedEvents,
    pub(crate) keys: Arc<RuleKeys>,
    pub(crate) exclude: ExcludeList,
    /// Rules of the user list.
    pub(crate) user: user_list::UserList,
    pub(crate) clock: TickClock,
    pub(crate) serial: Serial,
    /// Ring position when the last batch was sent; `None` before the first batch.
    pub(crate) passed: Option<u64>,
    /// End position of the ring when it was found empty with keys left to drop.
    pub(crate) empty_at: Option<u64>,
    pub(crate) batch: Batch,
    pub(crate) console: Option<Sender<ConsoleEvent>>,
    pub(crate) viewers: Arc<ViewerFeed>,
    pub(crate) stats: RingStats,
    pub(crate) kernel_records: Option<KernelRecords>,
    pub(crate) held: VecDeque<HeldEvent>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) rate: RateLimiter,
    pub(crate) loss_reporter: LossReporter,
    pub(crate) rules: RuleStats,
}

impl Encoder {
    /// From the next event on, collects events for viewers if there are any.
    pub(crate) fn serve_viewers(&mut self) {
        self.batch.serve_viewers(&self.viewers);
    }

    /// Receives kernel records, and takes events that waited for them. Returns whether there were any.
    pub(crate) fn receive_kernel_records(&mut self) -> anyhow::Result<bool> {
        let Some(kernel_records) = &mut self.kernel_records else {
            return Ok(false);
        };
        let received = kernel_records
            .receive(&self.exclude, &self.user)
            .context("cannot read records of the kernel's audit")?;
        self.take_held(|held| held.since.elapsed() >= RECORD_WAIT);
        Ok(received)
    }

    /// Whether events wait for their kernel records.
    pub(crate) fn holds_events(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes the events whose kernel record has arrived, and those that wait no longer.
    fn take_held(&mut self, is_due: impl Fn(&HeldEvent) -> bool) {
        for _ in 0..self.held.len() {
            let Some(held) = self.held.pop_front() else {
                return;
            };
            let waits = if is_due(&held) { Waits::No } else { Waits::Yes };
            if self.encode(held.words.as_bytes(), waits) == Encoded::Waits {
                self.held.push_back(held);
            }
        }
    }

    /// Takes all events that wait for their kernel records.
    pub(crate) fn take_all_held(&mut self) {
        self.take_held(|_| true);
    }

    /// Records of the kernel about these BPF programs are left out.
    pub(crate) fn add_own_programs(&mut self, engine: &Engine<'_>) {
        if let Some(kernel_records) = &mut self.kernel_records {
            kernel_records.own_programs.add(engine.program_ids());
        }
    }

    /// From now on syscalls arrive for records of security modules.
    pub(crate) fn expect_syscalls(&mut self) {
        if let Some(kernel_records) = &mut self.kernel_records {
            kernel_records.expect_syscalls();
        }
    }

    /// Passes on all received kernel records.
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

    /// Appends a record that is an event by itself.
    pub(crate) fn record(&mut self, record: &RecordBody, now: ClockReading) {
        self.clock.sync(now);
        let time = self.clock.time_at(now.jiffies);
        let mut line = Vec::new();
        encode::message(record.kind, time, self.serial, &record.body, &mut line);
        self.serve_viewers();
        self.batch.message(&line, (time, self.serial));
        self.serial = self.serial.next();
    }

    pub(crate) fn record_all(&mut self, records: &[RecordBody], now: ClockReading) {
        for record in records {
            self.record(record, now);
        }
    }

    /// Called when the ring is empty: after the next write, no event of an earlier plan is left.
    pub(crate) fn forget_keys(&mut self, engine: &Engine<'_>) {
        if self.keys.plans() <= RETAINED_PLANS || self.holds_events() {
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

    /// From now on takes samples of another engine, with this plan.
    pub(crate) fn switch_plan(&mut self, engine: &Engine<'_>, plan: &Plan) -> anyhow::Result<()> {
        self.take_all_held();
        self.keys = Arc::new(RuleKeys::new(engine.epoch(), plan));
        self.clock = engine.clock()?;
        self.passed = None;
        self.empty_at = None;
        self.rules = RuleStats::default();
        self.use_plan(engine.epoch(), plan);
        Ok(())
    }

    /// Filters and counts by this plan from now on.
    pub(crate) fn use_plan(&mut self, epoch: Epoch, plan: &Plan) {
        self.rules.add(epoch, plan);
        self.exclude = plan.exclude_list.clone();
        self.user = plan.user_list.clone();
        // The ring has unread events of the previous plans.
        self.empty_at = None;
    }

    /// Passes on syscalls and events whose kernel record has not arrived.
    pub(crate) fn pass_last_kernel_records(&mut self) {
        self.take_all_held();
        if let Some(kernel_records) = &mut self.kernel_records {
            kernel_records.pass_last(&mut self.batch);
        }
    }

    /// Takes a sample of the ring.
    pub(crate) fn take(&mut self, sample: &[u8]) {
        let waits = if self.held.len() < HELD_LIMIT {
            Waits::Yes
        } else {
            Waits::No
        };
        if self.encode(sample, waits) == Encoded::Waits {
            self.held.push_back(HeldEvent {
                words: words(sample),
                since: Instant::now(),
            });
        }
    }

    fn encode(&mut self, sample: &[u8], waits: Waits) -> Encoded {
        let (Ok(jiffies), Ok(rule), Ok(program)) = (
            engine::sample_jiffies(sample),
            engine::sample_rule(sample),
            engine::loaded_program(sample),
        ) else {
            self.stats.undecodable += 1;
            return Encoded::Done;
        };
        let ended = self.clock.time_at(jiffies);
        let repeated = self.find_repeated(sample);
        if let Some(repeated) = &repeated
            && self.repeat(repeated, sample, rule, ended)
        {
            return Encoded::Done;
        }
        let (mut time, mut serial, mut is_joined) = (ended, self.serial, false);
        if let (Some(program), Some(kernel_records)) = (program, &mut self.kernel_records) {
            match kernel_records.pass_load(program, ended, &mut self.batch) {
                Some(stamp) => ((time, serial), is_joined) = (stamp, true),
                None if waits == Waits::Yes => return Encoded::Waits,
                None => {}
            }
        }
        let context = EventContext {
            keys: &self.keys,
            time,
            serial,
        };
        let Ok(event) = self.decoder.event(sample, context) else {
            self.stats.undecodable += 1;
            return Encoded::Done;
        };
        if engine::has_kernel_stamp(sample) == Ok(true) {
            // Without kernel records there is nothing to join.
            if let Some(kernel_records) = &mut self.kernel_records {
                kernel_records.add_syscall(&event, &self.exclude);
            }
            return Encoded::Done;
        }
        let joins = engine::has_kernel_record(sample) == Ok(true);
        if let Some(kernel_records) = &mut self.kernel_records
            && !is_joined
        {
            if !joins {
                kernel_records.pass_until(ended, &mut self.batch);
            } else if !kernel_records.pass_through(event.time, event.serial, &mut self.batch)
                && waits == Waits::Yes
            {
                return Encoded::Waits;
            }
        }
        let start = self.batch.text.len();
        encode::event(&event, &mut self.batch.text);
        if let Some(repeated) = &repeated {
            let text = self.batch.text.get(start..).unwrap_or_default();
            let stamp = (event.time, event.serial);
            self.repeated
                .learn(repeated, sample, &self.keys, stamp, text);
        }
        self.exclude
            .remove_excluded(&event.task, &mut self.batch.text, start);
        let count = self.rules.of(rule);
        count.taken += 1;
        let text = self.batch.text.get(start..).unwrap_or_default();
        if !self.rate.admits(&self.limits, time.sec, text) {
            self.batch.text.truncate(start);
            self.stats.limited += 1;
            count.limited += 1;
            return Encoded::Done;
        }
        self.batch.serve_viewers(&self.viewers);
        self.batch.event(&event, rule, start);
        drop(event);
        self.print(sample, time, serial);
        self.serial = self.serial.next();
        Encoded::Done
    }

    /// Looks for the text of a sample. `None` if somebody wants more of its event than that.
    fn find_repeated(&self, sample: &[u8]) -> Option<RepeatedEvent> {
        let only_text = self.batch.json.is_none()
            && self.batch.live.is_none()
            && self.exclude.is_empty()
            && !self.viewers.is_watched();
        only_text.then(|| self.repeated.find(sample, &self.keys))?
    }

    /// Does what [`Self::encode`] does, for an event that occurred before. Returns false if its text is not known.
    fn repeat(
        &mut self,
        repeated: &RepeatedEvent,
        sample: &[u8],
        rule: PlanRule,
        time: Timestamp,
    ) -> bool {
        if !repeated.is_known() {
            return false;
        }
        if let Some(kernel_records) = &mut self.kernel_records {
            kernel_records.pass_until(time, &mut self.batch);
        }
        let start = self.batch.text.len();
        let text = &mut self.batch.text;
        if !self.repeated.append(repeated, time, self.serial, text) {
            return false;
        }
        let count = self.rules.of(rule);
        count.taken += 1;
        let text = self.batch.text.get(start..).unwrap_or_default();
        if self.rate.admits(&self.limits, time.sec, text) {
            self.batch.repeated_event(rule);
            self.print(sample, time, self.serial);
            self.serial = self.serial.next();
        } else {
            self.batch.text.truncate(start);
            self.stats.limited += 1;
            count.limited += 1;
        }
        true
    }

    /// Passes a sample to the console, if there is one.
    fn print(&mut self, sample: &[u8], time: Timestamp, serial: Serial) {
        if let Some(console) = &self.console {
            let words = words(sample);
            match console.try_send(ConsoleEvent {
                words,
                keys: Arc::clone(&self.keys),
                time,
                serial,
            }) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => {}
                Err(TrySendError::Full(_)) => self.stats.not_printed += 1,
            }
        }
    }
}

/// Copies a sample with the alignment of the ring.
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
