//! Lines on standard error, with the priority that the journal wants where it is what listens.
//!
//! # Source
//! `sd-daemon(3)` for the prefixes, and `systemd.exec(5)` for `JOURNAL_STREAM`.

use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::sync::LazyLock;

use nix::sys::stat::fstat;

/// How urgent a line is: the levels of `syslog(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Somebody must act.
    Alert = 1,
    /// Something was not done.
    Error = 3,
    /// Something may be wrong.
    Warning = 4,
    /// What the daemon does.
    Info = 6,
}

/// Whether standard error is a stream of the journal. It never becomes another one.
static TO_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    is_stream(&stream, io::stderr())
});

/// Whether the journal listens.
pub(crate) fn stderr_is_journal() -> bool {
    *TO_JOURNAL
}

/// Says lines. That nobody listens is no reason to stop auditing.
pub(crate) fn emit(priority: Priority, text: &str) {
    let _deaf = io::stderr()
        .lock()
        .write_all(lines(priority, text, stderr_is_journal()).as_bytes());
}

/// The journal knows by itself who speaks, and takes each line for a message of its own.
fn lines(priority: Priority, text: &str, to_journal: bool) -> String {
    if !to_journal {
        return format!("tollgate: {text}\n");
    }
    let number = priority as u8;
    text.lines()
        .map(|line| format!("<{number}>{line}\n"))
        .collect()
}

/// Whether a descriptor is the stream that is named, as `DEVICE:INODE`.
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
    fn the_journal_gets_a_priority_for_each_line() {
        let text = "one\ntwo";
        assert_eq!(lines(Priority::Error, text, false), "tollgate: one\ntwo\n");
        assert_eq!(lines(Priority::Error, text, true), "<3>one\n<3>two\n");
        assert_eq!(lines(Priority::Alert, "now", true), "<1>now\n");
    }

    #[test]
    fn only_the_stream_that_is_named_is_the_journal() {
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
