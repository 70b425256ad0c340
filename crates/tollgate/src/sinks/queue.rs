//! An outlet: text of whole events on its way to a file or a screen, written by a thread of its own.
//!
//! Whoever appends never waits for the reader: what an outlet cannot take is counted. Who wants to know what
//! has become of the events so far can wait for that, by a gauge.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::sinks::audit_log::rotate::OldLogPolicy;

/// Text of this size waits at most; beyond, events are left out.
const MOST_BYTES: usize = 16 << 20;
/// Events that come one after another are written together.
const DELAY: Duration = Duration::from_millis(10);

/// A running outlet.
#[derive(Debug)]
pub(crate) struct SinkQueue {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// What an outlet's thread writes to.
pub(crate) trait Sink: Send + 'static {
    /// Writes the text of whole events.
    ///
    /// # Errors
    /// What keeps it from being written, all of it.
    fn write(&mut self, text: &[u8]) -> io::Result<()>;

    /// Begins a new log, where that means something.
    fn rotate(&mut self, _old_logs: OldLogPolicy) {}
}

impl<W: FnMut(&[u8]) -> io::Result<()> + Send + 'static> Sink for W {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        self(text)
    }
}

/// What became of the events that an outlet was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SinkStats {
    /// Events that were written.
    pub(crate) events: u64,
    /// Events that were left out, because the reader was slower, or could not be written.
    pub(crate) unwritten: u64,
    /// What was the matter with the last of these.
    pub(crate) reason: String,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to be done.
    more: Condvar,
    /// Something was done.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Text that waits, and the events in it.
    text: Vec<u8>,
    events: u64,
    /// Events that were taken so far, and those of them that were written or could not be.
    taken: u64,
    settled: u64,
    account: SinkStats,
    /// Up to where of those taken events were last left out, until one that came later is written.
    failing: Option<u64>,
    rotate: Option<OldLogPolicy>,
    closed: bool,
}

/// A hand that writes to an outlet; each call is one event.
#[derive(Debug)]
pub(crate) struct QueueWriter(Arc<Shared>);

/// Shows what has become of the events that an outlet was given.
#[derive(Clone, Debug)]
pub(crate) struct QueueStats(Arc<Shared>);

impl QueueStats {
    /// What was written and left out so far.
    pub(crate) fn read(&self) -> SinkStats {
        self.0.lock().account.clone()
    }

    /// Whether there are events that may still be left out.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.0.lock();
        state.settled < state.taken
    }

    /// Waits until it is known what has become of the events so far, until this time at most; whether it is
    /// known.
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

    /// Why events are not written: the last ones, or others since so many were left out.
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
    /// When no thread can be started.
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

    /// Appends the text of so many events, or leaves them all out.
    pub(crate) fn append_all(&self, events: u64, text: &[u8]) {
        self.shared
            .append(events, |waiting| waiting.extend_from_slice(text));
    }

    /// Has the sink begin a new log, behind the events that wait.
    pub(crate) fn rotate(&self, old_logs: OldLogPolicy) {
        self.shared.lock().rotate = Some(old_logs);
        self.shared.more.notify_one();
    }

    /// For others to look at what has become of the events so far.
    pub(crate) fn stats(&self) -> QueueStats {
        QueueStats(Arc::clone(&self.shared))
    }

    /// For writers that know of events only as one write each.
    pub(crate) fn writer(&self) -> QueueWriter {
        QueueWriter(Arc::clone(&self.shared))
    }

    /// Waits until all is written, and gives the account.
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
        // Nothing panics while it is held; and text is text.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, events: u64, append: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        if state.text.len() > MOST_BYTES {
            let at = state.taken;
            state.count_left_out(at, events, "events came faster than they could be written");
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

    /// The thread: takes what waits and writes it, until the outlet is closed and empty.
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
    /// Events are left out, behind so many that were taken.
    fn count_left_out(&mut self, at: u64, events: u64, reason: &str) {
        self.account.unwritten += events;
        reason.clone_into(&mut self.account.reason);
        self.failing = Some(at);
    }

    /// What has become of the oldest events that were taken.
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
    fn everything_is_written_in_order_before_the_end() {
        let (to, from) = channel();
        let outlet = SinkQueue::start("test", move |text: &[u8]| {
            to.send(text.to_vec()).unwrap();
            Ok(())
        })
        .unwrap();
        for number in 0..1000 {
            outlet.append(|text| text.extend_from_slice(format!("{number}\n").as_bytes()));
        }
        outlet.writer().write_all(b"end\n").unwrap();
        assert_eq!(outlet.finish().events, 1001);
        let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
        assert_eq!(
            from.iter().flatten().collect::<Vec<u8>>(),
            (expected + "end\n").into_bytes()
        );
    }

    #[test]
    fn a_new_log_begins_behind_what_waits() {
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
        let outlet = SinkQueue::start("test", RecordingSink(to)).unwrap();
        outlet.append(|text| text.push(b'a'));
        outlet.rotate(OldLogPolicy::AsConfigured);
        assert_eq!(from.iter().take(2).collect::<String>(), "a|");
        // Also when nothing is to be written.
        outlet.rotate(OldLogPolicy::AsConfigured);
        assert_eq!(from.recv().unwrap(), "|");
        outlet.append(|text| text.push(b'b'));
        outlet.finish();
        assert_eq!(from.iter().collect::<String>(), "b");
    }

    #[test]
    fn what_cannot_be_written_is_counted_with_the_reason() {
        let outlet =
            SinkQueue::start("test", |_: &[u8]| Err(io::ErrorKind::StorageFull.into())).unwrap();
        outlet.append(|text| text.push(b'x'));
        outlet.append(|text| text.push(b'y'));
        let written = outlet.finish();
        assert_eq!((written.events, written.unwritten), (0, 2));
        assert_eq!(written.reason, "no storage space");
    }

    #[test]
    fn what_has_become_of_events_can_be_waited_for() {
        let (to, from) = channel::<io::Result<()>>();
        let outlet = SinkQueue::start("test", move |_: &[u8]| from.recv().unwrap()).unwrap();
        let stats = outlet.stats();
        let soon = || Instant::now() + DELAY;
        let late = || Instant::now() + Duration::from_secs(60);
        assert!(stats.settle(soon()), "nothing is to be waited for");
        outlet.append(|text| text.push(b'x'));
        assert!(stats.is_busy() && !stats.settle(soon()));
        to.send(Ok(())).unwrap();
        assert!(stats.settle(late()));
        assert_eq!((stats.is_busy(), stats.failure(0)), (false, None));
        // The last event is not written until one that comes later is.
        outlet.append(|text| text.push(b'y'));
        to.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        assert!(stats.settle(late()));
        let full = Some("no storage space".to_owned());
        assert_eq!(stats.failure(0), full);
        assert_eq!(stats.failure(1), full);
        outlet.append(|text| text.push(b'z'));
        to.send(Ok(())).unwrap();
        assert!(stats.settle(late()));
        assert_eq!((stats.failure(0), stats.failure(1)), (full, None));
        outlet.finish();
    }

    #[test]
    fn a_reader_that_is_too_slow_makes_nobody_wait() {
        let (to, from) = channel::<()>();
        let outlet = SinkQueue::start("test", move |_: &[u8]| {
            let _closed = from.recv();
            Ok(())
        })
        .unwrap();
        for _ in 0..40 {
            outlet.append(|text| text.resize(text.len() + (1 << 20), b'x'));
        }
        drop(to);
        let written = outlet.finish();
        assert_eq!(written.events + written.unwritten, 40);
        assert!(written.unwritten > 0);
    }
}
