//! Watched paths as the programs compare them: by inode, and by a keyed hash of the path.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::hash::Hash;
use std::path::{Path, PathBuf};

use bstr::{BString, ByteSlice as _};

use super::prefilter::WatchPrefilter;
use super::watch_hash::HashKey;
use crate::abi::NO_FINGERPRINT;
use crate::abi::watch::{self, WireIdentity, WireInodeKey, WireInodeWatch, WireNameWatch};

/// Contents of the watch maps.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Inodes of watched paths that exist; their watches are numbers or sets.
    pub(crate) inodes: Vec<(WireInodeKey, WireInodeWatch)>,
    /// Hashes of watched paths, of their other spellings, and of their names in their directories.
    pub(crate) names: Vec<(u64, WireNameWatch)>,
    /// Watches that lead to one object: their numbers, in order.
    pub(crate) sets: Vec<Vec<u32>>,
    /// Watches that have no place in a set.
    pub(crate) left_out: BTreeSet<u32>,
    /// Fingerprints of both.
    pub(crate) prefilter: WatchPrefilter,
    /// Watches by the fingerprint of their names.
    name_owners: HashMap<u32, BTreeSet<u32>>,
}

/// What identifies an inode to the BPF programs; see `inode_identity` in `bpf/hooks/daemon.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeIdentity {
    pub(crate) ino: u64,
    /// Device number in keys of `tlg_watch_inode`.
    pub(crate) dev: u32,
    /// Device number of the super block, which the prefilter compares.
    pub(crate) sb_dev: u32,
    /// Differs when the file system uses an inode number again.
    pub(crate) generation: u32,
}

impl InodeIdentity {
    const fn wire(self) -> WireIdentity {
        WireIdentity {
            ino: self.ino,
            dev: self.dev,
            generation: self.generation,
        }
    }
}

impl Watches {
    /// Watches by name, without inodes; see [`Self::add_inodes`].
    pub(crate) fn by_name(paths: &[BString], hash: HashKey) -> Self {
        let links = root_links();
        let mut watches = Self::default();
        for (number, path) in numbered(paths) {
            for spelling in spellings(path, &links) {
                watches.add_name(hash.path(&spelling), number);
                let fingerprint = hash.name_fingerprint(&spelling);
                watches.prefilter.names.insert(fingerprint);
                let owners = watches.name_owners.entry(fingerprint).or_default();
                owners.insert(number);
            }
        }
        watches
    }

    fn add_name(&mut self, key: u64, watch: u32) {
        let name = WireNameWatch {
            watch,
            sole_name: NO_FINGERPRINT,
            ..WireNameWatch::default()
        };
        self.names.push((key, name));
    }

    /// Looks up every watched path and its directory; `identity` returns `None` for a path that leads to nothing.
    ///
    /// # Errors
    /// Those of `identity`.
    pub(crate) fn add_inodes<E>(
        &mut self,
        paths: &[BString],
        hash: HashKey,
        mut identity: impl FnMut(&Path) -> Result<Option<InodeIdentity>, E>,
    ) -> Result<(), E> {
        let mut directories: HashMap<PathBuf, Option<InodeIdentity>> = HashMap::new();
        for (number, path) in numbered(paths) {
            let Ok(object) = path.to_path() else {
                continue;
            };
            if let Some((directory, name)) = entry(object) {
                let found = match directories.get(&directory) {
                    Some(known) => *known,
                    None => identity(&directory)?,
                };
                directories.insert(directory, found);
                if let Some(found) = found {
                    self.add_name(hash.entry(&found.wire(), name), number);
                }
            }
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
                generation: found.generation,
                _pad: 0,
            };
            self.inodes.push((key, watched));
            let fingerprint = hash.inode_fingerprint(&WireInodeKey {
                dev: found.sb_dev,
                ..key
            });
            self.prefilter.inodes.insert(fingerprint);
        }
        self.clear_shared_names();
        self.set_led_to(paths, hash);
        self.join_equal_keys();
        Ok(())
    }

    /// Makes one entry of those with one key: paths that lead to the same object, such as `/sbin` and `/usr/sbin`, or
    /// hard links.
    fn join_equal_keys(&mut self) {
        let mut known = HashMap::new();
        let (sets, left_out) = (&mut self.sets, &mut self.left_out);
        let mut set = |watches: BTreeSet<u32>| {
            let mut watches: Vec<u32> = watches.into_iter().collect();
            left_out.extend(watches.iter().skip(watch::SET_WATCHES));
            watches.truncate(watch::SET_WATCHES);
            if let [watch] = watches[..] {
                return watch;
            }
            let number = u32::try_from(sets.len()).unwrap_or(u32::MAX);
            if number >= watch::WATCH_SETS && !known.contains_key(&watches) {
                left_out.extend(watches.iter().skip(1));
                return watches.first().copied().unwrap_or_default();
            }
            *known.entry(watches).or_insert_with_key(|watches| {
                sets.push(watches.clone());
                watch::WATCH_SET | number
            })
        };
        join(&mut self.inodes, |watched| &mut watched.watch, &mut set);
        join(&mut self.names, |name| &mut name.watch, &mut set);
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

    /// Stores the inode of each watch with its names, and the fingerprint for the inodes that they lead to later.
    fn set_led_to(&mut self, paths: &[BString], hash: HashKey) {
        let inodes: HashMap<u32, WireIdentity> = self
            .inodes
            .iter()
            .map(|(key, watched)| {
                let identity = WireIdentity {
                    ino: key.ino,
                    dev: key.dev,
                    generation: watched.generation,
                };
                (watched.watch, identity)
            })
            .collect();
        let fingerprints: Vec<u32> = paths
            .iter()
            .map(|path| hash.name_fingerprint(path))
            .collect();
        for (_, name) in &mut self.names {
            let [newest, _] = &mut name.led_to;
            *newest = inodes.get(&name.watch).copied().unwrap_or_default();
            let fingerprint = usize::try_from(name.watch)
                .ok()
                .and_then(|watch| fingerprints.get(watch));
            let owners = fingerprint.and_then(|fingerprint| self.name_owners.get(fingerprint));
            if let Some(fingerprint) = fingerprint
                && owners.is_some_and(|owners| owners.len() == 1)
            {
                name.sole_name = *fingerprint;
            }
        }
    }
}

/// Keeps the first entry of each key, with the watches of all.
fn join<K: Copy + Eq + Hash, V>(
    entries: &mut Vec<(K, V)>,
    watch: impl Fn(&mut V) -> &mut u32,
    mut set: impl FnMut(BTreeSet<u32>) -> u32,
) {
    let mut watches_of: HashMap<K, BTreeSet<u32>> = HashMap::new();
    for (key, value) in entries.iter_mut() {
        watches_of.entry(*key).or_default().insert(*watch(value));
    }
    entries.retain_mut(|(key, value)| {
        let Some(watches) = watches_of.remove(key) else {
            return false;
        };
        *watch(value) = set(watches);
        true
    });
}

/// A path as the directory that has it, with symbolic links resolved, and its name there.
fn entry(path: &Path) -> Option<(PathBuf, &[u8])> {
    let (parent, name) = (path.parent()?, path.file_name()?);
    Some((fs::canonicalize(parent).ok()?, <[u8]>::from_os_str(name)?))
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

    #[test]
    fn names_have_their_directory_and_their_inode() {
        let paths = [BString::from("/proc/self"), BString::from("/proc/missing")];
        let hash = HashKey::from_seed(1);
        let mut watches = Watches::by_name(&paths, hash);
        let found = |path: &Path| {
            let ino = match path.to_str() {
                Some("/proc") => 1,
                Some("/proc/self") => 2,
                _ => return Ok::<_, ()>(None),
            };
            let (dev, sb_dev, generation) = (3, 4, 5);
            let found = InodeIdentity {
                ino,
                dev,
                sb_dev,
                generation,
            };
            Ok(Some(found))
        };
        watches.add_inodes(&paths, hash, found).unwrap();
        let proc = WireIdentity {
            ino: 1,
            dev: 3,
            generation: 5,
        };
        for (watch, name, ino) in [(0, "self", 2), (1, "missing", 0)] {
            let key = hash.entry(&proc, name.as_bytes());
            let (_, entry) = watches.names.iter().find(|(at, _)| *at == key).unwrap();
            assert_eq!((entry.watch, entry.led_to[0].ino), (watch, ino));
            assert_eq!(entry.sole_name, hash.name_fingerprint(name.as_bytes()));
        }
    }

    #[test]
    fn watches_of_one_object_share_its_entries() {
        let paths = ["/a/one", "/a/two", "/b/one", "/c/three"].map(BString::from);
        let hash = HashKey::from_seed(1);
        let mut watches = Watches::by_name(&paths, hash);
        let found = |path: &Path| {
            let ino = match path.to_str() {
                Some("/a/one" | "/a/two" | "/b/one") => 2,
                Some("/c/three") => 3,
                _ => return Ok::<_, ()>(None),
            };
            Ok(Some(InodeIdentity {
                ino,
                dev: 3,
                sb_dev: 4,
                generation: 5,
            }))
        };
        watches.add_inodes(&paths, hash, found).unwrap();
        assert_eq!(watches.sets, [vec![0, 1, 2]]);
        let mut inodes: Vec<_> = watches
            .inodes
            .iter()
            .map(|(key, of)| (key.ino, of))
            .collect();
        inodes.sort_by_key(|(ino, _)| *ino);
        let [(2, shared), (3, single)] = inodes[..] else {
            panic!("{inodes:?}");
        };
        assert_eq!((shared.watch, single.watch), (watch::WATCH_SET, 3));
        assert_eq!(shared.sole_name, NO_FINGERPRINT);
        assert_eq!(watches.names.len(), 4);
        assert!(watches.left_out.is_empty());
    }

    /// Any user can make hard links of a file: they must not keep the rules from being loaded.
    #[test]
    fn watches_beyond_a_set_are_reported() {
        let paths: Vec<BString> = (0..20).map(|n| BString::from(format!("/a/{n}"))).collect();
        let hash = HashKey::from_seed(1);
        let mut watches = Watches::by_name(&paths, hash);
        let found = |path: &Path| {
            let is_file = path.to_str() != Some("/a");
            let identity = InodeIdentity {
                ino: 2,
                dev: 3,
                sb_dev: 4,
                generation: 5,
            };
            Ok::<_, ()>(is_file.then_some(identity))
        };
        watches.add_inodes(&paths, hash, found).unwrap();
        assert_eq!(watches.sets, [(0..15).collect::<Vec<u32>>()]);
        assert_eq!(watches.left_out, (15..20).collect());
        assert_eq!(watches.names.len(), 20, "they are compared by name");
    }
}
