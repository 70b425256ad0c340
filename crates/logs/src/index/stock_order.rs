//! Notes how the records of a block are grouped and ordered by the stock tools, so that a reader that groups as they
//! do can begin at the block.

use std::collections::HashMap;

use audit::event::Timestamp;
use audit::ids::Serial;
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
    /// Events that begin in the block, each with a greater stamp than all before.
    events: Vec<Event>,
    /// Other events that begin in the block. The hash has a random key: stamps cannot be chosen to collide.
    late: HashMap<Rank, Event, foldhash::fast::RandomState>,
    nodes: Vec<Box<[u8]>>,
    /// The greatest stamp.
    greatest: Rank,
    /// The event of the last record, if it began in the block.
    last: Option<Rank>,
    last_node: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Event {
    rank: Rank,
    /// Number of the node.
    node: usize,
    /// The first record is of a type that stands alone: a second one is an event of its own.
    is_alone: bool,
}

impl StockOrder {
    /// Forgets the events of the block before.
    pub(super) fn begin_block(&mut self) {
        self.events.clear();
        self.late.clear();
        self.nodes.clear();
        self.last = None;
    }

    /// Whether a record is of the event of the last one.
    pub(super) fn is_last(&self, record: &Record<'_>) -> bool {
        self.last == Some(rank(record)) && is_same(&self.last_node, node(record))
    }

    /// Adds a record from before the segment.
    pub(super) fn before(&mut self, record: &Record<'_>) {
        self.greatest = self.greatest.max(rank(record));
    }

    /// Adds an event of a block that is like an earlier one, whose records are regular and do not stand alone. `text`
    /// begins with it.
    pub(super) fn repeated(
        &mut self,
        time: Timestamp,
        Serial(serial): Serial,
        text: &[u8],
        block: &mut Block,
    ) {
        let rank = (time.sec, time.milli.into(), serial.into());
        let node = node_of_line(text);
        self.add_rank(rank, node, false, block);
        self.set_last(rank, node);
    }

    /// Adds a regular record of a block.
    pub(super) fn add(&mut self, record: &Record<'_>, block: &mut Block) {
        let (rank, node) = (rank(record), node(record));
        if record.kind == "EOE" && self.event(rank).is_none() {
            // It begins no event, so its time says nothing about others.
            block.marks.is_irregular |= rank.0 > *block.seconds.end();
            block.marks.is_continued = true;
            block.marks.is_unordered |= rank <= self.greatest;
            note_second(rank.0, block);
            return;
        }
        self.add_rank(rank, node, is_alone(record.kind), block);
        self.set_last(rank, node);
    }

    /// Adds a record; `is_alone` counts if it is the first of its event.
    fn add_rank(&mut self, rank: Rank, node: &[u8], is_alone: bool, block: &mut Block) {
        note_second(rank.0, block);
        if let Some(event) = self.event(rank) {
            // The event may have been complete: then this record begins another.
            let is_other_node = !is_same(self.nodes.get(event.node).map_or(b"", |node| node), node);
            let is_other = event.is_alone || is_other_node || rank.0 < self.greatest.0;
            block.marks.is_unordered |= is_other;
            block.marks.is_continued |= is_other_node;
            return;
        }
        let node = self.number_of(node);
        let event = Event {
            rank,
            node,
            is_alone,
        };
        if rank > self.greatest {
            self.greatest = rank;
            self.events.push(event);
        } else {
            block.marks.is_unordered = true;
            block.marks.is_continued = true;
            self.late.insert(rank, event);
        }
    }

    /// The event of the block with this stamp.
    fn event(&self, rank: Rank) -> Option<Event> {
        // Most records are of the last event, or begin the next one.
        match self.events.last() {
            _ if rank > self.greatest => None,
            Some(last) if last.rank == rank => Some(*last),
            _ => match self.events.binary_search_by_key(&rank, |event| event.rank) {
                Ok(at) => self.events.get(at).copied(),
                Err(_) => self.late.get(&rank).copied(),
            },
        }
    }

    /// Number of a node. One that returns after another has a further number.
    fn number_of(&mut self, node: &[u8]) -> usize {
        if !self.nodes.last().is_some_and(|last| is_same(last, node)) {
            self.nodes.push(node.into());
        }
        self.nodes.len() - 1
    }

    fn set_last(&mut self, rank: Rank, node: &[u8]) {
        if self.last.replace(rank) != Some(rank) || !is_same(&self.last_node, node) {
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

/// Whether two nodes are the same. Most are empty, and the C library's comparison of no bytes at the address of an
/// empty `Vec` or `Box`, which is not mapped, takes some hundred cycles on CPUs with AVX-512.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
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

/// Node of the first line of a text.
fn node_of_line(text: &[u8]) -> &[u8] {
    let node = text.strip_prefix(b"node=").map(|rest| {
        let end = rest.find_byte(b' ').unwrap_or(rest.len());
        rest.get(..end).unwrap_or_default()
    });
    node.unwrap_or_default()
}

/// Whether a text begins with a record that ends an event and may not begin one.
pub(super) fn is_end_record(text: &[u8]) -> bool {
    let rest = match text.strip_prefix(b"node=") {
        Some(rest) => rest.split_once_str(" ").map_or(text, |(_, rest)| rest),
        None => text,
    };
    rest.starts_with(b"type=EOE ")
}

/// Whether the stock tools may take a record of this type for a whole event.
pub(super) fn is_alone(kind: &[u8]) -> bool {
    table::msg_type_number(kind).is_none_or(|kind| {
        !matches!(kind.0, 1006 | 1300..=1319 | 1321..=1326 | 1328..=1405 | 1420..=1999 | 2001..=2099)
    })
}
