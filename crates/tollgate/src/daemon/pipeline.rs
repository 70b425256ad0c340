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

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use audit::event::{Event, Time};
use audit::ids::Serial;
use audit::plan::Plan;
use audit::plan::hook::EngineKind;
use crossbeam_channel::{Receiver, Sender, after, bounded, never, select};
use engine::{Attached, Context, Decoder, Detaching, Keys, Options, Probe, Receipt};
use netlink::RecordStream;
use nix::sys::eventfd::EventFd;
use zerocopy::IntoBytes as _;

use super::losses::Limits;
use super::messages::Messages;
use super::orders::{Flushed, Orders, orders};
use super::reader::{Drained, Reader};
use super::rule_counts::RuleIndex;
use super::summary::{Outcome, Unwritten};
use super::survive::Pinning;
use super::tend::LogOrder;
use crate::dispatch::Tally;
use crate::sink::journal::{Appended, Asker, Journal};
use crate::sink::json::Copied;
use crate::sink::json::file::JsonLog;
use crate::sink::outlet::{Gauge, Outlet};
use crate::sink::terminal::Terminal;

/// Batches on their way to the log.
const BATCHES: usize = 16;
/// Events that the view may lag behind.
const SHOWN: usize = 4096;

/// What to run the pipeline with.
pub(crate) struct Pipeline {
    /// The plan to attach.
    pub(crate) plan: Plan,
    /// Engines to try, the best first.
    pub(crate) engines: Vec<EngineKind>,
    pub(crate) options: Options,
    /// What this kernel offers.
    pub(crate) probe: Probe,
    /// Where records go.
    pub(crate) log: Journal,
    /// What the log thread is told.
    pub(crate) log_orders: Receiver<LogOrder>,
    /// A view for people, when wanted.
    pub(crate) terminal: Option<Terminal>,
    /// A log for programs, when wanted.
    pub(crate) json: Option<JsonLog>,
    /// Longest time from event to write.
    pub(crate) delay: Duration,
    /// What the kernel's audit sends, when it is read.
    pub(crate) messages: Option<RecordStream>,
    /// What `-r` and `-f` ask for.
    pub(crate) limits: Arc<Limits>,
    /// Where to pin what audits, and what is pinned there.
    pub(super) pinning: Pinning,
}

/// How auditing has begun.
#[derive(Debug)]
pub(crate) struct Started {
    /// The engine that works here.
    pub(crate) engine: EngineKind,
    /// What it attached.
    pub(crate) attached: Attached,
    /// Why a better engine does not.
    pub(crate) why_not: Option<String>,
    /// Whether it goes on where another daemon has ended.
    pub(crate) adopted: bool,
    /// Whether it can be gone on with when this one has ended.
    pub(crate) pinned: bool,
}

/// The threads of a running pipeline.
#[derive(Debug)]
pub(crate) struct Running {
    orders: Orders,
    counts: Arc<Written>,
    ring: JoinHandle<anyhow::Result<(Drained, Option<Detaching>)>>,
    log: JoinHandle<Unwritten>,
    print: Option<JoinHandle<()>>,
    json: Option<Arc<Outlet>>,
}

/// Text of whole events.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) text: Vec<u8>,
    /// Where each of the events comes from, in their order.
    pub(super) origins: Vec<Origin>,
    /// Stamp of the last one, if it is a message: another record may follow.
    message: Option<(Time, Serial)>,
    /// The same for the JSON log, when there is one.
    pub(super) copied: Option<Copied>,
    /// Who is told when it is written.
    pub(super) then: Option<Sender<Flushed>>,
    /// Gives room in the ring back when it is written.
    pub(super) receipt: Option<Receipt>,
}

/// Where the text of an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// From the ring, chosen by this rule.
    Ring(RuleIndex),
    /// From the kernel's audit, or from the daemon.
    Message,
}

/// What the log thread has counted so far, for others to look at.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Events in the log.
    pub(crate) events: AtomicU64,
    /// Events that could not be written.
    pub(crate) unwritten: AtomicU64,
    /// Messages in the log.
    pub(crate) messages: AtomicU64,
    /// Messages that could not be written.
    pub(crate) unwritten_messages: AtomicU64,
    /// What plugins did not get.
    pub(super) plugins: Arc<Tally>,
    /// Events that could not be written of each rule, until `tlg-ring` takes them. Nobody touches it while
    /// all can be written.
    pub(super) unwritten_rules: Mutex<BTreeMap<RuleIndex, u64>>,
}

/// An event for the view: its bytes as they lay in the ring.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) words: Vec<u64>,
    /// Of the rules that chose it.
    pub(super) keys: Arc<Keys>,
    pub(super) time: Time,
    pub(super) serial: Serial,
}

impl Pipeline {
    /// Starts the threads; returns when the engine is attached. `ended` becomes readable when the
    /// pipeline stops, for whatever reason.
    ///
    /// # Errors
    /// What kept the engine from attaching; nothing is left running or attached then.
    pub(crate) fn start(mut self, ended: Arc<EventFd>) -> anyhow::Result<(Running, Started)> {
        let (full_to, full_from) = bounded(BATCHES);
        let (empty_to, empty_from) = bounded(BATCHES);
        let (ready_to, ready_from) = bounded(1);
        let (shown_to, print) = match self.terminal {
            Some(terminal) => {
                let (to, from) = bounded(SHOWN);
                (
                    Some(to),
                    Some(spawn("tlg-print", move || show(terminal, &from))?),
                )
            }
            None => (None, None),
        };
        let json = match self.json {
            Some(log) => Some(Arc::new(Outlet::start("tlg-json", log)?)),
            None => None,
        };
        if let Some(json) = &json {
            self.log.tell_of(json.gauge());
        }
        let counts = Arc::new(Written {
            plugins: self.log.plugins(),
            ..Written::default()
        });
        let writer = Writer {
            log: self.log,
            json: json.clone(),
            counts: Arc::clone(&counts),
            orders: self.log_orders,
            ended_by: Asker::this(),
            unwritten: Unwritten::default(),
        };
        let log = spawn("tlg-log", move || writer.run(&full_from, &empty_to))?;
        let (orders, taken) = orders()?;
        let reader = Reader {
            plan: self.plan,
            engines: self.engines,
            options: self.options,
            probe: self.probe,
            pause: self.delay / 2,
            orders: taken,
            full: full_to,
            empty: empty_from,
            shown: shown_to,
            json: json.clone(),
            messages: self.messages.map(Messages::new),
            limits: self.limits,
            pinning: self.pinning,
            written: Arc::clone(&counts),
        };
        let ring = spawn("tlg-ring", move || {
            let drained = reader.run(&ready_to);
            drop(ready_to);
            // Wakes the main thread; it cannot overflow with one write.
            let _written = ended.write(1);
            drained
        })?;
        let running = Running {
            orders,
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

impl Batch {
    /// An empty one; copied for the JSON log, or not.
    pub(super) fn new(copied: bool) -> Self {
        Self {
            copied: copied.then(Copied::default),
            ..Self::default()
        }
    }

    /// Appends a line of a message: one of the event before, if it has the same stamp.
    pub(super) fn message(&mut self, line: &[u8], stamp: (Time, Serial)) {
        let begins = self.message.replace(stamp) != Some(stamp);
        if begins {
            self.origins.push(Origin::Message);
        }
        self.text.extend_from_slice(line);
        if let Some(copied) = &mut self.copied {
            copied.message(line, begins);
        }
    }

    /// Counts an event from the ring, of which the lines were appended: they begin at `start`.
    pub(super) fn event(&mut self, event: &Event<'_>, rule: RuleIndex, start: usize) {
        self.message = None;
        self.origins.push(Origin::Ring(rule));
        if let Some(copied) = &mut self.copied {
            copied.event(event, self.text.get(start..).unwrap_or_default());
        }
    }

    fn clear(&mut self) {
        self.text.clear();
        self.origins.clear();
        self.message = None;
    }
}

impl Running {
    /// Gives orders to the running pipeline, from any thread.
    pub(crate) fn orders(&self) -> Orders {
        self.orders.clone()
    }

    /// What the log thread has counted so far.
    pub(crate) fn written(&self) -> Arc<Written> {
        Arc::clone(&self.counts)
    }

    /// Shows what becomes of events for the JSON log.
    pub(crate) fn json(&self) -> Option<Gauge> {
        self.json.as_ref().map(|json| json.gauge())
    }

    /// Waits for the threads, and gives what is still to be waited for. The threads end after
    /// [`Orders::stop`] or when the engine has failed.
    ///
    /// # Errors
    /// What made the engine fail.
    pub(crate) fn join(self) -> anyhow::Result<(Outcome, Option<Detaching>)> {
        let drained = self.ring.join();
        let unwritten = joined(self.log.join())?;
        if let Some(print) = self.print {
            joined(print.join())?;
        }
        // The other threads that had it have ended.
        let json = self.json.and_then(Arc::into_inner);
        let json = json.map(Outlet::finish).unwrap_or_default();
        let (drained, detaching) = joined(drained)??;
        let outcome = Outcome {
            stats: drained.stats,
            written: self.counts.events.load(Ordering::Relaxed),
            unwritten,
            undecodable: drained.undecodable,
            limited: drained.limited,
            unshown: drained.unshown,
            json,
            blind: drained.blind,
            messages: drained.messages,
            unwritten_messages: self.counts.unwritten_messages.load(Ordering::Relaxed),
            lost_messages: 0,
        };
        Ok((outcome, detaching))
    }
}

fn joined<T>(result: thread::Result<T>) -> anyhow::Result<T> {
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

/// The log thread.
struct Writer {
    log: Journal,
    json: Option<Arc<Outlet>>,
    counts: Arc<Written>,
    orders: Receiver<LogOrder>,
    ended_by: Asker,
    unwritten: Unwritten,
}

impl Writer {
    fn run(mut self, full: &Receiver<Batch>, empty: &Sender<Batch>) -> Unwritten {
        engine::boost(self.log.nice());
        loop {
            let tick = self.log.next_look().map_or_else(never, after);
            select! {
                recv(full) -> batch => match batch {
                    Ok(batch) => self.write(batch, empty),
                    Err(_ended) => break,
                },
                recv(self.orders) -> order => match order {
                    Ok(order) => self.obey(order),
                    // Who gave orders has gone; events may still come.
                    Err(_gone) => self.orders = never(),
                },
                recv(tick) -> _now => self.log.look(),
            }
        }
        for order in self.orders.try_iter() {
            if let LogOrder::End(asker) = order {
                self.ended_by = asker;
            }
        }
        let ended = self.log.end(self.ended_by);
        self.count(&ended, &[]);
        self.unwritten
    }

    fn write(&mut self, mut batch: Batch, empty: &Sender<Batch>) {
        let events = u64::try_from(batch.origins.len()).unwrap_or(u64::MAX);
        let mut receipt = batch.receipt.take();
        let appended = if batch.text.is_empty() {
            Appended::default()
        } else {
            self.log.append(&batch.text, events, &mut receipt)
        };
        // What could not be written is lost, and counted.
        if let Some(receipt) = &mut receipt {
            receipt.end();
        }
        self.count(&appended, &batch.origins);
        if let Some(then) = batch.then.take() {
            let written = match appended.lost {
                0 => Ok(()),
                _ => Err(appended.reason),
            };
            // Whoever asked may have gone away.
            let _gone = then.send(written);
        }
        batch.clear();
        // The ring thread makes a new one when none has come back.
        let _full = empty.try_send(batch);
    }

    /// Counts what became of events from these origins: the last ones are those that were lost.
    fn count(&mut self, appended: &Appended, origins: &[Origin]) {
        let written = usize::try_from(appended.written).unwrap_or(usize::MAX);
        let (written, lost) = origins.split_at(written.min(origins.len()));
        let counts = &*self.counts;
        for (origins, events, messages) in [
            (written, &counts.events, &counts.messages),
            (lost, &counts.unwritten, &counts.unwritten_messages),
        ] {
            let of_messages = |origin: &&Origin| **origin == Origin::Message;
            let count = origins.iter().filter(of_messages).count();
            let add = |to: &AtomicU64, count: usize| {
                to.fetch_add(u64::try_from(count).unwrap_or_default(), Ordering::Relaxed);
            };
            add(messages, count);
            add(events, origins.len() - count);
        }
        if !lost.is_empty()
            && let Ok(mut rules) = counts.unwritten_rules.lock()
        {
            for origin in lost {
                if let Origin::Ring(rule) = origin {
                    *rules.entry(*rule).or_default() += 1;
                }
            }
        }
        self.unwritten.events = counts.unwritten.load(Ordering::Relaxed);
        if !appended.reason.is_empty() {
            self.unwritten.reason.clone_from(&appended.reason);
        }
    }

    fn obey(&mut self, order: LogOrder) {
        match order {
            LogOrder::Rotate(asker) => {
                self.log.rotate_now(asker);
                if let Some(json) = &self.json {
                    json.rotate(self.log.old_logs());
                }
            }
            LogOrder::Resume(asker) => self.log.resume_now(asker),
            // Who has asked may have lost patience.
            LogOrder::Configure(keep, asker, to) => {
                let changed = self.log.configure(keep.map(|keep| *keep), asker);
                engine::boost(self.log.nice());
                let _impatient = to.try_send(changed);
            }
            LogOrder::Lock(to) => drop(to.try_send(Box::new(self.log.lock()))),
            LogOrder::Unlock => self.log.unlock(),
            LogOrder::Report(to) => drop(to.try_send(self.log.report())),
            LogOrder::End(asker) => self.ended_by = asker,
        }
    }
}

/// The view's thread: ends when the ring thread does, or when nobody reads the view any more.
fn show(mut terminal: Terminal, from: &Receiver<Shown>) {
    let mut decoder = Decoder::default();
    for shown in from {
        let context = Context {
            keys: &shown.keys,
            time: shown.time,
            serial: shown.serial,
        };
        let Ok(event) = decoder.event(shown.words.as_bytes(), context) else {
            continue;
        };
        if let Err(error) = terminal.event(&event)
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            return;
        }
    }
}
