//! The archiver: indexes the log as it grows, and turns old logs into compressed archives.
//!
//! The log thread indexes the lines that it has written, while no batch waits: they are in the processor's caches, and
//! reading them again would cost more than to index them. When batches wait, or much text is not indexed yet, the index
//! goes to the archiver thread `tlg-archive`, which reads the log back with a low priority, and returns it.
//!
//! Old logs are compressed by the archiver thread. Names in the directory of the log are
//! changed by the log thread alone, because it also rotates: the archiver asks it, see [`NameChange`].
//!
//! An old log is removed after its archive was read back, synced and named. If the daemon ends between these steps,
//! both exist; readers of logs take such a pair as one file, and the next daemon removes the old log.

mod thread;

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anyhow::Context as _;
use crossbeam_channel::{Receiver, Sender, bounded};
use logs::cursor::FileId;
use logs::index::growing::GrowingIndex;
use logs::log_file::LogFile;

use crate::sinks::log_file::Log;
use thread::ArchiverThread;

/// Growth of the log after which the archiver thread reads it, if it has the index: what was written last is still in the
/// page cache.
///
/// # Units
/// Bytes.
const STEP: u64 = 4 << 20;
/// Most text that the log thread reads back when it gets the index.
///
/// # Units
/// Bytes.
const MOST_READ_BACK: u64 = 4 << 20;
/// Length at which the index of a new log is opened: its start identifies it.
const LEAST_LOG: u64 = 4096;

/// What the archiver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArchiverSettings {
    /// Index the log as it grows.
    pub(crate) index: bool,
    /// Turn old logs into archives.
    pub(crate) compress: bool,
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
    /// Indexes that are up to date, for the log thread.
    ready: Receiver<GrowingIndex>,
    /// Indexes for the archiver thread.
    behind: Sender<GrowingIndex>,
    /// The index, if the log thread has it.
    growing: Option<GrowingIndex>,
    indexes: bool,
    /// Path of a new log whose index is not open yet.
    new_log: Option<PathBuf>,
    shared: Arc<Shared>,
    /// Length of the log when the thread was last told.
    told: u64,
}

#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Path of the log.
    path: PathBuf,
    /// The open log: device, inode, and length of its text that stays as it is; `None` after a rotation.
    open: Option<(u64, u64, u64)>,
    /// There may be old logs that were not looked at.
    rotated: bool,
}

impl Archiver {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(settings: ArchiverSettings, path: &Path) -> anyhow::Result<Self> {
        let (wake, awake) = bounded(1);
        // The archiver makes one request at a time.
        let (asks, requests) = bounded(1);
        // There is one index of the open log, and perhaps one of the log before.
        let (offered, ready) = bounded(2);
        let (behind, returned) = bounded(2);
        let shared = Arc::<Shared>::default();
        let thread = ArchiverThread {
            settings,
            asks,
            offered,
            returned,
            shared: Arc::clone(&shared),
            growing: None,
            failed: std::collections::HashMap::new(),
        };
        let thread = std::thread::Builder::new()
            .name("tlg-archive".to_owned())
            .spawn(move || thread.run(&awake))
            .context("cannot start thread `tlg-archive`")?;
        let mut archiver = Self {
            wake: Some(wake),
            thread: Some(thread),
            requests,
            ready,
            behind,
            growing: None,
            indexes: settings.index,
            new_log: None,
            shared,
            told: 0,
        };
        archiver.rotated(path);
        Ok(archiver)
    }

    /// Lines were written to the log at `offset`, the last ones in it.
    pub(super) fn written(
        &mut self,
        log: &Log,
        lines: &[u8],
        offset: u64,
        is_busy: &dyn Fn() -> bool,
    ) {
        if self.growing.is_none() && !is_busy() {
            self.growing = self.open_new(offset).or_else(|| self.ready.try_recv().ok());
            let is_caught_up = self.growing.as_mut().is_some_and(|index| {
                offset.saturating_sub(index.position()) <= MOST_READ_BACK
                    && is_of(log, index)
                    && index.advance(offset).is_ok()
            });
            if !is_caught_up {
                self.return_index();
            }
        }
        if let Some(index) = &mut self.growing {
            if matches!(index.add_lines(lines, offset, is_busy), Ok(true)) {
                return;
            }
            self.return_index();
        }
        let size = offset + u64::try_from(lines.len()).unwrap_or_default();
        self.grown(log, size);
    }

    /// Opens the index of a log that has been begun, when its length is `size`.
    fn open_new(&mut self, size: u64) -> Option<GrowingIndex> {
        if !(LEAST_LOG..=MOST_READ_BACK).contains(&size) {
            return None;
        }
        let log = LogFile::open(&self.new_log.take()?).ok()?;
        GrowingIndex::open(log).ok()?
    }

    /// Leaves the index to the archiver thread.
    fn return_index(&mut self) {
        if let Some(index) = self.growing.take() {
            // The thread has ended, or has two: the log is read when it is searched.
            let _dropped = self.behind.try_send(index);
            self.told = 0;
        }
    }

    /// The log has this length now, all of it written.
    fn grown(&mut self, log: &Log, size: u64) {
        if size >= self.told && size - self.told < STEP {
            return;
        }
        self.told = size;
        if let (Ok(mut state), Ok(about)) = (self.shared.state.lock(), log.metadata()) {
            state.open = Some((about.dev(), about.ino(), size));
        }
        self.wake();
    }

    /// The log was rotated, or has another path.
    pub(super) fn rotated(&mut self, path: &Path) {
        self.return_index();
        if let Ok(index) = self.ready.try_recv() {
            self.growing = Some(index);
            self.return_index();
        }
        self.told = 0;
        self.new_log = self.indexes.then(|| path.to_owned());
        if let Ok(mut state) = self.shared.state.lock() {
            path.clone_into(&mut state.path);
            state.open = None;
            state.rotated = true;
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
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _panicked = thread.join();
        }
    }
}

/// Whether an index is that of the open log.
fn is_of(log: &Log, index: &GrowingIndex) -> bool {
    log.metadata().is_ok_and(|about| {
        let open = (about.dev(), about.ino());
        index
            .log()
            .id()
            .is_some_and(|id| (id.device, id.inode) == open)
    })
}

/// Name of an archive that is not complete.
pub(super) fn temporary_name(log: &Path) -> Option<PathBuf> {
    // The guard of a locked log protects files whose names begin with its name.
    let mut name = log.file_name()?.to_owned();
    name.push(".archive");
    Some(name.into())
}
