//! Where records come from: log files in order, one file, or a pipe.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use logs::compressed::TextStream;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::config::{self, Config};
use crate::interpret::message;
use crate::log_times::oldest_needed;

/// How to find the input.
#[derive(Clone, Debug)]
pub(crate) struct Request<'r> {
    pub(crate) path: Option<&'r [u8]>,
    pub(crate) force_logs: bool,
}

/// What was found.
#[derive(Debug)]
pub(crate) enum Found {
    /// A file that was named.
    File(PathBuf),
    /// The log with this path, and its rotated files.
    Logs(PathBuf),
    Stdin,
}

/// Finds the input; messages go to `messages`.
///
/// # Errors
/// Why the path that was named cannot be inspected.
pub(crate) fn find(
    request: &Request<'_>,
    config: &Config,
    messages: &mut Vec<u8>,
) -> Result<Found, String> {
    use std::os::unix::ffi::OsStrExt as _;
    if let Some(path) = request.path {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        return match path.metadata() {
            Ok(found) if found.is_dir() => {
                let log = path.join("audit.log");
                messages.extend_from_slice(
                    format!("NOTE - using logs in {}\n", shown(&path)).as_bytes(),
                );
                Ok(Found::Logs(log))
            }
            Ok(_) => Ok(Found::File(path)),
            Err(error) => Err(message(&error)),
        };
    }
    if !request.force_logs && is_pipe() {
        return Ok(Found::Stdin);
    }
    Ok(Found::Logs(config.log.clone()))
}

/// The path of the log in a directory, as the stock tools build it.
fn shown(directory: &Path) -> String {
    let directory = directory.display().to_string();
    let slash = if directory.ends_with('/') { "" } else { "/" };
    format!("{directory}{slash}audit.log")
}

/// The rotated files of a log, the oldest that is needed first.
pub(crate) fn rotated_files(log: &Path, start: i64) -> Vec<PathBuf> {
    let mut files = config::newest_first(log);
    if files.is_empty() {
        return vec![log.to_owned()];
    }
    files.truncate(oldest_needed(&files, start) + 1);
    files.reverse();
    files
}

fn is_pipe() -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    let file = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata())
        .is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Text of the standard input, which may be compressed with zstd. A read that waits for three seconds fails, so that what
/// was read so far can be shown.
///
/// # Errors
/// When there is no standard input.
pub(crate) fn patient_stdin() -> io::Result<NamedStdin> {
    let input = PatientStdin {
        input: File::from(io::stdin().as_fd().try_clone_to_owned()?),
    };
    Ok(NamedStdin(TextStream::new(Box::new(input))))
}

/// Names the standard input in errors.
#[derive(Debug)]
pub(crate) struct NamedStdin(TextStream);

impl Read for NamedStdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| match error.kind() {
            kind @ io::ErrorKind::InvalidData => {
                io::Error::new(kind, format!("standard input: {error}"))
            }
            _ => error,
        })
    }
}

struct PatientStdin {
    input: File,
}

/// Milliseconds without input after which what was read so far is shown.
const PATIENCE_MS: u16 = 3000;

impl Read for PatientStdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut descriptors = [PollFd::new(self.input.as_fd(), PollFlags::POLLIN)];
        if poll(&mut descriptors, PollTimeout::from(PATIENCE_MS))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.input.read(buffer)
    }
}
