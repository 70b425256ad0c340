//! Free space on the file system of the log.

use std::fs::File;
use std::io;

use audit::conf::auditd::SpaceLimit;
use nix::sys::statvfs::fstatvfs;

use super::MEBIBYTE;

/// What an archive leaves free above a limit: the log grows meanwhile.
///
/// # Units
/// Bytes.
const MARGIN: u64 = 4 * MEBIBYTE;

/// Free space on a file system.
///
/// # Units
/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeSpace {
    /// For this user.
    pub(super) available: u64,
    /// Size of the file system.
    pub(super) total: u64,
}

impl FreeSpace {
    /// Free space where a file is.
    ///
    /// # Errors
    /// The error of `fstatvfs(3)`.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let space = fstatvfs(file)?;
        let block = space.fragment_size();
        Ok(Self {
            available: space.blocks_available().saturating_mul(block),
            total: space.blocks().saturating_mul(block),
        })
    }

    /// The greatest limit that the free space is not below; 0 if it is below each.
    pub(super) fn next_limit(self, limits: &[SpaceLimit]) -> u64 {
        let limits = limits.iter().map(|limit| self.bytes(*limit));
        limits
            .filter(|&limit| limit <= self.available)
            .max()
            .unwrap_or(0)
    }

    /// Whether a file may grow by `bytes` without coming near a limit.
    pub(super) const fn has_room(self, bytes: u64, limit: u64) -> bool {
        self.available >= limit.saturating_add(bytes).saturating_add(MARGIN)
    }

    fn bytes(self, limit: SpaceLimit) -> u64 {
        match limit {
            SpaceLimit::Mebibytes(mebibytes) => mebibytes.saturating_mul(MEBIBYTE),
            SpaceLimit::Percent(percent) => {
                let bytes = u128::from(self.total) * u128::from(percent) / 100;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_is_above_the_next_limit() {
        let limits = [SpaceLimit::Percent(25), SpaceLimit::Mebibytes(50)];
        let space = |mebibytes: u64| FreeSpace {
            available: mebibytes * MEBIBYTE,
            total: 1000 * MEBIBYTE,
        };
        for (available, limit) in [(1000, 250), (250, 250), (249, 50), (50, 50), (49, 0)] {
            let limit = limit * MEBIBYTE;
            assert_eq!(space(available).next_limit(&limits), limit, "{available}");
        }
        assert!(space(254).has_room(0, 250 * MEBIBYTE));
        assert!(!space(254).has_room(1, 250 * MEBIBYTE));
    }
}
