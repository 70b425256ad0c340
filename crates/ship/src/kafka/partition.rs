//! Which partition the records of a host are in: the one that the partitioner of Kafka's own clients chooses for the key,
//! so that all of them are in order.
//!
//! # Source
//! Apache Kafka 4.3: `Utils.murmur2`, `BuiltInPartitioner.partitionForKey`.

const SEED: u32 = 0x9747_b28c;
const FACTOR: u32 = 0x5bd1_e995;

/// The partition of a key among `count`; `None` if there are none.
pub(super) fn of_key(key: &[u8], count: usize) -> Option<i32> {
    let hash = murmur2(key) & 0x7fff_ffff;
    let count = u32::try_from(count).ok()?;
    i32::try_from(hash.checked_rem(count)?).ok()
}

fn murmur2(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut hash = SEED ^ length;
    for &word in words {
        let mut word = u32::from_le_bytes(word).wrapping_mul(FACTOR);
        word ^= word >> 24;
        hash = hash.wrapping_mul(FACTOR) ^ word.wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        for (byte, shift) in rest.iter().zip([0, 8, 16]) {
            hash ^= u32::from(*byte) << shift;
        }
        hash = hash.wrapping_mul(FACTOR);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(FACTOR);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of `UtilsTest.testMurmur2` of Apache Kafka.
    #[test]
    fn hashes_are_those_of_the_clients() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
        assert_eq!(of_key(b"abc", 10), Some(7));
        assert_eq!(of_key(b"foobar", 1), Some(0));
        assert_eq!(of_key(b"foobar", 0), None);
    }
}
