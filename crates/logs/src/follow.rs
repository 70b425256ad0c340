//! Watches a log that grows and is rotated.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::cursor::FileId;
use crate::log_file::{LogError, LogFile, is_archive_name};
use crate::log_set::LogEntries;

/// Most files that are remembered as read.
const MAX_READ: usize = 4096;

/// Files that are newer than one that was read.
#[derive(Debug, Default)]
pub(crate) struct NewerFiles {
    /// Oldest first.
    pub(crate) files: Vec<LogFile>,
    /// The file that was read was removed, and others between it and these may have been.
    pub(crate) is_after_loss: bool,
}

/// A watch on the directory of a log.
pub(crate) struct Follow {
    log: PathBuf,
    inotify: Inotify,
    /// Files that were returned or read.
    read: Vec<FileId>,
    /// What a daemon does between a read and the next look at the name of the log.
    #[cfg(test)]
    pub(crate) before_look: Option<Box<dyn FnOnce() + Send>>,
}

impl Follow {
    /// Watches the directory of `log`, whose files that are known are not returned.
    ///
    /// # Errors
    /// The directory cannot be watched.
    pub(crate) fn start(log: &Path, known: Vec<FileId>) -> Result<Self, LogError> {
        let failed = |errno: Errno| LogError::Open {
            path: log.to_owned(),
            cause: errno.into(),
        };
        let flags = InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC;
        let inotify = Inotify::init(flags).map_err(failed)?;
        let directory = match log.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let events = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_ONLYDIR;
        inotify.add_watch(directory, events).map_err(failed)?;
        Ok(Self {
            log: log.to_owned(),
            inotify,
            // Without a time of creation, a new file can have the number of one that was removed.
            read: known
                .into_iter()
                .filter(|file| file.created_ns != 0)
                .collect(),
            #[cfg(test)]
            before_look: None,
        })
    }

    /// Returns the files that are newer than `current`, oldest first; empty while `current` is the log.
    ///
    /// # Errors
    /// The log, or a file that may be newer than `current`, cannot be opened.
    pub(crate) fn newer_files(&mut self, current: Option<FileId>) -> Result<NewerFiles, LogError> {
        #[cfg(test)]
        if let Some(act) = self.before_look.take() {
            act();
        }
        let named = std::fs::metadata(&self.log).map(|about| FileId::of(&about));
        match named {
            Ok(named) if Some(named) == current => return Ok(NewerFiles::default()),
            // Between the steps of a rotation.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(NewerFiles::default());
            }
            _ => {}
        }
        if let Some(current) = current {
            self.add_read(current);
        }
        let mut files = Vec::new();
        let mut failed = None;
        let mut is_after_loss = current.is_some();
        for entry in LogEntries::rotated(&self.log)?.into_entries() {
            match entry {
                Ok(file) if current.is_some() && file.id() == current => {
                    files.clear();
                    (failed, is_after_loss) = (None, false);
                }
                Ok(file) => files.push(file),
                Err(error) if self.may_hide_events(&error) => failed = Some(error),
                Err(_) => {}
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        files.retain(|file| file.id().is_some_and(|id| !self.read.contains(&id)));
        for file in &files {
            file.id().into_iter().for_each(|id| self.add_read(id));
        }
        Ok(NewerFiles {
            files,
            is_after_loss,
        })
    }

    /// Waits until something happens in the directory; returns false after `timeout`.
    ///
    /// # Errors
    /// The error of `poll(2)` or `read(2)`.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<bool, LogError> {
        // Rounded up: the wait must not end before its time.
        let milliseconds = timeout.as_micros().div_ceil(1000);
        let milliseconds = u16::try_from(milliseconds).unwrap_or(u16::MAX);
        let mut fds = [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)];
        let failed = |errno: Errno| LogError::Read {
            path: self.log.clone(),
            cause: errno.into(),
        };
        match poll(&mut fds, PollTimeout::from(milliseconds)) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(true),
            Err(errno) => return Err(failed(errno)),
        }
        match self.inotify.read_events() {
            Ok(_) | Err(Errno::EAGAIN) => Ok(true),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Whether a file that cannot be opened may have events: no directory has some, and what an archive has was followed
    /// as text.
    fn may_hide_events(&self, error: &LogError) -> bool {
        let Some(path) = error.path() else {
            return true;
        };
        path == self.log || !is_archive_name(path) && matches!(error, LogError::Open { .. })
    }

    fn add_read(&mut self, file: FileId) {
        if self.read.contains(&file) {
            return;
        }
        if self.read.len() >= MAX_READ {
            self.read.remove(0);
        }
        self.read.push(file);
    }
}

impl std::fmt::Debug for Follow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follow")
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}
