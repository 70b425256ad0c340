//! Waiting for a condition with a deadline.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::poll::{PollTimeout, poll};

/// How long a test waits for what takes a fraction of a second on an idle machine. Emulated processors
/// and busy machines are slower by far.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks at the condition.
const INTERVAL_MS: u8 = 5;

/// Polls until `ask` has an answer, for [`PATIENCE`] at most.
///
/// # Errors
/// An error of `ask`, or the deadline has passed.
pub fn wait_for<T>(
    what: &str,
    ask: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    wait_within(PATIENCE, what, ask)
}

/// Polls until `ask` has an answer, for `longest` at most.
///
/// # Errors
/// An error of `ask`, or the deadline has passed.
pub fn wait_within<T>(
    longest: Duration,
    what: &str,
    mut ask: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + longest;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        ensure!(
            Instant::now() < deadline,
            "timeout after {} s: {what}",
            longest.as_secs()
        );
        poll(&mut [], PollTimeout::from(INTERVAL_MS)).context("cannot wait")?;
    }
}
