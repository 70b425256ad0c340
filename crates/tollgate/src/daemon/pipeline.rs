//! From the ring to the log, in three threads that only move forward.
//!
//! | thread | owns | when the next one is full |
//! | --- | --- | --- |
//! | `tlg-ring` | engine, ring, decoder, encoder, current batch | waits: the kernel side then counts what is lost |
//! | `tlg-log` | log file | a batch that cannot be written is counted |
//! | `tlg-print` | terminal | events are left out of the view and counted |
//!
//! Batches are buffers of whole events as text; they travel forward on one bounded channel and come
//! back empty on another.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use audit::event::Time;
use audit::ids::Serial;
use audit::plan::Plan;
use audit::plan::hook::EngineKind;
use audit::record::encode;
use bstr::BString;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use engine::{Attached, Clock, Context, Decoder, Engine, Options, Stats, Storage, Wake};
use nix::sys::eventfd::EventFd;
use zerocopy::IntoBytes as _;

use super::heartbeat::Heartbeat;
use crate::cli::report::say;
use crate::sink::log::Log;
use crate::sink::terminal::Terminal;

/// A batch goes to the log when it has grown to this, or when the ring is empty.
const BATCH_BYTES: usize = 256 << 10;
/// Batches on their way to the log.
const BATCHES: usize = 16;
/// Events that the view may lag behind.
const SHOWN: usize = 4096;
/// Events taken from the ring between two looks at the batch and the clock.
const DRAIN: usize = 512;
/// Empty rounds after which the reader sleeps until an event wakes it.
const QUIET_ROUNDS: u32 = 4;
/// The reader must get the CPU when audited tasks want all of it; auditd's `priority_boost` is 4.
const NICE: i32 = -10;

/// What to run the pipeline with.
#[derive(Debug)]
pub(crate) struct Pipeline {
    /// The plan to attach.
    pub(crate) plan: Plan,
    /// Engines to try, the best first.
    pub(crate) engines: Vec<EngineKind>,
    pub(crate) options: Options,
    /// Where records go.
    pub(crate) log: Log,
    /// A view for people, when wanted.
    pub(crate) terminal: Option<Terminal>,
    /// Longest time from event to write.
    pub(crate) delay: Duration,
    /// Becomes readable when the pipeline is to stop.
    pub(crate) stop: Arc<EventFd>,
}

/// What the pipeline did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Counters of the kernel side.
    pub(crate) stats: Stats,
    /// Events written to the log.
    pub(crate) written: u64,
    /// Events that could not be written, and the last reason.
    pub(crate) unwritten: Unwritten,
    /// Samples that were no events, and what was wrong with the last.
    pub(crate) undecodable: u64,
    /// Events that the view left out.
    pub(crate) unshown: u64,
    /// How long the engine may have seen nothing.
    pub(crate) blind: Duration,
}

/// Events that could not be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unwritten {
    /// How many.
    pub(crate) events: u64,
    /// Why, the last time.
    pub(crate) reason: String,
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
}

/// The threads of a running pipeline.
#[derive(Debug)]
pub(crate) struct Running {
    ring: JoinHandle<anyhow::Result<Drained>>,
    log: JoinHandle<(u64, Unwritten)>,
    print: Option<JoinHandle<()>>,
}

/// What the ring thread counted.
#[derive(Debug, Default)]
struct Drained {
    stats: Stats,
    undecodable: u64,
    unshown: u64,
    blind: Duration,
}

/// Text of whole events.
#[derive(Debug, Default)]
struct Batch {
    text: Vec<u8>,
    events: u64,
}

/// An event for the view: its bytes as they lay in the ring.
#[derive(Debug)]
struct Shown {
    words: Vec<u64>,
    time: Time,
    serial: Serial,
}

impl Pipeline {
    /// Starts the threads; returns when the engine is attached. `ended` becomes readable when the
    /// pipeline stops, for whatever reason.
    ///
    /// # Errors
    /// What kept the engine from attaching; nothing is left running or attached then.
    pub(crate) fn start(self, ended: Arc<EventFd>) -> anyhow::Result<(Running, Started)> {
        let (full_to, full_from) = bounded(BATCHES);
        let (empty_to, empty_from) = bounded(BATCHES);
        let (ready_to, ready_from) = bounded(1);
        let (shown_to, print) = match self.terminal {
            Some(terminal) => {
                let (to, from) = bounded(SHOWN);
                let keys = keys(&self.plan);
                (
                    Some(to),
                    Some(spawn("tlg-print", move || show(terminal, &keys, &from))?),
                )
            }
            None => (None, None),
        };
        let writer = Writer {
            log: self.log,
            written: 0,
            unwritten: Unwritten::default(),
        };
        let log = spawn("tlg-log", move || writer.run(&full_from, &empty_to))?;
        let reader = Reader {
            plan: self.plan,
            engines: self.engines,
            options: self.options,
            pause: self.delay / 2,
            stop: self.stop,
            full: full_to,
            empty: empty_from,
            shown: shown_to,
        };
        let ring = spawn("tlg-ring", move || {
            let drained = reader.run(&ready_to);
            drop(ready_to);
            // Wakes the main thread; it cannot overflow with one write.
            let _written = ended.write(1);
            drained
        })?;
        let running = Running { ring, log, print };
        match ready_from.recv() {
            Ok(started) => Ok((running, started)),
            Err(_) => match running.join() {
                Err(error) => Err(error),
                Ok(_) => anyhow::bail!("the engine ended before it was attached"),
            },
        }
    }
}

impl Running {
    /// Waits for the threads, which end after `stop` was signalled or the engine failed.
    ///
    /// # Errors
    /// What made the engine fail.
    pub(crate) fn join(self) -> anyhow::Result<Outcome> {
        let drained = self.ring.join();
        let (written, unwritten) = joined(self.log.join())?;
        if let Some(print) = self.print {
            joined(print.join())?;
        }
        let drained = joined(drained)??;
        Ok(Outcome {
            stats: drained.stats,
            written,
            unwritten,
            undecodable: drained.undecodable,
            unshown: drained.unshown,
            blind: drained.blind,
        })
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

fn keys(plan: &Plan) -> Vec<Option<BString>> {
    plan.rules.iter().map(|rule| rule.key.clone()).collect()
}

/// The ring thread.
struct Reader {
    plan: Plan,
    engines: Vec<EngineKind>,
    options: Options,
    pause: Duration,
    stop: Arc<EventFd>,
    full: Sender<Batch>,
    empty: Receiver<Batch>,
    shown: Option<Sender<Shown>>,
}

impl Reader {
    fn run(self, ready: &Sender<Started>) -> anyhow::Result<Drained> {
        engine::boost(NICE);
        let (mut first, mut second) = (Storage::default(), Storage::default());
        let options = self.options;
        let [best, rest @ ..] = self.engines.as_slice() else {
            anyhow::bail!("no engine was asked for");
        };
        let mut why_not = None;
        let mut engine = match (Engine::start(&mut first, &self.plan, *best, options), rest) {
            (Ok(engine), _) => engine,
            (Err(refused), [next, ..]) => {
                why_not = Some(format!(
                    "{}: {:#}",
                    best.name(),
                    anyhow::Error::from(refused)
                ));
                Engine::start(&mut second, &self.plan, *next, options)?
            }
            (Err(refused), []) => return Err(refused.into()),
        };
        let state = RefCell::new(Encoding {
            decoder: Decoder::default(),
            keys: keys(&self.plan),
            clock: engine.clock()?,
            serial: Serial::FIRST,
            batch: Batch::default(),
            shown: self.shown.clone(),
            drained: Drained::default(),
        });
        let started = Started {
            engine: engine.kind(),
            attached: engine.attached().clone(),
            why_not,
        };
        if ready.send(started).is_err() {
            return Ok(Drained::default());
        }
        let blind = self.follow(&engine, &state)?;
        engine.detach();
        self.drain_all(&engine, &state)?;
        self.pass_on(&state);
        let mut drained = state.into_inner().drained;
        drained.stats = engine.stats();
        drained.blind = blind;
        Ok(drained)
    }

    /// Drains until told to stop: by the clock while events come, asleep while none do. Returns how
    /// long the engine was blind; one that cannot be is never looked at, and sleeps without end.
    fn follow(&self, engine: &Engine<'_>, state: &RefCell<Encoding>) -> anyhow::Result<Duration> {
        let ring = engine.ring(|sample| state.borrow_mut().take(sample))?;
        let stop = self.stop.as_fd();
        let on_functions = engine.kind() == EngineKind::Fentry;
        let mut heartbeat = on_functions.then(|| Heartbeat::new(Instant::now()));
        let mut quiet = 0;
        loop {
            let taken = self.drain(engine, &ring, state)?;
            quiet = if taken == 0 { quiet + 1 } else { 0 };
            let now = Instant::now();
            let mut next = heartbeat.as_ref().map(|heartbeat| heartbeat.next(now));
            if let Some(heartbeat) = &mut heartbeat
                && next == Some(Duration::ZERO)
            {
                look(heartbeat, engine);
                next = Some(heartbeat.next(now));
            }
            let wake = if quiet < QUIET_ROUNDS {
                let pause = next.map_or(self.pause, |next| next.min(self.pause));
                ring.pause(stop, pause)
            } else {
                ring.sleep(stop, next)
            };
            match wake.context("cannot wait for events")? {
                Wake::Caller => break,
                Wake::Events => quiet = 0,
                Wake::Time => {}
            }
        }
        Ok(heartbeat.map_or(Duration::ZERO, |mut heartbeat| {
            look(&mut heartbeat, engine);
            heartbeat.blind()
        }))
    }

    /// Takes what is left after everything was detached.
    fn drain_all(&self, engine: &Engine<'_>, state: &RefCell<Encoding>) -> anyhow::Result<()> {
        let ring = engine.ring(|sample| state.borrow_mut().take(sample))?;
        while self.drain(engine, &ring, state)? != 0 {}
        Ok(())
    }

    /// Takes what the ring holds now and passes it on; returns how many events that were.
    fn drain(
        &self,
        engine: &Engine<'_>,
        ring: &engine::Ring<'_>,
        state: &RefCell<Encoding>,
    ) -> anyhow::Result<usize> {
        let mut taken = 0;
        loop {
            state.borrow_mut().clock.set(engine.now()?);
            let count = ring.drain(DRAIN).context("cannot read the ring")?;
            taken += count;
            let full = state.borrow().batch.text.len() >= BATCH_BYTES;
            if full || count < DRAIN {
                self.pass_on(state);
            }
            if count < DRAIN {
                return Ok(taken);
            }
        }
    }

    /// Hands the current batch to the log thread, waiting while it is behind.
    fn pass_on(&self, state: &RefCell<Encoding>) {
        let mut state = state.borrow_mut();
        if state.batch.events == 0 {
            return;
        }
        let next = self.empty.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut state.batch, next);
        // The log thread outlives this one: it ends when this channel closes.
        let _gone = self.full.send(batch);
    }
}

/// Looks whether the engine's programs run, and says what has changed.
fn look(heartbeat: &mut Heartbeat, engine: &Engine<'_>) {
    if let Some(change) = heartbeat.look(engine.runs(), Instant::now()) {
        say(&change.to_string());
    }
}

/// What turns samples into text.
struct Encoding {
    decoder: Decoder,
    keys: Vec<Option<BString>>,
    clock: Clock,
    serial: Serial,
    batch: Batch,
    shown: Option<Sender<Shown>>,
    drained: Drained,
}

impl Encoding {
    fn take(&mut self, sample: &[u8]) {
        let Ok(jiffies) = engine::ticks(sample) else {
            self.drained.undecodable += 1;
            return;
        };
        let time = self.clock.at(jiffies);
        let context = Context {
            keys: &self.keys,
            time,
            serial: self.serial,
        };
        let Ok(event) = self.decoder.event(sample, context) else {
            self.drained.undecodable += 1;
            return;
        };
        encode::event(&event, &mut self.batch.text);
        self.batch.events += 1;
        if let Some(shown) = &self.shown {
            let words = words(sample);
            match shown.try_send(Shown {
                words,
                time,
                serial: self.serial,
            }) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => {}
                Err(TrySendError::Full(_)) => self.drained.unshown += 1,
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

/// The log thread.
struct Writer {
    log: Log,
    written: u64,
    unwritten: Unwritten,
}

impl Writer {
    fn run(mut self, full: &Receiver<Batch>, empty: &Sender<Batch>) -> (u64, Unwritten) {
        for mut batch in full {
            match self.log.append(&batch.text) {
                Ok(()) => self.written += batch.events,
                Err(error) => {
                    self.unwritten.events += batch.events;
                    self.unwritten.reason = error.to_string();
                }
            }
            batch.text.clear();
            batch.events = 0;
            // The ring thread makes a new one when none has come back.
            let _full = empty.try_send(batch);
        }
        if let Err(error) = self.log.sync() {
            self.unwritten.reason = error.to_string();
        }
        (self.written, self.unwritten)
    }
}

/// The view's thread: ends when the ring thread does, or when nobody reads the view any more.
fn show(mut terminal: Terminal, keys: &[Option<BString>], from: &Receiver<Shown>) {
    let mut decoder = Decoder::default();
    for shown in from {
        let context = Context {
            keys,
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
