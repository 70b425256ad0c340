//! The hash of the formats of indexes and archives.

/// Hash of the bytes of a value in a column.
///
/// It is part of the index format. It need not resist collisions: they cost time, and answers stay right.
pub(crate) fn hash(column: u8, value: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let mut state = mix(u64::from(column), crate::line_buffer::len(value.len()));
    let mut chunks = value.chunks_exact(8);
    for chunk in &mut chunks {
        state = mix(state, chunk.try_into().map_or(0, u64::from_le_bytes));
    }
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(chunks.remainder()) {
        *to = *from;
    }
    state = mix(state, u64::from_le_bytes(last));
    state = (state ^ (state >> 32)).wrapping_mul(FACTOR);
    state ^ (state >> 29)
}

/// Checksum of a part of an index or an archive.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    hash(u8::MAX, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_format() {
        let found = [
            hash(0, b""),
            hash(1, b""),
            hash(1, b"/etc/passwd"),
            hash(1, b"/etc/passwe"),
        ];
        assert_eq!(
            found,
            [
                0,
                6_128_009_352_595_162_729,
                5_243_886_475_713_458_197,
                8_703_689_989_024_468_658
            ],
            "the format has changed: raise its version"
        );
    }
}
