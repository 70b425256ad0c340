//! Converts requests of `auditctl` to steps of the control protocol, and refusals to messages.

use std::io;

use audit::rule::Command;
use audit::rule::auditctl::CliRequest;
use bstr::BString;
use nix::errno::Errno;

use super::file::ErrorPolicy;
use crate::control::protocol::{Refusal, Step};

/// The steps of a rule file.
#[derive(Debug)]
pub(super) struct FileSteps {
    /// Each step with its line number.
    pub(super) steps: Vec<(u32, Step)>,
    pub(super) forgive_from: Option<usize>,
    pub(super) policy: ErrorPolicy,
    /// Requests that are not steps; they follow the change.
    pub(super) others: Vec<CliRequest>,
}

impl Default for FileSteps {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            forgive_from: None,
            policy: ErrorPolicy::Stop,
            others: Vec::new(),
        }
    }
}

impl FileSteps {
    /// Adds the requests of a line. A line with an error has those before the error.
    pub(super) fn add_line(&mut self, number: u32, requests: Vec<CliRequest>) {
        for request in requests {
            match &request {
                CliRequest::Command(command) => {
                    self.policy = self.policy.after(command);
                    if self.policy != ErrorPolicy::Stop && self.forgive_from.is_none() {
                        self.forgive_from = Some(self.steps.len());
                    }
                    match Step::of(command) {
                        Some(step) => self.steps.push((number, step)),
                        None if *command == Command::LoginuidImmutable => self.others.push(request),
                        None => {}
                    }
                }
                _ => self.others.push(request),
            }
        }
    }
}

pub(super) const fn is_setting(request: &CliRequest) -> bool {
    matches!(
        request,
        CliRequest::Command(
            Command::Enabled(_)
                | Command::Failure(_)
                | Command::Rate(_)
                | Command::Backlog(_)
                | Command::BacklogWait(_)
        )
    )
}

/// Returns the message of `auditctl` about a refused step, and the reason that the daemon gives.
pub(super) fn refusal_messages(step: &Step, refusal: &Refusal) -> Vec<BString> {
    let errno = errno(refusal);
    let text = match step {
        Step::Append(_) | Step::Prepend(_) => {
            format!("Error sending add rule data request ({errno})")
        }
        Step::Delete(_) => format!("Error sending delete rule data request ({errno})"),
        Step::DeleteAll(_) => format!("Error deleting rule ({errno})"),
        Step::Enabled(_) => format!("Error sending enable request ({errno})"),
        Step::Failure(_) => format!("Error sending failure mode request ({errno})"),
        Step::RateLimit(_) => format!("Error sending rate limit request ({errno})"),
        Step::BacklogLimit(_) | Step::BacklogWaitTime(_) => {
            format!("Error sending backlog limit request ({errno})")
        }
    };
    with_reason(text, refusal)
}

pub(super) fn with_reason(text: String, refusal: &Refusal) -> Vec<BString> {
    let reason = (!refusal.reason.is_empty()).then(|| refusal.reason.as_str().into());
    [text.into()].into_iter().chain(reason).collect()
}

/// Returns the text of the C library for the error, or that of `auditctl` if it has its own.
pub(super) fn errno(refusal: &Refusal) -> String {
    if refusal.errno == Errno::EEXIST as i32 {
        return "Rule exists".into();
    }
    let text = io::Error::from_raw_os_error(refusal.errno).to_string();
    text.split(" (os error").next().unwrap_or_default().into()
}
