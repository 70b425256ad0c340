//! What rule files ask for: rules and settings to begin with, and those of a `SIGHUP`.

use anyhow::{anyhow, ensure};
use audit::ids::MsgType;
use audit::plan::rule_list::RuleList;
use audit::rule::Command;
use nix::errno::Errno;

use super::{
    AuditSettings, DEFAULT_WAIT_SECONDS, ENABLED, PipelineControl, RuleStore, max_backlog_wait,
};
use crate::control::change_records::{self, Requester};
use crate::control::protocol::{Refusal, Step};
use crate::host::Planner;

impl RuleStore {
    /// Puts the rules of the rule files in force in place of those that are, compiled in this way from now
    /// on, and the settings that the files name: all at once, or nothing.
    ///
    /// # Errors
    /// When nothing may be changed, or the new state cannot be put in force.
    pub(crate) fn load(
        &mut self,
        author: Requester,
        (rules, said): (RuleList, &[Command]),
        planner: Planner,
        pipeline: &mut dyn PipelineControl,
    ) -> anyhow::Result<()> {
        ensure!(
            !self.is_locked(),
            "rules cannot be changed before the machine starts again: `-e 2` was given"
        );
        let mut change = self.begin_change(author);
        change.state.planner = planner;
        // `-e 2` locks what stands before it: whatever the order of the files, that is all of them.
        let (enabled, others): (Vec<_>, Vec<_>) = said
            .iter()
            .filter_map(Step::of)
            .partition(|step| matches!(step, Step::Enabled(_)));
        for step in others {
            // As at the start: the longest time, where more is asked for.
            let step = match step {
                Step::BacklogWaitTime(ticks) => {
                    Step::BacklogWaitTime(ticks.min(self.max_backlog_wait))
                }
                step => step,
            };
            change
                .step(&step)
                .map_err(|refusal| setting_error(&refusal))?;
        }
        change.replace_rules(rules);
        if let Some(last) = enabled.last() {
            change
                .step(last)
                .map_err(|refusal| setting_error(&refusal))?;
        }
        self.commit(change, pipeline).map(drop)
    }

    /// Records that rules of the rule files were to be put in force, and were not.
    pub(crate) fn record_failed_load(
        &self,
        author: &Requester,
        pipeline: &mut dyn PipelineControl,
    ) {
        let body = if self.is_locked() {
            change_records::locked(author, "add_rule")
        } else {
            change_records::rules_not_added(author)
        };
        self.try_record(vec![(MsgType::CONFIG_CHANGE, body)], pipeline);
    }
}

fn setting_error(refusal: &Refusal) -> anyhow::Error {
    let errno = Errno::from_raw(refusal.errno);
    anyhow!("a setting is refused: {} {}", errno.desc(), refusal.reason)
}

/// The settings of a kernel that has just started, changed by what rule files say.
pub(crate) fn initial_settings(said: &[Command], tick_hz: u32) -> AuditSettings {
    let mut initial_settings = AuditSettings {
        enabled: ENABLED,
        failure: 1,
        pid: std::process::id(),
        backlog_limit: 64,
        backlog_wait_time: DEFAULT_WAIT_SECONDS.saturating_mul(tick_hz),
        ..AuditSettings::default()
    };
    for command in said {
        match *command {
            Command::Enabled(level) => initial_settings.enabled = level,
            Command::Failure(mode) => initial_settings.failure = mode,
            Command::Rate(rate) => initial_settings.rate_limit = rate,
            Command::Backlog(limit) => initial_settings.backlog_limit = limit,
            Command::BacklogWait(ticks) => {
                initial_settings.backlog_wait_time = ticks.min(max_backlog_wait(tick_hz));
            }
            _ => {}
        }
    }
    initial_settings
}
