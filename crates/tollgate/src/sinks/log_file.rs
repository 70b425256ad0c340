//! The log file: appends whole batches of records.

pub(crate) mod log_directory;
pub(crate) mod log_lock;

use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use anyhow::Context as _;
use engine::FileRange;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::sys::statvfs::{Statvfs, fstatvfs};

use log_directory::LogDirectory;

/// Writes for which blocks are allocated ahead: those of a log that grows fast.
///
/// # Units
/// Bytes.
const LARGE_WRITE: u64 = 128 << 10;
/// Blocks that are allocated ahead. A write to them takes a fifth less CPU time than one for which the file system
/// reserves each block and allocates it later.
///
/// # Units
/// Bytes.
const RESERVED: u64 = 8 << 20;
/// Nothing is allocated ahead on a file system with less free space.
///
/// # Units
/// Bytes.
const MUCH_SPACE: u64 = 1 << 30;

/// How to open a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogAccess {
    /// Group that may read the log, 0 for the owner only; `None` leaves it unchanged.
    pub(crate) group: Option<u32>,
    /// Additional flags of `open(2)`.
    pub(crate) flags: OFlag,
    /// What to do with a read-only log.
    pub(crate) closed: ReadOnlyLog,
}

/// What to do with a log that its owner may not write, as old logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOnlyLog {
    /// Refuse it: it was made read-only on purpose.
    Refuse,
    /// Make it writable again: a daemon ended during a rotation.
    Reopen,
}

impl LogAccess {
    /// Readable by the owner only, without synchronous writes.
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
    /// The last write ended within a line, perhaps that of a daemon that was killed: the next one starts a new line.
    has_partial_line: bool,
    /// End of the blocks that are allocated ahead, or were asked for.
    reserved: u64,
}

/// A batch that was not written completely.
#[derive(Debug)]
pub(crate) struct AppendError {
    /// Bytes of the batch in the log.
    pub(crate) written: usize,
    /// The error.
    pub(crate) error: io::Error,
}

impl Log {
    /// Opens the log for appending. Creates it with mode 0600, and its directory.
    ///
    /// # Errors
    /// The path is a symbolic link or not a regular file, or other users could replace files in the directory.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        Self::open_at(path, &LogAccess::PLAIN)
    }

    fn open_at(path: &Path, access: &LogAccess) -> anyhow::Result<Self> {
        let name = path
            .file_name()
            .with_context(|| format!("the log path `{}` has no file name", path.display()))?;
        Self::open_in(&LogDirectory::of(path)?, Path::new(name), access)
    }

    /// Opens a log in an open directory.
    ///
    /// # Errors
    /// As [`LogDirectory::open_log`].
    pub(crate) fn open_in(
        directory: &LogDirectory,
        name: &Path,
        access: &LogAccess,
    ) -> anyhow::Result<Self> {
        let file = directory.open_log(name, access)?;
        let has_partial_line = ends_within_line(&file);
        Ok(Self {
            file,
            has_partial_line,
            reserved: 0,
        })
    }

    /// Appends a batch of whole lines.
    ///
    /// # Errors
    /// The error of `write(2)`. A part of the batch may have been written; the next batch then starts a new line.
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
                    self.has_partial_line = ends_within_line(&self.file);
                    return Err(AppendError { written, error });
                }
            }
        }
        Ok(())
    }

    /// Allocates blocks for a large write and for those after it. They stay behind the end of the file: its size is that
    /// of its text. A failure changes nothing.
    pub(crate) fn reserve(&mut self, span: FileRange) {
        let end = span.offset + span.bytes;
        if span.bytes < LARGE_WRITE || end <= self.reserved {
            return;
        }
        let from = self.reserved.max(span.offset);
        self.reserved = end + RESERVED;
        let has_space = self.free_space().is_ok_and(|space| {
            space
                .blocks_available()
                .saturating_mul(space.fragment_size())
                >= MUCH_SPACE
        });
        let range = (i64::try_from(from), i64::try_from(self.reserved - from));
        if let (true, (Ok(from), Ok(bytes))) = (has_space, range) {
            let keep_size = FallocateFlags::FALLOC_FL_KEEP_SIZE;
            // Not every file system can do it.
            let _allocated = fallocate(&self.file, keep_size, from, bytes);
        }
    }

    /// Frees the blocks behind the end of the file, also those that a daemon which was killed has left. Nobody else may
    /// write to the file meanwhile.
    pub(crate) fn free_reserved(&mut self) {
        /// File systems allocate some more than the size.
        const SLACK: u64 = 1 << 20;
        self.reserved = 0;
        let Ok(about) = self.file.metadata() else {
            return;
        };
        if about.blocks().saturating_mul(512) >= about.len() + SLACK {
            // What is not freed now is freed with the file.
            let _freed = self.file.set_len(about.len());
        }
    }

    /// Truncates the log to `size` bytes, so that it ends with a whole event.
    ///
    /// # Errors
    /// The error of `ftruncate(2)`.
    pub(crate) fn truncate(&mut self, size: u64) -> io::Result<()> {
        let result = self.size().and_then(|len| match len > size {
            true => self.file.set_len(size),
            false => Ok(()),
        });
        self.has_partial_line = ends_within_line(&self.file);
        // Blocks behind the new end are free.
        self.reserved = 0;
        result
    }

    /// File range that the next `bytes` bytes will occupy.
    ///
    /// # Errors
    /// The error of `fstat(2)`.
    pub(crate) fn span(&self, bytes: usize) -> io::Result<FileRange> {
        let about = self.file.metadata()?;
        Ok(FileRange {
            device: about.dev(),
            inode: about.ino(),
            // A partial line is terminated first.
            offset: about.len() + u64::from(self.has_partial_line),
            bytes: u64::try_from(bytes).map_err(io::Error::other)?,
        })
    }

    /// Completes a write during which a daemon was killed. Returns true if it is in the log completely; otherwise
    /// truncates its beginning. Another file has none of it.
    ///
    /// # Errors
    /// As [`Log::open`], and the error of `ftruncate(2)`.
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
            log.file.set_len(span.offset).with_context(|| {
                format!(
                    "cannot truncate an incomplete write at the end of `{}`",
                    path.display()
                )
            })?;
        }
        Ok(false)
    }

    /// Size of the file.
    ///
    /// # Errors
    /// The error of `fstat(2)`.
    pub(crate) fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// What the file system tells about the file.
    ///
    /// # Errors
    /// The error of `fstat(2)`.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Whether the file has no name any more.
    pub(crate) fn is_deleted(&self) -> bool {
        self.file.metadata().is_ok_and(|about| about.nlink() == 0)
    }

    /// Statistics of the file system.
    ///
    /// # Errors
    /// The error of `fstatvfs(3)`.
    pub(crate) fn free_space(&self) -> io::Result<Statvfs> {
        Ok(fstatvfs(&self.file)?)
    }

    /// Makes the file read-only, as old logs are.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn close(self, group: u32) -> io::Result<()> {
        log_directory::set_group_and_mode(&self.file, group, log_directory::read_only_mode(group))
    }

    /// Duplicates the descriptor.
    ///
    /// # Errors
    /// The error of `dup(2)`.
    pub(crate) fn try_clone(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Waits until all data is on disk.
    ///
    /// # Errors
    /// The error of `fdatasync(2)`.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Whether a file ends within a line, also if that cannot be read: an empty line harms no reader.
fn ends_within_line(file: &File) -> bool {
    let last_byte = || {
        let mut byte = [b'\n'];
        if let Some(last) = file.metadata()?.len().checked_sub(1) {
            file.read_exact_at(&mut byte, last)?;
        }
        io::Result::Ok(byte)
    };
    last_byte().map_or(true, |byte| byte != [b'\n'])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn batches_are_appended_to_an_owner_only_file() {
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
    fn interrupted_write_is_complete_or_removed() {
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
    fn blocks_ahead_of_large_writes_are_freed() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().join("audit.log");
        let mut log = Log::open(&path).unwrap();
        let text = "line\n".repeat(60_000);
        for _ in 0..3 {
            log.reserve(log.span(text.len()).unwrap());
            log.append(text.as_bytes()).unwrap();
        }
        let read = || std::fs::read(&path).unwrap();
        assert!(read() == text.repeat(3).as_bytes());
        log.free_reserved();
        log.sync().unwrap();
        let about = log.metadata().unwrap();
        assert!(about.blocks() * 512 < about.len() + RESERVED / 2);
        log.append(b"end\n").unwrap();
        assert!(read() == (text.repeat(3) + "end\n").as_bytes());
    }

    /// As on a full disk: not even the end of the line could be written.
    #[test]
    fn partial_line_is_ended_before_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        std::fs::write(&path, b"one\ntw").unwrap();
        let mut log = Log::open(&path).unwrap();
        let span = log.span(6).unwrap();
        assert_eq!(span.offset, 7);
        log.truncate(span.offset).unwrap();
        log.append(b"three\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntw\nthree\n");
    }

    #[test]
    fn link_or_directory_as_log_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        std::fs::write(&target, b"").unwrap();
        symlink(&target, directory.path().join("link")).unwrap();
        assert!(Log::open(&directory.path().join("link")).is_err());
        assert!(Log::open(directory.path()).is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"");
    }

    #[test]
    fn hard_linked_log_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        std::fs::write(&path, b"").unwrap();
        std::fs::hard_link(&path, directory.path().join("other")).unwrap();
        let error = Log::open(&path).unwrap_err();
        assert!(format!("{error:#}").contains("hard links"), "{error:#}");
    }

    #[test]
    fn log_directory_writable_by_others_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Log::open(&open.join("audit.log")).is_err());
    }
}
