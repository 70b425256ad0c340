//! Collects the values of one column and encodes them, as a dictionary or as filters.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

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
pub(super) struct ColumnBuilder {
    dictionary: HashMap<u64, Entry, PlainHasher>,
    dictionary_bytes: usize,
    /// The dictionary became too large, or two values have the same hash.
    overflowed: bool,
    /// Hashes of each block, after an overflow.
    hashes: Vec<HashSet<u64, PlainHasher>>,
    recent: RecentValues,
}

struct Entry {
    value: Box<[u8]>,
    blocks: u64,
}

/// Some values that a block has: those that most often come again.
#[derive(Default)]
struct RecentValues {
    block: usize,
    /// Each at the place that its length and last byte give.
    values: [RecentValue; RecentValues::COUNT],
}

#[derive(Clone, Copy, Default)]
struct RecentValue {
    /// Length and one; 0 if there is none.
    len_and_one: u8,
    bytes: [u8; RecentValues::MAX_LEN],
}

impl RecentValues {
    const COUNT: usize = 8;
    const MAX_LEN: usize = 31;

    /// Whether the block has the value surely. If not, it has it from now on.
    fn contains_or_keep(&mut self, value: &[u8], block: usize) -> bool {
        let Some(len) = u8::try_from(value.len())
            .ok()
            .filter(|_| value.len() <= Self::MAX_LEN)
        else {
            return false;
        };
        if self.block != block {
            *self = Self::default();
            self.block = block;
        }
        let last = value.last().copied().unwrap_or(0);
        let place = usize::from(len.wrapping_mul(3).wrapping_add(last)) % Self::COUNT;
        let Some(recent) = self.values.get_mut(place) else {
            return false;
        };
        let Some(room) = recent.bytes.get_mut(..value.len()) else {
            return false;
        };
        if recent.len_and_one == len + 1 && room == value {
            return true;
        }
        room.copy_from_slice(value);
        recent.len_and_one = len + 1;
        false
    }
}

impl ColumnBuilder {
    /// Adds a value to a block.
    pub(super) fn add(&mut self, column: Column, value: &[u8], block: usize) {
        if self.recent.contains_or_keep(value, block) {
            return;
        }
        let hash = filter::hash(column.number(), value);
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
    pub(super) fn encode(mut self, blocks: usize) -> (ColumnKind, Vec<u8>) {
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
