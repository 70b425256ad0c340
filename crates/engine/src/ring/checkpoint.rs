//! How far events have come on their way into the log, in memory that outlives the daemon.
//!
//! Room in the ring is given back when what was in it has been written. Before a write the checkpoint is told
//! what it will be: the part of the ring, and the part of the log file. So whoever comes after a daemon that
//! was killed at any instruction knows which events are in the log, looking at no more than the file's length.
//!
//! There are two entries, of which `current` names one: the other is written, then a single store makes it
//! the current one. One thread writes, the one that writes the log.

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

/// Where the kernel keeps how far the ring was read.
///
/// # Source
/// `ringbuf_map_mmap_kern()` in `kernel/bpf/ringbuf.c`, Linux 6.12: the first page is the consumer's.
const CONSUMER: usize = 0;

/// Which program has loaded the object, as its own hash.
const OBJECT_HASH: &str = env!("TOLLGATE_OBJECT");
/// What a header begins with.
const MAGIC: u64 = u64::from_le_bytes(*b"tollgate");
/// Version of everything that is pinned, this header and the names among it.
const LAYOUT_VERSION: u32 = 3;

/// How far events have come.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Position {
    /// Where in the stream of all events the next one lies.
    pub ring_offset: u64,
    /// Events before that position.
    pub events: u64,
    /// Events lost, by reason, of which the log tells.
    pub reported_lost: [u64; LOST + 1],
    /// Serial of the next event.
    pub serial: u64,
}

/// A part of a file.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FileRange {
    /// The device that the file is on, and its inode there.
    pub device: u64,
    /// See `device`.
    pub inode: u64,
    /// Where it starts.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// A write, and how far events have come with it.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Entry {
    position: Position,
    range: FileRange,
}

/// What is fixed when the maps are made.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct FixedSettings {
    pub(crate) seed: u64,
    /// 0 for tracepoints, 1 for functions.
    pub(crate) on_functions: u32,
    pub(crate) raw_enter: u32,
    pub(crate) raw_exit: u32,
    pub(crate) tests: u32,
    pub(crate) inodes: u32,
    pub(crate) names: u32,
    /// Whether events say what is around the task.
    pub(crate) context: u32,
    pub(crate) _pad: u32,
}

/// What stands in the map.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: u64,
    layout: u32,
    wire: u32,
    object: [u8; 16],
    fixed: FixedSettings,
    /// What copies of stubs that are gone were skipped.
    detached_misses: u64,
    entries: [Entry; 2],
    current: u32,
    _pad: u32,
}

/// What has pinned something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PinnedOrigin {
    /// A daemon whose programs are these.
    Same,
    /// One whose events can be read, but not its other maps.
    OtherPrograms,
    /// One of which nothing can be read, and why.
    Unreadable(String),
}

/// The checkpoint of a ring.
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

/// Address of a member of the header.
macro_rules! member {
    ($checkpoint:expr, $($member:tt)+) => {
        $checkpoint.header().map(|header| {
            // SAFETY: the header is mapped whole; this makes an address in it and no reference.
            unsafe { &raw mut (*header.as_ptr()).$($member)+ }
        })
    };
}

impl Checkpoint {
    /// A new one, for a ring that nobody has read.
    ///
    /// # Errors
    /// When the kernel makes no map.
    pub(crate) fn new(fixed: FixedSettings, first: Position, ring: impl AsFd) -> io::Result<Self> {
        let page = page_size()?;
        let map = create_mmapable_array("tlg_header", page, 1)?;
        let checkpoint = Self::from_map(map, ring)?;
        let header = Header {
            magic: MAGIC,
            layout: LAYOUT_VERSION,
            wire: abi::VERSION.into(),
            object: object(),
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
            // SAFETY: the address is that of a whole header, which nobody else knows yet.
            unsafe { at.write_volatile(header) };
        }
        Ok(checkpoint)
    }

    /// That of a daemon which has gone, over its map.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub(crate) fn from_map(map: OwnedFd, ring: impl AsFd) -> io::Result<Self> {
        let page = page_size()?;
        let header = MappedMemory::map(&map, 0, page, Access::ReadWrite)?;
        let consumer = MappedMemory::map(ring, CONSUMER, page, Access::ReadWrite)?;
        Ok(Self {
            header,
            consumer,
            map,
        })
    }

    fn header(&self) -> Option<NonNull<Header>> {
        self.header.at(0)
    }

    /// What this program can make of what was pinned.
    pub(crate) fn origin(&self) -> PinnedOrigin {
        let Some(at) = self.header() else {
            return PinnedOrigin::Unreadable("it is too short".to_owned());
        };
        // SAFETY: the address is that of a mapped header; any bits are one.
        let header = unsafe { at.read_volatile() };
        if (header.magic, header.layout) != (MAGIC, LAYOUT_VERSION) {
            return PinnedOrigin::Unreadable("it was pinned in another layout".to_owned());
        }
        // The events of the previous version have the same bytes; its maps and programs have other names.
        if header.wire == u32::from(abi::PREVIOUS_VERSION) {
            return PinnedOrigin::OtherPrograms;
        }
        if header.wire != u32::from(abi::VERSION) {
            return PinnedOrigin::Unreadable(format!(
                "its events are in format {}, and this version reads formats {} and {}",
                header.wire,
                abi::PREVIOUS_VERSION,
                abi::VERSION
            ));
        }
        if header.object == object() {
            PinnedOrigin::Same
        } else {
            PinnedOrigin::OtherPrograms
        }
    }

    /// What was fixed when the maps were made.
    pub(crate) fn fixed(&self) -> FixedSettings {
        // SAFETY: the address is that of a mapped member; any bits are one.
        member!(self, fixed).map_or_else(FixedSettings::default, |at| unsafe { at.read_volatile() })
    }

    pub(crate) fn detached_misses(&self) -> u64 {
        // SAFETY: as above.
        member!(self, detached_misses).map_or(0, |at| unsafe { at.read_volatile() })
    }

    pub(crate) fn set_detached_misses(&self, detached_misses: u64) {
        if let Some(at) = member!(self, detached_misses) {
            // SAFETY: as above; only the thread of the engine writes it.
            unsafe { at.write_volatile(detached_misses) };
        }
    }

    /// How far events have come: all before that are in the log, or were lost and counted.
    pub(crate) fn position(&self) -> Position {
        self.entry(self.current()).position
    }

    /// The write that was under way when the daemon ended.
    pub(crate) fn unfinished_write(&self) -> Option<FileRange> {
        let Entry { position, range } = self.entry(self.current());
        (self.consumed().load(Ordering::Acquire) < position.ring_offset).then_some(range)
    }

    /// Says of the write that was under way whether all of it is in the log, or nothing.
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

    /// Says what is about to be written.
    fn begin(&self, entry: Entry) {
        let other = 1 - (self.current() & 1);
        if let Some(at) = self.at(other) {
            // SAFETY: the address is that of a mapped entry; only one thread writes, and it is not the
            // current one.
            unsafe { at.write_volatile(entry) };
        }
        self.select(other);
    }

    /// Gives back the room in the ring of what the current entry says was written.
    fn release(&self) {
        self.consumed()
            .store(self.position().ring_offset, Ordering::Release);
    }

    /// Where in the stream the room begins that the kernel may not write to.
    pub(crate) fn consumed(&self) -> &AtomicU64 {
        let at: NonNull<u64> = self.consumer.at(0).unwrap_or(NonNull::dangling());
        // SAFETY: a page is mapped, so that the word is in it; both sides use it as one word only. The
        // mapping lives as long as this.
        unsafe { AtomicU64::from_ptr(at.as_ptr()) }
    }

    fn current(&self) -> u32 {
        self.selector()
            .map_or(0, |current| current.load(Ordering::Acquire) & 1)
    }

    fn select(&self, entry: u32) {
        if let Some(current) = self.selector() {
            // All of the entry is there for whoever finds it the current one.
            current.store(entry, Ordering::Release);
        }
    }

    fn selector(&self) -> Option<&AtomicU32> {
        // SAFETY: the word is aligned and mapped for as long as this lives, and used as one word only.
        member!(self, current).map(|at| unsafe { AtomicU32::from_ptr(at) })
    }

    fn at(&self, entry: u32) -> Option<NonNull<Entry>> {
        let entries: NonNull<Entry> = NonNull::new(member!(self, entries)?)?.cast();
        // SAFETY: there are two entries.
        Some(unsafe { entries.add(usize::from(entry & 1 == 1)) })
    }

    fn entry(&self, entry: u32) -> Entry {
        // SAFETY: the address is that of a mapped entry; any bits are one.
        self.at(entry)
            .map_or_else(Entry::default, |at| unsafe { at.read_volatile() })
    }
}

impl AsFd for Checkpoint {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// What the log thread is given with events: it says when they are about to be written, and when they are.
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

    /// The events are about to be written, to this part of a file.
    pub fn begin(&mut self, range: FileRange) {
        self.checkpoint.begin(Entry {
            position: self.position,
            range,
        });
        self.started = true;
    }

    /// The events are written, or will never be: their room in the ring can be used again.
    pub fn end(&mut self) {
        if !self.started {
            self.begin(FileRange::default());
        }
        self.checkpoint.release();
    }
}

/// An array in memory that can be mapped.
///
/// # Errors
/// When the kernel makes none.
pub(crate) fn create_mmapable_array(
    name: &str,
    bytes: usize,
    entries: usize,
) -> io::Result<OwnedFd> {
    let number = |number| u32::try_from(number).map_err(|_large| io::Error::from(Errno::E2BIG));
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let map = MapHandle::create(
        MapType::Array,
        Some(name),
        4,
        number(bytes)?,
        number(entries)?,
        &options,
    );
    map.map_err(io::Error::other)?.as_fd().try_clone_to_owned()
}

fn object() -> [u8; 16] {
    let mut object = [0; 16];
    for (to, from) in object.iter_mut().zip(OBJECT_HASH.as_bytes()) {
        *to = *from;
    }
    object
}

const _: () = assert!(size_of::<Header>() <= 4096, "a page holds the header");

#[cfg(test)]
mod tests {
    use super::*;

    /// Hash of what `wire.h` says to the compiler.
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

    /// A daemon must not read what one of another format has left in the ring, and knows that by the version.
    #[test]
    fn wire_h_change_needs_new_version() {
        const KNOWN: (u16, u64) = (3, 0xd1be_0584_399b_b523);
        let found = (abi::VERSION, wire());
        assert_eq!(
            found, KNOWN,
            "raise `WIRE_VERSION` in wire.h and `VERSION` in abi.rs, and put both here: {found:#x?}"
        );
    }
}
