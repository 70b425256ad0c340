//! An outlet: text of whole events on its way to a file or a screen, written by a thread of its own.
//!
//! Whoever appends never waits for the reader: what an outlet cannot take is counted.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;

/// Text of this size waits at most; beyond, events are left out.
const MOST_BYTES: usize = 16 << 20;
/// Events that come one after another are written together.
const DELAY: Duration = Duration::from_millis(10);

/// A running outlet.
#[derive(Debug)]
pub(crate) struct Outlet {
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
    fn rotate(&mut self) {}
}

impl<W: FnMut(&[u8]) -> io::Result<()> + Send + 'static> Sink for W {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        self(text)
    }
}

/// What became of the events that an outlet was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Events that were written.
    pub(crate) events: u64,
    /// Events that were left out, because the reader was slower, or could not be written.
    pub(crate) unwritten: u64,
    /// What was the matter with the last of these.
    pub(crate) reason: String,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    more: Condvar,
    account: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Waiting {
    text: Vec<u8>,
    events: u64,
    left_out: u64,
    rotate: bool,
    closed: bool,
}

/// A hand that writes to an outlet; each call is one event.
#[derive(Debug)]
pub(crate) struct Pen(Arc<Shared>);

/// Shows what has become of the events that an outlet was given.
#[derive(Clone, Debug)]
pub(crate) struct Gauge(Arc<Shared>);

impl Gauge {
    /// What was written and left out so far.
    pub(crate) fn read(&self) -> Written {
        let mut account = self.0.account().clone();
        account.unwritten += self.0.lock().left_out;
        account
    }
}

impl Outlet {
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
    pub(crate) fn rotate(&self) {
        self.shared.lock().rotate = true;
        self.shared.more.notify_one();
    }

    /// For others to look at what has become of the events so far.
    pub(crate) fn gauge(&self) -> Gauge {
        Gauge(Arc::clone(&self.shared))
    }

    /// For writers that know of events only as one write each.
    pub(crate) fn pen(&self) -> Pen {
        Pen(Arc::clone(&self.shared))
    }

    /// Waits until all is written, and gives the account.
    pub(crate) fn finish(self) -> Written {
        self.shared.lock().closed = true;
        self.shared.more.notify_one();
        let ended = self.thread.join();
        let mut account = self.shared.account().clone();
        if ended.is_err() {
            account.unwritten += 1;
            "the writing thread panicked".clone_into(&mut account.reason);
        }
        account
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is held; and text is text.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn account(&self) -> MutexGuard<'_, Written> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, events: u64, append: impl FnOnce(&mut Vec<u8>)) {
        let mut waiting = self.lock();
        if waiting.text.len() > MOST_BYTES {
            waiting.left_out += events;
            return;
        }
        let first = waiting.text.is_empty();
        append(&mut waiting.text);
        waiting.events += events;
        drop(waiting);
        if first {
            self.more.notify_one();
        }
    }

    /// The thread: takes what waits and writes it, until the outlet is closed and empty.
    fn empty(&self, mut sink: impl Sink) {
        let mut text = Vec::new();
        loop {
            let mut waiting = self.lock();
            while waiting.text.is_empty() && !waiting.rotate && !waiting.closed {
                waiting = self
                    .more
                    .wait(waiting)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if !waiting.closed {
                let more = self
                    .more
                    .wait_timeout_while(waiting, DELAY, |waiting| !waiting.closed);
                waiting = more.unwrap_or_else(PoisonError::into_inner).0;
            }
            let (events, closed) = (std::mem::take(&mut waiting.events), waiting.closed);
            let left_out = std::mem::take(&mut waiting.left_out);
            let rotate = std::mem::take(&mut waiting.rotate);
            std::mem::swap(&mut waiting.text, &mut text);
            drop(waiting);
            if left_out != 0 {
                let mut account = self.account();
                account.unwritten += left_out;
                "events came faster than they could be written".clone_into(&mut account.reason);
            }
            if !text.is_empty() {
                let written = sink.write(&text);
                let mut account = self.account();
                match written {
                    Ok(()) => account.events += events,
                    Err(error) => {
                        account.unwritten += events;
                        account.reason = error.to_string();
                    }
                }
                drop(account);
                text.clear();
            }
            if rotate {
                sink.rotate();
            }
            if closed {
                return;
            }
        }
    }
}

impl Write for Pen {
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
        let outlet = Outlet::start("test", move |text: &[u8]| {
            to.send(text.to_vec()).unwrap();
            Ok(())
        })
        .unwrap();
        for number in 0..1000 {
            outlet.append(|text| text.extend_from_slice(format!("{number}\n").as_bytes()));
        }
        outlet.pen().write_all(b"end\n").unwrap();
        assert_eq!(outlet.finish().events, 1001);
        let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
        assert_eq!(
            from.iter().flatten().collect::<Vec<u8>>(),
            (expected + "end\n").into_bytes()
        );
    }

    #[test]
    fn a_new_log_begins_behind_what_waits() {
        struct Parts(Sender<String>);
        impl Sink for Parts {
            fn write(&mut self, text: &[u8]) -> io::Result<()> {
                let text = String::from_utf8_lossy(text).into_owned();
                self.0.send(text).map_err(io::Error::other)
            }
            fn rotate(&mut self) {
                self.0.send("|".to_owned()).unwrap();
            }
        }
        let (to, from) = channel();
        let outlet = Outlet::start("test", Parts(to)).unwrap();
        outlet.append(|text| text.push(b'a'));
        outlet.rotate();
        assert_eq!(from.iter().take(2).collect::<String>(), "a|");
        // Also when nothing is to be written.
        outlet.rotate();
        assert_eq!(from.recv().unwrap(), "|");
        outlet.append(|text| text.push(b'b'));
        outlet.finish();
        assert_eq!(from.iter().collect::<String>(), "b");
    }

    #[test]
    fn what_cannot_be_written_is_counted_with_the_reason() {
        let outlet =
            Outlet::start("test", |_: &[u8]| Err(io::ErrorKind::StorageFull.into())).unwrap();
        outlet.append(|text| text.push(b'x'));
        outlet.append(|text| text.push(b'y'));
        let written = outlet.finish();
        assert_eq!((written.events, written.unwritten), (0, 2));
        assert_eq!(written.reason, "no storage space");
    }

    #[test]
    fn a_reader_that_is_too_slow_makes_nobody_wait() {
        let (to, from) = channel::<()>();
        let outlet = Outlet::start("test", move |_: &[u8]| {
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
