//! Findings about rule text: position, message and advice. The caller renders them.
//!
//! A [`Transcript`] has the messages of `auditctl` for the same text, for scripts that depend on them.

use std::ops::Range;

use bstr::BString;

use super::lexer::Word;
use crate::spelling::nearest;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The line is loaded. For information.
    Note,
    /// The line is loaded or skipped, and probably not what was meant.
    Warning,
    /// The line is not loaded.
    Error,
}

/// One finding about rule text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Severity.
    pub severity: Severity,
    /// Stable short name, such as `unknown-field`.
    pub code: &'static str,
    /// Line, from 1.
    pub line: u32,
    /// Column of the first byte of the span, from 1, in bytes.
    pub column: u32,
    /// Byte range in the file.
    pub span: Range<usize>,
    /// The error: a lower-case sentence fragment that names the object.
    pub message: String,
    /// How to correct it.
    pub advice: String,
}

/// Messages of `auditctl` for one line, up to the point where it stops.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// Messages, in order, without newlines.
    pub(super) messages: Vec<BString>,
    /// Whether it stopped with an error.
    pub(super) failed: bool,
}

/// Source of a line. Some messages of `auditctl` depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineOrigin {
    /// The command line.
    CommandLine,
    /// A rule file.
    File,
}

/// Collects the findings about one line.
pub(super) struct Findings<'a> {
    line: u32,
    origin: LineOrigin,
    start: usize,
    all: &'a mut Vec<Diagnostic>,
    failed: bool,
    /// Messages of `auditctl`.
    pub(super) transcript: Transcript,
}

impl Transcript {
    /// Adds a message that does not stop `auditctl`. Has no effect after an error.
    pub(super) fn warns(&mut self, parts: &[&[u8]]) {
        if !self.failed {
            self.messages.push(bstr::concat(parts).into());
        }
    }

    /// Adds an error message even after an earlier error: `auditctl` checks keys in any case.
    pub(super) fn fails_late(&mut self, parts: &[&[u8]]) {
        self.messages.push(bstr::concat(parts).into());
        self.failed = true;
    }

    /// Adds an error message, which stops `auditctl`.
    pub(super) fn fails(&mut self, parts: &[&[u8]]) {
        self.warns(parts);
        self.failed = true;
    }
}

impl<'a> Findings<'a> {
    /// Findings about a line of a file. `start` is the offset of the line in the file.
    pub(super) fn new(line: u32, start: usize, all: &'a mut Vec<Diagnostic>) -> Self {
        Self {
            line,
            origin: LineOrigin::File,
            start,
            all,
            failed: false,
            transcript: Transcript::default(),
        }
    }

    /// Location in the syscall mismatch warning of `auditctl`: the line number for rule files.
    pub(super) fn mismatch_location(&self) -> String {
        match self.origin {
            LineOrigin::CommandLine => String::new(),
            LineOrigin::File => format!(" in line {}", self.line),
        }
    }

    /// As [`Transcript::fails`].
    pub(super) fn auditctl_fails(&mut self, parts: &[&[u8]]) {
        self.transcript.fails(parts);
    }

    /// Whether `auditctl` has stopped.
    pub(super) fn auditctl_failed(&self) -> bool {
        self.transcript.failed
    }

    /// Findings about a command line. Their positions are meaningless.
    pub(super) fn on_command_line(all: &'a mut Vec<Diagnostic>) -> Self {
        Self {
            origin: LineOrigin::CommandLine,
            ..Self::new(0, 0, all)
        }
    }

    /// Whether the line has an error.
    pub(super) fn failed(&self) -> bool {
        self.failed
    }

    pub(super) fn error(
        &mut self,
        code: &'static str,
        span: &Range<usize>,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.failed = true;
        self.add(Severity::Error, code, span, message.into(), advice.into());
    }

    pub(super) fn warning(
        &mut self,
        code: &'static str,
        span: &Range<usize>,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.add(Severity::Warning, code, span, message.into(), advice.into());
    }

    pub(super) fn note(
        &mut self,
        code: &'static str,
        span: &Range<usize>,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.add(Severity::Note, code, span, message.into(), advice.into());
    }

    /// Adds an error about an unknown name. The advice suggests the nearest known name.
    pub(super) fn unknown(
        &mut self,
        code: &'static str,
        what: &str,
        word: &Word,
        known: impl Iterator<Item = &'static str>,
        otherwise: &str,
    ) {
        let advice = match nearest(&word.text, known) {
            Some(name) => format!("did you mean `{name}`?"),
            None => otherwise.to_owned(),
        };
        self.error(
            code,
            &word.span,
            format!("unknown {what} `{}`", escape_text(&word.text)),
            advice,
        );
    }

    fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        span: &Range<usize>,
        message: String,
        advice: String,
    ) {
        let column = u32::try_from(span.start.saturating_sub(self.start)).unwrap_or(u32::MAX);
        self.all.push(Diagnostic {
            severity,
            code,
            line: self.line,
            column: column.saturating_add(1),
            span: span.clone(),
            message,
            advice,
        });
    }
}

/// Escapes text for a message: printable ASCII of limited length.
pub(super) fn escape_text(text: &[u8]) -> String {
    const LIMIT_BYTES: usize = 64;
    let mut out = String::new();
    for &byte in text.iter().take(LIMIT_BYTES) {
        if byte == b' ' || byte.is_ascii_graphic() {
            out.push(char::from(byte));
        } else {
            out.extend(byte.escape_ascii().map(char::from));
        }
    }
    if text.len() > LIMIT_BYTES {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_is_short_and_printable() {
        assert_eq!(escape_text(b"\"a\" \x1b[2J\xff"), "\"a\" \\x1b[2J\\xff");
        assert_eq!(escape_text(&[b'x'; 65]), format!("{}...", "x".repeat(64)));
        assert_eq!(escape_text(&[b'x'; 64]), "x".repeat(64));
    }
}
