//! Numbers of events over time, of a log whose range is not known before.

use std::collections::BTreeMap;

/// Most bars.
const MOST_BARS: u64 = 96;

/// Events in spans of equal length, by key.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// Length of a span; a power of two.
    pub(super) span_seconds: u64,
    /// Numbers by span and key. A key is its position among those that were seen.
    pub(super) spans: BTreeMap<u64, BTreeMap<usize, u64>>,
}

impl Timeline {
    pub(super) const fn new() -> Self {
        Self {
            span_seconds: 1,
            spans: BTreeMap::new(),
        }
    }

    /// Adds an event; spans grow so that there are few.
    pub(super) fn add(&mut self, seconds: u64, key: usize) {
        *self
            .spans
            .entry(seconds / self.span_seconds)
            .or_default()
            .entry(key)
            .or_default() += 1;
        while self.count() > MOST_BARS {
            self.span_seconds *= 2;
            let mut wider: BTreeMap<u64, BTreeMap<usize, u64>> = BTreeMap::new();
            for (span, keys) in std::mem::take(&mut self.spans) {
                for (key, count) in keys {
                    *wider.entry(span / 2).or_default().entry(key).or_default() += count;
                }
            }
            self.spans = wider;
        }
    }

    /// First and last span.
    pub(super) fn range(&self) -> Option<(u64, u64)> {
        Some((
            *self.spans.first_key_value()?.0,
            *self.spans.last_key_value()?.0,
        ))
    }

    /// Number of spans from the first to the last.
    pub(super) fn count(&self) -> u64 {
        self.range().map_or(0, |(first, last)| last - first + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_grow_and_lose_nothing() {
        let mut timeline = Timeline::new();
        for second in 0..10_000 {
            timeline.add(second, usize::try_from(second % 3).unwrap());
        }
        assert!(timeline.count() <= MOST_BARS);
        assert_eq!(timeline.span_seconds, 128);
        let all: u64 = timeline.spans.values().flat_map(BTreeMap::values).sum();
        assert_eq!(all, 10_000);
    }

    #[test]
    fn a_far_event_does_not_take_long() {
        let mut timeline = Timeline::new();
        timeline.add(0, 0);
        timeline.add(u64::MAX >> 1, 0);
        assert!(timeline.count() <= MOST_BARS);
    }
}
