//! The checkpoint: which events of the ring are in the log, in pinned memory that outlives the daemon.
//!
//! The room of events in the ring is released after they are written to the log. Before each write the
//! checkpoint records its end position in the ring and its range of the log file. When the daemon is killed at
//! any instruction, the next daemon finds out from the length of the file whether the write completed.
//!
//! The map has two entries; `current` selects one. An update writes the other entry and selects it with one
//! store. Only the log thread writes.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libbpf_rs::{MapHandle, MapType, libbpf_sys};
use nix::errno::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::{self, LOST};
use crate::sys::mapped_memory::{Access, MappedMemory, page_size};

/// Offset of the page with the consumer position in the mapping of a ring.
///
/// # Source
/// `ringbuf_map_mmap_kern()` in `kernel/bpf/ringbuf.c`, Linux 6.12.
const CONSUMER_OFFSET: usize = 0;

/// Hash of the built BPF object, from `build.rs`.
const OBJECT_HASH: &str = env!("TOLLGATE_OBJECT");
/// First word of the header.
const MAGIC: u64 = u64::from_le_bytes(*b"tollgate");
/// Version of the pins: their names and the layout of [`Header`].
const LAYOUT_VERSION: u32 = 3;

/// A position between two events.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Position {
    /// Position of the next event in the ring.
    ///
    /// # Units
    /// Bytes since the ring was created, as the kernel's producer and consumer positions.
    pub ring_offset: u64,
    /// Number of events of rules before that position.
    pub events: u64,
    /// Lost events that the log reports, by reason.
    pub reported_lost: [u64; LOST + 1],
    /// Serial of the next event.
    pub serial: u64,
}

/// A range of a file.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FileRange {
    /// Device of the file, as `st_dev` of `stat(2)`.
    pub device: u64,
    /// Inode number of the file.
    pub inode: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

/// A log write: its range of the file, and the position when it is complete.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Entry {
    position: Position,
    range: FileRange,
}

/// Settings that are fixed when the maps are created.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct FixedSettings {
    pub(crate) seed: u64,
    /// [`crate::EngineKind`], as a number.
    pub(crate) kind: u32,
    pub(crate) raw_enter: u32,
    pub(crate) raw_exit: u32,
    pub(crate) tests: u32,
    pub(crate) inodes: u32,
    pub(crate) names: u32,
    /// [`crate::EngineOptions::context`].
    pub(crate) context: u32,
    /// [`crate::KernelFeatures::skips_single_syscalls`].
    pub(crate) skips_single_syscalls: u32,
}

/// Layout of the map.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: u64,
    layout: u32,
    wire: u32,
    object: [u8; 16],
    fixed: FixedSettings,
    /// Recursion misses of detached stub copies.
    detached_misses: u64,
    entries: [Entry; 2],
    current: u32,
    _pad: u32,
}

/// Which build created the pins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PinnedOrigin {
    /// The same BPF object.
    Same,
    /// Another BPF object, whose events can be read.
    OtherPrograms,
    /// A build whose events cannot be read, with the reason.
    Unreadable(String),
}

/// The checkpoint of a ring, mapped, with the consumer page of the ring.
pub(crate) struct Checkpoint {
    header: MappedMemory,
    consumer: MappedMemory,
    map: OwnedFd,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").finish_non_exhaustive()
    }
}

/// Address of a member of the mapped header.
macro_rules! member {
    ($checkpoint:expr, $($member:tt)+) => {
        $checkpoint.header().map(|header| {
            // SAFETY: `header()` returns the address of a whole mapped header. This computes an address and
            // makes no reference.
            unsafe { &raw mut (*header.as_ptr()).$($member)+ }
        })
    };
}

impl Checkpoint {
    /// Creates a checkpoint for a new ring.
    ///
    /// # Errors
    /// When the map cannot be created or mapped.
    pub(crate) fn new(fixed: FixedSettings, first: Position, ring: impl AsFd) -> io::Result<Self> {
        let page = page_size()?;
        let map = create_mmapable_array("tlg_header", page, 1)?;
        let checkpoint = Self::from_map(map, ring)?;
        let header = Header {
            magic: MAGIC,
            layout: LAYOUT_VERSION,
            wire: abi::VERSION.into(),
            object: object_hash(),
            fixed,
            detached_misses: 0,
            entries: [Entry {
                position: first,
                range: FileRange::default(),
            }; 2],
            current: 0,
            _pad: 0,
        };
        if let Some(at) = checkpoint.header() {
            // SAFETY: `at` is the address of a whole mapped header. No other code has access to the new map.
            unsafe { at.write_volatile(header) };
        }
        Ok(checkpoint)
    }

    /// Opens the checkpoint of a previous daemon.
    ///
    /// # Errors
    /// As `mmap(2)`.
    pub(crate) fn from_map(map: OwnedFd, ring: impl AsFd) -> io::Result<Self> {
        let page = page_size()?;
        let header = MappedMemory::map(&map, 0, page, Access::ReadWrite)?;
        let consumer = MappedMemory::map(ring, CONSUMER_OFFSET, page, Access::ReadWrite)?;
        Ok(Self {
            header,
            consumer,
            map,
        })
    }

    fn header(&self) -> Option<NonNull<Header>> {
        self.header.at(0)
    }

    /// Which build created the pins, from the header.
    pub(crate) fn origin(&self) -> PinnedOrigin {
        let Some(at) = self.header() else {
            return PinnedOrigin::Unreadable("its checkpoint is too short".to_owned());
        };
        // SAFETY: `at` is the address of a whole mapped header; `Header: FromBytes` is valid for any bits.
        let header = unsafe { at.read_volatile() };
        if (header.magic, header.layout) != (MAGIC, LAYOUT_VERSION) {
            return PinnedOrigin::Unreadable("its checkpoint has another layout".to_owned());
        }
        if !(abi::OLDEST_VERSION.into()..=abi::VERSION.into()).contains(&header.wire) {
            return PinnedOrigin::Unreadable(format!(
                "its events are in format {}, and this version reads formats {} to {}",
                header.wire,
                abi::OLDEST_VERSION,
                abi::VERSION
            ));
        }
        if header.wire == u32::from(abi::VERSION) && header.object == object_hash() {
            PinnedOrigin::Same
        } else {
            PinnedOrigin::OtherPrograms
        }
    }

    /// Settings that were fixed when the maps were created.
    pub(crate) fn fixed(&self) -> FixedSettings {
        // SAFETY: `member` returns the address of a mapped member, whose type is valid for any bits.
        member!(self, fixed).map_or_else(FixedSettings::default, |at| unsafe { at.read_volatile() })
    }

    /// Recursion misses of detached stub copies.
    pub(crate) fn detached_misses(&self) -> u64 {
        // SAFETY: as above.
        member!(self, detached_misses).map_or(0, |at| unsafe { at.read_volatile() })
    }

    /// Sets the recursion misses of detached stub copies.
    pub(crate) fn set_detached_misses(&self, detached_misses: u64) {
        if let Some(at) = member!(self, detached_misses) {
            // SAFETY: as above. Only the thread of the engine writes this member.
            unsafe { at.write_volatile(detached_misses) };
        }
    }

    /// The current position. All events before it are in the log, or were lost and counted, unless a write is
    /// unfinished.
    pub(crate) fn position(&self) -> Position {
        self.entry(self.current()).position
    }

    /// The write that was in progress when the daemon ended: its position is beyond the consumer position.
    pub(crate) fn unfinished_write(&self) -> Option<FileRange> {
        let Entry { position, range } = self.entry(self.current());
        (self.consumed().load(Ordering::Acquire) < position.ring_offset).then_some(range)
    }

    /// Completes the unfinished write, or rolls back to the entry before it.
    pub(crate) fn resolve_unfinished(&self, written: bool) {
        if self.unfinished_write().is_none() {
            return;
        }
        if written {
            self.release();
        } else {
            self.select(1 - (self.current() & 1));
        }
    }

    /// Records a write that is about to start.
    fn begin(&self, entry: Entry) {
        let other = 1 - (self.current() & 1);
        if let Some(at) = self.at(other) {
            // SAFETY: `at` is the address of a mapped entry. Only one thread writes, and nobody reads the entry
            // that is not selected.
            unsafe { at.write_volatile(entry) };
        }
        self.select(other);
    }

    /// Releases the room in the ring up to the current position.
    fn release(&self) {
        self.consumed()
            .store(self.position().ring_offset, Ordering::Release);
    }

    /// Consumer position of the ring. The kernel does not write beyond it plus the size of the ring.
    pub(crate) fn consumed(&self) -> &AtomicU64 {
        let at: NonNull<u64> = self.consumer.at(0).unwrap_or(NonNull::dangling());
        // SAFETY: a whole page is mapped, so `at` is in it, and `self` owns the mapping. The kernel accesses
        // the word atomically.
        unsafe { AtomicU64::from_ptr(at.as_ptr()) }
    }

    /// Index of the current entry.
    fn current(&self) -> u32 {
        self.selector()
            .map_or(0, |current| current.load(Ordering::Acquire) & 1)
    }

    fn select(&self, entry: u32) {
        if let Some(current) = self.selector() {
            // Release: a reader that sees the index sees the whole entry.
            current.store(entry, Ordering::Release);
        }
    }

    fn selector(&self) -> Option<&AtomicU32> {
        // SAFETY: the word is aligned and mapped while `self` lives, and is accessed only atomically.
        member!(self, current).map(|at| unsafe { AtomicU32::from_ptr(at) })
    }

    fn at(&self, entry: u32) -> Option<NonNull<Entry>> {
        let entries: NonNull<Entry> = NonNull::new(member!(self, entries)?)?.cast();
        // SAFETY: the header has two entries.
        Some(unsafe { entries.add(usize::from(entry & 1 == 1)) })
    }

    fn entry(&self, entry: u32) -> Entry {
        // SAFETY: `at` is the address of a mapped entry; `Entry: FromBytes` is valid for any bits.
        self.at(entry)
            .map_or_else(Entry::default, |at| unsafe { at.read_volatile() })
    }
}

impl AsFd for Checkpoint {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// Commits events to the checkpoint. The log thread gets one with each batch, calls [`Self::begin`] before it
/// writes and [`Self::end`] after.
#[derive(Debug)]
pub struct CommitToken {
    checkpoint: Arc<Checkpoint>,
    position: Position,
    started: bool,
}

impl CommitToken {
    pub(crate) const fn new(checkpoint: Arc<Checkpoint>, position: Position) -> Self {
        Self {
            checkpoint,
            position,
            started: false,
        }
    }

    /// Records that the events are about to be written to this range of a file.
    pub fn begin(&mut self, range: FileRange) {
        self.checkpoint.begin(Entry {
            position: self.position,
            range,
        });
        self.started = true;
    }

    /// Records that nothing of the write is in the file: the position is the one before it again.
    pub fn cancel(&mut self) {
        if std::mem::take(&mut self.started) {
            self.checkpoint.resolve_unfinished(false);
        }
    }

    /// Releases the room of the events in the ring: they are written, or will never be.
    pub fn end(&mut self) {
        if !self.started {
            self.begin(FileRange::default());
        }
        self.checkpoint.release();
    }
}

/// Creates an array that can be mapped.
///
/// # Errors
/// As `BPF_MAP_CREATE` of `bpf(2)`.
pub(crate) fn create_mmapable_array(
    name: &str,
    bytes: usize,
    entries: usize,
) -> io::Result<OwnedFd> {
    let to_u32 = |size| u32::try_from(size).map_err(|_too_large| io::Error::from(Errno::E2BIG));
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let map = MapHandle::create(
        MapType::Array,
        Some(name),
        4,
        to_u32(bytes)?,
        to_u32(entries)?,
        &options,
    );
    map.map_err(io::Error::other)?.as_fd().try_clone_to_owned()
}

/// [`OBJECT_HASH`] as in the header.
fn object_hash() -> [u8; 16] {
    let mut hash = [0; 16];
    for (to, from) in hash.iter_mut().zip(OBJECT_HASH.as_bytes()) {
        *to = *from;
    }
    hash
}

const _: () = assert!(size_of::<Header>() <= 4096, "a page holds the header");

#[cfg(test)]
mod tests {
    use super::*;

    /// Hash of `wire.h` without comments and white space.
    fn wire() -> u64 {
        let mut header = include_str!("../../bpf/wire.h");
        let mut code = String::new();
        while let Some((before, comment)) = header.split_once("/*") {
            code.push_str(before);
            (_, header) = comment.split_once("*/").unwrap();
        }
        code.push_str(header);
        let bytes = code
            .split_whitespace()
            .flat_map(|word| word.bytes().chain([b' ']));
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// A daemon must not read events of another format, which it recognizes by the version.
    #[test]
    fn wire_h_change_needs_new_version() {
        const KNOWN: (u16, u64) = (11, 0x5a13_3a90_ec5e_bcda);
        let found = (abi::VERSION, wire());
        assert_eq!(
            found, KNOWN,
            "increase `WIRE_VERSION` in wire.h and `VERSION` in abi.rs, then set KNOWN to {found:#x?}"
        );
    }
}
