//! The thread that waits for the disk: it syncs logs and replaces the status, while the event loop goes on.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use logs::state_directory::StateDirectory;

use super::progress::STATUS;
use crate::output::info;

/// What the thread does at once.
#[derive(Debug)]
pub(super) struct Work {
    /// Files that are to be synced, with the names of their hosts.
    pub(super) files: Vec<(String, File)>,
    /// The status, if it has changed.
    pub(super) status: Option<String>,
}

/// The thread.
#[derive(Debug)]
pub(super) struct Syncer {
    /// It holds one piece of work at most: nothing is sent to a busy thread.
    sender: Sender<Work>,
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_busy: AtomicBool,
    error: Mutex<Option<String>>,
}

impl Syncer {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(state: StateDirectory) -> anyhow::Result<Self> {
        let (sender, receiver) = channel();
        let shared = Arc::new(Shared::default());
        let told = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("tlg-sync".to_owned())
            .spawn(move || work(&state, &receiver, &told))
            .context("cannot start a thread")?;
        Ok(Self {
            sender,
            thread,
            shared,
        })
    }

    /// Whether it has something to do. Work is given only to an idle thread.
    pub(super) fn is_busy(&self) -> bool {
        self.shared.is_busy.load(Ordering::Acquire)
    }

    /// Why logs are not on the disk.
    pub(super) fn error(&self) -> Option<String> {
        let error = self.shared.error.lock();
        error.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives it work.
    pub(super) fn give(&self, work: Work) {
        self.shared.is_busy.store(true, Ordering::Release);
        // The thread ends only with this value.
        let _is_given = self.sender.send(work);
    }

    /// Waits until it has done the last work.
    pub(super) fn end(self, last: Work) {
        self.give(last);
        drop(self.sender);
        let _ended = self.thread.join();
    }
}

fn work(state: &StateDirectory, receiver: &Receiver<Work>, shared: &Shared) {
    for work in receiver {
        for (host, file) in work.files {
            if let Err(error) = file.sync_data() {
                let error = format!(
                    "cannot sync the log of `{host}`, whose records were acknowledged: {error}"
                );
                info(&error);
                *shared.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        }
        if let Some(status) = work.status
            && let Err(error) = state.replace(STATUS, &status)
        {
            info(format_args!("{:#}", anyhow::Error::from(error)));
        }
        shared.is_busy.store(false, Ordering::Release);
    }
}
