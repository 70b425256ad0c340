//! The ring of events, and sleeping until events arrive.
//!
//! A program wakes the reader only while the reader has flagged that it sleeps, because a wake-up costs the
//! audited task more than the event itself. A busy reader polls by timer.
//!
//! Events that were read stay in the ring until the log has them; then [`crate::ring::checkpoint`] releases
//! their room.

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

/// Bits of the first word of a ring record, which also holds its length, and the size of its header.
///
/// # Source
/// `BPF_RINGBUF_BUSY_BIT`, `BPF_RINGBUF_DISCARD_BIT` and `BPF_RINGBUF_HDR_SZ` in
/// `include/uapi/linux/bpf.h`, Linux 6.12.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: u64 = 8;

/// The ring of an engine, with a reader that can sleep.
pub struct Ring {
    reader: RingReader,
    /// The global `tlg_waiting`: 1 while the reader sleeps.
    waiting: NonNull<u32>,
}

/// Reads the events of a ring.
pub struct RingReader {
    /// The producer page and the data pages. The kernel maps the data pages twice in a row, so that each record
    /// is contiguous.
    producer: MappedMemory,
    page_size: usize,
    /// Size of the data.
    ///
    /// # Units
    /// Bytes, a power of two.
    size: u64,
    checkpoint: Arc<Checkpoint>,
    map: OwnedFd,
    /// Position of the next record.
    position: Cell<u64>,
    /// Number of rule events before `position`.
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
        &self.reader
    }
}

/// Why the reader woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Events have arrived.
    Events,
    /// The timeout expired; events may have arrived.
    Timeout,
    /// The descriptor of the caller is readable.
    Caller,
}

impl RingReader {
    /// Maps a ring. Reading starts at the position of the checkpoint.
    ///
    /// # Errors
    /// As `mmap(2)`.
    pub(crate) fn new(map: OwnedFd, checkpoint: Arc<Checkpoint>) -> io::Result<Self> {
        let page_size = page_size()?;
        let info = MapInfo::new(map.as_fd()).map_err(io::Error::other)?;
        let size = info.info.max_entries;
        let bytes = usize::try_from(size).map_err(io::Error::other)?;
        let producer = MappedMemory::map(&map, page_size, page_size + 2 * bytes, Access::Read)?;
        let position = checkpoint.position();
        Ok(Self {
            producer,
            page_size,
            size: size.into(),
            checkpoint,
            map,
            position: Cell::new(position.ring_offset),
            events_read: Cell::new(position.events),
        })
    }

    /// Passes at most `limit` events to `on_event`, as 8-byte aligned bytes. Returns their number.
    pub fn drain(&self, limit: usize, mut on_event: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        let produced = self.produced();
        while count < limit && self.position() < produced {
            let Some((length, sample)) = self.record_at(self.position()) else {
                break; // a program is still writing it
            };
            if let Some(sample) = sample {
                on_event(sample);
                count += 1;
                // Syscalls of LSM records match no rule.
                if decode::has_kernel_stamp(sample) != Ok(true) {
                    self.events_read.set(self.events_read.get() + 1);
                }
            }
            self.position.set(self.position() + length);
        }
        count
    }

    /// The record at a position: its length in the ring, and its data, `None` when it was discarded. `None`
    /// while it is being written.
    fn record_at(&self, position: u64) -> Option<(u64, Option<&[u8]>)> {
        let offset = usize::try_from(position & (self.size - 1)).ok()?;
        let header: NonNull<u32> = self.producer.at(self.page_size + offset)?;
        // SAFETY: `at` checks bounds and alignment, and `self` owns the mapping. The kernel writes the word
        // atomically.
        let header = unsafe { AtomicU32::from_ptr(header.as_ptr()) };
        // Acquire: when the busy bit is clear, the whole record is visible.
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
        let first = self.page_size + offset + 8;
        if first + length > self.producer.bytes() {
            return None;
        }
        let first: NonNull<u8> = self.producer.at(first)?;
        // SAFETY: `length` bytes are within the mapping, as checked above. The kernel does not write to them
        // before the consumer position passes them, which a commit token does after this borrow.
        let sample = unsafe { std::slice::from_raw_parts(first.as_ptr(), length) };
        Some((taken, Some(sample)))
    }

    /// Producer position: total bytes that programs have reserved.
    #[must_use]
    pub fn produced(&self) -> u64 {
        let Some(at) = self.producer.at::<u64>(0) else {
            return 0;
        };
        // SAFETY: `at` checks bounds and alignment, and `self` owns the mapping. The kernel writes the word
        // atomically.
        let at = unsafe { AtomicU64::from_ptr(at.as_ptr()) };
        at.load(Ordering::Acquire)
    }

    /// Position of the next record to read.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position.get()
    }

    /// Whether more than an eighth of the ring is unread: what can wait would cost events.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.produced().saturating_sub(self.position()) > self.size / 8
    }

    /// Whether all events before a position are in the log, or were lost and counted on the way there.
    #[must_use]
    pub fn is_committed(&self, position: u64) -> bool {
        self.checkpoint.consumed().load(Ordering::Acquire) >= position
    }

    /// A token that commits all events read so far. `serial` is the serial of the next event; `reported_lost`
    /// are the losses that the log reports, by reason.
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
    /// Creates a ring. `waiting` must point to memory that outlives it.
    pub(crate) const fn new(reader: RingReader, waiting: NonNull<u32>) -> Self {
        Self { reader, waiting }
    }

    /// Waits for `time` or until the descriptor of the caller is readable. Events do not end the wait.
    ///
    /// # Errors
    /// As `poll(2)`.
    pub fn pause(&self, caller: BorrowedFd<'_>, time: Duration) -> io::Result<Wake> {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
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

    /// Sleeps until an event arrives, the descriptor of the caller is readable, or `timeout` expires; `None`
    /// is no timeout. Returns at once while events that were read are not committed, because the ring is
    /// readable until they are.
    ///
    /// # Errors
    /// As `poll(2)`.
    pub fn sleep(&self, caller: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<Wake> {
        // SAFETY: the address is a 4-byte aligned member of the mapped globals, which live as long as the
        // engine that owns this ring. Programs access it atomically.
        let waiting = unsafe { AtomicU32::from_ptr(self.waiting.as_ptr()) };
        waiting.store(1, Ordering::Relaxed);
        // Set the flag, then read the ring; a program does the reverse. See bpf/lib/ring.bpf.h.
        fence(Ordering::SeqCst);
        if self.produced() != self.position() {
            waiting.store(0, Ordering::Relaxed);
            return Ok(Wake::Events);
        }
        let mut both = [
            PollFd::new(self.reader.map.as_fd(), PollFlags::POLLIN),
            PollFd::new(caller, PollFlags::POLLIN),
        ];
        // poll(2) takes milliseconds. Round up: waking early would mean waking twice.
        let timeout = timeout.map_or(PollTimeout::NONE, |timeout| {
            let rounded_up = timeout.saturating_add(Duration::from_nanos(999_999));
            PollTimeout::try_from(rounded_up).unwrap_or(PollTimeout::MAX)
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

/// `poll(2)`, repeated when a signal interrupts it.
fn poll_retry(fds: &mut [PollFd<'_>], timeout: PollTimeout) -> io::Result<i32> {
    loop {
        match poll(fds, timeout) {
            Err(nix::errno::Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
}
