//! Chooses events at random, so that a viewer gets at most a number of them per second.
//!
//! Choosing every n-th event would show one kind only of events that alternate. Each event is taken with a probability
//! that follows from the number of events in the last quarter of a second.

use std::time::{Duration, Instant};

/// Time after which the probability is computed again.
const WINDOW: Duration = Duration::from_millis(250);
/// Windows in a second.
const WINDOWS: u64 = 4;

/// Takes a share of events.
#[derive(Debug)]
pub(super) struct Sampler {
    /// Events to take per window.
    share: u64,
    began: Instant,
    /// Events of this window, and those taken.
    offered: u64,
    taken: u64,
    /// One in this many events is taken.
    one_in: u64,
    random: u64,
}

impl Sampler {
    /// Takes about `per_second` events a second, never more than twice as many.
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        Self {
            share: (u64::from(per_second) / WINDOWS).max(1),
            began: now,
            offered: 0,
            taken: 0,
            one_in: 1,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Begins a new window if one has ended.
    pub(super) fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.began);
        if passed >= WINDOW {
            // Windows without events count.
            let windows = passed.as_millis() / WINDOW.as_millis();
            let each = self.offered / u64::try_from(windows).unwrap_or(u64::MAX).max(1);
            self.one_in = each.div_ceil(self.share).max(1);
            (self.began, self.offered, self.taken) = (now, 0, 0);
        }
    }

    /// Whether to take an event.
    pub(super) fn takes(&mut self) -> bool {
        self.offered += 1;
        // xorshift64: Marsaglia 2003.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let takes = self.taken < self.share * 2 && self.random.is_multiple_of(self.one_in);
        self.taken += u64::from(takes);
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_events_are_all_taken() {
        let mut now = Instant::now();
        let mut sampler = Sampler::new(400, now);
        for _ in 0..8 {
            now += WINDOW;
            sampler.advance(now);
            assert!((0..100).all(|_| sampler.takes()));
        }
    }

    #[test]
    fn share_of_many_events_is_bounded_and_has_all_kinds() {
        let mut now = Instant::now();
        let mut sampler = Sampler::new(400, now);
        let mut kinds = [0_u32; 2];
        for window in 0..20 {
            now += WINDOW;
            sampler.advance(now);
            let taken: Vec<usize> = (0..10_000).filter(|_| sampler.takes()).collect();
            assert!(taken.len() <= 200, "{}", taken.len());
            if window > 0 {
                assert!(taken.len() > 50, "{}", taken.len());
                for event in taken {
                    kinds[event % 2] += 1;
                }
            }
        }
        assert!(kinds.iter().all(|&kind| kind > 700), "{kinds:?}");
        // After silence the next events are taken.
        sampler.advance(now + WINDOW * 1000);
        assert!((0..100).all(|_| sampler.takes()));
    }
}
