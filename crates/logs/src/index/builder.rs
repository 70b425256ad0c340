//! Builds segments from the text of a log.

use std::ops::RangeInclusive;

use audit::event::Timestamp;
use audit::ids::Serial;
use audit::record::MAX_LINE_BYTES;
use audit::record::assemble::whole::{WholeEvent, WholeEventFinder};
use audit::record::assemble::{EventAssembler, EventRecords};
use audit::record::decode::{self, Record};
use bstr::ByteSlice as _;

use super::column_builder::ColumnBuilder;
use super::path_parts::{self, LastPath};
use super::seen_events::{Repeated, SeenEvents};
use super::seen_files::SeenFiles;
use super::segment::{Block, MAX_BLOCKS, Marks, Parts};
use super::stock_order::{self, StockOrder};
use super::{filter, stock_reading};
use crate::event_values::{self, Column};

/// Size at which a block ends, if no event is open.
pub(crate) const BLOCK_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 1 << 20 };

/// Builds one segment. A value belongs to the block in which its event begins.
pub(super) struct Builder {
    assembler: EventAssembler,
    blocks: Vec<Block>,
    columns: Columns,
    whole_events: WholeEventFinder,
    /// Events and files of the last block.
    seen: Seen,
    /// End of the last block, when it is known: only events that began before it are still awaited.
    end: Option<u64>,
    next_lead: u64,
    /// Size at which a block ends, if no event is open; twice that is its end in any case.
    block_bytes: u64,
    order: StockOrder,
}

/// An event that was added.
#[derive(Clone, Copy)]
pub(super) struct Added {
    /// Length of its text, perhaps with its end record.
    pub(super) len: usize,
    /// The block had its values already.
    pub(super) is_repeated: bool,
}

/// What need not be indexed again in the last block.
#[derive(Default)]
struct Seen {
    events: SeenEvents,
    files: SeenFiles,
}

/// Values of the blocks.
#[derive(Default)]
struct Columns {
    /// By the numbers of the columns.
    builders: Vec<ColumnBuilder>,
    last_path: LastPath,
}

/// Adds values to a block.
struct ValuesOfBlock<'a> {
    columns: &'a mut Columns,
    /// `None` if this is not the last block.
    files: Option<&'a mut SeenFiles>,
    block: usize,
    is_deep: bool,
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
    Column::PathPart,
];

impl Builder {
    /// A builder of the segment that starts at `start`. Its first line is the one at `lead`.
    pub(super) fn new(start: u64, lead: u64, block_bytes: u64) -> Self {
        let mut builder = Self {
            assembler: EventAssembler::default(),
            blocks: Vec::new(),
            columns: Columns::default(),
            whole_events: WholeEventFinder::default(),
            seen: Seen::default(),
            end: None,
            next_lead: start,
            block_bytes,
            order: StockOrder::default(),
        };
        builder
            .columns
            .builders
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

    /// Adds the event at the start of `text`, which begins at `offset`, if it is whole and no part of an open one. If not,
    /// add the next line with [`Builder::line`].
    pub(super) fn whole_event(&mut self, text: &[u8], offset: u64) -> Option<Added> {
        // An end record belongs to the event before, see `line`.
        if stock_order::is_end_record(text) {
            return None;
        }
        let at = self.blocks.len().checked_sub(1)?;
        let is_before = self.blocks.last().is_none_or(|block| offset < block.start);
        // The text before belongs to another segment, and that after the end. A line ends a block.
        if is_before || self.end.is_some() || self.is_block_end(offset) {
            return None;
        }
        if let Some(known) = self.seen.events.next(text) {
            return self
                .passes(known.time, known.serial, offset, known.len)
                .then(|| self.repeated(at, &known, text));
        }
        let mut finder = std::mem::take(&mut self.whole_events);
        let added = finder.at_start(text).and_then(|event| {
            self.passes(event.time(), event.serial(), offset, event.text().len())
                .then(|| self.add_whole(at, &event, offset))
        });
        self.whole_events = finder;
        added
    }

    /// Whether an event is no part of an open one, and in one block. It may be that it ends open ones by its time.
    fn passes(&mut self, time: Timestamp, serial: Serial, offset: u64, len: usize) -> bool {
        let end = offset + crate::line_buffer::len(len);
        if !self.assembler.is_idle() && self.is_block_end(end) {
            return false;
        }
        let passes = self.assembler.pass(time, serial, len);
        self.index_ended();
        passes
    }

    fn add_whole(&mut self, block: usize, event: &WholeEvent<'_>, offset: u64) -> Added {
        let is_repeatable = event
            .records()
            .next()
            .is_some_and(|first| !stock_order::is_alone(first.kind));
        if is_repeatable && let Some(known) = self.seen.events.find_or_keep(event) {
            return self.repeated(block, &known, event.text());
        }
        let (mut is_regular, mut line_start) = (true, offset);
        for line in event.text().lines_with_terminator() {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            is_regular &= self.note(decode::header(text).ok().as_ref(), text, line_start);
            line_start += crate::line_buffer::len(line.len());
        }
        if is_repeatable && !is_regular {
            // What the stock tools read in it is noted each time.
            self.seen.events.clear();
        }
        let mut values = ValuesOfBlock {
            columns: &mut self.columns,
            files: Some(&mut self.seen.files),
            block,
            is_deep: false,
        };
        event_values::receive(event.records(), &mut values);
        self.add_stamp(block, event.time(), event.serial());
        Added {
            len: event.text().len(),
            is_repeated: false,
        }
    }

    /// Adds an event that the block has already, but for its stamp.
    fn repeated(&mut self, block: usize, known: &Repeated, text: &[u8]) -> Added {
        self.add_stamp(block, known.time, known.serial);
        if let Some(block) = self.blocks.get_mut(block) {
            self.order.repeated(known.time, known.serial, text, block);
        }
        Added {
            len: known.len,
            is_repeated: true,
        }
    }

    /// Forgets which values need not be added again.
    #[cfg(test)]
    pub(super) fn forget_seen(&mut self) {
        self.seen.events.clear();
        self.seen.files.clear();
        let builders = self.columns.builders.iter_mut();
        builders.for_each(ColumnBuilder::forget_seen);
        self.columns.last_path.clear();
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

    /// Notes what the stock tools read in a line. Returns whether the line is regular.
    fn note(&mut self, record: Option<&Record<'_>>, line: &[u8], offset: u64) -> bool {
        let at = self.blocks.len().saturating_sub(1);
        let Some(block) = self.blocks.last_mut() else {
            return false;
        };
        if offset < block.start {
            if let Some(record) = record {
                self.order.before(record);
            }
            return true;
        }
        let columns = &mut self.columns;
        let is_regular = record.is_some_and(|record| {
            stock_reading::values(record, line, |column, value| {
                columns.add(column, value, at);
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
        is_regular
    }

    /// Finishes a complete segment, or one that the text ends in at `text_end`. Returns its bytes; `None` if it has
    /// no text.
    pub(super) fn finish(mut self, text_end: u64) -> Option<Vec<u8>> {
        let end = self.end.unwrap_or(text_end);
        let open = self.assembler.first_open();
        if self.end.is_none() {
            self.next_lead = self.assembler.first_open_whole().unwrap_or(end);
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
        let columns = self.columns.builders.into_iter().zip(COLUMNS);
        let columns = columns
            .map(|(builder, column)| {
                let (kind, bytes) = builder.encode(column, count);
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

    /// Size of the last block if it ends at `offset`.
    fn block_size(&self, offset: u64) -> u64 {
        let start = self.blocks.last().map_or(0, |block| block.start);
        offset.saturating_sub(start)
    }

    /// Whether the last block is to end at `offset`, the start of a line.
    fn is_block_end(&self, offset: u64) -> bool {
        let size = self.block_size(offset);
        size >= self.block_bytes && (self.assembler.is_idle() || size >= 2 * self.block_bytes)
    }

    /// Ends the block, and the segment, if that is due at `offset`, the start of a line.
    fn end_block_at(&mut self, offset: u64) {
        if self.end.is_some() || !self.is_block_end(offset) {
            return;
        }
        let count = self.blocks.len();
        if let Some(block) = self.blocks.last_mut() {
            block.end = offset;
        }
        let lead = self.assembler.first_open_whole().unwrap_or(offset);
        if count == MAX_BLOCKS {
            self.end = Some(offset);
            self.next_lead = lead;
        } else {
            self.begin_block(offset, lead);
        }
    }

    fn begin_block(&mut self, start: u64, lead: u64) {
        self.seen.events.clear();
        self.seen.files.clear();
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
        self.add_stamp(at, event.time(), event.serial());
        let is_last = at + 1 == self.blocks.len();
        let mut values = ValuesOfBlock {
            columns: &mut self.columns,
            files: is_last.then_some(&mut self.seen.files),
            block: at,
            is_deep: false,
        };
        event_values::receive(event.records(), &mut values);
    }

    /// Extends the times and serials of a block.
    fn add_stamp(&mut self, block: usize, time: Timestamp, Serial(serial): Serial) {
        if let Some(block) = self.blocks.get_mut(block) {
            let ms = time
                .sec
                .saturating_mul(1000)
                .saturating_add(time.milli.into());
            let (least, greatest) = (*block.time_ms.start(), *block.time_ms.end());
            block.time_ms = least.min(ms)..=greatest.max(ms);
            let (least, greatest) = (*block.serial.start(), *block.serial.end());
            block.serial = least.min(serial)..=greatest.max(serial);
        }
    }
}

impl Columns {
    fn builder(&mut self, column: Column) -> Option<&mut ColumnBuilder> {
        self.builders.get_mut(usize::from(column.number()))
    }

    /// Adds a value to a block.
    #[inline]
    fn add(&mut self, column: Column, value: &[u8], block: usize) {
        if let Some(builder) = self.builder(column) {
            builder.add(column, value, block);
        }
        if column == Column::Path {
            self.add_path_parts(value, block);
        }
    }

    fn add_path_parts(&mut self, path: &[u8], block: usize) {
        let known = self.last_path.replace(path, block);
        let number = usize::from(Column::PathPart.number());
        if let Some(builder) = self.builders.get_mut(number)
            && !builder.is_full(Column::PathPart, block)
        {
            path_parts::each(path, known, |part| {
                builder.add(Column::PathPart, part, block);
            });
        }
    }
}

impl event_values::Receiver for ValuesOfBlock<'_> {
    fn value(&mut self, column: Column, value: &[u8]) {
        let whole = value.len();
        let value = filter::indexed(column, value);
        self.is_deep &= column == Column::Directory;
        if value.len() < whole && std::mem::replace(&mut self.is_deep, true) {
            return; // the same directory again, for each of those below it
        }
        if value.len() < whole
            && let Some(builder) = self.columns.builder(column)
        {
            builder.add_part();
        }
        self.columns.add(column, value, self.block);
    }

    fn knows_file(&mut self, name: &[u8], cwd: Option<&[u8]>) -> bool {
        self.files
            .as_deref_mut()
            .is_some_and(|files| files.find_or_keep(name, cwd))
    }
}
