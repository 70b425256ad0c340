//! Settings of `tollgate.toml` about the log.

use audit::conf::auditd::{MaxLogFileAction, Settings};

/// What is made of the log for those who search it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogOptions {
    /// Index the log as it grows.
    pub(crate) index: bool,
    /// Turn old logs into archives.
    pub(crate) compress: bool,
}

impl LogOptions {
    /// What the settings of `auditd.conf` leave without effect.
    pub(crate) fn without_effect(self, conf: &Settings) -> Option<String> {
        let keeps_all = conf.max_log_file_action == MaxLogFileAction::KeepLogs;
        if !self.compress || keeps_all {
            return None;
        }
        if conf.num_logs < 2 {
            return Some(format!(
                "`compress = true` has no effect: num_logs is {} in auditd.conf, so no old log is kept",
                conf.num_logs
            ));
        }
        (conf.max_log_file_action != MaxLogFileAction::Rotate).then(|| {
            "`compress = true` has an effect only after `tollgate auditctl --signal rotate`: max_log_file_action is \
             not ROTATE in auditd.conf"
                .to_owned()
        })
    }
}
