//! `--offline`: applies requests to a model of the kernel's rule lists and prints the result.
//!
//! The model refuses a rule that already exists, the deletion of a rule that does not exist, and any change
//! after `-e 2`. It accepts rules whose content the kernel refuses, as `auditctl` does; `tollgate check`
//! reports those.

use std::io::{self, Write};
use std::path::Path;

use audit::ids::Arch;
use audit::ids::Dialect;
use audit::plan::rule_list::{RuleList, RuleListError};
use audit::rule::auditctl::{self, CliRequest, Invocation};
use audit::rule::{Command, RuleHost as _, listing};
use bstr::BString;

use super::file::{self, ErrorPolicy};
use super::{status_text, usage};
use crate::host::ThisMachine;
use crate::rule_files;

/// Exit status if a line of a rule file failed.
const FILE_FAILED: u8 = 1;

/// The model, and the output.
#[derive(Debug)]
pub(super) struct Offline {
    dialect: Dialect,
    rules: RuleList,
    /// Whether `-D` has deleted the rules that existed before, so that all rules are known.
    emptied: bool,
    immutable: bool,
    policy: ErrorPolicy,
    /// Output before the rules.
    stdout: Vec<u8>,
}

impl Offline {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            rules: RuleList::default(),
            emptied: false,
            immutable: false,
            policy: ErrorPolicy::Stop,
            stdout: Vec::new(),
        }
    }

    /// Runs a command line. Returns the messages and the exit status.
    pub(super) fn run(&mut self, answer: Invocation) -> (Vec<BString>, u8) {
        let mut messages = answer.messages;
        let mut status = answer.status;
        for request in answer.requests {
            if let Err(refused) = self.request(0, request, &mut messages) {
                messages.push(refused);
                if self.dialect == Dialect::V4 {
                    messages.push(auditctl::PARAMETER_ERROR.into());
                }
                status = auditctl::EXIT_FAILURE;
            }
        }
        (messages, status)
    }

    /// Runs a rule file. Returns the messages, which `auditctl` sends to syslog, and the exit status.
    pub(super) fn read_file(&mut self, path: &Path) -> (Vec<BString>, u8) {
        let bytes = match rule_files::read_bytes(path) {
            Ok(bytes) => bytes,
            Err(error) => return (vec![file::read_error(path, &error)], FILE_FAILED),
        };
        let mut messages = Vec::new();
        let mut failed = false;
        for (number, line) in (1..).zip(auditctl::lines(&bytes)) {
            let Some(answer) = auditctl::line(line, number, self.dialect, &ThisMachine) else {
                continue;
            };
            if self.line(number, answer, &mut messages) {
                continue;
            }
            messages.push(file::error_line(number, path));
            failed |= self.policy != ErrorPolicy::Ignore;
            if self.policy == ErrorPolicy::Stop {
                break;
            }
        }
        (messages, if failed { FILE_FAILED } else { 0 })
    }

    /// Prints the output, and the rules as `auditctl -l` does.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.stdout)?;
        out.write_all(&listing(self.rules.listed(), native(), self.dialect))?;
        out.flush()
    }

    /// Runs one line. Returns whether it succeeded.
    fn line(&mut self, number: u32, answer: Invocation, messages: &mut Vec<BString>) -> bool {
        messages.extend(answer.messages);
        let mut succeeded = answer.status == 0;
        for request in answer.requests {
            if let Err(refused) = self.request(number, request, messages) {
                messages.push(refused);
                succeeded = false;
            }
        }
        succeeded
    }

    fn request(
        &mut self,
        line: u32,
        request: CliRequest,
        messages: &mut Vec<BString>,
    ) -> Result<(), BString> {
        match request {
            CliRequest::Command(command) => return self.command(line, command),
            CliRequest::Usage => self.stdout.extend_from_slice(usage::TEXT.as_bytes()),
            CliRequest::Version => self.stdout.extend(status_text::version(self.dialect)),
            // The model counts nothing.
            CliRequest::ResetLost => messages.push("lost: 0".into()),
            CliRequest::ResetBacklogWait => messages.push("backlog_wait_time_actual: 0".into()),
            // The rules are printed in any case; other requests need a daemon.
            _ => {}
        }
        Ok(())
    }

    fn command(&mut self, line: u32, command: Command) -> Result<(), BString> {
        let verb = match &command {
            Command::Enabled(level) => {
                self.immutable |= *level == 2;
                return Ok(());
            }
            Command::IgnoreErrors | Command::ContinueOnErrors => {
                self.policy = self.policy.after(&command);
                return Ok(());
            }
            Command::Add { .. } => "add",
            Command::Delete(_) | Command::DeleteAll(_) => "delete",
            _ => return Ok(()),
        };
        let refusal = |why: &str| {
            Err(BString::from(format!(
                "Error sending {verb} rule data request ({why})"
            )))
        };
        if self.immutable {
            return refusal("Operation not permitted");
        }
        let empties = command == Command::DeleteAll(None);
        match self.rules.apply(0, line, command) {
            Ok(()) => {
                self.emptied |= empties;
                Ok(())
            }
            Err(RuleListError::Exists(_)) => refusal("Rule exists"),
            // The rule may exist since before the command.
            Err(RuleListError::Missing) if !self.emptied => Ok(()),
            Err(RuleListError::Missing) => refusal("No such file or directory"),
        }
    }
}

fn native() -> Arch {
    ThisMachine.native()
}
