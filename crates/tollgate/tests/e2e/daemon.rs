//! The daemon under test: how it is started, and what its end must account for.

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
use super::place::Place;

/// Lines of a log that a failed test shows.
const SHOWN_LINES: usize = 40;

/// The program under test.
pub(crate) fn program() -> PathBuf {
    env::var_os("TOLLGATE_BIN").map_or_else(|| env!("CARGO_BIN_EXE_tollgate").into(), PathBuf::from)
}

/// A daemon that audits.
#[derive(Debug)]
pub(crate) struct Daemon {
    process: daemon::Daemon,
    /// The file that it writes.
    pub(crate) log: PathBuf,
    /// Its control socket.
    pub(crate) control: PathBuf,
}

/// The account of a daemon that has ended.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) summary: Summary,
    pub(crate) code: Option<i32>,
    pub(crate) log: PathBuf,
    /// All lines that it has printed.
    pub(crate) output: Vec<String>,
}

/// A daemon that has ended, and the events in its log.
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
    /// Starts the daemon with these rules and waits until it audits.
    #[track_caller]
    pub(crate) fn start(place: &Place, rules: &str) -> Self {
        Self::start_program(place, &program(), "", rules)
    }

    /// Starts this program as the daemon; its files begin with `name`.
    #[track_caller]
    pub(crate) fn start_program(place: &Place, program: &Path, name: &str, rules: &str) -> Self {
        Self::start_with_options(place, program, name, rules, &[])
    }

    /// Starts the daemon with its BPF objects pinned in a directory.
    #[track_caller]
    pub(crate) fn start_pinned(place: &Place, rules: &str, pins: &Path) -> Self {
        let pins = [OsStr::new("--pins"), pins.as_os_str()];
        Self::start_with_options(place, &program(), "", rules, &pins)
    }

    /// As [`Self::start_program`], with more options.
    #[track_caller]
    pub(crate) fn start_with_options(
        place: &Place,
        program: &Path,
        name: &str,
        rules: &str,
        options: &[&OsStr],
    ) -> Self {
        let (file, log) = (
            place.own.join(format!("{name}rules")),
            place.own.join(format!("{name}audit.log")),
        );
        fs::write(&file, rules).unwrap();
        let control = place.own.join(format!("{name}run/control"));
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
    pub(crate) fn start_with_settings(place: &Place, rules: &str, settings: &str) -> Self {
        let (file, log) = (place.own.join("rules"), place.own.join("audit.log"));
        let (conf, control) = (
            place.own.join("tollgate.toml"),
            place.own.join("run/control"),
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

    /// Starts the daemon with these rules, and a log that is kept as these lines of `auditd.conf` say,
    /// without the messages of the kernel's audit.
    #[track_caller]
    pub(crate) fn start_configured(place: &Place, rules: &str, log: &Path, conf: &str) -> Self {
        Self::configured(place, rules, log, conf, "off", &[])
    }

    /// The same with those messages, read in this way. Only who holds the lock around the kernel's audit
    /// may read them.
    #[track_caller]
    pub(crate) fn start_with_messages(
        place: &Place,
        rules: &str,
        log: &Path,
        conf: &str,
        messages: &str,
    ) -> Self {
        Self::configured(place, rules, log, conf, messages, &[])
    }

    /// Without them, in this environment.
    #[track_caller]
    pub(crate) fn start_in(
        place: &Place,
        rules: &str,
        log: &Path,
        conf: &str,
        environment: &[(&str, OsString)],
    ) -> Self {
        Self::configured(place, rules, log, conf, "off", environment)
    }

    #[track_caller]
    fn configured(
        place: &Place,
        rules: &str,
        log: &Path,
        conf: &str,
        messages: &str,
        environment: &[(&str, OsString)],
    ) -> Self {
        let (rule_file, conf_file) = (place.own.join("rules"), place.own.join("auditd.conf"));
        fs::write(&rule_file, rules).unwrap();
        let plugins = place.own.join("plugins.d");
        let fixed = format!(
            "log_file = {}\nplugin_dir = {}\n",
            log.display(),
            plugins.display()
        );
        fs::write(&conf_file, fixed + conf).unwrap();
        let control = place.own.join("run/control");
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
            // A log of its own may be beside that of auditd.
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

    /// Replaces its rules by HUP, and waits for the answer; whether the rules are in force.
    #[track_caller]
    pub(crate) fn replace(&self, rules: &str) -> bool {
        self.process.replace(rules, PATIENCE).unwrap()
    }

    /// Writes other rules to its file and sends HUP.
    #[track_caller]
    pub(crate) fn begin_to_replace(&self, rules: &str) {
        self.process.begin_to_replace(rules).unwrap();
    }

    /// Whether it has printed this so far.
    pub(crate) fn has_printed(&self, text: &str) -> bool {
        self.process.has_printed(text)
    }

    /// Waits until it prints a line with this text.
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

    /// Waits until everything matched so far has been written or lost; the answer.
    #[track_caller]
    pub(crate) fn flush(&self) -> String {
        self.ask("flush")
    }

    /// What `tollgate status --json` shows.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        let mut command = Command::new(program());
        let status = command.args(["status", "--json", "--control"]);
        let status = CommandOutput::of(status.arg(&self.control));
        serde_json::from_str(&status.stdout).unwrap()
    }

    /// Asks over the control socket; the answer.
    #[track_caller]
    pub(crate) fn ask(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(&self.control).unwrap();
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

    /// Waits for its end and ignores its account.
    #[track_caller]
    pub(crate) fn wait(&self) {
        self.process.wait(PATIENCE).unwrap();
    }

    /// The events that are in its log now.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Event> {
        event::without_changes(&self.process.log_text().unwrap())
    }

    /// Ends it with TERM; fails unless nothing was lost.
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

    /// Ends it with a signal, reads its account and its log.
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

    /// Ends it with a signal and reads its account.
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
