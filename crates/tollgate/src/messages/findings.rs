//! Findings in a file that the user wrote, drawn over the line that they are about.
//!
//! Anyone may have written the file: characters that could move the cursor or reorder text are escaped.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};
use audit::rule::{Diagnostic, Severity};
use bstr::ByteSlice as _;

use super::{Priority, emit, escape_control, has_priorities};

/// The text of a file and the findings about it.
#[derive(Clone, Debug)]
pub(crate) struct SourceText {
    /// The path as the user gave it.
    pub(crate) path: PathBuf,
    /// The text; spans of findings are byte offsets in it.
    pub(crate) bytes: Vec<u8>,
    /// The findings, in the order of the text.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl SourceText {
    /// Returns the number of findings of a severity.
    pub(crate) fn count(&self, severity: Severity) -> usize {
        self.diagnostics
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }

    /// Describes the errors on one line: the first with its place, and their number. `None` if there are none.
    pub(crate) fn errors(&self) -> Option<String> {
        let mut errors = self
            .diagnostics
            .iter()
            .filter(|finding| finding.severity == Severity::Error);
        let first = errors.next()?;
        let path = self.path.display();
        let text = format!("{path}:{}: {}", first.line, first.message);
        Some(first_of(&text, errors.count() + 1))
    }
}

/// The first of `count` reasons, on one line.
pub(crate) fn first_of(first: &str, count: usize) -> String {
    let others = match count {
        0 | 1 => String::new(),
        _ => format!(" (and {} more)", count - 1),
    };
    escape_control(first).into_owned() + &others
}

/// Draws every finding about a file. The text is coloured; an `anstream` writer strips colours where
/// they are not supported.
///
/// # Errors
/// Errors of `out`.
pub(crate) fn write_findings(file: &SourceText, out: &mut impl Write) -> io::Result<()> {
    for finding in &file.diagnostics {
        writeln!(out, "{}\n", draw(file, finding, &Renderer::styled()))?;
    }
    Ok(())
}

/// Prints errors and warnings about a file on standard error; notes are left out.
pub(crate) fn print_findings(file: &SourceText) {
    let mut err = anstream::stderr().lock();
    let shown = file
        .diagnostics
        .iter()
        .filter(|found| found.severity >= Severity::Warning);
    for finding in shown {
        if has_priorities() {
            let priority = match finding.severity {
                Severity::Error => Priority::Error,
                Severity::Warning | Severity::Note => Priority::Warning,
            };
            emit(priority, &draw(file, finding, &Renderer::plain()));
            continue;
        }
        let text = draw(file, finding, &Renderer::styled());
        // Nothing can report that stderr is closed.
        drop(writeln!(err, "{text}\n"));
    }
}

fn draw(file: &SourceText, finding: &Diagnostic, renderer: &Renderer) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let path = escape_control(&file.path.to_string_lossy()).into_owned();
    let excerpt = Excerpt::new(&file.bytes, &finding.span);
    let line = usize::try_from(finding.line).unwrap_or(usize::MAX);
    let column = usize::try_from(finding.column).unwrap_or(usize::MAX);
    let snippet = Snippet::source(excerpt.text)
        .line_start(line)
        .annotation(AnnotationKind::Primary.span(excerpt.span));
    let title = level
        .primary_title(finding.message.as_str())
        .id(finding.code);
    // annotate-snippets counts the column in the excerpt, which is right only if the excerpt is the
    // whole line. Otherwise the position is given separately.
    let group = if excerpt.exact {
        title.element(snippet.path(path))
    } else {
        title
            .element(Origin::path(path).line(line).char_column(column))
            .element(snippet)
    };
    let advice = escape_control(&finding.advice);
    let group = group.element(Level::HELP.message(advice));
    renderer.render(&[group])
}

/// The part of a line that is shown, and the position of a finding in it.
#[derive(Debug, PartialEq, Eq)]
struct Excerpt {
    text: String,
    span: Range<usize>,
    /// Whether the text is the whole line unchanged and each column is one byte.
    exact: bool,
}

impl Excerpt {
    /// Bytes shown before the start of the span, and from there on.
    const BEFORE: usize = 120;
    const AFTER: usize = 200;

    /// Cuts the line around `span` to a length that a terminal can show.
    fn new(bytes: &[u8], span: &Range<usize>) -> Self {
        let (head, tail) = bytes.split_at(span.start.min(bytes.len()));
        let head = head
            .rsplit(|&byte| byte == b'\n')
            .next()
            .unwrap_or_default();
        let tail = tail.split(|&byte| byte == b'\n').next().unwrap_or_default();

        let mut text = String::new();
        match head
            .len()
            .checked_sub(Self::BEFORE)
            .and_then(|cut| head.get(cut..))
        {
            Some(end) if end.len() < head.len() => {
                text.push_str("...");
                push_escaped(end, &mut text);
            }
            _ => push_escaped(head, &mut text),
        }
        let start = text.len();
        let marked = tail.len().min(span.len()).min(Self::AFTER);
        let (marked, rest) = tail.split_at(marked);
        push_escaped(marked, &mut text);
        // An empty span is marked at the byte after it, or at the end of the line.
        let end = text.len();
        let rest = rest
            .get(..Self::AFTER - marked.len())
            .map_or((rest, ""), |rest| (rest, "..."));
        push_escaped(rest.0, &mut text);
        text.push_str(rest.1);
        let line = [head, tail].concat();
        let exact = line.is_ascii() && line == text.as_bytes();
        Self {
            text,
            span: start..end,
            exact,
        }
    }
}

/// Whether a character is shown as it is: printable ASCII, letters and digits of any script, and the dashes and quotes
/// that editors write in place of `-` and `"`. None of them moves the cursor or reorders text.
fn is_shown(char: char) -> bool {
    char.is_ascii_graphic()
        || char == ' '
        || (char.is_alphanumeric() && !char.is_ascii())
        || matches!(char, '\u{2010}'..='\u{201f}' | '\u{2212}')
}

/// Appends bytes of a file; those that are not shown are escaped.
fn push_escaped(bytes: &[u8], out: &mut String) {
    for (start, end, char) in bytes.char_indices() {
        // An invalid byte is a replacement character here, which is no letter.
        if is_shown(char) {
            out.push(char);
            continue;
        }
        for byte in bytes.get(start..end).unwrap_or_default() {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}", byte.escape_ascii());
        }
    }
}

#[cfg(test)]
mod tests {
    use audit::rule::parse_file;

    use super::*;
    use crate::host::ThisMachine;

    #[track_caller]
    fn drawn(text: &[u8]) -> String {
        let file = SourceText {
            path: "a.rules".into(),
            bytes: text.to_vec(),
            diagnostics: parse_file(text, &ThisMachine).1,
        };
        let drawn: Vec<String> = file
            .diagnostics
            .iter()
            .map(|finding| draw(&file, finding, &Renderer::plain()))
            .collect();
        drawn.join("\n")
    }

    #[test]
    fn finding_is_drawn_over_its_line() {
        let expected = "\
error[unknown-field]: unknown field `audi`
 --> a.rules:2:19
  |
2 | -a always,exit -F audi>=1000
  |                   ^^^^
  |
  = help: did you mean `auid`?";
        assert_eq!(drawn(b"-D\n-a always,exit -F audi>=1000\n"), expected);
    }

    #[test]
    fn hostile_bytes_are_escaped() {
        let drawn = drawn(b"-a always,exit -F \x1b[2J\xff\xe2\x80\xae\xc3\xa9=1\n");
        assert!(drawn.contains(r"-F \x1b[2J\xff\xe2\x80\xae"), "{drawn}");
        assert!(drawn.contains('\u{e9}'), "{drawn}");
        assert!(
            !drawn.contains('\x1b') && !drawn.contains('\u{202e}'),
            "{drawn}"
        );
    }

    #[test]
    fn pasted_dash_is_shown() {
        let drawn = drawn("\u{2013}w /etc/passwd\n".as_bytes());
        assert!(drawn.contains("\u{2013}w /etc/passwd"), "{drawn}");
    }

    #[test]
    fn long_lines_are_cut_around_the_finding() {
        let mut line = b"-k ".to_vec();
        line.resize(100_000, b'x');
        let drawn = drawn(&line);
        assert!(
            drawn.contains("a.rules:1:1") && drawn.len() < 1000,
            "{drawn}"
        );
        let excerpt = Excerpt::new(&[b'x'; 1000], &(500..510));
        assert_eq!(excerpt.span, 123..133);
        assert_eq!(excerpt.text.len(), 3 + 120 + 200 + 3);
    }

    #[test]
    fn each_broken_rule_shows_file_line_and_column() {
        let mut long = b"-a always,exit -k ".to_vec();
        long.resize(100_000, b'x');
        let cases: [(&[u8], &str); 8] = [
            (b"-a always,exit -F foo=1\n", "a.rules:1:19"),
            (b"-a always,exit -F arch>b64\n", "a.rules:1:23"),
            (b"-S open\n", "a.rules:1:1"),
            (b"-a always,exit -F arch=b64 -S nosuch\n", "a.rules:1:31"),
            (&long, "a.rules:1:1"),
            (b"-w /a\0b\n", "a.rules:1:6"),
            (b"-D\r\n-w /x\r\n", "a.rules:2:6"),
            (b"-D\n-x", "a.rules:2:1"),
        ];
        for (text, position) in cases {
            let drawn = drawn(text);
            assert!(drawn.contains(position), "{position}: {drawn}");
        }
    }

    #[test]
    fn findings_at_the_end_of_a_line_are_drawn() {
        for text in [
            &b"-k"[..],
            b"-D -D\n",
            b"-a always,exit -S 1 -F key=\n",
            b"\t",
        ] {
            assert!(drawn(text).contains("a.rules:1:"));
        }
    }
}
