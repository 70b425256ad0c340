//! Applies other settings to the log, and locks them for `-e 2`.

use anyhow::{Context as _, bail};

use super::daemon_records::{DaemonRecord, SignalSender};
use super::disk_actions::Alarms;
use super::rotate::OldLogPolicy;
use super::{AuditLog, LogConfig, archiver, rotate};
use crate::messages::permission_hint;
use crate::sinks::log_file::Log;
use crate::sinks::log_file::log_directory::LogDirectory;

impl AuditLog {
    /// Applies the settings that SIGHUP read; returns whether they are active. The old ones stay active if the new log
    /// cannot be opened, or if a locked setting would change.
    pub(crate) fn configure(&mut self, config: Option<LogConfig>, sender: SignalSender) -> bool {
        let changed = config.is_some_and(|config| match self.apply_config(config) {
            Ok(()) => true,
            Err(error) => {
                let advice = permission_hint(&error);
                self.alarm(&format!(
                    "auditd.conf is not applied, the old settings stay in force: {error:#}{advice}"
                ));
                false
            }
        });
        self.write_daemon_record(&DaemonRecord::Configured(sender, changed));
        changed
    }

    /// Keeps all old logs and locks the settings of the log until reboot; returns the settings.
    pub(crate) fn lock(&mut self) -> LogConfig {
        self.old_log_policy = OldLogPolicy::AllKept;
        self.config.clone()
    }

    /// Undoes [`AuditLog::lock`].
    pub(crate) fn unlock(&mut self) {
        self.old_log_policy = OldLogPolicy::AsConfigured;
    }

    /// Retention of old logs when a signal rotates the log.
    pub(crate) const fn old_log_policy(&self) -> OldLogPolicy {
        self.old_log_policy
    }

    fn apply_config(&mut self, config: LogConfig) -> anyhow::Result<()> {
        if self.old_log_policy == OldLogPolicy::AllKept
            && let Some(key) = self.config.differs(&config)
        {
            bail!("`-e 2` locked `{key}` until the machine restarts");
        }
        let name = config.path.file_name();
        let name = name.context("the log path has no file name")?;
        let directory = LogDirectory::of(&config.path)?;
        let is_locked = self.lock.is_some() && config.writes() && config.path == self.config.path;
        let lock = if is_locked {
            None
        } else {
            Some(config.lock()?)
        };
        let old = (
            std::mem::replace(&mut self.name, name.into()),
            std::mem::replace(&mut self.directory, directory),
            std::mem::replace(&mut self.config, config),
        );
        if let Err(error) = self.reopen() {
            (self.name, self.directory, self.config) = old;
            return Err(error);
        }
        let (old_name, old_directory, old_config) = old;
        if old_config.path != self.config.path {
            // The archiver thread stops what it does for the old path. Its lock is still held.
            let places = [
                (&old_directory, &old_name, &old_config),
                (&self.directory, &self.name, &self.config),
            ];
            for (directory, name, config) in places {
                if config.writes() {
                    let _foreign = archiver::remove_unfinished(directory, name);
                }
            }
            self.archived_twice = rotate::archived_twice(&self.config.path);
        }
        if let Some(lock) = lock {
            self.change_lock(lock);
        }
        self.suspension = None;
        self.sync_failure = None;
        self.alarms = Alarms::default();
        self.remove_excess();
        self.set_group_of_old_logs();
        let log = self.archived_log();
        if let Some(archiver) = &self.archiver {
            archiver.rotated(log);
        }
        self.report_compress_without_effect();
        if let Some(conf) = &self.config.conf {
            self.dispatcher.configure(conf);
        }
        Ok(())
    }

    /// Opens the log with the current settings, or closes it if none is written.
    pub(super) fn reopen(&mut self) -> anyhow::Result<()> {
        if !self.config.writes() {
            drop(self.close());
            return Ok(());
        }
        let access = self.config.access();
        if let Some(group) = access.group {
            let granted = if self.config.is_named_by_option {
                self.directory.grant_group_if_own(&self.name, group)
            } else {
                self.directory.grant_group(group)
            };
            granted.with_context(|| {
                let log = self.config.path.display();
                format!("cannot give `log_group` access to the directory of `{log}`")
            })?;
        }
        let log = Log::open_in(&self.directory, &self.name, &access)?;
        let size = log
            .size()
            .with_context(|| format!("cannot inspect log `{}`", self.config.path.display()))?;
        drop(self.close());
        self.alarms.open = false;
        (self.log, self.size) = (Some(log), size);
        Ok(())
    }
}
