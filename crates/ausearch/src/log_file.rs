//! Opens logs through the crate `logs`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use logs::log_file::{LogError, LogFile, is_archive_name};

use crate::interpret::message;

/// Why a log cannot be opened.
pub(crate) struct OpenError {
    /// As the stock tools say it, with advice for what they do not read.
    pub(crate) message: String,
    /// The file is an archive, or compressed in another way: the other files are read nevertheless.
    pub(crate) is_compressed: bool,
}

/// Opens a log: a file, an archive, or whatever else can be read.
///
/// # Errors
/// The file cannot be opened.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>, OpenError> {
    let is_archive = is_archive_name(path);
    let (message, is_compressed) = match LogFile::open(path) {
        Ok(log) => {
            return Ok(Box::new(LogReader {
                log,
                offset: Some(0),
            }));
        }
        Err(error @ LogError::Compressed { .. }) => (error.reason(), true),
        Err(error @ (LogError::Open { .. } | LogError::NotAFile { .. })) if is_archive => {
            (error.reason(), true)
        }
        Err(LogError::Open { cause, .. }) => (message(&cause), false),
        // The stock tools read what is no log too.
        Err(_) => match File::open(path) {
            Ok(file) => return Ok(Box::new(file)),
            Err(error) => (message(&error), false),
        },
    };
    Err(OpenError {
        message,
        is_compressed,
    })
}

/// Reads a log from its start. After damaged text it goes on with the next part that can be read.
#[derive(Debug)]
struct LogReader {
    log: LogFile,
    /// `None` if the rest is lost.
    offset: Option<u64>,
}

impl Read for LogReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(offset) = self.offset else {
            return Ok(0);
        };
        match self.log.read_at(buffer, offset) {
            Ok(count) => {
                self.offset = Some(offset + u64::try_from(count).unwrap_or_default());
                Ok(count)
            }
            Err(error) => {
                self.offset = self.log.after_unreadable(offset);
                let kind = match &error {
                    LogError::Read { cause, .. } => cause.kind(),
                    _ => io::ErrorKind::Other,
                };
                let path = self.log.path().display();
                Err(io::Error::new(kind, format!("{path}: {}", error.reason())))
            }
        }
    }
}
