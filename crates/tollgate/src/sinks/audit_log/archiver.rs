//! The archiver: turns old logs into compressed archives, in the thread `tlg-archive`.
//!
//! Names in the directory of the log are changed by the log thread alone, because it also rotates: the archiver asks it,
//! see [`NameChange`].
//!
//! An old log is removed after its archive was read back, synced and named. If the daemon ends between these steps,
//! both exist; readers of logs take such a pair as one file, and the next daemon removes the old log.

mod failures;
mod thread;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use audit::conf::auditd::SpaceLimit;
use crossbeam_channel::{Receiver, Sender, bounded};
use logs::archive_writer::is_begun;
use logs::cursor::FileId;

use super::free_space::FreeSpace;
use super::put_off::PutOff;
use crate::messages::warn;
use crate::sinks::log_file::log_directory::LogDirectory;
use failures::Failures;
use thread::ArchiverThread;

/// A log whose old logs become archives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArchivedLog {
    pub(super) path: PathBuf,
    /// Limits of the free space that have actions.
    pub(super) limits: Vec<SpaceLimit>,
}

/// A function of an open file.
type OfFile<T> = Arc<dyn Fn(&File) -> io::Result<T> + Send + Sync>;

/// What the thread does with the machine.
#[derive(Clone)]
pub(super) struct Machine {
    /// Waits until a file or directory is on disk.
    pub(super) sync: OfFile<()>,
    /// Free space where a file is.
    pub(super) free_space: OfFile<FreeSpace>,
    pub(super) warn: Arc<dyn Fn(&str) + Send + Sync>,
    /// After what time an old log that could not be compressed is tried again.
    pub(super) retry_after: Duration,
}

impl Machine {
    /// The local one.
    pub(super) fn local() -> Self {
        Self {
            sync: Arc::new(File::sync_all),
            free_space: Arc::new(FreeSpace::of),
            warn: Arc::new(warn),
            retry_after: Duration::from_mins(10),
        }
    }
}

/// A change of names that the log thread makes for the archiver, and where it answers.
#[derive(Debug)]
pub(crate) struct NameRequest {
    /// Path of the log that the names are of.
    pub(super) log: PathBuf,
    pub(super) change: NameChange,
    pub(super) to: Sender<io::Result<()>>,
}

/// A change of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameChange {
    /// Give the complete archive its name.
    NameArchive,
    /// Remove the old log that an archive has the text of.
    RemoveOldLog(FileId),
}

/// A running archiver, as the log thread has it.
#[derive(Debug)]
pub(super) struct Archiver {
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    requests: Receiver<NameRequest>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ends: AtomicBool,
    put_off: Arc<PutOff>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    log: ArchivedLog,
    /// There may be old logs that were not looked at.
    rotated: bool,
}

impl Shared {
    /// Waits while work is put off. Returns false when the daemon ends.
    fn goes_on(&self) -> bool {
        while let Some(left) = self.put_off.left_for_archiver()
            && !self.ends.load(Ordering::Relaxed)
        {
            std::thread::park_timeout(left);
        }
        !self.ends.load(Ordering::Relaxed)
    }
}

impl Archiver {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        log: ArchivedLog,
        put_off: Arc<PutOff>,
        machine: Machine,
    ) -> anyhow::Result<Self> {
        let (wake, awake) = bounded(1);
        // The archiver makes one request at a time.
        let (asks, requests) = bounded(1);
        let shared = Arc::new(Shared {
            ends: AtomicBool::new(false),
            put_off,
            state: Mutex::new(State { log, rotated: true }),
        });
        let thread = ArchiverThread {
            asks,
            shared: Arc::clone(&shared),
            failures: Failures::new(Arc::clone(&machine.warn)),
            machine,
            retry_at: None,
        };
        let thread = std::thread::Builder::new()
            .name("tlg-archive".to_owned())
            .spawn(move || thread.run(&awake))
            .context("cannot start thread `tlg-archive`")?;
        let archiver = Self {
            wake: Some(wake),
            thread: Some(thread),
            requests,
            shared,
        };
        archiver.wake();
        Ok(archiver)
    }

    /// The log was rotated, or has another path.
    pub(super) fn rotated(&self, log: ArchivedLog) {
        if let Ok(mut state) = self.shared.state.lock() {
            *state = State { log, rotated: true };
        }
        self.wake();
    }

    fn wake(&self) {
        if let Some(wake) = &self.wake {
            // It is awake already.
            let _full = wake.try_send(());
        }
    }

    /// Changes of names that the thread asks for.
    pub(super) fn requests(&self) -> Receiver<NameRequest> {
        self.requests.clone()
    }

    /// Stops the thread: an archive that is not complete is dropped.
    pub(super) fn end(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.thread
            .iter()
            .for_each(|thread| thread.thread().unpark());
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _panicked = thread.join();
        }
    }
}

/// Name of an archive that is not complete.
pub(super) fn temporary_name(log: &Path) -> Option<PathBuf> {
    // The guard of a locked log protects files whose names begin with its name.
    let mut name = log.file_name()?.to_owned();
    name.push(".archive");
    Some(name.into())
}

/// Removes an archive that is not complete: the daemon ended, or the log has another path now. The log is locked, and no
/// thread writes that archive. Other files stay.
///
/// # Errors
/// The kernel's error, or the file is none that tollgate made.
pub(super) fn remove_unfinished(directory: &LogDirectory, log: &Path) -> io::Result<()> {
    let Some(name) = temporary_name(log) else {
        return Ok(());
    };
    let Some(file) = directory.open_own(&name)? else {
        return Ok(());
    };
    let mut start = Vec::new();
    file.take(4).read_to_end(&mut start)?;
    if is_begun(&start) {
        return directory.remove(&name).map(|_removed| ());
    }
    Err(io::Error::other("it has other content than an archive"))
}
