//! Runs a daemon beside a workload.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::machine::cpu_time;

/// Maximum time for a daemon to start, to catch up, or to stop.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A log that has not grown for this time is complete: ten times the delay of either daemon.
const SETTLED_AFTER: Duration = Duration::from_millis(300);

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    lines: Receiver<String>,
}

impl Daemon {
    /// Starts a daemon and collects its standard error.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let program = command.get_program().display().to_string();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run `{program}`"))?;
        let errors = child.stderr.take().context("no standard error")?;
        let (sender, lines) = mpsc::channel();
        // The thread ends with the daemon.
        drop(
            thread::Builder::new()
                .name("bench-stderr".into())
                .spawn(move || {
                    BufReader::new(errors)
                        .lines()
                        .map_while(Result::ok)
                        .try_for_each(|line| sender.send(line))
                })
                .context("cannot start a thread")?,
        );
        Ok(Self { child, lines })
    }

    /// Waits for a line on its standard error and returns it.
    ///
    /// # Errors
    /// When the daemon ends first, or on timeout; contains its output.
    pub(crate) fn wait_for_line(&self, beginning: &str) -> anyhow::Result<String> {
        self.wait_for_line_while(beginning, || {})
    }

    /// The same, and does something now and then until the line comes.
    ///
    /// # Errors
    /// As those of [`Self::wait_for_line`].
    pub(crate) fn wait_for_line_while(
        &self,
        beginning: &str,
        mut act: impl FnMut(),
    ) -> anyhow::Result<String> {
        let deadline = Instant::now() + TIMEOUT;
        let mut output = Vec::new();
        loop {
            match self.lines.recv_timeout(POLL_INTERVAL) {
                Ok(line) if line.starts_with(beginning) => return Ok(line),
                Ok(line) => output.push(line),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => act(),
                Err(_) => bail!(
                    "no line beginning with `{beginning}` in its output: {}",
                    output.join("\n")
                ),
            }
        }
    }

    /// Fails if the daemon has ended.
    ///
    /// # Errors
    /// Contains its output.
    pub(crate) fn ensure_running(&mut self) -> anyhow::Result<()> {
        let Some(status) = self
            .child
            .try_wait()
            .context("cannot wait for the daemon")?
        else {
            return Ok(());
        };
        let output: Vec<String> = self.lines.iter().collect();
        bail!("the daemon ended, {status}: {}", output.join("\n"))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time so far.
    ///
    /// # Errors
    /// When the daemon has ended.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        let pid = self.pid();
        cpu_time(pid).with_context(|| format!("the daemon, {pid}, is gone"))
    }

    /// Sends SIGTERM and waits; returns the exit status and the output since the last call.
    ///
    /// # Errors
    /// When the daemon does not end.
    pub(crate) fn stop(mut self) -> anyhow::Result<(ExitStatus, Vec<String>)> {
        let gone = self
            .child
            .try_wait()
            .context("cannot wait for the daemon")?;
        ensure!(gone.is_none(), "the daemon ended by itself");
        kill(Pid::from_raw(self.pid().cast_signed()), Signal::SIGTERM)
            .context("cannot signal the daemon")?;
        let mut status = None;
        wait_until("the daemon to end", || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        let status = status.context("the daemon did not end")?;
        Ok((status, self.lines.iter().collect()))
    }
}

/// Stops the daemon after an error.
impl Drop for Daemon {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let _gone = kill(
            Pid::from_raw(self.child.id().cast_signed()),
            Signal::SIGTERM,
        );
        let ended = wait_until("the daemon to end", || Ok(self.child.try_wait()?.is_some()));
        if ended.is_err() {
            drop(self.child.kill().and_then(|()| self.child.wait()));
        }
    }
}

/// Waits until a log stops growing; returns its size.
///
/// # Errors
/// On timeout.
pub(crate) fn wait_until_settled(log: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    let mut since = Instant::now();
    wait_until("the log to be complete", || {
        let now = fs::metadata(log).map_or(0, |metadata| metadata.len());
        if now != bytes {
            bytes = now;
            since = Instant::now();
        }
        Ok(since.elapsed() >= SETTLED_AFTER)
    })?;
    Ok(bytes)
}

/// Waits until a condition holds.
///
/// # Errors
/// On timeout, or when the condition cannot be evaluated.
pub(crate) fn wait_until(
    what: &str,
    mut condition: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    while !condition()? {
        if Instant::now() > deadline {
            bail!("waited {} s for {what}", TIMEOUT.as_secs());
        }
        thread::park_timeout(POLL_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn daemon_is_awaited_and_stopped() {
        let script = "trap 'echo bye >&2; exit 3' TERM
            echo hello >&2; echo ready >&2
            while :; do sleep 0.01; done";
        let daemon = Daemon::start(&mut shell(script)).unwrap();
        daemon.wait_for_line("ready").unwrap();
        let (status, output) = daemon.stop().unwrap();
        assert_eq!((status.code(), output), (Some(3), vec!["bye".to_owned()]));
    }

    #[test]
    fn daemon_that_exits_early_is_an_error_with_its_output() {
        let daemon = Daemon::start(&mut shell("echo no rules >&2; exit 1")).unwrap();
        let error = daemon.wait_for_line("ready").unwrap_err().to_string();
        assert!(error.contains("no rules"), "{error}");
        let mut daemon = Daemon::start(&mut shell("echo no plugin >&2; exit 1")).unwrap();
        wait_until("it to end", || Ok(daemon.ensure_running().is_err())).unwrap();
    }
}
