//! Errors of opening and reading logs.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::archive::Archive;
use crate::escaped::Escaped;

/// Error of opening or reading a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// A file cannot be opened.
    #[error("cannot open log `{}`", shown(path))]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read log `{}`", shown(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// Text was cut off from a file while it was read.
    #[error(
        "log `{}` became shorter while it was read: events may be missing",
        shown(path)
    )]
    Cut {
        /// The file.
        path: PathBuf,
    },
    /// A directory has no log.
    #[error("directory `{}` has no file `audit.log`", shown(path))]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// A file is a device or a socket.
    #[error("`{}` is not a file", shown(path))]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// A file is compressed in a format that is not read.
    #[error("`{path}` is compressed with {format}: pipe the output of `{program} {path}` instead", path = shown(path))]
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

impl LogError {
    /// The file or directory that cannot be read; `None` if the error is about none.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Open { path, .. }
            | Self::Read { path, .. }
            | Self::Cut { path }
            | Self::Empty { path }
            | Self::NotAFile { path }
            | Self::Compressed { path, .. } => Some(path),
            Self::CursorLost => None,
        }
    }

    /// What to do about a file that cannot be read.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        let cause = match self {
            Self::Open { cause, .. } | Self::Read { cause, .. } => cause,
            Self::NotAFile { .. } => return Some(MOVE),
            _ => return None,
        };
        match cause.kind() {
            io::ErrorKind::PermissionDenied => Some(
                "read it as root; members of `log_group` of auditd.conf need a file of that group with mode 0640",
            ),
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                // A stream cannot be moved.
                let is_stream = self.path() == Some(Path::new(STANDARD_INPUT));
                (!is_stream).then_some(MOVE)
            }
            _ => None,
        }
    }

    /// What is wrong and what to do, without the name of the file.
    #[must_use]
    pub fn reason(&self) -> String {
        let what = match self {
            Self::Open { cause, .. } | Self::Read { cause, .. } => cause.to_string(),
            Self::Cut { .. } => "text was cut off while it was read".to_owned(),
            Self::NotAFile { .. } => "it is not a file".to_owned(),
            Self::Compressed {
                format, program, ..
            } => format!("it is compressed with {format}: pipe the output of `{program}` instead"),
            Self::Empty { .. } | Self::CursorLost => self.to_string(),
        };
        with_advice(what, self.advice())
    }

    /// The message with its cause and advice, on one line.
    #[must_use]
    pub fn report(&self) -> String {
        let cause = std::error::Error::source(self).map(ToString::to_string);
        let what = match cause {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        };
        with_advice(what, self.advice())
    }

    /// Whether a file does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Open { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }
}

/// Name of the standard input in errors.
pub(crate) const STANDARD_INPUT: &str = "standard input";
const MOVE: &str = "move it out of the directory, or restore it from a backup";

fn with_advice(what: String, advice: Option<&str>) -> String {
    match advice {
        Some(advice) => format!("{what}; {advice}"),
        None => what,
    }
}

/// A path for messages: names of files may be hostile.
fn shown(path: &Path) -> String {
    Escaped(path.as_os_str().as_encoded_bytes()).to_string()
}

/// The error of a file that should be an archive, but has no seek table at its end. `start` are its first bytes.
pub(crate) fn without_seek_table(path: &Path, start: &[u8]) -> LogError {
    let stem = path
        .file_stem()
        .map(OsStr::as_encoded_bytes)
        .unwrap_or_default();
    let number = stem.rsplit(|&byte| byte == b'.').next().unwrap_or_default();
    let is_ours = number.len() == 6 && number.iter().all(u8::is_ascii_digit);
    let is_zstd = Archive::is_start(start);
    if !is_ours && is_zstd {
        return LogError::Compressed {
            path: path.to_owned(),
            format: "zstd, without a seek table",
            program: "zstdcat",
        };
    }
    let text = match is_zstd {
        true => {
            "the archive is damaged: its end, with the seek table, is missing; `zstdcat` may still print the rest"
        }
        false => "it is no archive: it has neither the start nor the end of one",
    };
    LogError::Open {
        path: path.to_owned(),
        cause: io::Error::new(io::ErrorKind::InvalidData, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_name_the_file_the_cause_and_what_to_do() {
        let open = |kind: io::ErrorKind| LogError::Open {
            path: "/logs/\x1b.zst".into(),
            cause: kind.into(),
        };
        let denied = open(io::ErrorKind::PermissionDenied).report();
        assert!(denied.starts_with("cannot open log `/logs/"), "{denied}");
        assert!(!denied.contains('\x1b'), "{denied:?}");
        assert!(denied.contains(".zst`: permission denied; "), "{denied}");
        assert!(denied.contains("`log_group`"), "{denied}");
        let damaged = open(io::ErrorKind::InvalidData);
        assert!(damaged.report().ends_with(MOVE));
        assert_eq!(damaged.reason(), format!("invalid data; {MOVE}"));
        assert_eq!(open(io::ErrorKind::NotFound).advice(), None);
        let other = without_seek_table(Path::new("a.zst"), b"\x28\xb5\x2f\xfd");
        assert!(other.report().contains("`zstdcat a.zst`"));
        let text = without_seek_table(Path::new("log.000001.zst"), b"type=");
        assert!(text.report().contains("it is no archive"));
    }
}
