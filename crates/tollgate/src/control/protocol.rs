//! Requests and answers of the control socket: one JSON object per line.
//!
//! ```text
//! {"version":1,"request":"status"}\n
//! {"status":{"enabled":1, ...}}\n
//! ```

mod counts;

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use anyhow::{Context as _, ensure};
use audit::rule::{Command, Insertion};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

pub(crate) use counts::{Counts, OwnerCounts, RuleCounts};

use super::rule_costs::RuleCosts;
use super::rule_json::RuleJson;
use super::watch::WatchRequest;
use crate::json_bytes::JsonBytes;

/// Protocol version. It changes when the meaning of a request or an answer changes.
pub(crate) const VERSION: u32 = 1;

/// A request with its protocol version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Envelope {
    /// Must equal [`VERSION`].
    pub(crate) version: u32,
    pub(crate) request: Request,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// List the loaded rules.
    Rules,
    /// Report settings and counters.
    Status,
    /// Report what each rule costs.
    RuleCosts,
    /// Send events from now on.
    Watch(WatchRequest),
    /// Change rules and settings in this order, atomically.
    Change {
        steps: Vec<Step>,
        /// Index of the first step that may fail. If an earlier step is refused, or with `null` any step, nothing
        /// changes.
        forgive_from: Option<usize>,
    },
    /// Write a user message record (`auditctl -m`).
    Message(JsonBytes),
    /// Extend directory watches to a mount (`auditctl -q`).
    Equivalent {
        mount: JsonBytes,
        subtree: JsonBytes,
    },
    /// Resolve the watched paths again (`auditctl -t`).
    Trim,
    /// Set the `lost` counter to zero.
    ResetLost,
    /// Set the backlog wait time counter to zero.
    ResetBacklogWait,
    /// Answer when every event matched so far is in the log.
    Flush,
    /// Read auditd.conf, the plugins and the rule files again, as `SIGHUP` does, and answer when they are in force.
    Reload,
}

impl Request {
    /// Whether members of the group `watch_group` may send it: it changes nothing.
    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(
            self,
            Self::Rules | Self::Status | Self::RuleCosts | Self::Watch(_)
        )
    }
}

/// One step of a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Step {
    /// Add a rule at the end of its list.
    Append(RuleJson),
    /// Add a rule at the front of its list.
    Prepend(RuleJson),
    /// Delete an equal rule.
    Delete(RuleJson),
    /// Delete all rules, or only the rules whose key contains this text.
    DeleteAll(Option<JsonBytes>),
    /// 0: record nothing; 1: record; 2: record and lock the configuration.
    Enabled(u8),
    /// 0: silent; 1: printk; 2: panic.
    Failure(u8),
    /// Records per second; 0 is no limit.
    RateLimit(u32),
    /// Maximum number of pending records.
    BacklogLimit(u32),
    /// Wait time in clock ticks.
    BacklogWaitTime(u32),
}

impl Step {
    /// Converts an auditctl command to a step. `None` for commands that are not requests to the daemon.
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

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The rules, list by list, in evaluation order.
    Rules(Vec<RuleJson>),
    /// Settings and counters.
    Status(Box<Status>),
    /// What each rule costs.
    RuleCosts(Box<RuleCosts>),
    /// Records follow until the connection ends.
    Watching,
    /// One outcome per step, up to the step at which the change ended.
    Changed(Vec<StepOutcome>),
    /// Value of the counter before it was set to zero.
    Was(u64),
    /// Success.
    Done,
    /// The request was refused.
    Refused(Refusal),
    /// The request was malformed, or the client may not send requests.
    Unanswered(String),
}

/// Outcome of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StepOutcome {
    /// A rule was added or deleted.
    Done,
    /// Rules were deleted; this many remain.
    #[serde(rename = "left")]
    Remaining(u64),
    /// A setting was changed; these are the settings now.
    Set(Box<AuditSettings>),
    /// The step was refused.
    Refused(Refusal),
}

/// Why a request or a step was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// The errno that the kernel's audit returns in this case.
    pub(crate) errno: i32,
    /// Explanation; empty if the errno is sufficient.
    pub(crate) reason: String,
}

/// Settings and counters as in the kernel's `struct audit_status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuditSettings {
    pub(crate) enabled: u8,
    pub(crate) failure: u8,
    /// PID of the daemon.
    pub(crate) pid: u32,
    pub(crate) rate_limit: u32,
    pub(crate) backlog_limit: u32,
    /// Events lost since the counter was last set to zero.
    pub(crate) lost: u64,
    /// Events matched but not yet in the log.
    pub(crate) backlog: u64,
    pub(crate) backlog_wait_time: u32,
    pub(crate) backlog_wait_time_actual: u64,
    /// `None` if the kernel does not report it.
    pub(crate) loginuid_immutable: Option<Feature>,
}

/// A feature of the kernel's audit (`struct audit_features`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Feature {
    /// Whether the feature is enabled.
    pub(crate) on: bool,
    /// Whether the feature is locked.
    pub(crate) locked: bool,
}

/// Full status of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) settings: AuditSettings,
    /// Version of the daemon.
    pub(crate) version: String,
    pub(crate) engine: String,
    /// Why the kernel can skip programs of the engine; `None` if it cannot.
    pub(crate) skip_risk: Option<String>,
    pub(crate) uptime_seconds: u64,
    /// Number of loaded rules.
    pub(crate) rules: u64,
    /// Number of syscalls that the rules cover.
    pub(crate) calls: u64,
    /// Number of rules that deny a syscall which cannot be recorded.
    pub(crate) denying: u64,
    /// Attached hooks.
    pub(crate) hooks: Vec<String>,
    /// Hooks that this kernel lacks.
    pub(crate) absent: Vec<String>,
    /// Path of the log file.
    pub(crate) log: JsonBytes,
    /// Rule or configuration files that were refused; `None` if all are in force.
    pub(crate) refused: Option<RefusedFiles>,
    /// Why nothing is written to the log; `None` while it is written.
    pub(crate) suspended: Option<LogSuspension>,
    /// Directory where BPF objects are pinned for the next daemon.
    pub(crate) pins: Option<JsonBytes>,
    pub(crate) confinement: Confinement,
    pub(crate) counts: Counts,
    /// Counters of each rule that matched at least once.
    pub(crate) by_rule: Vec<RuleCounts>,
    /// Owners of tasks with most events lost because the ring was full.
    pub(crate) by_owner: Vec<OwnerCounts>,
    /// Counters of the kernel's own audit records, if the daemon reads them.
    pub(crate) kernel_messages: Option<KernelRecordStatus>,
    /// The kernel's own audit; `None` if it cannot be asked.
    pub(crate) kernel_audit: Option<KernelAuditStatus>,
    /// Counters of the JSON log, if there is one.
    pub(crate) json: Option<JsonCounts>,
    /// Events lost per plugin, by the name of its file in `plugins.d`.
    pub(crate) plugins: BTreeMap<String, u64>,
    /// Number of clients that watch events.
    pub(crate) viewers: u64,
    /// Run counts of BPF programs; empty unless `kernel.bpf_stats_enabled` is 1.
    pub(crate) runs: Vec<Run>,
}

/// Records of the kernel's own audit since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelRecordStatus {
    /// `registered`: the daemon is the kernel's audit daemon; `listening`: it reads the multicast group beside
    /// another audit daemon.
    pub(crate) reader: String,
    /// Records received from the kernel.
    pub(crate) received: u64,
    /// Records dropped by the exclude list.
    pub(crate) excluded: u64,
    /// Events in the log.
    pub(crate) written: u64,
    /// Events that could not be written.
    pub(crate) unwritten: u64,
    /// Datagrams that are not valid kernel records.
    pub(crate) refused: u64,
    /// Receive buffer overruns of the multicast socket (`ENOBUFS`).
    pub(crate) overruns: u64,
    /// Records lost by the kernel itself.
    pub(crate) lost: u64,
    /// Records waiting in the kernel.
    pub(crate) backlog: u32,
}

/// State of the kernel's own audit, which other programs may have enabled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelAuditStatus {
    pub(crate) enabled: bool,
    /// Loaded rules, without `-a never,task`.
    pub(crate) rules: u64,
    /// Whether the rule `-a never,task` is loaded.
    pub(crate) never_task: bool,
    /// Whether tasks enter the kernel's audit at every syscall.
    pub(crate) slows_syscalls: bool,
}

/// Counters of the JSON log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JsonCounts {
    pub(crate) written: u64,
    /// Events not written: the queue was full, or a write failed.
    pub(crate) left_out: u64,
}

/// Why nothing is written to the log, or what is written is not safe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogSuspension {
    /// The setting of `auditd.conf` whose action suspended the log, `open` if it cannot be opened, `lock` if
    /// another daemon has locked it, `write` while writes fail, or `sync` while syncs fail.
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
    /// Events that are not written, and that the log does not report yet.
    pub(crate) events: u64,
}

/// Rule or configuration files that were refused: older rules or settings are in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefusedFiles {
    /// The first error.
    pub(crate) reason: String,
    /// When they were refused, at the start or at a reload.
    ///
    /// # Units
    /// Seconds since 1970.
    pub(crate) since: u64,
    /// How long ago that was.
    pub(crate) seconds: u64,
    /// When the rules or settings in force were loaded from files, if the daemon started with the last good ones.
    ///
    /// # Units
    /// Seconds since 1970.
    pub(crate) last_good: Option<u64>,
}

/// Run count and total run time of a BPF program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) hook: String,
    pub(crate) runs: u64,
    pub(crate) nanoseconds: u64,
}

/// Privileges that the daemon has kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// Remaining capabilities.
    pub(crate) capabilities: Vec<String>,
    /// Whether the capability bounding set is empty.
    pub(crate) bounding: bool,
    pub(crate) no_new_privileges: bool,
    /// Landlock enforcement level and ABI version.
    pub(crate) landlock: String,
    /// The only directories below which the daemon can write, if Landlock is enforced.
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

impl Refusal {
    /// A refusal without an explanation.
    pub(crate) const fn errno(errno: Errno) -> Self {
        Self {
            errno: errno as i32,
            reason: String::new(),
        }
    }

    /// A refusal with an explanation.
    pub(crate) fn with_reason(errno: Errno, reason: impl Into<String>) -> Self {
        Self {
            errno: errno as i32,
            reason: reason.into(),
        }
    }
}

/// Parses a request line without its newline.
///
/// # Errors
/// The line is not a request, or its protocol version differs.
pub(crate) fn request(line: &[u8]) -> anyhow::Result<Request> {
    /// The part that all versions share.
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    const MALFORMED: &str = "malformed request";
    let Versioned { version } = serde_json::from_slice(line).context(MALFORMED)?;
    ensure!(
        version == VERSION,
        "the request has protocol version {version}, but this daemon speaks version {VERSION}: restart the daemon, or run the `tollgate` it was started from"
    );
    let call: Envelope = serde_json::from_slice(line).context(MALFORMED)?;
    Ok(call.request)
}

/// Encodes a request or an answer as a line with its newline.
///
/// # Errors
/// The value cannot be encoded as JSON. All types of this module can.
pub(crate) fn line(value: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value).context("cannot encode JSON")?;
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
            Request::RuleCosts,
            Request::Watch(WatchRequest::default()),
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
            Request::Reload,
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
        assert!(error(b"").contains("malformed request"));
        assert!(error(b"{}").contains("malformed request"));
        assert!(error(br#"{"version":1,"request":"frob"}"#).contains("malformed request"));
        assert!(
            error(br#"{"version":1,"request":"rules","more":1}"#).contains("malformed request")
        );
        // Another version is reported whatever else the line has.
        assert!(error(br#"{"version":2,"ask":"rules"}"#).contains("version 2"));
    }
}
