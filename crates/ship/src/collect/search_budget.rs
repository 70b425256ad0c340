//! How much of the logs of all hosts is searched for records that come again: peers cause the searches, for which the event
//! loop waits.
//!
//! In an interval, searches look at the end of each log until they have read so much in all; further ones at less of it,
//! where most records that come again are; and then at nothing. What is not found is written again, and counted.

use std::time::{Duration, Instant};

use super::repeated::LogPart;

/// Time in which searches are bounded.
pub(super) const SEARCH_INTERVAL: Duration = Duration::from_secs(10);
/// How much of the end of each file is searched.
pub(super) const WINDOW_BYTES: u64 = 8 << 20;
/// The same, after [`WHOLE_BYTES`].
const SHORT_WINDOW_BYTES: u64 = 1 << 20;
/// Bytes that are searched in an interval, and with shorter windows: one or two seconds of each.
const WHOLE_BYTES: u64 = 2 << 30;
const MAX_BYTES: u64 = 4 << 30;

/// What was searched in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SearchBudget {
    since: Option<Instant>,
    bytes: u64,
}

impl SearchBudget {
    /// How much of the end of each file may be searched now; that counts as read.
    pub(super) fn window(&mut self, parts: &[LogPart], now: Instant) -> u64 {
        let is_over = |since: Instant| now.saturating_duration_since(since) > SEARCH_INTERVAL;
        if self.since.is_none_or(is_over) {
            (self.since, self.bytes) = (Some(now), 0);
        }
        let window = match self.bytes {
            0..WHOLE_BYTES => WINDOW_BYTES,
            WHOLE_BYTES..MAX_BYTES => SHORT_WINDOW_BYTES,
            _ => 0,
        };
        let read = parts.iter().map(|part| part.end.min(window));
        self.bytes = self.bytes.saturating_add(read.sum());
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl SearchBudget {
        /// As if so much were searched that nothing is left.
        pub(in crate::collect) const fn exhaust(&mut self) {
            self.bytes = MAX_BYTES;
        }
    }

    #[test]
    fn windows_become_shorter_until_the_interval_is_over() {
        let part = |end| LogPart {
            file: tempfile::tempfile().unwrap(),
            start: 0,
            end,
        };
        let large = [part(1 << 40), part(100)];
        let mut budget = SearchBudget::default();
        let now = Instant::now();
        let mut found = Vec::new();
        let mut window = |now| budget.window(&large, now);
        for _ in 0..10_000 {
            found.push(window(now + SEARCH_INTERVAL));
        }
        let count = |window| found.iter().filter(|found| **found == window).count();
        assert!(found.is_sorted_by(|before, after| before >= after));
        assert_eq!(count(WINDOW_BYTES), 256);
        assert_eq!(count(SHORT_WINDOW_BYTES), 2048);
        assert_eq!(window(now + SEARCH_INTERVAL * 2), 0);
        let later = now + SEARCH_INTERVAL * 2 + Duration::from_millis(1);
        assert_eq!(window(later), WINDOW_BYTES);
        // Small logs cost little.
        let mut budget = SearchBudget::default();
        for _ in 0..10_000 {
            assert_eq!(budget.window(&[part(1000)], now), WINDOW_BYTES);
        }
    }
}
