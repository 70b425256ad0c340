//! Reads a record from left to right.

use std::borrow::Cow;

use bstr::ByteSlice as _;

use super::FieldText;
use crate::ctext::{self, hex_digit};

/// A record that lacks what its type must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// The number that `--debug` prints.
    code: u8,
    /// Where `--debug` ends the record, if not at its end.
    end: Option<usize>,
}

impl Malformed {
    pub(super) const fn new(code: u8) -> Self {
        Self { code, end: None }
    }

    pub(super) const fn code(self) -> u8 {
        self.code
    }

    /// Appends the line of `--debug`.
    pub(super) fn report(self, record: &[u8], out: &mut Vec<u8>) {
        let shown = self.end.and_then(|end| record.get(..end)).unwrap_or(record);
        out.extend_from_slice(format!("Malformed event skipped, rc={}. ", self.code).as_bytes());
        out.extend_from_slice(shown);
        out.push(b'\n');
    }
}

/// A place in a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'e> {
    pub(super) text: &'e [u8],
    pub(super) at: usize,
}

impl<'e> Cursor<'e> {
    pub(super) const fn new(text: &'e [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Text from `at` to the end.
    pub(super) fn from(&self, at: usize) -> &'e [u8] {
        self.text.get(at..).unwrap_or_default()
    }

    /// Start of the value of the first `name` after the cursor.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        Some(self.at + self.from(self.at).find(name)? + name.len())
    }

    /// As [`Self::find`], from the start of the record.
    pub(super) fn find_from_start(&self, name: &str) -> Option<usize> {
        Some(self.text.find(name)? + name.len())
    }

    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        self.text.get(at).copied()
    }

    /// Position of the first `byte` from `at`.
    pub(super) fn position(&self, at: usize, byte: u8) -> Option<usize> {
        Some(at + self.from(at).find_byte(byte)?)
    }

    /// Text between two places.
    pub(super) fn between(&self, start: usize, end: usize) -> &'e [u8] {
        self.text.get(start..end).unwrap_or_default()
    }

    /// The word at `at`, which a blank must end; moves there.
    pub(super) fn word(&mut self, at: usize, code: u8) -> Result<&'e [u8], Malformed> {
        let end = self
            .position(at, b' ')
            .ok_or_else(|| Malformed::new(code))?;
        self.at = end;
        Ok(self.between(at, end))
    }

    /// The word at `at`, ended by a blank or the record's end. Moves to the blank, or not at all.
    pub(super) fn word_or_rest(&mut self, at: usize) -> &'e [u8] {
        match self.position(at, b' ') {
            Some(end) => {
                self.at = end;
                self.between(at, end)
            }
            None => self.from(at),
        }
    }

    /// The number at `at`, which a blank must end; moves there.
    pub(super) fn number(&mut self, at: usize, unended: u8, range: u8) -> Result<u64, Malformed> {
        let word = self.word(at, unended)?;
        self.parse(word, range)
    }

    /// The number at `at`, ended by a blank or the record's end.
    pub(super) fn number_or_rest(&mut self, at: usize, range: u8) -> Result<u64, Malformed> {
        let start = self.at;
        let word = self.word_or_rest(at);
        let number = self.parse(word, range);
        if self.at == start && word.len() == self.from(at).len() {
            self.at = at;
        }
        number
    }

    fn parse(&self, word: &[u8], range: u8) -> Result<u64, Malformed> {
        let number = ctext::unsigned(word, 10);
        if number.overflow {
            return Err(Malformed {
                code: range,
                end: Some(self.at),
            });
        }
        Ok(number.value)
    }

    /// A hexadecimal number, which a blank must end; moves there.
    pub(super) fn hex(&mut self, at: usize, unended: u8, range: u8) -> Result<u64, Malformed> {
        let word = self.word(at, unended)?;
        let number = ctext::unsigned(word, 16);
        if number.overflow {
            return Err(Malformed {
                code: range,
                end: Some(self.at),
            });
        }
        Ok(number.value)
    }

    /// An error about the number that ends at the cursor.
    pub(super) const fn out_of_range(&self, code: u8) -> Malformed {
        Malformed {
            code,
            end: Some(self.at),
        }
    }

    /// An untrusted string: quoted, or in hex. Moves to the closing quote.
    pub(super) fn untrusted(
        &mut self,
        at: usize,
        unended: u8,
    ) -> Result<Option<FieldText<'e>>, Malformed> {
        if self.byte(at) == Some(b'"') {
            return Ok(Some(Cow::Borrowed(self.quoted(at, unended)?)));
        }
        Ok(unescape(self.from(at)))
    }

    /// The text in quotes at `at`; moves to the closing quote.
    pub(super) fn quoted(&mut self, at: usize, unended: u8) -> Result<&'e [u8], Malformed> {
        let start = at + 1;
        let end = self
            .position(start, b'"')
            .ok_or_else(|| Malformed::new(unended))?;
        self.at = end;
        Ok(self.between(start, end))
    }

    /// A string that older programs wrote without quotes although it is no hex. Moves past it.
    pub(super) fn legacy(&mut self, at: usize) -> Option<FieldText<'e>> {
        let end = self.position(at, b' ').unwrap_or(self.text.len());
        self.at = end;
        let word = self.between(at, end);
        if word.iter().all(u8::is_ascii_hexdigit) {
            unescape(word)
        } else {
            Some(Cow::Borrowed(word))
        }
    }
}

/// Decodes the hex digits at the start of a text, up to a NUL in what they say. A text in parentheses is itself.
pub(crate) fn unescape(text: &[u8]) -> Option<FieldText<'_>> {
    if text.first() == Some(&b'(') {
        let end = text.find_byte(b')')?;
        return text.get(..=end).map(Cow::Borrowed);
    }
    let digits = text
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    if digits < 2 {
        return None;
    }
    let mut decoded = Vec::with_capacity(digits.div_ceil(2));
    for pair in text.get(..digits)?.chunks(2) {
        let byte = match *pair {
            [high, low] => (hex_digit(high)? << 4) | hex_digit(low)?,
            [high] => hex_digit(high)? << 4,
            _ => break,
        };
        if byte == 0 {
            break;
        }
        decoded.push(byte);
    }
    Some(Cow::Owned(decoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_ends_at_a_nul_or_another_byte() {
        for (text, expected) in [
            (&b"6162 63"[..], Some(&b"ab"[..])),
            (b"616263", Some(b"abc")),
            (b"61620063", Some(b"ab")),
            (b"616", Some(b"a`")),
            (b"6", None),
            (b"xyz", None),
            (b"(null) x", Some(b"(null)")),
            (b"(null", None),
        ] {
            assert_eq!(unescape(text).as_deref(), expected, "{text:?}");
        }
    }
}
