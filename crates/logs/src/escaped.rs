//! Strings chosen by a task, escaped for a terminal.

use std::fmt::{self, Display, Write as _};

/// A string chosen by a task, as one word: quoted if it is empty or has blanks or quotes, and truncated if it is very
/// long. Unprintable characters are escaped.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST_BYTES: usize = 512;
        let bytes = self.0.get(..MOST_BYTES).unwrap_or(self.0);
        let quoted = bytes.is_empty() || bytes.iter().any(|byte| b" '\"".contains(byte));
        let quote = if quoted { "'" } else { "" };
        f.write_str(quote)?;
        for chunk in bytes.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '"' => f.write_char('"')?,
                    // Escapes unprintable characters, including those that change the text direction.
                    _ => write!(f, "{}", character.escape_debug())?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        f.write_str(quote)?;
        match self.0.len() - bytes.len() {
            0 => Ok(()),
            more => write!(f, "... {more} bytes more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_plain_or_quoted() {
        for (bytes, text) in [
            ("ls", "ls"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", "'it\\'s'"),
            ("\"q\"", "'\"q\"'"),
            ("a\\b", "a\\\\b"),
            ("caf\u{e9}", "caf\u{e9}"),
        ] {
            assert_eq!(Escaped(bytes.as_bytes()).to_string(), text);
        }
    }

    #[test]
    fn unprintable_characters_are_escaped() {
        for (bytes, text) in [
            (b"\x1b]0;x\x07".as_slice(), "\\u{1b}]0;x\\u{7}"),
            (b"\n\0\x7f", "\\n\\0\\u{7f}"),
            (b"\xff\xc3", "\\xff\\xc3"),
            // One-byte CSI, right-to-left override, line separator, no-break and zero-width space.
            ("\u{9b}2J".as_bytes(), "\\u{9b}2J"),
            ("\u{202e}".as_bytes(), "\\u{202e}"),
            (
                "\u{2028}\u{a0}\u{200b}".as_bytes(),
                "\\u{2028}\\u{a0}\\u{200b}",
            ),
        ] {
            assert_eq!(Escaped(bytes).to_string(), text);
        }
    }

    #[test]
    fn very_long_strings_are_truncated_visibly() {
        let text = Escaped(&[b'x'; 600]).to_string();
        assert_eq!(text, format!("{}... 88 bytes more", "x".repeat(512)));
    }
}
