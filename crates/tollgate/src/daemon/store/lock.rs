//! What `-e 2` does.

use super::{Auditing, IMMUTABLE, State, Store};
use crate::cli::report::say;
use crate::control::rule::RuleForm;
use crate::daemon::locked::Locked;
use crate::sink::journal::rotate::OldLogs;

impl Store {
    /// A daemon that comes after this one must neither forget nor change what is locked, and root's own tools
    /// are kept from it where that can be.
    pub(super) fn keep_if_locked(
        &self,
        state: &State,
        auditing: &mut dyn Auditing,
    ) -> anyhow::Result<()> {
        if state.settings.enabled != IMMUTABLE {
            return Ok(());
        }
        let note = self.lock.write(&Locked {
            settings: state.settings.clone(),
            rules: state.rules.listed().map(RuleForm::new).collect(),
        })?;
        let guard = match auditing.lock(note)? {
            Ok(()) => "root's own tools are kept from programs, maps, pins and the log".to_owned(),
            Err(why) => format!(
                "no LSM program keeps root's own tools from programs, maps, pins and the log: {why}"
            ),
        };
        say(&format!(
            "rules and settings are locked until the machine starts again; {guard}"
        ));
        Ok(())
    }

    /// What becomes of old logs when the daemon begins: what was locked before keeps them.
    pub(in crate::daemon) fn old_logs(&self) -> OldLogs {
        match self.lock.read() {
            Ok(None) => OldLogs::AsConfigured,
            Ok(Some(_)) | Err(_) => OldLogs::AllKept,
        }
    }

    /// Whether `-e 2` was given.
    pub(in crate::daemon) fn is_locked(&self) -> bool {
        self.state.settings.enabled == IMMUTABLE
    }
}
