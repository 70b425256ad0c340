//! What waits for a confirmation, oldest first.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What is added within this time is one entry.
const MERGE: Duration = Duration::from_millis(100);
/// Most entries.
const MOST: usize = 1024;

/// Marks in an order, each of which is confirmed with those before it: one that is left out is confirmed with the next.
#[derive(Debug)]
pub(crate) struct Unconfirmed<T>(VecDeque<Entry<T>>);

#[derive(Debug)]
struct Entry<T> {
    /// When it was added, or the first of those that it stands for.
    first: Instant,
    mark: T,
}

impl<T> Unconfirmed<T> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Adds a mark.
    pub(crate) fn push(&mut self, mark: T) {
        let now = Instant::now();
        let merged = self.0.pop_back_if(|last| now - last.first < MERGE);
        let first = merged.map_or(now, |merged| merged.first);
        self.0.push_back(Entry { first, mark });
        if self.0.len() > MOST {
            // Every second one, and the last.
            let mut left = self.0.len();
            self.0.retain(|_| {
                left -= 1;
                left.is_multiple_of(2)
            });
        }
    }

    /// Takes the oldest mark if it is confirmed.
    pub(crate) fn pop_if(&mut self, is_confirmed: impl FnOnce(&T) -> bool) -> Option<T> {
        let entry = self.0.pop_front_if(|entry| is_confirmed(&entry.mark))?;
        Some(entry.mark)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_few_and_the_last_one_stays() {
        let mut waiting = Unconfirmed::new();
        for mark in 0..10 {
            waiting.push(mark);
        }
        assert_eq!(waiting.pop_if(|mark| *mark < 9), None);
        assert_eq!(waiting.pop_if(|mark| *mark == 9), Some(9));
        for mark in 0..3 * MOST {
            waiting.push(mark);
            // As if each were added later than the last.
            if let Some(last) = waiting.0.back_mut() {
                last.first -= MERGE;
            }
        }
        assert!(waiting.0.len() <= MOST);
        let mut last = None;
        while let Some(mark) = waiting.pop_if(|_| true) {
            assert!(last < Some(mark));
            last = Some(mark);
        }
        assert_eq!(last, Some(3 * MOST - 1));
    }
}
