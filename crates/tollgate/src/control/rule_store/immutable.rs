//! What `-e 2` does.

use super::{IMMUTABLE, PipelineControl, RuleStore, State};
use crate::control::lock_file::LockedState;
use crate::control::protocol::AuditSettings;
use crate::control::rule_json::RuleJson;
use crate::json_bytes::JsonBytes;
use crate::messages::info;
use crate::sinks::audit_log::LockedLogSettings;
use crate::sinks::audit_log::rotate::OldLogPolicy;

impl RuleStore {
    /// A daemon that comes after this one must neither forget nor change what is locked, and root's own tools
    /// are kept from it where that can be.
    pub(super) fn lock_if_immutable(
        &self,
        state: &State,
        pipeline: &mut dyn PipelineControl,
    ) -> anyhow::Result<()> {
        if state.settings.enabled != IMMUTABLE {
            return Ok(());
        }
        let log = pipeline.lock_log()?;
        let locked = self.write_lock(state, log, pipeline);
        if locked.is_err() {
            pipeline.unlock_log();
        }
        locked
    }

    fn write_lock(
        &self,
        state: &State,
        log: LockedLogSettings,
        pipeline: &mut dyn PipelineControl,
    ) -> anyhow::Result<()> {
        let denies = state.planner.denies().iter();
        let locked = LockedState {
            settings: AuditSettings {
                pid: 0,
                lost: 0,
                backlog: 0,
                ..state.settings.clone()
            },
            capture: self.capture,
            deny: denies.map(|key| JsonBytes::new(key)).collect(),
            log: Some(log),
            rules: state.rules.listed().map(RuleJson::new).collect(),
        };
        let is_new = self.lock.read()?.is_none();
        let note = self.lock.write(&locked)?;
        let guard = match pipeline.lock(note) {
            Ok(guard) => guard,
            Err(error) if is_new => return Err(self.discard_lock(error)),
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
    pub(crate) fn old_log_policy(&self) -> OldLogPolicy {
        match self.lock.read() {
            Ok(None) => OldLogPolicy::AsConfigured,
            Ok(Some(_)) | Err(_) => OldLogPolicy::AllKept,
        }
    }

    /// Has the next daemon find nothing locked either.
    fn discard_lock(&self, error: anyhow::Error) -> anyhow::Error {
        match self.lock.remove() {
            Ok(()) => error,
            Err(stays) => error.context(format!("{stays:#}")),
        }
    }

    /// Whether `-e 2` was given.
    pub(crate) fn is_locked(&self) -> bool {
        self.state.settings.enabled == IMMUTABLE
    }
}
