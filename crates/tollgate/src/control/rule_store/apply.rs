//! A state is put in force: all of it, or nothing.

use super::{DISABLED, ENABLED, PipelineControl, PlanSize, RuleStore, State, plan};
use crate::control::wire::Settings;

impl RuleStore {
    pub(super) fn put_in_force(
        &mut self,
        state: State,
        auditing: &mut dyn PipelineControl,
    ) -> anyhow::Result<()> {
        auditing.apply(&state.settings)?;
        let before = self.in_force;
        if let Err(error) = self.put_rules_in_force(&state, auditing) {
            // They were in force a moment ago.
            let _applied = auditing.apply(&self.state.settings);
            return Err(error);
        }
        if let Err(error) = self.keep_if_locked(&state, auditing) {
            return Err(self.take_back(state, before, auditing, error));
        }
        self.state = state;
        Ok(())
    }

    fn put_rules_in_force(
        &mut self,
        state: &State,
        auditing: &mut dyn PipelineControl,
    ) -> anyhow::Result<()> {
        if self.has_other_rules(state) {
            let plan = plan(state);
            let measure = PlanSize::of(&plan);
            auditing.replace(plan)?;
            self.in_force = measure;
        }
        Ok(())
    }

    /// Puts what was before in force again, because the new state could not be locked. Where that cannot be, the
    /// new state is in force, unlocked: what is listed is what is in force.
    fn take_back(
        &mut self,
        state: State,
        before: PlanSize,
        auditing: &mut dyn PipelineControl,
        error: anyhow::Error,
    ) -> anyhow::Error {
        let back = if self.has_other_rules(&state) {
            auditing.replace(plan(&self.state))
        } else {
            Ok(())
        };
        let error = match back {
            Ok(()) => {
                self.in_force = before;
                error
            }
            Err(why) => {
                let settings = Settings {
                    enabled: ENABLED,
                    ..state.settings
                };
                self.state = State { settings, ..state };
                error.context(format!(
                    "the change is in force without the lock, and cannot be taken back ({why:#})"
                ))
            }
        };
        // They were in force a moment ago.
        let _applied = auditing.apply(&self.state.settings);
        error
    }

    /// Whether another plan belongs to a state.
    fn has_other_rules(&self, state: &State) -> bool {
        let recording = state.settings.enabled != DISABLED;
        let other_rules = state.rules.rules() != self.state.rules.rules()
            || state.planner.denies() != self.state.planner.denies();
        recording != self.is_recording() || (recording && other_rules)
    }
}
