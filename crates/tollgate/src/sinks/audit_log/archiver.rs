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

use std::collections::HashMap;
use std::fs::{File, FileTimes};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use crossbeam_channel::{Receiver, Sender, bounded};
use logs::archive_writer::{have_same_text, write};
use logs::cursor::FileId;
use logs::index::growing::GrowingIndex;
use logs::log_file::LogFile;
use logs::log_set;

use crate::messages::warn;
use crate::sinks::log_file::Log;
use crate::sinks::log_file::log_directory::LogDirectory;

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
/// Priority below every other thread of the daemon.
const NICE: i32 = 10;
/// How long an answer of the log thread is awaited before the end of the daemon is looked for.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

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
            failed: HashMap::new(),
        };
        let thread = thread::Builder::new()
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
        if self.growing.is_none() {
            // A new log is never left to the thread, which would hardly catch up while batches wait.
            self.growing = self.open_new(offset);
            if self.growing.is_none() && !is_busy() {
                self.growing = self.ready.try_recv().ok();
            }
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

/// What the thread has.
struct ArchiverThread {
    settings: ArchiverSettings,
    asks: Sender<NameRequest>,
    offered: Sender<GrowingIndex>,
    returned: Receiver<GrowingIndex>,
    shared: Arc<Shared>,
    growing: Option<GrowingIndex>,
    /// Errors that were reported, by their subject, until it succeeds.
    failed: HashMap<&'static str, String>,
}

impl ArchiverThread {
    fn run(mut self, awake: &Receiver<()>) {
        engine::set_nice(NICE);
        while awake.recv().is_ok() {
            let (path, open, rotated) = match self.shared.state.lock() {
                Ok(mut state) => {
                    let rotated = std::mem::take(&mut state.rotated);
                    (state.path.clone(), state.open, rotated)
                }
                Err(_) => return,
            };
            if self.settings.index {
                let indexed = self.index(&path, open);
                self.report("cannot index the log", indexed);
            }
            if !rotated {
                continue;
            }
            if self.settings.index && !self.settings.compress {
                let indexed = index_old_logs(&path, &|| self.ends());
                self.report("cannot index an old log", indexed);
            }
            if self.settings.compress {
                let compressed = self.compress(&path);
                self.report("cannot compress an old log", compressed);
            }
        }
    }

    /// Reports an error once.
    fn report(&mut self, subject: &'static str, result: anyhow::Result<()>) {
        match result {
            Ok(()) => drop(self.failed.remove(subject)),
            Err(_) if self.ends() => {}
            Err(error) => {
                let error = format!("{error:#}");
                if self.failed.get(subject) != Some(&error) {
                    warn(&format!("{subject}: {error}"));
                    self.failed.insert(subject, error);
                }
            }
        }
    }

    fn ends(&self) -> bool {
        self.shared.ends.load(Ordering::Relaxed)
    }

    /// Indexes what was added to the log, and the rest of one that was rotated.
    fn index(&mut self, path: &Path, open: Option<(u64, u64, u64)>) -> anyhow::Result<()> {
        let is_open = |id: FileId| {
            open.is_some_and(|(device, inode, _)| (id.device, id.inode) == (device, inode))
        };
        let returned: Vec<GrowingIndex> = self.returned.try_iter().collect();
        for growing in returned.into_iter().chain(self.growing.take()) {
            let is_current = growing.log().id().is_some_and(is_open);
            if growing.is_cut()? {
                // The index of other text is replaced when it is opened.
            } else if is_current {
                self.growing = Some(growing);
            } else {
                finish(growing, &|| self.ends())?;
            }
        }
        let Some((.., size)) = open else {
            return Ok(());
        };
        if self.growing.is_none() {
            let log = LogFile::open(path)?;
            if log.id().is_some_and(is_open) {
                self.growing = GrowingIndex::open(log)?;
            }
        }
        if let Some(mut growing) = self.growing.take() {
            if !catch_up(&mut growing, size, &|| self.ends())? {
                return Ok(());
            }
            if let Err(error) = self.offered.try_send(growing) {
                self.growing = Some(error.into_inner());
            }
        }
        Ok(())
    }

    /// Turns old logs into archives, the oldest first.
    fn compress(&self, path: &Path) -> anyhow::Result<()> {
        for mut log in log_set::old_logs(path)? {
            // The daemon ended after the archive had got its name.
            if !self.has_archive(path, &mut log)? {
                self.archive(path, &mut log)?;
            }
            if let Some(id) = log.id() {
                self.ask(path, NameChange::RemoveOldLog(id))?;
            }
        }
        Ok(())
    }

    /// Whether there is an archive with the text of an old log, all of which is compared. Archives that cannot be read
    /// are none.
    fn has_archive(&self, path: &Path, log: &mut LogFile) -> anyhow::Result<bool> {
        for archive in log_set::archive_paths(path)? {
            let Ok(mut archive) = LogFile::open(&archive) else {
                continue;
            };
            if archive
                .is_archive_of(log)
                .is_ok_and(|is_archive| is_archive)
                && have_same_text(&mut archive, log, &|| self.ends()).is_ok_and(|is_same| is_same)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the archive of an old log.
    fn archive(&self, path: &Path, log: &mut LogFile) -> anyhow::Result<()> {
        let shown = log.path().display().to_string();
        let directory = LogDirectory::existing(path)?;
        let name = temporary_name(path).context("the log path has no file name")?;
        let out = directory
            .create_new(&name)
            .context("cannot create the archive")?;
        let result = write_archive(log, &out, &|| self.ends())
            .with_context(|| format!("`{shown}`"))
            .and_then(|()| {
                self.ask(path, NameChange::NameArchive)?;
                directory.sync().context("cannot sync the directory")
            });
        if result.is_err() {
            // The next archive would replace it anyway.
            let _gone = directory.remove(&name);
        }
        result
    }

    /// Has the log thread change names, and waits for that.
    fn ask(&self, log: &Path, change: NameChange) -> anyhow::Result<()> {
        let (to, answer) = bounded(1);
        // The log thread takes it, or has ended.
        let log = log.to_owned();
        let _gone = self.asks.try_send(NameRequest { log, change, to });
        loop {
            match answer.recv_timeout(BETWEEN_LOOKS) {
                Ok(done) => return done.context("cannot change names"),
                Err(_) if self.ends() => anyhow::bail!("the daemon ends"),
                Err(_) => {}
            }
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

/// Indexes old logs that were rotated before they were indexed. An archive has an index of its own.
fn index_old_logs(path: &Path, ends: &dyn Fn() -> bool) -> anyhow::Result<()> {
    for log in log_set::old_logs(path)? {
        if let Some(growing) = GrowingIndex::open(log)? {
            finish(growing, ends)?;
        }
    }
    Ok(())
}

/// Indexes all of a log that no longer grows, unless the daemon ends.
fn finish(mut growing: GrowingIndex, ends: &dyn Fn() -> bool) -> anyhow::Result<()> {
    let size = growing.log().size()?.unwrap_or(0);
    if catch_up(&mut growing, size, ends)? {
        growing.finish()?;
    }
    Ok(())
}

/// Reads a log up to `size`. Returns false if the daemon ends before.
fn catch_up(
    growing: &mut GrowingIndex,
    size: u64,
    ends: &dyn Fn() -> bool,
) -> anyhow::Result<bool> {
    let mut at = growing.position();
    while at < size {
        if ends() {
            return Ok(false);
        }
        at = size.min(at + STEP / 4);
        growing.advance(at)?;
    }
    Ok(!ends())
}

/// Name of an archive that is not complete.
pub(super) fn temporary_name(log: &Path) -> Option<PathBuf> {
    // The guard of a locked log protects files whose names begin with its name.
    let mut name = log.file_name()?.to_owned();
    name.push(".archive");
    Some(name.into())
}

/// Writes an archive to disk, as old as the log.
fn write_archive(log: &mut LogFile, out: &File, ends: &dyn Fn() -> bool) -> anyhow::Result<()> {
    write(log, out, ends)?;
    if let Some(modified) = log.modified() {
        // The age of a log only helps to find it.
        let _failed = out.set_times(FileTimes::new().set_modified(modified));
    }
    out.sync_all().context("cannot sync the archive")
}
