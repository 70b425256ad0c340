//! A segment: the index of up to 64 consecutive blocks of a log, and its bytes.
//!
//! ```text
//! segment:   MAGIC  header length u32  blocks u32  start u64  end u64  lead after the end u64  open at the end u64
//!            blocks x { offset u64, lead u64, least ms u64, greatest ms u64, least serial u32, greatest serial u32,
//!              least second u64, greatest second u64, marks u64 }
//!            columns u32  columns x { number u8, kind u8, 0 u16, length u32, checksum u64 }
//!            checksum of the header u64
//!            the bytes of the columns
//! dictionary: values x { bitmap of blocks u64, length u16, bytes }
//! filters:    blocks x { words u16 }  words u64 ...
//! ```
//!
//! All numbers are little-endian. Everything is checked when it is read.

use std::ops::RangeInclusive;

use super::filter;
use crate::event_values::Column;
use crate::hash::{checksum, hash};

/// Most blocks of a segment: a bitmap has as many bits.
pub(super) const MAX_BLOCKS: usize = 64;
const MAGIC: &[u8; 8] = b"TLGSEG04";
/// Longest header.
const MAX_HEADER: usize = 8 << 10;
/// Longest column.
const MAX_COLUMN: usize = 4 << 20;

/// A block of a log: a range of text, and the events that begin in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// First byte.
    pub start: u64,
    /// First byte of the next block.
    pub end: u64,
    /// Where a reader must begin so that it sees the earlier events that are still open at the start.
    pub lead: u64,
    /// Least and greatest time of the events, in milliseconds since the epoch.
    pub time_ms: RangeInclusive<u64>,
    /// Least and greatest serial.
    pub serial: RangeInclusive<u32>,
    /// Least and greatest second of the records in the block as the stock tools read them; the greatest is
    /// [`u64::MAX`] if it is not known.
    pub seconds: RangeInclusive<u64>,
    /// What a reader that groups records as the stock tools do must know.
    pub marks: Marks,
}

/// Properties of a block for readers that group records as the stock tools do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The stock tools may read values in the block that are in no column.
    pub is_irregular: bool,
    /// A record may be of an event that has a record before the block in the same segment.
    pub is_continued: bool,
    /// An event may begin here whose stamp is not greater than those of all events before it in the segment.
    pub is_unordered: bool,
}

impl Marks {
    fn bits(self) -> u64 {
        u64::from(self.is_irregular)
            | u64::from(self.is_continued) << 1
            | u64::from(self.is_unordered) << 2
    }

    const fn of_bits(bits: u64) -> Self {
        Self {
            is_irregular: bits & 1 != 0,
            is_continued: bits & 2 != 0,
            is_unordered: bits & 4 != 0,
        }
    }
}

/// What a segment covers, and where its columns are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) blocks: Vec<Block>,
    /// Lead of the block after the last one.
    pub(super) next_lead: u64,
    /// Whether events were open at the end of the text: their later records are in the next file.
    pub(super) open_at_end: bool,
    columns: Vec<ColumnEntry>,
    /// Length of the header itself.
    len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ColumnEntry {
    number: u8,
    kind: ColumnKind,
    /// Offset in the segment.
    start: usize,
    len: usize,
    checksum: u64,
}

/// How the values of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// Each value with the blocks that have it.
    Dictionary,
    /// A filter for each block.
    Filters,
}

/// Bytes of a column that passed the check.
#[derive(Debug)]
pub(super) struct ColumnBytes {
    kind: ColumnKind,
    bytes: Vec<u8>,
    blocks: usize,
}

/// Parts of a segment to be written.
pub(super) struct Parts<'a> {
    pub(super) blocks: &'a [Block],
    pub(super) next_lead: u64,
    pub(super) open_at_end: bool,
    pub(super) columns: Vec<(Column, ColumnKind, Vec<u8>)>,
}

impl Parts<'_> {
    /// Bytes of the segment.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[0; 4]);
        put_u32(&mut out, self.blocks.len());
        let end = self.blocks.last().map_or(0, |block| block.end);
        let start = self.blocks.first().map_or(0, |block| block.start);
        let open = u64::from(self.open_at_end);
        for number in [start, end, self.next_lead, open] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for block in self.blocks {
            let times = (*block.time_ms.start(), *block.time_ms.end());
            for number in [block.start, block.lead, times.0, times.1] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(&block.serial.start().to_le_bytes());
            out.extend_from_slice(&block.serial.end().to_le_bytes());
            let seconds = (*block.seconds.start(), *block.seconds.end());
            for number in [seconds.0, seconds.1, block.marks.bits()] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        put_u32(&mut out, self.columns.len());
        for (column, kind, bytes) in &self.columns {
            let kind = match kind {
                ColumnKind::Dictionary => 0,
                ColumnKind::Filters => 1,
            };
            out.extend_from_slice(&[column.number(), kind, 0, 0]);
            put_u32(&mut out, bytes.len());
            out.extend_from_slice(&checksum(bytes).to_le_bytes());
        }
        let len = u32::try_from(out.len() + 8).unwrap_or(u32::MAX);
        if let Some(room) = out.get_mut(8..12) {
            room.copy_from_slice(&len.to_le_bytes());
        }
        let sum = checksum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        for (_, _, bytes) in &self.columns {
            out.extend_from_slice(bytes);
        }
        out
    }
}

impl Header {
    /// Parses the header at the start of `bytes`, which may end anywhere; `None` if it is damaged or incomplete.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let len = usize::try_from(u32_at(bytes, 8)?).ok()?;
        if bytes.get(..8)? != MAGIC || len > MAX_HEADER {
            return None;
        }
        let (bytes, sum) = bytes.get(..len)?.split_last_chunk::<8>()?;
        if checksum(bytes) != u64::from_le_bytes(*sum) {
            return None;
        }
        let count = usize::try_from(u32_at(bytes, 12)?).ok()?;
        let [start, end, next_lead, open] = [16, 24, 32, 40].map(|at| u64_at(bytes, at));
        let (start, end, next_lead) = (start?, end?, next_lead?);
        if !(1..=MAX_BLOCKS).contains(&count) || next_lead > end {
            return None;
        }
        const BLOCK: usize = 64;
        let mut blocks: Vec<Block> = Vec::with_capacity(count);
        for number in 0..count {
            let at = 48 + number * BLOCK;
            let block = Block {
                start: u64_at(bytes, at)?,
                end,
                lead: u64_at(bytes, at + 8)?,
                time_ms: u64_at(bytes, at + 16)?..=u64_at(bytes, at + 24)?,
                serial: u32_at(bytes, at + 32)?..=u32_at(bytes, at + 36)?,
                seconds: u64_at(bytes, at + 40)?..=u64_at(bytes, at + 48)?,
                marks: Marks::of_bits(u64_at(bytes, at + 56)?),
            };
            // Blocks cover the text without a gap.
            let expected = blocks.last().map_or(start, |last| last.start);
            let follows = match blocks.last_mut() {
                Some(last) => {
                    last.end = block.start;
                    block.start > expected
                }
                None => block.start == start,
            };
            if !follows || block.start >= end || block.lead > block.start {
                return None;
            }
            blocks.push(block);
        }
        let at = 48 + count * BLOCK;
        let mut columns = Vec::new();
        let mut column_start = len;
        for number in 0..usize::try_from(u32_at(bytes, at)?).ok()?.min(Column::COUNT) {
            let at = at + 4 + number * 16;
            let entry = ColumnEntry {
                number: *bytes.get(at)?,
                kind: match *bytes.get(at + 1)? {
                    0 => ColumnKind::Dictionary,
                    1 => ColumnKind::Filters,
                    _ => return None,
                },
                start: column_start,
                len: usize::try_from(u32_at(bytes, at + 4)?).ok()?,
                checksum: u64_at(bytes, at + 8)?,
            };
            if entry.len > MAX_COLUMN {
                return None;
            }
            column_start += entry.len;
            columns.push(entry);
        }
        Some(Self {
            blocks,
            next_lead,
            open_at_end: open? != 0,
            columns,
            len,
        })
    }

    /// Longest header in bytes: as many bytes as a reader needs.
    pub(super) const fn max_len() -> usize {
        MAX_HEADER
    }

    /// Length of the segment, header included.
    pub(super) fn segment_len(&self) -> usize {
        self.len + self.columns.iter().map(|column| column.len).sum::<usize>()
    }

    /// Whether a column is stored as filters.
    pub(super) fn has_filters(&self, column: Column) -> bool {
        let mut entries = self.columns.iter();
        let entry = entries.find(|entry| entry.number == column.number());
        entry.is_some_and(|entry| entry.kind == ColumnKind::Filters)
    }

    /// Reads a column with `read_at`, which fills its room from an offset in the segment. `None` if the segment
    /// lacks the column, or it is damaged.
    pub(super) fn column(
        &self,
        column: Column,
        read_at: impl FnOnce(&mut [u8], usize) -> bool,
    ) -> Option<ColumnBytes> {
        let mut entries = self.columns.iter();
        let entry = entries.find(|entry| entry.number == column.number())?;
        let mut bytes = vec![0; entry.len];
        let is_whole = read_at(&mut bytes, entry.start) && checksum(&bytes) == entry.checksum;
        is_whole.then_some(ColumnBytes {
            kind: entry.kind,
            bytes,
            blocks: self.blocks.len(),
        })
    }

    /// Bitmap of all blocks.
    pub(super) fn all(&self) -> u64 {
        u64::MAX >> (MAX_BLOCKS - self.blocks.len().clamp(1, MAX_BLOCKS))
    }
}

impl ColumnBytes {
    /// Blocks that may have a value.
    pub(super) fn with_value(&self, column: Column, value: &[u8]) -> u64 {
        match self.kind {
            ColumnKind::Dictionary => self.matching(|other| other == value),
            ColumnKind::Filters => {
                let value = filter::indexed(column, value);
                self.filtered(hash(column.number(), value))
            }
        }
    }

    /// Blocks that may have a value that `matches`.
    pub(super) fn matching(&self, matches: impl Fn(&[u8]) -> bool) -> u64 {
        if self.kind == ColumnKind::Filters {
            return u64::MAX;
        }
        let mut bitmap = 0;
        let mut rest = self.bytes.as_slice();
        while let Some((blocks, after)) = rest.split_first_chunk::<8>() {
            let value = after.split_first_chunk::<2>().and_then(|(len, after)| {
                after.split_at_checked(usize::from(u16::from_le_bytes(*len)))
            });
            let Some((value, after)) = value else {
                return u64::MAX;
            };
            if matches(value) {
                bitmap |= u64::from_le_bytes(*blocks);
            }
            rest = after;
        }
        bitmap
    }

    fn filtered(&self, hash: u64) -> u64 {
        let Some((counts, mut words)) = self.bytes.split_at_checked(self.blocks * 2) else {
            return u64::MAX;
        };
        let mut bitmap = 0;
        for (number, count) in counts.as_chunks::<2>().0.iter().enumerate() {
            let bytes = usize::from(u16::from_le_bytes(*count)) * 8;
            let Some((filter, rest)) = words.split_at_checked(bytes) else {
                return u64::MAX;
            };
            if filter::may_contain(filter, hash) {
                bitmap |= 1 << number;
            }
            words = rest;
        }
        bitmap
    }
}

fn put_u32(out: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    out.extend_from_slice(&number.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Bytes of a segment whose checksums are made right, as a forger would.
#[cfg(test)]
pub(super) fn with_valid_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let len = u32_at(&bytes, 8).and_then(|len| usize::try_from(len).ok());
    let Some(end) = len.and_then(|len| len.checked_sub(8)) else {
        return bytes;
    };
    let count = u32_at(&bytes, 12).unwrap_or(0).min(64);
    let columns = 48 + usize::try_from(count).unwrap() * 64 + 4;
    let mut start = end + 8;
    for number in 0..Column::COUNT {
        let at = columns + number * 16;
        let Some(len) = u32_at(&bytes, at + 4).and_then(|len| usize::try_from(len).ok()) else {
            break;
        };
        if let Some(column) = bytes.get(start..start.saturating_add(len)) {
            let sum = checksum(column).to_le_bytes();
            if let Some(room) = bytes.get_mut(at + 8..at + 16) {
                room.copy_from_slice(&sum);
            }
        }
        start = start.saturating_add(len);
    }
    if let Some(header) = bytes.get(..end) {
        let sum = checksum(header).to_le_bytes();
        if let Some(room) = bytes.get_mut(end..end + 8) {
            room.copy_from_slice(&sum);
        }
    }
    bytes
}
