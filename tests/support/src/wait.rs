//! Waiting for a condition with a deadline.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::poll::{PollTimeout, poll};

/// Deadline for conditions that take a fraction of a second on an idle machine; emulated and busy machines are much
/// slower.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Poll interval.
const INTERVAL_MS: u8 = 5;

/// Polls until `ask` returns a value, for at most [`PATIENCE`].
///
/// # Errors
/// An error of `ask`, or a timeout.
pub fn wait_for<T>(
    what: &str,
    ask: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    wait_within(PATIENCE, what, ask)
}

/// Polls until `ask` returns a value, for at most `longest`.
///
/// # Errors
/// An error of `ask`, or a timeout.
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
