//! The daemon under test: its start, its end and its summary.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use bstr::ByteSlice;
use nix::sys::signal::Signal;
use serde_json::Value;
use support::daemon;
pub(crate) use support::daemon::Summary;
use support::wait::PATIENCE;

use super::event::{self, Event};
use super::test_dir::TestDir;

/// Log lines printed by a failed test.
const SHOWN_LINES: usize = 40;

/// The program under test.
pub(crate) fn program() -> PathBuf {
    env::var_os("TOLLGATE_BIN").map_or_else(|| env!("CARGO_BIN_EXE_tollgate").into(), PathBuf::from)
}

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    process: daemon::Daemon,
    /// Its log.
    pub(crate) log: PathBuf,
    /// Its control socket.
    pub(crate) control: PathBuf,
}

/// The files of a daemon that has all its settings in files.
#[derive(Debug)]
pub(crate) struct MachineFiles {
    pub(crate) rules: PathBuf,
    pub(crate) toml: PathBuf,
    pub(crate) conf: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) control: PathBuf,
    pub(crate) metrics: PathBuf,
}

impl MachineFiles {
    /// Their paths in a test directory.
    pub(crate) fn new(test_dir: &TestDir) -> Self {
        let own = |name: &str| test_dir.own.join(name);
        Self {
            rules: own("rules"),
            toml: own("tollgate.toml"),
            conf: own("auditd.conf"),
            log: own("audit.log"),
            state: own("state"),
            control: own("run/control"),
            metrics: own("metrics"),
        }
    }

    /// Writes those that are missing.
    #[track_caller]
    pub(crate) fn prepare(test_dir: &TestDir, rules: &str) -> Self {
        let files = Self::new(test_dir);
        let toml = format!(
            "rules = [{:?}]\nauditd_conf = {:?}\nmetrics = {:?}\nkernel_messages = \"off\"\npins = false\n",
            files.rules, files.conf, files.metrics
        );
        let conf = format!(
            "log_file = {}\nlog_format = RAW\nspace_left = 2\nadmin_space_left = 1\n",
            files.log.display()
        );
        for (path, text) in [
            (&files.rules, rules),
            (&files.toml, &toml),
            (&files.conf, &conf),
        ] {
            if !path.exists() {
                fs::write(path, text).unwrap();
            }
        }
        files
    }

    /// Arguments of `tollgate`.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = ["daemon", "--foreground"].map(Into::into).into();
        for (option, path) in [
            ("--config", &self.toml),
            ("--state", &self.state),
            ("--control", &self.control),
        ] {
            arguments.extend([option.into(), path.into()]);
        }
        arguments
    }
}

/// The final state of a daemon.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) summary: Summary,
    pub(crate) code: Option<i32>,
    pub(crate) log: PathBuf,
    /// All printed lines.
    pub(crate) output: Vec<String>,
}

/// The final state of a daemon, and the events in its log.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) summary: Summary,
    pub(crate) code: Option<i32>,
    pub(crate) log: PathBuf,
    pub(crate) events: Vec<Event>,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn of(command: &mut Command) -> Self {
        let output = command.stdin(Stdio::null()).output().unwrap();
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Daemon {
    /// Starts the daemon with these rules and waits until it is ready.
    #[track_caller]
    pub(crate) fn start(test_dir: &TestDir, rules: &str) -> Self {
        Self::start_program(test_dir, &program(), "", rules)
    }

    /// Starts this program as the daemon; its files begin with `name`.
    #[track_caller]
    pub(crate) fn start_program(
        test_dir: &TestDir,
        program: &Path,
        name: &str,
        rules: &str,
    ) -> Self {
        Self::start_with_options(test_dir, program, name, rules, &[])
    }

    /// Starts the daemon with its BPF objects pinned in a directory.
    #[track_caller]
    pub(crate) fn start_pinned(test_dir: &TestDir, rules: &str, pins: &Path) -> Self {
        let pins = [OsStr::new("--pins"), pins.as_os_str()];
        Self::start_with_options(test_dir, &program(), "", rules, &pins)
    }

    /// As [`Self::start_program`], with more options.
    #[track_caller]
    pub(crate) fn start_with_options(
        test_dir: &TestDir,
        program: &Path,
        name: &str,
        rules: &str,
        options: &[&OsStr],
    ) -> Self {
        let (file, log) = (
            test_dir.own.join(format!("{name}rules")),
            test_dir.own.join(format!("{name}audit.log")),
        );
        fs::write(&file, rules).unwrap();
        let control = test_dir.own.join(format!("{name}run/control"));
        let rules = file.clone();
        let mut command = Command::new(program);
        command
            .args(["daemon", "--foreground", "--rules"])
            .arg(file)
            .arg("--log")
            .arg(&log)
            .arg("--control")
            .arg(&control)
            .args(options);
        Self::run(command, &rules, log, control)
    }

    /// Starts the daemon with these rules, and these lines of `tollgate.toml`.
    #[track_caller]
    pub(crate) fn start_with_settings(test_dir: &TestDir, rules: &str, settings: &str) -> Self {
        let (file, log) = (test_dir.own.join("rules"), test_dir.own.join("audit.log"));
        let (conf, control) = (
            test_dir.own.join("tollgate.toml"),
            test_dir.own.join("run/control"),
        );
        fs::write(&file, rules).unwrap();
        fs::write(&conf, settings).unwrap();
        let mut command = Command::new(program());
        command
            .args(["daemon", "--foreground", "--config"])
            .arg(conf)
            .arg("--rules")
            .arg(&file)
            .arg("--log")
            .arg(&log)
            .arg("--control")
            .arg(&control);
        Self::run(command, &file, log, control)
    }

    /// Starts the daemon as that of a machine: all settings are in files, and the last good ones are kept in a state
    /// directory. Prepares these files, with these rules, where they are missing.
    #[track_caller]
    pub(crate) fn start_from_files(test_dir: &TestDir, rules: &str) -> Self {
        let files = MachineFiles::prepare(test_dir, rules);
        let mut command = Command::new(program());
        command.args(files.arguments());
        Self::run(command, &files.rules, files.log, files.control)
    }

    /// Starts the daemon with these rules and these lines of `auditd.conf`, without the kernel's own records.
    #[track_caller]
    pub(crate) fn start_configured(
        test_dir: &TestDir,
        rules: &str,
        log: &Path,
        conf: &str,
    ) -> Self {
        Self::configured(test_dir, rules, log, conf, "off", &[])
    }

    /// The same with the kernel's own records, read in this mode. The caller must hold the lock of the kernel's
    /// audit.
    #[track_caller]
    pub(crate) fn start_with_messages(
        test_dir: &TestDir,
        rules: &str,
        log: &Path,
        conf: &str,
        messages: &str,
    ) -> Self {
        Self::configured(test_dir, rules, log, conf, messages, &[])
    }

    /// The same without the kernel's own records, in this environment.
    #[track_caller]
    pub(crate) fn start_in(
        test_dir: &TestDir,
        rules: &str,
        log: &Path,
        conf: &str,
        environment: &[(&str, OsString)],
    ) -> Self {
        Self::configured(test_dir, rules, log, conf, "off", environment)
    }

    #[track_caller]
    fn configured(
        test_dir: &TestDir,
        rules: &str,
        log: &Path,
        conf: &str,
        messages: &str,
        environment: &[(&str, OsString)],
    ) -> Self {
        let (rule_file, conf_file) = (test_dir.own.join("rules"), test_dir.own.join("auditd.conf"));
        fs::write(&rule_file, rules).unwrap();
        let plugins = test_dir.own.join("plugins.d");
        let fixed = format!(
            "log_file = {}\nplugin_dir = {}\n",
            log.display(),
            plugins.display()
        );
        fs::write(&conf_file, fixed + conf).unwrap();
        let control = test_dir.own.join("run/control");
        let rules = rule_file.clone();
        let mut command = Command::new(program());
        command
            .args(["daemon", "--foreground", "--rules"])
            .arg(rule_file)
            .arg("--auditd-conf")
            .arg(conf_file)
            .arg("--control")
            .arg(&control)
            .args(["--no-pins", "--kernel-messages", messages])
            .envs(environment.iter().cloned());
        if messages != "off" {
            // Its log may be in the directory of auditd's log.
            command.arg("--log").arg(log);
        }
        Self::run(command, &rules, log.to_owned(), control)
    }

    #[track_caller]
    fn run(mut command: Command, rules: &Path, log: PathBuf, control: PathBuf) -> Self {
        let process = daemon::Daemon::start(&mut command, rules, &log, PATIENCE).unwrap();
        Self {
            process,
            log,
            control,
        }
    }

    /// Replaces the rules with SIGHUP and waits for the result; true if the new rules are in force.
    #[track_caller]
    pub(crate) fn replace(&self, rules: &str) -> bool {
        self.process.replace(rules, PATIENCE).unwrap()
    }

    /// Writes other rules to the rule file and sends SIGHUP.
    #[track_caller]
    pub(crate) fn begin_to_replace(&self, rules: &str) {
        self.process.begin_to_replace(rules).unwrap();
    }

    /// Whether a printed line contains this text.
    pub(crate) fn has_printed(&self, text: &str) -> bool {
        self.process.has_printed(text)
    }

    /// Waits for a printed line that contains this text.
    #[track_caller]
    pub(crate) fn wait_for_line(&self, text: &str) -> String {
        self.process.wait_for_line(&[text], PATIENCE).unwrap()
    }

    /// Runs `tollgate auditctl` with its control socket.
    #[track_caller]
    pub(crate) fn auditctl(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = Command::new(program());
        command.args(["auditctl", "--control"]).arg(&self.control);
        CommandOutput::of(command.args(arguments))
    }

    /// Waits until all events matched so far are written or lost; returns the reply.
    #[track_caller]
    pub(crate) fn flush(&self) -> String {
        self.ask("flush")
    }

    /// The output of `tollgate status --json`.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        let mut command = Command::new(program());
        let status = command.args(["status", "--json", "--control"]);
        let status = CommandOutput::of(status.arg(&self.control));
        serde_json::from_str(&status.stdout).unwrap()
    }

    /// Runs `tollgate status`.
    #[track_caller]
    pub(crate) fn show_status(&self) -> CommandOutput {
        let mut command = Command::new(program());
        CommandOutput::of(command.args(["status", "--control"]).arg(&self.control))
    }

    /// Sends a request to the control socket; returns the reply.
    #[track_caller]
    pub(crate) fn ask(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(&self.control).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("{{\"version\":1,\"request\":\"{request}\"}}\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid().as_raw().cast_unsigned()
    }

    /// Sends it a signal.
    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal).unwrap();
    }

    /// Waits for its end and ignores the summary.
    #[track_caller]
    pub(crate) fn wait(&self) {
        self.process.wait(PATIENCE).unwrap();
    }

    /// Kills it and waits for its end.
    #[track_caller]
    pub(crate) fn kill(&self) {
        self.signal(Signal::SIGKILL);
        self.wait();
    }

    /// The current events in its log.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Event> {
        event::without_changes(&self.process.log_text().unwrap())
    }

    /// Ends it with SIGTERM; fails if an event was lost.
    #[track_caller]
    pub(crate) fn stop(self) -> Stopped {
        let stopped = self.stop_with(Signal::SIGTERM);
        let Summary {
            matched,
            written,
            lost,
        } = stopped.summary;
        assert_eq!((lost, written), (0, matched), "lost events on a quiet run");
        assert_eq!(stopped.code, Some(0));
        let logged = u64::try_from(stopped.events.len()).unwrap();
        assert_eq!(logged, written, "events in the log and in the account");
        stopped
    }

    /// Ends it with a signal; reads its summary and log.
    #[track_caller]
    pub(crate) fn stop_with(self, signal: Signal) -> Stopped {
        let Account {
            summary, code, log, ..
        } = self.end(signal);
        let events = event::without_changes(&fs::read(&log).unwrap());
        Stopped {
            summary,
            code,
            log,
            events,
        }
    }

    /// Ends it with a signal and reads its summary.
    #[track_caller]
    pub(crate) fn end(self, signal: Signal) -> Account {
        let ended = self.process.end(signal, PATIENCE).unwrap();
        Account {
            summary: ended.summary,
            code: ended.status.code(),
            log: self.log.clone(),
            output: self.process.output(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("output of the daemon:");
            for line in self.process.output() {
                println!("    {line}");
            }
            show_log(&self.log);
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if thread::panicking() {
            show_log(&self.log);
        }
    }
}

fn show_log(log: &Path) {
    let text = fs::read(log).unwrap_or_default();
    println!("end of its log:");
    let lines: Vec<&[u8]> = ByteSlice::lines(text.as_slice()).collect();
    for line in lines.iter().skip(lines.len().saturating_sub(SHOWN_LINES)) {
        println!("    {}", line.as_bstr());
    }
}
