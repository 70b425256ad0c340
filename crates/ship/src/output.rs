//! Standard error, standard output, and times for people.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the program.
static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Sets the name of the program, which begins each line.
pub(crate) fn set_program(name: &'static str) {
    let _is_first = PROGRAM.set(name);
}

/// Prints a line on standard error, in one write, so that a reader sees whole lines. A closed pipe is ignored.
pub(crate) fn info(line: impl Display) {
    let program = PROGRAM.get().unwrap_or(&"tollgate");
    let _closed = io::stderr().write_all(format!("{program}: {line}\n").as_bytes());
}

/// Most characters of a text that a peer answers.
const MAX_PEER_TEXT: usize = 200;

/// The last text that was told: the same one is not told again.
#[derive(Debug, Default)]
pub(crate) struct LastTold(String);

impl LastTold {
    /// Whether a text differs from the last one, which it replaces.
    pub(crate) fn is_new(&mut self, text: &str) -> bool {
        let is_new = self.0 != text;
        text.clone_into(&mut self.0);
        is_new
    }
}

/// Prints on standard output. A closed pipe is no error.
///
/// # Errors
/// It cannot be written.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
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

/// The start of a text that a peer answers, on one line.
pub(crate) fn peer_text(text: &str) -> String {
    let start: String = text.trim().chars().take(MAX_PEER_TEXT).collect();
    one_line(&start)
}

/// Milliseconds since the epoch.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
