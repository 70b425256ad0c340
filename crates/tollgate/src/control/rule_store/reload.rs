//! Rule files at the start of the daemon and at `SIGHUP`.

use anyhow::{anyhow, ensure};
use audit::ids::MsgType;
use audit::plan::rule_list::RuleList;
use audit::rule::{Command, Rule};
use nix::errno::Errno;

use super::{AuditSettings, ENABLED, PipelineControl, RuleStore};
use crate::control::change_records::{self, Requester};
use crate::control::protocol::{Refusal, Step};
use crate::host::Planner;

/// Default backlog wait time, and the maximum as a multiple of it.
///
/// # Source
/// `AUDIT_BACKLOG_WAIT_TIME` in `kernel/audit.c`, Linux 6.12.
const DEFAULT_WAIT_SECONDS: u32 = 60;
const MAX_WAIT_FACTOR: u32 = 10;

impl RuleStore {
    /// Replaces the rules and applies the settings of the rule files, atomically. The new planner is used from now
    /// on.
    ///
    /// # Errors
    /// The rules are locked, or the new state cannot be applied.
    pub(crate) fn load(
        &mut self,
        author: Requester,
        (rules, commands): (RuleList, &[Command]),
        planner: Planner,
        pipeline: &mut dyn PipelineControl,
    ) -> anyhow::Result<()> {
        ensure!(
            !self.is_locked(),
            "`-e 2` locked the rules: reboot to change them"
        );
        let mut change = self.begin_change(author);
        change.state.planner = planner;
        // `-e 2` locks the state of all files, whatever their order.
        let (enabled, others): (Vec<_>, Vec<_>) = commands
            .iter()
            .filter_map(Step::of)
            .partition(|step| matches!(step, Step::Enabled(_)));
        for step in others {
            // As at the start, a longer wait time is reduced to the maximum.
            let step = match step {
                Step::BacklogWaitTime(ticks) => {
                    Step::BacklogWaitTime(ticks.min(max_backlog_wait(self.tick_hz)))
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

    /// The rules, list by list, in evaluation order.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Rule> {
        self.state.rules.listed()
    }

    /// The settings that commands change, without the counters of one daemon.
    pub(crate) fn stored_settings(&self) -> AuditSettings {
        AuditSettings {
            pid: 0,
            lost: 0,
            backlog: 0,
            ..self.state.settings.clone()
        }
    }

    /// The settings with which a daemon would start with these rule files, whatever commands have changed since.
    pub(crate) fn settings_of_files(&self, commands: &[Command]) -> AuditSettings {
        AuditSettings {
            pid: 0,
            ..initial_settings(commands, self.tick_hz)
        }
    }

    /// Records that the rules of the rule files were not loaded.
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
    anyhow!(
        "a setting of the rule files is refused: {} {}",
        errno.desc(),
        refusal.reason
    )
}

/// The kernel's default settings, changed by the rule files.
pub(crate) fn initial_settings(commands: &[Command], tick_hz: u32) -> AuditSettings {
    let mut initial_settings = AuditSettings {
        enabled: ENABLED,
        failure: 1,
        pid: std::process::id(),
        backlog_limit: 64,
        backlog_wait_time: DEFAULT_WAIT_SECONDS.saturating_mul(tick_hz),
        ..AuditSettings::default()
    };
    for command in commands {
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

pub(super) const fn max_backlog_wait(tick_hz: u32) -> u32 {
    (MAX_WAIT_FACTOR * DEFAULT_WAIT_SECONDS).saturating_mul(tick_hz)
}
