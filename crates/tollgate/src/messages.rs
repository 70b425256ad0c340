//! What the commands say about mistakes, and the status they end with.
//!
//! Findings about rule text are drawn over the line they are about. The line comes from a file that
//! anyone may have written: whatever could move the cursor or reorder text is shown escaped.

mod voice;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::Range;
use std::process::ExitCode;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};
use audit::rule::{Diagnostic, Severity};
use bstr::ByteSlice as _;
use nix::errno::Errno;

use crate::rule_files::{RuleFiles, RuleFile};
pub(crate) use voice::{Priority, stderr_is_journal, emit};

/// How a command ends. A command line that cannot be read ends with 2, which is clap's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: what was asked for is done, and nothing is wrong.
    Success,
    /// 1: it could not be done, or what was looked at is wrong.
    Failure,
    /// 3: the daemon ended well, but events were lost, or it was blind for a time.
    Lost,
    /// 4: not allowed, as `auditctl` and `auditd` say it.
    NotRoot,
    /// 6: the configuration is wrong, as `auditd` says it.
    Config,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Failure => Self::FAILURE,
            Exit::Lost => Self::from(3),
            Exit::NotRoot => Self::from(4),
            Exit::Config => Self::from(6),
        }
    }
}

/// Says a line on standard error. That nobody listens is no reason to stop auditing.
pub(crate) fn info(line: &str) {
    emit(Priority::Info, line);
}

/// Says that something may be wrong.
pub(crate) fn warn(line: &str) {
    emit(Priority::Warning, line);
}

/// Says on one line of stderr what stopped the program.
pub(crate) fn failure(error: &anyhow::Error) -> ExitCode {
    emit(Priority::Error, &escape_control(&format!("{error:#}")));
    Exit::Failure.into()
}

/// What helps where a running daemon may not write: it has given up to write anywhere else than where it
/// did at its start.
pub(crate) fn advice(error: &anyhow::Error) -> &'static str {
    let refused = error.chain().any(|cause| {
        let of_io = cause.downcast_ref::<io::Error>();
        of_io.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
            || cause.downcast_ref() == Some(&Errno::EACCES)
    });
    if refused {
        "; a running daemon writes only below the directories that it was started with: restart it"
    } else {
        ""
    }
}

/// A closed pipe is not a failure: whoever read it has seen enough.
///
/// # Errors
/// Any other error of `written`.
pub(crate) fn ignore_broken_pipe(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Draws every finding about a file. Colours are for `out` to strip where they are not wanted:
/// `anstream` does.
///
/// # Errors
/// What `out` answers.
pub(crate) fn findings(file: &RuleFile, out: &mut impl Write) -> io::Result<()> {
    for finding in &file.diagnostics {
        writeln!(out, "{}\n", draw(file, finding, &Renderer::styled()))?;
    }
    Ok(())
}

/// Draws what is wrong with rule files, or probably wrong, on stderr.
pub(crate) fn warnings(loaded: &RuleFiles) {
    loaded.files.iter().for_each(print_findings);
}

/// The same for one file, of rules or of configuration.
pub(crate) fn print_findings(file: &RuleFile) {
    let mut err = anstream::stderr().lock();
    let said = file
        .diagnostics
        .iter()
        .filter(|found| found.severity >= Severity::Warning);
    for finding in said {
        if stderr_is_journal() {
            let priority = match finding.severity {
                Severity::Error => Priority::Error,
                Severity::Warning | Severity::Note => Priority::Warning,
            };
            emit(priority, &draw(file, finding, &Renderer::plain()));
            continue;
        }
        // When stderr is gone there is nobody to tell.
        drop(writeln!(
            err,
            "{}\n",
            draw(file, finding, &Renderer::styled())
        ));
    }
}

fn draw(file: &RuleFile, finding: &Diagnostic, renderer: &Renderer) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let path = escape_control(&file.path.to_string_lossy()).into_owned();
    let excerpt = Excerpt::of(&file.bytes, &finding.span);
    let line = usize::try_from(finding.line).unwrap_or(usize::MAX);
    let column = usize::try_from(finding.column).unwrap_or(usize::MAX);
    let snippet = Snippet::source(excerpt.text)
        .line_start(line)
        .annotation(AnnotationKind::Primary.span(excerpt.span));
    let title = level
        .primary_title(finding.message.as_str())
        .id(finding.code);
    // A snippet that has a path counts the column in what is shown, which is only right when that
    // is the line itself. Otherwise the place is given apart.
    let group = if excerpt.exact {
        title.element(snippet.path(path))
    } else {
        title
            .element(Origin::path(path).line(line).char_column(column))
            .element(snippet)
    };
    let group = group.element(Level::HELP.message(finding.advice.as_str()));
    renderer.render(&[group])
}

/// A part of a line, as it is shown, and where in it a finding is.
#[derive(Debug, PartialEq, Eq)]
struct Excerpt {
    text: String,
    span: Range<usize>,
    /// Whether it is the whole line, byte for byte, and a column is a byte.
    exact: bool,
}

impl Excerpt {
    /// Bytes of a line that are shown before and from the start of the span.
    const BEFORE: usize = 120;
    const AFTER: usize = 200;

    /// The line around `span`, cut to what a terminal can show.
    fn of(bytes: &[u8], span: &Range<usize>) -> Self {
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
        // An empty span is pointed at by the byte after it, or by the end of the line.
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

/// Appends bytes of a file: letters and digits of any script and printable ASCII as they are, all
/// else as escapes.
fn push_escaped(bytes: &[u8], out: &mut String) {
    for (start, end, char) in bytes.char_indices() {
        if char.is_ascii_graphic() || char == ' ' || (char.is_alphanumeric() && !char.is_ascii()) {
            out.push(char);
            continue;
        }
        for byte in bytes.get(start..end).unwrap_or_default() {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}", byte.escape_ascii());
        }
    }
}

/// Text for a terminal, with control characters escaped.
pub(crate) fn escape_control(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for char in text.chars() {
        if char.is_control() {
            out.extend(char.escape_default());
        } else {
            out.push(char);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn drawn(text: &[u8]) -> String {
        let file = RuleFile::parse("a.rules".into(), text.to_vec());
        let drawn: Vec<String> = file
            .diagnostics
            .iter()
            .map(|finding| draw(&file, finding, &Renderer::plain()))
            .collect();
        drawn.join("\n")
    }

    #[test]
    fn a_finding_is_drawn_over_its_line() {
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
    fn long_lines_are_cut_around_the_finding() {
        let mut line = b"-k ".to_vec();
        line.resize(100_000, b'x');
        let drawn = drawn(&line);
        assert!(
            drawn.contains("a.rules:1:1") && drawn.len() < 1000,
            "{drawn}"
        );
        let excerpt = Excerpt::of(&[b'x'; 1000], &(500..510));
        assert_eq!(excerpt.span, 123..133);
        assert_eq!(excerpt.text.len(), 3 + 120 + 200 + 3);
    }

    #[test]
    fn each_broken_rule_says_file_line_and_column() {
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
        for (text, place) in cases {
            let drawn = drawn(text);
            assert!(drawn.contains(place), "{place}: {drawn}");
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

    #[test]
    fn control_characters_of_names_are_escaped() {
        assert_eq!(escape_control("a\u{1b}[m\n"), r"a\u{1b}[m\n");
        assert_eq!(escape_control("a"), "a");
    }

    #[test]
    fn a_closed_pipe_is_success() {
        assert!(ignore_broken_pipe(Err(io::ErrorKind::BrokenPipe.into())).is_ok());
        assert!(ignore_broken_pipe(Err(io::ErrorKind::StorageFull.into())).is_err());
    }
}
