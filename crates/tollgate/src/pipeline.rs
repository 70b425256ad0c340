//! Threads between the ring and the log. Data flows in one direction.
//!
//! | thread | owns | when the next one is full |
//! | --- | --- | --- |
//! | `tlg-ring` | engine, ring, decoder, encoder, current batch | waits; the kernel side counts lost events |
//! | `tlg-log` | log file | counts batches that cannot be written |
//! | `tlg-print` | console | skips events and counts them |
//! | `tlg-json` | JSON log, if there is one | skips events and counts them |
//! | `tlg-watch` | viewers | viewers lack events, counted |
//!
//! Batches are buffers of whole events as text. They move forward on one bounded channel and return empty on another.

pub(crate) mod batch;
pub(crate) mod encoder;
#[cfg(test)]
mod event_cost;
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
    AttachedHooks, Decoder, EngineKind, EngineOptions, EventContext, KernelFeatures, KernelProbe,
    PendingDetach, RuleKeys, SkipRisk,
};
use logs::console::Console;
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
use crate::sinks::json::log::JsonLog;
use crate::sinks::queue::{QueueStats, SinkQueue};
use crate::sinks::viewers::{self, ViewerThread, Viewers};

/// Batches in flight to the log thread.
const MAX_BATCHES: usize = 8;
/// Events in flight to the console.
const CONSOLE_QUEUE_EVENTS: usize = 4096;

/// Parts of a pipeline.
pub(crate) struct Pipeline {
    /// The plan to attach.
    pub(crate) plan: Plan,
    /// Engines to try, in order of preference.
    pub(crate) engines: Vec<EngineKind>,
    pub(crate) options: EngineOptions,
    /// Features of this kernel.
    pub(crate) probe: KernelProbe,
    /// The audit log.
    pub(crate) log: AuditLog,
    /// Commands to the log thread.
    pub(crate) log_commands: Receiver<LogCommand>,
    /// Console output, if enabled.
    pub(crate) console: Option<Console>,
    /// The JSON log, if enabled.
    pub(crate) json: Option<JsonLog>,
    /// Longest time from event to write.
    pub(crate) delay: Duration,
    /// Records of the kernel's audit, if they are read.
    pub(crate) kernel_records: Option<RecordStream>,
    /// Rate limit and failure mode (`-r`, `-f`).
    pub(crate) limits: Arc<Limits>,
    /// Pin directory and the state found there.
    pub(crate) pinning: PinSetup,
}

/// Result of a start.
#[derive(Debug)]
pub(crate) struct StartReport {
    /// The engine in use.
    pub(crate) engine: EngineKind,
    /// Its attached hooks.
    pub(crate) attached: AttachedHooks,
    /// Why a preferred engine does not work.
    pub(crate) why_not: Option<String>,
    /// Whether it took over the programs of a previous daemon.
    pub(crate) adopted: bool,
    /// Whether the next daemon can take over.
    pub(crate) pinned: bool,
    /// Programs that the kernel can skip.
    pub(crate) skip_risk: Option<SkipRisk>,
    /// What the kernel offers to the hooks.
    pub(crate) kernel: KernelFeatures,
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
    viewers: Viewers,
    watch: ViewerThread,
}

/// An event for the console, as ring bytes.
#[derive(Debug)]
pub(crate) struct ConsoleEvent {
    pub(crate) words: Vec<u64>,
    /// Keys of the rules that matched it.
    pub(crate) keys: Arc<RuleKeys>,
    pub(crate) time: Timestamp,
    pub(crate) serial: Serial,
}

impl Pipeline {
    /// Starts the threads and returns when the engine is attached. `ended` becomes readable when the pipeline stops.
    ///
    /// # Errors
    /// The engine cannot be attached. Then nothing is left running or attached.
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
        let (viewers, feed, watch) = viewers::start()?;
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
            viewers: Arc::new(feed),
            kernel_records: self.kernel_records.map(KernelRecords::new),
            limits: self.limits,
            pinning: self.pinning,
            written: Arc::clone(&counts),
        };
        let ring = spawn("tlg-ring", move || {
            let ring_stats = reader.run(&ready_to);
            drop(ready_to);
            // Wakes the main thread. One write cannot overflow the counter.
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
            viewers,
            watch,
        };
        match ready_from.recv() {
            Ok(started) => Ok((running, started)),
            Err(_) => match running.join() {
                Err(error) => Err(error),
                Ok(_) => anyhow::bail!("auditing ended before the BPF programs were attached"),
            },
        }
    }
}

impl RunningPipeline {
    /// Sends commands to the pipeline, from any thread.
    pub(crate) fn commands(&self) -> RingCommands {
        self.commands.clone()
    }

    /// Counters of the log thread.
    pub(crate) fn written(&self) -> Arc<LogCounters> {
        Arc::clone(&self.counts)
    }

    /// Counters of the JSON log.
    pub(crate) fn json(&self) -> Option<QueueStats> {
        self.json.as_ref().map(|json| json.stats())
    }

    /// Adds viewers.
    pub(crate) fn viewers(&self) -> Viewers {
        self.viewers.clone()
    }

    /// Waits for the threads, which end after [`RingCommands::stop`] or when the engine fails. Returns the detach
    /// that is still in progress.
    ///
    /// # Errors
    /// The engine failed.
    pub(crate) fn join(self) -> anyhow::Result<(PipelineTotals, Option<PendingDetach>)> {
        let ring_stats = self.ring.join();
        let unwritten = join_result(self.log.join())?;
        if let Some(print) = self.print {
            join_result(print.join())?;
        }
        join_result(self.watch.finish())?;
        // The other threads that held it have ended.
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
            disabled_time: ring_stats.disabled_time,
            kernel_records: ring_stats.kernel_records,
            unwritten_kernel_records: self.counts.unwritten_messages.load(Ordering::Relaxed),
            lost_kernel_records: 0,
        };
        Ok((outcome, detaching))
    }
}

fn join_result<T>(result: thread::Result<T>) -> anyhow::Result<T> {
    result.map_err(|_payload| anyhow::anyhow!(
            "a thread of the daemon has failed: this is a bug, report it with the lines of `journalctl -u tollgate`"
        ))
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

/// The console thread: ends with the ring thread, or when the output pipe is closed.
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
