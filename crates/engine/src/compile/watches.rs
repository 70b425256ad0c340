//! Watched paths as the programs compare them: by inode, and by a keyed hash of the path.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use bstr::{BString, ByteSlice as _};

use super::prefilter::WatchPrefilter;
use super::watch_hash::HashKey;
use crate::abi::{NO_FINGERPRINT, WireInodeKey, WireInodeWatch};

/// Contents of the watch maps.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Inodes of watched paths that exist.
    pub(crate) inodes: Vec<(WireInodeKey, WireInodeWatch)>,
    /// Hashes of watched paths and of their other spellings, with the number of the watch.
    pub(crate) names: Vec<(u64, u32)>,
    /// Fingerprints of both.
    pub(crate) prefilter: WatchPrefilter,
}

impl Watches {
    /// Resolves the watched paths.
    pub(crate) fn resolve(paths: &[BString], hash: HashKey) -> Self {
        let links = root_links();
        let mut watches = Self::default();
        let mut owners: HashMap<u32, BTreeSet<u32>> = HashMap::new();
        for (number, path) in paths.iter().enumerate() {
            let Ok(number) = u32::try_from(number) else {
                break;
            };
            // As in the kernel, a watch on a symbolic link applies to the link.
            if let Ok(place) = path.to_path()
                && let Ok(facts) = fs::symlink_metadata(place)
            {
                let key = WireInodeKey {
                    ino: facts.ino(),
                    dev: kernel_dev(facts.dev()),
                    half: 0,
                };
                let watched = WireInodeWatch {
                    watch: number,
                    sole_name: hash.name_fingerprint(path),
                };
                watches.inodes.push((key, watched));
                let fingerprint = hash.inode_fingerprint(&key);
                watches.prefilter.inodes.insert(fingerprint);
            }
            for spelling in spellings(path, &links) {
                watches.names.push((hash.path(&spelling), number));
                let fingerprint = hash.name_fingerprint(&spelling);
                watches.prefilter.names.insert(fingerprint);
                owners.entry(fingerprint).or_default().insert(number);
            }
        }
        watches.clear_shared_names(&owners);
        watches
    }

    /// Keeps `sole_name` only for an inode that belongs to one watch, whose last component no other watch has.
    fn clear_shared_names(&mut self, name_owners: &HashMap<u32, BTreeSet<u32>>) {
        let mut watches_of: HashMap<WireInodeKey, usize> = HashMap::new();
        for (key, _) in &self.inodes {
            *watches_of.entry(*key).or_default() += 1;
        }
        for (key, watched) in &mut self.inodes {
            let sole_watch = watches_of.get(key) == Some(&1);
            let name_owners = name_owners.get(&watched.sole_name).map(BTreeSet::len);
            if !sole_watch || name_owners != Some(1) {
                watched.sole_name = NO_FINGERPRINT;
            }
        }
    }
}

/// Inode of the root directory.
///
/// # Errors
/// As `stat(2)`.
pub(crate) fn root_inode() -> std::io::Result<WireInodeKey> {
    let facts = fs::metadata("/")?;
    Ok(WireInodeKey {
        ino: facts.ino(),
        dev: kernel_dev(facts.dev()),
        half: 0,
    })
}

/// A device number in the kernel's encoding, from that of `stat(2)`.
///
/// # Source
/// `new_encode_dev()` in `include/linux/kdev_t.h` and glibc's `gnu_dev_major()`.
fn kernel_dev(dev: u64) -> u32 {
    let major =
        u32::try_from(((dev >> 8) & 0xfff) | ((dev >> 32) & !0xfff & 0xffff_ffff)).unwrap_or(0);
    let minor = u32::try_from((dev & 0xff) | ((dev >> 12) & 0xff_ff00)).unwrap_or(0);
    (major << 20) | (minor & 0xf_ffff)
}

/// Symbolic links in `/` with their targets, such as `/bin` and `/usr/bin`.
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

/// Spellings of a path: as written, with its parent directory resolved, and through symbolic links in `/`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_match_kernel_encoding() {
        let facts = fs::metadata("/dev/null").unwrap();
        assert_eq!(kernel_dev(facts.rdev()), (1 << 20) | 3);
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
        let watches = Watches::resolve(&[BString::from("/no/such/thing")], HashKey::from_seed(1));
        assert!(watches.inodes.is_empty());
        assert_eq!(watches.names.len(), 1);
    }
}
