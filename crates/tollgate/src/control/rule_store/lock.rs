//! What `-e 2` does.

use super::{IMMUTABLE, PipelineControl, RuleStore, State};
use crate::control::lock_file::LockedState;
use crate::control::rule::RuleForm;
use crate::control::wire::Settings;
use crate::json_bytes::JsonBytes;
use crate::messages::info;
use crate::sinks::audit_log::LockedLogSettings;
use crate::sinks::audit_log::rotate::OldLogPolicy;

impl RuleStore {
    /// A daemon that comes after this one must neither forget nor change what is locked, and root's own tools
    /// are kept from it where that can be.
    pub(super) fn keep_if_locked(
        &self,
        state: &State,
        auditing: &mut dyn PipelineControl,
    ) -> anyhow::Result<()> {
        if state.settings.enabled != IMMUTABLE {
            return Ok(());
        }
        let log = auditing.lock_log()?;
        let locked = self.keep(state, log, auditing);
        if locked.is_err() {
            auditing.unlock_log();
        }
        locked
    }

    fn keep(
        &self,
        state: &State,
        log: LockedLogSettings,
        auditing: &mut dyn PipelineControl,
    ) -> anyhow::Result<()> {
        let denies = state.planner.denies().iter();
        let locked = LockedState {
            settings: Settings {
                pid: 0,
                lost: 0,
                backlog: 0,
                ..state.settings.clone()
            },
            means: self.means,
            deny: denies.map(|key| JsonBytes::new(key)).collect(),
            log: Some(log),
            rules: state.rules.listed().map(RuleForm::new).collect(),
        };
        let is_new = self.lock.read()?.is_none();
        let note = self.lock.write(&locked)?;
        let guard = match auditing.lock(note) {
            Ok(guard) => guard,
            Err(error) if is_new => return Err(self.not_locked(error)),
            Err(error) => return Err(error),
        };
        let guard = match guard {
            Ok(()) => "root's own tools are kept from programs, maps, pins and the log".to_owned(),
            Err(why) => format!(
                "no LSM program keeps root's own tools from programs, maps, pins and the log: {why}"
            ),
        };
        info(&format!(
            "rules and settings are locked until the machine starts again; {guard}"
        ));
        Ok(())
    }

    /// What becomes of old logs when the daemon begins: what was locked before keeps them.
    pub(crate) fn old_logs(&self) -> OldLogPolicy {
        match self.lock.read() {
            Ok(None) => OldLogPolicy::AsConfigured,
            Ok(Some(_)) | Err(_) => OldLogPolicy::AllKept,
        }
    }

    /// Has the next daemon find nothing locked either.
    fn not_locked(&self, error: anyhow::Error) -> anyhow::Error {
        match self.lock.take_away() {
            Ok(()) => error,
            Err(stays) => error.context(format!("{stays:#}")),
        }
    }

    /// Whether `-e 2` was given.
    pub(crate) fn is_locked(&self) -> bool {
        self.state.settings.enabled == IMMUTABLE
    }
}
