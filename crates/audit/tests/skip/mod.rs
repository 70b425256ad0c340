//! Reports a test that cannot run here.

use std::io::Write as _;

/// Prints that a test was skipped, and why. `cargo xtask` counts the line; the test harness captures what `println!`
/// writes, and not this. Its progress dots have no newline.
pub(crate) fn skipped(test: &str, reason: &str) {
    // Nothing can report that standard output is closed.
    let line = format!("\nskipped: {test}: {reason}\n");
    let _ok = std::io::stdout().write_all(line.as_bytes());
}
