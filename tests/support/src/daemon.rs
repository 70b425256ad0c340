//! A running daemon: its output, its log and its summary.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bstr::ByteSlice as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::wait_within;

/// Printed when all hooks are attached.
const READY: &str = "tollgate: auditing ";
/// Printed last.
const STOPPED: &str = "tollgate: stopped: ";
/// Printed when rules have been replaced, and when new rules were rejected.
const REPLACED: &str = "tollgate: rules replaced: ";
const REFUSED: &str = "the old rules stay in force";

/// Time that [`Drop`] gives the daemon to exit and to restore what it has changed.
const LONGEST_DROP: Duration = Duration::from_secs(30);
/// Time to wait for more output after its end: child processes may hold its standard error open.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    child: Mutex<Child>,
    pid: Pid,
    stderr: Mutex<Receiver<String>>,
    output: Mutex<Vec<String>>,
    rules: PathBuf,
    log: PathBuf,
}

/// The counts of a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events that rules matched.
    pub matched: u64,
    /// Events in the log.
    pub written: u64,
    /// Events counted as lost.
    pub lost: u64,
}

/// The final state of a daemon.
#[derive(Clone, Debug)]
pub struct Account {
    /// The last line that it printed.
    pub line: String,
    /// The counts in that line.
    pub summary: Summary,
    /// Its exit status.
    pub status: ExitStatus,
}

impl Summary {
    /// Parses `stopped: matched 3, written 3, lost 0`.
    ///
    /// # Errors
    /// A count is missing.
    pub fn parse(line: &str) -> anyhow::Result<Self> {
        Ok(Self {
            matched: count(line, "matched ")?,
            written: count(line, "written ")?,
            lost: count(line, "lost ")?,
        })
    }
}

/// The number after a word of the summary.
///
/// # Errors
/// The word or a number after it is missing.
pub fn count(line: &str, word: &str) -> anyhow::Result<u64> {
    let missing = || format!("no `{word}` in: {line}");
    let (_, rest) = line.split_once(word).with_context(missing)?;
    let digits = rest.split(|char: char| !char.is_ascii_digit()).next();
    digits.unwrap_or_default().parse().with_context(missing)
}

impl Daemon {
    /// Starts a command that is a daemon with these rules and this log, and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, or is not ready within `longest`.
    pub fn start(
        command: &mut Command,
        rules: &Path,
        log: &Path,
        longest: Duration,
    ) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the daemon")?;
        let stderr = child.stderr.take().context("no standard error")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let daemon = Self {
            pid: Pid::from_raw(child.id().cast_signed()),
            child: Mutex::new(child),
            stderr: Mutex::new(lines),
            output: Mutex::default(),
            rules: rules.to_owned(),
            log: log.to_owned(),
        };
        daemon.wait_for_line(&[READY], longest)?;
        Ok(daemon)
    }

    /// Its process id.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Its rule file.
    pub fn rules(&self) -> &Path {
        &self.rules
    }

    /// Its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// All lines printed so far.
    pub fn output(&self) -> Vec<String> {
        let new: Vec<String> = lock(&self.stderr).try_iter().collect();
        let mut output = lock(&self.output);
        output.extend(new);
        output.clone()
    }

    /// Whether a printed line contains this text.
    pub fn has_printed(&self, text: &str) -> bool {
        self.output().iter().any(|line| line.contains(text))
    }

    /// Waits for a printed line that contains one of these texts; returns the line.
    ///
    /// # Errors
    /// It ends without such a line, or does not print it within `longest`.
    pub fn wait_for_line(&self, texts: &[&str], longest: Duration) -> anyhow::Result<String> {
        let wanted = texts.join("` or `");
        let deadline = Instant::now() + longest;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let received = lock(&self.stderr).recv_timeout(left);
            let mut output = lock(&self.output);
            match received {
                Ok(line) => {
                    output.push(line.clone());
                    if texts.iter().any(|text| line.contains(text)) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = longest.as_secs();
                    bail!("the daemon does not print `{wanted}` within {seconds} s")
                }
                Err(RecvTimeoutError::Disconnected) => bail!(
                    "the daemon ends without printing `{wanted}`: {}",
                    output.join("\n")
                ),
            }
        }
    }

    /// Writes other rules to the rule file and sends SIGHUP.
    ///
    /// # Errors
    /// The file cannot be written, or the daemon has ended.
    pub fn begin_to_replace(&self, rules: &str) -> anyhow::Result<()> {
        fs::write(&self.rules, rules).context("cannot write the rules")?;
        self.signal(Signal::SIGHUP)
    }

    /// Replaces the rules with SIGHUP and waits for the result; true if the new rules are in force.
    ///
    /// # Errors
    /// It prints no result within `longest`.
    pub fn replace(&self, rules: &str, longest: Duration) -> anyhow::Result<bool> {
        self.begin_to_replace(rules)?;
        let line = self.wait_for_line(&[REPLACED, REFUSED], longest)?;
        Ok(line.contains(REPLACED))
    }

    /// The complete lines of its log: the last write may be partial.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn log_text(&self) -> anyhow::Result<Vec<u8>> {
        let mut text = fs::read(&self.log).context("cannot read the log")?;
        text.truncate(text.rfind_byte(b'\n').map_or(0, |end| end + 1));
        Ok(text)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill(self.pid, signal).context("the daemon has ended")
    }

    /// Kills it and waits for its end.
    ///
    /// # Errors
    /// It has ended before.
    pub fn kill(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGKILL)?;
        lock(&self.child)
            .wait()
            .context("cannot wait for the daemon")?;
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It does not end within `longest`.
    pub fn wait(&self, longest: Duration) -> anyhow::Result<ExitStatus> {
        wait_within(longest, "the end of the daemon", || {
            Ok(lock(&self.child).try_wait()?)
        })
    }

    /// Ends it with a signal; returns its final state.
    ///
    /// # Errors
    /// It does not end within `longest`, or prints no summary.
    pub fn end(&self, signal: Signal, longest: Duration) -> anyhow::Result<Account> {
        self.signal(signal)?;
        let line = self.wait_for_line(&[STOPPED], longest)?;
        let summary = Summary::parse(&line)?;
        let status = self.wait(longest)?;
        // Child processes may hold its standard error open.
        let rest = lock(&self.stderr);
        while let Ok(line) = rest.recv_timeout(LONGEST_REST) {
            lock(&self.output).push(line);
        }
        drop(rest);
        Ok(Account {
            line,
            summary,
            status,
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        let _asked = kill(self.pid, Signal::SIGTERM);
        let _ended = wait_within(LONGEST_DROP, "", || Ok(child.try_wait()?));
        let _killed = child.kill();
        let _status = child.wait();
    }
}

/// A lock that outlives a thread that panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
