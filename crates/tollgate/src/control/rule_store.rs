//! The active rules and settings, and the requests that change them.
//!
//! A change is made on a copy, compiled to a plan and applied; only then does the copy become the state. A refused
//! change leaves everything as it was.

mod apply;
mod change;
mod immutable;
mod plan_size;
mod refused_files;
mod reload;
mod reset;

use std::time::Instant;

use anyhow::Context as _;
use audit::ids::MsgType;
use audit::plan::Plan;
use audit::plan::rule_list::RuleList;
use netlink::LoginuidImmutable;
use nix::errno::Errno;

use crate::config::capture::CaptureOptions;
use crate::control::change_records::{self, Requester};
use crate::control::lock_file::{self, LockFile, LockedState};
use crate::control::protocol::{
    Answer, AuditSettings, Feature, Refusal, Request, Status, Step, StepOutcome,
};
use crate::control::rule_costs::RuleCosts;
use crate::control::rule_json::RuleJson;
use crate::control::server::Peer;
use crate::host::Planner;
use crate::json_bytes::JsonBytes;
use crate::messages::warn;
use crate::pipeline::loss_reporter::Limits;
use crate::pipeline::ring_commands::LockResult;
use crate::sinks::audit_log::LockedLogSettings;

/// Source of rules added over the socket; rules of files have the index of their file.
const SOCKET_SOURCE: usize = usize::MAX;
/// Longest text of a user message.
///
/// # Source
/// `AUDIT_MESSAGE_TEXT_MAX` in `include/uapi/linux/audit.h`, Linux 6.12.
const MESSAGE_LIMIT_BYTES: usize = 8560;
/// `-e 0`: nothing is recorded.
const DISABLED: u8 = 0;
/// `-e 1`.
const ENABLED: u8 = 1;
/// `-e 2`: nothing can be changed until reboot.
pub(crate) const IMMUTABLE: u8 = 2;

use change::Change;
use plan_size::{PlanSize, count};
use refused_files::RefusedAt;
pub(crate) use reload::initial_settings;
use reload::max_backlog_wait;

/// The number of loaded rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadedRules {
    /// The rules are active.
    InForce(usize),
    /// `-e 0` is in force: the rules are loaded but inactive.
    Disabled(usize),
}

/// The pipeline as the rule store uses it.
pub(crate) trait PipelineControl {
    /// Replaces the active plan.
    ///
    /// # Errors
    /// The new plan cannot be applied. The old plan stays active.
    fn replace_plan(&mut self, plan: Plan) -> anyhow::Result<()>;

    /// Applies settings.
    ///
    /// # Errors
    /// A setting cannot be honoured.
    fn apply_settings(&mut self, settings: &AuditSettings) -> anyhow::Result<()>;

    /// Locks the log's path and settings, and returns them.
    ///
    /// # Errors
    /// The log thread is too busy. The log is not locked.
    fn lock_log(&mut self) -> anyhow::Result<LockedLogSettings>;

    /// Undoes [`PipelineControl::lock_log`].
    fn unlock_log(&mut self);

    /// Locks the BPF objects and stores `note` for the next daemon.
    ///
    /// # Errors
    /// The note cannot be stored.
    fn lock(&mut self, note: Vec<u8>) -> anyhow::Result<LockResult>;

    /// Writes a one-line record into the event stream.
    ///
    /// # Errors
    /// The pipeline has ended.
    fn record(&mut self, kind: MsgType, body: Vec<u8>) -> anyhow::Result<()>;

    /// Waits until every event matched so far is in the log.
    ///
    /// # Errors
    /// The log is too slow, or the pipeline has ended.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// What the rules of a plan cost on the engine in use.
    fn rule_costs(&self, plan: &Plan) -> RuleCosts;

    /// Fills in engine, hooks, counters and backlog.
    ///
    /// # Errors
    /// The pipeline has ended or is too busy.
    fn fill_status(&mut self, status: &mut Status) -> anyhow::Result<()>;
}

/// Rules and settings.
#[derive(Clone, Debug)]
struct State {
    rules: RuleList,
    settings: AuditSettings,
    /// What rules are compiled for.
    planner: Planner,
}

/// The active state.
#[derive(Debug)]
pub(crate) struct RuleStore {
    state: State,
    plan_size: PlanSize,
    /// Costs of the rules in force, once they have been asked for.
    costs: Option<RuleCosts>,
    /// Capture options, constant while the daemon runs.
    capture: CaptureOptions,
    lock: LockFile,
    refused: Option<RefusedAt>,
    /// Number of rules added over the socket: each has a number instead of a line.
    last_number: u32,
    /// Ticks per second of the backlog wait time.
    tick_hz: u32,
    /// Lost events when the counter was last reset.
    lost_at_reset: u64,
    since: Instant,
}

impl RuleStore {
    /// Creates a store with rules that are already validated.
    pub(crate) fn new(
        rules: RuleList,
        settings: AuditSettings,
        planner: Planner,
        tick_hz: u32,
        (capture, lock): (CaptureOptions, LockFile),
    ) -> Self {
        Self {
            state: State {
                rules,
                settings,
                planner,
            },
            plan_size: PlanSize::default(),
            costs: None,
            capture,
            lock,
            refused: None,
            last_number: 0,
            tick_hz,
            lost_at_reset: 0,
            since: Instant::now(),
        }
    }

    /// Restores the state that `-e 2` locked.
    ///
    /// # Errors
    /// A stored rule or key is invalid.
    pub(crate) fn restore(
        locked: &LockedState,
        tick_hz: u32,
        lock: LockFile,
    ) -> anyhow::Result<Self> {
        let mut rules = RuleList::default();
        for (number, form) in (1..).zip(&locked.rules) {
            let rule = form.rule();
            let rule = rule.map_err(|why| lock_file::unreadable_rule(number, &why))?;
            rules.push(SOCKET_SOURCE, number, rule);
        }
        let settings = AuditSettings {
            pid: std::process::id(),
            ..locked.settings.clone()
        };
        let key = |text: &JsonBytes| {
            text.bytes()
                .context("`-e 2` locked an invalid key: restart the machine")
        };
        let deny: anyhow::Result<_> = locked.deny.iter().map(key).collect();
        let planner = Planner::for_this_machine(deny?);
        let mut store = Self::new(rules, settings, planner, tick_hz, (locked.capture, lock));
        store.last_number = u32::try_from(locked.rules.len()).unwrap_or(u32::MAX);
        Ok(store)
    }

    /// Applies `-r` and `-f`.
    ///
    /// # Errors
    /// As [`Limits::set`].
    pub(crate) fn limit(&self, limits: &Limits) -> anyhow::Result<()> {
        let settings = &self.state.settings;
        limits.set(settings.rate_limit, settings.failure)
    }

    /// Applies the initial settings, and locks them if they are immutable.
    ///
    /// # Errors
    /// They cannot be applied, or not be stored for the next daemon.
    pub(crate) fn begin(&mut self, pipeline: &mut dyn PipelineControl) -> anyhow::Result<()> {
        self.plan_size = PlanSize::of(&plan(&self.state));
        pipeline.apply_settings(&self.state.settings)?;
        self.lock_if_immutable(&self.state, pipeline)
    }

    /// What rules are compiled for.
    pub(crate) const fn planner(&self) -> &Planner {
        &self.state.planner
    }

    /// The active plan.
    pub(crate) fn plan(&self) -> Plan {
        plan(&self.state)
    }

    /// Handles a request.
    pub(crate) fn handle(
        &mut self,
        peer: Peer,
        request: Request,
        pipeline: &mut dyn PipelineControl,
    ) -> Answer {
        let author = || Requester::from_peer(peer);
        match request {
            Request::Rules => Answer::Rules(self.state.rules.listed().map(RuleJson::new).collect()),
            Request::Status => done(self.status(pipeline).map(Box::new).map(Answer::Status)),
            Request::RuleCosts => Answer::RuleCosts(Box::new(self.rule_costs(pipeline))),
            Request::Change {
                steps,
                forgive_from,
            } => {
                let first = forgive_from.unwrap_or(usize::MAX);
                self.change(author(), &steps, first, pipeline)
            }
            Request::Message(text) => self.message(&author(), &text, pipeline),
            Request::Equivalent { mount, subtree } => {
                let (Some(mount), Some(subtree)) = (mount.bytes(), subtree.bytes()) else {
                    return Answer::Refused(Refusal::errno(Errno::EINVAL));
                };
                let body = change_records::equivalent(&author(), &mount, &subtree);
                done(self.reapply(body, pipeline))
            }
            Request::Trim => done(self.reapply(change_records::trim(&author()), pipeline)),
            Request::ResetLost => done(self.reset_lost(&author(), pipeline)),
            Request::ResetBacklogWait => done(self.reset_backlog_wait(&author(), pipeline)),
            // The event loop has the files and the connections.
            Request::Reload | Request::Watch(_) => {
                Answer::Refused(Refusal::errno(Errno::EOPNOTSUPP))
            }
            Request::Flush => done(pipeline.flush().map(|()| Answer::Done)),
        }
    }

    /// Resolves watches again. The kernel's audit tags directories; here a watch is resolved by its path, and mounts
    /// below it belong to it anyway.
    fn reapply(
        &mut self,
        body: Vec<u8>,
        pipeline: &mut dyn PipelineControl,
    ) -> anyhow::Result<Answer> {
        if self.is_recording() {
            pipeline.replace_plan(plan(&self.state))?;
        }
        self.record(vec![(MsgType::CONFIG_CHANGE, body)], pipeline)?;
        Ok(Answer::Done)
    }

    /// Writes a user message in the kernel's form: the kernel knows the fields before the text.
    fn message(
        &self,
        author: &Requester,
        text: &JsonBytes,
        pipeline: &mut dyn PipelineControl,
    ) -> Answer {
        match text.bytes() {
            Some(text)
                if text.len() <= MESSAGE_LIMIT_BYTES
                    && text.iter().all(|byte| (b' '..=b'~').contains(byte)) =>
            {
                let record = (MsgType::USER, change_records::message(author, &text));
                let recorded = self.record(vec![record], pipeline);
                // Flush, so that a search finds the record at once.
                done(
                    recorded
                        .and_then(|()| pipeline.flush())
                        .map(|()| Answer::Done),
                )
            }
            _ => Answer::Refused(Refusal::with_reason(
                Errno::EINVAL,
                format!(
                    "a message must have at most {MESSAGE_LIMIT_BYTES} bytes, all printable ASCII"
                ),
            )),
        }
    }

    /// Costs of the rules in force. They are computed once: compiling many rules takes long.
    fn rule_costs(&mut self, pipeline: &dyn PipelineControl) -> RuleCosts {
        let state = &self.state;
        self.costs
            .get_or_insert_with(|| pipeline.rule_costs(&plan(state)))
            .clone()
    }

    fn status(&self, pipeline: &mut dyn PipelineControl) -> anyhow::Result<Status> {
        let mut status = Status {
            settings: self.state.settings.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.since.elapsed().as_secs(),
            rules: count(self.state.rules.rules().len()),
            calls: self.plan_size.calls,
            denying: self.plan_size.denying,
            refused: self.refused_files(),
            ..Status::default()
        };
        // Without the feature the kernel has no such line.
        let feature = LoginuidImmutable::query().ok().flatten();
        status.settings.loginuid_immutable = feature.map(|feature| Feature {
            on: feature.on,
            locked: feature.locked,
        });
        pipeline.fill_status(&mut status)?;
        let lost: u64 = status.counts.lost.values().sum();
        status.settings.lost = lost.saturating_sub(self.lost_at_reset);
        Ok(status)
    }

    /// Changes rules and settings atomically.
    fn change(
        &mut self,
        author: Requester,
        steps: &[Step],
        forgive_from: usize,
        pipeline: &mut dyn PipelineControl,
    ) -> Answer {
        let mut change = self.begin_change(author);
        if let Ok(status) = self.status(pipeline) {
            change.state.settings = status.settings;
        }
        for (number, step) in steps.iter().enumerate() {
            let outcome = change.step(step).unwrap_or_else(StepOutcome::Refused);
            let ends = number < forgive_from && matches!(outcome, StepOutcome::Refused(_));
            change.outcomes.push(outcome);
            if ends {
                return self.refused(change, pipeline);
            }
        }
        if let Some(first) = change.reject_unsupported_rules()
            && first < forgive_from
        {
            change.outcomes.truncate(first + 1);
            return self.refused(change, pipeline);
        }
        match self.commit(change, pipeline) {
            Ok(outcomes) => Answer::Changed(outcomes),
            Err(error) => Answer::Refused(Refusal::with_reason(Errno::EIO, format!("{error:#}"))),
        }
    }

    /// Starts a change with a copy of the state.
    fn begin_change(&self, author: Requester) -> Change {
        Change {
            state: self.state.clone(),
            author,
            max_backlog_wait: max_backlog_wait(self.tick_hz),
            last_number: self.last_number,
            outcomes: Vec::new(),
            records: Vec::new(),
            added: Vec::new(),
        }
    }

    /// Applies a change and records it.
    ///
    /// # Errors
    /// The change cannot be applied.
    fn commit(
        &mut self,
        change: Change,
        pipeline: &mut dyn PipelineControl,
    ) -> anyhow::Result<Vec<StepOutcome>> {
        let Change {
            state,
            outcomes,
            records,
            last_number,
            ..
        } = change;
        // Disabling is recorded last, enabling first.
        let was_recording = self.is_recording();
        if was_recording && state.settings.enabled == DISABLED {
            self.try_record(records.clone(), pipeline);
        }
        self.apply_state(state, pipeline)?;
        self.last_number = last_number;
        self.try_record(records, pipeline);
        Ok(outcomes)
    }

    /// Leaves the state as it is, and records the attempt.
    fn refused(&mut self, change: Change, pipeline: &mut dyn PipelineControl) -> Answer {
        let Change {
            outcomes,
            mut records,
            ..
        } = change;
        // Steps before the refused one had no effect.
        let setting_attempt = records.pop().into_iter().collect();
        self.try_record(setting_attempt, pipeline);
        Answer::Changed(outcomes)
    }

    /// Writes records of finished changes, and warns about records that cannot be written. Does not wait for a slow
    /// log again.
    fn try_record(&self, records: Vec<(MsgType, Vec<u8>)>, pipeline: &mut dyn PipelineControl) {
        let mut refused = None;
        for (kind, body) in records {
            let text = String::from_utf8_lossy(&body).into_owned();
            if refused.is_none() {
                refused = self.record(vec![(kind, body)], pipeline).err();
            }
            if let Some(error) = &refused {
                warn(&format!(
                    "cannot write the record `{text}` to the log: {error:#}"
                ));
            }
        }
    }

    /// Number of loaded rules, and whether they are active.
    pub(crate) fn loaded(&self) -> LoadedRules {
        let rules = self.state.rules.rules().len();
        if self.is_recording() {
            LoadedRules::InForce(rules)
        } else {
            LoadedRules::Disabled(rules)
        }
    }

    /// False if `-e 0` is in force.
    pub(crate) fn is_recording(&self) -> bool {
        self.state.settings.enabled != DISABLED
    }

    fn record(
        &self,
        records: Vec<(MsgType, Vec<u8>)>,
        pipeline: &mut dyn PipelineControl,
    ) -> anyhow::Result<()> {
        if self.is_recording() {
            for (kind, body) in records {
                pipeline.record(kind, body)?;
            }
        }
        Ok(())
    }
}

/// Compiles the plan of a state; empty if nothing is recorded.
fn plan(state: &State) -> Plan {
    if state.settings.enabled == DISABLED {
        return Plan::default();
    }
    compiled(state)
}

fn compiled(state: &State) -> Plan {
    state.planner.plan(state.rules.clone().into_rules())
}

/// Converts an error to a refusal with `EIO`.
fn done(answer: anyhow::Result<Answer>) -> Answer {
    answer.unwrap_or_else(|error| {
        Answer::Refused(Refusal::with_reason(Errno::EAGAIN, format!("{error:#}")))
    })
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
