//! Requests and answers, as they travel: one JSON object a line.
//!
//! ```text
//! {"version":1,"request":"status"}\n
//! {"status":{"enabled":1, ...}}\n
//! ```

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use anyhow::{Context as _, ensure};
use audit::rule::{Command, Insertion};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::rule_json::RuleJson;
use crate::json_bytes::JsonBytes;

/// Version of the protocol. It changes when a request or an answer comes to mean something else.
pub(crate) const VERSION: u32 = 1;

/// What travels to the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Envelope {
    /// [`VERSION`] of whoever asks.
    pub(crate) version: u32,
    pub(crate) request: Request,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// The rules that are loaded.
    Rules,
    /// Settings and counts.
    Status,
    /// Change rules and settings, in this order, at once.
    Change {
        steps: Vec<Step>,
        /// The first step that is passed over when it is refused; when one before it is, or with `null`
        /// any, nothing is changed.
        forgive_from: Option<usize>,
    },
    /// Write a record of a user's message.
    Message(JsonBytes),
    /// Let the watches of a directory hold for what is mounted in it.
    Equivalent {
        mount: JsonBytes,
        subtree: JsonBytes,
    },
    /// Look again at what watches lead to.
    Trim,
    /// Count lost events from zero.
    ResetLost,
    /// Count the time waited from zero.
    ResetBacklogWait,
    /// Answer when every event matched so far is in the log.
    Flush,
}

/// One step of a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Step {
    /// Add a rule at the end of its list.
    Append(RuleJson),
    /// Add a rule at the front of its list.
    Prepend(RuleJson),
    /// Delete the equal rule.
    Delete(RuleJson),
    /// Delete all rules, or those whose keys contain this.
    DeleteAll(Option<JsonBytes>),
    /// 0 record nothing, 1 record, 2 record and change no more.
    Enabled(u8),
    /// 0 silent, 1 printk, 2 panic.
    Failure(u8),
    /// Records a second.
    RateLimit(u32),
    /// Records that may wait.
    BacklogLimit(u32),
    /// How long to wait, in ticks.
    BacklogWaitTime(u32),
}

impl Step {
    /// What a command is to the daemon; nothing when it is about reading a file, or for the kernel.
    pub(crate) fn of(command: &Command) -> Option<Self> {
        Some(match command {
            Command::Add { rule, insertion } => match insertion {
                Insertion::Append => Self::Append(RuleJson::new(rule)),
                Insertion::Prepend => Self::Prepend(RuleJson::new(rule)),
            },
            Command::Delete(rule) => Self::Delete(RuleJson::new(rule)),
            Command::DeleteAll(key) => Self::DeleteAll(key.as_ref().map(|key| JsonBytes::new(key))),
            Command::Enabled(level) => Self::Enabled(*level),
            Command::Failure(mode) => Self::Failure(*mode),
            Command::Rate(rate) => Self::RateLimit(*rate),
            Command::Backlog(limit) => Self::BacklogLimit(*limit),
            Command::BacklogWait(ticks) => Self::BacklogWaitTime(*ticks),
            _ => return None,
        })
    }
}

/// What travels back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The rules, list by list, in evaluation order.
    Rules(Vec<RuleJson>),
    /// Settings and counts.
    Status(Box<Status>),
    /// What came of each step, up to the one at which the change ended.
    Changed(Vec<StepOutcome>),
    /// The count before it was set to zero.
    Was(u64),
    /// It is done.
    Done,
    /// It is not done.
    Refused(Refusal),
    /// The request was not understood, or came from somebody who may not ask.
    Unanswered(String),
}

/// What came of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StepOutcome {
    /// A rule was added or deleted.
    Done,
    /// Rules were deleted, and so many are left.
    Left(u64),
    /// A setting was changed, to this.
    Set(Box<AuditSettings>),
    /// It was not done.
    Refused(Refusal),
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// Number of the error that the kernel's audit would have answered.
    pub(crate) errno: i32,
    /// In words; empty when the number says it all.
    pub(crate) reason: String,
}

/// What the kernel's audit would show of its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuditSettings {
    pub(crate) enabled: u8,
    pub(crate) failure: u8,
    /// Process of the daemon.
    pub(crate) pid: u32,
    pub(crate) rate_limit: u32,
    pub(crate) backlog_limit: u32,
    /// Events lost since the count was last set to zero.
    pub(crate) lost: u64,
    /// Events matched and not in the log yet.
    pub(crate) backlog: u64,
    pub(crate) backlog_wait_time: u32,
    pub(crate) backlog_wait_time_actual: u64,
    /// `None` where the kernel cannot say.
    pub(crate) loginuid_immutable: Option<Feature>,
}

/// A feature of the kernel's audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Feature {
    /// Whether it is on.
    pub(crate) on: bool,
    /// Whether it can no longer be changed.
    pub(crate) locked: bool,
}

/// All about a daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) settings: AuditSettings,
    /// Version of the daemon.
    pub(crate) version: String,
    pub(crate) engine: String,
    /// Why the kernel can skip programs of the engine; `None` if it cannot.
    pub(crate) skip_risk: Option<String>,
    pub(crate) uptime_seconds: u64,
    /// Rules that are loaded.
    pub(crate) rules: u64,
    /// Calls that they are about.
    pub(crate) calls: u64,
    /// Rules whose calls are denied when they could not be recorded.
    pub(crate) denying: u64,
    /// What is attached.
    pub(crate) hooks: Vec<String>,
    /// What this kernel does not have.
    pub(crate) absent: Vec<String>,
    /// Log file.
    pub(crate) log: JsonBytes,
    /// Why nothing is written to the log; `None` while it is written.
    pub(crate) suspended: Option<LogSuspension>,
    /// Where what audits is pinned for the next daemon.
    pub(crate) pins: Option<JsonBytes>,
    pub(crate) confinement: Confinement,
    pub(crate) counts: Counts,
    /// Of each rule that has chosen something.
    pub(crate) by_rule: Vec<RuleCounts>,
    /// Messages of the kernel's audit, when they are read.
    pub(crate) kernel_messages: Option<KernelMessages>,
    /// The JSON log, when there is one.
    pub(crate) json: Option<JsonCounts>,
    /// Events that each plugin did not get, by the names of their files.
    pub(crate) plugins: BTreeMap<String, u64>,
    /// How often programs have run; empty unless `kernel.bpf_stats_enabled` is 1.
    pub(crate) runs: Vec<Run>,
}

/// Events that one rule has chosen since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleCounts {
    /// As `auditctl -l` lists it.
    pub(crate) rule: JsonBytes,
    pub(crate) matched: u64,
    /// Lost, by reason; the others are in the log, or on their way to it.
    pub(crate) lost: BTreeMap<String, u64>,
}

/// Messages of the kernel's audit since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelMessages {
    /// `registered`: they are sent to the daemon; `listening`: it reads beside another process.
    pub(crate) reader: String,
    /// Records that the kernel has sent.
    pub(crate) received: u64,
    /// Records that the exclude list keeps out.
    pub(crate) excluded: u64,
    /// Events of them in the log.
    pub(crate) written: u64,
    /// Events of them that could not be written.
    pub(crate) unwritten: u64,
    /// Datagrams that were no records of the kernel's.
    pub(crate) refused: u64,
    /// Times that the kernel had no room for a reader beside the registered one.
    pub(crate) overruns: u64,
    /// Records that the kernel itself has lost.
    pub(crate) lost: u64,
    /// Records that wait in the kernel.
    pub(crate) backlog: u32,
}

/// What became of events for the JSON log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JsonCounts {
    pub(crate) written: u64,
    /// Left out, because they came too fast or could not be written.
    pub(crate) left_out: u64,
}

/// Why nothing is written to the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogSuspension {
    /// The setting of `auditd.conf` whose action suspended the log, or `open` if it cannot be opened.
    pub(crate) setting: String,
    /// What happened to the log or the disk.
    pub(crate) reason: String,
    /// When it was suspended.
    ///
    /// # Units
    /// Seconds since 1970.
    pub(crate) since: u64,
    /// How long it has been suspended.
    pub(crate) seconds: u64,
    /// Events not written since then.
    pub(crate) events: u64,
}

/// How often a program has run, and for how long in all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) hook: String,
    pub(crate) runs: u64,
    pub(crate) nanoseconds: u64,
}

/// What a daemon has left of what root may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// Capabilities that it has kept.
    pub(crate) capabilities: Vec<String>,
    /// Whether its bounding set is empty.
    pub(crate) bounding: bool,
    pub(crate) no_new_privileges: bool,
    /// How much of Landlock holds, and which version of it.
    pub(crate) landlock: String,
    /// Directories that it can write below; all, when Landlock does not hold.
    pub(crate) writable: Vec<String>,
}

impl Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "capabilities {}", self.capabilities.join(" "))?;
        if !self.bounding {
            f.write_str(" (bounding set kept)")?;
        }
        if self.no_new_privileges {
            f.write_str(", no new privileges")?;
        }
        write!(f, ", Landlock {}", self.landlock)?;
        if !self.writable.is_empty() {
            write!(f, ": writes below {} only", self.writable.join(", "))?;
        }
        Ok(())
    }
}

/// Events since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) matched: u64,
    /// Put into the ring.
    pub(crate) delivered: u64,
    /// Written to the log.
    pub(crate) written: u64,
    /// Lost, by reason.
    pub(crate) lost: BTreeMap<String, u64>,
    /// Recorded in part, by what is missing.
    pub(crate) incomplete: BTreeMap<String, u64>,
    /// Seconds in which the engine may have seen nothing.
    pub(crate) blind_seconds: u64,
}

impl Refusal {
    /// A refusal that needs no words.
    pub(crate) const fn errno(errno: Errno) -> Self {
        Self {
            errno: errno as i32,
            reason: String::new(),
        }
    }

    /// A refusal in words.
    pub(crate) fn with_reason(errno: Errno, reason: impl Into<String>) -> Self {
        Self {
            errno: errno as i32,
            reason: reason.into(),
        }
    }
}

/// Reads a request from a line without its newline.
///
/// # Errors
/// When it is no request, or one of another version.
pub(crate) fn request(line: &[u8]) -> anyhow::Result<Request> {
    /// What every version has.
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    const MALFORMED: &str = "this is no request";
    let Versioned { version } = serde_json::from_slice(line).context(MALFORMED)?;
    ensure!(
        version == VERSION,
        "version {version} of the protocol is asked for, and this daemon speaks version {VERSION}"
    );
    let call: Envelope = serde_json::from_slice(line).context(MALFORMED)?;
    Ok(call.request)
}

/// A request or an answer as a line, newline included.
///
/// # Errors
/// When a value cannot be written as JSON; all of these types can.
pub(crate) fn line(value: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value).context("cannot write JSON")?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_trip() {
        for request in [
            Request::Rules,
            Request::Status,
            Request::Change {
                steps: vec![
                    Step::DeleteAll(None),
                    Step::DeleteAll(Some(JsonBytes::new(b"key"))),
                    Step::Enabled(2),
                ],
                forgive_from: Some(1),
            },
            Request::Message(JsonBytes::new(b"hello \xff")),
            Request::Flush,
        ] {
            let call = Envelope {
                version: VERSION,
                request: request.clone(),
            };
            let mut bytes = line(&call).unwrap();
            assert_eq!(bytes.pop(), Some(b'\n'));
            assert!(!bytes.contains(&b'\n'));
            assert_eq!(super::request(&bytes).unwrap(), request);
        }
    }

    #[test]
    fn malformed_request_is_reported() {
        let error = |line: &[u8]| format!("{:#}", request(line).unwrap_err());
        assert!(error(b"").contains("no request"));
        assert!(error(b"{}").contains("no request"));
        assert!(error(br#"{"version":1,"request":"frob"}"#).contains("no request"));
        assert!(error(br#"{"version":1,"request":"rules","more":1}"#).contains("no request"));
        // Whatever else another version has.
        assert!(error(br#"{"version":2,"ask":"rules"}"#).contains("version 2"));
    }
}
