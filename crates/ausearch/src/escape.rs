//! Control characters and characters that a shell takes for its own, in output.

/// What is escaped in values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Escape {
    /// Nothing.
    Raw,
    /// Control characters.
    #[default]
    Tty,
    /// These, and what a shell takes for its own outside quotes.
    Shell,
    /// These, and what a shell takes for its own between words.
    ShellQuote,
}

/// Characters that `--escape shell` puts a backslash before.
const SHELL: &[u8] = b"\"'`$\\!()| ";
/// The same for `--escape shell_quote`.
const SHELL_QUOTE: &[u8] = b"\"'`$\\!()| ;#&*?[]<>{}";

impl Escape {
    /// The mode called `name`.
    pub(crate) fn by_name(name: &[u8]) -> Option<Self> {
        match name {
            b"raw" => Some(Self::Raw),
            b"tty" => Some(Self::Tty),
            b"shell" => Some(Self::Shell),
            b"shell_quote" => Some(Self::ShellQuote),
            _ => None,
        }
    }

    /// Appends a text.
    pub(crate) fn push(self, text: &[u8], out: &mut Vec<u8>) {
        if self == Self::Raw || !text.iter().any(|&byte| self.changes(byte)) {
            return out.extend_from_slice(text);
        }
        for &byte in text {
            if byte < 32 {
                out.push(b'\\');
                out.extend([byte >> 6, (byte >> 3) & 7, byte & 7].map(|digit| b'0' + digit));
            } else {
                if self.changes(byte) {
                    out.push(b'\\');
                }
                out.push(byte);
            }
        }
    }

    /// A text, escaped.
    pub(crate) fn text(self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        self.push(text, &mut out);
        out
    }

    fn changes(self, byte: u8) -> bool {
        let special: &[u8] = match self {
            Self::Raw | Self::Tty => b"",
            Self::Shell => SHELL,
            Self::ShellQuote => SHELL_QUOTE,
        };
        byte < 32 || special.contains(&byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_octal() {
        assert_eq!(Escape::Tty.text(b"a\x1b[0m b\xff"), b"a\\033[0m b\xff");
        assert_eq!(Escape::Raw.text(b"a\x1b"), b"a\x1b");
        assert_eq!(Escape::Shell.text(b"a b;\x01$"), b"a\\ b;\\001\\$");
        assert_eq!(Escape::ShellQuote.text(b"a;b"), b"a\\;b");
    }
}
