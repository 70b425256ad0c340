//! Splits rule files as `auditctl -R` does: into pieces of limited length, and those at spaces.

use super::{CommandLineParser, Diagnostic, Dialect, Findings, Invocation, RuleHost};
use crate::rule::lexer::{self, RawLine};

/// Maximum length of a piece: the buffer of `auditctl` without the NUL.
const PIECE_BYTES: usize = lexer::LINE_LIMIT_BYTES - 1;

/// Lines of a rule file. A line that is longer than the buffer is split, and text after a NUL byte in a piece
/// is dropped.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split_inclusive(|&byte| byte == b'\n')
        .flat_map(|line| line.chunks(PIECE_BYTES))
        .map(|piece| {
            let end = piece
                .iter()
                .position(|&byte| matches!(byte, b'\n' | b'\0'))
                .unwrap_or(piece.len());
            piece.get(..end).unwrap_or_default()
        })
}

/// Parses one line; `None` for a blank line or a comment. Tabs, quotes and carriage returns are part of words,
/// as in `auditctl`.
#[must_use]
pub fn line(
    bytes: &[u8],
    number: u32,
    dialect: Dialect,
    host: &dyn RuleHost,
) -> Option<Invocation> {
    let raw = RawLine {
        number,
        start: 0,
        bytes,
    };
    if raw.is_blank_or_comment() {
        return None;
    }
    let mut diagnostics: Vec<Diagnostic> = Vec::new();
    let findings = Findings::new(number, 0, &mut diagnostics);
    let words = lexer::split(bytes, 0);
    Some(CommandLineParser::new(words, dialect, host, findings).read(Some(number)))
}
