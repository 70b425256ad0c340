//! A log that is followed may be cut: a daemon cuts off an event that did not fit on the disk, and writes others in its
//! place; an administrator may empty the log. What follows is no continuation of what was read.

use super::EventReader;
use crate::log_file::{LogError, LogFile};

/// Longer than a record, so that it has a serial.
const BYTES: usize = 16 << 10;
/// As long as a line usually is.
const FIRST_BYTES: usize = 256;

/// What was read of a file: how it begins, and the last bytes.
#[derive(Debug, Default)]
pub(super) struct LastText {
    first: Vec<u8>,
    last: Vec<u8>,
    /// Room to read them again.
    again: Vec<u8>,
}

impl LastText {
    /// Forgets the text: another file, or another place, is read.
    pub(super) fn clear(&mut self) {
        self.first.clear();
        self.last.clear();
    }

    /// Adds bytes that were read of a file.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub(super) fn add(&mut self, file: &mut LogFile, read: &[u8]) -> Result<(), LogError> {
        if self.first.is_empty() {
            self.first.resize(FIRST_BYTES, 0);
            let count = file.read_at(&mut self.first, 0)?;
            self.first.truncate(count);
        }
        let read = read
            .get(read.len().saturating_sub(BYTES)..)
            .unwrap_or_default();
        let excess = (self.last.len() + read.len()).saturating_sub(BYTES);
        self.last.drain(..excess.min(self.last.len()));
        self.last.extend_from_slice(read);
        Ok(())
    }

    /// Whether a file still has this text before an offset.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub(super) fn is_in(&mut self, file: &mut LogFile, offset: u64) -> Result<bool, LogError> {
        let start = offset.saturating_sub(length(&self.last));
        has_text(file, start, &self.last, &mut self.again)
    }

    /// Whether a file still begins as it did, as far as it was not cut.
    ///
    /// # Errors
    /// [`LogError::Read`].
    fn is_begun_in(&mut self, file: &mut LogFile, offset: u64) -> Result<bool, LogError> {
        let count = usize::try_from(offset).unwrap_or(FIRST_BYTES);
        let first = self.first.get(..count).unwrap_or(&self.first);
        has_text(file, 0, first, &mut self.again)
    }
}

impl EventReader {
    /// Goes on where the log that is followed was cut off. An event that was cut off, or was open, begins there; where a
    /// longer part is gone, the end of the log is read, or all of a log that begins otherwise.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub(super) fn go_on_at_cut(&mut self) -> Result<(), LogError> {
        let position = self.assembler.first_open();
        let Some(open) = self.files.get_mut(self.at) else {
            return Ok(());
        };
        let begun = position.and_then(|position| position.checked_sub(open.base));
        let offset = begun.unwrap_or(u64::MAX).min(self.buffer.offset());
        let size = open.file.size()?.unwrap_or(0);
        let offset = if !self.last.is_begun_in(&mut open.file, offset)? {
            0
        } else if offset <= size {
            offset
        } else {
            line_start(&mut open.file, size)?
        };
        self.assembler.drop_open();
        self.buffer.restart(offset);
        self.last.clear();
        Ok(())
    }
}

/// Whether a file has a text at an offset. `room` is room to read it.
fn has_text(
    file: &mut LogFile,
    offset: u64,
    text: &[u8],
    room: &mut Vec<u8>,
) -> Result<bool, LogError> {
    room.resize(text.len(), 0);
    Ok(file.fill_at(room, offset)? == text.len() && room == text)
}

/// The start of the line that contains an offset of a file, if it is not far before it.
fn line_start(file: &mut LogFile, offset: u64) -> Result<u64, LogError> {
    let mut bytes = [0; BYTES];
    let count = usize::try_from(offset).unwrap_or(BYTES).min(BYTES);
    let start = offset - length(bytes.get(..count).unwrap_or_default());
    let count = file.read_at(bytes.get_mut(..count).unwrap_or_default(), start)?;
    let text = bytes.get(..count).unwrap_or_default();
    let newline = text.iter().rposition(|&byte| byte == b'\n');
    Ok(newline.map_or(offset, |at| {
        start + length(text.get(..=at).unwrap_or_default())
    }))
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
