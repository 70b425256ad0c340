//! Reads a part of a log file.

use std::io::{self, Read};

use logs::log_file::LogFile;

/// Reads a part of a file.
pub(crate) struct PartReader<'f> {
    pub(crate) file: &'f mut LogFile,
    /// Offset of the next byte.
    pub(crate) at: u64,
    /// Offset behind the last byte.
    pub(crate) end: u64,
}

impl Read for PartReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let room = buffer.get_mut(..length).unwrap_or_default();
        let count = self.file.read_at(room, self.at).map_err(io::Error::other)?;
        self.at += u64::try_from(count).unwrap_or_default();
        Ok(count)
    }
}
