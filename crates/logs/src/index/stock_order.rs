//! Notes how the records of a block are grouped and ordered by the stock tools, so that a reader that groups as they
//! do can begin at the block.

use std::collections::HashMap;

use audit::record::decode::Record;
use audit::table;
use bstr::ByteSlice as _;

use super::segment::Block;
use crate::ctext::until_nul;
use crate::stamp::{self, BadStamp};

/// Time and serial of an event.
type Rank = (u64, u32, u64);

/// What was seen of the text of a segment.
#[derive(Default)]
pub(super) struct StockOrder {
    /// Events that begin in the block.
    events: HashMap<Rank, Event>,
    /// The greatest stamp.
    greatest: Rank,
    /// The event of the last record, if it began in the block.
    last: Option<Rank>,
    last_node: Vec<u8>,
}

struct Event {
    node: Box<[u8]>,
    /// The first record is of a type that stands alone: a second one is an event of its own.
    is_alone: bool,
}

impl StockOrder {
    /// Forgets the events of the block before.
    pub(super) fn begin_block(&mut self) {
        self.events.clear();
        self.last = None;
    }

    /// Whether a record is of the event of the last one.
    pub(super) fn is_last(&self, record: &Record<'_>) -> bool {
        self.last == Some(rank(record)) && self.last_node == node(record)
    }

    /// Adds a record from before the segment.
    pub(super) fn before(&mut self, record: &Record<'_>) {
        self.greatest = self.greatest.max(rank(record));
    }

    /// Adds a regular record of a block.
    pub(super) fn add(&mut self, record: &Record<'_>, block: &mut Block) {
        let (rank, node) = (rank(record), node(record));
        let greatest_second = *block.seconds.end();
        note_second(rank.0, block);
        if let Some(event) = self.events.get(&rank) {
            // The event may have been complete: then this record begins another.
            let is_other = event.is_alone || *event.node != *node || rank.0 < self.greatest.0;
            block.marks.is_unordered |= is_other;
            block.marks.is_continued |= *event.node != *node;
        } else {
            if rank <= self.greatest {
                block.marks.is_unordered = true;
                block.marks.is_continued = true;
            }
            if record.kind == "EOE" {
                // It begins no event, so its time says nothing about others.
                block.marks.is_continued = true;
                block.marks.is_irregular |= rank.0 > greatest_second;
                return;
            }
            self.greatest = self.greatest.max(rank);
            let event = Event {
                node: node.into(),
                is_alone: is_alone(record.kind),
            };
            self.events.insert(rank, event);
        }
        if self.last.replace(rank) != Some(rank) || self.last_node != node {
            self.last_node.clear();
            self.last_node.extend_from_slice(node);
        }
    }

    /// Adds a line that the index reads otherwise than the stock tools.
    pub(super) fn irregular(&mut self, line: &[u8], block: &mut Block) {
        self.last = None;
        match stamp::parse(until_nul(line), 0) {
            Err(BadStamp::NoRecord) => {}
            Err(BadStamp::OutOfRange(_)) => block.marks.is_irregular = true,
            Ok(stamp) => {
                block.marks.is_irregular = true;
                block.marks.is_continued = true;
                block.marks.is_unordered = true;
                let rank = (stamp.seconds, stamp.millis, stamp.serial);
                note_second(rank.0, block);
                self.greatest = self.greatest.max(rank);
            }
        }
    }
}

fn note_second(second: u64, block: &mut Block) {
    let (least, greatest) = (*block.seconds.start(), *block.seconds.end());
    block.seconds = least.min(second)..=greatest.max(second);
}

fn rank(record: &Record<'_>) -> Rank {
    (
        record.time.sec,
        record.time.milli.into(),
        record.serial.0.into(),
    )
}

fn node<'r>(record: &Record<'r>) -> &'r [u8] {
    record.node.map_or(b"", |node| node.as_bytes())
}

/// Whether the stock tools may take a record of this type for a whole event.
fn is_alone(kind: &[u8]) -> bool {
    match kind {
        b"SYSCALL" | b"PATH" | b"CWD" | b"EXECVE" | b"SOCKADDR" => false,
        _ => table::msg_type_number(kind).is_none_or(|kind| {
            !matches!(kind.0, 1006 | 1300..=1319 | 1321..=1326 | 1328..=1405 | 1420..=1999 | 2001..=2099)
        }),
    }
}
