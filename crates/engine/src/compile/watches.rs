//! Watched paths as the programs compare them: by inode, and by a keyed hash of the path.

use std::collections::{BTreeSet, HashMap};
use std::fs;
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
    /// Watches by the fingerprint of their names.
    name_owners: HashMap<u32, BTreeSet<u32>>,
}

/// What identifies an inode to the BPF programs; see `inode_identity` in `bpf/hooks/daemon.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeIdentity {
    pub(crate) ino: u64,
    /// Address of the inode in the kernel.
    pub(crate) address: u64,
    /// Device number in keys of `tlg_watch_inode`.
    pub(crate) dev: u32,
    /// Device number of the super block, which the prefilter compares.
    pub(crate) sb_dev: u32,
}

impl Watches {
    /// Watches by name, without inodes; see [`Self::add_inodes`].
    pub(crate) fn by_name(paths: &[BString], hash: HashKey) -> Self {
        let links = root_links();
        let mut watches = Self::default();
        for (number, path) in numbered(paths) {
            for spelling in spellings(path, &links) {
                watches.names.push((hash.path(&spelling), number));
                let fingerprint = hash.name_fingerprint(&spelling);
                watches.prefilter.names.insert(fingerprint);
                let owners = watches.name_owners.entry(fingerprint).or_default();
                owners.insert(number);
            }
        }
        watches
    }

    /// Looks up every watched path; `identity` returns `None` for a path that leads to nothing.
    ///
    /// # Errors
    /// Those of `identity`.
    pub(crate) fn add_inodes<E>(
        &mut self,
        paths: &[BString],
        hash: HashKey,
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
                sole_name: hash.name_fingerprint(path),
            };
            self.inodes.push((key, watched));
            let fingerprint = hash.inode_fingerprint(&WireInodeKey {
                dev: found.sb_dev,
                ..key
            });
            self.prefilter.inodes.insert(fingerprint);
        }
        self.clear_shared_names();
        Ok(())
    }

    /// Keeps `sole_name` only for an inode that belongs to one watch, whose last component no other watch has.
    fn clear_shared_names(&mut self) {
        let mut watches_of: HashMap<WireInodeKey, usize> = HashMap::new();
        for (key, _) in &self.inodes {
            *watches_of.entry(*key).or_default() += 1;
        }
        for (key, watched) in &mut self.inodes {
            let sole_watch = watches_of.get(key) == Some(&1);
            let name_owners = self.name_owners.get(&watched.sole_name);
            let name_owners = name_owners.map(BTreeSet::len);
            if !sole_watch || name_owners != Some(1) {
                watched.sole_name = NO_FINGERPRINT;
            }
        }
    }
}

/// Watched paths with their numbers.
fn numbered(paths: &[BString]) -> impl Iterator<Item = (u32, &BString)> {
    (0..).zip(paths)
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
    fn symlinks_below_root_give_another_spelling() {
        let links = vec![(b"/bin".to_vec(), b"/usr/bin".to_vec())];
        let all = spellings(b"/usr/bin/no-such-program", &links);
        assert!(all.contains(&b"/bin/no-such-program".to_vec()), "{all:?}");
        assert!(!spellings(b"/usr/binary", &links).contains(&b"/binary".to_vec()));
    }

    #[test]
    fn watch_on_missing_path_has_name_but_no_inode() {
        let paths = [BString::from("/no/such/thing")];
        let hash = HashKey::from_seed(1);
        let mut watches = Watches::by_name(&paths, hash);
        let nothing = |_: &Path| Ok::<_, ()>(None);
        watches.add_inodes(&paths, hash, nothing).unwrap();
        assert!(watches.inodes.is_empty());
        assert_eq!(watches.names.len(), 1);
    }
}
