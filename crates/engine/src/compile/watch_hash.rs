//! Keyed hashes of watched paths and of the fingerprints in front of them, equal to those of
//! `bpf/lib/watch_hash.bpf.h`, `watch_identity.bpf.h` and `watch.bpf.h`.
//!
//! A path is hashed component by component from the root, so that the programs can build the hash from
//! directory entries and from names alike.

use std::fs;
use std::io::Read as _;

use bstr::ByteSlice as _;

use crate::abi::watch::{WireIdentity, WireInodeKey};

/// 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The secret part of every hash, random for each load of the programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashKey {
    /// The hash of an empty path.
    pub(crate) seed: u64,
    /// The multiplier of the second step of a hash; odd.
    pub(crate) multiplier: u64,
}

impl HashKey {
    /// A key from `/dev/urandom`.
    ///
    /// # Errors
    /// When `/dev/urandom` cannot be read.
    pub(crate) fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 8];
        fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self::from_seed(u64::from_ne_bytes(bytes)))
    }

    /// The key of a seed; the multiplier is the first number that `SplitMix64` makes of it.
    pub(crate) const fn from_seed(seed: u64) -> Self {
        let mixed = seed.wrapping_add(MULTIPLIER);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let multiplier = (mixed ^ (mixed >> 31)) | 1;
        Self { seed, multiplier }
    }

    const fn mix(self, hash: u64, word: u64) -> u64 {
        let hash = (hash ^ word).wrapping_mul(MULTIPLIER);
        let hash = (hash ^ (hash >> 32)).wrapping_mul(self.multiplier);
        hash ^ (hash >> 29)
    }

    fn component(self, component: &[u8]) -> u64 {
        let hash = component.chunks(8).fold(self.seed, |hash, chunk| {
            self.mix(hash, little_endian_word(chunk))
        });
        self.mix(hash, u64::try_from(component.len()).unwrap_or(u64::MAX))
    }

    /// Hash of an absolute path.
    pub(crate) fn path(self, path: &[u8]) -> u64 {
        path.split(|&byte| byte == b'/')
            .filter(|component| !component.is_empty() && *component != b".")
            .fold(self.seed, |hash, component| {
                self.mix(hash, self.component(component))
            })
    }

    /// Hash of a name in a directory.
    pub(crate) fn entry(self, directory: &WireIdentity, name: &[u8]) -> u64 {
        let hash = self.mix(!self.seed, directory.ino);
        let dev = u64::from(directory.dev) << 32;
        let hash = self.mix(hash, dev | u64::from(directory.generation));
        self.mix(hash, self.component(name))
    }

    /// Fingerprint of an inode.
    pub(crate) fn inode_fingerprint(self, key: &WireInodeKey) -> u32 {
        self.fingerprint(key.ino ^ (u64::from(key.dev) << 32))
    }

    /// Fingerprint of the last component of a path: of its length and its first eight bytes.
    pub(crate) fn name_fingerprint(self, path: &[u8]) -> u32 {
        let trimmed = path.trim_end_with(|character| character == '/');
        let name = trimmed.rsplit_str("/").next().unwrap_or_default();
        let len = u64::try_from(name.len()).unwrap_or(u64::MAX);
        self.fingerprint(little_endian_word(name) ^ len)
    }

    fn fingerprint(self, word: u64) -> u32 {
        let hash = (self.seed ^ word).wrapping_mul(MULTIPLIER);
        u32::try_from(hash >> 34).unwrap_or(0)
    }
}

/// The first eight bytes, zeros where there are fewer.
fn little_endian_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: HashKey = HashKey::from_seed(7);

    #[test]
    fn paths_are_hashed_by_component() {
        let hash = |path: &str| KEY.path(path.as_bytes());
        assert_eq!(hash("/etc/passwd"), hash("//etc/./passwd/"));
        assert_ne!(hash("/etc/passwd"), hash("/etcpasswd"));
        assert_ne!(hash("/etc"), hash("/etc/etc"));
        assert_ne!(hash("/abcdefgh"), hash("/abcdefgh\u{1}"));
        assert_ne!(hash("/etc"), HashKey::from_seed(8).path(b"/etc"));
        assert_eq!(hash("/"), 7);
    }

    /// With one multiplication these two names have the same hash under every key.
    #[test]
    fn a_difference_in_the_highest_bit_cannot_be_cancelled() {
        let one = [&[b'a'; 8][..], &[b'b'; 8]].concat();
        let mut other = one.clone();
        other[7] ^= 0x80; // bit 63 of the first word
        other[15] ^= 0x80; // bit 63 of the second
        other[12] ^= 0x04; // and bit 34: what the shift by 29 made of bit 63
        for seed in 0..1000 {
            let key = HashKey::from_seed(seed);
            assert_ne!(key.component(&one), key.component(&other), "{key:?}");
        }
    }
}
