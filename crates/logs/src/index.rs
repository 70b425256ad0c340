//! The index of a log: which blocks of its text may contain an event.
//!
//! A log is divided into blocks of about 1 MiB, and up to 64 blocks share a segment. For each column of
//! [`crate::event_values`] a segment has either a dictionary of the values with the blocks that have them, or a
//! filter for each block. The index is advisory: a reader checks each hit in the text, and reads everything that no
//! valid segment covers. A segment that is damaged, or that another user could have written, is not used.
//!
//! [`store`] has the files.

mod builder;
mod column_builder;
mod filter;
pub mod growing;
mod path_parts;
mod seen_events;
mod seen_files;
mod segment;
mod stock_order;
mod stock_reading;
pub mod store;

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bstr::ByteSlice as _;

use crate::event_values::Column;
use crate::line_buffer::{Line, LineBuffer};
use crate::log_file::{LogError, LogFile};
pub(crate) use builder::BLOCK_BYTES;
use builder::Builder;
pub use segment::{Block, Marks};
use segment::{ColumnBytes, Header};
use store::TextEnd;

/// The index of one file of a log.
#[derive(Debug, Default)]
pub struct LogIndex {
    segments: Vec<Segment>,
}

#[derive(Debug)]
struct Segment {
    header: Header,
    source: Source,
}

/// Where the bytes of a segment are.
#[derive(Debug)]
enum Source {
    Memory(Vec<u8>),
    File(Arc<File>, u64),
}

/// Tells whether a value is accepted.
pub type ValueTest<'a> = Box<dyn Fn(&[u8]) -> bool + 'a>;

/// A condition on events that the index can answer for blocks. A block that may have an event that meets the
/// condition is a candidate.
pub enum Condition<'a> {
    /// Anything.
    Any,
    /// The event has this value.
    Value(Column, Vec<u8>),
    /// The event has a value that the function accepts.
    Matching(Column, ValueTest<'a>),
    /// The time of the event, in milliseconds since the epoch.
    TimeMs(RangeInclusive<u64>),
    /// The serial of the event.
    Serial(u32),
    /// All conditions are met by the same event.
    All(Vec<Self>),
    /// At least one of the conditions is met.
    AnyOf(Vec<Self>),
}

impl<'a> Condition<'a> {
    /// The event has a value that contains a text.
    #[must_use]
    pub fn contains(column: Column, text: &'a [u8]) -> Self {
        let matching = Self::Matching(column, Box::new(move |value| value.contains_str(text)));
        if column != Column::Path {
            return matching;
        }
        let mut conditions = vec![matching];
        path_parts::each(text, 0, |part| {
            conditions.push(Self::Value(Column::PathPart, part.to_vec()));
        });
        Self::All(conditions)
    }
}

impl LogIndex {
    /// Whether nothing is indexed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// End of the text that is covered.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.last().map_or(0, |header| {
            header.blocks.last().map_or(0, |block| block.end)
        })
    }

    /// Where a reader of the text after [`LogIndex::end`] must begin.
    #[must_use]
    pub fn next_lead(&self) -> u64 {
        self.last().map_or(0, |header| header.next_lead)
    }

    /// Whether events were open at the end of the text: their later records are in the next file.
    #[must_use]
    pub fn is_open_at_end(&self) -> bool {
        self.last().is_some_and(|header| header.open_at_end)
    }

    /// All blocks, in order.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.segments
            .iter()
            .flat_map(|segment| &segment.header.blocks)
    }

    /// All blocks, in order, by segments. [`Marks`] tell about text of the same segment.
    pub fn segments(&self) -> impl Iterator<Item = &[Block]> {
        let segments = self.segments.iter();
        segments.map(|segment| segment.header.blocks.as_slice())
    }

    /// Blocks in which an event that meets a condition may begin, in order.
    #[must_use]
    pub fn candidates(&self, condition: &Condition<'_>) -> Vec<&Block> {
        let mut found = Vec::new();
        for segment in &self.segments {
            let mut columns = [const { None }; Column::COUNT];
            let bitmap = segment.candidates(condition, &mut columns);
            let blocks = segment.header.blocks.iter().enumerate();
            found.extend(
                blocks
                    .filter(|(number, _)| bitmap >> number & 1 != 0)
                    .map(|(_, block)| block),
            );
        }
        found
    }

    /// Extends the index to the end of the text of `file`, and passes the bytes of each new segment to `built`.
    /// Blocks have `block_bytes` or some more. With `whole_only`, text that fills no segment is left out: the log still grows.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub(crate) fn extend(
        &mut self,
        file: &mut LogFile,
        block_bytes: u64,
        whole_only: bool,
        built: impl FnMut(&[u8], &TextEnd),
    ) -> Result<(), LogError> {
        self.extend_unless(&|| false, file, block_bytes, whole_only, built)
    }

    /// As [`LogIndex::extend`], but returns early, without an error, when `is_stopped` returns true, which is asked after
    /// each block of text.
    ///
    /// # Errors
    /// As [`LogIndex::extend`].
    pub(crate) fn extend_unless(
        &mut self,
        is_stopped: &dyn Fn() -> bool,
        file: &mut LogFile,
        block_bytes: u64,
        whole_only: bool,
        mut built: impl FnMut(&[u8], &TextEnd),
    ) -> Result<(), LogError> {
        let mut lines = LineBuffer::default();
        loop {
            let start = self.end();
            let lead = self.next_lead().min(start);
            lines.restart(lead);
            let mut builder = Builder::new(start, lead, block_bytes);
            let is_complete = loop {
                let next_look = lines.read_offset() + BLOCK_BYTES;
                let read = |room: &mut [u8], offset| file.read_at(room, offset);
                if feed(&mut builder, &mut lines, read, next_look)? {
                    break true;
                }
                if is_stopped() {
                    return Ok(());
                }
                if lines.read_offset() < next_look {
                    break false;
                }
            };
            if !is_complete && whole_only {
                return Ok(());
            }
            let text_end = lines.offset();
            let Some(bytes) = builder.finish(text_end) else {
                return Ok(());
            };
            let Some(header) = Header::parse(&bytes) else {
                return Ok(());
            };
            let end = header.blocks.last().map_or(0, |block| block.end);
            let Some(text) = TextEnd::at(file, end)? else {
                return Ok(()); // cut off meanwhile
            };
            self.segments.push(Segment {
                header,
                source: Source::Memory(Vec::new()),
            });
            built(&bytes, &text);
            if let Some(last) = self.segments.last_mut() {
                last.source = Source::Memory(bytes);
            }
            // A segment whose last events never end is complete at the end of the text.
            if !is_complete && end >= text_end {
                return Ok(());
            }
        }
    }

    /// Appends the bytes of all segments.
    ///
    /// # Errors
    /// The file of the index cannot be read.
    pub(crate) fn write_segments(&self, out: &mut Vec<u8>) -> io::Result<()> {
        for segment in &self.segments {
            let start = out.len();
            out.resize(start + segment.header.segment_len(), 0);
            let room = out.get_mut(start..).unwrap_or_default();
            if !segment.source.read(room, 0) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    fn last(&self) -> Option<&Header> {
        self.segments.last().map(|segment| &segment.header)
    }

    /// Adds a segment of an index file, if it continues the index.
    fn push(&mut self, header: Header, file: &Arc<File>, offset: u64) -> bool {
        let starts = header.blocks.first().map(|block| (block.start, block.lead));
        let follows = starts == Some((self.end(), self.next_lead()));
        if follows {
            let source = Source::File(Arc::clone(file), offset);
            self.segments.push(Segment { header, source });
        }
        follows
    }
}

/// Passes the events and lines before the offset `text_end`, which `read` reads from an offset, to a builder until its
/// segment is complete; returns false if the text ends before.
fn feed(
    builder: &mut Builder,
    lines: &mut LineBuffer,
    mut read: impl FnMut(&mut [u8], u64) -> Result<usize, LogError>,
    text_end: u64,
) -> Result<bool, LogError> {
    loop {
        while let Some(text) = lines.unread() {
            match builder.whole_event(text, lines.offset()) {
                Some(event) => lines.skip_lines(event.len),
                None => break,
            }
        }
        match lines.next_line() {
            Some(Line::TooLong) => builder.too_long(),
            Some(Line::Text { start, end, offset }) => {
                if builder.line(lines.text(start, end), offset) {
                    return Ok(true);
                }
            }
            None => {
                let offset = lines.read_offset();
                let left = usize::try_from(text_end.saturating_sub(offset)).unwrap_or(usize::MAX);
                let count = lines.fill(|room| {
                    let wanted = left.min(room.len());
                    read(room.get_mut(..wanted).unwrap_or_default(), offset)
                })?;
                // A line without its newline is not indexed: it may be incomplete.
                if count == 0 {
                    return Ok(false);
                }
            }
        }
    }
}

impl Source {
    /// Reads bytes of the segment from the offset `at`; returns false if they cannot be read.
    fn read(&self, room: &mut [u8], at: usize) -> bool {
        match self {
            Self::Memory(bytes) => {
                let from = bytes.get(at..at + room.len());
                from.map(|from| room.copy_from_slice(from)).is_some()
            }
            Self::File(file, offset) => {
                let offset = offset + crate::line_buffer::len(at);
                file.read_exact_at(room, offset).is_ok()
            }
        }
    }
}

impl Segment {
    /// Bitmap of the blocks that meet a condition. `columns` holds those that were read.
    fn candidates(
        &self,
        condition: &Condition<'_>,
        columns: &mut [Option<Option<ColumnBytes>>; Column::COUNT],
    ) -> u64 {
        let all = self.header.all();
        let bitmap = match condition {
            Condition::Any => all,
            Condition::Value(column, value) => self
                .column(*column, columns)
                .map_or(all, |bytes| bytes.with_value(*column, value)),
            // Filters have no values to look at.
            Condition::Matching(column, _) if self.header.has_filters(*column) => all,
            Condition::Matching(column, matches) => self
                .column(*column, columns)
                .map_or(all, |bytes| bytes.matching(matches)),
            Condition::TimeMs(range) => self.having(|block| {
                block.time_ms.start() <= range.end() && range.start() <= block.time_ms.end()
            }),
            Condition::Serial(serial) => self.having(|block| block.serial.contains(serial)),
            Condition::All(conditions) => {
                let mut bitmap = all;
                for condition in conditions {
                    // Columns that cannot change the answer are not read.
                    if bitmap == 0 {
                        break;
                    }
                    bitmap &= self.candidates(condition, columns);
                }
                bitmap
            }
            Condition::AnyOf(conditions) => conditions.iter().fold(0, |bitmap, condition| {
                bitmap | self.candidates(condition, columns)
            }),
        };
        bitmap & all
    }

    fn having(&self, has: impl Fn(&Block) -> bool) -> u64 {
        let blocks = self.header.blocks.iter().enumerate();
        blocks.fold(0, |bitmap, (number, block)| {
            bitmap | u64::from(has(block)) << number
        })
    }

    fn column<'c>(
        &self,
        column: Column,
        columns: &'c mut [Option<Option<ColumnBytes>>; Column::COUNT],
    ) -> Option<&'c ColumnBytes> {
        let read = columns.get_mut(usize::from(column.number()))?;
        read.get_or_insert_with(|| {
            self.header
                .column(column, |room, at| self.source.read(room, at))
        })
        .as_ref()
    }
}

impl std::fmt::Debug for Condition<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("Any"),
            Self::Value(column, value) => write!(f, "{column:?}={}", value.escape_ascii()),
            Self::Matching(column, _) => write!(f, "{column:?}~"),
            Self::TimeMs(range) => write!(f, "time in {range:?}"),
            Self::Serial(serial) => write!(f, "serial={serial}"),
            Self::All(conditions) => f.debug_tuple("All").field(conditions).finish(),
            Self::AnyOf(conditions) => f.debug_tuple("AnyOf").field(conditions).finish(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
