//! Plan snapshots: data about a plan that its maps do not hold, pinned for the next daemon.
//!
//! Layout of the map, in native byte order:
//!
//! ```text
//! u64 number of name keys, u64 length of the text; the keys, u64 each; the text
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::MapInfo;

use crate::ring::checkpoint::create_mmapable_array;
use crate::sys::mapped_memory::{Access, MappedMemory, page_size};

/// Data about a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanSnapshot {
    /// Keys of watched names in `tlg_watch_path`; a key does not show which half it belongs to.
    pub(crate) names: Vec<u64>,
    /// Data of the caller about the rules.
    pub(crate) text: Vec<u8>,
}

impl PlanSnapshot {
    /// Writes the snapshot into a new map.
    ///
    /// # Errors
    /// When the map cannot be created or mapped.
    pub(crate) fn to_map(&self) -> io::Result<OwnedFd> {
        let mut words = vec![length(self.names.len())?, length(self.text.len())?];
        words.extend(&self.names);
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
        let bytes: Vec<u8> = bytes.chain(self.text.iter().copied()).collect();
        let page = page_size()?;
        let pages = bytes.len().div_ceil(page);
        let map = create_mmapable_array("tlg_plan", page, pages)?;
        let memory = MappedMemory::map(&map, 0, pages * page, Access::ReadWrite)?;
        for (offset, byte) in bytes.iter().enumerate() {
            if let Some(at) = memory.at::<u8>(offset) {
                // SAFETY: `at` checks bounds. No other code has access to the new map.
                unsafe { at.write(*byte) };
            }
        }
        Ok(map)
    }

    /// Reads a snapshot from its map.
    ///
    /// # Errors
    /// When the map cannot be mapped, or is shorter than its header says.
    pub(crate) fn from_map(map: impl AsFd) -> io::Result<Self> {
        let bytes = read_array(map)?;
        let mut rest = bytes.as_slice();
        let mut word = || -> Option<u64> {
            let (word, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u64::from_ne_bytes(*word))
        };
        let mut read = || {
            let (names, text) = (word()?, usize::try_from(word()?).ok()?);
            let names: Option<Vec<u64>> = (0..names).map(|_| word()).collect();
            Some((names?, text))
        };
        let truncated = || io::Error::other("the plan snapshot is truncated");
        let (names, text) = read().ok_or_else(truncated)?;
        let text = rest.get(..text).ok_or_else(truncated)?.to_vec();
        Ok(Self { names, text })
    }
}

fn length(length: usize) -> io::Result<u64> {
    u64::try_from(length).map_err(io::Error::other)
}

/// All bytes of a `BPF_F_MMAPABLE` array.
fn read_array(map: impl AsFd) -> io::Result<Vec<u8>> {
    let info = MapInfo::new(map.as_fd()).map_err(io::Error::other)?.info;
    let entries = usize::try_from(info.max_entries).map_err(io::Error::other)?;
    let size = usize::try_from(info.value_size).map_err(io::Error::other)?;
    let memory = MappedMemory::map(map, 0, entries * size, Access::Read)?;
    let byte = |offset| {
        let at = memory.at::<u8>(offset)?;
        // SAFETY: `at` checks bounds. The process that wrote the map has exited or no longer writes it.
        Some(unsafe { at.read() })
    };
    Ok((0..memory.bytes()).filter_map(byte).collect())
}
