//! A file of a log: text, an archive of text, or a stream.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};

use crate::archive::Archive;
use crate::compressed::{self, TextStream};
use crate::cursor::FileId;
use crate::line_buffer::len;
use crate::log_error;
pub use crate::log_error::LogError;

/// An open file of a log, or a stream.
pub struct LogFile {
    path: PathBuf,
    content: Content,
}

enum Content {
    Text(File, FileId),
    Archive(Box<Archive>, FileId),
    Stream(TextStream),
}

impl LogFile {
    /// Opens a file. A pipe becomes a stream, unless it has the name of an archive.
    ///
    /// # Errors
    /// [`LogError`] if it cannot be opened or is of another type.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let failed = |cause| LogError::Open {
            path: path.to_owned(),
            cause,
        };
        if !is_archive_name(path) && fs::metadata(path).map_err(failed)?.file_type().is_fifo() {
            let stream = File::open(path).map_err(failed)?;
            return Ok(Self::stream(path, Box::new(stream)));
        }
        Self::open_text(path)
    }

    /// Opens a file or an archive, not a pipe.
    pub(crate) fn open_text(path: &Path) -> Result<Self, LogError> {
        let failed = |cause| LogError::Open {
            path: path.to_owned(),
            cause,
        };
        let not_a_file = || LogError::NotAFile {
            path: path.to_owned(),
        };
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(not_a_file());
        }
        // Not blocking: the file may have been replaced by a pipe.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY).bits())
            .open(path)
            .map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(not_a_file());
        }
        let mut start = [0; 8];
        let count = file.read_at(&mut start, 0).map_err(failed)?;
        let start = start.get(..count).unwrap_or_default();
        let id = FileId::of(&about);
        // The name tells too: an archive with a damaged start is not text.
        let content = if is_archive_name(path) || Archive::is_start(start) {
            let archive = Archive::open(file)
                .map_err(failed)?
                .ok_or_else(|| log_error::without_seek_table(path, start))?;
            // Without its time of creation the text file is not known from another one with its inode number.
            let id = archive
                .source()
                .filter(|source| source.created_ns != 0)
                .unwrap_or(id);
            Content::Archive(Box::new(archive), id)
        } else {
            if let Some(found) = compressed::refused(start) {
                return Err(LogError::Compressed {
                    path: path.to_owned(),
                    format: found.format,
                    program: found.program,
                });
            }
            Content::Text(file, id)
        };
        Ok(Self {
            path: path.to_owned(),
            content,
        })
    }

    /// A stream of text, or of text compressed with zstd; `name` names it in errors.
    pub(crate) fn stream(name: &Path, stream: Box<dyn Read + Send>) -> Self {
        Self {
            path: name.to_owned(),
            content: Content::Stream(TextStream::new(stream)),
        }
    }

    /// Path that the file had when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Identity of the file, and for an archive that of the text file that it was made of; `None` for a stream.
    #[must_use]
    pub const fn id(&self) -> Option<FileId> {
        match self.content {
            Content::Text(_, id) | Content::Archive(_, id) => Some(id),
            Content::Stream(_) => None,
        }
    }

    /// When the file was last written to; `None` for a stream, or if the file system does not tell.
    #[must_use]
    pub fn modified(&self) -> Option<SystemTime> {
        match &self.content {
            Content::Text(file, _) => file.metadata().ok()?.modified().ok(),
            Content::Archive(archive, _) => archive.modified(),
            Content::Stream(_) => None,
        }
    }

    /// Size of the text; `None` for a stream.
    ///
    /// # Units
    /// Bytes.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub fn size(&self) -> Result<Option<u64>, LogError> {
        match &self.content {
            Content::Text(file, _) => file
                .metadata()
                .map(|about| Some(about.len()))
                .map_err(|cause| self.failed(cause)),
            Content::Archive(archive, _) => Ok(Some(archive.text_len())),
            Content::Stream(_) => Ok(None),
        }
    }

    /// Length of the file itself, which for an archive is less than that of its text; 0 for a stream.
    ///
    /// # Units
    /// Bytes.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub fn stored_len(&self) -> Result<u64, LogError> {
        match &self.content {
            Content::Archive(archive, _) => {
                archive.stored_len().map_err(|cause| self.failed(cause))
            }
            Content::Text(..) | Content::Stream(_) => Ok(self.size()?.unwrap_or(0)),
        }
    }

    /// Whether the text file has no name any more.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        match &self.content {
            Content::Text(file, _) => file.metadata().is_ok_and(|about| about.nlink() == 0),
            Content::Archive(..) | Content::Stream(_) => false,
        }
    }

    /// Reads text from `offset`, or the next bytes of a stream. Returns 0 at the end.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub fn read_at(&mut self, room: &mut [u8], offset: u64) -> Result<usize, LogError> {
        loop {
            let read = match &mut self.content {
                Content::Text(file, _) => file.read_at(room, offset),
                Content::Archive(archive, _) => archive.read_at(room, offset),
                Content::Stream(stream) => stream.read(room),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return read.map_err(|cause| self.failed(cause)),
            }
        }
    }

    /// Has the kernel read a part of a file from the disk, in the background: it is read soon.
    pub fn will_need(&self, range: Range<u64>) {
        let Content::Text(file, _) = &self.content else {
            return;
        };
        let start = i64::try_from(range.start).unwrap_or(i64::MAX);
        let length = i64::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
        // Without it, the reads take longer.
        let _advised = posix_fadvise(file, start, length, PosixFadviseAdvice::POSIX_FADV_WILLNEED);
    }

    /// Where the text goes on that can be read after an error at `offset`: at the next part of an archive. `None` if the
    /// rest of the file is lost.
    #[must_use]
    pub fn after_unreadable(&self, offset: u64) -> Option<u64> {
        self.archive()?.after_frame(offset)
    }

    /// The archive, if the file is one.
    pub(crate) fn archive(&self) -> Option<&Archive> {
        match &self.content {
            Content::Archive(archive, _) => Some(archive),
            Content::Text(..) | Content::Stream(_) => None,
        }
    }

    /// Whether the text is compressed, and cannot grow.
    #[must_use]
    pub const fn is_archive(&self) -> bool {
        matches!(self.content, Content::Archive(..))
    }

    /// Whether it is a stream.
    pub(crate) const fn is_stream(&self) -> bool {
        matches!(self.content, Content::Stream(_))
    }

    /// Whether both are the same file, under two names.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        match (&self.content, &other.content) {
            (Content::Text(_, one), Content::Text(_, other)) => one == other,
            (Content::Archive(one, _), Content::Archive(other, _)) => one
                .file_id()
                .ok()
                .is_some_and(|id| other.file_id().ok() == Some(id)),
            _ => false,
        }
    }

    /// Whether this is an archive with the text of `other`: made of a file with its number, as long, and with the same
    /// text at both ends.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub fn is_archive_of(&mut self, other: &mut Self) -> Result<bool, LogError> {
        let Some(source) = self.archive().and_then(Archive::source) else {
            return Ok(false);
        };
        let theirs = match &other.content {
            Content::Text(_, id) => Some(*id),
            Content::Archive(archive, _) => archive.source(),
            Content::Stream(_) => None,
        };
        let (Some(len), Some(other_len)) = (self.size()?, other.size()?) else {
            return Ok(false);
        };
        // A file system can have another device number after a mount.
        let is_source =
            theirs.is_some_and(|id| (id.inode, id.created_ns) == (source.inode, source.created_ns));
        if !is_source || len != other_len {
            return Ok(false);
        }
        let end = len.saturating_sub(COMPARED_BYTES);
        Ok(self.part(0)? == other.part(0)? && self.part(end)? == other.part(end)?)
    }

    /// Some text from an offset.
    fn part(&mut self, offset: u64) -> Result<Vec<u8>, LogError> {
        let mut text = vec![0; usize::try_from(COMPARED_BYTES).unwrap_or(0)];
        let count = self.fill_at(&mut text, offset)?;
        text.truncate(count);
        Ok(text)
    }

    /// Whether this open file is the one that `about` describes.
    pub(crate) fn is_file(&self, about: &Metadata) -> bool {
        let open = match &self.content {
            Content::Text(_, id) => Some(*id),
            Content::Archive(archive, _) => archive.file_id().ok(),
            Content::Stream(_) => None,
        };
        open == Some(FileId::of(about))
    }

    /// Fills `room` with text from `offset`. Returns the number of bytes: fewer than it has only at the end.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub fn fill_at(&mut self, room: &mut [u8], offset: u64) -> Result<usize, LogError> {
        let mut count = 0;
        while let Some(rest) = room.get_mut(count..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, offset + len(count))? {
                0 => break,
                read => count += read,
            }
        }
        Ok(count)
    }

    /// The error of a file from which text was cut off.
    pub(crate) fn cut(&self) -> LogError {
        LogError::Cut {
            path: self.path.clone(),
        }
    }

    fn failed(&self, cause: io::Error) -> LogError {
        LogError::Read {
            path: self.path.clone(),
            cause,
        }
    }
}

impl fmt::Debug for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogFile")
            .field("path", &self.path)
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

/// Whether the name of a file is one of compressed text.
#[must_use]
pub fn is_archive_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}

/// Text at each end by which an archive is compared with a text file.
const COMPARED_BYTES: u64 = 4096;
