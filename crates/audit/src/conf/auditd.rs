//! `auditd.conf`: what an administrator has told `auditd`, and tollgate is to do.
//!
//! Every key that `auditd` knows is known here. A key has its effect, or is refused with a reason, or
//! is one that has no effect in `auditd` either; those are in [`Settings::ignored`]. What `auditd`
//! refuses is refused.
//!
//! # Source
//! `auditd.conf(5)`, and `src/auditd-config.c` of audit-userspace 4.2.1; 3.0.9 where it differs.

mod keys;
mod locked_keys;
mod value;

use core::time::Duration;

use bstr::BString;

use super::ConfigHost;
use super::assignment::{LinePosition, parse_assignments};
use crate::rule::{Diagnostic, Severity};

/// All settings; those that the text leaves out have the values that are compiled into `auditd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether a log is written at all.
    pub write_logs: bool,
    /// The log.
    pub log_file: BString,
    /// The group that may read it, 0 for none but root.
    pub log_group: u32,
    /// What its lines hold.
    pub log_format: LogFormat,
    /// When it must be on the disk.
    pub flush: Flush,
    /// Records between two flushes.
    pub freq: u32,
    /// Files of the log, old ones included; fewer than two are never rotated.
    pub num_logs: u32,
    /// # Units
    /// MiB.
    pub max_log_file: u64,
    /// What happens when the log has grown to that.
    pub max_log_file_action: MaxLogFileAction,
    /// How much nicer than other programs the daemon is to itself.
    pub priority_boost: u32,
    /// Name of this machine in the log.
    pub name_format: NameFormat,
    /// The name that `name_format = user` stands for.
    pub name: Option<BString>,
    /// Space on the disk below which the first action is due.
    pub space_left: SpaceLimit,
    /// The first action.
    pub space_left_action: Action,
    /// Space on the disk below which the second action is due.
    pub admin_space_left: SpaceLimit,
    /// The second action.
    pub admin_space_left_action: Action,
    /// What happens when the disk is full.
    pub disk_full_action: Action,
    /// What happens when writing fails.
    pub disk_error_action: Action,
    /// Who is written to.
    pub action_mail_acct: BString,
    /// Events that may wait for a plugin.
    pub q_depth: u32,
    /// What happens when more do.
    pub overflow_action: OverflowAction,
    /// How often a plugin that ends is started again.
    pub max_restarts: u32,
    /// Directory of the plugins' own configuration.
    pub plugin_dir: BString,
    /// Time between two state reports, zero for none.
    pub report_interval: Duration,
    /// Keys that were set and have no effect, in `auditd` neither.
    pub ignored: Vec<&'static str>,
}

/// What a line of the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The kernel's text.
    Raw,
    /// And the names that its numbers had.
    Enriched,
}

/// When what was written must be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// When the kernel likes.
    None,
    /// After each `freq` records, which those that follow wait for.
    Incremental,
    /// After each `freq` records, which nobody waits for.
    IncrementalAsync,
    /// With each write, what is in the file.
    Data,
    /// With each write, what is known about the file as well.
    Sync,
}

/// What happens when the log is large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaxLogFileAction {
    /// Nothing.
    Ignore,
    /// A message to syslog.
    Syslog,
    /// A program is run; nothing is written until it ends or USR2 comes.
    Exec(BString),
    /// Nothing is written any more.
    Suspend,
    /// The log is rotated.
    Rotate,
    /// The log is rotated, and nothing is ever removed.
    KeepLogs,
}

/// What happens when the disk is filling, full or broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Ignore,
    /// A message to syslog.
    Syslog,
    /// The log is rotated, which may remove the oldest file.
    Rotate,
    /// A mail, and a message to syslog.
    Email,
    /// A program is run; nothing is written until USR2 comes.
    Exec(BString),
    /// Nothing is written until USR2 comes.
    Suspend,
    /// The machine goes to single user mode.
    Single,
    /// The machine is shut down.
    Halt,
}

/// What happens when events come faster than a plugin takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowAction {
    /// Nothing.
    Ignore,
    /// A message to syslog.
    Syslog,
    /// Plugins get nothing until USR2 comes.
    Suspend,
    /// The machine goes to single user mode.
    Single,
    /// The machine is shut down.
    Halt,
}

/// Where the name of this machine comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFormat {
    /// Records have none.
    None,
    /// `gethostname(2)`.
    Hostname,
    /// An address of this machine.
    Numeric,
    /// The key `name`.
    User,
}

/// An amount of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceLimit {
    /// # Units
    /// MiB.
    Mebibytes(u64),
    /// Of the whole file system.
    Percent(u8),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            write_logs: true,
            log_file: "/var/log/audit/audit.log".into(),
            log_group: 0,
            log_format: LogFormat::Enriched,
            flush: Flush::None,
            freq: 0,
            num_logs: 0,
            max_log_file: 0,
            max_log_file_action: MaxLogFileAction::Ignore,
            priority_boost: 4,
            name_format: NameFormat::None,
            name: None,
            space_left: SpaceLimit::Mebibytes(0),
            space_left_action: Action::Ignore,
            admin_space_left: SpaceLimit::Mebibytes(0),
            admin_space_left_action: Action::Ignore,
            disk_full_action: Action::Ignore,
            disk_error_action: Action::Syslog,
            action_mail_acct: "root".into(),
            q_depth: 2000,
            overflow_action: OverflowAction::Syslog,
            max_restarts: 10,
            plugin_dir: "/etc/audit/plugins.d".into(),
            report_interval: Duration::ZERO,
            ignored: Vec::new(),
        }
    }
}

/// Reads the text of an `auditd.conf`. The settings count only if no finding is an error.
#[must_use]
pub fn parse(bytes: &[u8], host: &dyn ConfigHost) -> (Settings, Vec<Diagnostic>) {
    let (lines, mut findings) = parse_assignments(bytes);
    let mut builder = keys::SettingsBuilder::new(host);
    for line in &lines {
        findings.extend(builder.take(line));
    }
    let keys::SettingsBuilder {
        settings,
        key_positions,
        ..
    } = builder;
    if !bytes.is_empty() {
        check_conflicts(&settings, &key_positions, &mut findings);
    }
    findings.sort_by_key(|finding| (finding.line, finding.column));
    (settings, findings)
}

/// What is wrong with settings beside each other.
fn check_conflicts(
    settings: &Settings,
    key_positions: &keys::KeyPositions,
    findings: &mut Vec<Diagnostic>,
) {
    let mut wrong = |severity, keys: &[&'static str], message: String, advice: &str| {
        let known = keys.iter().find_map(|key| key_positions.get(key).cloned());
        let (position, span) = known.unwrap_or((LinePosition { line: 1, start: 0 }, 0..0));
        findings.push(position.finding(severity, "conflict", span, message, advice));
    };
    if let (SpaceLimit::Mebibytes(space), SpaceLimit::Mebibytes(admin)) =
        (settings.space_left, settings.admin_space_left)
        && space <= admin
    {
        wrong(
            Severity::Error,
            &["admin_space_left", "space_left"],
            format!("`space_left` ({space}) must be larger than `admin_space_left` ({admin})"),
            "auditd asks for it, also where neither is written: set both, such as 75 and 50",
        );
    }
    let incremental = matches!(settings.flush, Flush::Incremental | Flush::IncrementalAsync);
    if incremental && settings.freq == 0 {
        wrong(
            Severity::Error,
            &["freq", "flush"],
            "incremental flushing needs a `freq` of at least 1".to_owned(),
            "set `freq`, such as to 50",
        );
    }
    if matches!(settings.flush, Flush::Data | Flush::Sync) && settings.freq != 0 {
        wrong(
            Severity::Note,
            &["freq"],
            "`freq` has no effect: only incremental flushing counts records".to_owned(),
            "remove it, or choose incremental flushing",
        );
    }
    let in_var_log = settings
        .log_file
        .strip_prefix(b"/var/log/")
        .is_some_and(|rest| !rest.contains(&b'/'));
    if settings.log_group != 0 && in_var_log {
        wrong(
            Severity::Error,
            &["log_file", "log_group"],
            "`log_group` is the group of the log's directory as well, which would be `/var/log`"
                .to_owned(),
            "give the log a directory of its own",
        );
    }
    if settings.name_format == NameFormat::User && settings.name.is_none() {
        wrong(
            Severity::Error,
            &["name_format"],
            "`name_format = user` needs a `name`".to_owned(),
            "set `name`",
        );
    }
}

#[cfg(test)]
mod tests;
