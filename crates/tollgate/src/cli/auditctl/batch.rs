//! The lines of a command line or a rule file as steps for the daemon, and what is said when it refuses
//! one.

use std::io;

use audit::rule::Command;
use audit::rule::auditctl::Request as Asked;
use bstr::BString;
use nix::errno::Errno;

use super::file::Mistakes;
use crate::control::protocol::{Refusal, Step};

/// The lines of a rule file on their way.
#[derive(Debug)]
pub(super) struct Batch {
    /// Each with its line.
    pub(super) steps: Vec<(u32, Step)>,
    pub(super) forgive_from: Option<usize>,
    pub(super) mistakes: Mistakes,
    /// What is done when the change is.
    pub(super) others: Vec<Asked>,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            forgive_from: None,
            mistakes: Mistakes::Stop,
            others: Vec::new(),
        }
    }
}

impl Batch {
    /// Takes what a line asks for; of a line with a mistake, what stands before that.
    pub(super) fn line(&mut self, number: u32, requests: Vec<Asked>) {
        for request in requests {
            match &request {
                Asked::Command(command) => {
                    self.mistakes = self.mistakes.after(command);
                    if self.mistakes != Mistakes::Stop && self.forgive_from.is_none() {
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

pub(super) const fn is_setting(request: &Asked) -> bool {
    matches!(
        request,
        Asked::Command(
            Command::Enabled(_)
                | Command::Failure(_)
                | Command::Rate(_)
                | Command::Backlog(_)
                | Command::BacklogWait(_)
        )
    )
}

/// What `auditctl` says of a step that was refused, and why in more words than it has.
pub(super) fn complaint(step: &Step, refusal: &Refusal) -> Vec<BString> {
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

/// The error in the words of the C library, but for the one that `auditctl` has words for.
pub(super) fn errno(refusal: &Refusal) -> String {
    if refusal.errno == Errno::EEXIST as i32 {
        return "Rule exists".into();
    }
    let text = io::Error::from_raw_os_error(refusal.errno).to_string();
    text.split(" (os error").next().unwrap_or_default().into()
}
