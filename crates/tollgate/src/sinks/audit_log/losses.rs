//! Events that cannot be written: counted, reported by a record as soon as the log is written again, and until then
//! kept in the file of the lock, from which the next daemon reports them.

use super::daemon_records::DaemonRecord;
use super::suspension::Suspension;
use super::{AppendResult, AuditLog};
use crate::sinks::log_file::log_lock::{LogLock, UnreportedLosses};

impl AuditLog {
    /// Counts lost events.
    pub(super) fn count_lost(&mut self, events: u64, reason: &str) -> AppendResult {
        if self.suspension.is_none() {
            let before = self.lost.events;
            self.failure
                .get_or_insert_with(|| Suspension::begin("write", reason, before));
        }
        self.set_lost(UnreportedLosses {
            events: self.lost.events.saturating_add(events),
            reason: reason.to_owned(),
        });
        AppendResult {
            written: 0,
            lost: events,
            reason: reason.to_owned(),
        }
    }

    /// Writes a record about lost events.
    pub(super) fn report_losses(&mut self) {
        if self.lost.events == 0 || self.is_suspended() || !self.config.writes() {
            return;
        }
        let UnreportedLosses { events, reason } = self.lost.clone();
        if self
            .write_daemon_record_line(&DaemonRecord::Lost(events, &reason))
            .is_some()
        {
            self.set_lost(UnreportedLosses::default());
        }
    }

    /// Writes a record about losses. Returns its line if it is in the log.
    pub(super) fn write_daemon_record_line(&mut self, about: &DaemonRecord<'_>) -> Option<Vec<u8>> {
        let lines = self.format_daemon_record(about);
        // The record itself is no event.
        let lost = self.lost.clone();
        let written = self.write(&lines, 1, &mut ()).written;
        if written == 0 {
            self.set_lost(lost);
        }
        (written != 0).then_some(lines)
    }

    /// Locks the log, if it is written and was not locked for lack of space, and takes over the losses that the previous
    /// daemon could not report. Suspends the log if another daemon has locked it.
    pub(super) fn lock_if_unlocked(&mut self) {
        if self.lock.is_some() {
            return;
        }
        match self.config.lock() {
            Ok(Some(lock)) => {
                let earlier = lock.unreported().clone();
                self.lock = Some(lock);
                self.add_lost(earlier);
            }
            Ok(None) => {}
            Err(error) => {
                let text = format!("{error:#}");
                self.alarm(&format!("logging is suspended: {text}"));
                self.suspend("lock", &text);
            }
        }
    }

    /// Changes to the lock of another log, which reports what the one before did not. If none is written, the file of
    /// the one before keeps that.
    pub(super) fn change_lock(&mut self, lock: Option<LogLock>) {
        let before = std::mem::replace(&mut self.lock, lock);
        match (before, &self.lock) {
            (before, Some(lock)) => {
                let earlier = lock.unreported().clone();
                self.add_lost(earlier);
                let is_kept = self
                    .lock
                    .as_ref()
                    .is_some_and(|lock| *lock.unreported() == self.lost);
                if let Some(mut before) = before.filter(|_| is_kept) {
                    let _removed = before.keep_unreported(&UnreportedLosses::default());
                }
            }
            (Some(_), None) => self.lost = UnreportedLosses::default(),
            (None, None) => {}
        }
    }

    /// Adds losses that another daemon did not report.
    fn add_lost(&mut self, earlier: UnreportedLosses) {
        let events = self.lost.events.saturating_add(earlier.events);
        let latest = if self.lost.events == 0 {
            earlier
        } else {
            self.lost.clone()
        };
        self.set_lost(UnreportedLosses { events, ..latest });
    }

    fn set_lost(&mut self, lost: UnreportedLosses) {
        self.lost = lost;
        if let Some(suspension) = self.suspension.as_mut().or(self.failure.as_mut()) {
            suspension.events = self.lost.events;
        }
        // A full disk has room, but a broken one may refuse it: then only the status has the count.
        if let Some(lock) = &mut self.lock {
            let _kept = lock.keep_unreported(&self.lost);
        }
    }
}
