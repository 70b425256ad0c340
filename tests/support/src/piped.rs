//! Programs that read a pipe.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::thread;

use anyhow::Context as _;

/// Runs a program whose standard input is a pipe with `input`, which it need not read.
///
/// # Errors
/// The program cannot be started.
pub fn output(command: &mut Command, input: &[u8]) -> anyhow::Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let mut pipe = child.stdin.take().context("no pipe")?;
    thread::scope(|scope| {
        scope.spawn(move || {
            // The program may end before it has read all.
            let _closed = pipe.write_all(input);
        });
        child.wait_with_output().context("cannot wait")
    })
}
