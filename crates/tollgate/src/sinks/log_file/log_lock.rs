//! One log has one writer: a daemon locks its log for as long as it may write to it.
//!
//! The lock is `flock(2)` on the file `.NAME.lock` beside the log, so it is not lost when the log is rotated, and
//! readers of the log cannot take it. The kernel releases it when the daemon ends, in whatever way.
//!
//! The file also has the losses that the log does not report, so that the next writer of the log can report them. It
//! is overwritten in place: a file system that is full has room for that.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::log_directory::LogDirectory;

/// Length of the longest number in the file.
const NUMBER_BYTES: usize = 20;
/// Longest reason in the file; the rest is cut off.
const REASON_BYTES: usize = 200;
/// Length of the file: a line with the process ID, and one with losses.
const FILE_BYTES: usize = NUMBER_BYTES + 1 + NUMBER_BYTES + 1 + REASON_BYTES + 1;

/// Lost events that the log does not report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnreportedLosses {
    pub(crate) events: u64,
    /// Why the last of them was lost.
    pub(crate) reason: String,
}

/// The lock of a log; released on drop, and removed unless it has losses.
#[derive(Debug)]
pub(crate) struct LogLock {
    directory: LogDirectory,
    name: PathBuf,
    file: Flock<File>,
    unreported: UnreportedLosses,
}

impl LogLock {
    /// Locks a log. `None` if the file system has no room for the lock: the log may have.
    ///
    /// # Errors
    /// Another process has locked it; the message names that process.
    pub(crate) fn take(log: &Path) -> anyhow::Result<Option<Self>> {
        let shown = log.display();
        let name = log
            .file_name()
            .with_context(|| format!("the log path `{shown}` has no file name"))?;
        let mut lock_name = std::ffi::OsString::from(".");
        lock_name.push(name);
        lock_name.push(".lock");
        let name = PathBuf::from(lock_name);
        let directory = LogDirectory::of(log)?;
        loop {
            let file = match directory.open_lock(&name) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(None),
                Err(error) => {
                    return Err(error).with_context(|| {
                        let lock = name.display();
                        format!("cannot open `{lock}`, which locks log `{shown}`")
                    });
                }
            };
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => {
                    if !directory.is_named(&name, &file) {
                        // The previous writer has removed it after it was opened here.
                        continue;
                    }
                    let (_previous, unreported) = read(&file);
                    let lock = Self {
                        directory,
                        name,
                        file,
                        unreported,
                    };
                    // Only a message needs the process ID: the disk may be full.
                    let _written = lock.write();
                    return Ok(Some(lock));
                }
                Err((file, Errno::EWOULDBLOCK)) => bail!(
                    "log `{shown}` is written by another daemon, {}: stop that daemon, or write another file",
                    match read(&file).0 {
                        Some(pid) => format!("process {pid}"),
                        None => "whose process ID is unknown".to_owned(),
                    }
                ),
                Err((_, errno)) => {
                    return Err(errno).with_context(|| format!("cannot lock log `{shown}`"));
                }
            }
        }
    }

    /// The losses that the log does not report.
    pub(crate) const fn unreported(&self) -> &UnreportedLosses {
        &self.unreported
    }

    /// Keeps losses for the next writer of the log.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn keep_unreported(&mut self, losses: &UnreportedLosses) -> io::Result<()> {
        if self.unreported == *losses {
            return Ok(());
        }
        self.unreported.clone_from(losses);
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        let UnreportedLosses { events, reason } = &self.unreported;
        let pid = std::process::id();
        let reason = reason.get(..reason.floor_char_boundary(REASON_BYTES));
        let reason = reason.unwrap_or_default().replace('\n', " ");
        let pad = REASON_BYTES - reason.len();
        let text = format!(
            "{pid:<NUMBER_BYTES$}\n{events:<NUMBER_BYTES$} {reason}{:pad$}\n",
            ""
        );
        self.file.write_all_at(text.as_bytes(), 0)
    }
}

impl Drop for LogLock {
    fn drop(&mut self) {
        if self.unreported.events != 0 {
            return;
        }
        // Still locked: another daemon that has opened the file finds out that it has no name any more.
        let _removed = self.directory.remove(&self.name);
    }
}

/// The process and the losses that the file of a lock names.
fn read(mut file: &File) -> (Option<u32>, UnreportedLosses) {
    let mut text = Vec::with_capacity(FILE_BYTES);
    let limit = u64::try_from(FILE_BYTES).unwrap_or(u64::MAX);
    if file.by_ref().take(limit).read_to_end(&mut text).is_err() {
        return (None, UnreportedLosses::default());
    }
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    let pid = lines.next().and_then(|line| line.trim().parse().ok());
    let losses = lines.next().and_then(|line| {
        let (events, reason) = line.split_at_checked(NUMBER_BYTES)?;
        Some(UnreportedLosses {
            events: events.trim().parse().ok()?,
            reason: reason.trim().to_owned(),
        })
    });
    (pid, losses.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn take(log: &Path) -> LogLock {
        LogLock::take(log).unwrap().unwrap()
    }

    #[test]
    fn second_writer_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        let other = directory.path().join("other.log");
        let first = take(&log);
        let error = format!("{:#}", LogLock::take(&log).unwrap_err());
        let expected = format!("process {}", std::process::id());
        assert!(error.contains(&expected), "{error}");
        drop(take(&other));
        // Rotation moves the log, not the lock.
        fs::write(&log, "").unwrap();
        fs::rename(&log, directory.path().join("audit.log.1")).unwrap();
        LogLock::take(&log).unwrap_err();
        drop(first);
        let names = || fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names(), 1, "the lock leaves nothing behind");
        drop(take(&log));
    }

    /// A killed daemon leaves the file.
    #[test]
    fn file_without_a_lock_is_no_lock() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        fs::write(directory.path().join(".audit.log.lock"), "12345678\n").unwrap();
        let lock = take(&log);
        assert_eq!(*lock.unreported(), UnreportedLosses::default());
        let error = format!("{:#}", LogLock::take(&log).unwrap_err());
        assert!(
            error.contains(&format!("process {}:", std::process::id())),
            "{error}"
        );
    }

    #[test]
    fn unreported_losses_stay_until_they_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        let losses = |events, reason: &str| UnreportedLosses {
            events,
            reason: reason.to_owned(),
        };
        let some = losses(12, "no space\nleft");
        take(&log).keep_unreported(&some).unwrap();
        let mut lock = take(&log);
        assert_eq!(*lock.unreported(), losses(12, "no space left"));
        lock.keep_unreported(&losses(u64::MAX, &"é".repeat(300)))
            .unwrap();
        drop(lock);
        let mut lock = take(&log);
        assert_eq!(*lock.unreported(), losses(u64::MAX, &"é".repeat(100)));
        lock.keep_unreported(&UnreportedLosses::default()).unwrap();
        drop(lock);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
