//! Locking by `-e 2`.

use super::{IMMUTABLE, PipelineControl, RuleStore, State};
use crate::control::lock_file::LockedState;
use crate::control::protocol::AuditSettings;
use crate::control::rule_json::RuleJson;
use crate::json_bytes::JsonBytes;
use crate::messages::{info, warn};
use crate::sinks::audit_log::LockedLogSettings;
use crate::sinks::audit_log::rotate::OldLogPolicy;

impl RuleStore {
    /// Stores the state for the next daemon, which may not change it, and protects it from root's tools where the
    /// kernel can.
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
            Ok(open) => {
                for path in open {
                    warn(&format!(
                        "`{}` is open for writing in another process, which can still change it; \
                         run `tollgate auditctl --signal rotate` to start a new log",
                        path.display()
                    ));
                }
                "programs, maps, pins and the log are protected from root's tools".to_owned()
            }
            Err(why) => format!(
                "root's tools can still change programs, maps, pins and the log: no LSM program protects them: {why}"
            ),
        };
        info(&format!(
            "rules and settings are locked until the machine restarts; {guard}"
        ));
        Ok(())
    }

    /// Retention of old logs at the start of the daemon: a locked state keeps all.
    pub(crate) fn old_log_policy(&self) -> OldLogPolicy {
        match self.lock.read() {
            Ok(None) => OldLogPolicy::AsConfigured,
            Ok(Some(_)) | Err(_) => OldLogPolicy::AllKept,
        }
    }

    /// Removes the lock file after a failed lock.
    fn discard_lock(&self, error: anyhow::Error) -> anyhow::Error {
        match self.lock.remove() {
            Ok(()) => error,
            Err(stays) => error.context(format!("{stays:#}")),
        }
    }

    /// Whether `-e 2` is in force.
    pub(crate) fn is_locked(&self) -> bool {
        self.state.settings.enabled == IMMUTABLE
    }
}
