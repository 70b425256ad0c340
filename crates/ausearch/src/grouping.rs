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

mod order;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::RandomState;
use logs::stamp::Stamp;

use crate::event::{Event, EventId};
use crate::record_type;
use order::{Order, Slot};

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
    /// The events, each in its slot.
    events: Vec<Option<Open>>,
    free_slots: BinaryHeap<Reverse<Slot>>,
    /// The order in which they leave.
    order: Order,
    /// Incomplete events by their stamps. The hash has a random key: stamps cannot be chosen to collide.
    building: HashMap<EventId, Slot, RandomState>,
    /// Slot of the event of the last record.
    last: Slot,
    spare: Vec<Event>,
    /// Events that begin now are not looked for.
    pub(crate) is_unwanted: bool,
}

/// Records of the type that ends an event.
const END: i32 = record_type::EOE;

impl Grouping {
    /// Adds a record.
    pub(crate) fn add(&mut self, stamp: &Stamp<'_>, kind: i32, line: &[u8], timeout_seconds: u64) {
        if let Some(open) = self.building(stamp) {
            let before = open.event.size();
            open.event.push(kind, line);
            let added = open.event.size() - before;
            self.open_bytes += added;
        } else if kind != END {
            self.begin(stamp, kind, line);
            self.complete_older(stamp.seconds, timeout_seconds);
            if record_type::ends_event(kind) {
                complete(&mut self.events, &mut self.building, self.last);
            }
        }
        if self.open_bytes > MOST_OPEN_BYTES {
            self.complete_all();
        }
    }

    /// Begins an event with its first record.
    fn begin(&mut self, stamp: &Stamp<'_>, kind: i32, line: &[u8]) {
        let slot = self.free_slots.pop().map_or_else(
            || {
                self.events.push(None);
                self.events.len() - 1
            },
            |Reverse(slot)| slot,
        );
        let id = EventId::of(stamp);
        let rank = (id.seconds, id.millis, id.serial, slot);
        let mut event = Event::reuse(self.spare.pop().unwrap_or_default(), id.clone(), kind);
        event.push(kind, line);
        self.open_bytes += event.size();
        let same = self.order.insert(rank);
        if let Some(Some(open)) = same.and_then(|other| self.events.get_mut(other)) {
            // If there are more, they are marked already.
            open.origin.is_tied = true;
        }
        let origin = Origin {
            is_unwanted: self.is_unwanted,
            is_tied: same.is_some(),
        };
        if let Some(place) = self.events.get_mut(slot) {
            *place = Some(Open {
                event,
                is_complete: false,
                origin,
            });
        }
        self.building.insert(id, slot);
        self.last = slot;
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
        let last = self.events.get(self.last).and_then(Option::as_ref);
        if !last.is_some_and(|open| !open.is_complete && open.event.id.is_of(stamp)) {
            self.last = *self.building.get(&EventId::of(stamp))?;
        }
        self.events.get_mut(self.last)?.as_mut()
    }

    /// Marks the events that a new one of `seconds` completes.
    fn complete_older(&mut self, seconds: u64, timeout_seconds: u64) {
        if let Some(last) = seconds.checked_sub(timeout_seconds) {
            for &(_, _, _, slot) in self.order.up_to(last) {
                complete(&mut self.events, &mut self.building, slot);
            }
        }
    }

    /// Marks all events complete: no further record comes.
    pub(crate) fn complete_all(&mut self) {
        for &(_, _, _, slot) in self.order.up_to(u64::MAX) {
            if let Some(Some(open)) = self.events.get_mut(slot) {
                open.is_complete = true;
            }
        }
        self.building.clear();
    }

    /// Marks the events complete that have a record which ends an event.
    pub(crate) fn complete_ended(&mut self) {
        for &(_, _, _, slot) in self.order.up_to(u64::MAX) {
            let open = self.events.get(slot).and_then(Option::as_ref);
            if open.is_some_and(|open| open.event.kinds().any(record_type::ends_event)) {
                complete(&mut self.events, &mut self.building, slot);
            }
        }
    }

    /// The next complete event, if no incomplete one is before it.
    pub(crate) fn next(&mut self) -> Option<(Event, Origin)> {
        let (_, _, _, slot) = self.order.first()?;
        let open = self
            .events
            .get_mut(slot)?
            .take_if(|open| open.is_complete)?;
        self.order.remove_first();
        self.free_slots.push(Reverse(slot));
        self.open_bytes = self.open_bytes.saturating_sub(open.event.size());
        Some((open.event, open.origin))
    }

    /// Takes back an event whose memory a later one may use.
    pub(crate) fn recycle(&mut self, event: Event) {
        const MOST: usize = 2048;
        const MOST_BYTES: usize = 16 << 10;
        if self.spare.len() < MOST && event.reserved_bytes() <= MOST_BYTES {
            self.spare.push(event);
        }
    }
}

/// Marks an event complete.
fn complete(
    events: &mut [Option<Open>],
    building: &mut HashMap<EventId, Slot, RandomState>,
    slot: Slot,
) {
    if let Some(Some(open)) = events.get_mut(slot)
        && !std::mem::replace(&mut open.is_complete, true)
    {
        building.remove(&open.event.id);
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
