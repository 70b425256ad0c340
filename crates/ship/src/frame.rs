//! What is sent: events, and what is told about them.

use std::collections::BTreeMap;

use audit::event::Timestamp;
use audit::record::assemble::EventRecords;
use serde::{Deserialize, Serialize};

/// A record with what identifies it in a fleet. An event is the same as another one if host, boot, time and serial are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) host: &'a str,
    /// Id of the boot; empty if it is not known.
    pub(crate) boot: &'a str,
    pub(crate) record: Record<'a>,
}

/// What a frame has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Record<'a> {
    /// An event.
    Event(&'a EventRecords),
    /// Events are missing here.
    Gap(&'a Gap),
    /// The shipper lives, and has come so far.
    Heartbeat(&'a Heartbeat),
}

/// Serials that the log does not have where they should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Gap {
    pub(crate) reason: Reason,
    /// Time of the event after the gap.
    #[serde(serialize_with = "time_text")]
    pub(crate) time: Time,
    /// Last serial before the gap.
    pub(crate) after: u32,
    /// First serial after the gap.
    pub(crate) before: u32,
    /// Number of serials that are missing; `None` if serials began anew meanwhile.
    pub(crate) missing: Option<u64>,
}

/// Why serials are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reason {
    /// The log no longer had the position: it was rotated away before it was sent.
    Rotated,
    /// The log goes on with a later serial.
    Absent,
}

impl Reason {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rotated => "rotated",
            Self::Absent => "absent",
        }
    }
}

/// How far a destination is, and what its run has counted since its state began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Heartbeat {
    /// Time of the host.
    #[serde(serialize_with = "time_text")]
    pub(crate) time: Time,
    /// Last serial of tollgate that was read in this boot.
    pub(crate) serial: Option<u32>,
    /// Last serial of the kernel that was read in this boot.
    pub(crate) kernel_serial: Option<u32>,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    /// Version of the program.
    pub(crate) version: &'static str,
}

/// Numbers since the state of a destination began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Counts {
    /// Events that were read.
    pub(crate) events: u64,
    /// Events that the filter accepted, and were sent.
    pub(crate) sent: u64,
    /// Records that the destination has refused for ever.
    pub(crate) rejected: u64,
    /// Records that the destination has without their ends.
    pub(crate) cut: u64,
    /// Lines that are no records.
    pub(crate) malformed: u64,
    /// Gaps that were told.
    pub(crate) gaps: u64,
    /// Serials that are missing in them.
    pub(crate) missing: u64,
    /// Losses that the log tells, by reason: events and messages of the kernel.
    pub(crate) lost: BTreeMap<String, u64>,
}

/// Time as records write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Time {
    pub(crate) ms: u64,
}

impl Time {
    /// Time of an event.
    pub(crate) fn of(time: Timestamp) -> Self {
        let ms = time.sec.saturating_mul(1000);
        Self {
            ms: ms.saturating_add(time.milli.into()),
        }
    }

    /// The second that it is in, for its date; the last one of the calendar if it is later.
    pub(crate) fn timestamp(self) -> jiff::Timestamp {
        let second = i64::try_from(self.ms / 1000).ok();
        let found = second.and_then(|second| jiff::Timestamp::from_second(second).ok());
        found.unwrap_or(jiff::Timestamp::MAX)
    }
}

/// `SECONDS.MILLISECONDS`, as in the JSON log.
fn time_text<S: serde::Serializer>(time: &Time, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{}.{:03}", time.ms / 1000, time.ms % 1000))
}
