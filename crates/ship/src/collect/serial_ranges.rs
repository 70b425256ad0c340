//! Which serials of a boot are known: a few ranges, because some come late, come again, or are missing.

use serde::{Deserialize, Serialize};

/// Most ranges: one for each of the last gaps.
const MAX_RANGES: usize = 4;

/// Known serials: the first and the last one of ranges that do not touch, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct SerialRanges(Vec<(u32, u32)>);

impl SerialRanges {
    pub(super) fn contains(&self, serial: u32) -> bool {
        let mut ranges = self.0.iter();
        ranges.any(|&(first, last)| (first..=last).contains(&serial))
    }

    /// The greatest known serial below one that is not known.
    pub(super) fn last_below(&self, serial: u32) -> Option<u32> {
        let mut below = self.0.iter().rev().filter(|(_, last)| *last < serial);
        below.next().map(|(_, last)| *last)
    }

    /// Adds a serial. With too many ranges, the lowest other one is forgotten.
    pub(super) fn add(&mut self, serial: u32) {
        let mut added = (serial, serial);
        self.0.retain(|&(first, last)| {
            let touches = first <= added.1.saturating_add(1) && added.0 <= last.saturating_add(1);
            if touches {
                added = (added.0.min(first), added.1.max(last));
            }
            !touches
        });
        if self.0.len() >= MAX_RANGES {
            self.0.remove(0);
        }
        let at = self.0.partition_point(|range| *range < added);
        self.0.insert(at, added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let mut known = SerialRanges::default();
        for serial in [5, 6, 9, 7, 20, 8] {
            assert!(!known.contains(serial));
            known.add(serial);
        }
        assert_eq!(known.0, [(5, 9), (20, 20)]);
        assert_eq!(known.last_below(5), None);
        assert_eq!(known.last_below(12), Some(9));
        assert_eq!(known.last_below(21), Some(20));
        known.add(u32::MAX);
        assert_eq!(known.last_below(u32::MAX - 1), Some(20));
    }

    #[test]
    fn lowest_ranges_are_forgotten_but_the_last_one_that_was_added() {
        let mut known = SerialRanges::default();
        for serial in [10, 20, 30, 40, 50] {
            known.add(serial);
        }
        assert_eq!(known.0, [(20, 20), (30, 30), (40, 40), (50, 50)]);
        known.add(10);
        known.add(11);
        assert_eq!(known.0, [(10, 11), (30, 30), (40, 40), (50, 50)]);
    }
}
