//! Groups the records of a log into events.
//!
//! Records of one event have the same node, time and serial. Records of several events may be interleaved.
//! An event ends with an EOE or PROCTITLE record, or with a record of a type that is always alone.
//! Otherwise it ends when a record is two seconds newer, or after [`MAX_OPEN_EVENTS`] other events. A later record
//! starts a new event.
//!
//! # Source
//! `au_check_events` and `auparse_feed` in `auparse/auparse.c`, audit-userspace 4.2: the two seconds,
//! and the types of single-record events.

use std::collections::VecDeque;

use bstr::BString;

use super::decode::{self, DecodeError, Record};
use crate::event::Timestamp;
use crate::ids::{MsgType, Serial};
use crate::table;

/// Maximum number of open events. One more ends the oldest.
pub const MAX_OPEN_EVENTS: usize = 64;
/// Maximum size of an event. Further records start a new event.
const MAX_EVENT_BYTES: usize = 1 << 20;
/// Age in seconds, by the log's time, at which an open event ends.
const OPEN_EVENT_TIMEOUT_SECS: u64 = 2;

/// Lines of one event, in log order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventRecords {
    /// Bytes of all lines, each with its newline.
    text: Vec<u8>,
}

impl EventRecords {
    /// The records. Their lines were decoded before, so none fails.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| decode::line(line).ok())
    }
}

/// Groups lines into events.
#[derive(Debug, Default)]
pub struct EventAssembler {
    open: VecDeque<OpenEvent>,
}

/// An event that has not ended.
#[derive(Debug)]
struct OpenEvent {
    node: Option<BString>,
    time: Timestamp,
    serial: Serial,
    event: EventRecords,
}

impl OpenEvent {
    fn contains(&self, record: &Record<'_>) -> bool {
        let node = self.node.as_ref().map(|node| node.as_slice());
        self.serial == record.serial
            && self.time == record.time
            && node == record.node.map(|node| &**node)
    }
}

impl EventAssembler {
    /// Adds a line, with or without its newline, and passes ended events to `ended`.
    ///
    /// # Errors
    /// [`DecodeError`] if the line is not a record. The line is dropped.
    pub fn take(
        &mut self,
        line: &[u8],
        mut ended: impl FnMut(EventRecords),
    ) -> Result<(), DecodeError> {
        let record = decode::line(line)?;
        let is_recent =
            |open: &OpenEvent| open.time.sec + OPEN_EVENT_TIMEOUT_SECS > record.time.sec;
        while let Some(open) = self.open.pop_front_if(|open| !is_recent(open)) {
            ended(open.event);
        }
        let at = self.open.iter().position(|open| open.contains(&record));
        let mut open = match at.and_then(|at| self.open.remove(at)) {
            Some(open) if open.event.text.len() + line.len() < MAX_EVENT_BYTES => open,
            full => {
                if let Some(full) = full {
                    ended(full.event);
                }
                OpenEvent {
                    node: record.node.map(ToOwned::to_owned),
                    time: record.time,
                    serial: record.serial,
                    event: EventRecords::default(),
                }
            }
        };
        open.event
            .text
            .extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
        open.event.text.push(b'\n');
        if ends_event(&record) {
            ended(open.event);
            return Ok(());
        }
        self.open.push_back(open);
        if self.open.len() > MAX_OPEN_EVENTS
            && let Some(oldest) = self.open.pop_front()
        {
            ended(oldest.event);
        }
        Ok(())
    }

    /// Passes all open events to `ended` at the end of the log.
    pub fn finish(self, ended: impl FnMut(EventRecords)) {
        self.open.into_iter().map(|open| open.event).for_each(ended);
    }
}

/// Whether this record is the last of its event.
///
/// # Source
/// `audit_is_last_record` in `auparse/auparse.c`, audit-userspace 4.2: PROCTITLE and EOE end an event. Types
/// outside `AUDIT_FIRST_EVENT` to `AUDIT_LAST_EVENT` and outside the security modules' range are single-record
/// events, except LOGIN, which the kernel may write within a syscall.
fn ends_event(record: &Record<'_>) -> bool {
    if record.kind == "EOE" || record.kind == "PROCTITLE" {
        return true;
    }
    let number = table::msg_type_number(record.kind);
    number.is_some_and(|MsgType(number)| !matches!(number, 1006 | 1300..=1499 | 1700..=1799))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assemble(lines: &[&str]) -> Vec<Vec<String>> {
        let mut assembler = EventAssembler::default();
        let mut events = Vec::new();
        let mut keep = |event: EventRecords| {
            events.push(
                event
                    .records()
                    .map(|record| format!("{} {}", record.kind, record.serial.0))
                    .collect(),
            );
        };
        for line in lines {
            assembler.take(line.as_bytes(), &mut keep).unwrap();
        }
        assembler.finish(&mut keep);
        events
    }

    #[test]
    fn interleaved_events_are_separated() {
        let events = assemble(&[
            "type=SYSCALL msg=audit(1.000:1): a=1",
            "type=SYSCALL msg=audit(1.000:2): a=1\n",
            "type=CWD msg=audit(1.000:1): cwd=\"/\"",
            "type=USER_AUTH msg=audit(1.000:3): pid=1",
            "type=PROCTITLE msg=audit(1.000:2): proctitle=\"x\"",
            "type=EOE msg=audit(1.000:1): ",
        ]);
        assert_eq!(
            events,
            [
                vec!["USER_AUTH 3"],
                vec!["SYSCALL 2", "PROCTITLE 2"],
                vec!["SYSCALL 1", "CWD 1", "EOE 1"],
            ]
        );
    }

    #[test]
    fn open_events_end_by_timeout_limit_and_end_of_log() {
        let old = "type=SYSCALL msg=audit(1.000:1): a=1";
        let new = "type=CWD msg=audit(3.000:9): cwd=\"/\"";
        assert_eq!(assemble(&[old, new]), [["SYSCALL 1"], ["CWD 9"]]);

        let many: Vec<String> = (0..=MAX_OPEN_EVENTS)
            .map(|serial| format!("type=CWD msg=audit(1.000:{serial}): cwd=\"/\""))
            .collect();
        let mut assembler = EventAssembler::default();
        let mut ended = 0;
        for line in &many {
            assembler
                .take(line.as_bytes(), |_event| ended += 1)
                .unwrap();
        }
        assert_eq!(ended, 1);
        assembler.finish(|_event| ended += 1);
        assert_eq!(ended, many.len());
    }

    #[test]
    fn nodes_and_milliseconds_are_separate_events() {
        let events = assemble(&[
            "node=a type=CWD msg=audit(1.000:1): cwd=\"/\"",
            "node=b type=CWD msg=audit(1.000:1): cwd=\"/\"",
            "type=CWD msg=audit(1.000:1): cwd=\"/\"",
            "type=CWD msg=audit(1.001:1): cwd=\"/\"",
        ]);
        assert_eq!(events.len(), 4);
    }

    #[test]
    fn malformed_lines_are_refused() {
        let mut assembler = EventAssembler::default();
        let error = assembler.take(b"garbage", |_event| ()).unwrap_err();
        assert_eq!(error.to_string(), "column 1: expected `type=`");
        assert!(assembler.open.is_empty());
    }

    #[test]
    fn oversized_events_are_split() {
        let line = format!("type=CWD msg=audit(1.000:1): cwd=\"{}\"", "x".repeat(8000));
        let mut assembler = EventAssembler::default();
        let mut ended = 0;
        for _ in 0..1000 {
            assembler
                .take(line.as_bytes(), |_event| ended += 1)
                .unwrap();
        }
        assert_eq!(ended, 7);
    }
}
