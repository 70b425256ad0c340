//! Groups records into events, and puts events in order.
//!
//! Records of several events may be interleaved. An event is complete when no further record can belong to it: a record
//! of a later time arrived, or its first record is one that stands alone. Complete events leave in the order of their
//! stamps; one that is not complete holds back the later ones.
//!
//! The stock tools look at every open event for every record, which takes time quadratic in the events of two seconds.
//! Here each step looks at those that it changes.
//!
//! A hostile log may have an event without an end. When the open events are larger than any that the kernel writes, all
//! of them count as complete.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use logs::stamp::Stamp;

use crate::event::{Event, EventId};
use crate::record_type;

/// Position among the open events, which decides between events with equal stamps.
type Slot = usize;

/// Order in which events leave.
type Rank = (u64, u32, u64, Slot);

/// An event of which records may be missing.
#[derive(Debug)]
struct Open {
    event: Event,
    is_complete: bool,
    origin: Origin,
}

/// How an event came to be among the open ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// It began where nothing is looked for.
    pub(crate) is_unwanted: bool,
    /// Another open event has the same stamp: their order depends on what was open when they began.
    pub(crate) is_tied: bool,
}

/// Bytes of open events at which all count as complete.
pub(crate) const MOST_OPEN_BYTES: usize = 256 << 20;

/// Events that have not left yet.
#[derive(Debug, Default)]
pub(crate) struct Grouping {
    /// Bytes of the events that have not left.
    open_bytes: usize,
    events: BTreeMap<Rank, Open>,
    /// Incomplete events by their stamps.
    building: HashMap<EventId, Rank>,
    /// Incomplete events by time.
    by_time: BTreeSet<(u64, Rank)>,
    /// Events whose first record stands alone; they are complete when the next event begins.
    alone: Vec<Rank>,
    free_slots: BTreeSet<Slot>,
    slots: Slot,
    /// The event of the last record.
    last: Option<Rank>,
    spare: Vec<Event>,
    /// Events that begin now are not looked for.
    pub(crate) is_unwanted: bool,
}

/// Records of the type that ends an event.
const END: i32 = record_type::EOE;

impl Grouping {
    /// Adds a record.
    pub(crate) fn add(&mut self, stamp: &Stamp<'_>, kind: i32, line: &[u8], timeout_seconds: u64) {
        self.add_record(stamp, kind, line, timeout_seconds);
        if self.open_bytes > MOST_OPEN_BYTES {
            self.complete_all();
        }
    }

    fn add_record(&mut self, stamp: &Stamp<'_>, kind: i32, line: &[u8], timeout_seconds: u64) {
        if let Some(open) = self.building(stamp) {
            let before = open.event.size();
            open.event.push(kind, line);
            let added = open.event.size() - before;
            self.open_bytes += added;
            return;
        }
        if kind == END {
            // The event was complete before its end arrived.
            return;
        }
        let slot = self.free_slots.pop_first().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        let id = EventId::of(stamp);
        let rank = (id.seconds, id.millis, id.serial, slot);
        let mut event = Event::reuse(self.spare.pop().unwrap_or_default(), id.clone(), kind);
        event.push(kind, line);
        self.open_bytes += event.size();
        let origin = Origin {
            is_unwanted: self.is_unwanted,
            is_tied: self.tie(rank),
        };
        self.events.insert(
            rank,
            Open {
                event,
                is_complete: false,
                origin,
            },
        );
        self.building.insert(id, rank);
        self.by_time.insert((stamp.seconds, rank));
        if record_type::ends_event(kind) {
            self.alone.push(rank);
        }
        self.last = Some(rank);
        self.complete_older(stamp.seconds, timeout_seconds);
    }

    /// Marks the open events with the stamp of a new one; whether there are any.
    fn tie(&mut self, (seconds, millis, serial, _): Rank) -> bool {
        let same = (seconds, millis, serial, Slot::MIN)..=(seconds, millis, serial, Slot::MAX);
        let mut is_tied = false;
        for (_, open) in self.events.range_mut(same) {
            open.origin.is_tied = true;
            is_tied = true;
        }
        is_tied
    }

    /// Forgets all events.
    pub(crate) fn clear(&mut self) {
        self.complete_all();
        while let Some((event, _)) = self.next() {
            self.recycle(event);
        }
    }

    /// The incomplete event with a stamp.
    fn building(&mut self, stamp: &Stamp<'_>) -> Option<&mut Open> {
        let same_as_last = self.last.filter(|&(seconds, millis, serial, _)| {
            (seconds, millis, serial) == (stamp.seconds, stamp.millis, stamp.serial)
        });
        let is_last = same_as_last.is_some_and(|rank| {
            self.events.get(&rank).is_some_and(|open| {
                !open.is_complete && open.event.id.node.as_deref() == stamp.node
            })
        });
        let rank = match same_as_last.filter(|_| is_last) {
            Some(rank) => rank,
            None => *self.building.get(&EventId::of(stamp))?,
        };
        self.last = Some(rank);
        self.events.get_mut(&rank)
    }

    /// Marks the events that a record of `seconds` completes.
    fn complete_older(&mut self, seconds: u64, timeout_seconds: u64) {
        while let Some(&(time, rank)) = self.by_time.first() {
            if time.saturating_add(timeout_seconds) > seconds {
                break;
            }
            self.complete(rank);
        }
        for rank in std::mem::take(&mut self.alone) {
            self.complete(rank);
        }
    }

    fn complete(&mut self, rank: Rank) {
        let Some(open) = self.events.get_mut(&rank) else {
            return;
        };
        if open.is_complete {
            return;
        }
        open.is_complete = true;
        self.building.remove(&open.event.id);
        self.by_time.remove(&(rank.0, rank));
    }

    /// Marks all events complete: no further record comes.
    pub(crate) fn complete_all(&mut self) {
        for open in self.events.values_mut() {
            open.is_complete = true;
        }
        self.building.clear();
        self.by_time.clear();
        self.alone.clear();
    }

    /// Marks the events complete that have a record which ends an event.
    pub(crate) fn complete_ended(&mut self) {
        let ended: Vec<Rank> = self
            .events
            .iter()
            .filter(|(_, open)| open.event.kinds().any(record_type::ends_event))
            .map(|(&rank, _)| rank)
            .collect();
        for rank in ended {
            self.complete(rank);
        }
    }

    /// The next complete event, if no incomplete one is before it.
    pub(crate) fn next(&mut self) -> Option<(Event, Origin)> {
        let first = self.events.first_entry()?;
        if !first.get().is_complete {
            return None;
        }
        let (rank, open) = first.remove_entry();
        self.free_slots.insert(rank.3);
        self.open_bytes = self.open_bytes.saturating_sub(open.event.size());
        Some((open.event, open.origin))
    }

    /// Takes back an event whose memory the next one may use.
    pub(crate) fn recycle(&mut self, event: Event) {
        const MOST: usize = 64;
        if self.spare.len() < MOST {
            self.spare.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use logs::stamp;

    use super::*;

    fn add(grouping: &mut Grouping, line: &str) {
        let stamp = stamp::parse(line.as_bytes(), 2).unwrap();
        let kind = record_type::by_name(stamp.kind);
        grouping.add(&stamp, kind, line.as_bytes(), 2);
    }

    fn serials(grouping: &mut Grouping) -> Vec<(u64, usize)> {
        std::iter::from_fn(|| grouping.next())
            .map(|(event, _)| (event.id.serial, event.records().len()))
            .collect()
    }

    #[test]
    fn interleaved_records_are_grouped() {
        let mut grouping = Grouping::default();
        for line in [
            "type=SYSCALL msg=audit(1700000000.002:2): x",
            "type=SYSCALL msg=audit(1700000000.001:1): x",
            "type=CWD msg=audit(1700000000.002:2): x",
            "type=CWD msg=audit(1700000000.001:1): x",
        ] {
            add(&mut grouping, line);
        }
        assert_eq!(serials(&mut grouping), []);
        add(&mut grouping, "type=SYSCALL msg=audit(1700000002.001:3): x");
        assert_eq!(serials(&mut grouping), [(1, 2), (2, 2)]);
        grouping.complete_all();
        assert_eq!(serials(&mut grouping), [(3, 1)]);
    }

    #[test]
    fn events_of_one_record_do_not_wait() {
        let mut grouping = Grouping::default();
        add(
            &mut grouping,
            "type=USER_LOGIN msg=audit(1700000000.001:1): x",
        );
        assert_eq!(serials(&mut grouping), [(1, 1)]);
        // A second record with the stamp is an event of its own, and an end without an event is nothing.
        add(
            &mut grouping,
            "type=USER_LOGIN msg=audit(1700000000.001:1): x",
        );
        add(&mut grouping, "type=EOE msg=audit(1700000000.001:1): x");
        assert_eq!(serials(&mut grouping), [(1, 1)]);
    }

    #[test]
    fn an_event_without_an_end_is_ended() {
        let mut grouping = Grouping::default();
        let line = format!(
            "type=PATH msg=audit(1700000000.001:1): {}",
            "x".repeat(1 << 20)
        );
        let (mut added, mut left) = (0, 0);
        while left == 0 {
            add(&mut grouping, &line);
            added += line.len();
            left = serials(&mut grouping).len();
        }
        assert!((MOST_OPEN_BYTES..MOST_OPEN_BYTES + 2 * line.len()).contains(&added));
        add(&mut grouping, &line);
        assert_eq!(serials(&mut grouping), []);
    }

    #[test]
    fn an_open_event_holds_back_later_ones() {
        let mut grouping = Grouping::default();
        add(&mut grouping, "type=SYSCALL msg=audit(1700000000.001:1): x");
        add(
            &mut grouping,
            "type=USER_LOGIN msg=audit(1700000000.002:2): x",
        );
        assert_eq!(serials(&mut grouping), []);
        grouping.complete_ended();
        assert_eq!(serials(&mut grouping), []);
        add(
            &mut grouping,
            "type=PROCTITLE msg=audit(1700000000.001:1): x",
        );
        grouping.complete_ended();
        assert_eq!(serials(&mut grouping), [(1, 2), (2, 1)]);
    }
}
