//! From the ring to the log, in three threads that only move forward.
//!
//! | thread | owns | when the next one is full |
//! | --- | --- | --- |
//! | `tlg-ring` | engine, ring, decoder, encoder, current batch | waits: the kernel side then counts what is lost |
//! | `tlg-log` | log file | a batch that cannot be written is counted |
//! | `tlg-print` | terminal | events are left out of the view and counted |
//! | `tlg-json` | JSON log, when there is one | events are left out of it and counted |
//!
//! Batches are buffers of whole events as text; they travel forward on one bounded channel and come
//! back empty on another.

pub(crate) mod batch;
pub(crate) mod encoder;
pub(crate) mod handover;
pub(crate) mod heartbeat;
pub(crate) mod kernel_records;
pub(crate) mod log_thread;
pub(crate) mod loss_reporter;
pub(crate) mod ring_commands;
pub(crate) mod ring_thread;
pub(crate) mod rule_stats;
pub(crate) mod summary;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use audit::event::Timestamp;
use audit::ids::Serial;
use audit::plan::Plan;
use crossbeam_channel::{Receiver, bounded};
use engine::{
    AttachedHooks, Decoder, EngineKind, EngineOptions, EventContext, KernelProbe, PendingDetach,
    RuleKeys, SkipRisk,
};
use netlink::RecordStream;
use nix::sys::eventfd::EventFd;
use zerocopy::IntoBytes as _;

use crate::pipeline::handover::PinSetup;
use crate::pipeline::kernel_records::KernelRecords;
use crate::pipeline::log_thread::{LogCommand, LogCounters, LogThread};
use crate::pipeline::loss_reporter::Limits;
use crate::pipeline::ring_commands::{RingCommands, ring_command_channel};
use crate::pipeline::ring_thread::{RingStats, RingThread};
use crate::pipeline::summary::{PipelineTotals, UnwrittenEvents};
use crate::sinks::audit_log::{AuditLog, SignalSender};
use crate::sinks::console::Console;
use crate::sinks::json::log::JsonLog;
use crate::sinks::queue::{QueueStats, SinkQueue};

/// Batches on their way to the log.
const MAX_BATCHES: usize = 16;
/// Events that the view may lag behind.
const CONSOLE_QUEUE_EVENTS: usize = 4096;

/// What to run the pipeline with.
pub(crate) struct Pipeline {
    /// The plan to attach.
    pub(crate) plan: Plan,
    /// Engines to try, the best first.
    pub(crate) engines: Vec<EngineKind>,
    pub(crate) options: EngineOptions,
    /// What this kernel offers.
    pub(crate) probe: KernelProbe,
    /// Where records go.
    pub(crate) log: AuditLog,
    /// What the log thread is told.
    pub(crate) log_commands: Receiver<LogCommand>,
    /// A view for people, when wanted.
    pub(crate) console: Option<Console>,
    /// A log for programs, when wanted.
    pub(crate) json: Option<JsonLog>,
    /// Longest time from event to write.
    pub(crate) delay: Duration,
    /// What the kernel's audit sends, when it is read.
    pub(crate) kernel_records: Option<RecordStream>,
    /// What `-r` and `-f` ask for.
    pub(crate) limits: Arc<Limits>,
    /// Where to pin what audits, and what is pinned there.
    pub(crate) pinning: PinSetup,
}

/// How auditing has begun.
#[derive(Debug)]
pub(crate) struct StartReport {
    /// The engine that works here.
    pub(crate) engine: EngineKind,
    /// What it attached.
    pub(crate) attached: AttachedHooks,
    /// Why a better engine does not.
    pub(crate) why_not: Option<String>,
    /// Whether it goes on where another daemon has ended.
    pub(crate) adopted: bool,
    /// Whether it can be gone on with when this one has ended.
    pub(crate) pinned: bool,
    /// Programs that the kernel can skip.
    pub(crate) skip_risk: Option<SkipRisk>,
}

/// The threads of a running pipeline.
#[derive(Debug)]
pub(crate) struct RunningPipeline {
    commands: RingCommands,
    counts: Arc<LogCounters>,
    ring: JoinHandle<anyhow::Result<(RingStats, Option<PendingDetach>)>>,
    log: JoinHandle<UnwrittenEvents>,
    print: Option<JoinHandle<()>>,
    json: Option<Arc<SinkQueue>>,
}

/// An event for the view: its bytes as they lay in the ring.
#[derive(Debug)]
pub(crate) struct ConsoleEvent {
    pub(crate) words: Vec<u64>,
    /// Of the rules that chose it.
    pub(crate) keys: Arc<RuleKeys>,
    pub(crate) time: Timestamp,
    pub(crate) serial: Serial,
}

impl Pipeline {
    /// Starts the threads; returns when the engine is attached. `ended` becomes readable when the
    /// pipeline stops, for whatever reason.
    ///
    /// # Errors
    /// What kept the engine from attaching; nothing is left running or attached then.
    pub(crate) fn start(
        mut self,
        ended: Arc<EventFd>,
    ) -> anyhow::Result<(RunningPipeline, StartReport)> {
        let (full_to, full_from) = bounded(MAX_BATCHES);
        let (empty_to, empty_from) = bounded(MAX_BATCHES);
        let (ready_to, ready_from) = bounded(1);
        let (shown_to, print) = match self.console {
            Some(console) => {
                let (to, from) = bounded(CONSOLE_QUEUE_EVENTS);
                (
                    Some(to),
                    Some(spawn("tlg-print", move || print_events(console, &from))?),
                )
            }
            None => (None, None),
        };
        let json = match self.json {
            Some(log) => Some(Arc::new(SinkQueue::start("tlg-json", log)?)),
            None => None,
        };
        if let Some(json) = &json {
            self.log.watch_json(json.stats());
        }
        let counts = Arc::new(LogCounters {
            plugins: self.log.plugins(),
            ..LogCounters::default()
        });
        let writer = LogThread {
            log: self.log,
            json: json.clone(),
            counters: Arc::clone(&counts),
            commands: self.log_commands,
            ended_by: SignalSender::this(),
            unwritten: UnwrittenEvents::default(),
            shows_suspension: false,
        };
        let log = spawn("tlg-log", move || writer.run(&full_from, &empty_to))?;
        let (commands, taken) = ring_command_channel()?;
        let reader = RingThread {
            plan: self.plan,
            engines: self.engines,
            options: self.options,
            probe: self.probe,
            pause: self.delay / 2,
            commands: taken,
            full: full_to,
            empty: empty_from,
            console: shown_to,
            json: json.clone(),
            kernel_records: self.kernel_records.map(KernelRecords::new),
            limits: self.limits,
            pinning: self.pinning,
            written: Arc::clone(&counts),
        };
        let ring = spawn("tlg-ring", move || {
            let ring_stats = reader.run(&ready_to);
            drop(ready_to);
            // Wakes the main thread; it cannot overflow with one write.
            let _written = ended.write(1);
            ring_stats
        })?;
        let running = RunningPipeline {
            commands,
            counts,
            ring,
            log,
            print,
            json,
        };
        match ready_from.recv() {
            Ok(started) => Ok((running, started)),
            Err(_) => match running.join() {
                Err(error) => Err(error),
                Ok(_) => anyhow::bail!("the engine ended before it was attached"),
            },
        }
    }
}

impl RunningPipeline {
    /// Gives orders to the running pipeline, from any thread.
    pub(crate) fn commands(&self) -> RingCommands {
        self.commands.clone()
    }

    /// What the log thread has counted so far.
    pub(crate) fn written(&self) -> Arc<LogCounters> {
        Arc::clone(&self.counts)
    }

    /// Shows what becomes of events for the JSON log.
    pub(crate) fn json(&self) -> Option<QueueStats> {
        self.json.as_ref().map(|json| json.stats())
    }

    /// Waits for the threads, and gives what is still to be waited for. The threads end after
    /// [`RingCommands::stop`] or when the engine has failed.
    ///
    /// # Errors
    /// What made the engine fail.
    pub(crate) fn join(self) -> anyhow::Result<(PipelineTotals, Option<PendingDetach>)> {
        let ring_stats = self.ring.join();
        let unwritten = join_result(self.log.join())?;
        if let Some(print) = self.print {
            join_result(print.join())?;
        }
        // The other threads that had it have ended.
        let json = self.json.and_then(Arc::into_inner);
        let json = json.map(SinkQueue::finish).unwrap_or_default();
        let (ring_stats, detaching) = join_result(ring_stats)??;
        let outcome = PipelineTotals {
            stats: ring_stats.stats,
            written: self.counts.events.load(Ordering::Relaxed),
            unwritten,
            undecodable: ring_stats.undecodable,
            limited: ring_stats.limited,
            not_printed: ring_stats.not_printed,
            json,
            blind: ring_stats.blind,
            kernel_records: ring_stats.kernel_records,
            unwritten_kernel_records: self.counts.unwritten_messages.load(Ordering::Relaxed),
            lost_kernel_records: 0,
        };
        Ok((outcome, detaching))
    }
}

fn join_result<T>(result: thread::Result<T>) -> anyhow::Result<T> {
    result.map_err(|_payload| anyhow::anyhow!("a thread of the daemon panicked"))
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<JoinHandle<T>> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .with_context(|| format!("cannot start thread `{name}`"))
}

/// The view's thread: ends when the ring thread does, or when nobody reads the view any more.
fn print_events(mut console: Console, from: &Receiver<ConsoleEvent>) {
    let mut decoder = Decoder::default();
    for shown in from {
        let context = EventContext {
            keys: &shown.keys,
            time: shown.time,
            serial: shown.serial,
        };
        let Ok(event) = decoder.event(shown.words.as_bytes(), context) else {
            continue;
        };
        if let Err(error) = console.event(&event)
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            return;
        }
    }
}
