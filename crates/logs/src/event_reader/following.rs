//! A reader that follows its log: what it waits for, and what it closes.

use std::time::Duration;

use audit::record::assemble::END_OF_EVENT_TIMEOUT_SECS;

use super::EventReader;
use crate::log_file::LogError;

impl EventReader {
    /// Closes files before the one in which the first open event began: an open file that was removed keeps its space.
    pub(super) fn close_read_files(&mut self) {
        let first = self.file_of(self.assembler.first_open().unwrap_or(u64::MAX));
        self.files.drain(..first);
        self.at -= first;
    }

    /// Waits for more text; returns false if none was written for the time in which events end.
    pub(super) fn wait(&mut self) -> Result<bool, LogError> {
        let timeout = Duration::from_secs(END_OF_EVENT_TIMEOUT_SECS);
        let Some(follow) = &mut self.follow else {
            return Ok(false);
        };
        if follow.wait(timeout)? {
            return Ok(true);
        }
        self.assembler.end_all();
        Ok(false)
    }
}
