//! A reader that continues where another one ended, and leaves what it cannot read whole to the next.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{EventReader, OpenFile};
use crate::cursor::Cursor;
use crate::hash::checksum;
use crate::line_buffer::len;
use crate::log_file::{LogError, LogFile};
use crate::log_set::LogSet;

/// Bytes before a cursor that are compared: as long as a line usually is.
const BYTES_BEFORE: usize = 256;

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
        if !has_text_before(&mut open.file, cursor)? {
            return Err(LogError::CursorLost);
        }
        reader.at = at;
        reader.buffer.restart(cursor.offset);
        reader.last_serial = cursor.serial;
        Ok(reader)
    }

    /// Position to continue from, after the events that were returned; `None` in a stream.
    pub fn cursor(&mut self) -> Option<Cursor> {
        let here = self.files.get(self.at)?;
        let position = self
            .assembler
            .first_kept()
            .unwrap_or_else(|| here.base + self.buffer.offset());
        let at = self.file_of(position);
        let open = self.files.get_mut(at)?;
        let offset = position.saturating_sub(open.base);
        // A file that cannot be read now may be readable when another reader continues.
        let before = text_before(&mut open.file, offset).ok().flatten();
        Some(Cursor {
            file: open.file.id()?,
            offset,
            serial: self.last_serial,
            before: before
                .filter(|text| !text.is_empty())
                .map(|text| checksum(&text)),
        })
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

/// Whether a file still has the text before a cursor, which may be at the end of the file. A cursor without a checksum is
/// at the begin of a line, where another text rarely has one.
fn has_text_before(file: &mut LogFile, cursor: &Cursor) -> Result<bool, LogError> {
    Ok(match text_before(file, cursor.offset)? {
        None => false,
        Some(text) => match cursor.before {
            Some(before) => checksum(&text) == before,
            None => text.is_empty() || text.ends_with(b"\n"),
        },
    })
}

/// The text before an offset of a file, as long as a line usually is; `None` if the file ends before.
fn text_before(file: &mut LogFile, offset: u64) -> Result<Option<Vec<u8>>, LogError> {
    let count = usize::try_from(offset).map_or(BYTES_BEFORE, |offset| offset.min(BYTES_BEFORE));
    let mut text = vec![0; count];
    let read = file.fill_at(&mut text, offset - len(count))?;
    Ok((read == count).then_some(text))
}
