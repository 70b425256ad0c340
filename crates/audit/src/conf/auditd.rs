//! Settings of `auditd.conf`.
//!
//! Every key of `auditd` is known. A key is applied, refused with a reason, or listed in [`Settings::ignored`] if it
//! has no effect. Values that `auditd` refuses are refused.
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

/// All settings. Missing keys have the defaults that are compiled into `auditd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether a log is written.
    pub write_logs: bool,
    /// Path of the log.
    pub log_file: BString,
    /// Group that may read the log; 0 for root only.
    pub log_group: u32,
    /// Format of the log's lines.
    pub log_format: LogFormat,
    /// When the log is synced to disk.
    pub flush: Flush,
    /// Number of records between two syncs.
    pub freq: u32,
    /// Number of log files, including rotated ones. A log with fewer than two is not rotated.
    pub num_logs: u32,
    /// # Units
    /// MiB.
    pub max_log_file: u64,
    /// Action when the log reaches `max_log_file`.
    pub max_log_file_action: MaxLogFileAction,
    /// Amount by which the daemon lowers its nice value.
    pub priority_boost: u32,
    /// Source of the node name in the log.
    pub name_format: NameFormat,
    /// Node name for `name_format = user`.
    pub name: Option<BString>,
    /// Free disk space below which `space_left_action` is taken.
    pub space_left: SpaceLimit,
    /// Action when free space is below `space_left`.
    pub space_left_action: Action,
    /// Free disk space below which `admin_space_left_action` is taken.
    pub admin_space_left: SpaceLimit,
    /// Action when free space is below `admin_space_left`.
    pub admin_space_left_action: Action,
    /// Action when the disk is full.
    pub disk_full_action: Action,
    /// Action when writing the log fails.
    pub disk_error_action: Action,
    /// Recipient of mails.
    pub action_mail_acct: BString,
    /// Maximum number of events in a plugin's queue.
    pub q_depth: u32,
    /// Action when a plugin's queue is full.
    pub overflow_action: OverflowAction,
    /// Maximum number of restarts of a plugin.
    pub max_restarts: u32,
    /// Directory of plugin configuration files.
    pub plugin_dir: BString,
    /// Interval of state reports; zero for none.
    pub report_interval: Duration,
    /// Keys in the file that have no effect.
    pub ignored: Vec<&'static str>,
}

/// Format of the log's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The kernel's text only.
    Raw,
    /// The kernel's text and the names of numeric ids.
    Enriched,
}

/// When written records are synced to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// At the kernel's discretion.
    None,
    /// After every `freq` records, synchronously.
    Incremental,
    /// After every `freq` records, asynchronously.
    IncrementalAsync,
    /// With every write: the file's data.
    Data,
    /// With every write: the file's data and metadata.
    Sync,
}

/// Action when the log reaches its maximum size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaxLogFileAction {
    /// Nothing.
    Ignore,
    /// A message to syslog.
    Syslog,
    /// Run a program; writing is suspended until it exits or USR2 arrives.
    Exec(BString),
    /// Stop writing.
    Suspend,
    /// Rotate the log.
    Rotate,
    /// Rotate the log and keep all old files.
    KeepLogs,
}

/// Action for low disk space, a full disk and disk errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Ignore,
    /// A message to syslog.
    Syslog,
    /// Rotate the log, which may remove the oldest file.
    Rotate,
    /// Send a mail and a message to syslog.
    Email,
    /// Run a program; writing is suspended until USR2 arrives.
    Exec(BString),
    /// Suspend writing until USR2 arrives.
    Suspend,
    /// The machine goes to single user mode.
    Single,
    /// The machine is shut down.
    Halt,
}

/// Action when a plugin's queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowAction {
    /// Nothing.
    Ignore,
    /// A message to syslog.
    Syslog,
    /// Suspend delivery to plugins until USR2 arrives.
    Suspend,
    /// The machine goes to single user mode.
    Single,
    /// The machine is shut down.
    Halt,
}

/// Source of the node name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFormat {
    /// No node name.
    None,
    /// `gethostname(2)`.
    Hostname,
    /// An IP address of this host.
    Numeric,
    /// The key `name`.
    User,
}

/// Amount of disk space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceLimit {
    /// # Units
    /// MiB.
    Mebibytes(u64),
    /// Percentage of the file system's size.
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

/// Parses an `auditd.conf`. The settings are valid only if no finding is an error.
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

/// Reports settings that conflict with each other.
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
            "auditd requires it even if neither is set: set both, such as 75 and 50",
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
            "remove it, or set `flush` to incremental",
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
            "`log_group` also becomes the group of the log's directory, which is `/var/log` here"
                .to_owned(),
            "put the log in a directory of its own",
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
