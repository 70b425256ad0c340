//! Groups the records of a log into events.
//!
//! Records of one event have the same node, time and serial. Records of several events may be interleaved.
//! An event ends with an EOE or PROCTITLE record, or with a record of a type that is always alone.
//! Otherwise it ends when a record is two seconds newer, or after [`MAX_OPEN_EVENTS`] other events. A later record
//! starts a new event.
//!
//! An event of tollgate also ends when the one with the next serial begins: the daemon writes events one after another. Rules
//! of the list `exclude` can leave out its PROCTITLE record, and it writes no EOE record to the log.
//!
//! Buffers are reused: after the first events, nothing is allocated per event or record.
//!
//! # Source
//! `au_check_events` and `auparse_feed` in `auparse/auparse.c`, audit-userspace 4.2: the two seconds,
//! and the types of single-record events.

mod line;
pub mod whole;

use std::collections::VecDeque;

use bstr::{BStr, ByteSlice as _};

use super::decode::{DecodeError, ENRICHMENT, Header, Record};
use crate::event::Timestamp;
use crate::ids::{MsgType, Serial};
use crate::table;
use line::Line;
use whole::WholeEvent;

/// Maximum number of open events. One more ends the oldest.
pub const MAX_OPEN_EVENTS: usize = 1024;
/// Maximum size of all open events. More ends the oldest.
const MAX_OPEN_BYTES: usize = 16 << 20;
/// Maximum size of an event. Further records start a new event.
const MAX_EVENT_BYTES: usize = 1 << 20;
/// Default of `end_of_event_timeout`: age in seconds, by the log's time, at which an open event ends.
pub const END_OF_EVENT_TIMEOUT_SECS: u64 = 2;

/// Lines of one event, in log order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecords {
    /// Bytes of all lines, each with its newline.
    text: Vec<u8>,
    lines: Vec<Line>,
    /// Length of the node name in the first line; 0 without one.
    node_len: usize,
    time: Timestamp,
    serial: Serial,
    start: u64,
    /// Position of the first line, also of parts before that were ended for their size.
    whole_start: u64,
}

impl EventRecords {
    const EMPTY: Self = Self {
        text: Vec::new(),
        lines: Vec::new(),
        node_len: 0,
        time: Timestamp { sec: 0, milli: 0 },
        serial: Serial(0),
        start: 0,
        whole_start: 0,
    };

    /// The lines, each with its newline.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The records. Their headers were decoded before, and have the same time and serial.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let is_enriched = self.text.find_byte(ENRICHMENT).is_some();
        let lines = self.lines.iter();
        lines.filter_map(move |line| line.record(&self.text, is_enriched, self.time, self.serial))
    }

    /// Node that wrote the event, if the log names it.
    #[must_use]
    pub fn node(&self) -> Option<&BStr> {
        let prefix = b"node=".len();
        let name = self.text.get(prefix..prefix + self.node_len)?;
        (!name.is_empty()).then(|| BStr::new(name))
    }

    /// Time of the event.
    #[must_use]
    pub const fn time(&self) -> Timestamp {
        self.time
    }

    /// Serial number of the event.
    #[must_use]
    pub const fn serial(&self) -> Serial {
        self.serial
    }

    /// Position of the first line, as passed to [`EventAssembler::take`].
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    fn contains(&self, header: &Header<'_>) -> bool {
        self.serial == header.serial && self.time == header.time && self.is_of_node(header)
    }

    fn is_of_node(&self, header: &Header<'_>) -> bool {
        self.node() == header.node.filter(|node| !node.is_empty())
    }

    /// Whether it is the event of tollgate before that of a serial.
    fn is_before(&self, serial: Serial) -> bool {
        self.serial.is_tollgates() && self.serial.next() == serial
    }

    fn push(&mut self, header: &Header<'_>, line: &[u8]) {
        let start = self.text.len();
        self.lines.push(Line::of(header, start..start + line.len()));
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
    }
}

/// Groups lines into events.
#[derive(Debug)]
pub struct EventAssembler {
    open: VecDeque<EventRecords>,
    open_bytes: usize,
    ended: VecDeque<EventRecords>,
    free: Vec<EventRecords>,
    timeout_secs: u64,
    /// Second of the last record: open events are checked when it changes.
    checked: Option<u64>,
}

impl Default for EventAssembler {
    fn default() -> Self {
        Self::with_timeout(END_OF_EVENT_TIMEOUT_SECS)
    }
}

impl EventAssembler {
    /// An assembler that ends an event when a record is `timeout_secs` newer.
    #[must_use]
    pub const fn with_timeout(timeout_secs: u64) -> Self {
        Self {
            open: VecDeque::new(),
            open_bytes: 0,
            ended: VecDeque::new(),
            free: Vec::new(),
            timeout_secs,
            checked: None,
        }
    }

    /// Adds a line, with or without its newline, which begins at `position` of the log. Afterwards, call
    /// [`EventAssembler::drain_ended`], or [`EventAssembler::next_ended`] until it returns `None`.
    ///
    /// # Errors
    /// [`DecodeError`] if the line has no record header. The line is dropped.
    pub fn take(&mut self, line: &[u8], position: u64) -> Result<(), DecodeError> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let header = Header::parse(line)?;
        self.end_older_than(header.time.sec);
        // The records of most events are adjacent.
        let at = self.open.iter().rposition(|open| open.contains(&header));
        let mut event = match at.and_then(|at| self.open.remove(at)) {
            Some(open) => {
                self.open_bytes -= open.text.len();
                if open.text.len() + line.len() < MAX_EVENT_BYTES {
                    open
                } else {
                    let mut rest = self.new_event(&header, position);
                    rest.whole_start = open.whole_start;
                    self.ended.push_back(open);
                    rest
                }
            }
            None => {
                self.end_before(&header);
                self.new_event(&header, position)
            }
        };
        event.push(&header, line);
        if ends_event(header.kind, header.serial) {
            self.ended.push_back(event);
            return Ok(());
        }
        self.open_bytes += event.text.len();
        self.open.push_back(event);
        while self.open.len() > MAX_OPEN_EVENTS || self.open_bytes > MAX_OPEN_BYTES {
            self.end_at(0);
        }
        Ok(())
    }

    /// Whether no event is open or waits for [`EventAssembler::next_ended`].
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.ended.is_empty()
    }

    /// Whether events have ended, and [`EventAssembler::next_ended`] has not returned them.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Passes an event whose lines are adjacent, and need not be kept: other events are as if
    /// [`EventAssembler::take`] got each line, whose lengths add up to `len`. Returns false, and changes nothing, if it
    /// may be a part of an open event, or would end one because too many are open, or it is the next one of tollgate.
    pub fn pass(&mut self, time: Timestamp, serial: Serial, len: usize) -> bool {
        let has_room = self.open.len() < MAX_OPEN_EVENTS && self.open_bytes + len <= MAX_OPEN_BYTES;
        let is_open = |open: &EventRecords| {
            open.serial == serial && open.time == time || open.is_before(serial)
        };
        if !has_room || self.open.iter().any(is_open) {
            return false;
        }
        self.end_older_than(time.sec);
        true
    }

    /// Adds all lines of an event, the first of which begins at `position` of the log: as if
    /// [`EventAssembler::take`] got each.
    pub fn take_whole(&mut self, event: &WholeEvent<'_>, position: u64) {
        if !self.pass(event.time(), event.serial(), event.text().len()) {
            for line in event.text().lines_with_terminator() {
                let _decoded_before = self.take(line, position);
            }
            return;
        }
        let mut copy = self.free.pop().unwrap_or(EventRecords::EMPTY);
        copy.text.clear();
        copy.text.extend_from_slice(event.text());
        copy.lines.clear();
        copy.lines.extend_from_slice(event.lines());
        copy.node_len = event.node_len();
        copy.time = event.time();
        copy.serial = event.serial();
        copy.start = position;
        copy.whole_start = position;
        self.ended.push_back(copy);
    }

    /// Ends all open events, at the end of the log.
    pub fn end_all(&mut self) {
        while !self.open.is_empty() {
            self.end_at(0);
        }
    }

    /// Ends the open events but those that may go on now, at the end of a log that grows.
    pub fn end_all_but_those_of(&mut self, sec: u64) {
        let mut at = 0;
        while let Some(open) = self.open.get(at) {
            if open.time.sec.abs_diff(sec) > self.timeout_secs {
                self.end_at(at);
            } else {
                at += 1;
            }
        }
    }

    /// The next event that has ended. Return it with [`EventAssembler::recycle`] to reuse its buffer.
    pub fn next_ended(&mut self) -> Option<EventRecords> {
        self.ended.pop_front()
    }

    /// Passes the events that have ended to `ended`.
    pub fn drain_ended(&mut self, mut ended: impl FnMut(&EventRecords)) {
        while let Some(event) = self.next_ended() {
            ended(&event);
            self.recycle(event);
        }
    }

    /// Drops the open events: the log was cut where they begin.
    pub fn drop_open(&mut self) {
        self.open_bytes = 0;
        while let Some(event) = self.open.pop_front() {
            self.recycle(event);
        }
    }

    /// Continues with lines of another place in the log.
    pub fn forget_time(&mut self) {
        self.checked = None;
    }

    /// Reuses the buffer of an event.
    pub fn recycle(&mut self, event: EventRecords) {
        const KEPT: usize = 64;
        const KEPT_BYTES: usize = 64 << 10;
        if self.free.len() < KEPT && event.text.capacity() <= KEPT_BYTES {
            self.free.push(event);
        }
    }

    /// Position of the first line of the open event that began first; `None` if no event is open.
    #[must_use]
    pub fn first_open(&self) -> Option<u64> {
        self.open.iter().map(|open| open.start).min()
    }

    /// Position of the first line of the event that began first, of those that are open or were not returned; `None` if
    /// there are none.
    #[must_use]
    pub fn first_kept(&self) -> Option<u64> {
        let kept = self.open.iter().chain(&self.ended);
        kept.map(|event| event.start).min()
    }

    /// As [`EventAssembler::first_open`], but where an event was ended for its size and goes on, the position of its
    /// first line: if lines are added from there on, the parts are the same.
    #[must_use]
    pub fn first_open_whole(&self) -> Option<u64> {
        self.open.iter().map(|open| open.whole_start).min()
    }

    fn new_event(&mut self, header: &Header<'_>, position: u64) -> EventRecords {
        let mut event = self.free.pop().unwrap_or(EventRecords::EMPTY);
        event.text.clear();
        event.lines.clear();
        event.node_len = header.node.map_or(0, |node| node.len());
        event.time = header.time;
        event.serial = header.serial;
        event.start = position;
        event.whole_start = position;
        event
    }

    fn end_older_than(&mut self, sec: u64) {
        if self.checked.replace(sec) == Some(sec) {
            return;
        }
        let mut at = 0;
        while let Some(open) = self.open.get(at) {
            if open.time.sec.saturating_add(self.timeout_secs) <= sec {
                self.end_at(at);
            } else {
                at += 1;
            }
        }
    }

    /// Ends the event of tollgate before the one that begins.
    fn end_before(&mut self, next: &Header<'_>) {
        if !next.serial.is_tollgates() {
            return;
        }
        let is_before = |open: &EventRecords| open.is_before(next.serial) && open.is_of_node(next);
        if let Some(at) = self.open.iter().position(is_before) {
            self.end_at(at);
        }
    }

    fn end_at(&mut self, at: usize) {
        if let Some(event) = self.open.remove(at) {
            self.open_bytes -= event.text.len();
            self.ended.push_back(event);
        }
    }
}

/// Whether this record is the last of its event. The kernel writes `CONFIG_CHANGE` also within a syscall; one of tollgate is
/// an event by itself.
///
/// # Source
/// `audit_is_last_record` in `auparse/auparse.c`, audit-userspace 4.2: PROCTITLE and EOE end an event. Types
/// outside `AUDIT_FIRST_EVENT` to `AUDIT_LAST_EVENT` and outside the security modules' range are single-record
/// events, except LOGIN, which the kernel may write within a syscall.
fn ends_event(kind: &[u8], serial: Serial) -> bool {
    match kind {
        b"EOE" | b"PROCTITLE" => return true,
        b"CONFIG_CHANGE" => return serial.is_tollgates(),
        // The most frequent ones, without a search in the table.
        b"SYSCALL" | b"PATH" | b"CWD" | b"EXECVE" | b"SOCKADDR" => return false,
        _ => {}
    }
    let number = table::msg_type_number(kind);
    number.is_some_and(|MsgType(number)| !matches!(number, 1006 | 1300..=1499 | 1700..=1799))
}

#[cfg(test)]
mod tests;
