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
use crate::ring::Events;
use crate::ring::checkpoint::{Ledger, Mark, Origin, Receipt, Span};
use crate::sys::mapped_memory::{Access, Memory, page};

use pins::{HEADER, LINK, PLAN, PinError, Pins};
use plan_snapshot::Note;

/// Name of the ring.
const RING: &str = "map-tlg_ring";

/// What stands in a directory of pins.
#[derive(Debug)]
pub enum Left {
    /// Nothing that audits.
    Nothing,
    /// What this program can go on with.
    Whole(Survivors),
    /// What another build has left: its events can be read, and its programs can only be taken off.
    Events(Survivors),
    /// What it cannot read, and must not try to.
    Foreign {
        /// Why not.
        reason: String,
        /// How much waits in the ring, if that is known.
        ///
        /// # Units
        /// Bytes, of which one part is how they are kept.
        unread: Option<u64>,
    },
}

/// What a daemon has left that this one can go on with.
#[derive(Debug)]
pub struct Survivors {
    pub(crate) pins: Pins,
    pub(crate) ledger: Arc<Ledger>,
}

impl Left {
    /// Looks what was left. Names that are no whole set are taken away, unless they are locked.
    ///
    /// # Errors
    /// When they cannot be taken away.
    pub fn of(pins: &Pins) -> Result<Self, PinError> {
        let header = match pins.find(HEADER) {
            Ok(header) => header,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !pins.is_locked() => {
                // Names without a header were being given, or taken away.
                pins.clear()?;
                return Ok(Self::Nothing);
            }
            Err(error) => return Ok(Self::foreign(&error)),
        };
        let ring = match pins.find(RING) {
            Ok(ring) => ring,
            Err(error) => return Ok(Self::foreign(&error)),
        };
        let unread = unread(&ring).ok();
        let ledger = match Ledger::over(header, ring) {
            Ok(ledger) => ledger,
            Err(error) => return Ok(Self::foreign(&error)),
        };
        let origin = ledger.origin();
        let survivors = Survivors {
            pins: pins.clone(),
            ledger: Arc::new(ledger),
        };
        Ok(match origin {
            Origin::Same => Self::Whole(survivors),
            Origin::OtherPrograms => Self::Events(survivors),
            Origin::Unreadable(reason) => Self::Foreign { reason, unread },
        })
    }

    fn foreign(error: &io::Error) -> Self {
        Self::Foreign {
            reason: error.to_string(),
            unread: None,
        }
    }
}

impl Survivors {
    /// The write to the log that was under way when the daemon ended.
    #[must_use]
    pub fn unfinished(&self) -> Option<Span> {
        self.ledger.unfinished()
    }

    /// Says of that write whether all of it is in the log; otherwise nothing of it may be, and what it was
    /// about is read from the ring again.
    pub fn settle(&self, written: bool) {
        self.ledger.settle(written);
    }

    /// How far events had come.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.ledger.mark()
    }

    /// How much waits in the ring.
    ///
    /// # Units
    /// Bytes, of which one part is how they are kept.
    ///
    /// # Errors
    /// When there is no ring.
    pub fn unread(&self) -> io::Result<u64> {
        unread(&self.pins.find(RING)?)
    }

    /// Takes all programs off, so that no more events come.
    ///
    /// # Errors
    /// When a name cannot be taken away.
    pub fn take_off(&self) -> io::Result<()> {
        let links = self.pins.names(LINK)?;
        links
            .iter()
            .try_for_each(|name| self.pins.remove(&format!("{LINK}{name}")))
    }

    /// The events that wait.
    ///
    /// # Errors
    /// When there is no ring.
    pub fn events(&self) -> io::Result<Events> {
        Events::new(self.pins.find(RING)?, Arc::clone(&self.ledger))
    }

    /// What says of the events that were read by now when they are written; the next one has this serial.
    #[must_use]
    pub fn receipt(&self, events: &Events, serial: Serial) -> Receipt {
        events.receipt(serial, self.mark().told)
    }

    /// Where all of it is pinned.
    #[must_use]
    pub const fn pins(&self) -> &Pins {
        &self.pins
    }

    /// What was noted of each plan that events may still be of, the oldest first. A plan that was noted and
    /// not put in force any more counts as the oldest. Nothing was noted of one that records nothing.
    ///
    /// # Errors
    /// When a note cannot be read.
    pub fn plans(&self, in_force: Epoch) -> io::Result<Vec<(Epoch, Vec<u8>)>> {
        let mut plans = Vec::new();
        for name in self.pins.names(PLAN)? {
            if let Ok(epoch) = name.parse() {
                let note = Note::of_map(self.pins.find(&format!("{PLAN}{name}"))?)?;
                plans.push((Epoch(epoch), note.text));
            }
        }
        plans.sort_by_key(|(epoch, _)| Reverse(in_force.since(*epoch)));
        Ok(plans)
    }
}

/// How much of a ring was not given back: what the kernel itself keeps at its start, the same for whoever
/// has made the ring.
fn unread(ring: &OwnedFd) -> io::Result<u64> {
    let page = page()?;
    let consumer = Memory::map(ring, 0, page, Access::Read)?;
    let producer = Memory::map(ring, page, page, Access::Read)?;
    let read = |memory: &Memory| {
        let at = memory.at::<u64>(0)?;
        // SAFETY: the word lies in the mapping, aligned; all sides use it as one word.
        let word = unsafe { AtomicU64::from_ptr(at.as_ptr()) };
        Some(word.load(Ordering::Acquire))
    };
    let words = read(&consumer).zip(read(&producer));
    let (consumed, produced) = words.ok_or_else(|| io::Error::other("the ring is too small"))?;
    Ok(produced.saturating_sub(consumed))
}
