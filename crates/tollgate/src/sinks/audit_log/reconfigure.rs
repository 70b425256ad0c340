//! How the log is kept from now on: other settings, and what `-e 2` has locked.

use anyhow::{Context as _, bail};

use super::daemon_records::{DaemonRecord, SignalSender};
use super::disk_actions::Alarms;
use super::rotate::OldLogPolicy;
use super::{AuditLog, LogConfig};
use crate::messages::permission_hint;
use crate::sinks::log_file::log_directory::LogDirectory;
use crate::sinks::log_file::{Log, LogAccess};

impl AuditLog {
    /// Takes on other settings, as HUP asks, and says whether it has: the old ones stay if the new log cannot be
    /// opened, or if what is locked would change.
    pub(crate) fn configure(&mut self, config: Option<LogConfig>, sender: SignalSender) -> bool {
        let changed = config.is_some_and(|config| match self.take_on(config) {
            Ok(()) => true,
            Err(error) => {
                let advice = permission_hint(&error);
                self.alarm(&format!(
                    "the old configuration stays in force: {error:#}{advice}"
                ));
                false
            }
        });
        self.write_daemon_record(&DaemonRecord::Configured(sender, changed));
        changed
    }

    /// Keeps old logs, and all settings that say what becomes of them, until the machine starts again; says
    /// how the log is kept.
    pub(crate) fn lock(&mut self) -> LogConfig {
        self.old_log_policy = OldLogPolicy::AllKept;
        self.config.clone()
    }

    /// What was to be locked is not.
    pub(crate) fn unlock(&mut self) {
        self.old_log_policy = OldLogPolicy::AsConfigured;
    }

    /// What becomes of old logs when somebody asks.
    pub(crate) const fn old_log_policy(&self) -> OldLogPolicy {
        self.old_log_policy
    }

    fn take_on(&mut self, config: LogConfig) -> anyhow::Result<()> {
        if self.old_log_policy == OldLogPolicy::AllKept
            && let Some(key) = self.config.differs(&config)
        {
            bail!("`-e 2` was given, and `{key}` stays as it is until the machine starts again");
        }
        let name = config.path.file_name().context("the log must be a file")?;
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
        if let Some(lock) = lock {
            self.lock = lock;
        }
        self.suspension = None;
        self.alarms = Alarms::default();
        self.remove_excess();
        self.permit_old_logs();
        if let Some(conf) = &self.config.conf {
            self.dispatcher.configure(conf);
        }
        Ok(())
    }

    /// Opens the log as it is kept.
    pub(super) fn reopen(&mut self) -> anyhow::Result<()> {
        if !self.config.writes() {
            drop(self.close());
            return Ok(());
        }
        let access = self.config.access();
        if let LogAccess {
            group: Some(group), ..
        } = access
        {
            self.directory
                .admit(group)
                .context("cannot let the group of the log into its directory")?;
        }
        let log = Log::open_in(&self.directory, &self.name, &access)?;
        let size = log.size().context("cannot look at the log")?;
        drop(self.close());
        self.alarms.open = false;
        (self.log, self.size) = (Some(log), size);
        Ok(())
    }
}
