//! `auditctl` as it talks to the running daemon.
//!
//! A command line is sent request by request, as `auditctl` does. A rule file is one change: it takes
//! effect at once, or when a line of it is refused, and neither `-i` nor `-c` stands above, not at all.

use std::io;
use std::path::Path;

use audit::ids::Arch;
use audit::ids::Dialect;
use audit::rule::auditctl::{self, DaemonSignal, Invocation as Read, Request as Asked};
use audit::rule::{Command, RuleHost as _, listing};
use bstr::{BString, ByteSlice as _};
use netlink::LoginuidImmutable;
use nix::errno::Errno;
use nix::sys::signal::{self, kill};
use nix::unistd::Pid;

use super::batch::{Batch, complaint, errno, is_setting, with_reason};
use super::file::{self, Mistakes};
use super::{message, status_text, usage};
use crate::control::client::Client;
use crate::control::protocol::{Answer, AuditSettings, Request, Step, StepOutcome};
use crate::host::ThisMachine;
use crate::json_bytes::JsonBytes;
use crate::rule_files;

/// Status when rules may not be changed, or nobody can be asked.
const CANNOT: u8 = 1;
/// Status when there is no daemon to signal.
const NOT_RUNNING: u8 = 2;

const IMMUTABLE: &str = "The audit system is in immutable mode, no rule changes allowed";
const NOTHING_DONE: &str = "Nothing of it was done: rules and settings are as they were";

/// How it went wrong: what is said, and the status.
#[derive(Debug)]
struct Failed {
    said: Vec<BString>,
    status: u8,
}

type Done = Result<(), Failed>;

/// A connection to the daemon, and what is to be shown.
#[derive(Debug)]
pub(super) struct Online<'s> {
    dialect: Dialect,
    socket: &'s Path,
    client: Option<Client>,
    /// What goes to standard output.
    shown: Vec<u8>,
    /// What goes to standard error.
    said: Vec<BString>,
}

impl<'s> Online<'s> {
    pub(super) fn new(dialect: Dialect, socket: &'s Path) -> Self {
        Self {
            dialect,
            socket,
            client: None,
            shown: Vec::new(),
            said: Vec::new(),
        }
    }

    /// What was said, and what is to be shown.
    pub(super) fn into_output(self) -> (Vec<BString>, Vec<u8>) {
        (self.said, self.shown)
    }

    /// Obeys a command line. Gives the status.
    pub(super) fn obey(&mut self, read: Read) -> u8 {
        let Read {
            messages: said,
            requests,
            mut status,
        } = read;
        self.said.extend(said);
        let only_settings = requests.iter().all(is_setting);
        let mut first = None;
        for request in requests {
            match self.request(&request) {
                Ok(settings) => first = first.or(settings),
                Err(failed) => {
                    self.said.extend(failed.said);
                    status = failed.status;
                    break;
                }
            }
        }
        if let (Some(settings), true, 0) = (first, only_settings, status) {
            self.show_settings(&settings, false);
        }
        status
    }

    /// Obeys a rule file. Gives the status.
    pub(super) fn read_file(&mut self, path: &Path) -> u8 {
        match self.try_file(path) {
            Ok(mistakes) => mistakes,
            Err(failed) => {
                self.said.extend(failed.said);
                CANNOT
            }
        }
    }

    fn try_file(&mut self, path: &Path) -> Result<u8, Failed> {
        if self.status()?.enabled == 2 {
            return Err(Failed::with(CANNOT, IMMUTABLE));
        }
        let bytes = rule_files::read_bytes(path)
            .map_err(|error| Failed::with(CANNOT, file::unreadable(path, &error)))?;
        let mut batch = Batch::default();
        let mut failed = false;
        for (number, line) in (1..).zip(auditctl::lines(&bytes)) {
            let Some(read) = auditctl::line(line, number, self.dialect, &ThisMachine) else {
                continue;
            };
            self.said.extend(read.messages);
            let well = read.status == 0;
            batch.line(number, read.requests);
            if well {
                continue;
            }
            self.said.push(file::place(number, path));
            failed |= batch.mistakes != Mistakes::Forgiven;
            if batch.mistakes == Mistakes::Stop {
                self.said.push(NOTHING_DONE.into());
                return Ok(CANNOT);
            }
        }
        failed |= self.send(&batch, path)?;
        for request in &batch.others {
            self.request(request)?;
        }
        Ok(if failed { CANNOT } else { 0 })
    }

    /// Sends all steps of a file at once; whether a mistake counts.
    fn send(&mut self, batch: &Batch, path: &Path) -> Result<bool, Failed> {
        let steps: Vec<Step> = batch.steps.iter().map(|(_, step)| step.clone()).collect();
        let outcomes = match self.ask(Request::Change {
            steps,
            forgive_from: batch.forgive_from,
        })? {
            Answer::Changed(outcomes) => outcomes,
            Answer::Refused(refusal) => {
                let mut failed = Failed::with(CANNOT, refusal.reason);
                failed.said.push(NOTHING_DONE.into());
                return Err(failed);
            }
            _ => return Err(Failed::odd()),
        };
        let mut failed = false;
        let mut told = 0;
        for ((line, step), outcome) in batch.steps.iter().zip(&outcomes) {
            match outcome {
                StepOutcome::Done => {}
                StepOutcome::Left(left) => self.show_left(*left),
                // A line that only changes settings shows the status, once.
                StepOutcome::Set(settings) if told != *line => {
                    told = *line;
                    self.show_settings(settings, false);
                }
                StepOutcome::Set(_) => {}
                StepOutcome::Refused(refusal) => {
                    self.said.extend(complaint(step, refusal));
                    self.said.push(file::place(*line, path));
                    failed |= batch.mistakes != Mistakes::Forgiven;
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
            self.shown.clear();
            self.said.push(NOTHING_DONE.into());
            failed = true;
        }
        Ok(failed)
    }

    /// Does one thing; gives the settings when it changes one.
    fn request(&mut self, request: &Asked) -> Result<Option<AuditSettings>, Failed> {
        match request {
            Asked::Command(Command::LoginuidImmutable) => lock_loginuids()?,
            Asked::Command(command) => {
                if let Some(step) = Step::of(command) {
                    return self.change(&step);
                }
            }
            Asked::List { key, interpret: _ } => self.list(key.as_ref())?,
            Asked::Status { interpret } => {
                let settings = self.status()?;
                self.show_settings(&settings, *interpret);
                self.show_feature(&settings);
            }
            Asked::Message(text) => {
                let text = JsonBytes::new(&message::text(text));
                self.plain(Request::Message(text), "user message")?;
            }
            Asked::Equivalent { mount, subtree } => {
                let request = Request::Equivalent {
                    mount: JsonBytes::new(mount),
                    subtree: JsonBytes::new(subtree),
                };
                self.plain(request, "make_equivalent")?;
            }
            Asked::Trim => self.plain(Request::Trim, "trim subtrees")?,
            Asked::ResetLost => self.reset(Request::ResetLost, "lost")?,
            Asked::ResetBacklogWait => {
                self.reset(Request::ResetBacklogWait, "backlog_wait_time_actual")?;
            }
            Asked::Signal(signal) => self.signal(*signal)?,
            Asked::Usage => self.shown.extend_from_slice(usage::TEXT.as_bytes()),
            Asked::Version => self.shown.extend(status_text::version(self.dialect)),
            _ => return Err(Failed::odd()),
        }
        Ok(None)
    }

    fn change(&mut self, step: &Step) -> Result<Option<AuditSettings>, Failed> {
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
            Some(StepOutcome::Left(left)) => {
                self.show_left(left);
                Ok(None)
            }
            Some(StepOutcome::Refused(refusal)) => {
                let is_rule = matches!(step, Step::Append(_) | Step::Prepend(_) | Step::Delete(_));
                if is_rule && refusal.errno == Errno::EPERM as i32 {
                    return Err(Failed::with(CANNOT, IMMUTABLE));
                }
                Err(self.failed(complaint(step, &refusal)))
            }
            None => Err(Failed::odd()),
        }
    }

    fn list(&mut self, key: Option<&BString>) -> Done {
        let Answer::Rules(forms) = self.ask(Request::Rules)? else {
            return Err(Failed::odd());
        };
        if forms.is_empty() {
            self.show_left(0);
        }
        let mut rules = Vec::with_capacity(forms.len());
        for form in forms {
            let rule = form.rule().map_err(|why| Failed::with(CANNOT, why))?;
            let keys = bstr::join([1], &rule.keys);
            if key.is_none_or(|key| keys.contains_str(key)) {
                rules.push(rule);
            }
        }
        self.shown.extend(listing(&rules, native(), self.dialect));
        Ok(())
    }

    fn status(&mut self) -> Result<AuditSettings, Failed> {
        match self.ask(Request::Status)? {
            Answer::Status(status) => Ok(status.settings),
            Answer::Refused(refusal) => Err(Failed::with(CANNOT, refusal.reason)),
            _ => Err(Failed::odd()),
        }
    }

    /// A request that is done or is not.
    fn plain(&mut self, request: Request, what: &str) -> Done {
        match self.ask(request)? {
            Answer::Done => Ok(()),
            Answer::Refused(refusal) => {
                let text = format!("Error sending {what} command ({})", errno(&refusal));
                Err(self.failed(with_reason(text, &refusal)))
            }
            _ => Err(Failed::odd()),
        }
    }

    fn reset(&mut self, request: Request, name: &str) -> Done {
        match self.ask(request)? {
            Answer::Was(was) => {
                self.said.push(format!("{name}: {was}").into());
                Ok(())
            }
            Answer::Refused(refusal) => {
                let text = format!("Error resetting {name} ({})", errno(&refusal));
                Err(self.failed(with_reason(text, &refusal)))
            }
            _ => Err(Failed::odd()),
        }
    }

    /// Signals the daemon; waits until it has ended when it is told to.
    fn signal(&mut self, wanted: DaemonSignal) -> Done {
        let not_running = Failed::with(
            match self.dialect {
                Dialect::V3 => 0,
                Dialect::V4 => NOT_RUNNING,
            },
            "Auditd is not running",
        );
        let Ok(settings) = self.status() else {
            return Err(not_running);
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
            Failed::with(CANNOT, format!("Failed sending signal to auditd ({why})"))
        };
        kill(Pid::from_raw(pid), number).map_err(|errno| failed(&errno.desc()))?;
        if wanted == DaemonSignal::Stop
            && let Some(client) = self.client.take()
        {
            client.wait_for_end().map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    fn ask(&mut self, request: Request) -> Result<Answer, Failed> {
        if self.client.is_none() {
            let client = Client::connect(self.socket).map_err(|error| self.nobody(&error))?;
            self.client = Some(client);
        }
        let Some(client) = &mut self.client else {
            return Err(Failed::odd());
        };
        client
            .ask(request)
            .map_err(|error| Failed::with(CANNOT, format!("{error:#}")))
    }

    /// What is said when there is nobody to ask.
    fn nobody(&self, error: &io::Error) -> Failed {
        let shown = self.socket.display();
        let text = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                format!("The audit system is disabled: no tollgate daemon listens at `{shown}`")
            }
            _ => format!("Cannot open the control socket `{shown}`: {error}"),
        };
        Failed::with(CANNOT, text)
    }

    fn show_left(&mut self, left: u64) {
        if left == 0 {
            self.shown.extend(b"No rules\n");
        }
    }

    fn show_settings(&mut self, settings: &AuditSettings, interpret: bool) {
        self.shown
            .extend(status_text::settings(settings, interpret));
    }

    fn show_feature(&mut self, settings: &AuditSettings) {
        self.shown.extend(status_text::feature(settings));
    }

    /// A mistake on the command line.
    fn failed(&self, said: Vec<BString>) -> Failed {
        let general = (self.dialect == Dialect::V4).then(|| auditctl::PARAMETER_ERROR.into());
        Failed {
            said: said.into_iter().chain(general).collect(),
            status: auditctl::EXIT_FAILURE,
        }
    }
}

impl Failed {
    fn with(status: u8, text: impl Into<BString>) -> Self {
        Self {
            said: vec![text.into()],
            status,
        }
    }

    fn odd() -> Self {
        Self::with(
            CANNOT,
            "The daemon answers what was not asked: is it of another version?",
        )
    }
}

/// This is the kernel's business: no daemon could keep it.
fn lock_loginuids() -> Done {
    LoginuidImmutable::lock().map_err(|error| {
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        Failed::with(
            auditctl::EXIT_FAILURE,
            format!("Error setting feature ({text})"),
        )
    })
}

fn native() -> Arch {
    ThisMachine.native()
}
