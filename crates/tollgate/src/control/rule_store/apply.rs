//! Applies a state: completely or not at all.

use super::{DISABLED, ENABLED, PipelineControl, PlanSize, RuleStore, State, plan};
use crate::control::protocol::AuditSettings;

impl RuleStore {
    pub(super) fn apply_state(
        &mut self,
        state: State,
        pipeline: &mut dyn PipelineControl,
    ) -> anyhow::Result<()> {
        self.costs = None;
        let before = self.plan_size;
        let applied = pipeline.apply_settings(&state.settings);
        if let Err(error) = applied.and_then(|()| self.apply_plan(&state, pipeline)) {
            // These settings were active before, so applying them cannot fail.
            let _applied = pipeline.apply_settings(&self.state.settings);
            return Err(error);
        }
        if let Err(error) = self.lock_if_immutable(&state, pipeline) {
            return Err(self.roll_back(state, before, pipeline, error));
        }
        self.state = state;
        Ok(())
    }

    fn apply_plan(
        &mut self,
        state: &State,
        pipeline: &mut dyn PipelineControl,
    ) -> anyhow::Result<()> {
        if self.needs_new_plan(state) {
            let plan = plan(state);
            let measure = PlanSize::of(&plan);
            pipeline.replace_plan(plan)?;
            self.plan_size = measure;
        }
        Ok(())
    }

    /// Restores the previous plan because the new state could not be locked. If that fails, the new state stays
    /// active, unlocked, and is listed as such.
    fn roll_back(
        &mut self,
        state: State,
        before: PlanSize,
        pipeline: &mut dyn PipelineControl,
        error: anyhow::Error,
    ) -> anyhow::Error {
        let back = if self.needs_new_plan(&state) {
            pipeline.replace_plan(plan(&self.state))
        } else {
            Ok(())
        };
        let error = match back {
            Ok(()) => {
                self.plan_size = before;
                error
            }
            Err(why) => {
                let settings = AuditSettings {
                    enabled: ENABLED,
                    ..state.settings
                };
                self.state = State { settings, ..state };
                error.context(format!(
                    "the change is active but not locked, and cannot be undone ({why:#}): repeat `auditctl -e 2`"
                ))
            }
        };
        // These settings were active before, so applying them cannot fail.
        let _applied = pipeline.apply_settings(&self.state.settings);
        error
    }

    /// Whether the state needs another plan.
    fn needs_new_plan(&self, state: &State) -> bool {
        let recording = state.settings.enabled != DISABLED;
        let other_rules = state.rules.rules() != self.state.rules.rules()
            || state.planner.denies() != self.state.planner.denies();
        recording != self.is_recording() || (recording && other_rules)
    }
}
