//! Actions for a large log, low disk space, a full disk and disk errors.
//!
//! An action runs once until its condition ends, except rotation, which may end it.
//!
//! # Source
//! `check_log_file_size`, `check_space_left` and `do_*_action` in `src/auditd-event.c`, audit-userspace 4.2.1.
//! `auditd` stops after it has changed the runlevel; tollgate writes until init stops it.

use std::io;

use audit::conf::auditd::{Action, MaxLogFileAction, OverflowAction, SpaceLimit};
use nix::sys::statvfs::Statvfs;

use super::rotate::{OldLogPolicy, Removal};
use super::state_report::space;
use super::system::SyslogSeverity;
use super::{AuditLog, MEBIBYTE, rotate};
use crate::helper::Runlevel;

/// Blocks that are kept free.
const LAST_BLOCKS: u64 = 5;

/// What resumes a suspended log.
const RESUME: &str = "run `tollgate auditctl --signal resume`";

/// Conditions for which an action has run and that have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Alarms {
    size: bool,
    pub(super) space: bool,
    pub(super) admin: bool,
    pub(super) full: bool,
    /// Failed operations, each until it succeeds again.
    write: bool,
    flush: bool,
    rotate: bool,
    pub(super) open: bool,
    /// A log beyond `num_logs` could not be removed.
    pub(super) removal: bool,
    /// No old log could be removed to make room.
    pub(super) nothing_to_remove: bool,
    /// Size of the log when no new one could be created; it is rotated again when it has grown by a mebibyte.
    ///
    /// # Units
    /// Bytes.
    pub(super) no_new_log: Option<u64>,
}

/// An operation on the log that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Write,
    Flush,
    Rotate,
    Open,
}

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Flush => "sync",
            Self::Rotate => "rotate",
            Self::Open => "open",
        }
    }
}

impl Alarms {
    /// Whether an operation fails.
    pub(super) const fn disk_error(&self) -> bool {
        self.write || self.flush || self.rotate || self.open
    }

    /// The alarm of an operation.
    pub(super) const fn of(&mut self, fault: Fault) -> &mut bool {
        match fault {
            Fault::Write => &mut self.write,
            Fault::Flush => &mut self.flush,
            Fault::Rotate => &mut self.rotate,
            Fault::Open => &mut self.open,
        }
    }
}

impl AuditLog {
    pub(super) fn alarm(&mut self, text: &str) {
        self.system.syslog(SyslogSeverity::Alert, text);
    }

    /// Removes old logs beyond `num_logs`, unless all are kept.
    pub(super) fn remove_excess(&mut self) {
        self.recount_archived_twice();
        let Some(conf) = &self.config.conf else {
            return;
        };
        let all_kept = self.old_log_policy == OldLogPolicy::AllKept;
        if all_kept || conf.max_log_file_action != MaxLogFileAction::Rotate || conf.num_logs < 2 {
            return;
        }
        let most = conf.num_logs + self.archived_twice;
        match rotate::remove_excess(&self.directory, &self.name, most) {
            Ok(removal) => self.report_removal(&removal, 1),
            Err(error) => self.alarm(&format!("cannot remove logs beyond num_logs: {error}")),
        }
    }

    /// Gives old logs to the group of the log.
    pub(super) fn set_group_of_old_logs(&mut self) {
        if let Some(group) = self.config.access().group
            && self.config.writes()
            && let Err(error) = rotate::set_group(&self.directory, &self.name, group)
        {
            self.alarm(&format!("cannot give old logs to log_group: {error}"));
        }
    }

    /// Starts a new log, and keeps old logs by the policy.
    pub(super) fn rotate(&mut self, old_log_policy: OldLogPolicy) {
        self.recount_archived_twice();
        let Some(conf) = &self.config.conf else {
            return;
        };
        let keeps_all = conf.max_log_file_action == MaxLogFileAction::KeepLogs;
        if !keeps_all && conf.num_logs < 2 {
            let text = format!(
                "log `{}` is not rotated: num_logs is {} in auditd.conf; set it to 2 or more, then run `systemctl reload \
                 tollgate`",
                self.config.path.display(),
                conf.num_logs
            );
            return self.system.syslog(SyslogSeverity::Notice, &text);
        }
        let (group, num_logs) = (conf.log_group, conf.num_logs);
        let rotated = if keeps_all || old_log_policy == OldLogPolicy::AllKept {
            rotate::shift(&self.directory, &self.name).map(|()| Removal::default())
        } else {
            rotate::rotate(&self.directory, &self.name, num_logs + self.archived_twice)
        };
        let is_renamed = rotated.is_ok();
        match rotated {
            // Only now: a log that keeps its name must stay writable, also for the next daemon.
            Ok(removal) => {
                self.alarms.rotate = false;
                // A rotation replaces the oldest.
                self.report_removal(&removal, 2);
                if let Some(indexer) = &mut self.indexer {
                    indexer.rotated();
                }
                if let Some(Err(error)) = self.close().map(|log| log.close(group)) {
                    self.alarm(&format!("cannot make the old log read-only: {error}"));
                }
            }
            Err(error) => {
                if !self.alarms.rotate {
                    self.alarm(&format!(
                        "cannot rotate log `{}`: {error}",
                        self.config.path.display()
                    ));
                }
                // `disk_full_action = ROTATE` would fail again.
                let is_full = error.kind() == io::ErrorKind::StorageFull;
                if !(is_full && self.removes_when_full()) {
                    self.disk_failed(Fault::Rotate, &error);
                }
                self.alarms.rotate = true;
            }
        }
        if !self.is_suspended() && self.log.is_none() {
            self.reopen_after_failure("open a log after rotating");
        }
        // An old log that has got its name back is none.
        if is_renamed && self.alarms.no_new_log.is_none() {
            let log = self.archived_log();
            if let Some(archiver) = &self.archiver {
                archiver.rotated(log);
            }
        }
    }

    /// Runs `max_log_file_action` if the log is too large.
    pub(super) fn check_size(&mut self) {
        let Some(conf) = &self.config.conf else {
            return;
        };
        if self.size / MEBIBYTE < conf.max_log_file {
            self.alarms.size = false;
            return;
        }
        if self
            .alarms
            .no_new_log
            .is_some_and(|size| self.size < size + MEBIBYTE)
        {
            return;
        }
        match conf.max_log_file_action.clone() {
            MaxLogFileAction::Ignore => {}
            MaxLogFileAction::Syslog => {
                if !std::mem::replace(&mut self.alarms.size, true) {
                    self.alarm(&self.too_large());
                }
            }
            MaxLogFileAction::Exec(program) => {
                self.suspend("max_log_file_action", &self.too_large());
                self.until_ended = self.system.run(program.as_ref());
            }
            MaxLogFileAction::Suspend => {
                let text = self.too_large();
                self.alarm(&suspended("max_log_file_action", &text));
                self.suspend("max_log_file_action", &text);
            }
            MaxLogFileAction::Rotate if conf.num_logs < 2 => {}
            MaxLogFileAction::Rotate | MaxLogFileAction::KeepLogs => {
                self.rotate(OldLogPolicy::AsConfigured);
            }
        }
    }

    fn too_large(&self) -> String {
        let most = self
            .config
            .conf
            .as_ref()
            .map_or(0, |conf| conf.max_log_file);
        let path = self.config.path.display();
        format!("log `{path}` has reached max_log_file, {most} MiB")
    }

    /// Free space for the log, in words.
    fn free_space(&self) -> String {
        // A log that cannot be asked is about to fail, which is reported.
        let free_space = self.log.as_ref().and_then(|log| log.free_space().ok());
        free_space.map_or_else(
            || "free space unknown".to_owned(),
            |free_space| format!("{} KiB free", free_bytes(&free_space) / 1024),
        )
    }

    /// Runs the actions for low disk space or a full disk, if needed.
    pub(super) fn check_free_space(&mut self) {
        let (Some(conf), Some(log)) = (&self.config.conf, &self.log) else {
            return;
        };
        // Not an error of the log: the next write shows whether the disk works.
        let Ok(free_space) = log.free_space() else {
            return;
        };
        if free_space.blocks_available() < LAST_BLOCKS {
            if self.removes_when_full() {
                // A file is removed when a write fails.
                self.alarms.full = true;
            } else {
                self.disk_full();
            }
            return;
        }
        self.alarms.full = false;
        let levels = [
            (conf.space_left, conf.space_left_action.clone()),
            (conf.admin_space_left, conf.admin_space_left_action.clone()),
        ];
        let mut is_low = false;
        for (admin, (level, action)) in [false, true].into_iter().zip(levels) {
            let warned = if admin {
                self.alarms.admin
            } else {
                self.alarms.space
            };
            let low = is_below(&free_space, level);
            is_low |= low;
            if low && !warned {
                self.set_space_alarm(admin, action != Action::Rotate);
                self.space_low(&action, admin);
            } else if !low && action == Action::Syslog {
                self.set_space_alarm(admin, false);
            }
        }
        self.alarms.nothing_to_remove &= is_low || self.alarms.no_new_log.is_some();
    }

    fn set_space_alarm(&mut self, admin: bool, warned: bool) {
        if admin {
            self.alarms.admin = warned;
        } else {
            self.alarms.space = warned;
        }
    }

    fn space_low(&mut self, action: &Action, admin: bool) {
        let Some(conf) = &self.config.conf else {
            return;
        };
        let (text, subject, setting, level) = if admin {
            (
                "very low on disk space for log",
                "Audit Admin Space Alert",
                "admin_space_left_action",
                conf.admin_space_left,
            )
        } else {
            (
                "low on disk space for log",
                "Audit Disk Space Alert",
                "space_left_action",
                conf.space_left,
            )
        };
        let (path, free) = (self.config.path.display(), self.free_space());
        let limit = setting.trim_end_matches("_action");
        let text = format!("{text} `{path}`: {free}, {limit} is {}", space(level));
        if *action == Action::Email {
            let to = conf.action_mail_acct.clone();
            self.system.mail(to.as_ref(), subject, &text);
        }
        self.run_action(action, setting, &text);
    }

    /// Whether `disk_full_action` removes files.
    pub(super) fn removes_when_full(&self) -> bool {
        let conf = self.config.conf.as_ref();
        conf.is_some_and(|conf| conf.disk_full_action == Action::Rotate)
    }

    /// Runs `disk_full_action`. Returns whether it made room.
    pub(super) fn disk_full(&mut self) -> bool {
        let reported = std::mem::replace(&mut self.alarms.full, true);
        let Some(conf) = &self.config.conf else {
            return false;
        };
        let action = conf.disk_full_action.clone();
        if reported && action != Action::Rotate {
            return false;
        }
        let (path, free) = (self.config.path.display(), self.free_space());
        let text = format!("no space left for log `{path}`: {free}");
        match action {
            Action::Rotate => return self.remove_oldest(&text),
            Action::Ignore => self.alarm(&text),
            _ => self.run_action(&action, "disk_full_action", &text),
        }
        false
    }

    /// Runs the action for a failed operation. Returns whether there is room now that was missing.
    pub(super) fn disk_failed(&mut self, fault: Fault, error: &io::Error) -> bool {
        if error.kind() == io::ErrorKind::StorageFull {
            return self.disk_full();
        }
        let (path, name) = (self.config.path.display(), fault.name());
        let text = format!("cannot {name} log `{path}`: {error}");
        if std::mem::replace(self.alarms.of(fault), true) {
            return false;
        }
        match &self.config.conf {
            Some(conf) => {
                let action = conf.disk_error_action.clone();
                self.run_action(&action, "disk_error_action", &text);
            }
            // Lost events are reported elsewhere.
            None if fault == Fault::Flush => self.alarm(&text),
            None => {}
        }
        false
    }

    /// Runs `overflow_action` for full plugin queues.
    pub(super) fn overflow(&mut self, plugins: &str) {
        let Some(conf) = &self.config.conf else {
            return;
        };
        let text = format!("the queue of plugin {plugins} is full: it loses events");
        match conf.overflow_action {
            OverflowAction::Ignore => {}
            OverflowAction::Syslog => self.alarm(&text),
            OverflowAction::Suspend => {
                self.alarm(&format!(
                    "plugins are suspended: {text}; afterwards {RESUME}"
                ));
                self.dispatcher.suspend();
            }
            OverflowAction::Single => {
                self.alarm(&text);
                self.system.change_runlevel(Runlevel::Single);
            }
            OverflowAction::Halt => {
                self.alarm(&text);
                self.system.change_runlevel(Runlevel::Halt);
            }
        }
    }

    /// Runs the action of `setting`.
    fn run_action(&mut self, action: &Action, setting: &'static str, text: &str) {
        match action {
            Action::Ignore => {}
            Action::Syslog | Action::Email => self.alarm(text),
            Action::Rotate => {
                self.remove_oldest(text);
            }
            Action::Exec(program) => {
                self.alarm(&format!(
                    "{setting} suspends logging and runs `{program}`: {text}; afterwards {RESUME}"
                ));
                self.suspend(setting, text);
                self.system.run(program.as_ref());
            }
            Action::Suspend => {
                self.alarm(&suspended(setting, text));
                self.suspend(setting, text);
            }
            Action::Single => {
                self.alarm(text);
                self.system.change_runlevel(Runlevel::Single);
            }
            Action::Halt => {
                self.alarm(text);
                self.system.change_runlevel(Runlevel::Halt);
            }
        }
    }
}

/// The message that an action suspends the log.
fn suspended(setting: &str, text: &str) -> String {
    format!("{setting} suspends logging: {text}; make room, then {RESUME}")
}

fn free_bytes(free_space: &Statvfs) -> u64 {
    let block = free_space.fragment_size();
    free_space.blocks_available().saturating_mul(block)
}

fn is_below(free_space: &Statvfs, level: SpaceLimit) -> bool {
    let available = free_space.blocks_available();
    match level {
        SpaceLimit::Mebibytes(mebibytes) => {
            let block = free_space.fragment_size().max(1);
            available < mebibytes.saturating_mul((MEBIBYTE / block).max(1))
        }
        SpaceLimit::Percent(percent) => {
            u128::from(available) * 100 < u128::from(free_space.blocks()) * u128::from(percent)
        }
    }
}
