//! One log has one writer: a daemon locks its log for as long as it may write to it.
//!
//! The lock is `flock(2)` on the file `.NAME.lock` beside the log, so it is not lost when the log is rotated, and
//! readers of the log cannot take it. The kernel releases it when the daemon ends, in whatever way.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::log_directory::LogDirectory;
use crate::messages::warn;

/// Longest process ID in the file.
const PID_BYTES: u64 = 20;

/// The lock of a log; released and removed on drop.
#[derive(Debug)]
pub(crate) struct LogLock {
    directory: LogDirectory,
    name: PathBuf,
    _file: Flock<File>,
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
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    warn(&format!(
                        "log `{shown}` is not locked against another daemon: {error}"
                    ));
                    return Ok(None);
                }
                Err(error) => {
                    return Err(error).with_context(|| {
                        let lock = name.display();
                        format!("cannot open `{lock}`, which locks log `{shown}`")
                    });
                }
            };
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(mut file) => {
                    if !directory.is_named(&name, &file) {
                        // The previous writer has removed it after it was opened here.
                        continue;
                    }
                    // Only a message needs the PID: the disk may be full.
                    let _written = file
                        .set_len(0)
                        .and_then(|()| writeln!(file, "{}", std::process::id()));
                    return Ok(Some(Self {
                        directory,
                        name,
                        _file: file,
                    }));
                }
                Err((file, Errno::EWOULDBLOCK)) => bail!(
                    "log `{shown}` is written by another daemon, {}: stop that daemon, or write another file",
                    holder(&file)
                ),
                Err((_, errno)) => {
                    return Err(errno).with_context(|| format!("cannot lock log `{shown}`"));
                }
            }
        }
    }
}

impl Drop for LogLock {
    fn drop(&mut self) {
        // Still locked: another daemon that has opened the file finds out that it has no name any more.
        let _removed = self.directory.remove(&self.name);
    }
}

/// The process that holds the lock, as its file names it.
fn holder(file: &File) -> String {
    let mut text = String::new();
    let read = file.take(PID_BYTES).read_to_string(&mut text);
    match text.trim().parse::<u32>() {
        Ok(pid) if read.is_ok() => format!("process {pid}"),
        _ => "whose process ID is unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn second_writer_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        let other = directory.path().join("other.log");
        let first = LogLock::take(&log).unwrap();
        let error = format!("{:#}", LogLock::take(&log).unwrap_err());
        let expected = format!("process {}", std::process::id());
        assert!(error.contains(&expected), "{error}");
        drop(LogLock::take(&other).unwrap());
        // Rotation moves the log, not the lock.
        fs::write(&log, "").unwrap();
        fs::rename(&log, directory.path().join("audit.log.1")).unwrap();
        LogLock::take(&log).unwrap_err();
        drop(first);
        let names = || fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names(), 1, "the lock leaves nothing behind");
        drop(LogLock::take(&log).unwrap());
    }

    /// A killed daemon leaves the file.
    #[test]
    fn file_without_a_lock_is_no_lock() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        fs::write(directory.path().join(".audit.log.lock"), "12345678\n").unwrap();
        let lock = LogLock::take(&log).unwrap();
        let error = format!("{:#}", LogLock::take(&log).unwrap_err());
        assert!(
            error.contains(&format!("process {}:", std::process::id())),
            "{error}"
        );
        drop(lock);
    }
}
