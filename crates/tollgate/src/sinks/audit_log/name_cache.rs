//! Names of users and groups for the log, resolved by NSS and cached.
//!
//! A lookup may ask a directory service and take long; it runs in the log thread, once per ID. The cache is cleared
//! when `/etc/passwd` or `/etc/group` changes, or when more IDs were seen than a machine has accounts.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use audit::record::enrich::AccountLookup;
use logs::name_service;

/// Maximum number of cached IDs of each kind.
const MOST: usize = 4096;
/// Interval of checking the files.
const LOOK: Duration = Duration::from_secs(1);

/// Identity and modification time of a file.
type FileStamp = Option<(u64, i64, i64)>;

/// The cache.
#[derive(Debug)]
pub(crate) struct NameCache {
    users: HashMap<u32, Option<Vec<u8>>>,
    groups: HashMap<u32, Option<Vec<u8>>>,
    files: [FileStamp; 2],
    looked: Instant,
}

impl NameCache {
    /// An empty cache.
    pub(crate) fn new() -> Self {
        Self {
            users: HashMap::new(),
            groups: HashMap::new(),
            files: stamps(),
            looked: Instant::now(),
        }
    }

    /// Clears outdated entries; called once per batch.
    pub(crate) fn refresh(&mut self) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let files = stamps();
        if files != self.files {
            self.files = files;
            self.users.clear();
            self.groups.clear();
        }
    }
}

impl AccountLookup for NameCache {
    fn user(&mut self, uid: u32) -> Option<&[u8]> {
        known(&mut self.users, uid, |uid| {
            let name = name_service::user_name(uid).ok()??;
            Some(name.into_bytes())
        })
    }

    fn group(&mut self, gid: u32) -> Option<&[u8]> {
        known(&mut self.groups, gid, |gid| {
            let name = name_service::group_name(gid).ok()??;
            Some(name.into_bytes())
        })
    }
}

fn known(
    cache: &mut HashMap<u32, Option<Vec<u8>>>,
    id: u32,
    ask: impl FnOnce(u32) -> Option<Vec<u8>>,
) -> Option<&[u8]> {
    if cache.len() >= MOST && !cache.contains_key(&id) {
        cache.clear();
    }
    cache.entry(id).or_insert_with(|| ask(id)).as_deref()
}

fn stamps() -> [FileStamp; 2] {
    ["/etc/passwd", "/etc/group"].map(|path| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.ino(), about.mtime(), about.mtime_nsec()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_looked_up_once_and_the_cache_is_bounded() {
        let mut cache = HashMap::new();
        let mut asked = 0;
        for id in (0..10_000).chain(9_990..10_000) {
            let found = known(&mut cache, id, |id| {
                asked += 1;
                (id % 2 == 0).then(|| b"even".to_vec())
            });
            assert_eq!(found.is_some(), id % 2 == 0);
        }
        assert_eq!(asked, 10_000);
        assert!(cache.len() <= MOST);
    }

    #[test]
    fn uid_0_is_root() {
        assert_eq!(NameCache::new().user(0), Some(&b"root"[..]));
    }
}
