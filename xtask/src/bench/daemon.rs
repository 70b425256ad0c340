//! A daemon that runs while a workload does: started, waited for, asked to end.

use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use super::machine::cpu_time;

/// Longest time that a daemon may take to start, to catch up or to end.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two looks at something that cannot be waited for otherwise.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// A log that has not grown for so long is complete: ten times what either daemon may hold back.
const SETTLED: Duration = Duration::from_millis(300);

/// A running daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    lines: Receiver<String>,
    /// For the script that ends what is left over.
    pid_file: PathBuf,
}

impl Daemon {
    /// Starts a daemon; its standard error is kept.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(command: &mut Command, work: &Path) -> Result<Self, Box<dyn Error>> {
        let program = command.get_program().display().to_string();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run `{program}`: {error}"))?;
        let pid_file = work.join("daemon.pid");
        fs::write(&pid_file, child.id().to_string())?;
        let errors = child.stderr.take().ok_or("no standard error")?;
        let (sender, lines) = mpsc::channel();
        // Ends when the daemon does; who does not listen any more misses nothing.
        drop(
            thread::Builder::new()
                .name("bench-stderr".into())
                .spawn(move || {
                    BufReader::new(errors)
                        .lines()
                        .map_while(Result::ok)
                        .try_for_each(|line| sender.send(line))
                })?,
        );
        Ok(Self {
            child,
            lines,
            pid_file,
        })
    }

    /// Waits for a line of its standard error.
    ///
    /// # Errors
    /// When it ends before, or takes too long; with what it said.
    pub(super) fn says(&self, beginning: &str) -> Result<(), Box<dyn Error>> {
        let deadline = Instant::now() + PATIENCE;
        let mut said = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                return Err(
                    format!("it has not said `{beginning}` but: {}", said.join("\n")).into(),
                );
            };
            if line.starts_with(beginning) {
                return Ok(());
            }
            said.push(line);
        }
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its CPU time so far.
    ///
    /// # Errors
    /// When it has ended.
    pub(super) fn cpu_time(&self) -> Result<Duration, Box<dyn Error>> {
        let pid = self.pid();
        cpu_time(pid).map_err(|error| format!("the daemon, {pid}, is gone: {error}").into())
    }

    /// Asks it to end and waits; returns how it ended and what it said meanwhile.
    ///
    /// # Errors
    /// When it does not end.
    pub(super) fn end(mut self) -> Result<(ExitStatus, Vec<String>), Box<dyn Error>> {
        // The standard library can only kill; a shell has a `kill` of its own.
        let asked = Command::new("sh")
            .args(["-c", "kill -TERM \"$1\"", "sh"])
            .arg(self.pid().to_string())
            .status()?;
        if !asked.success() {
            return Err("the daemon ended by itself".into());
        }
        let mut status = None;
        wait_until("the daemon to end", || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        fs::remove_file(&self.pid_file)?;
        let status = status.ok_or("the daemon did not end")?;
        Ok((status, self.lines.iter().collect()))
    }
}

/// Waits until a log has stopped growing.
///
/// # Errors
/// When it does not stop.
pub(super) fn settled(log: &Path) -> Result<u64, Box<dyn Error>> {
    let mut bytes = 0;
    let mut since = Instant::now();
    wait_until("the log to be complete", || {
        let now = fs::metadata(log).map_or(0, |metadata| metadata.len());
        if now != bytes {
            bytes = now;
            since = Instant::now();
        }
        Ok(since.elapsed() >= SETTLED)
    })?;
    Ok(bytes)
}

/// Waits until a condition holds.
///
/// # Errors
/// When it does not within [`PATIENCE`], or cannot be told.
pub(super) fn wait_until(
    what: &str,
    mut condition: impl FnMut() -> Result<bool, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let deadline = Instant::now() + PATIENCE;
    while !condition()? {
        if Instant::now() > deadline {
            return Err(format!("waited {} s for {what}", PATIENCE.as_secs()).into());
        }
        thread::park_timeout(BETWEEN_LOOKS);
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

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn daemon_is_waited_for_and_asked_to_end() {
        let work = directory("asked");
        let script = "trap 'echo bye >&2; exit 3' TERM
            echo hello >&2; echo ready >&2
            while :; do sleep 0.01; done";
        let daemon = Daemon::start(&mut shell(script), &work).unwrap();
        daemon.says("ready").unwrap();
        assert!(work.join("daemon.pid").exists());
        let (status, said) = daemon.end().unwrap();
        assert_eq!((status.code(), said), (Some(3), vec!["bye".to_owned()]));
        assert!(!work.join("daemon.pid").exists());
        fs::remove_dir(work).unwrap();
    }

    #[test]
    fn daemon_that_ends_too_soon_is_an_error_with_its_words() {
        let work = directory("soon");
        let daemon = Daemon::start(&mut shell("echo no rules >&2; exit 1"), &work).unwrap();
        let error = daemon.says("ready").unwrap_err().to_string();
        assert!(error.contains("no rules"), "{error}");
        fs::remove_dir_all(work).unwrap();
    }
}
