//! The state report: lines that monitoring scripts read, as `auditd` writes them at SIGCONT.
//!
//! # Source
//! `cont_handler` in `src/auditd.c` and `write_logging_state` in `src/auditd-event.c`,
//! audit-userspace 4.2.1. The wording is auditd's.

use std::fmt::Write as _;

use super::{AuditLog, MEBIBYTE};

impl AuditLog {
    /// The log's part of the report.
    pub(crate) fn report(&self) -> String {
        let mut text = format!("audit version = {}\n", env!("CARGO_PKG_VERSION"));
        let yes_no = |is: bool| if is { "yes" } else { "no" };
        let mut put = |name: &str, value: &dyn std::fmt::Display| {
            // Writing to a string cannot fail.
            let _ok = writeln!(text, "{name} = {value}");
        };
        put("writing to logs", &yes_no(self.config.writes()));
        let Some(conf) = &self.config.conf else {
            return text;
        };
        if self.config.writes() {
            put(
                "current log size",
                &format_args!("{} KiB", self.size / 1024),
            );
            let most = conf.max_log_file.saturating_mul(1024);
            put("max log size", &format_args!("{most} KiB"));
            if let Some(free_space) = self.log.as_ref().and_then(|log| log.free_space().ok()) {
                let free = free_space
                    .blocks_available()
                    .saturating_mul(free_space.fragment_size())
                    / MEBIBYTE;
                let left = yes_no(!self.alarms.full);
                put("space left on partition", &left);
                put("Logging partition free space", &format_args!("{free} MiB"));
            }
            put("space_left setting", &space(conf.space_left));
            put("admin_space_left setting", &space(conf.admin_space_left));
            put("logging suspended", &yes_no(self.is_suspended()));
            let performed = yes_no(self.alarms.space);
            put("file system space action performed", &performed);
            put("admin space action performed", &yes_no(self.alarms.admin));
            put("disk error detected", &yes_no(self.alarms.disk_error()));
        }
        text.push_str("listening for network connections = no\n");
        text.push_str(&self.dispatcher.report(conf.q_depth));
        text
    }
}

/// A limit of the free space as auditd writes it.
pub(super) fn space(level: audit::conf::auditd::SpaceLimit) -> String {
    match level {
        audit::conf::auditd::SpaceLimit::Mebibytes(mebibytes) => format!("{mebibytes} MiB"),
        audit::conf::auditd::SpaceLimit::Percent(percent) => format!("{percent} %"),
    }
}
