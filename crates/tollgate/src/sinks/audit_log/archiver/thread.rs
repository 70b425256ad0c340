//! The archiver thread: writes archives.
//!
//! An old log that cannot be read stays as it is, and the others are compressed; it is tried again after each rotation
//! and from time to time. What concerns all of them, such as low disk space, stops the round.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use logs::archive_writer::{ArchiveError, have_same_text, write_with_room};
use logs::log_file::{LogError, LogFile};
use logs::log_set;
use nix::errno::Errno;

use super::failures::{Failures, Subject};
use super::{
    ArchivedLog, Machine, NameChange, NameRequest, Shared, State, remove_unfinished, temporary_name,
};
use crate::sinks::log_file::log_directory::LogDirectory;

/// Priority below every other thread of the daemon.
const NICE: i32 = 10;
/// How long an answer of the log thread is awaited before the end of the daemon is looked for.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// An archive takes less than this part of the text of most logs.
const USUAL_PART: u64 = 10;

/// What the thread has.
pub(super) struct ArchiverThread {
    pub(super) asks: Sender<NameRequest>,
    pub(super) shared: Arc<Shared>,
    pub(super) failures: Failures,
    pub(super) machine: Machine,
    /// When old logs are looked at again, because one failed.
    pub(super) retry_at: Option<Instant>,
}

/// Why an old log was not compressed.
enum Failure {
    /// The log: others may be compressed.
    OfLog(anyhow::Error),
    /// Something else.
    OfAll(anyhow::Error),
}

impl ArchiverThread {
    pub(super) fn run(mut self, awake: &Receiver<()>) {
        engine::set_nice(NICE);
        loop {
            let woken = match self.retry_at {
                Some(at) => awake.recv_deadline(at),
                None => awake.recv().map_err(RecvTimeoutError::from),
            };
            if woken == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            let (log, rotated) = match self.shared.state.lock() {
                Ok(mut state) => (state.log.clone(), std::mem::take(&mut state.rotated)),
                Err(_) => return,
            };
            let is_due = self.retry_at.is_some_and(|at| at <= Instant::now());
            if rotated || is_due {
                let done = self.old_logs(&log);
                self.retry_at = (!done).then(|| Instant::now() + self.machine.retry_after);
            }
        }
    }

    /// Whether nothing more is done for a log: the daemon ends, or has another log now.
    fn stops(&self, log: &ArchivedLog) -> bool {
        let is_current = |state: MutexGuard<'_, State>| state.log.path == log.path;
        !self.shared.goes_on() || !self.shared.state.lock().is_ok_and(is_current)
    }

    /// Turns old logs into archives, the oldest first. Returns false if one is to be tried again.
    fn old_logs(&mut self, of: &ArchivedLog) -> bool {
        let found = match log_set::old_logs(&of.path) {
            Ok(found) => found,
            Err(error) => {
                let text = format!("cannot look for old logs: {:#}", anyhow!(error));
                self.failures.report(Subject::OldLogs, text);
                return false;
            }
        };
        let mut present = Vec::new();
        let mut is_done = true;
        for (path, error) in found.refused {
            if is_shortage(&error) {
                let text = format!("old logs are not read now: {:#}", anyhow!(error));
                self.failures.report(Subject::OldLogs, text);
                return false;
            }
            // Nothing is known of what is gone.
            if let Ok(about) = fs::symlink_metadata(&path) {
                let subject = Subject::OldLog(about.dev(), about.ino());
                present.push(subject);
                self.report_old_log(subject, &path, &error.into());
                is_done = false;
            }
        }
        // One is open at a time: what is open keeps its space when it is removed.
        present.extend(found.files.iter().map(subject_of));
        let mut handled = Vec::new();
        let mut next = oldest(found.files, &handled);
        while let Some(mut log) = next {
            let subject = subject_of(&log);
            handled.push(subject);
            let path = log.path().to_owned();
            match self.compress(of, &mut log) {
                Ok(()) => self.failures.ended(subject),
                Err(_) if self.stops(of) => return true,
                Err(Failure::OfLog(error)) => {
                    self.report_old_log(subject, &path, &error);
                    is_done = false;
                }
                Err(Failure::OfAll(error)) => {
                    let text = format!("old logs are not compressed now: {error:#}");
                    self.failures.report(Subject::OldLogs, text);
                    is_done = false;
                    break;
                }
            }
            drop(log);
            next = log_set::old_logs(&of.path)
                .ok()
                .and_then(|found| oldest(found.files, &handled));
        }
        self.failures.retain_old_logs(&present);
        if is_done {
            self.failures.ended(Subject::OldLogs);
        }
        is_done
    }

    fn report_old_log(&mut self, subject: Subject, path: &Path, error: &anyhow::Error) {
        let text = format!(
            "old log `{}` stays as it is, and is not compressed: {error:#}",
            path.display()
        );
        self.failures.report(subject, text);
    }

    /// Turns an old log into an archive, unless `num_logs` has removed it meanwhile.
    fn compress(&self, of: &ArchivedLog, log: &mut LogFile) -> Result<(), Failure> {
        if log.is_removed() {
            return Ok(());
        }
        let id = match log.id() {
            Some(id) if !log.is_archive() => id,
            _ => return Err(Failure::OfLog(anyhow!("it is compressed already"))),
        };
        let directory = LogDirectory::existing(&of.path).map_err(Failure::OfAll)?;
        match self.archive_of(of, log)? {
            // The daemon ended after the archive had got its name, perhaps before that was on disk.
            Some(archive) => self
                .sync_archive(&directory, &archive)
                .map_err(Failure::OfAll)?,
            None => self.archive(of, &directory, log)?,
        }
        (self.machine.sync)(directory.as_file())
            .context("cannot sync the directory")
            .and_then(|()| self.ask(of, NameChange::RemoveOldLog(id)))
            .map_err(Failure::OfAll)
    }

    /// The archive with the text of an old log, all of which is compared. Archives that cannot be read are none.
    fn archive_of(&self, of: &ArchivedLog, log: &mut LogFile) -> Result<Option<PathBuf>, Failure> {
        let paths =
            log_set::archive_paths(&of.path).map_err(|error| Failure::OfAll(error.into()))?;
        for path in paths {
            let Ok(mut archive) = log_set::open_no_link(&path) else {
                continue;
            };
            if archive
                .is_archive_of(log)
                .is_ok_and(|is_archive| is_archive)
                && have_same_text(&mut archive, log, &|| self.stops(of))
                    .is_ok_and(|is_same| is_same)
            {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    fn sync_archive(&self, directory: &LogDirectory, archive: &Path) -> anyhow::Result<()> {
        let name = archive.file_name().context("the archive has no name")?;
        let file = directory.open_own(Path::new(name))?;
        let file = file.context("the archive was removed")?;
        (self.machine.sync)(&file).context("cannot sync the archive")
    }

    /// Writes the archive of an old log.
    fn archive(
        &self,
        of: &ArchivedLog,
        directory: &LogDirectory,
        log: &mut LogFile,
    ) -> Result<(), Failure> {
        let name = temporary_name(&of.path)
            .context("the log path has no file name")
            .map_err(Failure::OfAll)?;
        let out = remove_unfinished(directory, &of.path)
            .and_then(|()| directory.create_new(&name))
            .with_context(|| format!("cannot create `{}`", name.display()))
            .map_err(Failure::OfAll)?;
        let is_named = self.write_archive(of, log, &out).and_then(|()| {
            if log.is_removed() {
                return Ok(false);
            }
            let named = self.ask(of, NameChange::NameArchive);
            named.map(|()| true).map_err(Failure::OfAll)
        });
        if !matches!(is_named, Ok(true)) {
            // The next archive would replace it anyway.
            let _gone = directory.remove(&name);
        }
        is_named.map(|_named| ())
    }

    /// Writes an archive to disk, as old as the log.
    fn write_archive(
        &self,
        of: &ArchivedLog,
        log: &mut LogFile,
        out: &File,
    ) -> Result<(), Failure> {
        let free_space = || (self.machine.free_space)(out);
        let limit = free_space().map(|space| space.next_limit(&of.limits));
        let limit = limit
            .context("cannot ask for the free space")
            .map_err(Failure::OfAll)?;
        let has_room = |bytes: u64| free_space().is_ok_and(|space| space.has_room(bytes, limit));
        let usual = log.size().ok().flatten().unwrap_or(0) / USUAL_PART;
        let written = if has_room(usual) {
            write_with_room(log, out, &|| self.stops(of), &has_room)
        } else {
            Err(ArchiveError::NoRoom)
        };
        written.map_err(|error| match error {
            ArchiveError::Log(_) | ArchiveError::Different => Failure::OfLog(error.into()),
            ArchiveError::NoRoom => Failure::OfAll(anyhow!(
                "an archive takes some {} % of a log, and that much is not free above space_left or admin_space_left \
                 in auditd.conf: make room",
                100 / USUAL_PART
            )),
            _ => Failure::OfAll(error.into()),
        })?;
        if let Some(modified) = log.modified() {
            // The age of a log only helps to find it.
            let _failed = out.set_times(FileTimes::new().set_modified(modified));
        }
        (self.machine.sync)(out)
            .context("cannot sync the archive")
            .map_err(Failure::OfAll)
    }

    /// Has the log thread change names, and waits for that.
    fn ask(&self, of: &ArchivedLog, change: NameChange) -> anyhow::Result<()> {
        let (to, answer) = bounded(1);
        // The log thread takes it, or has ended.
        let log = of.path.clone();
        let _gone = self.asks.try_send(NameRequest { log, change, to });
        loop {
            match answer.recv_timeout(BETWEEN_LOOKS) {
                Ok(done) => return done.context("cannot change names"),
                Err(_) if self.shared.ends.load(Ordering::Relaxed) => {
                    anyhow::bail!("the daemon ends")
                }
                Err(_) => {}
            }
        }
    }
}

fn subject_of(log: &LogFile) -> Subject {
    log.id()
        .map_or(Subject::OldLogs, |id| Subject::OldLog(id.device, id.inode))
}

/// The first of some old logs, which are in order, that was not handled yet.
fn oldest(logs: Vec<LogFile>, handled: &[Subject]) -> Option<LogFile> {
    logs.into_iter()
        .find(|log| !handled.contains(&subject_of(log)))
}

/// Whether the machine lacks something, and not the log. An old log that is left out for a moment would get its archive
/// after newer ones.
fn is_shortage(error: &LogError) -> bool {
    let LogError::Open { cause, .. } = error else {
        return false;
    };
    let errno = cause.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM))
}
