//! Set membership filters: split-block Bloom filters.
//!
//! A filter is an array of words of 64 bits. A hash selects a word with its upper half and six bits of it with the
//! lower: one cache line is read per question, and at [`BITS_PER_HASH`] about one question in 100 that should be
//! answered no is answered yes.

use crate::event_values::Column;

/// Bits for each hash in the set.
const BITS_PER_HASH: usize = 11;
/// Bits that a hash sets.
const BITS_SET: u32 = 6;

/// Longest directory of which all bytes are indexed. A path of 4,096 bytes can have 2,048 directories above it.
const MAX_DIRECTORY_BYTES: usize = 512;

/// The part of a value that is indexed: two values with the same part are not told apart.
pub(super) fn indexed(column: Column, value: &[u8]) -> &[u8] {
    let bytes = match column {
        Column::Directory => MAX_DIRECTORY_BYTES,
        _ => value.len(),
    };
    value.get(..bytes).unwrap_or(value)
}

/// Builds the filter of a set of hashes, of at most `max_words` words; empty for an empty set.
pub(super) fn build(hashes: &[u64], max_words: usize) -> Vec<u64> {
    let words = (hashes.len() * BITS_PER_HASH).div_ceil(64).min(max_words);
    let mut filter = vec![0; words];
    for &hash in hashes {
        if let Some(word) = position(hash, words).and_then(|at| filter.get_mut(at)) {
            *word |= mask(hash);
        }
    }
    filter
}

/// Whether the set may contain a hash: never false for one that it contains. `filter` is words of little-endian
/// bytes.
pub(super) fn may_contain(filter: &[u8], hash: u64) -> bool {
    let words = filter.len() / 8;
    let word = position(hash, words).and_then(|at| {
        let bytes = filter.get(at * 8..at * 8 + 8)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    });
    word.is_some_and(|word| word & mask(hash) == mask(hash))
}

/// Word of a hash: the upper half scaled to the number of words.
fn position(hash: u64, words: usize) -> Option<usize> {
    let words = u64::try_from(words).ok()?;
    usize::try_from(((hash >> 32) * words) >> 32).ok()
}

fn mask(hash: u64) -> u64 {
    (0..BITS_SET)
        .map(|number| 1 << ((hash >> (number * 5)) & 63))
        .fold(0, |mask, bit: u64| mask | bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_contain_their_set_and_little_else() {
        let hash_of = |number: u32| crate::hash::hash(1, number.to_string().as_bytes());
        let hashes: Vec<u64> = (0..2000).map(hash_of).collect();
        let bytes: Vec<u8> = build(&hashes, 1000)
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .collect();
        assert!(bytes.len() * 8 <= 2000 * BITS_PER_HASH + 64);
        assert!(hashes.iter().all(|&hash| may_contain(&bytes, hash)));
        let wrong = (2000..12_000).filter(|&number| may_contain(&bytes, hash_of(number)));
        let wrong = wrong.count();
        assert!(wrong < 300, "{wrong} of 10000");
        assert!(!may_contain(&[], 1));
    }
}
