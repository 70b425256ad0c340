//! Log records of OTLP: a frame each.
//!
//! | frame | `event_name` | severity | body |
//! | --- | --- | --- | --- |
//! | event | `audit.event` | INFO; WARN for anomalies and errors of the daemon | its records, as they are in the log |
//! | gap | `audit.gap` | WARN | JSON |
//! | heartbeat | `audit.heartbeat` | INFO | JSON |
//!
//! # Source
//! `logs.proto`, opentelemetry-proto 1.5; the logs data model of OpenTelemetry for severities.

use audit::record::assemble::EventRecords;
use bstr::ByteSlice as _;

use super::attributes::{Attributes, text_value};
use super::event;
use super::protobuf::{bytes, fixed64, integer};
use crate::frame::{Frame, Gap, Heartbeat, Record, Time};

/// Fields of `LogRecord`.
const TIME: u32 = 1;
const SEVERITY: u32 = 2;
const SEVERITY_TEXT: u32 = 3;
pub(super) const BODY: u32 = 5;
const ATTRIBUTES: u32 = 6;
const DROPPED: u32 = 7;
const OBSERVED: u32 = 11;
pub(super) const EVENT_NAME: u32 = 12;

/// Severity `INFO` and `WARN`, with their numbers.
const INFO: (u64, &str) = (9, "INFO");
const WARN: (u64, &str) = (13, "WARN");
/// Names of events, gaps and heartbeats.
pub(crate) const EVENT: &str = "audit.event";
pub(crate) const GAP: &str = "audit.gap";
pub(crate) const HEARTBEAT: &str = "audit.heartbeat";

/// Appends the record of a frame that was read at a time.
///
/// # Errors
/// None is known.
pub(super) fn append(frame: &Frame<'_>, observed: Time, to: &mut Vec<u8>) -> anyhow::Result<()> {
    match frame.record {
        Record::Event(event) => {
            head(Time::of(event.time()), observed, severity(event), EVENT, to);
            let text = event.text();
            let text = text.strip_suffix(b"\n").unwrap_or(text);
            text_value(BODY, &text.to_str_lossy(), to);
            let dropped = event::append(event, ATTRIBUTES, to);
            if dropped > 0 {
                integer(DROPPED, dropped.into(), to);
            }
        }
        Record::Gap(gap) => {
            head(gap.time, observed, WARN, GAP, to);
            text_value(BODY, &serde_json::to_string(gap)?, to);
            gap_attributes(gap, to);
        }
        Record::Heartbeat(heartbeat) => {
            head(heartbeat.time, observed, INFO, HEARTBEAT, to);
            text_value(BODY, &serde_json::to_string(heartbeat)?, to);
            heartbeat_attributes(heartbeat, to);
        }
    }
    Ok(())
}

fn head(time: Time, observed: Time, severity: (u64, &str), name: &str, to: &mut Vec<u8>) {
    fixed64(TIME, nanoseconds(time), to);
    fixed64(OBSERVED, nanoseconds(observed), to);
    let (number, text) = severity;
    integer(SEVERITY, number, to);
    bytes(SEVERITY_TEXT, text.as_bytes(), to);
    bytes(EVENT_NAME, name.as_bytes(), to);
}

const fn nanoseconds(time: Time) -> u64 {
    time.ms.saturating_mul(1_000_000)
}

/// Anomalies, and errors of the daemon, are warnings.
fn severity(event: &EventRecords) -> (u64, &'static str) {
    let first = event.records().next();
    let is_warning = first.is_some_and(|record| {
        record.kind.starts_with(b"ANOM_")
            || matches!(record.kind.as_bytes(), b"DAEMON_ERR" | b"DAEMON_ABORT")
    });
    if is_warning { WARN } else { INFO }
}

fn gap_attributes(gap: &Gap, to: &mut Vec<u8>) {
    let mut to = attributes(to);
    to.text("audit.reason", gap.reason.name());
    to.integer("audit.after", gap.after.into());
    to.integer("audit.before", gap.before.into());
    if let Some(missing) = gap.missing {
        to.integer("audit.missing", signed(missing));
    }
}

fn heartbeat_attributes(heartbeat: &Heartbeat, to: &mut Vec<u8>) {
    let mut to = attributes(to);
    let serials = [
        ("audit.serial", heartbeat.serial),
        ("audit.kernel_serial", heartbeat.kernel_serial),
    ];
    for (name, serial) in serials {
        if let Some(serial) = serial {
            to.integer(name, serial.into());
        }
    }
    let counts = &heartbeat.counts;
    let lost = counts
        .lost
        .values()
        .fold(0_u64, |sum, count| sum.saturating_add(*count));
    for (name, count) in [
        ("audit.events", counts.events),
        ("audit.sent", counts.sent),
        ("audit.malformed", counts.malformed),
        ("audit.gaps", counts.gaps),
        ("audit.missing", counts.missing),
        ("audit.rejected", counts.rejected),
        ("audit.lost", lost),
    ] {
        to.integer(name, signed(count));
    }
}

const fn attributes(to: &mut Vec<u8>) -> Attributes<'_> {
    Attributes {
        number: ATTRIBUTES,
        to,
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
