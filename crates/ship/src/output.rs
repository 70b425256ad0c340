//! Standard error, and times for people.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

/// Prints a line on standard error. A closed pipe is ignored.
pub(crate) fn info(line: impl Display) {
    let _closed = writeln!(io::stderr(), "tollgate-ship: {line}");
}

/// A text without what moves the cursor of a terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .map(|letter| match letter.is_control() {
            true => ' ',
            false => letter,
        })
        .collect()
}

/// Milliseconds since the epoch.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
