//! What a daemon has left pinned: programs that still audit, and events that wait.

pub(crate) mod inherited_programs;
pub(crate) mod lock_note;
pub(crate) mod pins;
pub(crate) mod plan_snapshot;

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

/// Name of the ring.
const RING_PIN: &str = "map-tlg_ring";

/// What stands in a directory of pins.
#[derive(Debug)]
pub enum PinnedState {
    /// Nothing that audits.
    Empty,
    /// What this program can go on with.
    Adoptable(InheritedState),
    /// What another build has left: its events can be read, and its programs can only be taken off.
    EventsOnly(InheritedState),
    /// What it cannot read, and must not try to.
    Unreadable {
        /// Why not.
        reason: String,
        /// How much waits in the ring, if that is known.
        ///
        /// # Units
        /// Bytes, of which one part is how they are kept.
        unread_bytes: Option<u64>,
    },
}

/// What a daemon has left that this one can go on with.
#[derive(Debug)]
pub struct InheritedState {
    pub(crate) pins: PinDirectory,
    pub(crate) checkpoint: Arc<Checkpoint>,
}

impl PinnedState {
    /// Looks what was left. Names that are no whole set are taken away, unless they are locked.
    ///
    /// # Errors
    /// When they cannot be taken away.
    pub fn open(pins: &PinDirectory) -> Result<Self, PinError> {
        let header = match pins.get(CHECKPOINT_PIN) {
            Ok(header) => header,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !pins.is_locked() => {
                // Names without a header were being given, or taken away.
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
    /// The write to the log that was under way when the daemon ended.
    #[must_use]
    pub fn unfinished_write(&self) -> Option<FileRange> {
        self.checkpoint.unfinished_write()
    }

    /// Says of that write whether all of it is in the log; otherwise nothing of it may be, and what it was
    /// about is read from the ring again.
    pub fn resolve_unfinished(&self, written: bool) {
        self.checkpoint.resolve_unfinished(written);
    }

    /// How far events had come.
    #[must_use]
    pub fn position(&self) -> Position {
        self.checkpoint.position()
    }

    /// How much waits in the ring.
    ///
    /// # Units
    /// Bytes, of which one part is how they are kept.
    ///
    /// # Errors
    /// When there is no ring.
    pub fn unread_bytes(&self) -> io::Result<u64> {
        unread_bytes(&self.pins.get(RING_PIN)?)
    }

    /// Takes all programs off, so that no more events come.
    ///
    /// # Errors
    /// When a name cannot be taken away.
    pub fn detach(&self) -> io::Result<()> {
        let links = self.pins.names(LINK_PREFIX)?;
        links
            .iter()
            .try_for_each(|name| self.pins.remove(&format!("{LINK_PREFIX}{name}")))
    }

    /// The events that wait.
    ///
    /// # Errors
    /// When there is no ring.
    pub fn ring_reader(&self) -> io::Result<RingReader> {
        RingReader::new(self.pins.get(RING_PIN)?, Arc::clone(&self.checkpoint))
    }

    /// What says of the events that were read by now when they are written; the next one has this serial.
    #[must_use]
    pub fn commit_token(&self, events: &RingReader, serial: Serial) -> CommitToken {
        events.commit_token(serial, self.position().reported_lost)
    }

    /// Where all of it is pinned.
    #[must_use]
    pub const fn pins(&self) -> &PinDirectory {
        &self.pins
    }

    /// What was noted of each plan that events may still be of, the oldest first. A plan that was noted and
    /// not put in force any more counts as the oldest. Nothing was noted of one that records nothing.
    ///
    /// # Errors
    /// When a note cannot be read.
    pub fn plan_snapshots(&self, in_force: Epoch) -> io::Result<Vec<(Epoch, Vec<u8>)>> {
        let mut plans = Vec::new();
        for name in self.pins.names(PLAN_PREFIX)? {
            if let Ok(epoch) = name.parse() {
                let note = PlanSnapshot::from_map(self.pins.get(&format!("{PLAN_PREFIX}{name}"))?)?;
                plans.push((Epoch(epoch), note.text));
            }
        }
        plans.sort_by_key(|(epoch, _)| Reverse(in_force.plans_since(*epoch)));
        Ok(plans)
    }
}

/// How much of a ring was not given back: what the kernel itself keeps at its start, the same for whoever
/// has made the ring.
fn unread_bytes(ring: &OwnedFd) -> io::Result<u64> {
    let page = page_size()?;
    let consumer = MappedMemory::map(ring, 0, page, Access::Read)?;
    let producer = MappedMemory::map(ring, page, page, Access::Read)?;
    let read = |memory: &MappedMemory| {
        let at = memory.at::<u64>(0)?;
        // SAFETY: the word lies in the mapping, aligned; all sides use it as one word.
        let word = unsafe { AtomicU64::from_ptr(at.as_ptr()) };
        Some(word.load(Ordering::Acquire))
    };
    let words = read(&consumer).zip(read(&producer));
    let (consumed, produced) = words.ok_or_else(|| io::Error::other("the ring is too small"))?;
    Ok(produced.saturating_sub(consumed))
}
