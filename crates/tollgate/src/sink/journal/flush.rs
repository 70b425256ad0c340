//! A thread that brings the log to the disk while others write on: as often as `flush = INCREMENTAL_ASYNC` asks,
//! and otherwise each time it has grown by [`STEP`].
//!
//! What is on the disk and lies behind the newest part leaves the page cache. A log of gigabytes does not push
//! out what others read, and is written to memory that was just in use: where a host takes idle memory of its
//! guests, the first write to a page takes longer than all else that is done for an event.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use crossbeam_channel::{Sender, TrySendError, bounded};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

/// How much a log grows until it is brought to the disk, whatever the policy, and how much leaves the page
/// cache at once, at least.
///
/// # Units
/// Bytes.
pub(super) const STEP: u64 = 8 << 20;
/// How much of a log stays in the page cache, for who reads it soon: all of one that is rotated as by default.
const KEPT: u64 = 32 << 20;

/// Flushes that have all ended well.
const DONE: i32 = -1;
/// An error without a number.
const OTHER: i32 = -2;

/// A running thread. One request waits at most: a flush brings all that was written before it.
#[derive(Debug)]
pub(crate) struct Flusher {
    to: Option<Sender<File>>,
    thread: Option<JoinHandle<()>>,
    /// What has become of flushes since that was last asked for: an error, [`DONE`], or 0 for none.
    outcome: Arc<AtomicI32>,
}

impl Flusher {
    /// Starts the thread.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let (to, from) = bounded::<File>(1);
        let outcome = Arc::<AtomicI32>::default();
        let shared = Arc::clone(&outcome);
        let thread = thread::Builder::new()
            .name("tlg-flush".to_owned())
            .spawn(move || {
                let mut cached = Cached::default();
                for file in from {
                    match cached.sync(&file) {
                        Err(error) => {
                            let errno = error.raw_os_error().unwrap_or(OTHER);
                            shared.store(errno, Ordering::Relaxed);
                        }
                        Ok(()) => {
                            // An error that nobody has asked for stays.
                            let order = Ordering::Relaxed;
                            let _told = shared.compare_exchange(0, DONE, order, order);
                        }
                    }
                }
            })
            .context("cannot start thread `tlg-flush`")?;
        Ok(Self {
            to: Some(to),
            thread: Some(thread),
            outcome,
        })
    }

    /// Asks for a flush; whether an earlier one has ended well since this was last called.
    ///
    /// # Errors
    /// What an earlier flush answered, once.
    pub(crate) fn flush(&self, file: File) -> io::Result<bool> {
        if let Some(to) = &self.to {
            match to.try_send(file) {
                Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
            }
        }
        match self.outcome.swap(0, Ordering::Relaxed) {
            0 => Ok(false),
            DONE => Ok(true),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
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
        drop(self.to.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
