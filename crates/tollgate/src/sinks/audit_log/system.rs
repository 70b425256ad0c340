//! What an action does to the machine: says, mails, runs, and in the last resort takes it down.
//!
//! Behind a trait, so that the tests of everything that leads here take nothing down.

use std::os::unix::net::UnixDatagram;

use bstr::BStr;

use crate::helper::{LaunchedProgram, Launcher, Program, Runlevel};
use crate::host::SENDMAIL;
use crate::json_bytes::JsonBytes;
use crate::messages::{Priority, emit, stderr_is_journal};

/// Where syslog listens.
const SYSLOG: &str = "/dev/log";

/// How urgent a message to syslog is.
///
/// # Source
/// `syslog(3)`: facility daemon with the severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyslogSeverity {
    /// `LOG_ALERT`.
    Alert,
    /// `LOG_NOTICE`.
    Notice,
}

/// A program that was run: none has the number of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunId(pub(super) u32);

/// What can be done to a machine. Nothing here waits for anybody.
pub(crate) trait System: Send {
    /// Tells syslog, and whoever reads what the daemon says.
    fn syslog(&mut self, urgency: SyslogSeverity, text: &str);
    /// Sends a mail to `action_mail_acct`.
    fn mail(&mut self, to: &BStr, subject: &str, text: &str);
    /// Runs a program without arguments; `None` when it has not started.
    fn run(&mut self, program: &BStr) -> Option<RunId>;
    /// Whether a program that was run has not been seen to end.
    fn has_running(&self) -> bool;
    /// The programs that have ended since this was last asked.
    fn take_ended(&mut self) -> Vec<RunId>;
    /// Sends the machine there.
    fn change_runlevel(&mut self, to: Runlevel);
}

/// The machine that the daemon runs on.
#[derive(Debug, Default)]
pub(crate) struct LocalSystem {
    launcher: Option<Launcher>,
    programs: Vec<(RunId, LaunchedProgram)>,
    /// Programs so far.
    started: u32,
}

impl LocalSystem {
    /// The machine, on which this starts programs.
    pub(crate) const fn new(launcher: Option<Launcher>) -> Self {
        Self {
            launcher,
            programs: Vec::new(),
            started: 0,
        }
    }

    /// Starts a program. Why it has not started is said.
    fn start(&mut self, name: &BStr, program: Program) -> Option<RunId> {
        match self.launcher.as_ref()?.run(program) {
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
    fn syslog(&mut self, urgency: SyslogSeverity, text: &str) {
        let (said, priority) = match urgency {
            SyslogSeverity::Alert => (Priority::Alert, 25),
            SyslogSeverity::Notice => (Priority::Warning, 29),
        };
        emit(said, text);
        if stderr_is_journal() {
            return; // which is syslog, too, and would have it twice
        }
        // A machine without syslog has heard it above; one whose syslog is stuck makes nobody wait.
        let _unheard = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            let pid = std::process::id();
            socket.send_to(
                format!("<{priority}>tollgate[{pid}]: {text}").as_bytes(),
                SYSLOG,
            )
        });
    }

    fn mail(&mut self, _to: &BStr, subject: &str, text: &str) {
        let letter = Program::Mail {
            subject: subject.to_owned(),
            text: text.to_owned(),
        };
        self.start(SENDMAIL.into(), letter);
    }

    fn run(&mut self, program: &BStr) -> Option<RunId> {
        self.start(program, Program::Action(JsonBytes::new(program)))
    }

    fn has_running(&self) -> bool {
        !self.programs.is_empty()
    }

    fn take_ended(&mut self) -> Vec<RunId> {
        let take_ended = self
            .programs
            .extract_if(.., |(_, program)| program.has_ended());
        take_ended.map(|(run, _)| run).collect()
    }

    fn change_runlevel(&mut self, to: Runlevel) {
        let name = match to {
            Runlevel::Single => "single user mode",
            Runlevel::Halt => "off",
        };
        self.syslog(
            SyslogSeverity::Alert,
            &format!("the machine goes to {name}"),
        );
        self.start("init".into(), Program::Init(to));
    }
}
