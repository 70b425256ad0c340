//! Reads records, one a line. A line that is longer than any record continues in the next one, and a NUL ends a record.

use std::io::{self, BufRead as _, BufReader, Read};

use bstr::ByteSlice as _;

use crate::ctext::until_nul;

/// Bytes of a line that are read at once, its newline included.
///
/// # Source
/// `MAX_AUDIT_MESSAGE_LENGTH` of audit-userspace is 8970, one of which `fgets` keeps for the NUL.
pub(crate) const MAX_LINE_BYTES: usize = audit::record::MAX_LINE_BYTES;

const BUFFER_BYTES: usize = 1 << 18;

/// Lines of a log.
pub(crate) struct Lines<R> {
    input: BufReader<R>,
    /// A line that did not lie in the buffer as a whole.
    line: Vec<u8>,
    /// Bytes of the buffer that the last line occupied.
    used: usize,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input: BufReader::with_capacity(BUFFER_BYTES, input),
            line: Vec::new(),
            used: 0,
        }
    }

    /// The next line with its newline; `None` at the end.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub(crate) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.input.consume(self.used);
        self.used = 0;
        let buffered = self.input.buffer();
        let window = buffered.get(..MAX_LINE_BYTES).unwrap_or(buffered);
        let whole = match window.find_byte(b'\n') {
            Some(end) => Some(end + 1),
            None => (window.len() == MAX_LINE_BYTES).then_some(MAX_LINE_BYTES),
        };
        if let Some(length) = whole {
            self.used = length;
            let line = self.input.buffer().get(..length).unwrap_or_default();
            return Ok(Some(until_nul(line)));
        }
        self.line.clear();
        loop {
            let buffered = match self.input.fill_buf() {
                Ok(buffered) => buffered,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffered.is_empty() {
                break;
            }
            let room = MAX_LINE_BYTES - self.line.len();
            let window = buffered.get(..room).unwrap_or(buffered);
            let (taken, is_end) = match window.find_byte(b'\n') {
                Some(end) => (end + 1, true),
                None => (window.len(), window.len() == room),
            };
            self.line
                .extend_from_slice(window.get(..taken).unwrap_or_default());
            self.input.consume(taken);
            if is_end {
                break;
            }
        }
        Ok((!self.line.is_empty()).then(|| until_nul(&self.line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(text);
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(line.to_vec());
        }
        all
    }

    #[test]
    fn lines_end_at_newlines_and_nuls() {
        assert_eq!(all(b"a\nb\0c\n\nd"), [&b"a\n"[..], b"b", b"\n", b"d"]);
        assert_eq!(all(b""), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn long_lines_continue() {
        let text = [vec![b'x'; MAX_LINE_BYTES + 10], b"\ny\n".to_vec()].concat();
        let lengths: Vec<usize> = all(&text).iter().map(Vec::len).collect();
        assert_eq!(lengths, [MAX_LINE_BYTES, 11, 2]);
    }

    #[test]
    fn lines_across_buffers_are_whole() {
        let line = b"type=SYSCALL msg=audit(1.000:1): a0=1\n";
        let text = line.repeat(BUFFER_BYTES / line.len() + 3);
        assert!(all(&text).iter().all(|read| read == line));
    }
}
