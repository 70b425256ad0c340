//! Sink queue: text of whole events for a file or a terminal, written by its own thread.
//!
//! Appending never waits for the writer: events that do not fit are counted as left out. [`QueueStats::settle`] waits
//! for the outcome of the events so far.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::sinks::audit_log::rotate::OldLogPolicy;

/// Limit of waiting text; further events are left out.
const MOST_BYTES: usize = 16 << 20;
/// Delay that collects consecutive events into one write.
const DELAY: Duration = Duration::from_millis(10);

/// A running queue and its thread.
#[derive(Debug)]
pub(crate) struct SinkQueue {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// Destination of a queue.
pub(crate) trait Sink: Send + 'static {
    /// Writes the text of whole events.
    ///
    /// # Errors
    /// The text cannot be written completely.
    fn write(&mut self, text: &[u8]) -> io::Result<()>;

    /// Rotates the log, if the sink has one.
    fn rotate(&mut self, _old_logs: OldLogPolicy) {}
}

impl<W: FnMut(&[u8]) -> io::Result<()> + Send + 'static> Sink for W {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        self(text)
    }
}

/// Outcome of the queued events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SinkStats {
    /// Events written.
    pub(crate) events: u64,
    /// Events left out because the queue was full, or because a write failed.
    pub(crate) unwritten: u64,
    /// Last reason for left-out events.
    pub(crate) reason: String,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Signalled when there is work.
    more: Condvar,
    /// Signalled when work is done.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Waiting text and its number of events.
    text: Vec<u8>,
    events: u64,
    /// Number of events queued so far, and of those with a known outcome.
    taken: u64,
    settled: u64,
    account: SinkStats,
    /// Number of events queued when events were last left out; cleared by a later successful write.
    failing: Option<u64>,
    rotate: Option<OldLogPolicy>,
    closed: bool,
}

/// Writes to a queue; each call is one event.
#[derive(Debug)]
pub(crate) struct QueueWriter(Arc<Shared>);

/// Read access to the outcome of events.
#[derive(Clone, Debug)]
pub(crate) struct QueueStats(Arc<Shared>);

impl QueueStats {
    /// Events written and left out so far.
    pub(crate) fn read(&self) -> SinkStats {
        self.0.lock().account.clone()
    }

    /// Whether queued events may still be left out.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.0.lock();
        state.settled < state.taken
    }

    /// Waits until the outcome of the events so far is known. Returns whether it is known in time.
    pub(crate) fn settle(&self, until: Instant) -> bool {
        let state = self.0.lock();
        let taken = state.taken;
        let left = until.saturating_duration_since(Instant::now());
        let waited = self
            .0
            .done
            .wait_timeout_while(state, left, |state| state.settled < taken);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.settled >= taken
    }

    /// Why events are not written: the last ones, or more than `before`.
    pub(crate) fn failure(&self, before: u64) -> Option<String> {
        let State {
            failing, account, ..
        } = &*self.0.lock();
        let fails = failing.is_some() || account.unwritten > before;
        fails.then(|| account.reason.clone())
    }
}

impl SinkQueue {
    /// Starts a thread that writes to `sink`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(name: &str, sink: impl Sink) -> anyhow::Result<Self> {
        let shared = Arc::<Shared>::default();
        let its_own = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || its_own.empty(sink))
            .with_context(|| format!("cannot start thread `{name}`"))?;
        Ok(Self { shared, thread })
    }

    /// Appends the text of one event.
    pub(crate) fn append(&self, event: impl FnOnce(&mut Vec<u8>)) {
        self.shared.append(1, event);
    }

    /// Appends the text of several events, or leaves all of them out.
    pub(crate) fn append_all(&self, events: u64, text: &[u8]) {
        self.shared
            .append(events, |waiting| waiting.extend_from_slice(text));
    }

    /// Rotates the sink's log after the queued events.
    pub(crate) fn rotate(&self, old_logs: OldLogPolicy) {
        self.shared.lock().rotate = Some(old_logs);
        self.shared.more.notify_one();
    }

    /// Read access to the outcome.
    pub(crate) fn stats(&self) -> QueueStats {
        QueueStats(Arc::clone(&self.shared))
    }

    /// For writers that emit one event per write.
    pub(crate) fn writer(&self) -> QueueWriter {
        QueueWriter(Arc::clone(&self.shared))
    }

    /// Waits until everything is written, and returns the outcome.
    pub(crate) fn finish(self) -> SinkStats {
        self.shared.lock().closed = true;
        self.shared.more.notify_one();
        let ended = self.thread.join();
        let mut account = self.shared.lock().account.clone();
        if ended.is_err() {
            account.unwritten += 1;
            "the writing thread panicked".clone_into(&mut account.reason);
        }
        account
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is valid even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, events: u64, append: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        if state.text.len() > MOST_BYTES {
            let at = state.taken;
            state.count_left_out(at, events, "the queue was full");
            return;
        }
        let first = state.text.is_empty();
        append(&mut state.text);
        state.events += events;
        state.taken += events;
        drop(state);
        if first {
            self.more.notify_one();
        }
    }

    /// The thread: writes queued text until the queue is closed and empty.
    fn empty(&self, mut sink: impl Sink) {
        let mut text = Vec::new();
        loop {
            let mut state = self.lock();
            while state.text.is_empty() && state.rotate.is_none() && !state.closed {
                state = self
                    .more
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if !state.closed {
                let more = self
                    .more
                    .wait_timeout_while(state, DELAY, |state| !state.closed);
                state = more.unwrap_or_else(PoisonError::into_inner).0;
            }
            let (events, closed) = (std::mem::take(&mut state.events), state.closed);
            let rotate = state.rotate.take();
            std::mem::swap(&mut state.text, &mut text);
            drop(state);
            if !text.is_empty() {
                let written = sink.write(&text);
                self.lock().settle(events, written);
                self.done.notify_all();
                text.clear();
            }
            if let Some(old_logs) = rotate {
                sink.rotate(old_logs);
            }
            if closed {
                return;
            }
        }
    }
}

impl State {
    /// Counts events left out after `at` queued events.
    fn count_left_out(&mut self, at: u64, events: u64, reason: &str) {
        self.account.unwritten += events;
        reason.clone_into(&mut self.account.reason);
        self.failing = Some(at);
    }

    /// Records the outcome of the oldest queued events.
    fn settle(&mut self, events: u64, written: io::Result<()>) {
        self.settled += events;
        match written {
            Ok(()) => {
                self.account.events += events;
                self.failing = self.failing.filter(|&at| at >= self.settled);
            }
            Err(error) => self.count_left_out(self.settled, events, &error.to_string()),
        }
    }
}

impl Write for QueueWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(1, |text| text.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    #[test]
    fn queued_events_are_written_in_order_at_the_end() {
        let (to, from) = channel();
        let sink_queue = SinkQueue::start("test", move |text: &[u8]| {
            to.send(text.to_vec()).unwrap();
            Ok(())
        })
        .unwrap();
        for number in 0..1000 {
            sink_queue.append(|text| text.extend_from_slice(format!("{number}\n").as_bytes()));
        }
        sink_queue.writer().write_all(b"end\n").unwrap();
        assert_eq!(sink_queue.finish().events, 1001);
        let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
        assert_eq!(
            from.iter().flatten().collect::<Vec<u8>>(),
            (expected + "end\n").into_bytes()
        );
    }

    #[test]
    fn rotation_follows_queued_events() {
        struct RecordingSink(Sender<String>);
        impl Sink for RecordingSink {
            fn write(&mut self, text: &[u8]) -> io::Result<()> {
                let text = String::from_utf8_lossy(text).into_owned();
                self.0.send(text).map_err(io::Error::other)
            }
            fn rotate(&mut self, _old_logs: OldLogPolicy) {
                self.0.send("|".to_owned()).unwrap();
            }
        }
        let (to, from) = channel();
        let sink_queue = SinkQueue::start("test", RecordingSink(to)).unwrap();
        sink_queue.append(|text| text.push(b'a'));
        sink_queue.rotate(OldLogPolicy::AsConfigured);
        assert_eq!(from.iter().take(2).collect::<String>(), "a|");
        // Also when nothing is to be written.
        sink_queue.rotate(OldLogPolicy::AsConfigured);
        assert_eq!(from.recv().unwrap(), "|");
        sink_queue.append(|text| text.push(b'b'));
        sink_queue.finish();
        assert_eq!(from.iter().collect::<String>(), "b");
    }

    #[test]
    fn unwritten_events_are_counted_with_the_reason() {
        let sink_queue =
            SinkQueue::start("test", |_: &[u8]| Err(io::ErrorKind::StorageFull.into())).unwrap();
        sink_queue.append(|text| text.push(b'x'));
        sink_queue.append(|text| text.push(b'y'));
        let written = sink_queue.finish();
        assert_eq!((written.events, written.unwritten), (0, 2));
        assert_eq!(written.reason, "no storage space");
    }

    #[test]
    fn settle_waits_for_the_outcome_of_queued_events() {
        let (to, from) = channel::<io::Result<()>>();
        let sink_queue = SinkQueue::start("test", move |_: &[u8]| from.recv().unwrap()).unwrap();
        let stats = sink_queue.stats();
        let soon = || Instant::now() + DELAY;
        let late = || Instant::now() + Duration::from_secs(60);
        assert!(stats.settle(soon()), "nothing is to be waited for");
        sink_queue.append(|text| text.push(b'x'));
        assert!(stats.is_busy() && !stats.settle(soon()));
        to.send(Ok(())).unwrap();
        assert!(stats.settle(late()));
        assert_eq!((stats.is_busy(), stats.failure(0)), (false, None));
        // The last event is not written until one that comes later is.
        sink_queue.append(|text| text.push(b'y'));
        to.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        assert!(stats.settle(late()));
        let full = Some("no storage space".to_owned());
        assert_eq!(stats.failure(0), full);
        assert_eq!(stats.failure(1), full);
        sink_queue.append(|text| text.push(b'z'));
        to.send(Ok(())).unwrap();
        assert!(stats.settle(late()));
        assert_eq!((stats.failure(0), stats.failure(1)), (full, None));
        sink_queue.finish();
    }

    #[test]
    fn slow_reader_delays_nobody() {
        let (to, from) = channel::<()>();
        let sink_queue = SinkQueue::start("test", move |_: &[u8]| {
            let _closed = from.recv();
            Ok(())
        })
        .unwrap();
        for _ in 0..40 {
            sink_queue.append(|text| text.resize(text.len() + (1 << 20), b'x'));
        }
        drop(to);
        let written = sink_queue.finish();
        assert_eq!(written.events + written.unwritten, 40);
        assert!(written.unwritten > 0);
    }
}
