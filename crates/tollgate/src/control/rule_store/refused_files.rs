//! Configuration files that were refused: older rules or settings are in force instead.

use std::time::Instant;

use crate::control::protocol::RefusedFiles;
use crate::unix_time;

/// What was refused, and when.
#[derive(Clone, Debug)]
pub(super) struct RefusedAt {
    files: RefusedFiles,
    at: Instant,
}

impl RefusedAt {
    fn report(&self) -> RefusedFiles {
        RefusedFiles {
            seconds: self.at.elapsed().as_secs(),
            ..self.files.clone()
        }
    }
}

impl super::RuleStore {
    /// Remembers that files were refused at the start or at a reload, until a reload succeeds. `last_good` is when the
    /// rules in force were loaded, if they are the last good ones.
    pub(crate) fn set_refused_files(&mut self, reason: String, last_good: Option<u64>) {
        // A reload that fails as well changes nothing about the rules in force.
        let before = self
            .refused
            .take()
            .and_then(|before| before.files.last_good);
        self.refused = Some(RefusedAt {
            files: RefusedFiles {
                reason,
                since: unix_time::now(),
                seconds: 0,
                last_good: last_good.or(before),
            },
            at: Instant::now(),
        });
    }

    /// All files are in force.
    pub(crate) fn clear_refused_files(&mut self) {
        self.refused = None;
    }

    /// The files that were refused, if any.
    pub(crate) fn refused_files(&self) -> Option<RefusedFiles> {
        self.refused.as_ref().map(RefusedAt::report)
    }
}
