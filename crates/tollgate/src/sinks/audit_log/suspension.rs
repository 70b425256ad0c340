//! A suspended log: why and since when nothing is written.

use std::time::SystemTime;

use super::AuditLog;

/// Why and since when nothing is written to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspension {
    /// The setting of `auditd.conf` whose action suspended the log, `open` if it cannot be opened, or `write` while
    /// writes fail and no action suspends it: then it is written again as soon as a write succeeds.
    pub(crate) setting: &'static str,
    /// What happened to the log or the disk.
    pub(crate) reason: String,
    /// When it was suspended.
    pub(crate) since: SystemTime,
    /// Events not written since then.
    pub(crate) events: u64,
}

impl Suspension {
    /// A log that is not written from now on.
    pub(super) fn begin(setting: &'static str, reason: &str) -> Self {
        Self {
            setting,
            reason: reason.to_owned(),
            since: SystemTime::now(),
            events: 0,
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
            .get_or_insert_with(|| Suspension::begin(setting, reason));
    }

    pub(super) const fn is_suspended(&self) -> bool {
        self.suspension.is_some()
    }

    /// Returns why the log is not written, if it is not.
    pub(crate) fn suspension(&self) -> Option<&Suspension> {
        self.suspension.as_ref().or(self.failure.as_ref())
    }
}
