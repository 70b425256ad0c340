//! Lines on standard error. If that is a stream of the systemd journal, each line has its priority.
//!
//! A daemon that has detached itself keeps neither its terminal nor a pipe to it: its lines go to syslog.
//!
//! # Source
//! `sd-daemon(3)` for the prefixes, `systemd.exec(5)` for `JOURNAL_STREAM`, and `syslog(3)`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::stat::fstat;
use nix::unistd::{dup2_stderr, dup2_stdout};

/// Socket of syslog.
const SYSLOG: &str = "/dev/log";
/// `syslog(3)`: the facility daemon.
const FACILITY: u8 = 3 << 3;

/// The priority of a line: a level of `syslog(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// An administrator must act.
    Alert = 1,
    /// An operation failed.
    Error = 3,
    /// Something may be wrong.
    Warning = 4,
    /// Normal, and worth to be seen.
    Notice = 5,
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

/// Whether lines go to syslog.
static TO_SYSLOG: AtomicBool = AtomicBool::new(false);

/// Whether lines have a priority: they go to the journal or to syslog.
pub(crate) fn has_priorities() -> bool {
    stderr_is_journal() || TO_SYSLOG.load(Ordering::Relaxed)
}

/// The standard streams of a daemon that detaches itself.
#[derive(Debug)]
pub(crate) struct DetachedStreams(File);

impl DetachedStreams {
    /// Opens what replaces the streams: a confined daemon could not.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn open() -> io::Result<Self> {
        let null = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        Ok(Self(null))
    }

    /// Lets go of standard output and standard error: whoever reads them sees their end. Lines go to syslog from now
    /// on.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn let_go(self) -> io::Result<()> {
        TO_SYSLOG.store(true, Ordering::Relaxed);
        dup2_stdout(&self.0)?;
        dup2_stderr(&self.0)?;
        Ok(())
    }
}

/// Sends a message to syslog. Without syslog, or if it is full, the message is lost: it must not block the daemon.
pub(crate) fn send_to_syslog(priority: Priority, text: &str) {
    let number = FACILITY | priority as u8;
    let pid = std::process::id();
    let _result = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        let message = format!("<{number}>tollgate[{pid}]: {text}");
        socket.send_to(message.as_bytes(), SYSLOG)
    });
}

/// Prints lines. Write errors are ignored: auditing goes on.
pub(crate) fn emit(priority: Priority, text: &str) {
    if TO_SYSLOG.load(Ordering::Relaxed) {
        return text.lines().for_each(|line| send_to_syslog(priority, line));
    }
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
