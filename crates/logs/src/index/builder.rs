//! Builds segments from the text of a log.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::RangeInclusive;

use audit::record::MAX_LINE_BYTES;
use audit::record::assemble::{EventAssembler, EventRecords};
use audit::record::decode::{self, Record};

use super::segment::{Block, ColumnKind, MAX_BLOCKS, Marks, Parts};
use super::stock_order::StockOrder;
use super::{filter, stock_reading};
use crate::event_values::{Column, values};

/// Size at which a block ends, if no event is open.
pub(super) const BLOCK_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 1 << 20 };
/// A dictionary up to this size is kept even if filters are smaller: it is exact.
const SMALL_DICTIONARY: usize = 4 << 10;
/// Largest dictionary.
const MAX_DICTIONARY: usize = 48 << 10;
/// Longest value in a dictionary.
const MAX_VALUE: usize = 4096;
/// Most words of a filter: more values make it less selective, not larger.
const MAX_FILTER_WORDS: usize = 224;

/// Builds one segment, line by line. A value belongs to the block in which its event begins.
pub(super) struct Builder {
    assembler: EventAssembler,
    blocks: Vec<Block>,
    columns: Vec<ColumnBuilder>,
    /// End of the last block, when it is known: only events that began before it are still awaited.
    end: Option<u64>,
    next_lead: u64,
    /// Size at which a block ends, if no event is open; twice that is its end in any case.
    block_bytes: u64,
    order: StockOrder,
}

/// Hashes are mixed already.
type PlainHasher = BuildHasherDefault<IdentityHasher>;

#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.0 = self.0 << 8 | u64::from(byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Values of one column in the blocks of the segment.
#[derive(Default)]
struct ColumnBuilder {
    dictionary: HashMap<u64, Entry, PlainHasher>,
    dictionary_bytes: usize,
    /// The dictionary became too large, or two values have the same hash.
    overflowed: bool,
    /// Hashes of each block, after an overflow.
    hashes: Vec<HashSet<u64, PlainHasher>>,
    /// Hash and block of the last value.
    last: Option<(u64, usize)>,
}

struct Entry {
    value: Box<[u8]>,
    blocks: u64,
}

/// All columns, in the order of their numbers.
const COLUMNS: [Column; Column::COUNT] = [
    Column::Type,
    Column::Key,
    Column::Syscall,
    Column::Auid,
    Column::Uid,
    Column::Euid,
    Column::Exe,
    Column::Comm,
    Column::Ses,
    Column::Success,
    Column::Exit,
    Column::Pid,
    Column::Ppid,
    Column::Path,
    Column::Directory,
    Column::FileName,
    Column::Address,
    Column::Account,
];

impl Builder {
    /// A builder of the segment that starts at `start`. Its first line is the one at `lead`.
    pub(super) fn new(start: u64, lead: u64, block_bytes: u64) -> Self {
        let mut builder = Self {
            assembler: EventAssembler::default(),
            blocks: Vec::new(),
            columns: Vec::new(),
            end: None,
            next_lead: start,
            block_bytes,
            order: StockOrder::default(),
        };
        builder
            .columns
            .resize_with(Column::COUNT, ColumnBuilder::default);
        builder.begin_block(start, lead);
        builder
    }

    /// Adds the line at `offset`. Returns whether the segment is complete; the line then belongs to the next one.
    pub(super) fn line(&mut self, line: &[u8], offset: u64) -> bool {
        let record = decode::header(line).ok();
        // Where the stock tools have an end record, it is in the block of its event.
        let is_end =
            record.is_some_and(|record| record.kind == "EOE" && self.order.is_last(&record));
        if !is_end {
            self.end_block_at(offset);
        }
        if let Some(end) = self.end
            && self.assembler.first_open().is_none_or(|open| open >= end)
        {
            return true;
        }
        if self.end.is_none() {
            self.note(record.as_ref(), line, offset);
        }
        let _malformed = self.assembler.take(line, offset);
        self.index_ended();
        false
    }

    /// Notes that a line was too long to be looked at.
    pub(super) fn too_long(&mut self) {
        if self.end.is_none()
            && let Some(block) = self.blocks.last_mut()
        {
            block.marks = Marks {
                is_irregular: true,
                is_continued: true,
                is_unordered: true,
            };
            block.seconds = 0..=u64::MAX;
        }
    }

    /// Notes what the stock tools read in a line.
    fn note(&mut self, record: Option<&Record<'_>>, line: &[u8], offset: u64) {
        let at = self.blocks.len().saturating_sub(1);
        let Some(block) = self.blocks.last_mut() else {
            return;
        };
        if offset < block.start {
            if let Some(record) = record {
                self.order.before(record);
            }
            return;
        }
        let columns = &mut self.columns;
        let is_regular = record.is_some_and(|record| {
            stock_reading::values(record, line, |column, value| {
                if let Some(builder) = columns.get_mut(usize::from(column.number())) {
                    builder.add(filter::hash(column.number(), value), value, at);
                }
            })
        });
        match record.filter(|_| is_regular) {
            Some(record) => self.order.add(record, block),
            None => {
                for line in line.chunks(MAX_LINE_BYTES) {
                    self.order.irregular(line, block);
                }
            }
        }
    }

    /// Finishes a complete segment, or one that the text ends in at `text_end`. Returns its bytes; `None` if it has
    /// no text.
    pub(super) fn finish(mut self, text_end: u64) -> Option<Vec<u8>> {
        let end = self.end.unwrap_or(text_end);
        let open = self.assembler.first_open();
        if self.end.is_none() {
            self.next_lead = open.unwrap_or(end);
        }
        let open_at_end = open.is_some_and(|open| open < end);
        self.assembler.end_all();
        self.index_ended();
        let last = self.blocks.last_mut()?;
        last.end = end;
        if last.start >= end {
            self.blocks.pop();
        }
        if self.blocks.is_empty() {
            return None;
        }
        let count = self.blocks.len();
        let columns = self.columns.into_iter().zip(COLUMNS);
        let columns = columns
            .map(|(builder, column)| {
                let (kind, bytes) = builder.encode(count);
                (column, kind, bytes)
            })
            .collect();
        let parts = Parts {
            blocks: &self.blocks,
            next_lead: self.next_lead,
            open_at_end,
            columns,
        };
        Some(parts.encode())
    }

    /// Ends the block, and the segment, if that is due at `offset`, the start of a line.
    fn end_block_at(&mut self, offset: u64) {
        let count = self.blocks.len();
        let Some(block) = self.blocks.last_mut() else {
            return;
        };
        let size = offset.saturating_sub(block.start);
        if self.end.is_some() || size < self.block_bytes {
            return;
        }
        let lead = self.assembler.first_open();
        if lead.is_some() && size < 2 * self.block_bytes {
            return;
        }
        block.end = offset;
        let lead = lead.unwrap_or(offset);
        if count == MAX_BLOCKS {
            self.end = Some(offset);
            self.next_lead = lead;
        } else {
            self.begin_block(offset, lead);
        }
    }

    fn begin_block(&mut self, start: u64, lead: u64) {
        self.order.begin_block();
        self.blocks.push(Block {
            start,
            end: start,
            lead,
            // Nothing, until there is an event.
            time_ms: RangeInclusive::new(u64::MAX, 0),
            serial: RangeInclusive::new(u32::MAX, 0),
            seconds: RangeInclusive::new(u64::MAX, 0),
            marks: Marks::default(),
        });
    }

    fn index_ended(&mut self) {
        while let Some(event) = self.assembler.next_ended() {
            self.index(&event);
            self.assembler.recycle(event);
        }
    }

    /// Adds the values of an event, unless it belongs to another segment.
    fn index(&mut self, event: &EventRecords) {
        let start = event.start();
        if self.end.is_some_and(|end| start >= end) {
            return;
        }
        let Some(at) = self.blocks.iter().rposition(|block| block.start <= start) else {
            return;
        };
        if let Some(block) = self.blocks.get_mut(at) {
            let time = event.time();
            let ms = time
                .sec
                .saturating_mul(1000)
                .saturating_add(time.milli.into());
            let (least, greatest) = (*block.time_ms.start(), *block.time_ms.end());
            block.time_ms = least.min(ms)..=greatest.max(ms);
            let serial = event.serial().0;
            let (least, greatest) = (*block.serial.start(), *block.serial.end());
            block.serial = least.min(serial)..=greatest.max(serial);
        }
        let columns = &mut self.columns;
        let mut is_deep = false;
        values(event, |column, value| {
            let whole = value.len();
            let value = filter::indexed(column, value);
            is_deep &= column == Column::Directory;
            if value.len() < whole && std::mem::replace(&mut is_deep, true) {
                return; // the same directory again, for each of those below it
            }
            if let Some(builder) = columns.get_mut(usize::from(column.number())) {
                if value.len() < whole && !builder.overflowed {
                    builder.overflow(); // a dictionary has whole values
                }
                builder.add(filter::hash(column.number(), value), value, at);
            }
        });
    }
}

impl ColumnBuilder {
    fn add(&mut self, hash: u64, value: &[u8], block: usize) {
        if self.last.replace((hash, block)) == Some((hash, block)) && self.overflowed {
            return;
        }
        if !self.overflowed {
            match self.dictionary.get_mut(&hash) {
                Some(entry) if *entry.value == *value => {
                    entry.blocks |= 1 << block;
                    return;
                }
                None if value.len() <= MAX_VALUE
                    && self.dictionary_bytes + value.len() < MAX_DICTIONARY =>
                {
                    self.dictionary_bytes += value.len() + 10;
                    let entry = Entry {
                        value: value.into(),
                        blocks: 1 << block,
                    };
                    self.dictionary.insert(hash, entry);
                    return;
                }
                _ => self.overflow(),
            }
        }
        self.insert(hash, block);
    }

    fn insert(&mut self, hash: u64, block: usize) {
        if self.hashes.len() <= block {
            self.hashes.resize_with(block + 1, HashSet::default);
        }
        if let Some(hashes) = self.hashes.get_mut(block) {
            hashes.insert(hash);
        }
    }

    /// Moves the values of the dictionary to the hashes.
    fn overflow(&mut self) {
        self.overflowed = true;
        for (hash, entry) in std::mem::take(&mut self.dictionary) {
            self.insert_in(hash, entry.blocks);
        }
    }

    fn insert_in(&mut self, hash: u64, blocks: u64) {
        for block in (0..MAX_BLOCKS).filter(|&block| blocks >> block & 1 != 0) {
            self.insert(hash, block);
        }
    }

    fn encode(mut self, blocks: usize) -> (ColumnKind, Vec<u8>) {
        if !self.overflowed {
            let pairs: u32 = self
                .dictionary
                .values()
                .map(|entry| entry.blocks.count_ones())
                .sum();
            let filters = usize::try_from(pairs).unwrap_or(usize::MAX) / 8 * 11 + blocks * 2;
            if self.dictionary_bytes <= SMALL_DICTIONARY || self.dictionary_bytes <= filters {
                return (ColumnKind::Dictionary, self.dictionary_bytes());
            }
            self.overflow();
        }
        self.hashes.resize_with(blocks, HashSet::default);
        let (mut counts, mut words) = (Vec::new(), Vec::new());
        for hashes in &self.hashes {
            let hashes: Vec<u64> = hashes.iter().copied().collect();
            let filter = filter::build(&hashes, MAX_FILTER_WORDS);
            counts.extend_from_slice(&u16::try_from(filter.len()).unwrap_or(0).to_le_bytes());
            words.extend(filter.into_iter().flat_map(u64::to_le_bytes));
        }
        counts.append(&mut words);
        (ColumnKind::Filters, counts)
    }

    /// The dictionary in the index format; sorted, so that the same text has the same index.
    fn dictionary_bytes(&self) -> Vec<u8> {
        let mut entries: Vec<&Entry> = self.dictionary.values().collect();
        entries.sort_unstable_by(|one, other| one.value.cmp(&other.value));
        let mut bytes = Vec::with_capacity(self.dictionary_bytes);
        for entry in entries {
            bytes.extend_from_slice(&entry.blocks.to_le_bytes());
            let len = u16::try_from(entry.value.len()).unwrap_or(0);
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(&entry.value);
        }
        bytes
    }
}
