//! Lines of configuration text: `key = value`.
//!
//! Only spaces separate words, tabs do not, and the equal sign is a word.
//! A line whose first word begins with `#` is a comment. A later `#` does not begin a comment.
//!
//! # Source
//! `get_line` and `nv_split` in `src/auditd-config.c` and `audisp/audispd-pconfig.c`, audit-userspace
//! 3.0.9 and 4.2.1.

use std::ops::Range;

use bstr::{BStr, ByteSlice as _};

use crate::rule::{Diagnostic, Severity};

/// Maximum length of a line in `auditd` 4.2.1, without the newline. It skips longer lines.
pub const MAX_LINE_BYTES: usize = 510;
/// Maximum length of a line in `auditd` 3.0.9, without the newline.
const MAX_LINE_BYTES_V3: usize = 158;

/// A word of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    /// Bytes of the word.
    pub text: &'a BStr,
    /// Where it starts in the file.
    pub start: usize,
}

/// A `key = value` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment<'a> {
    /// Position of the line.
    pub position: LinePosition,
    /// The key.
    pub key: Word<'a>,
    /// The first word after the equal sign.
    pub value: Word<'a>,
    /// The words after the value.
    pub extra: Vec<Word<'a>>,
}

/// Position of a line in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePosition {
    /// Line number, from 1.
    pub line: u32,
    /// Where it starts in the file.
    pub start: usize,
}

impl LinePosition {
    /// Makes a finding about a part of this line.
    pub(super) fn finding(
        self,
        severity: Severity,
        code: &'static str,
        span: Range<usize>,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic {
            severity,
            code,
            line: self.line,
            column: u32::try_from(span.start.saturating_sub(self.start) + 1).unwrap_or(u32::MAX),
            span,
            message: message.into(),
            advice: advice.into(),
        }
    }
}

impl Word<'_> {
    /// Byte range of the word in the file.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// Whether the word equals `word`, ignoring case.
    #[must_use]
    pub fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word.as_bytes())
    }
}

/// Parses all lines. Returns the assignments, and findings about malformed lines.
#[must_use]
pub fn parse_assignments(bytes: &[u8]) -> (Vec<Assignment<'_>>, Vec<Diagnostic>) {
    let (mut lines, mut findings) = (Vec::new(), Vec::new());
    let mut start = 0;
    for (number, text) in (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')) {
        let position = LinePosition {
            line: number,
            start,
        };
        start += text.len();
        let ends = text.ends_with(b"\n");
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        match parse_assignment(text, position) {
            Ok(None) => {}
            Ok(Some(line)) => {
                findings.extend(check_length(text, position));
                if !ends {
                    findings.push(position.finding(
                        Severity::Warning,
                        "unended-line",
                        position.start..position.start + text.len(),
                        "the last line has no newline: tollgate reads it, auditd skips it",
                        "end the line",
                    ));
                }
                lines.push(line);
            }
            Err(finding) => findings.push(*finding),
        }
    }
    (lines, findings)
}

/// Reports a line that is too long for `auditd`.
fn check_length(text: &[u8], position: LinePosition) -> Option<Diagnostic> {
    let span = position.start..position.start + text.len();
    if text.len() > MAX_LINE_BYTES {
        Some(position.finding(
            Severity::Error,
            "long-line",
            span,
            format!("line of {} bytes; auditd skips it", text.len()),
            format!("shorten it to at most {MAX_LINE_BYTES} bytes"),
        ))
    } else if text.len() > MAX_LINE_BYTES_V3 {
        Some(position.finding(
            Severity::Warning,
            "long-line",
            span,
            format!("line of {} bytes; auditd 3 skips it", text.len()),
            format!(
                "shorten it to at most {MAX_LINE_BYTES_V3} bytes if auditd 3 also reads this file"
            ),
        ))
    } else {
        None
    }
}

fn parse_assignment(
    text: &[u8],
    position: LinePosition,
) -> Result<Option<Assignment<'_>>, Box<Diagnostic>> {
    let mut words = words(text, position.start);
    let Some(key) = words.next() else {
        return Ok(None);
    };
    if key.text.starts_with(b"#") {
        return Ok(None);
    }
    let wrong = |code, span, message: String, advice: &str| {
        Box::new(position.finding(Severity::Error, code, span, message, advice))
    };
    if let Some(at) = text.iter().position(u8::is_ascii_control) {
        let byte = text.get(at).copied().unwrap_or_default();
        let (name, advice) = match byte {
            b'\t' => ("tab", "auditd separates words at spaces only: use spaces"),
            b'\r' => ("carriage return", "save the file with Unix line ends"),
            _ => ("control character", "remove it"),
        };
        let at = position.start + at;
        return Err(wrong(
            "control-character",
            at..at + 1,
            format!("{name} in the line: auditd takes it as part of a word"),
            advice,
        ));
    }
    let end = position.start + text.len();
    let form = "write `key = value`, with spaces around the equal sign";
    match words.next() {
        None => {
            return Err(wrong(
                "incomplete-line",
                key.span(),
                format!("`{}` has no value", key.text),
                form,
            ));
        }
        Some(equal) if equal.text != "=" => {
            return Err(wrong(
                "missing-equal-sign",
                equal.span(),
                format!("expected `=` after `{}`", key.text),
                form,
            ));
        }
        Some(_) => {}
    }
    let Some(value) = words.next() else {
        return Err(wrong(
            "incomplete-line",
            end..end,
            format!("`{}` has no value", key.text),
            "write a value, or remove the line",
        ));
    };
    Ok(Some(Assignment {
        position,
        key,
        value,
        extra: words.collect(),
    }))
}

/// Words of a line. `start` is the offset of the line in the file.
fn words(line: &[u8], start: usize) -> impl Iterator<Item = Word<'_>> {
    let mut at = start;
    line.split(|&byte| byte == b' ').filter_map(move |word| {
        let here = at;
        at += word.len() + 1;
        (!word.is_empty()).then_some(Word {
            text: word.as_bstr(),
            start: here,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &[u8]) -> Vec<(&'static str, u32, u32)> {
        let (_, findings) = parse_assignments(text);
        findings
            .iter()
            .map(|finding| (finding.code, finding.line, finding.column))
            .collect()
    }

    #[test]
    fn words_are_separated_by_spaces_only() {
        let (lines, findings) = parse_assignments(b"# c\n\n  #c = d\n  flush  =   NONE x # y\n");
        assert_eq!(findings, []);
        let [line] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        assert_eq!((line.position.line, line.key.start), (4, 16));
        assert!(line.key.is("FLUSH"));
        assert_eq!(line.value.text, "NONE");
        let extra: Vec<&BStr> = line.extra.iter().map(|word| word.text).collect();
        assert_eq!(extra, ["x", "#", "y"]);
    }

    #[test]
    fn malformed_lines_are_reported_with_position() {
        assert_eq!(errors(b"\nflush\n"), [("incomplete-line", 2, 1)]);
        assert_eq!(errors(b"flush =\n"), [("incomplete-line", 1, 8)]);
        assert_eq!(errors(b"flush=NONE\n"), [("incomplete-line", 1, 1)]);
        assert_eq!(errors(b"flush NONE\n"), [("missing-equal-sign", 1, 7)]);
        assert_eq!(errors(b"flush =NONE x\n"), [("missing-equal-sign", 1, 7)]);
        assert_eq!(errors(b"flush\t= NONE\n"), [("control-character", 1, 6)]);
        assert_eq!(errors(b"flush = NONE\r\n"), [("control-character", 1, 13)]);
        assert_eq!(errors(b"flush = a\0b\n"), [("control-character", 1, 10)]);
        assert_eq!(errors(b"flush = NONE"), [("unended-line", 1, 1)]);
    }

    #[test]
    fn too_long_lines_are_reported() {
        let long = |len: usize| [b"name = ", vec![b'x'; len - 7].as_slice(), b"\n"].concat();
        assert_eq!(errors(&long(158)), []);
        assert_eq!(errors(&long(159)), [("long-line", 1, 1)]);
        assert_eq!(
            parse_assignments(&long(510)).1[0].severity,
            Severity::Warning
        );
        assert_eq!(parse_assignments(&long(511)).1[0].severity, Severity::Error);
        let comment = [vec![b'#'; 600].as_slice(), b"\n"].concat();
        assert_eq!(errors(&comment), []);
    }
}
