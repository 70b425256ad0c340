//! Makes room on a full disk: the oldest files of the log go, one at a time, until what is to be written fits.
//!
//! auditd rotates the log for each event that does not fit, so a disk that others fill costs it every log within
//! `num_logs` events. Here a removed file is reported, and the last events stay.
//!
//! # Source
//! `do_disk_full_action` and `do_space_left_action` in `src/auditd-event.c`, audit-userspace 4.2.1.

use audit::conf::auditd::MaxLogFileAction;

use super::rotate::{self, OldLogPolicy, Removal};
use super::system::SyslogSeverity;
use super::{AuditLog, MEBIBYTE};

/// A smaller log is not rotated for room: it has the last events, and is little.
///
/// # Units
/// Bytes.
const LEAST_ROTATED: u64 = MEBIBYTE / 16;
/// Removed files that a message lists.
const MOST_NAMES: usize = 8;

impl AuditLog {
    /// Makes room for a write that failed. Returns whether there is more now. `text` tells what is the matter.
    pub(super) fn make_room(&mut self, text: &str) -> bool {
        let mut removal = self.try_to_remove_oldest();
        let has_old = !removal.removed.is_empty() || removal.failed.is_some();
        if !has_old && self.may_remove() && self.log.is_some() && self.size >= LEAST_ROTATED {
            self.rotate(OldLogPolicy::AsConfigured);
            removal = self.try_to_remove_oldest();
        }
        self.report_room(&removal, text)
    }

    /// Removes the oldest archive or old log, and reports it. Returns false if there is none.
    pub(super) fn remove_oldest(&mut self, text: &str) -> bool {
        let removal = self.try_to_remove_oldest();
        self.report_room(&removal, text)
    }

    /// Whether the settings let old files be removed.
    fn may_remove(&self) -> bool {
        self.config.conf.as_ref().is_some_and(|conf| {
            conf.max_log_file_action != MaxLogFileAction::KeepLogs && conf.num_logs > 1
        })
    }

    /// Removes the oldest archive or old log, if the settings let it.
    fn try_to_remove_oldest(&self) -> Removal {
        if !self.may_remove() {
            return Removal::default();
        }
        let removal = rotate::remove_oldest(&self.directory, &self.name);
        removal.unwrap_or_else(|error| Removal {
            failed: Some(error),
            ..Removal::default()
        })
    }

    /// Reports the file that was removed for room; returns whether there is one. That there is none is reported once.
    fn report_room(&mut self, removal: &Removal, text: &str) -> bool {
        if let Some(name) = removal.removed.first() {
            self.alarms.nothing_to_remove = false;
            self.alarm(&format!(
                "{text}; removed the oldest file, `{}`",
                name.display()
            ));
            return true;
        }
        if !std::mem::replace(&mut self.alarms.nothing_to_remove, true) {
            let reason = match &removal.failed {
                Some(error) => format!("cannot remove an old log: {error}"),
                None => "there is no old log to remove".to_owned(),
            };
            self.alarm(&format!("{text}; {reason}: make room"));
        }
        false
    }

    /// Reports what was removed because of `num_logs`, if it is at least `least` files, and what could not be.
    pub(super) fn report_removal(&mut self, removal: &Removal, least: usize) {
        let names: Vec<String> = removal
            .removed
            .iter()
            .map(|name| name.display().to_string())
            .collect();
        if let (Some(first), Some(last)) = (names.first(), names.last())
            && names.len() >= least
        {
            let listed = match names.len() {
                0..=MOST_NAMES => names.join(", "),
                _ => format!("{first} to {last}"),
            };
            let text = format!("removed {} logs beyond num_logs: {listed}", names.len());
            self.system.syslog(SyslogSeverity::Notice, &text);
        }
        let had_failed = std::mem::replace(&mut self.alarms.removal, removal.failed.is_some());
        if let Some(error) = &removal.failed
            && !had_failed
        {
            self.alarm(&format!("cannot remove logs beyond num_logs: {error}"));
        }
    }
}
