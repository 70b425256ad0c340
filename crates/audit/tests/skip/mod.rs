//! Reports a test that cannot run here.

use std::io::Write as _;

/// Prints that a test was skipped, and why. The test harness captures what `println!` writes; it does not
/// capture this.
pub(crate) fn skipped(test: &str, reason: &str) {
    // Nothing can report that standard error is closed.
    let _ok = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
}
