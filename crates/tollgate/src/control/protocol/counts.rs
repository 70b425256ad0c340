//! Counters of events in a status.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json_bytes::JsonBytes;

/// Events since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) matched: u64,
    /// Events written to the ring.
    pub(crate) delivered: u64,
    /// Events written to the log.
    pub(crate) written: u64,
    /// Lost events by reason.
    pub(crate) lost: BTreeMap<String, u64>,
    /// Truncated or incomplete events by what is missing.
    pub(crate) incomplete: BTreeMap<String, u64>,
    /// Seconds in which the BPF programs may not have run.
    pub(crate) blind_seconds: u64,
}

/// Events matched by one rule since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleCounts {
    /// The rule as `auditctl -l` prints it.
    pub(crate) rule: JsonBytes,
    pub(crate) matched: u64,
    /// Lost events by reason. The other events are in the log or on their way to it.
    pub(crate) lost: BTreeMap<String, u64>,
}

/// Events of one owner of tasks that were lost because the ring was full, since the programs were loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnerCounts {
    /// A user of the host; `None` for a namespace, and with both `None` for all other owners.
    pub(crate) uid: Option<u32>,
    /// A container: the inode number of its process or user namespace.
    pub(crate) namespace: Option<u32>,
    pub(crate) lost: u64,
}

impl OwnerCounts {
    /// The owner in a table.
    pub(crate) fn name(&self) -> String {
        match (self.uid, self.namespace) {
            (Some(uid), _) => format!("uid {uid}"),
            (None, Some(number)) => format!("namespace {number}"),
            (None, None) => "others".to_owned(),
        }
    }
}
