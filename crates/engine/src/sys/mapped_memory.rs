//! BPF maps mapped into this process.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::{SysconfVar, sysconf};

/// A shared mapping of a BPF map; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct MappedMemory {
    base: NonNull<u8>,
    bytes: NonZeroUsize,
}

/// Protection of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

// SAFETY: the mapping belongs to this value alone and to no thread. Its methods only compute addresses; code
// that dereferences them must allow for concurrent access by the kernel and other threads.
unsafe impl Send for MappedMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// Maps `bytes` of a BPF map. `offset` is a multiple of the page size.
    ///
    /// # Errors
    /// As `mmap(2)`.
    pub(crate) fn map(
        map: impl AsFd,
        offset: usize,
        bytes: usize,
        access: Access,
    ) -> io::Result<Self> {
        let bytes = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = match access {
            Access::Read => ProtFlags::PROT_READ,
            Access::ReadWrite => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        };
        let offset = i64::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: without an address the kernel chooses a free range, so no existing mapping is replaced.
        let base = unsafe {
            mmap(
                None,
                bytes,
                protection,
                MapFlags::MAP_SHARED,
                map.as_fd(),
                offset,
            )
        }?;
        Ok(Self {
            base: base.cast(),
            bytes,
        })
    }

    /// Length of the mapping.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// The address of a `T` at an offset; `None` when it is misaligned or exceeds the mapping.
    pub(crate) fn at<T>(&self, offset: usize) -> Option<NonNull<T>> {
        let end = offset.checked_add(size_of::<T>())?;
        if end > self.bytes.get() || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: `offset` is within the mapping, as checked above.
        Some(unsafe { self.base.add(offset) }.cast())
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: `map` created this mapping. Types that keep addresses into it own it or are owned by its
        // owner. On failure the memory stays mapped.
        let _result = unsafe { munmap(self.base.cast(), self.bytes.get()) };
    }
}

/// Size of a page.
///
/// # Units
/// Bytes.
///
/// # Errors
/// When `sysconf(3)` does not report it.
pub(crate) fn page_size() -> io::Result<usize> {
    let bytes = sysconf(SysconfVar::PAGE_SIZE)?.and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| io::Error::other("unknown page size"))
}
