//! Strings chosen by a task, escaped for a terminal.

use std::fmt::{self, Display, Write as _};

use serde::Serialize;

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

/// A JSON value on one line, in which characters that a terminal may obey are written as `\u`: also DEL and the control
/// characters above ASCII, which JSON does not require, and those that change the text direction.
#[derive(Clone, Copy, Debug)]
pub struct EscapedJson<'a, T>(pub &'a T);

impl<T: Serialize> Display for EscapedJson<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self.0).map_err(|_not_a_value| fmt::Error)?;
        let is_plain = |byte: u8| byte.is_ascii() && byte != 0x7f;
        if text.bytes().all(is_plain) {
            return f.write_str(&text);
        }
        let mut units = [0; 2];
        for character in text.chars() {
            // Such characters are in strings only.
            let is_obeyed = !u8::try_from(character).is_ok_and(is_plain)
                && character.escape_debug().next() == Some('\\');
            if !is_obeyed {
                f.write_char(character)?;
                continue;
            }
            for unit in character.encode_utf16(&mut units) {
                write!(f, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn json_has_no_control_characters_and_the_same_value() {
        for text in [
            "plain \"quoted\" \\ \n",
            "caf\u{e9} \u{1f600}",
            "\u{9b}2J\u{7f}",
            "\u{202e}\u{2066}\u{2028}\u{200b}",
            "\u{e0001}",
        ] {
            let value = Value::from(text);
            let line = EscapedJson(&value).to_string();
            assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
            let is_obeyed = |character: char| {
                character.is_control() || "\u{202e}\u{2066}\u{2028}\u{200b}".contains(character)
            };
            assert!(!line.contains(is_obeyed), "{line}");
        }
        let kept = Value::from("caf\u{e9}");
        assert_eq!(EscapedJson(&kept).to_string(), "\"caf\u{e9}\"");
    }

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
