//! Splits the bytes of a file or stream into lines, through one buffer that is reused.

use bstr::ByteSlice as _;

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// Longest line that can be a record. A longer one is dropped.
pub(crate) const MAX_LINE: usize = 64 << 10;

/// A buffer of read bytes that have not been returned as lines.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    bytes: Vec<u8>,
    /// Start of the first line that has not been returned.
    start: usize,
    /// End of the bytes that were read.
    end: usize,
    /// Bytes from `start` that contain no newline.
    searched: usize,
    /// Offset of `start` in the file.
    offset: u64,
    /// The line at `start` is the end of one that was dropped.
    dropping: bool,
}

/// A line, without its newline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A part of [`LineBuffer::bytes`] that began at this offset of the file.
    Text {
        /// First byte in the buffer.
        start: usize,
        /// End in the buffer.
        end: usize,
        /// Offset of the first byte in the file.
        offset: u64,
    },
    /// A line that is too long was dropped.
    TooLong,
}

impl LineBuffer {
    /// Starts over at an offset of another file.
    pub(crate) fn restart(&mut self, offset: u64) {
        (self.start, self.end, self.searched) = (0, 0, 0);
        self.offset = offset;
        self.dropping = false;
    }

    /// Offset of the first byte that was not returned.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Offset of the next byte to read.
    pub(crate) fn read_offset(&self) -> u64 {
        self.offset + len(self.end - self.start)
    }

    /// Reads more bytes with `read`, and returns their number.
    ///
    /// # Errors
    /// The error of `read`.
    pub(crate) fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let wanted = self.end + CHUNK;
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        let room = self.bytes.get_mut(self.end..wanted).unwrap_or_default();
        let count = read(room)?.min(CHUNK);
        self.end += count;
        Ok(count)
    }

    /// The last bytes that were read, before any of them was returned.
    pub(crate) fn last_read(&self, count: usize) -> &[u8] {
        let start = self.end.saturating_sub(count);
        self.bytes.get(start..self.end).unwrap_or_default()
    }

    /// Returns the next line that has its newline; `None` if more bytes must be read.
    pub(crate) fn next_line(&mut self) -> Option<Line> {
        let unsearched = self.bytes.get(self.start + self.searched..self.end)?;
        let Some(at) = unsearched.find_byte(b'\n') else {
            self.searched = self.end - self.start;
            if self.searched > MAX_LINE {
                self.skip(self.searched);
                self.dropping = true;
            }
            return None;
        };
        let (start, end) = (self.start, self.start + self.searched + at);
        let offset = self.offset;
        self.skip(end + 1 - start);
        if std::mem::take(&mut self.dropping) || end - start > MAX_LINE {
            return Some(Line::TooLong);
        }
        Some(Line::Text { start, end, offset })
    }

    /// The bytes from the next line on; `None` if the end of a line that is dropped comes first.
    pub(crate) fn unread(&self) -> Option<&[u8]> {
        let unread = self.bytes.get(self.start..self.end)?;
        (!self.dropping).then_some(unread)
    }

    /// Whether bytes were read and not returned.
    pub(crate) const fn has_unread(&self) -> bool {
        self.start < self.end || self.dropping
    }

    /// Skips whole lines.
    pub(crate) fn skip_lines(&mut self, bytes: usize) {
        self.skip(bytes.min(self.end - self.start));
    }

    /// Returns the last line of a file that does not end in a newline.
    pub(crate) fn last_line(&mut self) -> Option<Line> {
        let (start, end, offset) = (self.start, self.end, self.offset);
        self.skip(end - start);
        if std::mem::take(&mut self.dropping) {
            return Some(Line::TooLong);
        }
        (end > start).then_some(Line::Text { start, end, offset })
    }

    /// Bytes of a line.
    pub(crate) fn text(&self, start: usize, end: usize) -> &[u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    fn skip(&mut self, bytes: usize) {
        self.start += bytes;
        self.searched = 0;
        self.offset += len(bytes);
    }
}

/// A length in memory as one in a file.
pub(crate) fn len(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text` in steps of `step` bytes and returns the lines with their offsets.
    fn lines(text: &[u8], step: usize) -> Vec<(u64, Vec<u8>)> {
        let mut buffer = LineBuffer::default();
        let mut rest = text;
        let mut found = Vec::new();
        loop {
            let next = buffer.next_line().or_else(|| {
                let count = buffer
                    .fill(|room| {
                        let count = step.min(rest.len()).min(room.len());
                        room[..count].copy_from_slice(&rest[..count]);
                        rest = &rest[count..];
                        Ok::<_, ()>(count)
                    })
                    .unwrap();
                match count {
                    0 => buffer.last_line(),
                    _ => Some(Line::Text {
                        start: 0,
                        end: 0,
                        offset: u64::MAX,
                    }),
                }
            });
            match next {
                None => return found,
                Some(Line::TooLong) => found.push((0, b"too long".to_vec())),
                Some(Line::Text {
                    offset: u64::MAX, ..
                }) => {}
                Some(Line::Text { start, end, offset }) => {
                    found.push((offset, buffer.text(start, end).to_vec()));
                }
            }
        }
    }

    #[test]
    fn lines_do_not_depend_on_the_reads() {
        let text = b"one\n\ntwo\nthree";
        let expected = [(0, "one"), (4, ""), (5, "two"), (9, "three")];
        let expected = expected.map(|(at, line)| (at, line.as_bytes().to_vec()));
        for step in 1..20 {
            assert_eq!(lines(text, step), expected);
        }
    }

    #[test]
    fn long_lines_are_dropped_and_memory_is_bounded() {
        let mut text = vec![b'x'; MAX_LINE * 20];
        text.extend_from_slice(b"\nnext\n");
        text.extend(vec![b'y'; MAX_LINE + 1]);
        for step in [1000, CHUNK] {
            let found = lines(&text, step);
            let texts: Vec<_> = found.iter().map(|(_, line)| line.as_slice()).collect();
            assert_eq!(texts, [&b"too long"[..], b"next", b"too long"]);
            assert_eq!(found[1].0, len(MAX_LINE * 20 + 1));
        }
    }
}
