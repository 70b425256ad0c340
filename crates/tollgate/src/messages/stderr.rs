//! Lines on standard error. If that is a stream of the systemd journal, each line has its priority.
//!
//! # Source
//! `sd-daemon(3)` for the prefixes, and `systemd.exec(5)` for `JOURNAL_STREAM`.

use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::sync::LazyLock;

use nix::sys::stat::fstat;

/// The priority of a line: a level of `syslog(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// An administrator must act.
    Alert = 1,
    /// An operation failed.
    Error = 3,
    /// Something may be wrong.
    Warning = 4,
    /// State of the daemon.
    Info = 6,
}

/// Whether standard error is a stream of the journal; constant for the life of the process.
static TO_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    is_stream(&stream, io::stderr())
});

/// Whether standard error is a stream of the journal.
pub(crate) fn stderr_is_journal() -> bool {
    *TO_JOURNAL
}

/// Prints lines. Write errors are ignored: auditing goes on.
pub(crate) fn emit(priority: Priority, text: &str) {
    let _closed = io::stderr()
        .lock()
        .write_all(lines(priority, text, stderr_is_journal()).as_bytes());
}

/// Formats lines. The journal knows the sender, and each line is a separate message.
fn lines(priority: Priority, text: &str, to_journal: bool) -> String {
    if !to_journal {
        return format!("tollgate: {text}\n");
    }
    let number = priority as u8;
    text.lines()
        .map(|line| format!("<{number}>{line}\n"))
        .collect()
}

/// Whether a descriptor is the stream `DEVICE:INODE`.
fn is_stream(stream: &str, descriptor: impl AsFd) -> bool {
    let named = stream.split_once(':').and_then(|(device, inode)| {
        Some((device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?))
    });
    let is = fstat(descriptor).map(|about| (about.st_dev, about.st_ino));
    named.is_some() && named == is.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_lines_have_a_priority() {
        let text = "one\ntwo";
        assert_eq!(lines(Priority::Error, text, false), "tollgate: one\ntwo\n");
        assert_eq!(lines(Priority::Error, text, true), "<3>one\n<3>two\n");
        assert_eq!(lines(Priority::Alert, "now", true), "<1>now\n");
    }

    #[test]
    fn only_the_named_stream_is_the_journal() {
        let file = tempfile::tempfile().unwrap();
        let about = fstat(&file).unwrap();
        let named = format!("{}:{}", about.st_dev, about.st_ino);
        assert!(is_stream(&named, &file));
        let other = tempfile::tempfile().unwrap();
        assert!(!is_stream(&named, &other));
        for wrong in ["", "1", "a:b"] {
            assert!(!is_stream(wrong, &file));
        }
    }
}
