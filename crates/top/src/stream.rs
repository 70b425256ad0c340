//! A stream of events: a thread reads them and adds them up, so that the screen never waits for the daemon.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use crate::control::{Control, Filter};
use crate::event::SeenEvent;

/// Longest line of the daemon.
const LINE_BYTES: u64 = 64 << 10;
/// Events that are kept for the list.
pub(crate) const KEPT_EVENTS: usize = 1000;
/// Different programs, users or keys that are counted per interval; further ones are counted together.
const MAX_NAMES: usize = 2000;
/// Name of those.
pub(crate) const OTHERS: &str = "(others)";
/// Time between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);

/// Events of an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Number of events that arrived.
    pub(crate) taken: u64,
    /// Events left out on request, and because this program was too slow.
    pub(crate) skipped: u64,
    pub(crate) lost: u64,
    pub(crate) programs: HashMap<String, u64>,
    pub(crate) users: HashMap<u32, u64>,
    pub(crate) keys: HashMap<String, u64>,
    /// The last events, oldest first.
    pub(crate) events: VecDeque<SeenEvent>,
}

/// A notice among the records.
#[derive(Debug, Deserialize)]
struct Notice {
    missed: Missed,
}

#[derive(Debug, Deserialize)]
struct Missed {
    lost: u64,
    skipped: u64,
}

/// A running stream; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Stream {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    sample: Mutex<Sample>,
    /// The open connection.
    stream: Mutex<Option<UnixStream>>,
    /// Why there is no connection.
    error: Mutex<Option<String>>,
    has_ended: AtomicBool,
}

impl Sample {
    /// Adds an event.
    pub(crate) fn add(&mut self, event: SeenEvent) {
        self.taken += 1;
        count(&mut self.programs, event.program.clone());
        for key in event.keys() {
            count(&mut self.keys, key.to_owned());
        }
        if self.users.len() < MAX_NAMES || self.users.contains_key(&event.user()) {
            *self.users.entry(event.user()).or_default() += 1;
        }
        if self.events.len() >= KEPT_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// How many events one that arrived stands for.
    pub(crate) fn factor(&self) -> f64 {
        let all = self.taken + self.skipped + self.lost;
        if self.taken == 0 {
            1.0
        } else {
            float(all) / float(self.taken)
        }
    }
}

/// A count as a floating-point number; exact below 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "rates and shares are shown with three digits"
)]
pub(crate) const fn float(count: u64) -> f64 {
    count as f64
}

fn count(names: &mut HashMap<String, u64>, name: String) {
    let name = if names.len() < MAX_NAMES || names.contains_key(&name) {
        name
    } else {
        OTHERS.to_owned()
    };
    *names.entry(name).or_default() += 1;
}

impl Stream {
    /// Starts a thread that reads a stream, and connects again when the connection ends.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(control: Control, filter: Filter, rate: u32) -> anyhow::Result<Self> {
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || of_thread.run(&control, &filter, rate))?;
        Ok(Self { shared })
    }

    /// Takes what has arrived since the last time.
    pub(crate) fn take(&self) -> Sample {
        std::mem::take(&mut *lock(&self.shared.sample))
    }

    /// Why no events arrive.
    pub(crate) fn error(&self) -> Option<String> {
        lock(&self.shared.error).clone()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Release);
        if let Some(stream) = &*lock(&self.shared.stream) {
            // It may have ended already.
            let _ended = stream.shutdown(Shutdown::Both);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn run(&self, control: &Control, filter: &Filter, rate: u32) {
        while !self.has_ended.load(Ordering::Acquire) {
            let error = match control.watch(filter, rate) {
                Ok(stream) => {
                    *lock(&self.stream) = stream.get_ref().try_clone().ok();
                    *lock(&self.error) = None;
                    self.read(stream);
                    "the daemon has ended the connection".to_owned()
                }
                Err(error) => format!("{error:#}"),
            };
            *lock(&self.error) = Some(error);
            thread::park_timeout(RETRY);
        }
    }

    /// Reads to the end of the connection.
    fn read(&self, mut stream: BufReader<UnixStream>) {
        let (mut event, mut line) = (Vec::new(), Vec::new());
        while !self.has_ended.load(Ordering::Acquire) {
            line.clear();
            let read = (&mut stream).take(LINE_BYTES).read_until(b'\n', &mut line);
            if read.is_err() || !line.ends_with(b"\n") {
                return;
            }
            if line.starts_with(b"{") {
                if let Ok(Notice { missed }) = serde_json::from_slice(&line) {
                    let mut sample = lock(&self.sample);
                    sample.lost += missed.lost;
                    sample.skipped += missed.skipped;
                }
            } else if line.starts_with(b"type=EOE ") {
                if let Some(event) = SeenEvent::read(&event) {
                    lock(&self.sample).add(event);
                }
                event.clear();
            } else {
                event.extend_from_slice(&line);
            }
        }
    }
}
