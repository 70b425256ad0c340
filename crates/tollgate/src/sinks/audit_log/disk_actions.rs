//! What is done about a log that is large, and a disk that fills, is full or fails.
//!
//! Each action happens once until what it warns of is over, but for rotation, which may be what ends
//! it.
//!
//! # Source
//! `check_log_file_size`, `check_space_left` and `do_*_action` in `src/auditd-event.c`,
//! audit-userspace 4.2.1. `auditd` stops after it has asked for another runlevel; the daemon here
//! writes on until init stops it.

use std::io;

use audit::conf::auditd::{Action, MaxLogFileAction, OverflowAction, SpaceLimit};
use nix::errno::Errno;
use nix::sys::statvfs::Statvfs;

use super::rotate::OldLogPolicy;
use super::state_report::space;
use super::system::SyslogSeverity;
use super::{AuditLog, rotate};
use crate::helper::Runlevel;

/// Blocks that are never used up.
const LAST_BLOCKS: u64 = 5;
const MEBIBYTE: u64 = 1 << 20;

/// What resumes a suspended log.
const RESUME: &str = "run `tollgate auditctl --signal resume`";

/// What was warned of and is not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Alarms {
    size: bool,
    pub(super) space: bool,
    pub(super) admin: bool,
    pub(super) full: bool,
    /// What the disk has failed to do, each until it does it again.
    write: bool,
    flush: bool,
    rotate: bool,
    pub(super) open: bool,
}

/// What the disk may fail to do.
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
            Self::Flush => "fsync",
            Self::Rotate => "rotate",
            Self::Open => "open",
        }
    }
}

impl Alarms {
    /// Whether the disk fails to do something.
    pub(super) const fn error(&self) -> bool {
        self.write || self.flush || self.rotate || self.open
    }

    /// Whether it has failed to do this.
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

    /// Goes on writing, and warns anew.
    pub(super) fn resume(&mut self) {
        self.suspension = None;
        self.until_ended = None;
        self.alarms = Alarms::default();
        if self.log.is_none() {
            self.reopen_after_failure("resume logging");
        }
    }

    /// Opens the log; nothing is written when that fails, and what is due then is done.
    fn reopen_after_failure(&mut self, purpose: &str) {
        let Err(error) = self.reopen() else {
            return;
        };
        let text = format!("cannot {purpose}: {error:#}");
        self.alarm(&text);
        self.set_suspended("open", &text);
        self.disk_failed(Fault::Open, &cause(&error));
    }

    /// Removes old logs beyond `num_logs`, unless all are kept.
    pub(super) fn remove_excess(&mut self) {
        let Some(conf) = &self.config.conf else {
            return;
        };
        let all_kept = self.old_log_policy == OldLogPolicy::AllKept;
        if all_kept || conf.max_log_file_action != MaxLogFileAction::Rotate || conf.num_logs < 2 {
            return;
        }
        match rotate::remove_excess(&self.directory, &self.name, conf.num_logs) {
            Ok(0) => {}
            Ok(removed) => {
                let text = format!("removed {removed} logs beyond num_logs");
                self.system.syslog(SyslogSeverity::Notice, &text);
            }
            Err(error) => self.alarm(&format!("cannot remove logs beyond num_logs: {error}")),
        }
    }

    /// Has old logs be of the group that the log is of.
    pub(super) fn permit_old_logs(&mut self) {
        if let Some(group) = self.config.access().group
            && self.config.writes()
            && let Err(error) = rotate::permit(&self.directory, &self.name, group)
        {
            self.alarm(&format!("cannot give old logs to log_group: {error}"));
        }
    }

    /// Starts a new log, and keeps as many old ones as configured, or all.
    pub(super) fn rotate(&mut self, old_log_policy: OldLogPolicy) {
        let Some(conf) = &self.config.conf else {
            return;
        };
        let keeps_all = conf.max_log_file_action == MaxLogFileAction::KeepLogs;
        if !keeps_all && conf.num_logs < 2 {
            let text = "the log is not rotated: num_logs is less than 2";
            return self.system.syslog(SyslogSeverity::Notice, text);
        }
        let (group, num_logs) = (conf.log_group, conf.num_logs);
        let disk_full_action = conf.disk_full_action.clone();
        let rotated = if keeps_all || old_log_policy == OldLogPolicy::AllKept {
            rotate::shift(&self.directory, &self.name)
        } else {
            rotate::rotate(&self.directory, &self.name, num_logs)
        };
        match rotated {
            // Only now: what keeps its name is still to be written, also by the daemon after this one.
            Ok(()) => {
                self.alarms.rotate = false;
                if let Some(Err(error)) = self.close().map(|log| log.close(group)) {
                    self.alarm(&format!("cannot close the old log to writers: {error}"));
                }
            }
            Err(error) => {
                if !self.alarms.rotate {
                    self.alarm(&format!("cannot rotate the log: {error}"));
                }
                // To rotate is no help then.
                let in_vain = error.kind() == io::ErrorKind::StorageFull
                    && disk_full_action == Action::Rotate;
                if !in_vain {
                    self.disk_failed(Fault::Rotate, &error);
                }
                self.alarms.rotate = true;
            }
        }
        if self.is_suspended() || self.log.is_some() {
            return;
        }
        self.reopen_after_failure("open a log after rotating");
    }

    /// Does what is due when the log has grown.
    pub(super) fn check_size(&mut self) {
        let Some(conf) = &self.config.conf else {
            return;
        };
        if self.size / MEBIBYTE < conf.max_log_file {
            self.alarms.size = false;
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
        let most = self.config.conf.as_ref().map_or(0, |conf| conf.max_log_file);
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

    /// Does what is due when the disk fills.
    pub(super) fn check_free_space(&mut self) {
        let (Some(conf), Some(log)) = (&self.config.conf, &self.log) else {
            return;
        };
        // That it cannot be asked is no reason to act: a write will tell.
        let Ok(free_space) = log.free_space() else {
            return;
        };
        if free_space.blocks_available() < LAST_BLOCKS {
            return self.full();
        }
        self.alarms.full = false;
        let levels = [
            (conf.space_left, conf.space_left_action.clone()),
            (conf.admin_space_left, conf.admin_space_left_action.clone()),
        ];
        for (admin, (level, action)) in [false, true].into_iter().zip(levels) {
            let warned = if admin {
                self.alarms.admin
            } else {
                self.alarms.space
            };
            let low = is_below(&free_space, level);
            if low && !warned {
                self.warn(admin, action != Action::Rotate);
                self.low(&action, admin);
            } else if !low && action == Action::Syslog {
                self.warn(admin, false);
            }
        }
    }

    fn warn(&mut self, admin: bool, warned: bool) {
        if admin {
            self.alarms.admin = warned;
        } else {
            self.alarms.space = warned;
        }
    }

    fn low(&mut self, action: &Action, admin: bool) {
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
        self.act(action, setting, &text);
    }

    /// Does what is due when the disk is full.
    fn full(&mut self) {
        let told = std::mem::replace(&mut self.alarms.full, true);
        let Some(conf) = &self.config.conf else {
            return;
        };
        let action = conf.disk_full_action.clone();
        // There is room when the oldest log goes, which takes as many rotations as there may be logs.
        if told && action != Action::Rotate {
            return;
        }
        let (path, free) = (self.config.path.display(), self.free_space());
        let text = format!("no space left for log `{path}`: {free}");
        if action == Action::Ignore {
            self.alarm(&text);
        }
        self.act(&action, "disk_full_action", &text);
    }

    /// Does what is due when the disk does not do what it is asked.
    pub(super) fn disk_failed(&mut self, fault: Fault, error: &io::Error) {
        if error.kind() == io::ErrorKind::StorageFull {
            return self.full();
        }
        let (path, name) = (self.config.path.display(), fault.name());
        let text = format!("{name}: the disk fails log `{path}`: {error}");
        let told = std::mem::replace(self.alarms.of(fault), true);
        if told {
            return;
        }
        match &self.config.conf {
            Some(conf) => {
                let action = conf.disk_error_action.clone();
                self.act(&action, "disk_error_action", &text);
            }
            // What was not written is told by who counts it.
            None if fault == Fault::Flush => self.alarm(&text),
            None => {}
        }
    }

    /// Does what is due when plugins are slower than events come.
    pub(super) fn overflow(&mut self, plugins: &str) {
        let Some(conf) = &self.config.conf else {
            return;
        };
        let text = format!("the queue of plugin {plugins} is full: events are lost to it");
        match conf.overflow_action {
            OverflowAction::Ignore => {}
            OverflowAction::Syslog => self.alarm(&text),
            OverflowAction::Suspend => {
                self.alarm(&format!("plugins get nothing until USR2: {text}"));
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

    /// Does what `setting` asks for.
    fn act(&mut self, action: &Action, setting: &'static str, text: &str) {
        match action {
            Action::Ignore => {}
            Action::Syslog | Action::Email => self.alarm(text),
            Action::Rotate => {
                if self
                    .config
                    .conf
                    .as_ref()
                    .is_some_and(|conf| conf.num_logs > 1)
                {
                    self.rotate(OldLogPolicy::AsConfigured);
                }
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

/// What the kernel has answered, or what else was wrong.
fn cause(error: &anyhow::Error) -> io::Error {
    let answered = error.chain().find_map(|cause| {
        let errno = cause.downcast_ref::<Errno>().map(|errno| *errno as i32);
        errno.or_else(|| cause.downcast_ref::<io::Error>()?.raw_os_error())
    });
    answered.map_or_else(
        || io::Error::other(error.to_string()),
        io::Error::from_raw_os_error,
    )
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
