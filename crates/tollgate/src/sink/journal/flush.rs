//! `flush = INCREMENTAL_ASYNC`: a thread that brings the log to the disk while others write on.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use crossbeam_channel::{Sender, TrySendError, bounded};

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
                for file in from {
                    match file.sync_data() {
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

impl Drop for Flusher {
    fn drop(&mut self) {
        drop(self.to.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
