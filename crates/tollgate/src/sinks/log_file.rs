//! The log file: whole batches of records, appended.

pub(crate) mod log_directory;

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Context as _;
use engine::FileRange;
use nix::fcntl::OFlag;
use nix::sys::statvfs::{Statvfs, fstatvfs};

use log_directory::LogDirectory;

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogAccess {
    /// Group that may read it, 0 for none but its owner; `None` leaves it as it is.
    pub(crate) group: Option<u32>,
    /// Further flags of `open(2)`.
    pub(crate) flags: OFlag,
    /// What to do with a log that is there and closed to writers.
    pub(crate) closed: ReadOnlyLog,
}

/// What to do with a log that its owner may not write, as old ones are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOnlyLog {
    /// Refuse it: somebody wants it so.
    Refuse,
    /// Open it to writers again: whoever was to rotate it has ended amid that.
    Reopen,
}

impl LogAccess {
    /// A log for its owner alone, which the kernel brings to the disk when it likes.
    pub(crate) const PLAIN: Self = Self {
        group: None,
        flags: OFlag::empty(),
        closed: ReadOnlyLog::Refuse,
    };
}

/// An open log file.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    /// A write has ended within a line: the next one starts a new line.
    has_partial_line: bool,
}

/// A batch that was not written whole.
#[derive(Debug)]
pub(crate) struct AppendError {
    /// Bytes of it that are in the log.
    pub(crate) written: usize,
    /// Why the others are not.
    pub(crate) error: io::Error,
}

impl Log {
    /// Opens the log for appending; makes it, readable by its owner only, and its directory.
    ///
    /// # Errors
    /// When the path leads through a link at its end, to something that is no regular file, or into a
    /// directory where other users could put one.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        Self::open_at(path, &LogAccess::PLAIN)
    }

    fn open_at(path: &Path, access: &LogAccess) -> anyhow::Result<Self> {
        let name = path
            .file_name()
            .with_context(|| format!("the log must be a file, `{}` is none", path.display()))?;
        Self::open_in(&LogDirectory::of(path)?, Path::new(name), access)
    }

    /// Opens a log in a directory that is open already.
    ///
    /// # Errors
    /// As [`LogDirectory::open_log`].
    pub(crate) fn open_in(
        directory: &LogDirectory,
        name: &Path,
        access: &LogAccess,
    ) -> anyhow::Result<Self> {
        let file = directory.open_log(name, access)?;
        Ok(Self {
            file,
            has_partial_line: false,
        })
    }

    /// Appends a batch of whole lines.
    ///
    /// # Errors
    /// What `write(2)` answered; a part of the batch may have been written, and the next batch starts
    /// on a line of its own.
    pub(crate) fn append(&mut self, batch: &[u8]) -> Result<(), AppendError> {
        if self.has_partial_line {
            let ended = self.file.write_all(b"\n");
            ended.map_err(|error| AppendError { written: 0, error })?;
            self.has_partial_line = false;
        }
        let mut left = batch;
        while !left.is_empty() {
            match self.file.write(left) {
                Ok(0) => {
                    return Err(AppendError {
                        written: batch.len() - left.len(),
                        error: io::ErrorKind::WriteZero.into(),
                    });
                }
                Ok(written) => left = left.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let written = batch.len() - left.len();
                    self.has_partial_line = batch
                        .get(..written)
                        .is_some_and(|text| text.last().is_some_and(|&last| last != b'\n'));
                    return Err(AppendError { written, error });
                }
            }
        }
        Ok(())
    }

    /// Cuts off what is behind `size` bytes, so that the log ends with a whole event.
    ///
    /// # Errors
    /// What `ftruncate(2)` answered; the next batch starts on a line of its own then.
    pub(crate) fn truncate(&mut self, size: u64) -> io::Result<()> {
        let truncate = self.size().and_then(|len| match len > size {
            true => self.file.set_len(size),
            false => Ok(()),
        });
        self.has_partial_line = truncate.is_err();
        truncate
    }

    /// What so many bytes will take in the file when they are appended.
    ///
    /// # Errors
    /// What `fstat(2)` answered.
    pub(crate) fn span(&self, bytes: usize) -> io::Result<FileRange> {
        let about = self.file.metadata()?;
        Ok(FileRange {
            device: about.dev(),
            inode: about.ino(),
            // The line that was torn is ended first.
            offset: about.len() + u64::from(self.has_partial_line),
            bytes: u64::try_from(bytes).map_err(io::Error::other)?,
        })
    }

    /// Ends a write that was under way when a daemon was killed: says whether it is in the log as a whole, and
    /// otherwise takes out what is there of it. A log that is another file has nothing of it.
    ///
    /// # Errors
    /// As [`Log::open`], and what `ftruncate(2)` answered.
    pub(crate) fn resolve_unfinished_write(path: &Path, span: FileRange) -> anyhow::Result<bool> {
        let access = LogAccess {
            closed: ReadOnlyLog::Reopen,
            ..LogAccess::PLAIN
        };
        let log = Self::open_at(path, &access)?;
        let here = log.span(0)?;
        if (here.device, here.inode) != (span.device, span.inode) {
            return Ok(false);
        }
        if here.offset >= span.offset.saturating_add(span.bytes) {
            return Ok(true);
        }
        if here.offset > span.offset {
            let truncate = log.file.set_len(span.offset);
            truncate
                .with_context(|| format!("cannot take a torn end out of `{}`", path.display()))?;
        }
        Ok(false)
    }

    /// Size of the file.
    ///
    /// # Errors
    /// What `fstat(2)` answered.
    pub(crate) fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// How much room its file system has.
    ///
    /// # Errors
    /// What `fstatvfs(3)` answered.
    pub(crate) fn free_space(&self) -> io::Result<Statvfs> {
        Ok(fstatvfs(&self.file)?)
    }

    /// Makes it a file that nobody writes any more, as old logs are.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn close(self, group: u32) -> io::Result<()> {
        log_directory::permit(&self.file, group, log_directory::closed_mode(group))
    }

    /// Another descriptor of the same file.
    ///
    /// # Errors
    /// What `dup(2)` answered.
    pub(crate) fn try_clone(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Waits until everything written is on the disk.
    ///
    /// # Errors
    /// What `fdatasync(2)` answered.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn batches_are_appended_to_a_file_of_the_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/audit.log");
        Log::open(&path).unwrap().append(b"one\n").unwrap();
        Log::open(&path).unwrap().append(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn a_write_that_was_under_way_is_in_the_log_or_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let mut log = Log::open(&path).unwrap();
        log.append(b"before\n").unwrap();
        let span = log.span(10).unwrap();
        assert!(
            !Log::resolve_unfinished_write(&path, span).unwrap(),
            "nothing was written"
        );
        log.append(b"one\ntw").unwrap();
        assert!(
            !Log::resolve_unfinished_write(&path, span).unwrap(),
            "a part was written"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"before\n");
        log.append(b"one\nafter\n").unwrap();
        assert!(
            Log::resolve_unfinished_write(&path, span).unwrap(),
            "all was written"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"before\none\nafter\n");
        let elsewhere = directory.path().join("other.log");
        assert!(
            !Log::resolve_unfinished_write(&elsewhere, span).unwrap(),
            "another file"
        );
    }

    #[test]
    fn a_link_or_a_directory_in_place_of_the_log_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        std::fs::write(&target, b"").unwrap();
        symlink(&target, directory.path().join("link")).unwrap();
        assert!(Log::open(&directory.path().join("link")).is_err());
        assert!(Log::open(directory.path()).is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"");
    }

    #[test]
    fn a_file_with_a_second_name_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        std::fs::write(&path, b"").unwrap();
        std::fs::hard_link(&path, directory.path().join("other")).unwrap();
        let error = Log::open(&path).unwrap_err();
        assert!(format!("{error:#}").contains("one name"), "{error:#}");
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Log::open(&open.join("audit.log")).is_err());
    }
}
