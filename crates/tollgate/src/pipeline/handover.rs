//! What outlives this daemon, and what it takes over from the one before.
//!
//! Everything that audits is pinned, so that a daemon that is killed is only a daemon that reads late. The
//! engine keeps the account ([`engine::InheritedState`]); here is what it cannot know: the log file, and what the
//! plans were.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use audit::ids::Dialect;
use audit::ids::{Arch, MsgType};
use audit::plan::Plan;
use audit::rule::print;
use bstr::BString;
use engine::{Epoch, InheritedState, PinDirectory, PinError, PinnedState, RuleKeys};
use serde::{Deserialize, Serialize};

use crate::json_bytes::JsonBytes;
use crate::messages::{info, warn};
use crate::pipeline::ring_commands::Record;
use crate::pipeline::rule_stats::RuleStats;
use crate::sinks::log_file::Log;

/// Where things are pinned unless something else is said.
pub(crate) const DEFAULT_PIN_DIRECTORY: &str = "/sys/fs/bpf/tollgate";

/// Whether what audits outlives the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PinPolicy {
    /// It ends with it.
    No,
    /// Pinned there, where that can be.
    IfPossible(PathBuf),
    /// Pinned there.
    At(PathBuf),
}

/// Where to pin, and what was found there.
#[derive(Debug, Default)]
pub(crate) struct PinSetup {
    pub(crate) pins: Option<PinDirectory>,
    pub(crate) takeover: Takeover,
    /// Whether that lasts as long as the machine.
    pub(crate) locked: bool,
    /// What is to be told of what could not be taken over.
    pub(crate) discarded: Option<Record>,
}

/// What a daemon before this one has left.
#[derive(Debug, Default)]
pub(crate) enum Takeover {
    /// Nothing that can be read.
    #[default]
    Nothing,
    /// All.
    Whole(InheritedState),
    /// Events, of programs that are not these.
    Events(InheritedState),
}

impl PinPolicy {
    /// Opens the directory, before rights are given up.
    ///
    /// # Errors
    /// When nothing can be pinned there, and it was asked for.
    pub(crate) fn open(&self) -> anyhow::Result<Option<PinDirectory>> {
        match self {
            Self::No => Ok(None),
            Self::At(path) => Ok(Some(PinDirectory::open(path)?)),
            Self::IfPossible(path) => match PinDirectory::open(path) {
                Ok(pins) => Ok(Some(pins)),
                Err(error @ PinError::Busy { .. }) => {
                    info(&format!("{error}: auditing ends with this one"));
                    Ok(None)
                }
                Err(error) => {
                    let error = anyhow::Error::from(error);
                    warn(&format!(
                        "auditing ends with this daemon, however it ends: {error:#}"
                    ));
                    Ok(None)
                }
            },
        }
    }
}

impl PinSetup {
    /// Looks what a daemon before this one has left, and ends the write to the log in which it was killed.
    /// Nothing may have been written to the log before.
    ///
    /// # Errors
    /// When the directory, or the log, cannot be read, and when what is locked cannot be.
    pub(crate) fn inspect(pins: Option<PinDirectory>, log: Option<&Path>) -> anyhow::Result<Self> {
        let Some(pins) = pins else {
            return Ok(Self::default());
        };
        let mut takeover = Self {
            locked: pins.is_locked(),
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
                takeover.takeover = Takeover::Events(inherited);
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

/// Ends the write to the log in which a daemon was killed.
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

/// Says why this daemon cannot go on with what is locked, and that it stays.
pub(crate) fn locked_state_error(pins: &PinDirectory, reason: &anyhow::Error) -> anyhow::Error {
    anyhow!(
        "what is pinned in `{}` is locked until the machine starts again, and this daemon cannot go on with it: \
         {reason:#}; it is left as it is, and what it records waits in the ring: mend that, or start the \
         program that has locked it",
        pins.path().display()
    )
}

/// Takes away what cannot be taken over, and says so; the record of it.
///
/// # Errors
/// When it cannot be taken away.
pub(crate) fn discard(
    pins: &PinDirectory,
    reason: &str,
    unread: Option<u64>,
) -> anyhow::Result<Record> {
    pins.clear()?;
    let mut body = "op=lost-ring".to_owned();
    if let Some(bytes) = unread {
        // Writing to a string does not fail.
        let _written = write!(body, " bytes={bytes}");
    }
    body.push_str(" reason=\"not-readable\" res=failed");
    let waits = match unread {
        Some(0) => "nothing of it was waiting to be written".to_owned(),
        Some(bytes) => format!("{bytes} bytes of events are lost"),
        None => "what was waiting to be written is lost".to_owned(),
    };
    warn(&format!(
        "what the daemon before this one has left in `{}` cannot be taken over: {reason}; {waits}",
        pins.path().display()
    ));
    Ok(Record {
        kind: MsgType::DAEMON_ERR,
        body: body.into_bytes(),
    })
}

/// What is noted of a plan's rules.
#[derive(Debug, Serialize, Deserialize)]
struct RuleSnapshot {
    rule: JsonBytes,
    key: Option<JsonBytes>,
}

/// The note about a plan.
///
/// # Errors
/// When it cannot be written, which does not happen.
pub(crate) fn snapshot(plan: &Plan) -> anyhow::Result<Vec<u8>> {
    let rules = plan.rules.iter().map(|rule| RuleSnapshot {
        rule: JsonBytes::new(&print(&rule.rule, Arch::X86_64, Dialect::default())),
        key: rule.key.as_ref().map(|key| JsonBytes::new(key)),
    });
    serde_json::to_vec(&rules.collect::<Vec<_>>()).context("cannot note the rules")
}

/// The keys of the plans that events in the ring may be of, and counters for the rules of the plan in force.
///
/// # Errors
/// When a note cannot be read.
pub(crate) fn restore_plans(
    inherited: &InheritedState,
    in_force: Epoch,
) -> anyhow::Result<(RuleKeys, RuleStats)> {
    let mut keys = Vec::new();
    let mut counts = RuleStats::default();
    for (epoch, snapshot) in inherited.plan_snapshots(in_force)? {
        let rules: Vec<RuleSnapshot> = match snapshot.as_slice() {
            [] => Vec::new(),
            snapshot => serde_json::from_slice(snapshot).context("a note about rules is none")?,
        };
        let bytes = |text: &JsonBytes| -> anyhow::Result<BString> {
            text.bytes().context("a note about rules is none")
        };
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
