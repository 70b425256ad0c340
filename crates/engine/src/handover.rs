//! The state that a previous daemon pinned: programs that keep recording, and unread events.

pub(crate) mod inherited_programs;
pub(crate) mod lock_note;
pub(crate) mod pins;
pub(crate) mod plan_snapshot;
pub(crate) mod plan_switch;

use std::cmp::Reverse;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use audit::ids::Serial;

use crate::epoch::Epoch;
use crate::ring::RingReader;
use crate::ring::checkpoint::{Checkpoint, CommitToken, FileRange, PinnedOrigin, Position};
use crate::sys::mapped_memory::{Access, MappedMemory, page_size};

use pins::{CHECKPOINT_PIN, LINK_PREFIX, PLAN_PREFIX, PinDirectory, PinError};
use plan_snapshot::PlanSnapshot;

/// Name of the pin of the ring.
const RING_PIN: &str = "map-tlg_ring";

/// Contents of a pin directory.
#[derive(Debug)]
pub enum PinnedState {
    /// No complete set of pins.
    Empty,
    /// An engine of this build; see [`crate::Engine::adopt`].
    Adoptable(InheritedState),
    /// An engine of another build: its events can be read, its programs can only be detached.
    EventsOnly(InheritedState),
    /// An engine whose events this build cannot read.
    Unreadable {
        /// The reason.
        reason: String,
        /// Unread bytes of the ring, if known.
        ///
        /// # Units
        /// Bytes, including the headers of ring records.
        unread_bytes: Option<u64>,
    },
}

/// The pinned ring and checkpoint of a previous daemon.
#[derive(Debug)]
pub struct InheritedState {
    pub(crate) pins: PinDirectory,
    pub(crate) checkpoint: Arc<Checkpoint>,
}

impl PinnedState {
    /// Examines the pins. Removes an incomplete set of pins, unless it is locked.
    ///
    /// # Errors
    /// [`PinError`] when pins cannot be removed.
    pub fn open(pins: &PinDirectory) -> Result<Self, PinError> {
        let header = match pins.get(CHECKPOINT_PIN) {
            Ok(header) => header,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !pins.is_locked() => {
                // The checkpoint is pinned last and removed first, so the set is incomplete.
                pins.clear()?;
                return Ok(Self::Empty);
            }
            Err(error) => return Ok(Self::unreadable(&error)),
        };
        let ring = match pins.get(RING_PIN) {
            Ok(ring) => ring,
            Err(error) => return Ok(Self::unreadable(&error)),
        };
        let unread_bytes = unread_bytes(&ring).ok();
        let checkpoint = match Checkpoint::from_map(header, ring) {
            Ok(checkpoint) => checkpoint,
            Err(error) => return Ok(Self::unreadable(&error)),
        };
        let origin = checkpoint.origin();
        let inherited = InheritedState {
            pins: pins.clone(),
            checkpoint: Arc::new(checkpoint),
        };
        Ok(match origin {
            PinnedOrigin::Same => Self::Adoptable(inherited),
            PinnedOrigin::OtherPrograms => Self::EventsOnly(inherited),
            PinnedOrigin::Unreadable(reason) => Self::Unreadable {
                reason,
                unread_bytes,
            },
        })
    }

    fn unreadable(error: &io::Error) -> Self {
        Self::Unreadable {
            reason: error.to_string(),
            unread_bytes: None,
        }
    }
}

impl InheritedState {
    /// The log write that was in progress when the daemon ended.
    #[must_use]
    pub fn unfinished_write(&self) -> Option<FileRange> {
        self.checkpoint.unfinished_write()
    }

    /// Completes that write. With `written`, all of it is in the log. Without, nothing of it is in the log, and
    /// its events are read from the ring again.
    pub fn resolve_unfinished(&self, written: bool) {
        self.checkpoint.resolve_unfinished(written);
    }

    /// Position of the checkpoint.
    #[must_use]
    pub fn position(&self) -> Position {
        self.checkpoint.position()
    }

    /// Unread bytes of the ring.
    ///
    /// # Units
    /// Bytes, including the headers of ring records.
    ///
    /// # Errors
    /// When the ring cannot be opened or mapped.
    pub fn unread_bytes(&self) -> io::Result<u64> {
        unread_bytes(&self.pins.get(RING_PIN)?)
    }

    /// Detaches all programs by removing the pins of their links. No more events arrive.
    ///
    /// # Errors
    /// When a pin cannot be removed.
    pub fn detach(&self) -> io::Result<()> {
        let links = self.pins.names(LINK_PREFIX)?;
        links
            .iter()
            .try_for_each(|name| self.pins.remove(&format!("{LINK_PREFIX}{name}")))
    }

    /// A reader of the unread events.
    ///
    /// # Errors
    /// When the ring cannot be opened or mapped.
    pub fn ring_reader(&self) -> io::Result<RingReader> {
        RingReader::new(self.pins.get(RING_PIN)?, Arc::clone(&self.checkpoint))
    }

    /// A token that commits all events read so far from `events`. `serial` is the serial of the next event.
    #[must_use]
    pub fn commit_token(&self, events: &RingReader, serial: Serial) -> CommitToken {
        events.commit_token(serial, self.position().reported_lost)
    }

    /// The pin directory.
    #[must_use]
    pub const fn pins(&self) -> &PinDirectory {
        &self.pins
    }

    /// Snapshots of the plans that events in the ring may belong to, oldest first. A plan that was pinned but
    /// never activated sorts first. The snapshot of a plan that records nothing is empty.
    ///
    /// # Errors
    /// When a snapshot cannot be read.
    pub fn plan_snapshots(&self, active: Epoch) -> io::Result<Vec<(Epoch, Vec<u8>)>> {
        let mut plans = Vec::new();
        for name in self.pins.names(PLAN_PREFIX)? {
            if let Ok(epoch) = name.parse() {
                let map = self.pins.get(&format!("{PLAN_PREFIX}{name}"))?;
                plans.push((Epoch(epoch), PlanSnapshot::from_map(map)?.text));
            }
        }
        plans.sort_by_key(|(epoch, _)| Reverse(active.plans_since(*epoch)));
        Ok(plans)
    }
}

/// Bytes between consumer and producer position of a ring.
///
/// # Source
/// `struct bpf_ringbuf` in `kernel/bpf/ringbuf.c`, Linux 6.12: one page for each position, whatever made the
/// ring.
fn unread_bytes(ring: &OwnedFd) -> io::Result<u64> {
    let page = page_size()?;
    let consumer = MappedMemory::map(ring, 0, page, Access::Read)?;
    let producer = MappedMemory::map(ring, page, page, Access::Read)?;
    let read = |memory: &MappedMemory| {
        let at = memory.at::<u64>(0)?;
        // SAFETY: `at` checks bounds and alignment. The mapping outlives the reference; the kernel and every
        // reader access the word atomically.
        let word = unsafe { AtomicU64::from_ptr(at.as_ptr()) };
        Some(word.load(Ordering::Acquire))
    };
    let words = read(&consumer).zip(read(&producer));
    let (consumed, produced) =
        words.ok_or_else(|| io::Error::other("the ring is shorter than its header"))?;
    Ok(produced.saturating_sub(consumed))
}
