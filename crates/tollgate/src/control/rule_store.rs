//! The rules and settings that are in force, and the requests that change them.
//!
//! A change is made on a copy, compiled into a plan and put in force at once; the copy becomes the state
//! only then. What is refused on the way leaves everything as it was.

mod apply;
mod change;
mod immutable;
mod plan_size;
mod reload;

use std::time::Instant;

use anyhow::Context as _;
use audit::ids::MsgType;
use audit::plan::Plan;
use audit::plan::rule_list::RuleList;
use netlink::LoginuidImmutable;
use nix::errno::Errno;

use crate::config::capture::CaptureOptions;
use crate::control::change_records::{self, Requester};
use crate::control::lock_file::{LockFile, LockedState};
use crate::control::protocol::{
    Answer, AuditSettings, Feature, Refusal, Request, Status, Step, StepOutcome,
};
use crate::control::rule_json::RuleJson;
use crate::control::server::Peer;
use crate::host::Planner;
use crate::json_bytes::JsonBytes;
use crate::messages::warn;
use crate::pipeline::loss_reporter::Limits;
use crate::pipeline::ring_commands::LockResult;
use crate::sinks::audit_log::LockedLogSettings;

/// Source of rules that came over the socket, where others have the index of their file.
const SOCKET_SOURCE: usize = usize::MAX;
/// Longest text of a user's message.
///
/// # Source
/// `AUDIT_MESSAGE_TEXT_MAX` in `include/uapi/linux/audit.h`, Linux 6.12.
const MESSAGE_LIMIT_BYTES: usize = 8560;
/// How long the kernel waits unless told otherwise, and how many times as long it can be told to.
///
/// # Source
/// `AUDIT_BACKLOG_WAIT_TIME` in `kernel/audit.c`, Linux 6.12.
const DEFAULT_WAIT_SECONDS: u32 = 60;
const MAX_WAIT_SECONDS: u32 = 10;

/// `-e 0`: nothing is recorded.
const DISABLED: u8 = 0;
/// `-e 1`.
const ENABLED: u8 = 1;
/// `-e 2`: nothing can be changed until the machine starts again.
const IMMUTABLE: u8 = 2;

use change::Change;
use plan_size::{PlanSize, count};
pub(crate) use reload::initial_settings;

/// The rules that are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadedRules {
    /// So many are gone by.
    InForce(usize),
    /// So many wait for the end of `-e 0`.
    Disabled(usize),
}

/// What audits, as the store sees it.
pub(crate) trait PipelineControl {
    /// Has events chosen by another plan from now on.
    ///
    /// # Errors
    /// Why the old plan is still in force.
    fn replace_plan(&mut self, plan: Plan) -> anyhow::Result<()>;

    /// Goes by these settings from now on.
    ///
    /// # Errors
    /// When one of them cannot be honoured.
    fn apply_settings(&mut self, settings: &AuditSettings) -> anyhow::Result<()>;

    /// Has the log stay where it is, and kept as it is; says what is held of it.
    ///
    /// # Errors
    /// When its thread is too busy to say: it is not held then.
    fn lock_log(&mut self) -> anyhow::Result<LockedLogSettings>;

    /// What was to be locked is not.
    fn unlock_log(&mut self);

    /// Locks what audits; `note` is for daemons that come after this one.
    ///
    /// # Errors
    /// When it cannot be noted.
    fn lock(&mut self, note: Vec<u8>) -> anyhow::Result<LockResult>;

    /// Writes a record of one line, in the stream of events.
    ///
    /// # Errors
    /// When auditing has ended.
    fn record(&mut self, kind: MsgType, body: Vec<u8>) -> anyhow::Result<()>;

    /// Returns when every event matched so far is in the log.
    ///
    /// # Errors
    /// When the log is too slow, or auditing has ended.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// Fills in what it knows: engine, hooks, counts, and what waits to be written.
    ///
    /// # Errors
    /// When auditing has ended, or is too busy to say.
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

/// The state in force.
#[derive(Debug)]
pub(crate) struct RuleStore {
    state: State,
    plan_size: PlanSize,
    /// How calls are seen, for as long as this daemon lives.
    capture: CaptureOptions,
    lock: LockFile,
    /// Rules that came over the socket so far: each has a number, in place of a line.
    last_number: u32,
    /// Longest time to wait that is taken.
    max_backlog_wait: u32,
    /// Losses when the count was last set to zero.
    lost_at_reset: u64,
    since: Instant,
}

impl RuleStore {
    /// With rules that are in force, and settings.
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
            capture,
            lock,
            last_number: 0,
            max_backlog_wait: max_backlog_wait(tick_hz),
            lost_at_reset: 0,
            since: Instant::now(),
        }
    }

    /// With what `-e 2` has locked.
    ///
    /// # Errors
    /// When a rule of it, or a key, is none.
    pub(crate) fn restore(
        locked: &LockedState,
        tick_hz: u32,
        lock: LockFile,
    ) -> anyhow::Result<Self> {
        let mut rules = RuleList::default();
        for (number, form) in (1..).zip(&locked.rules) {
            let rule = form.rule().map_err(anyhow::Error::msg)?;
            rules.push(SOCKET_SOURCE, number, rule);
        }
        let settings = AuditSettings {
            pid: std::process::id(),
            ..locked.settings.clone()
        };
        let key = |text: &JsonBytes| text.bytes().context("a key that is locked is none");
        let deny: anyhow::Result<_> = locked.deny.iter().map(key).collect();
        let (planner, kept) = (Planner::here(deny?), (locked.capture, lock));
        let mut store = Self::new(rules, settings, planner, tick_hz, kept);
        store.last_number = u32::try_from(locked.rules.len()).unwrap_or(u32::MAX);
        Ok(store)
    }

    /// Sets what `-r` and `-f` ask for.
    ///
    /// # Errors
    /// As [`Limits::set`].
    pub(crate) fn limit(&self, limits: &Limits) -> anyhow::Result<()> {
        let settings = &self.state.settings;
        limits.set(settings.rate_limit, settings.failure)
    }

    /// Puts what is loaded in force for the first time.
    ///
    /// # Errors
    /// When it cannot be put in force, or kept for a daemon that comes after this one.
    pub(crate) fn begin(&mut self, pipeline: &mut dyn PipelineControl) -> anyhow::Result<()> {
        self.plan_size = PlanSize::of(&plan(&self.state));
        pipeline.apply_settings(&self.state.settings)?;
        self.lock_if_immutable(&self.state, pipeline)
    }

    /// What rules are compiled for.
    pub(crate) const fn planner(&self) -> &Planner {
        &self.state.planner
    }

    /// What is in force.
    pub(crate) fn plan(&self) -> Plan {
        plan(&self.state)
    }

    /// Does what is asked.
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
            // Nobody ever waits.
            Request::ResetBacklogWait => Answer::Was(0),
            Request::Flush => done(pipeline.flush().map(|()| Answer::Done)),
        }
    }

    /// Looks up what watches lead to once more. The kernel's audit tags directories; here a watch is
    /// looked up by its path, and what is mounted below one belongs to it anyway.
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

    fn reset_lost(
        &mut self,
        author: &Requester,
        pipeline: &mut dyn PipelineControl,
    ) -> anyhow::Result<Answer> {
        let status = self.status(pipeline)?;
        let lost = status.settings.lost;
        self.lost_at_reset += lost;
        let body = change_records::setting(author, "lost", 0, lost);
        self.record(vec![(MsgType::CONFIG_CHANGE, body)], pipeline)?;
        Ok(Answer::Was(lost))
    }

    /// Writes the message of a user, as the kernel writes one: what stands before it is known to the
    /// kernel, and the rest is the user's.
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
                // Who searches for it at once is to find it.
                done(
                    recorded
                        .and_then(|()| pipeline.flush())
                        .map(|()| Answer::Done),
                )
            }
            _ => Answer::Refused(Refusal::with_reason(
                Errno::EINVAL,
                format!("a message is at most {MESSAGE_LIMIT_BYTES} printable characters of ASCII"),
            )),
        }
    }

    fn status(&self, pipeline: &mut dyn PipelineControl) -> anyhow::Result<Status> {
        let mut status = Status {
            settings: self.state.settings.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.since.elapsed().as_secs(),
            rules: count(self.state.rules.rules().len()),
            calls: self.plan_size.calls,
            denying: self.plan_size.denying,
            ..Status::default()
        };
        // A kernel that does not know the feature has no line for it.
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

    /// Changes rules and settings: all at once, or nothing.
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

    /// A change that is nothing yet.
    fn begin_change(&self, author: Requester) -> Change {
        Change {
            state: self.state.clone(),
            author,
            max_backlog_wait: self.max_backlog_wait,
            last_number: self.last_number,
            outcomes: Vec::new(),
            records: Vec::new(),
            added: Vec::new(),
        }
    }

    /// Puts a change in force, and records it.
    ///
    /// # Errors
    /// When it cannot be put in force.
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
        // What switches recording off is the last to be recorded, and what switches it on the first.
        let was_recording = self.is_recording();
        if was_recording && state.settings.enabled == DISABLED {
            self.try_record(records.clone(), pipeline);
        }
        self.apply_state(state, pipeline)?;
        self.last_number = last_number;
        self.try_record(records, pipeline);
        Ok(outcomes)
    }

    /// Leaves all as it is; tells of what was tried.
    fn refused(&mut self, change: Change, pipeline: &mut dyn PipelineControl) -> Answer {
        let Change {
            outcomes,
            mut records,
            ..
        } = change;
        // What came before the refused step has not happened.
        let setting_attempt = records.pop().into_iter().collect();
        self.try_record(setting_attempt, pipeline);
        Answer::Changed(outcomes)
    }

    /// Records what has been done, or tried, already; says what cannot be recorded. Nobody waits for the log once
    /// more when it has not kept up.
    fn try_record(&self, records: Vec<(MsgType, Vec<u8>)>, pipeline: &mut dyn PipelineControl) {
        let mut refused = None;
        for (kind, body) in records {
            let text = String::from_utf8_lossy(&body).into_owned();
            if refused.is_none() {
                refused = self.record(vec![(kind, body)], pipeline).err();
            }
            if let Some(error) = &refused {
                warn(&format!("not recorded: `{text}`: {error:#}"));
            }
        }
    }

    /// How many rules are loaded, and whether they are gone by.
    pub(crate) fn loaded(&self) -> LoadedRules {
        let rules = self.state.rules.rules().len();
        if self.is_recording() {
            LoadedRules::InForce(rules)
        } else {
            LoadedRules::Disabled(rules)
        }
    }

    /// Whether `-e 0` is not in force.
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

/// The plan of a state: nothing when nothing is to be recorded.
fn plan(state: &State) -> Plan {
    if state.settings.enabled == DISABLED {
        return Plan::default();
    }
    compiled(state)
}

fn compiled(state: &State) -> Plan {
    state.planner.plan(state.rules.clone().into_rules())
}

const fn max_backlog_wait(tick_hz: u32) -> u32 {
    (MAX_WAIT_SECONDS * DEFAULT_WAIT_SECONDS).saturating_mul(tick_hz)
}

/// An answer, or the refusal of what cannot be done now.
fn done(answer: anyhow::Result<Answer>) -> Answer {
    answer.unwrap_or_else(|error| {
        Answer::Refused(Refusal::with_reason(Errno::EAGAIN, format!("{error:#}")))
    })
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
