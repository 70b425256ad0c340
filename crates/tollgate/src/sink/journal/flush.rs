//! `flush = INCREMENTAL_ASYNC`: a thread that brings the log to the disk while others write on.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use crossbeam_channel::{Sender, TrySendError, bounded};

/// A running thread. One request waits at most: a flush brings all that was written before it.
#[derive(Debug)]
pub(crate) struct Flusher {
    to: Option<Sender<File>>,
    thread: Option<JoinHandle<()>>,
    /// The last error, 0 for none.
    errno: Arc<AtomicI32>,
}

impl Flusher {
    /// Starts the thread.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let (to, from) = bounded::<File>(1);
        let errno = Arc::<AtomicI32>::default();
        let shared = Arc::clone(&errno);
        let thread = thread::Builder::new()
            .name("tlg-flush".to_owned())
            .spawn(move || {
                for file in from {
                    if let Err(error) = file.sync_data() {
                        shared.store(error.raw_os_error().unwrap_or(-1), Ordering::Relaxed);
                    }
                }
            })
            .context("cannot start thread `tlg-flush`")?;
        Ok(Self {
            to: Some(to),
            thread: Some(thread),
            errno,
        })
    }

    /// Asks for a flush.
    ///
    /// # Errors
    /// What an earlier flush answered, once.
    pub(crate) fn flush(&self, file: File) -> io::Result<()> {
        if let Some(to) = &self.to {
            match to.try_send(file) {
                Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
            }
        }
        match self.errno.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
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
