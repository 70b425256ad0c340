//! A thread that flushes the log while others write: as often as `flush = INCREMENTAL_ASYNC` requires, and otherwise
//! each time the log has grown by [`STEP`], and when it is closed.
//!
//! Flushed data older than the newest part is dropped from the page cache. So a log of gigabytes does not evict what
//! others read, and is written to recently used memory: on hosts that reclaim idle guest memory, the first write to a
//! page takes longer than the rest of an event.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use crossbeam_channel::{Sender, bounded};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

/// Growth of the log after which it is flushed, whatever the policy, and minimum amount dropped from the page cache.
///
/// # Units
/// Bytes.
pub(super) const STEP: u64 = 8 << 20;
/// Amount of the log kept in the page cache for readers: a whole log of the default size.
const KEPT: u64 = 32 << 20;

const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// All flushes have succeeded.
const DONE: i32 = -1;
/// An error without an errno.
const OTHER: i32 = -2;

/// Maximum number of queued requests, nearly all for closed logs. Closing logs faster than the disk can flush waits.
const MOST_WAITING: usize = 8;

/// A running flush thread. At most one request for the open log is queued, because a flush covers everything written
/// before it.
#[derive(Debug)]
pub(crate) struct Flusher {
    to: Option<Sender<File>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Whether a request for the open log is queued.
    waits: AtomicBool,
    /// Number of unfinished requests.
    under_way: AtomicU32,
    /// Result of flushes since it was last read: an errno, [`DONE`], or 0 for none.
    outcome: AtomicI32,
}

impl Shared {
    /// Stores the result of a flush.
    fn ended(&self, outcome: io::Result<()>) {
        match outcome {
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(OTHER);
                self.outcome.store(errno, Ordering::Relaxed);
            }
            Ok(()) => {
                // An unread error is kept.
                let order = Ordering::Relaxed;
                let _previous = self.outcome.compare_exchange(0, DONE, order, order);
            }
        }
        self.under_way.fetch_sub(1, Ordering::Release);
    }
}

impl Flusher {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let (to, from) = bounded::<File>(MOST_WAITING);
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("tlg-flush".to_owned())
            .spawn(move || {
                let mut cached = Cached::default();
                for file in from {
                    // Before the flush: later writes need another one.
                    of_thread.waits.swap(false, Ordering::AcqRel);
                    let outcome = cached.sync(&file);
                    // Closing the last descriptor frees the space of a removed log.
                    drop(file);
                    of_thread.ended(outcome);
                }
            })
            .context("cannot start thread `tlg-flush`")?;
        Ok(Self {
            to: Some(to),
            thread: Some(thread),
            shared,
        })
    }

    /// Requests a flush of the open log.
    pub(crate) fn flush(&self, file: File) {
        if !self.shared.waits.swap(true, Ordering::AcqRel) {
            self.give(file);
        }
    }

    /// Requests a flush of a closed log; the next request is for another file.
    pub(crate) fn flush_closed(&self, file: File) {
        self.shared.waits.swap(false, Ordering::AcqRel);
        self.give(file);
    }

    fn give(&self, file: File) {
        let Some(to) = &self.to else {
            return;
        };
        self.shared.under_way.fetch_add(1, Ordering::Relaxed);
        if to.send(file).is_err() {
            self.shared.ended(Err(io::ErrorKind::BrokenPipe.into()));
        }
    }

    /// Waits until no flush is in progress, so that removed files occupy no space.
    pub(crate) fn wait(&self) {
        let runs = || {
            let thread = self.thread.as_ref();
            thread.is_some_and(|thread| !thread.is_finished())
        };
        while self.shared.under_way.load(Ordering::Acquire) != 0 && runs() {
            thread::park_timeout(BETWEEN_LOOKS);
        }
    }

    /// Whether [`Flusher::outcome`] has or will have a result.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.under_way.load(Ordering::Acquire) != 0
            || self.shared.outcome.load(Ordering::Relaxed) != 0
    }

    /// Whether a flush has succeeded since the last call.
    ///
    /// # Errors
    /// The error of a flush, reported once.
    pub(crate) fn outcome(&self) -> io::Result<bool> {
        match self.shared.outcome.swap(0, Ordering::Relaxed) {
            0 => Ok(false),
            DONE => Ok(true),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Waits for all flushes and ends the thread.
    ///
    /// # Errors
    /// As [`Flusher::outcome`].
    pub(crate) fn end(&mut self) -> io::Result<()> {
        drop(self.to.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
        self.outcome().map(|_done| ())
    }
}

/// The part of the log in the page cache.
#[derive(Debug, Default)]
struct Cached {
    /// Device and inode of the log.
    file: (u64, u64),
    /// Start of that part.
    from: u64,
}

impl Cached {
    /// Flushes the file and drops its old part from the page cache.
    ///
    /// # Errors
    /// The error of `fdatasync(2)`.
    fn sync(&mut self, log: &File) -> io::Result<()> {
        let about = log.metadata()?;
        log.sync_data()?;
        if let Some((from, len)) = self.old((about.dev(), about.ino()), about.len()) {
            // Only a hint: failure does no harm.
            let _let_go = posix_fadvise(log, from, len, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        Ok(())
    }

    /// Start and length of the part that can leave the page cache at this size.
    fn old(&mut self, file: (u64, u64), size: u64) -> Option<(i64, i64)> {
        if self.file != file || size < self.from {
            *self = Self { file, from: 0 };
        }
        let to = size.saturating_sub(KEPT);
        let len = to.checked_sub(self.from).filter(|&len| len >= STEP)?;
        let from = std::mem::replace(&mut self.from, to);
        Some((from.try_into().ok()?, len.try_into().ok()?))
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        // There is nobody to report to.
        let _outcome = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_flush_is_reported_once() {
        let log = || tempfile::tempfile().unwrap();
        // `fdatasync` fails on a pipe.
        let pipe = || File::from(std::os::fd::OwnedFd::from(io::pipe().unwrap().1));
        let mut flusher = Flusher::start().unwrap();
        assert!(!flusher.is_busy());
        flusher.flush_closed(pipe());
        flusher.flush_closed(log());
        flusher.flush(log());
        assert!(flusher.is_busy());
        assert!(flusher.end().is_err());
        assert!(flusher.end().is_ok() && !flusher.is_busy());

        let mut flusher = Flusher::start().unwrap();
        // As if a request for the log closed now were queued.
        flusher.shared.waits.store(true, Ordering::Relaxed);
        flusher.flush(pipe());
        assert!(!flusher.is_busy(), "one waits already");
        flusher.flush_closed(log());
        flusher.flush(pipe());
        assert!(flusher.end().is_err(), "the new log was not asked for");
    }

    #[test]
    fn newest_part_of_a_log_stays_cached() {
        const LOG: (u64, u64) = (1, 2);
        let mut cached = Cached::default();
        assert_eq!(cached.old(LOG, KEPT), None);
        assert_eq!(cached.old(LOG, KEPT + STEP - 1), None, "too little");
        let step = i64::try_from(STEP).unwrap();
        assert_eq!(cached.old(LOG, KEPT + STEP), Some((0, step)));
        assert_eq!(cached.old(LOG, KEPT + STEP), None, "once");
        assert_eq!(cached.old(LOG, KEPT + 3 * STEP), Some((step, 2 * step)));
        // Another file, and a truncated one.
        assert_eq!(cached.old((1, 3), KEPT + STEP), Some((0, step)));
        assert_eq!(cached.old((1, 3), 0), None);
        assert_eq!(cached.old((1, 3), KEPT + STEP), Some((0, step)));
    }
}
