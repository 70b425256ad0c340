//! Sends requests to the running daemon.
//!
//! A command line is sent request by request, as `auditctl` does. A rule file is one change: it takes effect
//! atomically, or, if a line is refused that neither `-i` nor `-c` precedes, not at all.

use std::io;
use std::path::Path;
use std::time::Duration;

use audit::ids::Arch;
use audit::ids::Dialect;
use audit::rule::auditctl::{self, CliRequest, DaemonSignal, Invocation};
use audit::rule::{Command, RuleHost as _, listing};
use bstr::{BString, ByteSlice as _};
use crossbeam_channel::after;
use netlink::LoginuidImmutable;
use nix::errno::Errno;
use nix::sys::signal::{self, kill};
use nix::unistd::Pid;

use super::batch::{FileSteps, errno, is_setting, refusal_messages, with_reason};
use super::file::{self, ErrorPolicy};
use super::{message, status_text, usage};
use crate::control::client::Client;
use crate::control::protocol::{Answer, AuditSettings, Request, Step, StepOutcome};
use crate::host::ThisMachine;
use crate::json_bytes::JsonBytes;
use crate::rule_files;

/// Exit status if the daemon cannot be reached, refuses a file or is locked.
const FAILURE: u8 = 1;
/// Exit status if no daemon runs that could be signalled.
const NOT_RUNNING: u8 = 2;

const IMMUTABLE: &str = "The audit system is in immutable mode, no rule changes allowed";
const NOTHING_CHANGED: &str = "No line of the file took effect: rules and settings are unchanged";

/// Messages and exit status of a failed request.
#[derive(Debug)]
struct Failure {
    messages: Vec<BString>,
    status: u8,
}

/// The connection to the daemon, and the output.
#[derive(Debug)]
pub(super) struct Online<'s> {
    dialect: Dialect,
    socket: &'s Path,
    client: Option<Client>,
    /// Output on standard output.
    stdout: Vec<u8>,
    /// Output on standard error.
    messages: Vec<BString>,
}

impl<'s> Online<'s> {
    pub(super) fn new(dialect: Dialect, socket: &'s Path) -> Self {
        Self {
            dialect,
            socket,
            client: None,
            stdout: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Returns the output on standard error and on standard output.
    pub(super) fn into_output(self) -> (Vec<BString>, Vec<u8>) {
        (self.messages, self.stdout)
    }

    /// Runs a command line. Returns the exit status.
    pub(super) fn run(&mut self, invocation: Invocation) -> u8 {
        let Invocation {
            messages,
            requests,
            mut status,
        } = invocation;
        self.messages.extend(messages);
        let only_settings = requests.iter().all(is_setting);
        let mut first = None;
        for request in requests {
            match self.request(&request) {
                Ok(settings) => first = first.or(settings),
                Err(failed) => {
                    self.messages.extend(failed.messages);
                    status = failed.status;
                    break;
                }
            }
        }
        if let (Some(settings), true, 0) = (first, only_settings, status) {
            self.print_settings(&settings, false);
        }
        status
    }

    /// Runs a rule file. Returns the exit status.
    pub(super) fn read_file(&mut self, path: &Path) -> u8 {
        match self.try_file(path) {
            Ok(policy) => policy,
            Err(failed) => {
                self.messages.extend(failed.messages);
                FAILURE
            }
        }
    }

    fn try_file(&mut self, path: &Path) -> Result<u8, Failure> {
        if self.status()?.enabled == 2 {
            return Err(Failure::with(FAILURE, IMMUTABLE));
        }
        let bytes = rule_files::read_bytes(path)
            .map_err(|error| Failure::with(FAILURE, file::read_error(path, &error)))?;
        let mut batch = FileSteps::default();
        let mut failed = false;
        for (number, line) in (1..).zip(auditctl::lines(&bytes)) {
            let Some(read) = auditctl::line(line, number, self.dialect, &ThisMachine) else {
                continue;
            };
            self.messages.extend(read.messages);
            let succeeded = read.status == 0;
            batch.add_line(number, read.requests);
            if succeeded {
                continue;
            }
            self.messages.push(file::error_line(number, path));
            failed |= batch.policy != ErrorPolicy::Ignore;
            if batch.policy == ErrorPolicy::Stop {
                self.messages.push(NOTHING_CHANGED.into());
                return Ok(FAILURE);
            }
        }
        failed |= self.send(&batch, path)?;
        for request in &batch.others {
            self.request(request)?;
        }
        Ok(if failed { FAILURE } else { 0 })
    }

    /// Sends all steps of a file as one change. Returns whether an error makes the command fail.
    fn send(&mut self, batch: &FileSteps, path: &Path) -> Result<bool, Failure> {
        let steps: Vec<Step> = batch.steps.iter().map(|(_, step)| step.clone()).collect();
        let outcomes = match self.ask(Request::Change {
            steps,
            forgive_from: batch.forgive_from,
        })? {
            Answer::Changed(outcomes) => outcomes,
            Answer::Refused(refusal) => {
                let mut failed = Failure::with(FAILURE, refusal.reason);
                failed.messages.push(NOTHING_CHANGED.into());
                return Err(failed);
            }
            _ => return Err(Failure::invalid_reply()),
        };
        let mut failed = false;
        let mut printed_line = 0;
        for ((line, step), outcome) in batch.steps.iter().zip(&outcomes) {
            match outcome {
                StepOutcome::Done => {}
                StepOutcome::Remaining(left) => self.print_remaining(*left),
                // A line that only changes settings prints the status once.
                StepOutcome::Set(settings) if printed_line != *line => {
                    printed_line = *line;
                    self.print_settings(settings, false);
                }
                StepOutcome::Set(_) => {}
                StepOutcome::Refused(refusal) => {
                    self.messages.extend(refusal_messages(step, refusal));
                    self.messages.push(file::error_line(*line, path));
                    failed |= batch.policy != ErrorPolicy::Ignore;
                }
            }
        }
        let last = outcomes.len().checked_sub(1);
        let is_whole = outcomes.len() == batch.steps.len()
            && !last.is_some_and(|last| {
                matches!(outcomes.get(last), Some(StepOutcome::Refused(_)))
                    && batch.forgive_from.is_none_or(|from| last < from)
            });
        if !is_whole {
            self.stdout.clear();
            self.messages.push(NOTHING_CHANGED.into());
            failed = true;
        }
        Ok(failed)
    }

    /// Sends one request. Returns the settings if it changes one.
    fn request(&mut self, request: &CliRequest) -> Result<Option<AuditSettings>, Failure> {
        match request {
            CliRequest::Command(Command::LoginuidImmutable) => lock_loginuids()?,
            CliRequest::Command(command) => {
                if let Some(step) = Step::of(command) {
                    return self.change(&step);
                }
            }
            CliRequest::List { key, interpret: _ } => self.list(key.as_ref())?,
            CliRequest::Status { interpret } => {
                let settings = self.status()?;
                self.print_settings(&settings, *interpret);
                self.print_feature(&settings);
            }
            CliRequest::Message(text) => {
                let text = JsonBytes::new(&message::text(text));
                self.send_request(Request::Message(text), "user message")?;
            }
            CliRequest::Equivalent { mount, subtree } => {
                let request = Request::Equivalent {
                    mount: JsonBytes::new(mount),
                    subtree: JsonBytes::new(subtree),
                };
                self.send_request(request, "make_equivalent")?;
            }
            CliRequest::Trim => self.send_request(Request::Trim, "trim subtrees")?,
            CliRequest::ResetLost => self.reset(Request::ResetLost, "lost")?,
            CliRequest::ResetBacklogWait => {
                self.reset(Request::ResetBacklogWait, "backlog_wait_time_actual")?;
            }
            CliRequest::Signal(signal) => self.signal(*signal)?,
            CliRequest::Usage => self.stdout.extend_from_slice(usage::TEXT.as_bytes()),
            CliRequest::Version => self.stdout.extend(status_text::version(self.dialect)),
            _ => return Err(Failure::invalid_reply()),
        }
        Ok(None)
    }

    fn change(&mut self, step: &Step) -> Result<Option<AuditSettings>, Failure> {
        let request = Request::Change {
            steps: vec![step.clone()],
            forgive_from: None,
        };
        let outcome = match self.ask(request)? {
            Answer::Changed(outcomes) => outcomes.into_iter().next(),
            Answer::Refused(refusal) => Some(StepOutcome::Refused(refusal)),
            _ => None,
        };
        match outcome {
            Some(StepOutcome::Done) => Ok(None),
            Some(StepOutcome::Set(settings)) => Ok(Some(*settings)),
            Some(StepOutcome::Remaining(left)) => {
                self.print_remaining(left);
                Ok(None)
            }
            Some(StepOutcome::Refused(refusal)) => {
                let is_rule = matches!(step, Step::Append(_) | Step::Prepend(_) | Step::Delete(_));
                if is_rule && refusal.errno == Errno::EPERM as i32 {
                    return Err(Failure::with(FAILURE, IMMUTABLE));
                }
                Err(self.failed(refusal_messages(step, &refusal)))
            }
            None => Err(Failure::invalid_reply()),
        }
    }

    fn list(&mut self, key: Option<&BString>) -> Result<(), Failure> {
        let Answer::Rules(forms) = self.ask(Request::Rules)? else {
            return Err(Failure::invalid_reply());
        };
        if forms.is_empty() {
            self.print_remaining(0);
        }
        let mut rules = Vec::with_capacity(forms.len());
        for form in forms {
            let rule = form.rule().map_err(|why| Failure::with(FAILURE, why))?;
            let keys = bstr::join([1], &rule.keys);
            if key.is_none_or(|key| keys.contains_str(key)) {
                rules.push(rule);
            }
        }
        self.stdout.extend(listing(&rules, native(), self.dialect));
        Ok(())
    }

    fn status(&mut self) -> Result<AuditSettings, Failure> {
        match self.ask(Request::Status)? {
            Answer::Status(status) => Ok(status.settings),
            Answer::Refused(refusal) => Err(Failure::with(FAILURE, refusal.reason)),
            _ => Err(Failure::invalid_reply()),
        }
    }

    /// Sends a request that succeeds without an answer.
    fn send_request(&mut self, request: Request, what: &str) -> Result<(), Failure> {
        match self.ask(request)? {
            Answer::Done => Ok(()),
            Answer::Refused(refusal) => {
                let text = format!("Error sending {what} command ({})", errno(&refusal));
                Err(self.failed(with_reason(text, &refusal)))
            }
            _ => Err(Failure::invalid_reply()),
        }
    }

    fn reset(&mut self, request: Request, name: &str) -> Result<(), Failure> {
        match self.ask(request)? {
            Answer::Was(was) => {
                self.messages.push(format!("{name}: {was}").into());
                Ok(())
            }
            Answer::Refused(refusal) => {
                let text = format!("Error resetting {name} ({})", errno(&refusal));
                Err(self.failed(with_reason(text, &refusal)))
            }
            _ => Err(Failure::invalid_reply()),
        }
    }

    /// Signals the daemon; after `stop`, waits until it has ended, after `resume` until it writes.
    fn signal(&mut self, wanted: DaemonSignal) -> Result<(), Failure> {
        let not_running = Failure::with(
            match self.dialect {
                Dialect::V3 => 0,
                Dialect::V4 => NOT_RUNNING,
            },
            "Auditd is not running",
        );
        let settings = match self.status() {
            Ok(settings) => settings,
            Err(failure) if self.client.is_some() => return Err(failure), // stopped, for example
            Err(_) => return Err(not_running),
        };
        let Ok(pid) = i32::try_from(settings.pid) else {
            return Err(not_running);
        };
        let number = match wanted {
            DaemonSignal::Stop => signal::SIGTERM,
            DaemonSignal::Reload => signal::SIGHUP,
            DaemonSignal::Rotate => signal::SIGUSR1,
            DaemonSignal::Resume => signal::SIGUSR2,
            DaemonSignal::State => signal::SIGCONT,
        };
        let failed = |why: &dyn std::fmt::Display| {
            Failure::with(FAILURE, format!("Failed sending signal to auditd ({why})"))
        };
        kill(Pid::from_raw(pid), number).map_err(|errno| failed(&errno.desc()))?;
        if wanted == DaemonSignal::Stop
            && let Some(client) = self.client.take()
        {
            client.wait_for_end().map_err(|error| failed(&error))?;
        }
        if wanted == DaemonSignal::Resume {
            self.await_resumption()?;
        }
        Ok(())
    }

    /// Waits until the daemon writes to its log again.
    ///
    /// # Errors
    /// The log is suspended again, and why.
    fn await_resumption(&mut self) -> Result<(), Failure> {
        const POLL: Duration = Duration::from_millis(100);
        // The daemon writes a record when it resumes. If that fails, it suspends the log again.
        let (mut suspended, mut written) = (None, 0);
        for _ in 0..20 {
            let _now = after(POLL).recv();
            suspended = match self.ask(Request::Status)? {
                Answer::Status(status) => status.suspended,
                Answer::Refused(refusal) => return Err(Failure::with(FAILURE, refusal.reason)),
                _ => return Err(Failure::invalid_reply()),
            };
            written = if suspended.is_some() { 0 } else { written + 1 };
            if written == 2 {
                break;
            }
        }
        let Some(suspended) = suspended else {
            return Ok(());
        };
        let reason = suspended.reason;
        let text =
            format!("The log is still suspended ({reason}): correct that, then resume again");
        Err(Failure::with(FAILURE, text))
    }

    fn ask(&mut self, request: Request) -> Result<Answer, Failure> {
        if self.client.is_none() {
            let client =
                Client::connect(self.socket).map_err(|error| self.connect_failure(&error))?;
            self.client = Some(client);
        }
        let Some(client) = &mut self.client else {
            return Err(Failure::invalid_reply());
        };
        client
            .ask(request)
            .map_err(|error| Failure::with(FAILURE, format!("{error:#}")))
    }

    /// Returns the failure if no connection is possible.
    fn connect_failure(&self, error: &io::Error) -> Failure {
        let shown = self.socket.display();
        let text = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                format!("The audit system is disabled: no tollgate daemon listens at `{shown}`")
            }
            _ => format!("Cannot open the control socket `{shown}`: {error}"),
        };
        Failure::with(FAILURE, text)
    }

    fn print_remaining(&mut self, left: u64) {
        if left == 0 {
            self.stdout.extend(b"No rules\n");
        }
    }

    fn print_settings(&mut self, settings: &AuditSettings, interpret: bool) {
        self.stdout
            .extend(status_text::settings(settings, interpret));
    }

    fn print_feature(&mut self, settings: &AuditSettings) {
        self.stdout.extend(status_text::feature(settings));
    }

    /// Returns the failure of a command line.
    fn failed(&self, messages: Vec<BString>) -> Failure {
        let general = (self.dialect == Dialect::V4).then(|| auditctl::PARAMETER_ERROR.into());
        Failure {
            messages: messages.into_iter().chain(general).collect(),
            status: auditctl::EXIT_FAILURE,
        }
    }
}

impl Failure {
    fn with(status: u8, text: impl Into<BString>) -> Self {
        Self {
            messages: vec![text.into()],
            status,
        }
    }

    fn invalid_reply() -> Self {
        Self::with(
            FAILURE,
            "Invalid reply from the daemon: compare its version with `tollgate --version`",
        )
    }
}

/// Locks login uids in the kernel; the daemon is not involved.
fn lock_loginuids() -> Result<(), Failure> {
    LoginuidImmutable::lock().map_err(|error| {
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        Failure::with(
            auditctl::EXIT_FAILURE,
            format!("Error setting feature ({text})"),
        )
    })
}

fn native() -> Arch {
    ThisMachine.native()
}
