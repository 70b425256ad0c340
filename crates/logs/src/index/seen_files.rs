//! Remembers file names of a block whose values were indexed: with all directories above, they are many.

use super::seen_events::slot;

/// Most names that are remembered.
const COUNT: usize = 1024;
/// Longest name that is remembered.
const MAX_NAME: usize = 512;

/// File names, as written in records, with their working directories.
#[derive(Debug)]
pub(super) struct SeenFiles {
    /// Each at the place that its hash gives: a newer one replaces an older one.
    names: Vec<SeenFile>,
    /// Number of the block: names of others are old.
    block: u64,
}

#[derive(Clone, Debug, Default)]
struct SeenFile {
    name: Vec<u8>,
    cwd: Option<Vec<u8>>,
    block: u64,
}

impl Default for SeenFiles {
    fn default() -> Self {
        Self {
            names: vec![SeenFile::default(); COUNT],
            block: 1,
        }
    }
}

impl SeenFiles {
    /// Forgets all: another block begins.
    pub(super) const fn clear(&mut self) {
        self.block += 1;
    }

    /// Whether a name is remembered surely. If not, it is from now on.
    pub(super) fn find_or_keep(&mut self, name: &[u8], cwd: Option<&[u8]>) -> bool {
        if name.len() > MAX_NAME || cwd.is_some_and(|cwd| cwd.len() > MAX_NAME) {
            return false;
        }
        let place = slot(crate::hash::hash(0, name) >> 20, self.names.len());
        let Some(seen) = self.names.get_mut(place) else {
            return false;
        };
        if seen.block == self.block && seen.name == name && seen.cwd.as_deref() == cwd {
            return true;
        }
        seen.block = self.block;
        seen.name.clear();
        seen.name.extend_from_slice(name);
        match (&mut seen.cwd, cwd) {
            (Some(kept), Some(cwd)) => {
                kept.clear();
                kept.extend_from_slice(cwd);
            }
            (kept, cwd) => *kept = cwd.map(<[u8]>::to_vec),
        }
        false
    }
}
