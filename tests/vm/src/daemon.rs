//! The daemon under test in a test machine: its start, its end and its summary.

use std::fs;
use std::ops::Deref;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use support::daemon::{self, Account, count};
use support::event::{self, Event};
use support::wait::wait_for;

use crate::machine::{USER, WORK, has_option};

/// The program under test.
pub(crate) const TOLLGATE: &str = "/bin/tollgate";

/// The verifier takes seconds per program on an emulated CPU.
pub(crate) const LONGEST_START: Duration = Duration::from_secs(240);
pub(crate) const LONGEST_END: Duration = Duration::from_secs(200);
/// Tail-call targets are verified when the first rule needs them.
const LONGEST_REPLACEMENT: Duration = Duration::from_secs(120);

/// Exit status of a daemon that lost events.
pub(crate) const LOST: i32 = 3;

/// Kernel option: daemons start although the kernel can skip their programs.
const ALLOW_LOSS: &str = "vm.allow_loss";

/// Events of a syscall of the user.
pub(crate) fn calls(events: &[Event], number: u32) -> Vec<&Event> {
    let is_call = |event: &&Event| {
        event.field("SYSCALL", "syscall") == number.to_string()
            && event.field("SYSCALL", "uid") == USER.to_string()
    };
    events.iter().filter(is_call).collect()
}

/// Whether daemons start although the kernel can skip their programs.
///
/// # Errors
/// If the kernel's command line cannot be read.
pub(crate) fn allows_loss() -> anyhow::Result<bool> {
    has_option(ALLOW_LOSS)
}

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    process: daemon::Daemon,
    engine: String,
    /// Length of its log when the session began, in bytes.
    begin: AtomicUsize,
}

impl Deref for Daemon {
    type Target = daemon::Daemon;

    fn deref(&self) -> &daemon::Daemon {
        &self.process
    }
}

impl Daemon {
    /// Starts the daemon with this engine, these rules, and the settings in `/tmp/NAME.toml` if that file exists,
    /// through the program `/tmp/NAME.start` if that exists; waits until it is ready.
    ///
    /// # Errors
    /// Its output, if it does not become ready.
    pub(crate) fn start(name: &str, engine: &str, rules: &str) -> anyhow::Result<Self> {
        let own = format!("/tmp/{name}.start");
        let program = if Path::new(&own).exists() {
            &own
        } else {
            TOLLGATE
        };
        Self::start_program(program, name, engine, rules)
    }

    /// As [`Self::start`], with the daemon at another path.
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

    /// As [`Self::start`], with BPF objects pinned in a directory.
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

    /// As [`Self::start_program`], with other options.
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
        if allows_loss()? {
            command.arg("--allow-loss");
        }
        let settings = format!("/tmp/{name}.toml");
        if Path::new(&settings).exists() {
            command.args(["--config", &settings]);
        }
        let process = daemon::Daemon::start(
            &mut command,
            Path::new(&file),
            Path::new(&log),
            LONGEST_START,
        )?;
        Ok(Self {
            process,
            engine: engine.to_owned(),
            begin: AtomicUsize::new(0),
        })
    }

    /// Whether the engine sees operations of `io_uring`, and the objects of syscalls that fail.
    pub(crate) fn sees_inside(&self) -> bool {
        self.engine != "tracepoint"
    }

    /// Whether it sees a program that nobody may execute, and any number of syscalls by few hooks.
    pub(crate) fn sees_all(&self) -> bool {
        self.engine == "fentry"
    }

    /// The engine that it was started with.
    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    /// The number of instructions that the verifier checked for each program, one line each.
    pub(crate) fn costs(&self) -> Vec<String> {
        let names = programs().unwrap_or_default();
        let Ok(open) = fs::read_dir(format!("/proc/{}/fdinfo", self.pid())) else {
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

    /// Runs a program as a user in the working directory; returns its process id.
    ///
    /// # Errors
    /// It cannot be started, or fails.
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

    /// Waits until the log has this many events of a process under a key; checks that `ausearch` finds
    /// the same.
    ///
    /// # Errors
    /// They do not come, or the log cannot be read.
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
        let options = ["--raw", "-k", key, "-p", &pid.to_string()];
        let found = event::ausearch(self.log(), &options)?;
        ensure!(
            found == logged,
            "ausearch finds {} and the log holds {}",
            event::show(&found),
            event::show(&logged)
        );
        Ok(found)
    }

    /// Events of a process, once this syscall of the user is among them.
    ///
    /// # Errors
    /// It does not come, or the log cannot be read.
    pub(crate) fn events_until(&self, pid: u32, last: u32) -> anyhow::Result<Vec<Event>> {
        wait_for(&format!("syscall {last} of process {pid}"), || {
            let events = self.logged(pid)?;
            Ok((!calls(&events, last).is_empty()).then_some(events))
        })
    }

    /// Events of a process that are in the log now.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn logged(&self, pid: u32) -> anyhow::Result<Vec<Event>> {
        let mut events = event::parse(&self.log_text()?)?;
        events.retain(|event| {
            event.is_from_tollgate() && event.field("SYSCALL", "pid") == pid.to_string()
        });
        Ok(events)
    }

    /// Ends it with TERM; fails unless every matched event is in the log.
    ///
    /// # Errors
    /// It does not exit with 0, or has lost events.
    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        let Account { line, status, .. } = self.end_complete()?;
        ensure!(status.success(), "it ended with {status}: {line}");
        Ok(())
    }

    /// Ends it with TERM; fails unless it reports time with disabled hooks, and no other loss.
    ///
    /// # Errors
    /// It ends in another way.
    pub(crate) fn stop_after_disabled_hooks(&self) -> anyhow::Result<()> {
        let Account { line, status, .. } = self.end_complete()?;
        ensure!(
            status.code() == Some(LOST),
            "it ended with {status}: {line}"
        );
        ensure!(count(&line, "hooks disabled for ")? > 0, "{line}");
        Ok(())
    }

    /// Ends it with TERM; fails unless it has lost events and counted every one.
    ///
    /// # Errors
    /// It ends in another way.
    pub(crate) fn stop_denied(&self) -> anyhow::Result<()> {
        let account = self.end(Signal::SIGTERM, LONGEST_END)?;
        let (line, counts) = (account.line, account.summary);
        ensure!(
            account.status.code() == Some(LOST),
            "it ended with {}: {line}",
            account.status
        );
        let is_counted = counts.matched == counts.written + counts.lost;
        ensure!(is_counted && counts.lost > 0, "{line}");
        println!("vm: note {line}");
        Ok(())
    }

    /// Ends it with TERM where other daemons have written the same log before; fails unless every event
    /// that it matched was written.
    ///
    /// # Errors
    /// It does not exit with 0, or has lost events.
    pub(crate) fn stop_last(&self) -> anyhow::Result<()> {
        let Account { line, status, .. } = self.end_lossless()?;
        ensure!(status.success(), "it ended with {status}: {line}");
        Ok(())
    }

    /// Runs `work` while the daemon reads no events.
    ///
    /// # Errors
    /// Those of `work`, or the daemon cannot be stopped or go on.
    pub(crate) fn while_stopped<T>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        kill(self.pid(), Signal::SIGSTOP).context("cannot stop the daemon")?;
        let done = work();
        kill(self.pid(), Signal::SIGCONT).context("cannot let the daemon go on")?;
        done
    }

    /// Begins another session, with other rules.
    ///
    /// # Errors
    /// It refuses the rules.
    pub(crate) fn begin_session(&self, rules: &str) -> anyhow::Result<()> {
        replace(self, rules)?;
        let log = self.process.log_text()?;
        self.begin.store(log.len(), Ordering::Relaxed);
        Ok(())
    }

    /// The complete lines of its log since the session began.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn log_text(&self) -> anyhow::Result<Vec<u8>> {
        let mut log = self.process.log_text()?;
        let begin = self.begin.load(Ordering::Relaxed);
        Ok(log.split_off(begin.min(log.len())))
    }

    /// Ends a session of a daemon that goes on; fails unless every matched event is in the log.
    ///
    /// # Errors
    /// It has lost events, or does not answer.
    pub(crate) fn end_session(&self) -> anyhow::Result<()> {
        let written = wait_for("the events of the session", || {
            let mut status = Command::new(TOLLGATE);
            let output = status.args(["status", "--json"]).output();
            let output = output.context("cannot ask the daemon")?;
            let status: Value = serde_json::from_slice(&output.stdout).context("no status")?;
            let counts = &status["counts"];
            let count = |name: &str| counts[name].as_u64().context("a count is missing");
            ensure!(counts["lost"] == json!({}), "{counts}");
            let written = count("written")?;
            Ok((count("matched")? == written).then_some(written))
        })?;
        self.expect_logged(written)
    }

    /// Fails unless its log holds so many events of rules, of all sessions.
    fn expect_logged(&self, written: u64) -> anyhow::Result<()> {
        let mut events = event::parse(&self.process.log_text()?)?;
        events.retain(|event| event.is_from_tollgate() && !event.is_config_change());
        let logged = u64::try_from(events.len())?;
        ensure!(
            logged == written,
            "the log holds {logged} events of {written}"
        );
        Ok(())
    }

    /// Its summary, if every matched event was written and is in the log.
    fn end_complete(&self) -> anyhow::Result<Account> {
        let account = self.end_lossless()?;
        self.expect_logged(account.summary.written)
            .with_context(|| account.line.clone())?;
        Ok(account)
    }

    /// Its summary, if every matched event was written.
    fn end_lossless(&self) -> anyhow::Result<Account> {
        let account = self.end(Signal::SIGTERM, LONGEST_END)?;
        let counts = account.summary;
        ensure!(
            counts.matched == counts.written && counts.lost == 0,
            "{}",
            account.line
        );
        Ok(account)
    }
}

/// Replaces the daemon's rules, and waits until they are in force.
///
/// # Errors
/// If it rejects them.
pub(crate) fn replace(daemon: &Daemon, rules: &str) -> anyhow::Result<()> {
    let is_replaced = daemon.replace(rules, LONGEST_REPLACEMENT)?;
    ensure!(is_replaced, "{}", daemon.output().join(" | "));
    Ok(())
}

/// Tags and names of the loaded BPF programs.
///
/// # Errors
/// The kernel's symbols cannot be read.
pub(crate) fn programs() -> anyhow::Result<Vec<String>> {
    let symbols = fs::read_to_string("/proc/kallsyms").context("cannot read the symbols")?;
    Ok(symbols
        .lines()
        .filter_map(|line| line.strip_suffix("[bpf]"))
        .filter_map(|line| line.split_whitespace().nth(2)?.strip_prefix("bpf_prog_"))
        // The kernel's own packet filters have a tag and no name.
        .filter(|name| name.contains('_'))
        .map(str::to_owned)
        .collect())
}
