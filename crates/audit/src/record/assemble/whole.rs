//! Finds events whose lines are adjacent, as most are, without copying their lines.

use bstr::ByteSlice as _;

use super::ends_event;
use super::line::Line;
use crate::event::Timestamp;
use crate::ids::Serial;
use crate::record::decode::{ENRICHMENT, Header, Record};

/// Longest event that is found: the search for the end of one that has none costs little.
const MAX_BYTES: usize = 32 << 10;

/// Finds events. Its memory is reused.
#[derive(Debug, Default)]
pub struct WholeEventFinder {
    lines: Vec<Line>,
}

/// An event whose lines are adjacent. The last one ends it, and [`super::EventAssembler`] makes the same event of the
/// lines if [`super::EventAssembler::pass`] passes it.
#[derive(Clone, Copy, Debug)]
pub struct WholeEvent<'a> {
    text: &'a [u8],
    lines: &'a [Line],
    /// An EOE record of the event behind the record that ends it.
    end_record: Option<EndRecord<'a>>,
    node: usize,
    time: Timestamp,
    serial: Serial,
    stamp_len: usize,
}

/// An EOE record.
#[derive(Clone, Copy, Debug)]
struct EndRecord<'a> {
    /// All lines up to this one.
    text: &'a [u8],
    /// Start of the stamp.
    stamp: usize,
}

/// What all lines of an event have in common.
#[derive(Clone, Copy)]
struct Common<'a> {
    /// Text before the type.
    prefix: &'a [u8],
    /// The stamp, with the colon behind it.
    stamp: &'a [u8],
    serial: Serial,
}

impl WholeEventFinder {
    /// The event at the start of `text`; `None` if the text has not all of it, a line between is of another event or
    /// malformed, or the event is long. All lines write the stamp with the same bytes.
    pub fn at_start<'a>(&'a mut self, text: &'a [u8]) -> Option<WholeEvent<'a>> {
        self.lines.clear();
        let text = text.get(..MAX_BYTES).unwrap_or(text);
        let first_line = text.get(..text.find_byte(b'\n')?)?;
        let first = Header::parse(first_line).ok()?;
        // From the blank after the type to the colon after the stamp.
        let stamp = first_line.get(first.stamp..first.end)?;
        let common = Common {
            prefix: first_line.get(..first.kind_start())?,
            stamp,
            serial: first.serial,
        };
        let mut line = Line::of(&first, 0..first_line.len());
        let mut is_last = ends_event(first.kind, first.serial);
        while !is_last {
            let start = line.range.end + 1;
            self.lines.push(line);
            (line, is_last) = common.line(text, start)?;
        }
        let end = line.range.end + 1;
        let end_record = common.line(text, end).and_then(|(line, _)| {
            let is_end = text.get(line.kind..)?.starts_with(b"EOE ");
            is_end.then_some(EndRecord {
                text: text.get(..=line.range.end)?,
                stamp: line.stamp,
            })
        });
        self.lines.push(line);
        Some(WholeEvent {
            text: text.get(..end)?,
            end_record,
            lines: &self.lines,
            node: first.node.map_or(0, |node| node.len()),
            time: first.time,
            serial: first.serial,
            stamp_len: stamp.len() - b"):".len(),
        })
    }
}

impl Common<'_> {
    /// The line of the event at `start`, and whether it ends the event.
    fn line(&self, text: &[u8], start: usize) -> Option<(Line, bool)> {
        let after = text.get(start..)?.strip_prefix(self.prefix)?;
        // A line without a blank is no record, and belongs to none.
        let kind_len = after
            .iter()
            .position(|&byte| matches!(byte, b' ' | b'\n'))?;
        let after_kind = after.get(kind_len..)?.strip_prefix(b" msg=audit(")?;
        let body = after_kind.strip_prefix(self.stamp)?;
        let body_start = text.len() - body.len();
        let line = Line {
            range: start..body_start + body.find_byte(b'\n')?,
            kind: start + self.prefix.len(),
            stamp: body_start - self.stamp.len(),
            body: body_start,
        };
        Some((line, ends_event(after.get(..kind_len)?, self.serial)))
    }
}

impl<'a> WholeEvent<'a> {
    /// The lines, each with its newline.
    #[must_use]
    pub const fn text(&self) -> &'a [u8] {
        self.text
    }

    /// The lines with the EOE record of the event, if one follows them directly. [`super::EventAssembler`] makes an
    /// event of its own of it.
    #[must_use]
    pub fn text_with_end(&self) -> &'a [u8] {
        self.end_record.map_or(self.text, |record| record.text)
    }

    /// Number of lines.
    #[must_use]
    pub const fn line_count(&self) -> usize {
        self.lines.len()
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

    /// Length of time and serial in each line.
    #[must_use]
    pub const fn stamp_len(&self) -> usize {
        self.stamp_len
    }

    /// Where time and serial begin in each line.
    pub fn stamps(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.lines.iter().map(|line| line.stamp)
    }

    /// Where time and serial begin in each line of [`WholeEvent::text_with_end`].
    pub fn stamps_with_end(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.stamps()
            .chain(self.end_record.map(|record| record.stamp))
    }

    /// The records.
    pub fn records(&self) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let Self {
            text,
            lines,
            time,
            serial,
            ..
        } = *self;
        let is_enriched = text.contains(&ENRICHMENT);
        let record = move |line: &Line| line.record(text, is_enriched, time, serial);
        lines.iter().filter_map(record)
    }

    /// Where the lines are in the text.
    pub(super) const fn lines(&self) -> &'a [Line] {
        self.lines
    }

    /// Length of the node name in the first line; 0 without one.
    pub(super) const fn node_len(&self) -> usize {
        self.node
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EventAssembler, EventRecords};
    use super::*;

    fn assembled(text: &[u8]) -> Vec<EventRecords> {
        let mut assembler = EventAssembler::default();
        for line in text.lines_with_terminator() {
            let _malformed = assembler.take(line, 5);
        }
        std::iter::from_fn(|| assembler.next_ended()).collect()
    }

    #[test]
    fn whole_events_are_those_of_the_assembler() {
        let stamp = "msg=audit(1700000000.042:7):";
        for event in [
            format!(
                "type=SYSCALL {stamp} a=1\x1dA=x\ntype=CWD {stamp} cwd=\"/\"\ntype=EOE {stamp} \n"
            ),
            format!("type=USER_LOGIN {stamp} pid=1\n"),
            format!("node=a type=BPF {stamp} a=1\r\nnode=a type=PROCTITLE {stamp}\n"),
            format!("node= type=BPF {stamp} a=1\nnode= type=PROCTITLE {stamp} p\n"),
        ] {
            let text = format!("{event}type=CWD msg=audit(1700000000.042:8): cwd=\"/\"\n");
            let mut finder = WholeEventFinder::default();
            let whole = finder.at_start(text.as_bytes()).unwrap();
            assert_eq!(whole.text(), event.as_bytes());
            let expected = assembled(text.as_bytes());
            assert!(whole.records().eq(expected[0].records()), "{event}");
            assert_eq!(whole.line_count(), event.lines().count());
            assert_eq!(whole.text_with_end(), whole.text());
            for at in whole.stamps() {
                assert_eq!(
                    event.get(at..at + whole.stamp_len()),
                    Some("1700000000.042:7")
                );
            }
            let mut assembler = EventAssembler::default();
            assembler.take_whole(&whole, 5);
            assert_eq!(assembler.next_ended().as_ref(), expected.first());
            for end in 0..event.len() {
                assert!(finder.at_start(&text.as_bytes()[..end]).is_none(), "{end}");
            }
        }
    }

    #[test]
    fn end_record_behind_an_event_is_found() {
        let event =
            "node=a type=BPF msg=audit(1.000:7): a\nnode=a type=PROCTITLE msg=audit(1.000:7): p\n";
        let mut finder = WholeEventFinder::default();
        for (after, is_found) in [
            ("node=a type=EOE msg=audit(1.000:7): \n", true),
            ("node=a type=EOE msg=audit(1.000:7):", false),
            ("node=a type=EOE msg=audit(1.000:8): \n", false),
            ("node=b type=EOE msg=audit(1.000:7): \n", false),
            ("type=EOE msg=audit(1.000:7): \n", false),
            ("node=a type=EOE1 msg=audit(1.000:7): \n", false),
        ] {
            let text = format!("{event}{after}");
            let whole = finder.at_start(text.as_bytes()).unwrap();
            assert_eq!(whole.text(), event.as_bytes());
            let with_end = whole.text_with_end();
            assert_eq!(with_end == text.as_bytes(), is_found, "{after}");
            for at in whole.stamps_with_end() {
                assert_eq!(with_end.get(at..at + 7), Some(&b"1.000:7"[..]));
            }
            assert_eq!(whole.stamps_with_end().count(), 2 + usize::from(is_found));
        }
    }

    #[test]
    fn other_events_are_left_to_the_assembler() {
        let stamp = "msg=audit(1.000:7):";
        let long = "x".repeat(MAX_BYTES);
        for text in [
            format!("type=CWD {stamp} a=1\ntype=CWD msg=audit(1.000:8): a=1\ntype=EOE {stamp} \n"),
            format!("type=CWD {stamp} a=1\ntype=CWD msg=audit(01.000:7): a=1\ntype=EOE {stamp} \n"),
            format!("type=CWD {stamp} a=1\nnode=a type=EOE {stamp} \n"),
            format!("node=a type=CWD {stamp} a=1\ntype=EOE {stamp} \n"),
            format!("type=CWD {stamp} a=1\n\ntype=EOE {stamp} \n"),
            format!("type=CWD {stamp} a=1\ntype=X\ntype=CWD {stamp} a=1\ntype=EOE {stamp} \n"),
            format!("type=CWD {stamp} a=1\ntype=CWD  {stamp} a=1\ntype=EOE {stamp} \n"),
            format!("type=CWD {stamp} a={long}\ntype=EOE {stamp} \n"),
            "type=EOE msg=audit(1.000:4294967296): \n".to_owned(),
            "type=EOE msg=audit(1.000:7)\n".to_owned(),
        ] {
            let mut finder = WholeEventFinder::default();
            assert!(finder.at_start(text.as_bytes()).is_none(), "{text}");
        }
    }
}
