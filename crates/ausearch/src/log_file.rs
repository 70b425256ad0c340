//! Opens logs through the crate `logs`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use logs::log_file::{LogError, LogFile};

/// Opens a log: a file, an archive, or whatever else can be read.
///
/// # Errors
/// The file cannot be opened.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    match LogFile::open(path) {
        Ok(log) => Ok(Box::new(LogReader { log, offset: 0 })),
        Err(LogError::Open { cause, .. }) => Err(cause),
        // The stock tools read what is no log too.
        Err(_) => Ok(Box::new(File::open(path)?)),
    }
}

/// Reads a log from its start.
#[derive(Debug)]
struct LogReader {
    log: LogFile,
    offset: u64,
}

impl Read for LogReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.log.read_at(buffer, self.offset);
        let count = read.map_err(|error| match error {
            LogError::Read { path, cause } => {
                io::Error::new(cause.kind(), format!("{}: {cause}", path.display()))
            }
            error => io::Error::other(error),
        })?;
        self.offset += u64::try_from(count).unwrap_or_default();
        Ok(count)
    }
}
