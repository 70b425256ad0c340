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

mod failures;
mod thread;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use audit::conf::auditd::{MaxLogFileAction, Settings, SpaceLimit};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use logs::archive_writer::is_begun;
use logs::cursor::FileId;
use logs::index::growing::GrowingIndex;
use logs::log_set;

use super::free_space::FreeSpace;
use crate::messages::warn;
use crate::sinks::log_file::Log;
use crate::sinks::log_file::log_directory::LogDirectory;
use failures::Failures;
use thread::ArchiverThread;

/// How long work is put off after events arrived faster than they were read: bursts have pauses.
const PUT_OFF: Duration = Duration::from_secs(1);
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

impl ArchiverSettings {
    /// What the settings of `auditd.conf` leave without effect.
    pub(crate) fn without_effect(self, conf: &Settings) -> Option<String> {
        let keeps_all = conf.max_log_file_action == MaxLogFileAction::KeepLogs;
        if !self.compress || keeps_all {
            return None;
        }
        if conf.num_logs < 2 {
            return Some(format!(
                "`compress = true` has no effect: num_logs is {} in auditd.conf, so no old log is kept",
                conf.num_logs
            ));
        }
        (conf.max_log_file_action != MaxLogFileAction::Rotate).then(|| {
            "`compress = true` has an effect only after `tollgate auditctl --signal rotate`: max_log_file_action is \
             not ROTATE in auditd.conf"
                .to_owned()
        })
    }
}

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
    /// After what time an old log that could not be compressed or indexed is tried again.
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
    /// Indexes that are up to date, for the log thread.
    ready: Receiver<GrowingIndex>,
    /// Indexes for the archiver thread.
    behind: Sender<GrowingIndex>,
    /// The index, if the log thread has it.
    growing: Option<GrowingIndex>,
    settings: ArchiverSettings,
    /// Path of the log.
    path: PathBuf,
    /// The index of the log is not open yet.
    is_new: bool,
    shared: Arc<Shared>,
    /// Length of the log when the thread was last told.
    told: u64,
}

#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    /// Until when work is put off.
    put_off: PutOff,
    state: Mutex<State>,
}

/// A time until which work is put off.
#[derive(Debug)]
struct PutOff {
    start: Instant,
    /// Nanoseconds after the start.
    until: AtomicU64,
}

impl Default for PutOff {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            until: AtomicU64::new(0),
        }
    }
}

impl PutOff {
    fn begin(&self) {
        let until = (self.start.elapsed() + PUT_OFF).as_nanos();
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        self.until.store(until, Ordering::Relaxed);
    }

    /// How long work is still put off.
    fn left(&self) -> Option<Duration> {
        let until = Duration::from_nanos(self.until.load(Ordering::Relaxed));
        // Most often it never was.
        if until.is_zero() {
            return None;
        }
        until.checked_sub(self.start.elapsed())
    }
}

#[derive(Debug, Default)]
struct State {
    /// `None` before the start.
    log: Option<ArchivedLog>,
    /// The open log: device, inode, and length of its text that stays as it is; `None` after a rotation.
    open: Option<(u64, u64, u64)>,
    /// There may be old logs that were not looked at.
    rotated: bool,
}

impl Shared {
    /// Waits while work is put off. Returns false when the daemon ends.
    fn goes_on(&self) -> bool {
        while let Some(left) = self.put_off.left()
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
        settings: ArchiverSettings,
        log: ArchivedLog,
        machine: Machine,
    ) -> anyhow::Result<Self> {
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
            failures: Failures::new(Arc::clone(&machine.warn)),
            machine,
            lacks_index: false,
            retry_at: None,
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
            settings,
            path: PathBuf::new(),
            is_new: false,
            shared,
            told: 0,
        };
        archiver.rotated(log);
        Ok(archiver)
    }

    /// Events arrive faster than they are read: does nothing for some time.
    pub(super) fn put_off(&self) {
        self.shared.put_off.begin();
    }

    /// Lines were written to the log at `offset`, the last ones in it.
    pub(super) fn written(
        &mut self,
        log: &Log,
        lines: &[u8],
        offset: u64,
        is_busy: &dyn Fn() -> bool,
    ) {
        // Somebody cut the log: the rest of the index is that of other text.
        if self
            .growing
            .as_ref()
            .is_some_and(|index| offset < index.position())
        {
            self.rebuild();
        }
        let size = offset + u64::try_from(lines.len()).unwrap_or_default();
        if self.shared.put_off.left().is_some() {
            self.return_index();
            return self.grown(log, size);
        }
        let had_index = self.growing.is_some();
        if !is_busy() {
            self.take_ready(log);
        }
        if self.growing.is_none() {
            // A new log is not left to the thread, which would hardly catch up while batches wait.
            self.growing = self.open_new(offset);
        }
        if !had_index {
            self.catch_up(log, offset);
        }
        if let Some(index) = &mut self.growing {
            match index.add_lines(lines, offset, is_busy) {
                Ok(true) => return,
                Ok(false) => self.return_index(),
                Err(_) => self.rebuild(),
            }
        }
        self.grown(log, size);
    }

    /// Opens the index of a log that has been begun, when its length is `size`.
    fn open_new(&mut self, size: u64) -> Option<GrowingIndex> {
        if !self.is_new || !(LEAST_LOG..=MOST_READ_BACK).contains(&size) {
            return None;
        }
        self.is_new = false;
        let log = log_set::open_no_link(&self.path).ok()?;
        GrowingIndex::open(log).ok()?
    }

    /// Takes the index from the archiver thread, which ends that of a log before.
    fn take_ready(&mut self, log: &Log) {
        while let Ok(index) = self.ready.try_recv() {
            if self.growing.is_none() && is_of(log, &index) {
                self.growing = Some(index);
            } else {
                let _dropped = self.behind.try_send(index);
                self.wake();
            }
        }
    }

    /// Reads the log up to `offset`, if that is near.
    fn catch_up(&mut self, log: &Log, offset: u64) {
        let Some(index) = &mut self.growing else {
            return;
        };
        if !is_of(log, index) {
            self.return_index();
            self.wake();
        } else if offset < index.position() || index.is_cut().is_ok_and(|is_cut| is_cut) {
            self.rebuild();
        } else if offset - index.position() > MOST_READ_BACK {
            self.return_index();
        } else if index.advance(offset).is_err() {
            self.rebuild();
        }
    }

    /// Drops the index, and has it built from the text.
    fn rebuild(&mut self) {
        self.growing = None;
        self.is_new = self.settings.index;
        self.told = 0;
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
    pub(super) fn rotated(&mut self, log: ArchivedLog) {
        if let Some(index) = self.growing.take()
            && let Err(TrySendError::Full(index)) = self.behind.try_send(index)
        {
            // The thread is behind. Ending the index costs less than reading the log again.
            let _unfinished = index.finish();
        }
        while let Ok(index) = self.ready.try_recv() {
            let _dropped = self.behind.try_send(index);
        }
        self.told = 0;
        self.is_new = self.settings.index;
        log.path.clone_into(&mut self.path);
        if let Ok(mut state) = self.shared.state.lock() {
            state.log = Some(log);
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

    /// As [`ArchiverSettings::without_effect`].
    pub(super) fn without_effect(&self, conf: &Settings) -> Option<String> {
        self.settings.without_effect(conf)
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
