//! Output of a search that may be repeated.

use std::io::{self, Write};

/// Writes what was not yet written before the search was repeated.
pub(super) struct Repeatable<'w> {
    out: &'w mut dyn Write,
    /// Bytes that the search has written.
    written: usize,
    /// Bytes that it wrote before.
    before: usize,
}

impl<'w> Repeatable<'w> {
    pub(super) fn new(out: &'w mut dyn Write) -> Self {
        Self {
            out,
            written: 0,
            before: 0,
        }
    }

    /// The same is written again.
    pub(super) fn repeat(&mut self) {
        self.before = self.before.max(self.written);
        self.written = 0;
    }
}

impl Write for Repeatable<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let known = self.before.saturating_sub(self.written).min(text.len());
        self.out.write_all(text.get(known..).unwrap_or_default())?;
        self.written += text.len();
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_not_written_twice() {
        let mut text = Vec::new();
        let mut out = Repeatable::new(&mut text);
        out.write_all(b"abc").unwrap();
        out.repeat();
        out.write_all(b"ab").unwrap();
        out.write_all(b"cde").unwrap();
        out.write_all(b"f").unwrap();
        assert_eq!(text, b"abcdef");
    }
}
