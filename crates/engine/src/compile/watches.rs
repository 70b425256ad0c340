//! Watched paths, as the kernel side compares them: by the inode behind them now, and by a keyed hash
//! of their text.
//!
//! The hash is the one of `bpf/lib/watch.bpf.h`: component by component from the root, so that the kernel
//! side can build it from directory entries and from names alike.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Read as _;
use std::path::Path;

use bstr::{BString, ByteSlice as _};

use crate::abi::{NO_BLOOM_BIT, WireInodeKey, WireInodeWatch};

/// What the maps of watches hold.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Inodes of watched paths that exist.
    pub(crate) inodes: Vec<(WireInodeKey, WireInodeWatch)>,
    /// Hashes of watched paths and of their other spellings, with the number of the watch.
    pub(crate) names: Vec<(u64, u32)>,
    /// Where an inode or a name may be that of a watch; see `bpf/lib/watch_prefilter.bpf.h`.
    pub(crate) prefilter: WatchPrefilter,
    /// The watches whose names have a bit.
    bit_owners: HashMap<u16, BTreeSet<u32>>,
}

/// Words of a table of [`WatchPrefilter`].
pub(crate) const BLOOM_WORDS: usize = 1024;

/// The bits of all watches.
#[derive(Debug)]
pub(crate) struct WatchPrefilter {
    pub(crate) inodes: [u64; BLOOM_WORDS],
    pub(crate) names: [u64; BLOOM_WORDS],
}

impl Default for WatchPrefilter {
    fn default() -> Self {
        Self {
            inodes: [0; BLOOM_WORDS],
            names: [0; BLOOM_WORDS],
        }
    }
}

fn set(prefilter: &mut [u64; BLOOM_WORDS], bit: u16) {
    if let Some(word) = prefilter.get_mut(usize::from(bit / 64)) {
        *word |= 1 << (bit % 64);
    }
}

/// How the kernel side knows an object; see `bpf/hooks/daemon.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeIdentity {
    pub(crate) ino: u64,
    /// Where the kernel has it in memory.
    pub(crate) address: u64,
    /// Device number in keys of watches.
    pub(crate) dev: u32,
    /// Device number of the super block.
    pub(crate) sb_dev: u32,
}

impl Watches {
    /// The watches by name. [`Self::add_inodes`] adds them by inode.
    pub(crate) fn by_name(paths: &[BString], seed: u64) -> Self {
        let links = root_links();
        let mut watches = Self::default();
        for (number, path) in numbered(paths) {
            for spelling in spellings(path, &links) {
                watches.names.push((path_hash(seed, &spelling), number));
                let bit = name_bloom_bit(seed, &spelling);
                set(&mut watches.prefilter.names, bit);
                watches.bit_owners.entry(bit).or_default().insert(number);
            }
        }
        watches
    }

    /// Looks every watched path up; `identity` has nothing of a path where nothing is.
    ///
    /// # Errors
    /// Those of `identity`.
    pub(crate) fn add_inodes<E>(
        &mut self,
        paths: &[BString],
        seed: u64,
        mut identity: impl FnMut(&Path) -> Result<Option<InodeIdentity>, E>,
    ) -> Result<(), E> {
        for (number, path) in numbered(paths) {
            let Ok(object) = path.to_path() else {
                continue;
            };
            let Some(found) = identity(object)? else {
                continue;
            };
            let key = WireInodeKey {
                ino: found.ino,
                dev: found.dev,
                half: 0,
            };
            let watched = WireInodeWatch {
                watch: number,
                sole_bloom_bit: u32::from(name_bloom_bit(seed, path)),
            };
            self.inodes.push((key, watched));
            let bit = inode_bloom_bit(seed, found.ino, found.sb_dev);
            set(&mut self.prefilter.inodes, bit);
        }
        self.clear_shared_bloom_bits();
        Ok(())
    }

    /// Leaves the bit of a name to the inodes that are one watch's alone, and whose last component only that
    /// watch has.
    fn clear_shared_bloom_bits(&mut self) {
        let mut owners: HashMap<WireInodeKey, usize> = HashMap::new();
        for (key, _) in &self.inodes {
            *owners.entry(*key).or_default() += 1;
        }
        for (key, watched) in &mut self.inodes {
            let alone = owners.get(key) == Some(&1);
            let bit = u16::try_from(watched.sole_bloom_bit).ok();
            let named = bit.and_then(|bit| self.bit_owners.get(&bit));
            let named = named.map(BTreeSet::len);
            if !alone || named != Some(1) {
                watched.sole_bloom_bit = NO_BLOOM_BIT;
            }
        }
    }
}

/// Watched paths with their numbers.
fn numbered(paths: &[BString]) -> impl Iterator<Item = (u32, &BString)> {
    (0..).zip(paths)
}

/// A seed that nobody outside can know.
///
/// # Errors
/// When `/dev/urandom` cannot be read.
pub(crate) fn random_seed() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Symbolic links directly below `/`, with what they lead to: `/bin` to `/usr/bin` and the like.
fn root_links() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut links = Vec::new();
    for entry in fs::read_dir("/").into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_symlink())
            && let Ok(target) = fs::canonicalize(entry.path())
        {
            let from = <[u8]>::from_path(&entry.path()).map(<[u8]>::to_vec);
            let to = <[u8]>::from_path(&target).map(<[u8]>::to_vec);
            links.extend(from.zip(to));
        }
    }
    links
}

/// A path as written, with its directory resolved, and through the links below `/` that lead there.
fn spellings(path: &[u8], links: &[(Vec<u8>, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut all = vec![path.to_vec()];
    if let Ok(path) = path.to_path()
        && let (Some(parent), Some(name)) = (path.parent(), path.file_name())
        && let Ok(parent) = fs::canonicalize(parent)
        && let Some(resolved) = <[u8]>::from_path(&parent.join(Path::new(name)))
    {
        all.push(resolved.to_vec());
    }
    for (from, to) in links {
        for known in all.clone() {
            if let Some(rest) = known.strip_prefix(to.as_slice())
                && (rest.is_empty() || rest.starts_with(b"/"))
            {
                all.push([from.as_slice(), rest].concat());
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

fn component_hash(seed: u64, component: &[u8]) -> u64 {
    let hash = component.chunks(8).fold(seed, |hash, chunk| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        mix(hash, u64::from_le_bytes(word))
    });
    mix(hash, u64::try_from(component.len()).unwrap_or(u64::MAX))
}

/// Where the bit of an inode is.
fn inode_bloom_bit(seed: u64, ino: u64, sb_dev: u32) -> u16 {
    top_16_bits(mix(seed, ino ^ (u64::from(sb_dev) << 32)))
}

/// Where the bit of the last component of a path is: by its length and its first eight bytes.
fn name_bloom_bit(seed: u64, path: &[u8]) -> u16 {
    let trimmed = path.trim_end_with(|character| character == '/');
    let name = trimmed.rsplit_str("/").next().unwrap_or_default();
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(name) {
        *to = *from;
    }
    let len = u64::try_from(name.len()).unwrap_or(u64::MAX);
    top_16_bits(mix(seed ^ len, u64::from_le_bytes(word)))
}

/// The upper 16 prefilter of a hash.
fn top_16_bits(hash: u64) -> u16 {
    u16::try_from(hash >> 48).unwrap_or(0)
}

/// Hash of an absolute path.
fn path_hash(seed: u64, path: &[u8]) -> u64 {
    path.split(|&byte| byte == b'/')
        .filter(|component| !component.is_empty() && *component != b".")
        .fold(seed, |hash, component| {
            mix(hash, component_hash(seed, component))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_hash_depends_on_components_not_slashes() {
        let hash = |path: &str| path_hash(7, path.as_bytes());
        assert_eq!(hash("/etc/passwd"), hash("//etc/./passwd/"));
        assert_ne!(hash("/etc/passwd"), hash("/etcpasswd"));
        assert_ne!(hash("/etc"), hash("/etc/etc"));
        assert_ne!(hash("/abcdefgh"), hash("/abcdefgh\u{1}"));
        assert_ne!(path_hash(7, b"/etc"), path_hash(8, b"/etc"));
        assert_eq!(hash("/"), 7);
    }

    #[test]
    fn symlinks_below_root_give_another_spelling() {
        let links = vec![(b"/bin".to_vec(), b"/usr/bin".to_vec())];
        let all = spellings(b"/usr/bin/no-such-program", &links);
        assert!(all.contains(&b"/bin/no-such-program".to_vec()), "{all:?}");
        assert!(!spellings(b"/usr/binary", &links).contains(&b"/binary".to_vec()));
    }

    #[test]
    fn watch_on_missing_path_has_name_but_no_inode() {
        let paths = [BString::from("/no/such/thing")];
        let mut watches = Watches::by_name(&paths, 1);
        let nothing = |_: &Path| Ok::<_, ()>(None);
        watches.add_inodes(&paths, 1, nothing).unwrap();
        assert!(watches.inodes.is_empty());
        assert_eq!(watches.names.len(), 1);
    }
}
