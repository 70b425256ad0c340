//! Failures of the archiver, each reported once until it ends.

use std::collections::HashMap;
use std::sync::Arc;

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// All old logs.
    OldLogs,
    /// The old log with this device and inode, whatever its number is.
    OldLog(u64, u64),
}

/// Failures that last.
pub(super) struct Failures {
    lasting: HashMap<Subject, String>,
    warn: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Failures {
    /// None. Reports go to `warn`.
    pub(super) fn new(warn: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        Self {
            lasting: HashMap::new(),
            warn,
        }
    }

    /// Reports a failure, unless the same was reported and has not ended.
    pub(super) fn report(&mut self, subject: Subject, text: String) {
        let known = self.lasting.get(&subject);
        // The path of an old log is in the text, and changes when the log is rotated.
        let is_known = match subject {
            Subject::OldLog(..) => known.is_some(),
            Subject::OldLogs => known == Some(&text),
        };
        if !is_known {
            (self.warn)(&text);
            self.lasting.insert(subject, text);
        }
    }

    /// It works.
    pub(super) fn ended(&mut self, subject: Subject) {
        self.lasting.remove(&subject);
    }

    /// Forgets old logs that are not among `present`: another file may get their inode.
    pub(super) fn retain_old_logs(&mut self, present: &[Subject]) {
        self.lasting.retain(|subject, _| {
            !matches!(subject, Subject::OldLog(..)) || present.contains(subject)
        });
    }
}
