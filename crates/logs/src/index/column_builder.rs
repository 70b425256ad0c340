//! Collects the values of one column and encodes them, as a dictionary or as filters.

use std::collections::{HashMap, HashSet};

use super::filter;
use super::segment::{ColumnKind, MAX_BLOCKS};
use crate::event_values::Column;

/// A dictionary up to this size is kept even if filters are smaller: it is exact.
const SMALL_DICTIONARY: usize = 4 << 10;
/// Largest dictionary.
const MAX_DICTIONARY: usize = 48 << 10;
/// Longest value in a dictionary.
const MAX_VALUE: usize = 4096;
/// Most words of a filter: more values make it less selective, not larger.
const MAX_FILTER_WORDS: usize = 224;
/// The same for parts of paths, which are several for each path.
const MAX_PART_FILTER_WORDS: usize = 640;
/// Hashes of a block from which on its filter has every value. It bounds work and memory for hostile names.
const MAX_HASHES: usize = 4 << 10;
/// The same for parts of paths.
const MAX_PART_HASHES: usize = 16 << 10;

/// Hashes again with a random key: the hashes of the format have none, and who knows them can choose names.
type KeyedHasher = foldhash::fast::RandomState;

/// Values of one column in the blocks of the segment.
#[derive(Default)]
pub(super) struct ColumnBuilder {
    dictionary: HashMap<u64, Entry, KeyedHasher>,
    dictionary_bytes: usize,
    /// The dictionary became too large, or two values have the same hash.
    overflowed: bool,
    /// Hashes of each block, after an overflow.
    hashes: Vec<HashSet<u64, KeyedHasher>>,
    recent: RecentValues,
}

struct Entry {
    value: Box<[u8]>,
    blocks: u64,
}

/// Some short values that a block has.
#[derive(Default)]
struct RecentValues {
    block: usize,
    /// Each at the place that its hash gives: a newer one replaces an older one.
    values: [ShortValue; Self::COUNT],
}

/// A value of at most 32 bytes: its length, and words that have all of its bytes, some of them twice.
#[derive(Clone, Copy, Debug, Default)]
struct ShortValue {
    /// One more than the length; 0 if there is no value.
    len: usize,
    words: [u64; 4],
}

impl ShortValue {
    #[inline]
    fn of(value: &[u8]) -> Option<Self> {
        let long = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let short = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes));
        let words = if let (Some(first), Some(last)) =
            (value.first_chunk::<8>(), value.last_chunk())
        {
            let inner = value.get(8..value.len() - 8).unwrap_or_default();
            match (inner.first_chunk::<8>(), inner.last_chunk::<8>()) {
                (Some(second), Some(third)) if inner.len() <= 16 => {
                    [long(first), long(last), long(second), long(third)]
                }
                (None, _) if value.len() <= 16 => [long(first), long(last), 0, 0],
                (None, _) => {
                    let second = value.get(8..)?.first_chunk::<8>()?;
                    [long(first), long(last), long(second), 0]
                }
                _ => return None,
            }
        } else if let (Some(first), Some(last)) = (value.first_chunk::<4>(), value.last_chunk()) {
            [short(first), short(last), 0, 0]
        } else {
            let bytes = [value.first(), value.get(1), value.get(2)];
            let [first, second, third] = bytes.map(|byte| byte.copied().map_or(0, u64::from));
            [first | second << 8 | third << 16, 0, 0, 0]
        };
        Some(Self {
            len: value.len() + 1,
            words,
        })
    }

    /// Whether the values are equal; word by word, because the words were just written one by one.
    #[inline]
    const fn equals(&self, other: &Self) -> bool {
        let ([a, b, c, d], [e, f, g, h]) = (self.words, other.words);
        self.len == other.len && (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h) == 0
    }

    #[inline]
    fn place(&self) -> usize {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let [first, last, second, third] = self.words;
        let mixed = (first ^ last.rotate_left(23) ^ second ^ third).wrapping_mul(FACTOR);
        usize::try_from(mixed >> 61).unwrap_or(0)
    }
}

impl RecentValues {
    const COUNT: usize = 8;

    /// Whether the block has the value surely. If not, it has it from now on.
    fn contains_or_keep(&mut self, value: &[u8], block: usize) -> bool {
        let Some(value) = ShortValue::of(value) else {
            return false;
        };
        if self.block != block {
            *self = Self::default();
            self.block = block;
        }
        match self.values.get_mut(value.place()) {
            Some(recent) if recent.equals(&value) => true,
            Some(recent) => {
                *recent = value;
                false
            }
            None => false,
        }
    }
}

const fn max_hashes(column: Column) -> usize {
    match column {
        Column::PathPart => MAX_PART_HASHES,
        _ => MAX_HASHES,
    }
}

impl ColumnBuilder {
    /// Adds a value to a block.
    pub(super) fn add(&mut self, column: Column, value: &[u8], block: usize) {
        if self.recent.contains_or_keep(value, block) {
            return;
        }
        let hash = crate::hash::hash(column.number(), value);
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
        if !self.is_full(column, block) {
            self.insert(hash, block);
        }
    }

    /// Whether the block has so many values that it has every value.
    pub(super) fn is_full(&self, column: Column, block: usize) -> bool {
        let hashes = self.hashes.get(block);
        hashes.is_some_and(|hashes| hashes.len() >= max_hashes(column))
    }

    /// The next value is a part of one: a dictionary, which has whole values, becomes filters.
    pub(super) fn add_part(&mut self) {
        if !self.overflowed {
            self.overflow();
        }
    }

    /// Forgets which values need not be added again.
    #[cfg(test)]
    pub(super) fn forget_seen(&mut self) {
        self.recent = RecentValues::default();
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

    /// The bytes of the column, for this number of blocks.
    pub(super) fn encode(mut self, column: Column, blocks: usize) -> (ColumnKind, Vec<u8>) {
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
            let is_full = hashes.len() >= max_hashes(column);
            let filter = match (is_full, column) {
                (true, _) => vec![u64::MAX],
                (_, Column::PathPart) => filter::build(&hashes, MAX_PART_FILTER_WORDS),
                _ => filter::build(&hashes, MAX_FILTER_WORDS),
            };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_are_equal_only_if_their_bytes_are() {
        for len in 0..=40 {
            let value = vec![b'a'; len];
            let Some(short) = ShortValue::of(&value) else {
                assert!(len > 32, "{len}");
                continue;
            };
            assert!(short.equals(&short));
            for at in 0..len {
                let mut other = value.clone();
                other[at] = b'b';
                let other = ShortValue::of(&other).unwrap();
                assert!(!short.equals(&other), "{len} {at}");
                assert!(!short.equals(&ShortValue::of(&value[1..]).unwrap()));
            }
        }
    }

    #[test]
    fn recent_values_are_those_of_one_block() {
        let mut recent = RecentValues::default();
        assert!(!recent.contains_or_keep(b"x", 0));
        assert!(recent.contains_or_keep(b"x", 0));
        assert!(!recent.contains_or_keep(b"x", 1));
        assert!(!recent.contains_or_keep(b"x", 0));
        assert!(!recent.contains_or_keep(b"y", 0));
        assert!(!recent.contains_or_keep(b"", 0));
        assert!(recent.contains_or_keep(b"", 0));
    }
}
