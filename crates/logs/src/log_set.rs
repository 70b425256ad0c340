//! A log with its rotated predecessors, a single file, or a stream.

mod rotation;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use crate::cursor::FileId;

/// Name of the current log in a directory of logs.
const LOG_NAME: &str = "audit.log";

/// Files of a log, oldest first.
#[derive(Debug, Default)]
pub struct LogSet {
    files: Vec<LogFile>,
    /// The log that grows and is rotated; `None` for streams and single files.
    current: Option<PathBuf>,
}

/// An open file of a log, or a stream.
pub struct LogFile {
    path: PathBuf,
    content: Content,
}

enum Content {
    Text(File, FileId),
    Stream(Box<dyn Read + Send>),
}

/// Error of opening or reading a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// A file cannot be opened.
    #[error("cannot open log `{}`", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read log `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// Text was cut off from a file while it was read.
    #[error("log `{}` became shorter while it was read: events may be missing", path.display())]
    Cut {
        /// The file.
        path: PathBuf,
    },
    /// A directory has no log.
    #[error("directory `{}` has no file `{LOG_NAME}`", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// A file is a device or a socket.
    #[error("`{}` is not a file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// A file is compressed in a format that is not read.
    #[error("`{path}` is compressed with {format}: pipe the output of `{program} {path}` instead", path = path.display())]
    Compressed {
        /// The file.
        path: PathBuf,
        /// Name of the format.
        format: &'static str,
        /// Program that decompresses it.
        program: &'static str,
    },
    /// The file that a cursor names is gone.
    #[error("the file of the cursor is no longer among the logs")]
    CursorLost,
}

impl LogSet {
    /// Opens a log with its rotated predecessors (`PATH.1`, `PATH.2`, ...). A directory stands for its `audit.log`.
    ///
    /// A rotation meanwhile hides no file: files are opened from the newest, and a file that got another name is
    /// opened once.
    ///
    /// # Errors
    /// [`LogError`] if the log or a predecessor cannot be opened.
    pub fn rotated(path: &Path) -> Result<Self, LogError> {
        let is_directory = path.is_dir();
        let current = if is_directory {
            path.join(LOG_NAME)
        } else {
            path.to_owned()
        };
        let newest = LogFile::open(&current);
        let mut files: Vec<LogFile> = Vec::new();
        match newest {
            Ok(newest) => files.push(newest),
            // The instant between the two steps of a rotation, or a log that has only predecessors.
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
        rotation::open_predecessors(&current, &mut files)?;
        if files.is_empty() {
            return Err(match is_directory {
                true => LogError::Empty {
                    path: path.to_owned(),
                },
                false => LogFile::open(&current)
                    .err()
                    .unwrap_or_else(|| LogError::Empty {
                        path: path.to_owned(),
                    }),
            });
        }
        files.reverse();
        Ok(Self {
            files,
            current: Some(current),
        })
    }

    /// Opens files in the given order; `-` is standard input. Pipes are read as streams.
    ///
    /// # Errors
    /// [`LogError`] if a file cannot be opened.
    pub fn files(paths: &[impl AsRef<Path>]) -> Result<Self, LogError> {
        let mut files = Vec::with_capacity(paths.len());
        for path in paths.iter().map(AsRef::as_ref) {
            files.push(if path == "-" {
                LogFile::stream(Path::new("standard input"), Box::new(io::stdin()))
            } else {
                LogFile::open(path)?
            });
        }
        let current = match paths {
            [path] if path.as_ref() != "-" => Some(path.as_ref().to_owned()),
            _ => None,
        };
        Ok(Self { files, current })
    }

    /// A stream; `name` names it in errors.
    #[must_use]
    pub fn stream(name: &Path, stream: Box<dyn Read + Send>) -> Self {
        Self {
            files: vec![LogFile::stream(name, stream)],
            current: None,
        }
    }

    /// The files, oldest first.
    #[must_use]
    pub fn as_files(&self) -> &[LogFile] {
        &self.files
    }

    /// Files that are open, in this order.
    pub(crate) const fn of_files(files: Vec<LogFile>) -> Self {
        Self {
            files,
            current: None,
        }
    }

    /// The files, oldest first.
    #[must_use]
    pub fn into_files(self) -> Vec<LogFile> {
        self.files
    }

    /// Path of the log that grows; `None` for streams and several files.
    #[must_use]
    pub fn current(&self) -> Option<&Path> {
        self.current.as_deref()
    }
}

impl LogFile {
    /// Opens a file. A pipe becomes a stream.
    ///
    /// # Errors
    /// [`LogError`] if it cannot be opened or is of another type.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let failed = |cause| LogError::Open {
            path: path.to_owned(),
            cause,
        };
        if fs::metadata(path).map_err(failed)?.file_type().is_fifo() {
            let stream = File::open(path).map_err(failed)?;
            return Ok(Self::stream(path, Box::new(stream)));
        }
        Self::open_text(path)
    }

    /// Opens a file, not a pipe.
    fn open_text(path: &Path) -> Result<Self, LogError> {
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
        refuse_compressed(path, start.get(..count).unwrap_or_default())?;
        let id = FileId {
            device: about.dev(),
            inode: about.ino(),
        };
        Ok(Self {
            path: path.to_owned(),
            content: Content::Text(file, id),
        })
    }

    fn stream(name: &Path, stream: Box<dyn Read + Send>) -> Self {
        Self {
            path: name.to_owned(),
            content: Content::Stream(stream),
        }
    }

    /// Path that the file had when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Identity of the file; `None` for a stream.
    #[must_use]
    pub const fn id(&self) -> Option<FileId> {
        match self.content {
            Content::Text(_, id) => Some(id),
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
            Content::Stream(_) => Ok(None),
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
                Content::Stream(stream) => stream.read(room),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return read.map_err(|cause| self.failed(cause)),
            }
        }
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

impl LogError {
    fn is_missing(&self) -> bool {
        matches!(self, Self::Open { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }
}

/// Paths of the rotated predecessors of a log, newest first. Numbers may have gaps.
fn predecessors(current: &Path) -> Vec<PathBuf> {
    let (Some(name), Some(parent)) = (current.file_name(), current.parent()) else {
        return Vec::new();
    };
    let directory = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| number(name, &entry.ok()?.file_name()))
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let with_number = |number: u32| {
        let mut name = OsString::from(name);
        name.push(format!(".{number}"));
        parent.join(name)
    };
    numbers.into_iter().map(with_number).collect()
}

/// Number of a rotated log: `audit.log.N`.
fn number(name: &OsStr, entry: &OsStr) -> Option<u32> {
    let suffix = entry
        .as_encoded_bytes()
        .strip_prefix(name.as_encoded_bytes())?
        .strip_prefix(b".")?;
    if suffix.starts_with(b"0") || suffix.starts_with(b"+") {
        return None;
    }
    str::from_utf8(suffix).ok()?.parse().ok()
}

/// Refuses a compressed file, by its first bytes.
fn refuse_compressed(path: &Path, start: &[u8]) -> Result<(), LogError> {
    const FORMATS: [(&[u8], &str, &str); 4] = [
        (b"\x1f\x8b", "gzip", "zcat"),
        (b"\xfd7zXZ\0", "xz", "xzcat"),
        (b"BZh", "bzip2", "bzcat"),
        (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    ];
    let found = FORMATS.iter().find(|(magic, ..)| start.starts_with(magic));
    match found {
        None => Ok(()),
        Some(&(_, format, program)) => Err(LogError::Compressed {
            path: path.to_owned(),
            format,
            program,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(set: &LogSet) -> Vec<String> {
        let name = |file: &LogFile| file.path().file_name().unwrap().display().to_string();
        set.as_files().iter().map(name).collect()
    }

    #[test]
    fn pipe_among_rotated_files_is_refused() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("audit.log"), "").unwrap();
        let pipe = place.path().join("audit.log.1");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let error = LogSet::rotated(place.path()).unwrap_err();
        assert!(matches!(error, LogError::NotAFile { path } if path == pipe));
    }

    #[test]
    fn rotated_files_are_oldest_first_and_other_files_are_ignored() {
        let place = tempfile::tempdir().unwrap();
        for name in [
            "audit.log",
            "audit.log.1",
            "audit.log.2",
            "audit.log.10",
            "audit.log.01",
            "audit.log.1.gz",
            "audit.logs",
            "other",
        ] {
            fs::write(place.path().join(name), name).unwrap();
        }
        let expected = ["audit.log.10", "audit.log.2", "audit.log.1", "audit.log"];
        let set = LogSet::rotated(place.path()).unwrap();
        assert_eq!(names(&set), expected);
        let set = LogSet::rotated(&place.path().join("audit.log")).unwrap();
        assert_eq!(names(&set), expected);
        let set = LogSet::files(&[place.path().join("other")]).unwrap();
        assert_eq!(names(&set), ["other"]);
    }

    #[test]
    fn file_with_two_names_is_opened_once() {
        let place = tempfile::tempdir().unwrap();
        let current = place.path().join("audit.log");
        fs::write(&current, "x").unwrap();
        fs::hard_link(&current, place.path().join("audit.log.1")).unwrap();
        assert_eq!(names(&LogSet::rotated(&current).unwrap()), ["audit.log"]);
    }

    #[test]
    fn missing_current_log_leaves_the_predecessors() {
        let place = tempfile::tempdir().unwrap();
        let error = LogSet::rotated(place.path()).unwrap_err();
        assert!(error.to_string().contains("has no file `audit.log`"));
        fs::write(place.path().join("audit.log.1"), "x").unwrap();
        let set = LogSet::rotated(place.path()).unwrap();
        assert_eq!(names(&set), ["audit.log.1"]);
        let error = LogSet::rotated(&place.path().join("other")).unwrap_err();
        assert!(error.is_missing());
    }

    #[test]
    fn compressed_files_devices_and_directories_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("audit.log.1.gz");
        fs::write(&path, b"\x1f\x8b\x08\x00").unwrap();
        let text = LogFile::open(&path).unwrap_err().to_string();
        assert!(text.contains("gzip: pipe the output of `zcat /"), "{text}");
        for path in [place.path(), Path::new("/dev/null")] {
            let text = LogFile::open(path).unwrap_err().to_string();
            assert!(text.ends_with("is not a file"), "{text}");
        }
    }
}
