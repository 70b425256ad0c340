//! The daemon under test: started with rules, watched, stopped, and called to account.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use bstr::ByteSlice;
use nix::poll::{PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::event::{self, Event};
use super::harness::wait_for;
use super::place::Place;

/// Loading and attaching takes a fraction of this on an idle machine.
const LONGEST_START: Duration = Duration::from_secs(30);
/// Lines of a log that a failed test shows.
const SHOWN_LINES: usize = 40;

/// The program under test.
pub(crate) fn program() -> PathBuf {
    env::var_os("TOLLGATE_BIN").map_or_else(|| env!("CARGO_BIN_EXE_tollgate").into(), PathBuf::from)
}

/// A daemon that audits.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    stderr: Receiver<String>,
    said: Vec<String>,
    rules: PathBuf,
    /// Where it writes.
    pub(crate) log: PathBuf,
    /// Where it listens.
    pub(crate) control: PathBuf,
}

/// The account of a daemon that has ended.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) summary: Summary,
    pub(crate) code: Option<i32>,
    pub(crate) log: PathBuf,
    /// All that it has said.
    pub(crate) said: Vec<String>,
}

/// A daemon that has ended, and what it wrote.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) summary: Summary,
    pub(crate) code: Option<i32>,
    pub(crate) log: PathBuf,
    pub(crate) events: Vec<Event>,
}

/// What it counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) matched: u64,
    pub(crate) written: u64,
    pub(crate) lost: u64,
}

impl Summary {
    /// Reads `stopped: matched 3, written 3, lost 0`.
    fn parse(line: &str) -> Option<Self> {
        let (_, counts) = line.split_once("stopped: ")?;
        let mut numbers = counts
            .split([' ', ',', ';'])
            .filter_map(|word| word.parse().ok());
        let mut after = |name: &str| counts.contains(name).then(|| numbers.next()).flatten();
        Some(Self {
            matched: after("matched ")?,
            written: after("written ")?,
            lost: after("lost ")?,
        })
    }
}

/// What a command answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) said: String,
}

impl Asked {
    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn of(command: &mut Command) -> Self {
        let output = command.stdin(Stdio::null()).output().unwrap();
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            said: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Daemon {
    /// Starts the daemon with these rules and waits until it audits.
    #[track_caller]
    pub(crate) fn start(place: &Place, rules: &str) -> Self {
        Self::start_program(place, &program(), "", rules)
    }

    /// Starts this program as the daemon; `name` tells its files from those of another one.
    #[track_caller]
    pub(crate) fn start_program(place: &Place, program: &Path, name: &str, rules: &str) -> Self {
        Self::plain(place, program, name, rules, &[])
    }

    /// Starts the daemon with what audits pinned there.
    #[track_caller]
    pub(crate) fn start_pinned(place: &Place, rules: &str, pins: &Path) -> Self {
        let pins = [OsStr::new("--pins"), pins.as_os_str()];
        Self::plain(place, &program(), "", rules, &pins)
    }

    /// Starts this program with these options more.
    #[track_caller]
    pub(crate) fn plain(
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
        Self::run(command, rules, log, control)
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
        Self::run(command, file, log, control)
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
        Self::run(command, rules, log.to_owned(), control)
    }

    #[track_caller]
    fn run(mut command: Command, rules: PathBuf, log: PathBuf, control: PathBuf) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (to, stderr) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        let mut daemon = Self {
            child,
            stderr,
            said: Vec::new(),
            rules,
            log,
            control,
        };
        daemon.hear("tollgate: auditing ");
        daemon
    }

    /// Gives it other rules by HUP, and waits until it has taken or refused them; says whether it has taken
    /// them.
    #[track_caller]
    pub(crate) fn replace(&mut self, rules: &str) -> bool {
        fs::write(&self.rules, rules).unwrap();
        self.signal(Signal::SIGHUP);
        let taken = "tollgate: rules replaced: ";
        self.hear_either(&[taken, "the old rules stay in force"])
            .contains(taken)
    }

    /// Gives it other rules by HUP, and waits for nothing.
    #[track_caller]
    pub(crate) fn begin_to_replace(&self, rules: &str) {
        fs::write(&self.rules, rules).unwrap();
        self.signal(Signal::SIGHUP);
    }

    /// Takes up what it has said by now.
    pub(crate) fn listen(&mut self) {
        self.said.extend(self.stderr.try_iter());
    }

    /// Whether it has said this.
    pub(crate) fn has_said(&self, text: &str) -> bool {
        self.said.iter().any(|line| line.contains(text))
    }

    /// Waits for a line with this text on standard error.
    #[track_caller]
    pub(crate) fn hear(&mut self, text: &str) -> String {
        self.hear_either(&[text])
    }

    /// Waits for a line with any of these texts.
    #[track_caller]
    fn hear_either(&mut self, texts: &[&str]) -> String {
        let text = texts.join("` or `");
        let deadline = Instant::now() + LONGEST_START;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.stderr.recv_timeout(left) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if texts.iter().any(|text| line.contains(text)) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("the daemon does not say `{text}`"),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!(
                        "the daemon ends without saying `{text}`: {}",
                        self.said.join("\n")
                    )
                }
            }
        }
    }

    /// Has `tollgate auditctl` ask it.
    #[track_caller]
    pub(crate) fn auditctl(&self, arguments: &[&str]) -> Asked {
        let mut command = Command::new(program());
        command.args(["auditctl", "--control"]).arg(&self.control);
        Asked::of(command.args(arguments))
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
        let status = Asked::of(status.arg(&self.control));
        serde_json::from_str(&status.out).unwrap()
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
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Waits until it has ended without being asked for an account.
    #[track_caller]
    pub(crate) fn wait(mut self) {
        wait_for("the end of the daemon", || self.child.try_wait().unwrap());
    }

    /// What is in its log now.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Event> {
        let text = fs::read(&self.log).unwrap();
        // A write may be under way.
        let whole = text.rfind_byte(b'\n').map_or(0, |end| end + 1);
        event::but_changes(&text[..whole])
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
        let events = event::but_changes(&fs::read(&log).unwrap());
        Stopped {
            summary,
            code,
            log,
            events,
        }
    }

    /// Ends it with a signal and reads its account.
    #[track_caller]
    pub(crate) fn end(mut self, signal: Signal) -> Account {
        self.signal(signal);
        let line = self.hear("tollgate: stopped: ");
        let summary = Summary::parse(&line).unwrap_or_else(|| panic!("no account: {line}"));
        let status = wait_for("the end of the daemon", || self.child.try_wait().unwrap());
        // Who it has started may live on, and keep its standard error open.
        while let Ok(line) = self.stderr.recv_timeout(Duration::from_secs(1)) {
            self.said.push(line);
        }
        Account {
            summary,
            code: status.code(),
            log: self.log.clone(),
            said: std::mem::take(&mut self.said),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("the daemon said:");
            for line in self.said.iter().map(String::as_str).chain(
                self.stderr
                    .try_iter()
                    .collect::<Vec<_>>()
                    .iter()
                    .map(String::as_str),
            ) {
                println!("    {line}");
            }
            show_log(&self.log);
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            // It puts back what it has changed, unless that takes it too long.
            self.signal(Signal::SIGTERM);
            for _ in 0..500 {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    break;
                }
                let _time = poll(&mut [], PollTimeout::from(10_u8));
            }
            let _gone = self.child.kill();
            let _status = self.child.wait();
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
    println!("the end of its log:");
    let lines: Vec<&[u8]> = ByteSlice::lines(text.as_slice()).collect();
    for line in lines.iter().skip(lines.len().saturating_sub(SHOWN_LINES)) {
        println!("    {}", line.as_bstr());
    }
}
