//! A thread that brings the log to the disk while others write on: as often as `flush = INCREMENTAL_ASYNC` asks,
//! and otherwise each time it has grown by [`STEP`], and when it is closed.
//!
//! What is on the disk and lies behind the newest part leaves the page cache. A log of gigabytes does not push
//! out what others read, and is written to memory that was just in use: where a host takes idle memory of its
//! guests, the first write to a page takes longer than all else that is done for an event.

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

/// How much a log grows until it is brought to the disk, whatever the policy, and how much leaves the page
/// cache at once, at least.
///
/// # Units
/// Bytes.
pub(super) const STEP: u64 = 8 << 20;
/// How much of a log stays in the page cache, for who reads it soon: all of one that is rotated as by default.
const KEPT: u64 = 32 << 20;

const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Flushes that have all ended well.
const DONE: i32 = -1;
/// An error without a number.
const OTHER: i32 = -2;

/// Requests that wait at most, nearly all about closed logs: who closes them faster than the disk takes them
/// waits as well.
const MOST_WAITING: usize = 8;

/// A running thread. One request about the open log waits at most: a flush brings all that was written before
/// it.
#[derive(Debug)]
pub(crate) struct Flusher {
    to: Option<Sender<File>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// A request about the open log waits, so that no other is needed.
    waits: AtomicBool,
    /// Requests that have not ended.
    under_way: AtomicU32,
    /// What has become of flushes since that was last asked for: an error, [`DONE`], or 0 for none.
    outcome: AtomicI32,
}

impl Shared {
    /// Notes what a flush has answered.
    fn ended(&self, outcome: io::Result<()>) {
        match outcome {
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(OTHER);
                self.outcome.store(errno, Ordering::Relaxed);
            }
            Ok(()) => {
                // An error that nobody has asked for stays.
                let order = Ordering::Relaxed;
                let _told = self.outcome.compare_exchange(0, DONE, order, order);
            }
        }
        self.under_way.fetch_sub(1, Ordering::Release);
    }
}

impl Flusher {
    /// Starts the thread.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let (to, from) = bounded::<File>(MOST_WAITING);
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("tlg-flush".to_owned())
            .spawn(move || {
                let mut cached = Cached::default();
                for file in from {
                    // Before it begins: what is written from now on needs another.
                    of_thread.waits.swap(false, Ordering::AcqRel);
                    let outcome = cached.sync(&file);
                    // An old log that was removed leaves the disk now.
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

    /// Asks for a flush of the open log.
    pub(crate) fn flush(&self, file: File) {
        if !self.shared.waits.swap(true, Ordering::AcqRel) {
            self.give(file);
        }
    }

    /// Asks for a flush of a log that is closed; what is asked next is about another.
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

    /// Waits until no flush is under way: what was removed takes no room any more.
    pub(crate) fn wait(&self) {
        let runs = || {
            let thread = self.thread.as_ref();
            thread.is_some_and(|thread| !thread.is_finished())
        };
        while self.shared.under_way.load(Ordering::Acquire) != 0 && runs() {
            thread::park_timeout(BETWEEN_LOOKS);
        }
    }

    /// Whether there is, or will be, something to be learned by [`Flusher::outcome`].
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.under_way.load(Ordering::Acquire) != 0
            || self.shared.outcome.load(Ordering::Relaxed) != 0
    }

    /// Whether a flush has ended well since this was last called.
    ///
    /// # Errors
    /// What a flush answered, once.
    pub(crate) fn outcome(&self) -> io::Result<bool> {
        match self.shared.outcome.swap(0, Ordering::Relaxed) {
            0 => Ok(false),
            DONE => Ok(true),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Waits until all flushes have ended; none is done any more.
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

/// What the page cache holds of the log.
#[derive(Debug, Default)]
struct Cached {
    /// The device that the log is on, and its inode there.
    file: (u64, u64),
    /// Where what it holds begins.
    from: u64,
}

impl Cached {
    /// Waits until everything written is on the disk, and lets go of what is old.
    ///
    /// # Errors
    /// What `fdatasync(2)` answered.
    fn sync(&mut self, log: &File) -> io::Result<()> {
        let about = log.metadata()?;
        log.sync_data()?;
        if let Some((from, len)) = self.old((about.dev(), about.ino()), about.len()) {
            // A hint: what stays is in nobody's way.
            let _let_go = posix_fadvise(log, from, len, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        Ok(())
    }

    /// Start and length of what a log of this size does not need in the page cache any more.
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
        // Nobody is left who could be told.
        let _outcome = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_fails_is_told_once_and_each_file_is_asked_for() {
        let log = || tempfile::tempfile().unwrap();
        // A pipe cannot be brought to the disk.
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
        // As if a request about the log that is closed now were waiting.
        flusher.shared.waits.store(true, Ordering::Relaxed);
        flusher.flush(pipe());
        assert!(!flusher.is_busy(), "one waits already");
        flusher.flush_closed(log());
        flusher.flush(pipe());
        assert!(flusher.end().is_err(), "the new log was not asked for");
    }

    #[test]
    fn the_newest_part_of_a_log_stays() {
        const LOG: (u64, u64) = (1, 2);
        let mut cached = Cached::default();
        assert_eq!(cached.old(LOG, KEPT), None);
        assert_eq!(cached.old(LOG, KEPT + STEP - 1), None, "too little");
        let step = i64::try_from(STEP).unwrap();
        assert_eq!(cached.old(LOG, KEPT + STEP), Some((0, step)));
        assert_eq!(cached.old(LOG, KEPT + STEP), None, "once");
        assert_eq!(cached.old(LOG, KEPT + 3 * STEP), Some((step, 2 * step)));
        // Another file, and one that was cut.
        assert_eq!(cached.old((1, 3), KEPT + STEP), Some((0, step)));
        assert_eq!(cached.old((1, 3), 0), None);
        assert_eq!(cached.old((1, 3), KEPT + STEP), Some((0, step)));
    }
}
