//! The ring thread: drains the ring, turns events into text, and replaces the rules between two drains.

use std::cell::RefCell;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use audit::ids::Serial;
use audit::plan::Plan;
use audit::plan::exclude::Exclude;
use audit::plan::hook::EngineKind;
use audit::record::encode;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use engine::{
    Clock, Context, Decoder, Detaching, Engine, Keys, Moment, Options, Places, Probe, Runs, Stats,
    Storage, Wake,
};

use super::heartbeat::Heartbeat;
use super::orders::{Order, Record, Replace, Replaced, Taken};
use super::pipeline::{Batch, Shown, Started};
use crate::cli::report::say;

/// A batch goes to the log when it has grown to this, or when the ring is empty.
const BATCH_BYTES: usize = 256 << 10;
/// Events taken from the ring between two looks at the batch and the clock.
const DRAIN: usize = 512;
/// Such rounds between two looks at orders: some 20 ms.
const DRAINS: usize = 16;
/// Empty rounds after which the reader sleeps until an event wakes it.
const QUIET_ROUNDS: u32 = 4;
/// Plans whose keys are kept: the one in force and the one before.
const KEPT_PLANS: usize = 2;
/// The reader must get the CPU when audited tasks want all of it; auditd's `priority_boost` is 4.
const NICE: i32 = -10;

/// What the ring thread counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drained {
    pub(super) stats: Stats,
    /// Of an engine that runs.
    pub(super) runs: Vec<Runs>,
    pub(super) undecodable: u64,
    pub(super) unshown: u64,
    pub(super) blind: Duration,
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
pub(super) struct Reader {
    pub(super) plan: Plan,
    /// Engines to try, the best first.
    pub(super) engines: Vec<EngineKind>,
    pub(super) options: Options,
    pub(super) probe: Probe,
    /// Between two drains while events come.
    pub(super) pause: Duration,
    pub(super) orders: Taken,
    pub(super) full: Sender<Batch>,
    pub(super) empty: Receiver<Batch>,
    pub(super) shown: Option<Sender<Shown>>,
}

impl Reader {
    pub(super) fn run(
        self,
        ready: &Sender<Started>,
    ) -> anyhow::Result<(Drained, Option<Detaching>)> {
        engine::boost(NICE);
        let mut storage = Storage::default();
        let mut places = storage.places();
        let (mut engine, why_not) = self.start(&mut places)?;
        let state = RefCell::new(Encoding {
            decoder: Decoder::default(),
            keys: Arc::new(Keys::new(engine.epoch(), &self.plan)),
            exclude: self.plan.exclude.clone(),
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
            return Ok((Drained::default(), None));
        }
        loop {
            match self.follow(&engine, &state)? {
                Order::Stop => break,
                Order::Replace(replace) => {
                    let answer = self.replace(&mut engine, &mut places, &state, &replace);
                    // Nobody waits any more when the control connection is gone.
                    let _gone = replace.answer.send(answer);
                }
                Order::Record(record) => {
                    self.drain_up_to_now(&engine, &state)?;
                    state.borrow_mut().record(&record, engine.now()?);
                }
                Order::Flush(flushed) => {
                    self.drain_up_to_now(&engine, &state)?;
                    state.borrow_mut().batch.then = Some(flushed);
                    self.pass_on(&state);
                }
                Order::Account(answer) => {
                    let mut account = state.borrow().drained.clone();
                    account.stats = engine.stats();
                    account.runs = engine.run_counts();
                    // Nobody waits any more when the control connection is gone.
                    let _gone = answer.send(account);
                }
            }
        }
        let detaching = engine.detach();
        self.drain_all(&engine, &state)?;
        self.pass_on(&state);
        let mut drained = state.into_inner().drained;
        drained.stats = engine.stats();
        Ok((drained, Some(detaching)))
    }

    /// Starts the best engine that works here; says why a better one does not.
    fn start<'s>(&self, places: &mut Places<'s>) -> anyhow::Result<(Engine<'s>, Option<String>)> {
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

    /// Puts another plan in force.
    fn replace<'s>(
        &self,
        engine: &mut Engine<'s>,
        places: &mut Places<'s>,
        state: &RefCell<Encoding>,
        replace: &Replace,
    ) -> anyhow::Result<Replaced> {
        engine.replace(places, &self.probe, &replace.plan)?;
        let mut state = state.borrow_mut();
        Arc::make_mut(&mut state.keys).add(engine.epoch(), &replace.plan);
        state.exclude = replace.plan.exclude.clone();
        Ok(Replaced {
            attached: engine.attached().clone(),
        })
    }

    /// Drains until an order comes: by the clock while events come, asleep while none do. An engine that
    /// cannot be blind is never looked at, and sleeps without end.
    fn follow(&self, engine: &Engine<'_>, state: &RefCell<Encoding>) -> anyhow::Result<Order> {
        let ring = engine.ring(|sample| state.borrow_mut().take(sample))?;
        let waker = self.orders.as_fd();
        let on_functions = engine.kind() == EngineKind::Fentry;
        let mut heartbeat = on_functions.then(|| Heartbeat::new(Instant::now()));
        let mut quiet = 0;
        let order = loop {
            let drain = self.drain(engine, &ring, state)?;
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
            let wake = if drain == Drain::Some {
                ring.pause(waker, Duration::ZERO)
            } else if quiet < QUIET_ROUNDS {
                let pause = next.map_or(self.pause, |next| next.min(self.pause));
                ring.pause(waker, pause)
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
                Wake::Time => {}
            }
        };
        if let Some(heartbeat) = &mut heartbeat {
            look(heartbeat, engine);
            state.borrow_mut().drained.blind += heartbeat.blind();
        }
        Ok(order)
    }

    /// Takes all that is in the ring at this moment, and what else comes meanwhile.
    fn drain_up_to_now(
        &self,
        engine: &Engine<'_>,
        state: &RefCell<Encoding>,
    ) -> anyhow::Result<()> {
        let ring = engine.ring(|sample| state.borrow_mut().take(sample))?;
        let now = ring.produced();
        loop {
            self.drain(engine, &ring, state)?;
            // An event that is being written keeps those after it back for a moment.
            if ring.has_consumed(now) {
                return Ok(());
            }
        }
    }

    /// Takes what is left when no call is seen any more.
    fn drain_all(&self, engine: &Engine<'_>, state: &RefCell<Encoding>) -> anyhow::Result<()> {
        let ring = engine.ring(|sample| state.borrow_mut().take(sample))?;
        while self.drain(engine, &ring, state)? != Drain::Nothing {}
        Ok(())
    }

    /// Takes what the ring holds now and passes it on, so much at most that orders do not wait for long.
    fn drain(
        &self,
        engine: &Engine<'_>,
        ring: &engine::Ring<'_>,
        state: &RefCell<Encoding>,
    ) -> anyhow::Result<Drain> {
        let mut taken = 0;
        for _ in 0..DRAINS {
            state.borrow_mut().clock.set(engine.now()?);
            let count = ring.drain(DRAIN).context("cannot read the ring")?;
            taken += count;
            let full = state.borrow().batch.text.len() >= BATCH_BYTES;
            if full || count < DRAIN {
                self.pass_on(state);
            }
            if count < DRAIN {
                state.borrow_mut().forget_keys();
                return Ok(match taken {
                    0 => Drain::Nothing,
                    _ => Drain::All,
                });
            }
        }
        Ok(Drain::Some)
    }

    /// Hands the current batch to the log thread, waiting while it is behind.
    fn pass_on(&self, state: &RefCell<Encoding>) {
        let mut state = state.borrow_mut();
        if state.batch.text.is_empty() && state.batch.then.is_none() {
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
    keys: Arc<Keys>,
    exclude: Exclude,
    clock: Clock,
    serial: Serial,
    batch: Batch,
    shown: Option<Sender<Shown>>,
    drained: Drained,
}

impl Encoding {
    /// Appends a record that is an event of its own.
    fn record(&mut self, record: &Record, now: Moment) {
        self.clock.set(now);
        let time = self.clock.at(now.jiffies);
        let text = &mut self.batch.text;
        encode::message(record.kind, time, self.serial, &record.body, text);
        self.serial = self.serial.next();
    }

    /// The ring was found empty: no event of an earlier plan is left in it.
    fn forget_keys(&mut self) {
        if self.keys.plans() > KEPT_PLANS {
            Arc::make_mut(&mut self.keys).forget();
        }
    }

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
        let start = self.batch.text.len();
        encode::event(&event, &mut self.batch.text);
        self.exclude
            .strike(&event.task, &mut self.batch.text, start);
        self.batch.events += 1;
        if let Some(shown) = &self.shown {
            let words = words(sample);
            match shown.try_send(Shown {
                words,
                keys: Arc::clone(&self.keys),
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
