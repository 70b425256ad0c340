//! Messages on standard error, findings in the user's files, and exit statuses.
//!
//! [`findings`] draws findings over the line of a file that they are about; [`stderr`] adds the priority
//! that the journal reads.

mod findings;
mod stderr;

use std::borrow::Cow;
use std::io;
use std::process::ExitCode;

use jiff::Timestamp;
use nix::errno::Errno;

pub(crate) use findings::{SourceText, first_of, print_findings, write_findings};
pub(crate) use stderr::{DetachedStreams, Priority, emit, has_priorities, send_to_syslog};

/// The exit status of a command. clap exits with 2 on a malformed command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: success.
    Success,
    /// 1: the command failed, or found errors in what it checked.
    Failure,
    /// 3: the daemon stopped normally, but events were lost or hooks were disabled for a time.
    Lost,
    /// 3: the daemon runs, but files were refused and older rules or settings are in force, or the log is suspended.
    Degraded,
    /// 4: permission denied, as in `auditctl` and `auditd`.
    NotRoot,
    /// 6: configuration error, as in `auditd`.
    Config,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Failure => Self::FAILURE,
            Exit::Lost | Exit::Degraded => Self::from(3),
            Exit::NotRoot => Self::from(4),
            Exit::Config => Self::from(6),
        }
    }
}

/// Prints an informational line on standard error. Write errors are ignored: auditing goes on.
pub(crate) fn info(line: &str) {
    emit(Priority::Info, &without_errno(line));
}

/// Prints a warning.
pub(crate) fn warn(line: &str) {
    emit(Priority::Warning, &without_errno(line));
}

/// Prints the error that ended the program, on one line.
pub(crate) fn print_error(error: &anyhow::Error) -> ExitCode {
    let text = format!("{error:#}");
    emit(Priority::Error, &escape_control(&without_errno(&text)));
    Exit::Failure.into()
}

/// Removes each ` (os error N)`, which the standard library appends to the text of the C library.
pub(crate) fn without_errno(text: &str) -> Cow<'_, str> {
    const START: &str = " (os error ";
    let mut parts = text.split(START);
    let mut shown = Cow::Borrowed(parts.next().unwrap_or_default());
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                shown.to_mut().push_str(rest);
            }
            _ => shown.to_mut().extend([START, part]),
        }
    }
    shown
}

/// Returns a hint to append where Landlock denied a write: a running daemon can write only below the
/// directories that were configured when it started.
pub(crate) fn permission_hint(error: &anyhow::Error) -> &'static str {
    let denied = error.chain().any(|cause| {
        let io_error = cause.downcast_ref::<io::Error>();
        io_error.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
            || cause.downcast_ref() == Some(&Errno::EACCES)
    });
    if denied {
        "; a running daemon can write only below the directories configured when it started: restart it"
    } else {
        ""
    }
}

/// A time in RFC 3339, in UTC.
pub(crate) fn utc(seconds: u64) -> String {
    let time = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or(Timestamp::MAX).to_string()
}

/// A number of things, such as `1 rule` and `2 rules`.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Treats a closed pipe as success: the reader has seen enough.
///
/// # Errors
/// Any other error of `written`.
pub(crate) fn ignore_broken_pipe(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Whether a terminal may obey a character: control characters, and, as in [`logs::escaped`], those that cannot be
/// printed, among them those that change the text direction.
fn is_obeyed(char: char) -> bool {
    char.is_control() || (!char.is_ascii() && char.escape_debug().next() == Some('\\'))
}

/// Escapes characters that a terminal obeys.
pub(crate) fn escape_control(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for char in text.chars() {
        if is_obeyed(char) {
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

    #[test]
    fn error_number_is_left_out() {
        let error = io::Error::from_raw_os_error(2).to_string();
        assert_eq!(without_errno(&error), "No such file or directory");
        assert_eq!(without_errno("a (os error 2); b (os error 13)"), "a; b");
        assert_eq!(without_errno("a (os error x) b"), "a (os error x) b");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape_control("a\u{1b}[m\n"), r"a\u{1b}[m\n");
        assert_eq!(escape_control("a\u{202e}b"), r"a\u{202e}b");
        assert_eq!(escape_control("a"), "a");
    }
}
