//! A log with its rotated predecessors, a single file, or a stream.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::log_error::STANDARD_INPUT;
use crate::log_file::{LogError, LogFile, is_archive_name};

/// Name of the current log in a directory of logs.
const LOG_NAME: &str = "audit.log";
/// Digits of the number of an archive: names of archives sort by age, and differ from those that other programs give to
/// compressed logs.
const ARCHIVE_DIGITS: usize = 6;
/// The last number of an archive.
pub const LAST_ARCHIVE: u32 = 999_999;
/// How often a log is opened again because it was rotated meanwhile.
const MAX_TRIES: usize = 64;
/// How often, and after what time each, a new log is opened again that this user may not read yet.
const MAX_ACCESS_TRIES: usize = 100;
const BETWEEN_ACCESS_TRIES: Duration = Duration::from_millis(10);

/// Files of a log, oldest first.
#[derive(Debug, Default)]
pub struct LogSet {
    files: Vec<LogFile>,
    /// The log that grows and is rotated; `None` for streams and single files.
    current: Option<PathBuf>,
}

impl LogSet {
    /// Opens a log with its rotated predecessors (`PATH.1`, `PATH.2`, ...) and its archives (`PATH.000001.zst`, ...). A
    /// directory stands for its `audit.log`.
    ///
    /// A rotation meanwhile hides no file: names are read again until the files that were opened have them. A file that
    /// has two names, or an archive too, is opened once.
    ///
    /// # Errors
    /// [`LogError`] if the log, a predecessor or an archive cannot be opened.
    pub fn rotated(path: &Path) -> Result<Self, LogError> {
        LogEntries::rotated(path)?.all()
    }

    /// Opens files in the given order; `-` is standard input. Pipes are read as streams.
    ///
    /// # Errors
    /// [`LogError`] if a file cannot be opened.
    pub fn files(paths: &[impl AsRef<Path>]) -> Result<Self, LogError> {
        LogEntries::files(paths).all()
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

/// Files of a log, oldest first, or why one of them cannot be opened.
#[derive(Debug, Default)]
pub struct LogEntries {
    entries: Vec<Result<LogFile, LogError>>,
    current: Option<PathBuf>,
}

impl LogEntries {
    /// Opens the files of a log as [`LogSet::rotated`] does.
    ///
    /// # Errors
    /// [`LogError`] if there is no log, or its directory cannot be read.
    pub fn rotated(path: &Path) -> Result<Self, LogError> {
        let is_directory = path.is_dir();
        let current = if is_directory {
            path.join(LOG_NAME)
        } else {
            path.to_owned()
        };
        // Only a pipe that was named is read: one among logs may never end.
        if !is_directory && is_pipe(path) {
            return Ok(Self {
                entries: vec![LogFile::open(path)],
                current: Some(current),
            });
        }
        let open = |path: &Path| match path == current {
            true => open_current(path),
            false => LogFile::open_text(path),
        };
        let (opened, _) = open_unchanged(|| names(&current), open)?;
        let mut entries: Vec<Result<LogFile, LogError>> = Vec::with_capacity(opened.len());
        for mut entry in opened {
            if let Ok(file) = &mut entry {
                let mut others = entries.iter_mut().flatten();
                // Where they cannot be compared, both are read.
                if others.any(|other| {
                    file.is_same_file(other) || file.is_archive_of(other).unwrap_or(false)
                }) {
                    continue;
                }
            }
            entries.push(entry);
        }
        if entries.is_empty() {
            let empty = LogError::Empty {
                path: path.to_owned(),
            };
            return Err(match is_directory {
                true => empty,
                false => LogFile::open(&current).err().unwrap_or(empty),
            });
        }
        entries.reverse();
        Ok(Self {
            entries,
            current: Some(current),
        })
    }

    /// Opens files in the given order as [`LogSet::files`] does.
    pub fn files(paths: &[impl AsRef<Path>]) -> Self {
        let open = |path: &Path| match path == "-" {
            true => Ok(LogFile::stream(
                Path::new(STANDARD_INPUT),
                Box::new(io::stdin()),
            )),
            false => LogFile::open(path),
        };
        let current = match paths {
            [path] if path.as_ref() != "-" => Some(path.as_ref().to_owned()),
            _ => None,
        };
        Self {
            entries: paths.iter().map(|path| open(path.as_ref())).collect(),
            current,
        }
    }

    /// The files.
    #[must_use]
    pub fn into_entries(self) -> Vec<Result<LogFile, LogError>> {
        self.entries
    }

    /// The files that can be opened; the errors of the others go to `failed`.
    pub fn readable(self, mut failed: impl FnMut(LogError)) -> LogSet {
        let mut files = Vec::with_capacity(self.entries.len());
        for entry in self.entries {
            match entry {
                Ok(file) => files.push(file),
                Err(error) => failed(error),
            }
        }
        LogSet {
            files,
            current: self.current,
        }
    }

    /// As [`LogEntries::readable`], for a log that is followed, without which the others are of no use.
    ///
    /// # Errors
    /// The file `log` cannot be opened.
    pub fn readable_with(
        self,
        log: &Path,
        mut failed: impl FnMut(LogError),
    ) -> Result<LogSet, LogError> {
        let mut opened = Ok(());
        let logs = self.readable(|error| match error.path() == Some(log) {
            true => opened = Err(error),
            false => failed(error),
        });
        opened.map(|()| logs)
    }

    /// All files.
    fn all(self) -> Result<LogSet, LogError> {
        let files = self.entries.into_iter();
        Ok(LogSet {
            files: files.collect::<Result<_, LogError>>()?,
            current: self.current,
        })
    }
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo())
}

/// The rotated predecessors of a log that are text.
#[derive(Debug, Default)]
pub struct OldLogs {
    /// Those that can be opened, oldest first.
    pub files: Vec<LogFile>,
    /// Those that cannot, with the reason; links are among them.
    pub refused: Vec<(PathBuf, LogError)>,
}

/// Opens the rotated predecessors of a log that are text. If the log is rotated again and again, there may be none.
///
/// # Errors
/// [`LogError`] if the directory cannot be read.
pub fn old_logs(current: &Path) -> Result<OldLogs, LogError> {
    let is_old = |path: &PathBuf| path != current && !is_archive_name(path);
    let names = || names(current).map(|names| names.into_iter().filter(is_old).rev().collect());
    let (opened, is_unchanged) = open_unchanged(names, open_no_link)?;
    let mut found = OldLogs::default();
    // A rotation meanwhile could bring a newer file before an older one.
    if !is_unchanged {
        return Ok(found);
    }
    for entry in opened {
        match entry {
            Ok(file) => found.files.push(file),
            Err(error) => {
                let path = error.path().unwrap_or(current).to_owned();
                found.refused.push((path, error));
            }
        }
    }
    Ok(found)
}

/// Opens a file or an archive that its path names itself, not through a link.
///
/// # Errors
/// [`LogError`] if it cannot be opened, or is neither.
pub fn open_no_link(path: &Path) -> Result<LogFile, LogError> {
    if fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink()) {
        return Err(LogError::NotAFile {
            path: path.to_owned(),
        });
    }
    LogFile::open_text(path)
}

/// Opens the log that grows. Daemons create it for root alone, and give it to its group before anything is written.
///
/// # Errors
/// [`LogError`] if it cannot be opened, also after a while.
fn open_current(path: &Path) -> Result<LogFile, LogError> {
    let is_given_soon = |error: &LogError| {
        let is_refused = matches!(error, LogError::Open { cause, .. }
            if cause.kind() == io::ErrorKind::PermissionDenied);
        is_refused && fs::metadata(path).is_ok_and(|about| about.len() == 0)
    };
    let mut opened = LogFile::open_text(path);
    for _ in 0..MAX_ACCESS_TRIES {
        if !opened.as_ref().is_err_and(is_given_soon) {
            break;
        }
        thread::park_timeout(BETWEEN_ACCESS_TRIES);
        opened = LogFile::open_text(path);
    }
    opened
}

/// Whether a file was removed meanwhile; a link to a file that does not exist was not.
fn is_gone(error: &LogError) -> bool {
    let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink());
    error.is_missing() && !error.path().is_some_and(is_link)
}

/// Paths of the archives of a log, newest first.
///
/// # Errors
/// [`LogError`] if the directory cannot be read.
pub fn archive_paths(current: &Path) -> Result<Vec<PathBuf>, LogError> {
    let is_archive = |path: &PathBuf| path != current && is_archive_name(path);
    Ok(names(current)?.into_iter().filter(is_archive).collect())
}

type Opened = Vec<Result<LogFile, LogError>>;

/// Opens the files of some names until their names are the same afterwards. Returns them in the order of the names, and
/// whether that was so at last; names that are gone are skipped.
fn open_unchanged(
    names: impl Fn() -> Result<Vec<PathBuf>, LogError>,
    open: impl Fn(&Path) -> Result<LogFile, LogError>,
) -> Result<(Opened, bool), LogError> {
    let mut opened = Opened::new();
    let mut is_unchanged = false;
    for _ in 0..MAX_TRIES {
        let listed = names()?;
        let entries = listed.iter().map(|path| open(path));
        opened = entries
            .filter(|entry| !entry.as_ref().is_err_and(is_gone))
            .collect();
        is_unchanged = opened.len() == listed.len()
            && opened.iter().flatten().all(has_its_name)
            && names()? == listed;
        if is_unchanged {
            break;
        }
    }
    Ok((opened, is_unchanged))
}

/// Whether the path of a file still leads to it.
fn has_its_name(file: &LogFile) -> bool {
    file.is_stream() || fs::metadata(file.path()).is_ok_and(|about| file.is_file(&about))
}

/// Existing paths of a log, its predecessors and archives, newest first. Numbers may have gaps.
fn names(current: &Path) -> Result<Vec<PathBuf>, LogError> {
    let (Some(name), Some(parent)) = (current.file_name(), current.parent()) else {
        return Ok(Vec::new());
    };
    let directory = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let failed = |cause| LogError::Open {
        path: directory.to_owned(),
        cause,
    };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        // The log may be readable although its directory is not.
        Err(_) => return Ok(vec![current.to_owned()]),
    };
    let mut predecessors = BTreeMap::new();
    let mut archives = BTreeMap::new();
    let mut paths = Vec::new();
    for entry in entries {
        let found = entry.map_err(failed)?.file_name();
        if found == name {
            paths.push(current.to_owned());
        } else if let Some(number) = old_log_number(name, &found) {
            predecessors.insert(number, parent.join(found));
        } else if let Some(number) = archive_number(name, &found) {
            archives.insert(number, parent.join(found));
        }
    }
    paths.extend(predecessors.into_values());
    paths.extend(archives.into_values().rev());
    Ok(paths)
}

/// Number of the rotated log `entry` of the log `name`: `audit.log.N`.
#[must_use]
pub fn old_log_number(name: &OsStr, entry: &OsStr) -> Option<u32> {
    let suffix = suffix(name, entry)?;
    if suffix.starts_with(b"0") || suffix.starts_with(b"+") {
        return None;
    }
    str::from_utf8(suffix).ok()?.parse().ok()
}

/// Number of the archive `entry` of the log `name`: `audit.log.NNNNNN.zst`. Archives with greater numbers are newer.
#[must_use]
pub fn archive_number(name: &OsStr, entry: &OsStr) -> Option<u32> {
    let digits = suffix(name, entry)?.strip_suffix(b".zst")?;
    let is_number = digits.len() == ARCHIVE_DIGITS && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| str::from_utf8(digits).ok()?.parse().ok())?
}

/// Name of the archive `number` of the log `name`.
#[must_use]
pub fn archive_name(name: &OsStr, number: u32) -> OsString {
    let mut name = name.to_owned();
    name.push(format!(".{number:0ARCHIVE_DIGITS$}.zst"));
    name
}

fn suffix<'e>(name: &OsStr, entry: &'e OsStr) -> Option<&'e [u8]> {
    entry
        .as_encoded_bytes()
        .strip_prefix(name.as_encoded_bytes())?
        .strip_prefix(b".")
}

#[cfg(test)]
mod tests;
