//! A reader that follows its log: what it waits for, and what it closes.

use std::path::Path;
use std::time::{Duration, Instant};

use audit::record::assemble::END_OF_EVENT_TIMEOUT_SECS;

use super::{EventReader, OpenFile};
use crate::follow::Follow;
use crate::log_file::LogError;

impl EventReader {
    /// Continues after the end of the log: waits for more text, and follows the log when it is rotated. Files before the
    /// one that is read are closed.
    ///
    /// # Errors
    /// The log is not a single one, or it cannot be watched.
    pub fn follow(mut self, log: &Path) -> Result<Self, LogError> {
        let read = self.files.iter().filter_map(|open| open.file.id());
        self.follow = Some(Follow::start(log, read.collect())?);
        self.close_read_files();
        Ok(self)
    }

    /// Skips what the log has now; a reader that follows returns only newer events.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub fn skip_to_end(&mut self) -> Result<(), LogError> {
        self.at = self.files.len().saturating_sub(1);
        if let Some(last) = self.files.get(self.at) {
            self.buffer.restart(last.file.size()?.unwrap_or(0));
            self.last.clear();
        }
        if self.follow.is_some() {
            self.close_read_files();
        }
        Ok(())
    }

    /// Closes files before the one in which the first open event began: an open file that was removed keeps its space.
    pub(super) fn close_read_files(&mut self) {
        let first = self.file_of(self.assembler.first_open().unwrap_or(u64::MAX));
        self.files.drain(..first);
        self.at -= first;
    }

    /// Adds the files that are newer than the last one, which was read; returns false while it is the log.
    pub(super) fn add_newer_files(&mut self) -> Result<bool, LogError> {
        let Some(follow) = &mut self.follow else {
            return Ok(false);
        };
        let read = self.files.last().and_then(|open| open.file.id());
        let newer = follow.newer_files(read)?;
        let mut opened = newer.files.into_iter().map(OpenFile::new);
        let Some(mut first) = opened.next() else {
            return Ok(false);
        };
        first.is_after_loss = newer.is_after_loss;
        self.files.push(first);
        self.files.extend(opened);
        Ok(true)
    }

    /// Waits for more text; returns false if none was written for the time in which events end.
    pub(super) fn wait(&mut self) -> Result<bool, LogError> {
        const TIMEOUT: Duration = Duration::from_secs(END_OF_EVENT_TIMEOUT_SECS);
        let Some(follow) = &mut self.follow else {
            return Ok(false);
        };
        let since = self.waits_since.get_or_insert_with(Instant::now);
        // Other files of the directory may change all the time.
        let left = TIMEOUT.saturating_sub(since.elapsed());
        if !left.is_zero() && follow.wait(left)? {
            return Ok(true);
        }
        self.waits_since = None;
        self.assembler.end_all();
        Ok(false)
    }
}
