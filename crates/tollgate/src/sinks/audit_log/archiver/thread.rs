//! The archiver thread: reads the log back for the index, and writes archives.

use std::collections::HashMap;
use std::fs::{File, FileTimes};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use crossbeam_channel::{Receiver, Sender, bounded};
use logs::archive_writer::{have_same_text, write};
use logs::cursor::FileId;
use logs::index::growing::GrowingIndex;
use logs::log_file::LogFile;
use logs::log_set;

use super::{ArchiverSettings, NameChange, NameRequest, STEP, Shared, temporary_name};
use crate::messages::warn;
use crate::sinks::log_file::log_directory::LogDirectory;

/// Priority below every other thread of the daemon.
const NICE: i32 = 10;
/// How long an answer of the log thread is awaited before the end of the daemon is looked for.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// What the thread has.
pub(super) struct ArchiverThread {
    pub(super) settings: ArchiverSettings,
    pub(super) asks: Sender<NameRequest>,
    pub(super) offered: Sender<GrowingIndex>,
    pub(super) returned: Receiver<GrowingIndex>,
    pub(super) shared: Arc<Shared>,
    pub(super) growing: Option<GrowingIndex>,
    /// Errors that were reported, by their subject, until it succeeds.
    pub(super) failed: HashMap<&'static str, String>,
}

impl ArchiverThread {
    pub(super) fn run(mut self, awake: &Receiver<()>) {
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

/// Writes an archive to disk, as old as the log.
fn write_archive(log: &mut LogFile, out: &File, ends: &dyn Fn() -> bool) -> anyhow::Result<()> {
    write(log, out, ends)?;
    if let Some(modified) = log.modified() {
        // The age of a log only helps to find it.
        let _failed = out.set_times(FileTimes::new().set_modified(modified));
    }
    out.sync_all().context("cannot sync the archive")
}
