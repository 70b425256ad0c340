//! Opens the log again: when it is resumed, after a rotation, or when it was deleted.

use std::io;

use nix::errno::Errno;

use super::disk_actions::{Alarms, Fault};
use super::{AuditLog, rotate};
use crate::sinks::log_file::Log;

impl AuditLog {
    /// Resumes writing and clears all alarms.
    pub(super) fn resume(&mut self) {
        self.suspension = None;
        self.until_ended = None;
        self.alarms = Alarms::default();
        self.sync_failure = None;
        if self.log.is_none() {
            self.reopen_after_failure("resume logging");
        }
    }

    /// Opens the log again. If that fails, suspends the log and runs `disk_error_action`.
    pub(super) fn reopen_after_failure(&mut self, purpose: &str) {
        let is_known = self.alarms.no_new_log.is_some();
        while let Err(error) = self.reopen() {
            let text = format!("cannot {purpose}: {error:#}");
            let cause = cause(&error);
            let is_full = cause.kind() == io::ErrorKind::StorageFull;
            if is_full && self.removes_when_full() && self.disk_full() {
                continue;
            }
            let goes_on = self.goes_on_with_old_log();
            if !(goes_on && is_known) {
                self.alarm(&text);
            }
            if goes_on {
                self.alarms.no_new_log = Some(self.size);
                return;
            }
            self.set_suspended("open", &text);
            self.disk_failed(Fault::Open, &cause);
            return;
        }
        self.alarms.no_new_log = None;
    }

    /// Goes on with the log that was just rotated, because no new one could be created.
    fn goes_on_with_old_log(&mut self) -> bool {
        let has_log = rotate::undo(&self.directory, &self.name).is_ok_and(|has| has);
        has_log && self.reopen().is_ok()
    }

    /// Begins a new log if the open one was deleted: what is written to it would be gone when it is closed.
    pub(super) fn replace_deleted_log(&mut self) {
        if self.log.as_ref().is_some_and(Log::is_deleted) {
            let path = self.config.path.display();
            self.alarm(&format!(
                "log `{path}` was deleted while it was open: its events are gone; a new log begins"
            ));
            self.reopen_after_failure("create the log again");
        }
    }
}

/// Returns the kernel's error if there is one, otherwise the whole error.
fn cause(error: &anyhow::Error) -> io::Error {
    let errno = error.chain().find_map(|cause| {
        let errno = cause.downcast_ref::<Errno>().map(|errno| *errno as i32);
        errno.or_else(|| cause.downcast_ref::<io::Error>()?.raw_os_error())
    });
    errno.map_or_else(
        || io::Error::other(error.to_string()),
        io::Error::from_raw_os_error,
    )
}
