//! The ring of events, and when its reader sleeps.
//!
//! Events do not wake the reader unless it has said that it sleeps: a wake-up costs the audited task
//! more than the whole event. So a busy machine is drained by a timer, and an idle one not at all.
//!
//! What was read stays in the ring until it is written: [`crate::ring::checkpoint`] gives its room back.

pub(crate) mod checkpoint;
pub(crate) mod clock;

use std::cell::Cell;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use audit::ids::Serial;
use libbpf_rs::MapInfo;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::abi::LOST;
use crate::decode;
use crate::sys::mapped_memory::{Access, MappedMemory, page_size};

use checkpoint::{Checkpoint, CommitToken, Position};

/// Bits of a record's first word, its length.
///
/// # Source
/// `BPF_RINGBUF_BUSY_BIT`, `BPF_RINGBUF_DISCARD_BIT` and `BPF_RINGBUF_HDR_SZ` in
/// `include/uapi/linux/bpf.h`, Linux 6.12.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: u64 = 8;

/// The ring of an engine: its events, and when their reader sleeps.
pub struct Ring {
    events: RingReader,
    waiting: NonNull<u32>,
}

/// Events in a ring.
pub struct RingReader {
    /// How far the kernel has written, in a page of its own, and the events, twice in a row, so that none
    /// is in two pieces.
    produced: MappedMemory,
    page: usize,
    /// # Units
    /// Bytes, a power of two.
    size: u64,
    checkpoint: Arc<Checkpoint>,
    map: OwnedFd,
    read: Cell<u64>,
    events_read: Cell<u64>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RingReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingReader").finish_non_exhaustive()
    }
}

impl Deref for Ring {
    type Target = RingReader;

    fn deref(&self) -> &RingReader {
        &self.events
    }
}

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Events have come.
    Events,
    /// The time is over; there may be events.
    Timeout,
    /// The descriptor given by the caller became readable.
    Caller,
}

impl RingReader {
    /// Maps a ring; reading begins at the checkpoint's mark.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub(crate) fn new(map: OwnedFd, checkpoint: Arc<Checkpoint>) -> io::Result<Self> {
        let page = page_size()?;
        let info = MapInfo::new(map.as_fd()).map_err(io::Error::other)?;
        let size = info.info.max_entries;
        let bytes = usize::try_from(size).map_err(io::Error::other)?;
        let produced = MappedMemory::map(&map, page, page + 2 * bytes, Access::Read)?;
        let position = checkpoint.position();
        Ok(Self {
            produced,
            page,
            size: size.into(),
            checkpoint,
            map,
            read: Cell::new(position.ring_offset),
            events_read: Cell::new(position.events),
        })
    }

    /// Hands at most `limit` events to `take`, as bytes that are 8-byte aligned; returns how many.
    pub fn drain(&self, limit: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        let produced = self.produced();
        while count < limit && self.read.get() < produced {
            let Some((length, sample)) = self.record_at(self.read.get()) else {
                break; // it is being written
            };
            if let Some(sample) = sample {
                take(sample);
                count += 1;
                // What belongs to a record of the kernel's was chosen by no rule.
                if decode::has_kernel_stamp(sample) != Ok(true) {
                    self.events_read.set(self.events_read.get() + 1);
                }
            }
            self.read.set(self.read.get() + length);
        }
        count
    }

    /// The record at a place, with what it takes in the ring; nothing while it is being written, no bytes
    /// when it was discarded.
    fn record_at(&self, place: u64) -> Option<(u64, Option<&[u8]>)> {
        let offset = usize::try_from(place & (self.size - 1)).ok()?;
        let header: NonNull<u32> = self.produced.at(self.page + offset)?;
        // SAFETY: the word lies in the mapping and is aligned, as all records are; the kernel writes it
        // as one word.
        let header = unsafe { AtomicU32::from_ptr(header.as_ptr()) };
        // All of the record is there once it is not busy any more.
        let header = header.load(Ordering::Acquire);
        if header & BUSY != 0 {
            return None;
        }
        let length = header & !DISCARDED;
        let taken = (u64::from(length) + HEADER_BYTES).next_multiple_of(8);
        if header & DISCARDED != 0 {
            return Some((taken, None));
        }
        let length = usize::try_from(length).ok()?;
        let first = self.page + offset + 8;
        if first + length > self.produced.bytes() {
            return None;
        }
        let first: NonNull<u8> = self.produced.at(first)?;
        // SAFETY: so many bytes lie in the mapping, and the kernel leaves them alone until their room is
        // given back, which is after the borrow: only what was handed over is ever given back.
        let sample = unsafe { std::slice::from_raw_parts(first.as_ptr(), length) };
        Some((taken, Some(sample)))
    }

    /// Where in the stream of all events the next one will be put.
    #[must_use]
    pub fn produced(&self) -> u64 {
        let Some(at) = self.produced.at::<u64>(0) else {
            return 0;
        };
        // SAFETY: the word lies in the mapping, aligned; the kernel writes it as one word.
        let at = unsafe { AtomicU64::from_ptr(at.as_ptr()) };
        at.load(Ordering::Acquire)
    }

    /// Up to where it was read.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.read.get()
    }

    /// Whether all before a place is in the log, or was lost on its way there.
    #[must_use]
    pub fn is_committed(&self, place: u64) -> bool {
        self.checkpoint.consumed().load(Ordering::Acquire) >= place
    }

    /// What says of the events that were read by now when they are written: the next one has this serial,
    /// and so many were told to be lost, by reason.
    pub(crate) fn commit_token(
        &self,
        serial: Serial,
        reported_lost: [u64; LOST + 1],
    ) -> CommitToken {
        let position = Position {
            ring_offset: self.position(),
            events: self.events_read.get(),
            reported_lost,
            serial: serial.0.into(),
        };
        CommitToken::new(Arc::clone(&self.checkpoint), position)
    }
}

impl Ring {
    /// Of these events. `waiting` lies in memory that outlives the ring.
    pub(crate) const fn new(events: RingReader, waiting: NonNull<u32>) -> Self {
        Self { events, waiting }
    }

    /// Waits for `pause`, without looking at the ring, or until the caller's descriptor is readable.
    ///
    /// # Errors
    /// What `poll(2)` answered.
    pub fn pause(&self, caller: BorrowedFd<'_>, pause: Duration) -> io::Result<Wake> {
        let timeout = PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX);
        poll_retry(&mut [PollFd::new(caller, PollFlags::POLLIN)], timeout)?;
        let ready = poll_retry(
            &mut [PollFd::new(caller, PollFlags::POLLIN)],
            PollTimeout::ZERO,
        )?;
        Ok(if ready == 0 {
            Wake::Timeout
        } else {
            Wake::Caller
        })
    }

    /// Sleeps until an event comes, the caller's descriptor is readable, or `longest` is over; without
    /// `longest`, for as long as that takes. Does not sleep while something that was read is not written
    /// yet: the kernel takes that for events.
    ///
    /// # Errors
    /// What `poll(2)` answered.
    pub fn sleep(&self, caller: BorrowedFd<'_>, longest: Option<Duration>) -> io::Result<Wake> {
        // SAFETY: the word is 4-byte aligned in the kernel side's mapped data, which lives as long as
        // the engine that this ring belongs to; both sides access it as one word only.
        let waiting = unsafe { AtomicU32::from_ptr(self.waiting.as_ptr()) };
        waiting.store(1, Ordering::Relaxed);
        // The other half of the agreement described in bpf/lib/ring.bpf.h: flag first, then the ring.
        fence(Ordering::SeqCst);
        if self.produced() != self.position() {
            waiting.store(0, Ordering::Relaxed);
            return Ok(Wake::Events);
        }
        let mut both = [
            PollFd::new(self.events.map.as_fd(), PollFlags::POLLIN),
            PollFd::new(caller, PollFlags::POLLIN),
        ];
        // poll(2) counts milliseconds: waking before the time is over would be waking twice.
        let timeout = longest.map_or(PollTimeout::NONE, |longest| {
            let started = longest.saturating_add(Duration::from_nanos(999_999));
            PollTimeout::try_from(started).unwrap_or(PollTimeout::MAX)
        });
        let ready = poll_retry(&mut both, timeout)?;
        waiting.store(0, Ordering::Relaxed);
        let [_, caller] = both;
        Ok(if caller.any().unwrap_or(false) {
            Wake::Caller
        } else if ready == 0 {
            Wake::Timeout
        } else {
            Wake::Events
        })
    }
}

/// `poll(2)` that a signal does not end.
fn poll_retry(fds: &mut [PollFd<'_>], timeout: PollTimeout) -> io::Result<i32> {
    loop {
        match poll(fds, timeout) {
            Err(nix::errno::Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
}
