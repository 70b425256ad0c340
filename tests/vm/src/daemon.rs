//! The daemon under test: started with rules, watched, stopped, and called to account.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bstr::ByteSlice as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::event::{self, Event};
use crate::machine::{USER, WORK};
use crate::suite::{wait_for, wait_within};

/// The program under test.
pub(crate) const TOLLGATE: &str = "/bin/tollgate";

/// Verifying takes seconds on an emulated processor.
const LONGEST_START: Duration = Duration::from_secs(120);
const LONGEST_END: Duration = Duration::from_secs(110);

/// Status of a daemon that ends well and has not recorded everything.
const LOST: i32 = 3;

/// A daemon that audits.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Mutex<Child>,
    stderr: Receiver<String>,
    pid: Pid,
    rules: PathBuf,
    log: PathBuf,
    engine: String,
    /// Before it audited.
    said: Vec<String>,
}

impl Daemon {
    /// Starts the daemon with this engine and these rules, and with the settings of `/tmp/NAME.toml` if there
    /// are any, and waits until it audits.
    ///
    /// # Errors
    /// What it says when it does not.
    pub(crate) fn start(name: &str, engine: &str, rules: &str) -> anyhow::Result<Self> {
        Self::start_program(TOLLGATE, name, engine, rules)
    }

    /// As [`Self::start`], with the daemon somewhere else.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn start_program(
        program: &str,
        name: &str,
        engine: &str,
        rules: &str,
    ) -> anyhow::Result<Self> {
        Self::start_with(program, name, engine, rules, &["--no-pins"])
    }

    /// As [`Self::start`], with what audits pinned in a directory.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn start_pinned(
        name: &str,
        engine: &str,
        rules: &str,
        pins: &str,
    ) -> anyhow::Result<Self> {
        Self::start_with(TOLLGATE, name, engine, rules, &["--pins", pins])
    }

    /// As [`Self::start_program`], with options of its own.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn start_with(
        program: &str,
        name: &str,
        engine: &str,
        rules: &str,
        options: &[&str],
    ) -> anyhow::Result<Self> {
        let (file, log) = (format!("/tmp/{name}.rules"), format!("/tmp/{name}.log"));
        fs::write(&file, rules).context("cannot write the rules")?;
        let mut command = Command::new(program);
        command
            .args(["daemon", "--foreground", "--engine", engine])
            .args(["--rules", &file, "--log", &log])
            .args(options);
        let settings = format!("/tmp/{name}.toml");
        if Path::new(&settings).exists() {
            command.args(["--config", &settings]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the daemon")?;
        let stderr = child
            .stderr
            .take()
            .context("the daemon has no standard error")?;
        let (to, said) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        let mut daemon = Self {
            pid: Pid::from_raw(child.id().cast_signed()),
            child: Mutex::new(child),
            stderr: said,
            rules: file.into(),
            log: log.into(),
            engine: engine.to_owned(),
            said: Vec::new(),
        };
        let (_audits, said) = daemon.hear_all(&["tollgate: auditing "], LONGEST_START)?;
        daemon.said = said;
        Ok(daemon)
    }

    /// Waits for a line that starts so.
    ///
    /// # Errors
    /// When it does not come.
    pub(crate) fn hear(&self, start: &str, longest: Duration) -> anyhow::Result<String> {
        self.hear_any(&[start], longest)
    }

    /// Waits for a line that starts in one of these ways.
    ///
    /// # Errors
    /// When none comes.
    pub(crate) fn hear_any(&self, starts: &[&str], longest: Duration) -> anyhow::Result<String> {
        Ok(self.hear_all(starts, longest)?.0)
    }

    /// The same, with all lines before that one.
    ///
    /// # Errors
    /// As [`Self::hear_any`].
    pub(crate) fn hear_all(
        &self,
        starts: &[&str],
        longest: Duration,
    ) -> anyhow::Result<(String, Vec<String>)> {
        let start = starts.join("` or `");
        let mut said = Vec::new();
        loop {
            match self.stderr.recv_timeout(longest) {
                Ok(line) if starts.iter().any(|start| line.starts_with(start)) => {
                    return Ok((line, said));
                }
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Timeout) => bail!("it does not say `{start}`"),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("it ends without saying `{start}`: {}", said.join(" | "))
                }
            }
        }
    }

    /// Kills it, and waits until it is gone.
    ///
    /// # Errors
    /// When it has ended before.
    pub(crate) fn kill(&self) -> anyhow::Result<()> {
        kill(self.pid, Signal::SIGKILL).context("it has ended before")?;
        let mut child = self.child.lock().ok().context("a test has panicked")?;
        child.wait().context("cannot wait for the daemon")?;
        Ok(())
    }

    /// Whether it had said this before it audited.
    pub(crate) fn has_said(&self, text: &str) -> bool {
        self.said.iter().any(|line| line.contains(text))
    }

    /// Whether it sees what the kernel finds by a name when the call then fails.
    pub(crate) fn sees_inside(&self) -> bool {
        self.engine == "fentry"
    }

    /// The engine that it was started with.
    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    /// Its process.
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    /// The file with its rules.
    pub(crate) fn rules(&self) -> &Path {
        &self.rules
    }

    /// Where it writes.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// What the verifier walked through for each program, for people.
    pub(crate) fn costs(&self) -> Vec<String> {
        let names = programs().unwrap_or_default();
        let Ok(open) = fs::read_dir(format!("/proc/{}/fdinfo", self.pid)) else {
            return Vec::new();
        };
        let mut costs = Vec::new();
        for info in open
            .flatten()
            .filter_map(|fd| fs::read_to_string(fd.path()).ok())
        {
            let value = |name: &str| {
                let mut fields = info.lines().filter_map(|line| line.split_once(":\t"));
                fields.find_map(|(field, value)| (field == name).then_some(value))
            };
            if let (Some(tag), Some(verified)) = (value("prog_tag"), value("verified_insns")) {
                let name = names
                    .iter()
                    .find_map(|name| name.strip_prefix(tag)?.strip_prefix('_'));
                let name = name.unwrap_or("another program");
                costs.push(format!("{name}: {verified} instructions verified"));
            }
        }
        costs.sort();
        costs.dedup();
        costs
    }

    /// Runs a program of the tests as a user in the directory for work; returns its process id.
    ///
    /// # Errors
    /// When it cannot be started, or fails.
    pub(crate) fn run(&self, uid: u32, path: &Path, args: &[&str]) -> anyhow::Result<u32> {
        let mut child = Command::new(path)
            .args(args)
            .current_dir(WORK)
            .uid(uid)
            .gid(uid)
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", path.display()))?;
        let status = child.wait().context("cannot wait for a workload")?;
        ensure!(status.success(), "{} ended with {status}", path.display());
        Ok(child.id())
    }

    /// As [`Self::run`] for [`USER`].
    ///
    /// # Errors
    /// As [`Self::run`].
    pub(crate) fn run_user(&self, path: &Path, args: &[&str]) -> anyhow::Result<u32> {
        self.run(USER, path, args)
    }

    /// Waits until the log holds so many events of a process under a key, and has `ausearch` find the
    /// same.
    ///
    /// # Errors
    /// When they do not come, or the log cannot be read.
    pub(crate) fn events(&self, key: &str, pid: u32, count: usize) -> anyhow::Result<Vec<Event>> {
        let with_key = || -> anyhow::Result<Vec<Event>> {
            let mut logged = self.logged(pid)?;
            logged.retain(|event| event.field("SYSCALL", "key") == key);
            Ok(logged)
        };
        let logged = wait_for(&format!("{count} events of process {pid}"), || {
            let logged = with_key()?;
            Ok((logged.len() >= count).then_some(logged))
        })
        .with_context(|| event::show(&with_key().unwrap_or_default()))?;
        let found = event::ausearch(&self.log, key, pid)?;
        ensure!(
            found == logged,
            "ausearch finds {} and the log holds {}",
            event::show(&found),
            event::show(&logged)
        );
        Ok(found)
    }

    /// The whole lines that are in the log now: a write may be under way.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(crate) fn text(&self) -> anyhow::Result<Vec<u8>> {
        let mut text = fs::read(&self.log).context("cannot read the log")?;
        text.truncate(text.rfind_byte(b'\n').map_or(0, |end| end + 1));
        Ok(text)
    }

    /// Events of a process that are in the log now.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(crate) fn logged(&self, pid: u32) -> anyhow::Result<Vec<Event>> {
        let mut events = event::events(&self.text()?)?;
        events.retain(|event| {
            event.is_of_tollgate() && event.field("SYSCALL", "pid") == pid.to_string()
        });
        Ok(events)
    }

    /// Ends it with TERM; fails unless nothing was lost.
    ///
    /// # Errors
    /// When it does not end well, or has lost events.
    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        let (line, status) = self.end()?;
        ensure!(status.success(), "it ended with {status}: {line}");
        Ok(())
    }

    /// Ends it with TERM; fails unless it says that it was blind, and has lost nothing that it saw.
    ///
    /// # Errors
    /// When it ends in another way.
    pub(crate) fn stop_blind(&self) -> anyhow::Result<()> {
        let (line, status) = self.end()?;
        ensure!(
            status.code() == Some(LOST),
            "it ended with {status}: {line}"
        );
        ensure!(count(&line, "blind for ")? > 0, "{line}");
        Ok(())
    }

    /// Ends it with TERM; fails unless it has lost events and all that is missing is accounted for.
    ///
    /// # Errors
    /// When it ends in another way.
    pub(crate) fn stop_denied(&self) -> anyhow::Result<()> {
        let (line, status) = self.last_words()?;
        ensure!(
            status.code() == Some(LOST),
            "it ended with {status}: {line}"
        );
        let (matched, written, lost) = (
            count(&line, "matched ")?,
            count(&line, "written ")?,
            count(&line, "lost ")?,
        );
        ensure!(matched == written + lost && lost > 0, "{line}");
        println!("vm: note {line}");
        Ok(())
    }

    /// Ends it with TERM when others have written the same log before; fails unless nothing was lost.
    ///
    /// # Errors
    /// When it does not end well, or has lost events.
    pub(crate) fn end_of_several(&self) -> anyhow::Result<()> {
        let (line, status) = self.account()?;
        ensure!(status.success(), "it ended with {status}: {line}");
        Ok(())
    }

    /// What it says at its end, where all that was matched is in the log, and its status.
    fn end(&self) -> anyhow::Result<(String, ExitStatus)> {
        let (line, status) = self.account()?;
        let written = count(&line, "written ")?;
        let mut events = event::events(&fs::read(&self.log).context("cannot read the log")?)?;
        events.retain(|event| event.is_of_tollgate() && !event.is_change());
        let logged = u64::try_from(events.len()).unwrap_or(u64::MAX);
        ensure!(logged == written, "the log holds {logged} events: {line}");
        Ok((line, status))
    }

    /// What it says at its end, where all that was matched was written, and its status.
    fn account(&self) -> anyhow::Result<(String, ExitStatus)> {
        let (line, status) = self.last_words()?;
        let (matched, written) = (count(&line, "matched ")?, count(&line, "written ")?);
        ensure!(matched == written && count(&line, "lost ")? == 0, "{line}");
        Ok((line, status))
    }

    /// What it says at its end, and its status.
    fn last_words(&self) -> anyhow::Result<(String, ExitStatus)> {
        kill(self.pid, Signal::SIGTERM).context("it has ended before")?;
        let line = self.hear("tollgate: stopped: ", LONGEST_END)?;
        // Everything is detached before it ends.
        let status = wait_within(LONGEST_END, "the end of the daemon", || {
            let mut child = self.child.lock().ok().context("a test has panicked")?;
            Ok(child.try_wait()?)
        })?;
        Ok((line, status))
    }
}

/// The number after a word of an account.
fn count(line: &str, word: &str) -> anyhow::Result<u64> {
    let no_account = || format!("no `{word}` in: {line}");
    let (_, rest) = line.split_once(word).with_context(no_account)?;
    let digits = rest.split(|byte: char| !byte.is_ascii_digit()).next();
    digits.unwrap_or_default().parse().with_context(no_account)
}

/// Tags and names of the BPF programs that the kernel holds.
///
/// # Errors
/// When the kernel does not show its symbols.
pub(crate) fn programs() -> anyhow::Result<Vec<String>> {
    let symbols = fs::read_to_string("/proc/kallsyms").context("cannot read the symbols")?;
    Ok(symbols
        .lines()
        .filter_map(|line| line.strip_suffix("[bpf]"))
        .filter_map(|line| line.split_whitespace().nth(2)?.strip_prefix("bpf_prog_"))
        // Filters of the kernel's own, for packets, have a tag and no name.
        .filter(|name| name.contains('_'))
        .map(str::to_owned)
        .collect())
}
