//! Memory that the kernel shares with this process: contents of maps.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::{SysconfVar, sysconf};

/// Mapped memory of a map.
#[derive(Debug)]
pub(crate) struct MappedMemory {
    base: NonNull<u8>,
    bytes: NonZeroUsize,
}

/// What is done with it here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

// SAFETY: it is an address range that belongs to this value, and nothing of it is bound to a thread. Who
// reads or writes through it makes sure that others may do so at the same time.
unsafe impl Send for MappedMemory {}
// SAFETY: as above.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// Maps so many bytes of a map, from an offset that is a whole number of pages.
    ///
    /// # Errors
    /// What `mmap(2)` answers.
    pub(crate) fn map(
        of: impl AsFd,
        offset: usize,
        bytes: usize,
        access: Access,
    ) -> io::Result<Self> {
        let bytes = NonZeroUsize::new(bytes).ok_or_else(|| io::Error::other("nothing to map"))?;
        let protection = match access {
            Access::Read => ProtFlags::PROT_READ,
            Access::ReadWrite => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        };
        let offset = i64::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe {
            mmap(
                None,
                bytes,
                protection,
                MapFlags::MAP_SHARED,
                of.as_fd(),
                offset,
            )
        }?;
        Ok(Self {
            base: base.cast(),
            bytes,
        })
    }

    /// How many bytes are mapped.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// The address of a value that lies in it, aligned; `None` when it does not.
    pub(crate) fn at<T>(&self, offset: usize) -> Option<NonNull<T>> {
        let end = offset.checked_add(size_of::<T>())?;
        if end > self.bytes.get() || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: the offset lies within the mapping, which starts at a page.
        Some(unsafe { self.base.add(offset) }.cast())
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing points into it any more. A failure leaves it mapped.
        let _unmapped = unsafe { munmap(self.base.cast(), self.bytes.get()) };
    }
}

/// # Units
/// Bytes.
///
/// # Errors
/// When the C library does not know.
pub(crate) fn page_size() -> io::Result<usize> {
    let page_size =
        sysconf(SysconfVar::PAGE_SIZE)?.and_then(|page_size| usize::try_from(page_size).ok());
    page_size.ok_or_else(|| io::Error::other("pages have no size"))
}
