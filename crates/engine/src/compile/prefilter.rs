//! The Bloom filters of `bpf/lib/watch_prefilter.bpf.h`, which most objects that are not watched do not pass.

/// Words of one table.
pub(crate) const PREFILTER_WORDS: usize = 4096;

/// A set of fingerprints. One that was added is always found; of the others few are.
pub(crate) type FingerprintTable = [u64; PREFILTER_WORDS];

/// The fingerprints of all watches.
#[derive(Debug)]
pub(crate) struct WatchPrefilter {
    pub(crate) inodes: Box<FingerprintTable>,
    pub(crate) names: Box<FingerprintTable>,
}

impl Default for WatchPrefilter {
    fn default() -> Self {
        let empty = || Box::new([0; PREFILTER_WORDS]);
        Self {
            inodes: empty(),
            names: empty(),
        }
    }
}

/// Adds a fingerprint: three bits of one word.
pub(crate) fn insert(table: &mut FingerprintTable, fingerprint: u32) {
    let (index, bits) = position(fingerprint);
    if let Some(word) = table.get_mut(index) {
        *word |= bits;
    }
}

fn position(fingerprint: u32) -> (usize, u64) {
    let index = usize::try_from(fingerprint >> 18).unwrap_or(0) & (PREFILTER_WORDS - 1);
    let bit = |shift: u32| 1 << (fingerprint >> shift & 63);
    (index, bit(0) | bit(6) | bit(12))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::watch_hash::HashKey;

    fn contains(table: &FingerprintTable, fingerprint: u32) -> bool {
        let (index, bits) = position(fingerprint);
        table[index] & bits == bits
    }

    /// Ten false positives in 100,000 are expected with a thousand watches; without filters right in 99.9 % an
    /// open in an unlucky directory costs twice as much.
    #[test]
    fn false_positives_are_rare() {
        let key = HashKey::from_seed(0x0123_4567_89ab_cdef);
        let fingerprint = |name: String| key.name_fingerprint(name.as_bytes());
        let mut table = [0; PREFILTER_WORDS];
        for watch in 0..1000 {
            insert(&mut table, fingerprint(format!("/tmp/audit-bench/{watch}")));
        }
        for watch in 0..1000 {
            assert!(contains(&table, fingerprint(format!("/x/{watch}"))));
        }
        let passed = (0..100_000)
            .filter(|other| contains(&table, fingerprint(format!("/tmp/file{other}"))))
            .count();
        // Only eight bytes and the length count: `file` and four digits, so ten names share a fingerprint.
        assert!(passed <= 100, "{passed} of 100,000 names pass");
    }
}
