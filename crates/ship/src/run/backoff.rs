//! How long a destination that failed is left alone.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(60);

/// Failures one after another.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Counts a failure; returns the time until the next try: it doubles up to a minute, less a random part of at most a
    /// half, so that the hosts of a fleet do not come back at once. It is no less than what the destination has asked
    /// for, up to a minute.
    pub(super) fn fail(&mut self, asked: Duration) -> Duration {
        // A new hasher has random keys.
        let random = RandomState::new().hash_one(0);
        let next = self.next(u32::try_from(random >> 32).unwrap_or(0));
        next.max(asked.min(LONGEST))
    }

    fn next(&mut self, random: u32) -> Duration {
        let time = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        time / 2 + (time / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }

    /// The destination works.
    pub(super) const fn end(&mut self) {
        self.failures = 0;
    }

    /// Failures since it worked.
    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_doubles_up_to_a_minute() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(0), FIRST / 2);
        assert_eq!(backoff.next(u32::MAX), FIRST * 2);
        for _ in 0..100 {
            let time = backoff.fail(Duration::ZERO);
            assert!(time >= FIRST && time <= LONGEST, "{time:?}");
        }
        assert_eq!(backoff.next(u32::MAX), LONGEST);
        assert_eq!(backoff.failures(), 103);
        backoff.end();
        assert_eq!(backoff.next(u32::MAX), FIRST);
        assert_eq!(
            backoff.fail(Duration::from_secs(30)),
            Duration::from_secs(30)
        );
        assert_eq!(backoff.fail(Duration::from_secs(3000)), LONGEST);
    }
}
