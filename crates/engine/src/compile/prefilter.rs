//! The Bloom filters of `bpf/lib/watch_prefilter.bpf.h`, which most objects that are not watched do not pass.

/// Words of one table.
pub(crate) const PREFILTER_WORDS: usize = 4096;

/// A set of fingerprints. One that was inserted is always found; of the others few are.
#[derive(Debug)]
pub(crate) struct FingerprintTable(Vec<u64>);

/// The fingerprints of all watches.
#[derive(Debug, Default)]
pub(crate) struct WatchPrefilter {
    pub(crate) inodes: FingerprintTable,
    pub(crate) names: FingerprintTable,
}

impl Default for FingerprintTable {
    fn default() -> Self {
        Self(vec![0; PREFILTER_WORDS])
    }
}

impl FingerprintTable {
    /// Adds a fingerprint: three bits of one word.
    pub(crate) fn insert(&mut self, fingerprint: u32) {
        let (index, bits) = position(fingerprint);
        if let Some(word) = self.0.get_mut(index) {
            *word |= bits;
        }
    }

    /// The words, [`PREFILTER_WORDS`] of them.
    pub(crate) fn words(&self) -> &[u64] {
        &self.0
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
    use crate::abi::watch::WireInodeKey;
    use crate::compile::watch_hash::HashKey;

    fn contains(table: &FingerprintTable, fingerprint: u32) -> bool {
        let (index, bits) = position(fingerprint);
        table.0[index] & bits == bits
    }

    /// Ten false positives in 100,000 are expected with a thousand watches; without filters right in 99.9 % an
    /// open in an unlucky directory costs twice as much.
    #[test]
    fn false_positives_are_rare() {
        let key = HashKey::from_seed(0x0123_4567_89ab_cdef);
        let fingerprint = |name: String| key.name_fingerprint(name.as_bytes());
        let mut table = FingerprintTable::default();
        for watch in 0..1000 {
            table.insert(fingerprint(format!("/tmp/audit-bench/{watch}")));
        }
        for watch in 0..1000 {
            assert!(contains(&table, fingerprint(format!("/x/{watch}"))));
        }
        let passed = (0..100_000)
            .filter(|other| contains(&table, fingerprint(format!("/tmp/file{other}"))))
            .count();
        // Only eight bytes and the length count: `file` and four digits, so ten names share a fingerprint.
        assert!(passed <= 100, "{passed} of 100,000 names pass");

        let inode = |ino| {
            let (dev, half) = (0x80_0001, 0);
            key.inode_fingerprint(&WireInodeKey { ino, dev, half })
        };
        let mut table = FingerprintTable::default();
        for ino in 5_000..6_000 {
            table.insert(inode(ino));
        }
        let passed = (6_000..106_000).filter(|&ino| contains(&table, inode(ino)));
        assert!(
            passed.clone().count() <= 100,
            "{} inodes pass",
            passed.count()
        );
    }
}
