//! The order in which events leave.
//!
//! Most events begin in this order: these are kept in a queue, and only the others in a tree.

use std::collections::{BTreeSet, VecDeque};

/// Position among the open events, which decides between events with equal stamps.
pub(super) type Slot = usize;

/// Place in the order: seconds, milliseconds, serial, slot.
pub(super) type Rank = (u64, u32, u64, Slot);

/// The open events in order.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Each is greater than the one before.
    ascending: VecDeque<Rank>,
    late: BTreeSet<Rank>,
}

impl Order {
    /// Inserts an event; returns the slot of one with the same stamp, if there is any.
    pub(super) fn insert(&mut self, rank: Rank) -> Option<Slot> {
        let (seconds, millis, serial, _) = rank;
        let least = (seconds, millis, serial, Slot::MIN);
        let greatest = (seconds, millis, serial, Slot::MAX);
        if self.ascending.back().is_none_or(|&last| last < least) {
            let same = self.late.range(least..=greatest).next().map(slot);
            self.ascending.push_back(rank);
            return same;
        }
        let from = self.ascending.partition_point(|&other| other < least);
        let same = self.ascending.get(from).filter(|&&rank| rank <= greatest);
        let same = same.or_else(|| self.late.range(least..=greatest).next());
        let same = same.map(slot);
        self.late.insert(rank);
        same
    }

    /// The events whose seconds are at most `last`.
    pub(super) fn up_to(&self, last: u64) -> impl Iterator<Item = &Rank> {
        let ascending = self.ascending.iter();
        let all = move |rank: &&Rank| rank.0 <= last;
        ascending
            .take_while(all)
            .chain(self.late.iter().take_while(all))
    }

    pub(super) fn first(&self) -> Option<Rank> {
        let first = self.ascending.front();
        match self.late.first() {
            Some(late) if first.is_none_or(|first| late < first) => Some(*late),
            _ => first.copied(),
        }
    }

    pub(super) fn remove_first(&mut self) {
        let Some(first) = self.first() else {
            return;
        };
        if self.ascending.front() == Some(&first) {
            self.ascending.pop_front();
        } else {
            self.late.remove(&first);
        }
    }
}

const fn slot(&(_, _, _, slot): &Rank) -> Slot {
    slot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_leave_by_stamp_and_slot() {
        let mut order = Order::default();
        let ranks = [
            (5, 0, 1),
            (5, 0, 2),
            (4, 0, 9),
            (5, 0, 1),
            (6, 0, 1),
            (5, 0, 1),
            (4, 0, 9),
        ];
        let ranks = ranks.into_iter().enumerate();
        let same: Vec<_> = ranks
            .map(|(slot, (seconds, millis, serial))| order.insert((seconds, millis, serial, slot)))
            .collect();
        assert_eq!(same, [None, None, None, Some(0), None, Some(0), Some(2)]);
        let mut up_to_5: Vec<_> = order.up_to(5).map(slot).collect();
        up_to_5.sort_unstable();
        assert_eq!(up_to_5, [0, 1, 2, 3, 5, 6]);
        let mut left = Vec::new();
        while let Some((_, _, _, slot)) = order.first() {
            order.remove_first();
            left.push(slot);
        }
        assert_eq!(left, [2, 6, 0, 3, 5, 1, 4]);
    }
}
