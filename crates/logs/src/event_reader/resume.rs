//! A reader that continues where another one ended, and leaves what it cannot read whole to the next.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{EventReader, OpenFile};
use crate::cursor::Cursor;
use crate::log_file::{LogError, LogFile};
use crate::log_set::LogSet;

impl EventReader {
    /// A reader that continues at a cursor.
    ///
    /// # Errors
    /// [`LogError::CursorLost`] if the file is not among the logs, or no longer has the text before the cursor.
    pub fn at_cursor(logs: LogSet, cursor: &Cursor) -> Result<Self, LogError> {
        let mut reader = Self::new(logs);
        let is_named = |open: &OpenFile| open.file.id() == Some(cursor.file);
        let at = reader.files.iter().position(is_named);
        let (at, open) = at
            .and_then(|at| Some((at, reader.files.get_mut(at)?)))
            .ok_or(LogError::CursorLost)?;
        if !has_line_at(&mut open.file, cursor.offset)? {
            return Err(LogError::CursorLost);
        }
        reader.at = at;
        reader.buffer.restart(cursor.offset);
        reader.last_serial = cursor.serial;
        Ok(reader)
    }

    /// Leaves a line without its newline, and events that may go on, at the end of the log: they are not returned, and
    /// the cursor is before them. Streams and archives are whole.
    #[must_use]
    pub fn leave_unfinished(mut self) -> Self {
        let grows = |open: &OpenFile| !open.file.is_stream() && !open.file.is_archive();
        self.leaves_unfinished = self.files.last().is_some_and(grows);
        self
    }

    /// Whether something is left at the end of the log.
    #[must_use]
    pub fn has_unfinished(&self) -> bool {
        self.leaves_unfinished
            && (self.assembler.first_open().is_some() || self.buffer.has_unread())
    }

    /// Ends the events that are open at the end of the log.
    pub(super) fn end_open(&mut self) {
        if !self.leaves_unfinished {
            self.assembler.end_all();
        } else if !self.buffer.has_unread() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.map_or(0, |now| now.as_secs());
            self.assembler.end_all_but_those_of(now);
        }
    }
}

/// Whether a line begins at an offset of a file, which may be its end: a file that was emptied, and has grown again,
/// rarely has one there.
fn has_line_at(file: &mut LogFile, offset: u64) -> Result<bool, LogError> {
    let Some(before) = offset.checked_sub(1) else {
        return Ok(true);
    };
    let mut byte = [0];
    Ok(file.read_at(&mut byte, before)? == 1 && byte == [b'\n'])
}
