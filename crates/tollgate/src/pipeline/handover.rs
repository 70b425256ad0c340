//! Handover: state that outlives the daemon, and state taken over from the previous one.
//!
//! All BPF objects are pinned, so a killed daemon only delays reading. The engine manages the pinned state
//! ([`engine::InheritedState`]). This module adds the log file and the rules of the plans.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use audit::ids::{Dialect, MsgType, NativeArch};
use audit::plan::Plan;
use audit::rule::print;
use bstr::BString;
use engine::{Epoch, InheritedState, PinDirectory, PinError, PinnedState, PlanSwitch, RuleKeys};
use serde::{Deserialize, Serialize};

use crate::json_bytes::JsonBytes;
use crate::messages::{info, warn};
use crate::pipeline::ring_commands::RecordBody;
use crate::pipeline::rule_stats::RuleStats;
use crate::sinks::log_file::Log;

/// Default pin directory.
pub(crate) const DEFAULT_PIN_DIRECTORY: &str = "/sys/fs/bpf/tollgate";

/// Whether BPF objects outlive the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PinPolicy {
    /// They end with it.
    No,
    /// Pinned there if possible.
    IfPossible(PathBuf),
    /// Pinned there, or the daemon does not start.
    At(PathBuf),
}

/// The pin directory and the state found there.
#[derive(Debug, Default)]
pub(crate) struct PinSetup {
    pub(crate) pins: Option<PinDirectory>,
    pub(crate) takeover: Takeover,
    /// Whether the state is locked until reboot.
    pub(crate) locked: bool,
    /// Record about state that could not be taken over.
    pub(crate) discarded: Option<RecordBody>,
    /// Record about calls that can be missing, because the previous daemon was killed while it replaced programs.
    pub(crate) gap: Option<RecordBody>,
}

/// State left by a previous daemon.
#[derive(Debug, Default)]
pub(crate) enum Takeover {
    /// No readable state.
    #[default]
    Nothing,
    /// Programs and events.
    Whole(InheritedState),
    /// Events of incompatible programs, and what ends their recording.
    Events(InheritedState, io::Result<PlanSwitch>),
}

impl PinPolicy {
    /// Opens the directory, before privileges are dropped.
    ///
    /// # Errors
    /// Pinning is required and not possible.
    pub(crate) fn open(&self) -> anyhow::Result<Option<PinDirectory>> {
        match self {
            Self::No => Ok(None),
            Self::At(path) => Ok(Some(PinDirectory::open(path)?)),
            Self::IfPossible(path) => match PinDirectory::open(path) {
                Ok(pins) => Ok(Some(pins)),
                Err(error @ PinError::Busy { .. }) => {
                    info(&format!(
                        "BPF programs are not pinned, auditing ends with this daemon: {error}"
                    ));
                    Ok(None)
                }
                Err(error) => {
                    let error = anyhow::Error::from(error);
                    warn(&format!(
                        "BPF programs are not pinned, auditing ends with this daemon: {error:#}"
                    ));
                    Ok(None)
                }
            },
        }
    }
}

impl PinSetup {
    /// Reads the state of a previous daemon, whose plan switch was found with more privileges, and completes the log write in which it was killed. Nothing may have
    /// been written to the log before.
    ///
    /// # Errors
    /// The directory or the log cannot be read, or locked state cannot be read.
    pub(crate) fn inspect(
        pins: Option<(PinDirectory, io::Result<PlanSwitch>)>,
        log: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let Some((pins, plan_switch)) = pins else {
            return Ok(Self::default());
        };
        let mut takeover = Self {
            locked: pins.is_locked(),
            gap: pins.is_restarting().then(|| {
                warn(
                    "the previous daemon was killed while it replaced programs: calls since then can be missing in \
                     the log",
                );
                gap_record("killed-while-replacing-programs")
            }),
            ..Self::default()
        };
        match PinnedState::open(&pins)? {
            PinnedState::Empty => {}
            PinnedState::Adoptable(inherited) => {
                resolve_unfinished_write(&inherited, log)?;
                takeover.takeover = Takeover::Whole(inherited);
            }
            PinnedState::EventsOnly(inherited) => {
                resolve_unfinished_write(&inherited, log)?;
                takeover.takeover = Takeover::Events(inherited, plan_switch);
            }
            PinnedState::Unreadable { reason, .. } if takeover.locked => {
                return Err(locked_state_error(&pins, &anyhow!(reason)));
            }
            PinnedState::Unreadable {
                reason,
                unread_bytes,
            } => {
                takeover.discarded = Some(discard(&pins, &reason, unread_bytes)?);
            }
        }
        takeover.pins = Some(pins);
        Ok(takeover)
    }
}

/// Finds what ends the recording of another build's programs. A confined daemon could not.
pub(crate) fn with_plan_switch(pins: PinDirectory) -> (PinDirectory, io::Result<PlanSwitch>) {
    let plan_switch = pins.plan_switch();
    (pins, plan_switch)
}

/// Completes the log write in which a daemon was killed.
fn resolve_unfinished_write(inherited: &InheritedState, log: Option<&Path>) -> anyhow::Result<()> {
    if let Some(span) = inherited.unfinished_write() {
        let written = match log {
            Some(log) => Log::resolve_unfinished_write(log, span)?,
            None => false,
        };
        inherited.resolve_unfinished(written);
    }
    Ok(())
}

/// The error that locked state cannot be taken over. The state is kept.
pub(crate) fn locked_state_error(pins: &PinDirectory, reason: &anyhow::Error) -> anyhow::Error {
    anyhow!(
        "cannot take over the programs pinned in `{}`, which are locked until the machine restarts: \
         {reason:#}; they keep recording into the ring; correct the cause, or start the \
         tollgate program that locked them",
        pins.path().display()
    )
}

/// Removes state that cannot be taken over, reports it, and returns a record about it.
///
/// # Errors
/// The state cannot be removed.
pub(crate) fn discard(
    pins: &PinDirectory,
    reason: &str,
    unread: Option<u64>,
) -> anyhow::Result<RecordBody> {
    pins.clear()?;
    let mut body = "op=lost-ring".to_owned();
    if let Some(bytes) = unread {
        // Writing to a string cannot fail.
        let _written = write!(body, " bytes={bytes}");
    }
    body.push_str(" reason=\"not-readable\" res=failed");
    let waits = match unread {
        Some(0) => "no events were waiting".to_owned(),
        Some(bytes) => format!("{bytes} bytes of events are lost"),
        None => "waiting events are lost".to_owned(),
    };
    warn(&format!(
        "cannot take over the state of the previous daemon in `{}`, removed it: {reason}; {waits}",
        pins.path().display()
    ));
    Ok(RecordBody {
        kind: MsgType::DAEMON_ERR,
        body: body.into_bytes(),
    })
}

/// A record that calls can be missing, which no counter has.
pub(crate) fn gap_record(reason: &str) -> RecordBody {
    RecordBody {
        kind: MsgType::DAEMON_ERR,
        body: format!("op=lost-calls reason=\"{reason}\" res=failed").into_bytes(),
    }
}

/// Snapshot of one rule.
#[derive(Debug, Serialize, Deserialize)]
struct RuleSnapshot {
    rule: JsonBytes,
    key: Option<JsonBytes>,
}

/// Encodes the rules of a plan.
///
/// # Errors
/// Encoding fails, which does not happen.
pub(crate) fn snapshot(plan: &Plan) -> anyhow::Result<Vec<u8>> {
    let rules = plan.rules.iter().map(|rule| RuleSnapshot {
        rule: JsonBytes::new(&print(
            &rule.rule,
            NativeArch::BUILD.b64(),
            Dialect::default(),
        )),
        key: rule.key.as_ref().map(|key| JsonBytes::new(key)),
    });
    serde_json::to_vec(&rules.collect::<Vec<_>>()).context("cannot encode the rules")
}

/// Why the rules of pinned programs cannot be read.
const OTHER_BUILD: &str =
    "its list of rules cannot be read: another build of tollgate may have written it";

/// Restores the keys of all plans that ring events may belong to, and counters for the rules of the active plan.
///
/// # Errors
/// A snapshot cannot be read.
pub(crate) fn restore_plans(
    inherited: &InheritedState,
    in_force: Epoch,
) -> anyhow::Result<(RuleKeys, RuleStats)> {
    let mut keys = Vec::new();
    let mut counts = RuleStats::default();
    for (epoch, snapshot) in inherited.plan_snapshots(in_force)? {
        let rules: Vec<RuleSnapshot> = match snapshot.as_slice() {
            [] => Vec::new(),
            snapshot => {
                serde_json::from_slice(snapshot).map_err(|_other_form| anyhow!(OTHER_BUILD))?
            }
        };
        let bytes =
            |text: &JsonBytes| -> anyhow::Result<BString> { text.bytes().context(OTHER_BUILD) };
        let of_plan = rules
            .iter()
            .map(|rule| rule.key.as_ref().map(bytes).transpose());
        keys.push((epoch, of_plan.collect::<anyhow::Result<Vec<_>>>()?));
        if epoch == in_force {
            let rules = rules.iter().map(|rule| bytes(&rule.rule));
            counts.restore_plan(epoch, rules.collect::<anyhow::Result<Vec<_>>>()?);
        }
    }
    Ok((RuleKeys::from_plans(keys), counts))
}
