//! Viewers: clients of the control socket that get the records of events as these occur.
//!
//! ```text
//! tlg-ring --- text of whole events ---> tlg-watch: filter, queue of each viewer ---> sockets
//! ```
//!
//! Without viewers, `tlg-ring` reads one flag per event. With viewers it copies the text of the log into a buffer, and
//! passes it on when the batch goes to the log. It never waits: if `tlg-watch` is behind, the viewers lack the buffer,
//! counted. The priority of `tlg-ring` is raised and that of `tlg-watch` is not, so viewers do not delay recording.
//!
//! A viewer gets each event as its records, one a line, and a record `EOE`. A line that begins with `{` is a notice:
//!
//! ```text
//! {"missed":{"lost":3,"skipped":0}}
//! ```
//!
//! Filters are evaluated here rather than by the viewer: an event that a viewer does not want takes no place in its
//! queue, so a viewer of rare events keeps up with any load. They only compare text that the daemon wrote itself.

mod facts;
mod filter;
mod sampler;
mod viewer;

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bstr::ByteSlice as _;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::json::JsonRecords;
use facts::EventFacts;
use viewer::Viewer;

pub(crate) use filter::{EventFilter, EventResult};

/// Maximum number of viewers.
pub(crate) const MAX_VIEWERS: usize = 8;
/// Of those, viewers that are not root's: root can always watch.
pub(crate) const MAX_VIEWERS_OF_OTHERS: usize = 6;
/// A viewer that has not read for this long makes room for another one.
const STALLED: Duration = Duration::from_secs(60);
/// Text in flight to `tlg-watch`.
const MAX_BYTES: usize = 8 << 20;
/// Buffers in flight: those of some seconds, because each has at least the events of half the write delay.
const MAX_BUFFERS: usize = 1024;
/// Empty buffers that are kept.
const MAX_EMPTY: usize = 16;
/// New viewers that wait for `tlg-watch`.
const MAX_NEW: usize = 8;

/// A client that wants to watch.
pub(crate) struct NewViewer {
    /// Its connection, non-blocking.
    pub(crate) stream: UnixStream,
    /// Its process, for messages.
    pub(crate) pid: i32,
    /// Whether it is root's.
    pub(crate) is_root: bool,
    /// The events it wants.
    pub(crate) filter: EventFilter,
    /// Maximum number of events a second; further ones are skipped at random.
    pub(crate) sample: Option<u32>,
    /// What it gets first.
    pub(crate) welcome: Vec<u8>,
    /// What it gets instead if it is refused for this reason.
    pub(crate) refusal: fn(String) -> Vec<u8>,
}

/// Adds viewers, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Viewers {
    shared: Arc<Shared>,
    to: Sender<NewViewer>,
}

/// The ring thread's end.
#[derive(Debug)]
pub(crate) struct ViewerFeed {
    shared: Arc<Shared>,
    full: Sender<JsonRecords>,
    empty: Receiver<JsonRecords>,
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct ViewerThread {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    /// Number of viewers.
    viewers: AtomicUsize,
    /// Bytes of text in flight.
    bytes: AtomicUsize,
    /// Events that no viewer got because `tlg-watch` was behind, until it has told them.
    missed: AtomicU64,
    has_ended: AtomicBool,
    waker: EventFd,
}

/// Starts the thread `tlg-watch`.
///
/// # Errors
/// The thread or its eventfd cannot be created.
pub(crate) fn start() -> anyhow::Result<(Viewers, ViewerFeed, ViewerThread)> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let shared = Arc::new(Shared {
        viewers: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        missed: AtomicU64::new(0),
        has_ended: AtomicBool::new(false),
        waker: EventFd::from_flags(flags).context("cannot create an eventfd")?,
    });
    let (to, new) = bounded(MAX_NEW);
    let (full_to, full) = bounded(MAX_BUFFERS);
    let (empty, empty_from) = bounded(MAX_EMPTY);
    let server = ViewerServer {
        shared: Arc::clone(&shared),
        new,
        full,
        empty,
        viewers: Vec::new(),
        text: Vec::new(),
    };
    let thread = thread::Builder::new()
        .name("tlg-watch".to_owned())
        .spawn(move || server.run())
        .context("cannot start thread `tlg-watch`")?;
    let viewers = Viewers {
        shared: Arc::clone(&shared),
        to,
    };
    let feed = ViewerFeed {
        shared: Arc::clone(&shared),
        full: full_to,
        empty: empty_from,
    };
    Ok((viewers, feed, ViewerThread { shared, thread }))
}

impl Viewers {
    /// Number of viewers.
    pub(crate) fn count(&self) -> usize {
        self.shared.viewers.load(Ordering::Relaxed)
    }

    /// Adds a viewer, or refuses it at its connection. Does not wait.
    pub(crate) fn add(&self, viewer: NewViewer) {
        match self.to.try_send(viewer) {
            Ok(()) => self.shared.wake(),
            Err(TrySendError::Full(viewer)) => {
                refuse(
                    viewer,
                    "too many viewers connect at once: repeat the command",
                );
            }
            // The daemon ends.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

impl ViewerFeed {
    /// Whether there is a viewer. One relaxed load: it is asked for each event.
    pub(crate) fn is_watched(&self) -> bool {
        self.shared.viewers.load(Ordering::Relaxed) != 0
    }

    /// An empty buffer.
    pub(crate) fn buffer(&self) -> JsonRecords {
        self.empty.try_recv().unwrap_or_default()
    }

    /// Passes events on, or counts them as missed.
    pub(crate) fn pass(&self, records: JsonRecords) {
        let Shared { bytes, missed, .. } = &*self.shared;
        let (length, events) = (records.text.len(), records.events);
        // Only this thread adds to it.
        let has_room = bytes.load(Ordering::Relaxed) + length <= MAX_BYTES;
        bytes.fetch_add(length, Ordering::Relaxed);
        if has_room && self.full.try_send(records).is_ok() {
            self.shared.wake();
        } else {
            bytes.fetch_sub(length, Ordering::Relaxed);
            missed.fetch_add(events, Ordering::Relaxed);
        }
    }
}

impl ViewerThread {
    /// Shows the events that were passed on, as far as viewers read them, and ends.
    pub(crate) fn finish(self) -> thread::Result<()> {
        self.shared.has_ended.store(true, Ordering::Release);
        self.shared.wake();
        self.thread.join()
    }
}

impl Shared {
    fn wake(&self) {
        // The counter cannot overflow.
        let _written = self.waker.write(1);
    }
}

/// Tells a client why it cannot watch, and disconnects it.
fn refuse(mut viewer: NewViewer, reason: &str) {
    let line = (viewer.refusal)(reason.to_owned());
    // A client that does not read learns it from the end of the connection.
    let _gone = viewer.stream.write(&line);
}

/// The thread `tlg-watch`.
struct ViewerServer {
    shared: Arc<Shared>,
    new: Receiver<NewViewer>,
    full: Receiver<JsonRecords>,
    empty: Sender<JsonRecords>,
    viewers: Vec<Viewer>,
    /// The records of the current event and its EOE.
    text: Vec<u8>,
}

impl ViewerServer {
    fn run(mut self) {
        loop {
            self.wait();
            let has_ended = self.shared.has_ended.load(Ordering::Acquire);
            self.admit();
            while let Ok(mut records) = self.full.try_recv() {
                self.show(&records);
                let length = records.text.len();
                self.shared.bytes.fetch_sub(length, Ordering::Relaxed);
                records.clear();
                // The ring thread allocates a buffer if none has come back.
                let _full = self.empty.try_send(records);
            }
            self.write();
            if has_ended {
                return;
            }
        }
    }

    /// Waits for events, new viewers, and viewers that can be written to or have gone.
    fn wait(&self) {
        let waker = PollFd::new(self.shared.waker.as_fd(), PollFlags::POLLIN);
        let viewers = self.viewers.iter().map(Viewer::poll_fd);
        let mut ready: Vec<PollFd<'_>> = [waker].into_iter().chain(viewers).collect();
        // An interrupted wait finds nothing to do.
        let _interrupted = poll(&mut ready, PollTimeout::NONE);
        let _woken = self.shared.waker.read();
    }

    /// Admits new viewers, or refuses them.
    fn admit(&mut self) {
        while let Ok(new) = self.new.try_recv() {
            self.make_room(new.is_root);
            if let Some(reason) = self.refusal(new.is_root) {
                refuse(new, &reason);
                continue;
            }
            // From now on events are passed on: the viewer gets each one that occurs after its answer.
            self.viewers.push(Viewer::new(new));
            self.count();
        }
    }

    /// Disconnects viewers that have gone, and one that has stalled if its place is needed.
    fn make_room(&mut self, for_root: bool) {
        self.viewers.retain(|viewer| !viewer.has_gone());
        if self.refusal(for_root).is_some() {
            let stalled = self.viewers.iter().position(|viewer| {
                (for_root || !viewer.is_root) && viewer.blocked_time() >= STALLED
            });
            if let Some(at) = stalled {
                self.viewers.swap_remove(at);
            }
        }
    }

    /// Why a further viewer is refused.
    fn refusal(&self, is_root: bool) -> Option<String> {
        let others = self.viewers.iter().filter(|viewer| !viewer.is_root).count();
        let limit = if self.viewers.len() >= MAX_VIEWERS {
            MAX_VIEWERS
        } else if !is_root && others >= MAX_VIEWERS_OF_OTHERS {
            MAX_VIEWERS_OF_OTHERS
        } else {
            return None;
        };
        let of_whom = if limit == MAX_VIEWERS {
            ""
        } else {
            " that are not root's"
        };
        let pids = self.viewers.iter().map(|viewer| viewer.pid.to_string());
        Some(format!(
            "{limit} viewers{of_whom} watch already, the maximum: end one of the processes {}",
            pids.collect::<Vec<_>>().join(", ")
        ))
    }

    /// Queues events at the viewers that want them.
    fn show(&mut self, records: &JsonRecords) {
        let now = Instant::now();
        let missed = self.shared.missed.swap(0, Ordering::Relaxed);
        for viewer in &mut self.viewers {
            viewer.begin(missed, now);
        }
        let needs_facts = self.viewers.iter().any(|viewer| !viewer.wants_all());
        for event in events(&records.text) {
            self.text.clear();
            let facts = needs_facts.then(|| EventFacts::read(event));
            for viewer in &mut self.viewers {
                if !viewer.takes(facts.as_ref()) {
                    continue;
                }
                if self.text.is_empty() {
                    self.text.extend_from_slice(event);
                    end_of_event(event, &mut self.text);
                }
                viewer.queue(&self.text);
            }
        }
    }

    /// Writes what is queued, and forgets viewers that have gone.
    fn write(&mut self) {
        self.viewers.retain_mut(|viewer| viewer.write().is_ok());
        self.count();
    }

    fn count(&self) {
        self.shared
            .viewers
            .store(self.viewers.len(), Ordering::SeqCst);
    }
}

/// Splits text into events: consecutive lines with one stamp.
fn events(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let stamp = stamp(text.lines().next()?);
        let lines = text.lines_with_terminator();
        let length = lines
            .take_while(|line| self::stamp(line) == stamp)
            .map(<[u8]>::len)
            .sum();
        let (event, rest) = text.split_at_checked(length)?;
        text = rest;
        Some(event)
    })
}

/// Time and serial of a record, as text: `1700000000.007:2147483649`.
fn stamp(line: &[u8]) -> &[u8] {
    // The first parentheses of a record are those of its stamp.
    let start = line.find_byte(b'(').map_or(0, |at| at + 1);
    let stamp = line.get(start..).unwrap_or_default();
    let end = stamp.find_byte(b')').unwrap_or(stamp.len());
    stamp.get(..end).unwrap_or(stamp)
}

/// Appends the record that ends an event.
fn end_of_event(event: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"type=EOE msg=audit(");
    out.extend_from_slice(stamp(event.lines().next().unwrap_or_default()));
    out.extend_from_slice(b"): \n");
}

/// Whether a write can succeed later.
fn is_retryable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests;
