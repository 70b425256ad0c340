//! Effects of disk actions on the machine: syslog, mail, programs, and runlevel changes.
//!
//! A trait, so that tests of disk actions have no effect on the machine.

use bstr::BStr;

use crate::helper::{HelperClient, HelperProgram, LaunchedProgram, Runlevel};
use crate::host::SENDMAIL;
use crate::json_bytes::JsonBytes;
use crate::messages::{Priority, emit, has_priorities, send_to_syslog};

/// Severity of a syslog message.
///
/// # Source
/// `syslog(3)`: facility daemon with this severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyslogSeverity {
    /// `LOG_ALERT`.
    Alert,
    /// `LOG_NOTICE`.
    Notice,
}

/// A started program; numbers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunId(pub(super) u32);

/// Effects on the machine. No method blocks.
pub(crate) trait System: Send {
    /// Sends a message to syslog and prints it.
    fn syslog(&mut self, severity: SyslogSeverity, text: &str);
    /// Sends a mail to `action_mail_acct`.
    fn mail(&mut self, to: &BStr, subject: &str, text: &str);
    /// Runs a program without arguments; `None` if it cannot be started.
    fn run(&mut self, program: &BStr) -> Option<RunId>;
    /// Whether a started program is not yet known to have ended.
    fn has_running_program(&self) -> bool;
    /// Programs that have ended since the last call.
    fn take_ended_programs(&mut self) -> Vec<RunId>;
    /// Changes the runlevel.
    fn change_runlevel(&mut self, to: Runlevel);
}

/// The local machine.
#[derive(Debug, Default)]
pub(crate) struct LocalSystem {
    helper: Option<HelperClient>,
    programs: Vec<(RunId, LaunchedProgram)>,
    /// Number of programs started so far.
    started: u32,
}

impl LocalSystem {
    /// Uses this helper to start programs.
    pub(crate) const fn new(helper: Option<HelperClient>) -> Self {
        Self {
            helper,
            programs: Vec::new(),
            started: 0,
        }
    }

    /// Starts a program. Reports a failure.
    fn start(&mut self, name: &BStr, program: HelperProgram) -> Option<RunId> {
        match self.helper.as_ref()?.run(program) {
            Ok((launched, _no_input)) => {
                self.started = self.started.wrapping_add(1);
                let run = RunId(self.started);
                self.programs.push((run, launched));
                Some(run)
            }
            Err(error) => {
                self.syslog(
                    SyslogSeverity::Alert,
                    &format!("cannot run `{name}`: {error:#}"),
                );
                None
            }
        }
    }
}

impl System for LocalSystem {
    fn syslog(&mut self, severity: SyslogSeverity, text: &str) {
        let priority = match severity {
            SyslogSeverity::Alert => Priority::Alert,
            SyslogSeverity::Notice => Priority::Notice,
        };
        emit(priority, text);
        // The journal also receives syslog: the message would be there twice.
        if !has_priorities() {
            send_to_syslog(priority, text);
        }
    }

    fn mail(&mut self, _to: &BStr, subject: &str, text: &str) {
        let letter = HelperProgram::Mail {
            subject: subject.to_owned(),
            text: text.to_owned(),
        };
        self.start(SENDMAIL.into(), letter);
    }

    fn run(&mut self, program: &BStr) -> Option<RunId> {
        self.start(program, HelperProgram::Action(JsonBytes::new(program)))
    }

    fn has_running_program(&self) -> bool {
        !self.programs.is_empty()
    }

    fn take_ended_programs(&mut self) -> Vec<RunId> {
        let ended = self
            .programs
            .extract_if(.., |(_, program)| program.has_ended());
        ended.map(|(run, _)| run).collect()
    }

    fn change_runlevel(&mut self, to: Runlevel) {
        let name = match to {
            Runlevel::Single => "single user mode",
            Runlevel::Halt => "off",
        };
        self.syslog(
            SyslogSeverity::Alert,
            &format!("changing the runlevel to {name}"),
        );
        self.start("init".into(), HelperProgram::Init(to));
    }
}
