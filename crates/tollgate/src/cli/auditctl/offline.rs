//! What `auditctl` would have loaded: its requests, put to a model of the kernel's rule lists.
//!
//! The model refuses what depends on the other rules: one that exists, one to delete that does not,
//! and any change after `-e 2`. It takes rules whose content the kernel would refuse, because
//! `auditctl` itself takes them; `tollgate check` names those.

use std::io::{self, Write};
use std::path::Path;

use audit::ids::Arch;
use audit::ids::Dialect;
use audit::plan::rule_list::{RuleList, RuleListError};
use audit::rule::auditctl::{self, Invocation, Request};
use audit::rule::{Command, RuleHost as _, listing};
use bstr::BString;

use super::file::{self, Mistakes};
use super::{status_text, usage};
use crate::host::ThisMachine;
use crate::rule_files;

/// Status of a rule file that was not loaded whole.
const FILE_FAILED: u8 = 1;

/// The model, and what is to be shown.
#[derive(Debug)]
pub(super) struct Offline {
    dialect: Dialect,
    rules: RuleList,
    /// Whether the rules that were there before are gone, so that all are known.
    emptied: bool,
    immutable: bool,
    mistakes: Mistakes,
    /// Text to show before the rules.
    shown: Vec<u8>,
}

impl Offline {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            rules: RuleList::default(),
            emptied: false,
            immutable: false,
            mistakes: Mistakes::Stop,
            shown: Vec::new(),
        }
    }

    /// Obeys a command line. Gives the messages, and the status.
    pub(super) fn obey(&mut self, answer: Invocation) -> (Vec<BString>, u8) {
        let mut said = answer.messages;
        let mut status = answer.status;
        for request in answer.requests {
            if let Err(refused) = self.request(0, request, &mut said) {
                said.push(refused);
                if self.dialect == Dialect::V4 {
                    said.push(auditctl::PARAMETER_ERROR.into());
                }
                status = auditctl::EXIT_FAILURE;
            }
        }
        (said, status)
    }

    /// Obeys a rule file. Gives the messages, which a real `auditctl` sends to syslog, and the
    /// status.
    pub(super) fn read_file(&mut self, path: &Path) -> (Vec<BString>, u8) {
        let bytes = match rule_files::read_bytes(path) {
            Ok(bytes) => bytes,
            Err(error) => return (vec![file::unreadable(path, &error)], FILE_FAILED),
        };
        let mut said = Vec::new();
        let mut failed = false;
        for (number, line) in (1..).zip(auditctl::lines(&bytes)) {
            let Some(answer) = auditctl::line(line, number, self.dialect, &ThisMachine) else {
                continue;
            };
            if self.line(number, answer, &mut said) {
                continue;
            }
            said.push(file::place(number, path));
            failed |= self.mistakes != Mistakes::Forgiven;
            if self.mistakes == Mistakes::Stop {
                break;
            }
        }
        (said, if failed { FILE_FAILED } else { 0 })
    }

    /// Prints what there is to show, and the rules as `auditctl -l` would.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.shown)?;
        out.write_all(&listing(self.rules.listed(), native(), self.dialect))?;
        out.flush()
    }

    /// Obeys one line; whether all went well.
    fn line(&mut self, number: u32, answer: Invocation, said: &mut Vec<BString>) -> bool {
        said.extend(answer.messages);
        let mut well = answer.status == 0;
        for request in answer.requests {
            if let Err(refused) = self.request(number, request, said) {
                said.push(refused);
                well = false;
            }
        }
        well
    }

    fn request(
        &mut self,
        line: u32,
        request: Request,
        said: &mut Vec<BString>,
    ) -> Result<(), BString> {
        match request {
            Request::Command(command) => return self.command(line, command),
            Request::Usage => self.shown.extend_from_slice(usage::TEXT.as_bytes()),
            Request::Version => self.shown.extend(status_text::version(self.dialect)),
            // Nothing is counted here.
            Request::ResetLost => said.push("lost: 0".into()),
            Request::ResetBacklogWait => said.push("backlog_wait_time_actual: 0".into()),
            // What is loaded is shown in any case, and there is nobody to ask or to tell.
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
                self.mistakes = self.mistakes.after(&command);
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
            // It may have been loaded before.
            Err(RuleListError::Missing) if !self.emptied => Ok(()),
            Err(RuleListError::Missing) => refusal("No such file or directory"),
        }
    }
}

fn native() -> Arch {
    ThisMachine.native()
}
