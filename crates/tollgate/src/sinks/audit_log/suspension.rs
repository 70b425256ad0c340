//! A log that is suspended or fails: why, and since when.

use std::time::SystemTime;

use super::AuditLog;

/// Why and since when nothing is written to the log, or what is written is not safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspension {
    /// The setting of `auditd.conf` whose action suspended the log, `open` if it cannot be opened, or `write` while
    /// writes fail and no action suspends it: then it is written again as soon as a write succeeds. `lock` if another
    /// daemon has locked the log, and `sync` while the log is written and syncs fail.
    pub(crate) setting: &'static str,
    /// What happened to the log or the disk.
    pub(crate) reason: String,
    /// When it was suspended.
    pub(crate) since: SystemTime,
    /// Events that are not written, and that the log does not report yet.
    pub(crate) events: u64,
}

impl Suspension {
    /// A log that is not written from now on.
    pub(super) fn begin(setting: &'static str, reason: &str, events: u64) -> Self {
        Self {
            setting,
            reason: reason.to_owned(),
            since: SystemTime::now(),
            events,
        }
    }
}

impl AuditLog {
    /// Closes the log: nothing is written until it is resumed.
    pub(super) fn suspend(&mut self, setting: &'static str, reason: &str) {
        self.set_suspended(setting, reason);
        drop(self.close());
    }

    /// Writes nothing until the log is resumed; the first reason is kept.
    pub(super) fn set_suspended(&mut self, setting: &'static str, reason: &str) {
        self.failure = None;
        self.suspension
            .get_or_insert_with(|| Suspension::begin(setting, reason, self.lost.events));
    }

    pub(super) const fn is_suspended(&self) -> bool {
        self.suspension.is_some()
    }

    /// Returns why the log is not written, if it is not.
    pub(crate) fn suspension(&self) -> Option<&Suspension> {
        let failure = self.failure.as_ref().or(self.sync_failure.as_ref());
        self.suspension.as_ref().or(failure)
    }
}
