//! Messages about peers, which can cause any number of them: few of each kind are printed, and the others counted.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::output::info;

/// Time between two messages of a kind.
const INTERVAL: Duration = Duration::from_secs(10);

/// Messages by their kind.
#[derive(Debug, Default)]
pub(super) struct RefusalMessages(BTreeMap<&'static str, Kind>);

#[derive(Debug)]
struct Kind {
    printed_at: Instant,
    /// Messages since then.
    more: u64,
}

impl RefusalMessages {
    /// Prints a message, unless one of its kind was printed a short time ago.
    pub(super) fn tell(&mut self, kind: &'static str, line: impl Display) {
        if let Some(more) = self.count(kind, Instant::now()) {
            match more {
                0 => info(line),
                more => info(format_args!(
                    "{line} ({more} more of the kind since the last one)"
                )),
            }
        }
    }

    /// The number of messages that were not printed, if the next one is.
    fn count(&mut self, kind: &'static str, now: Instant) -> Option<u64> {
        match self.0.get_mut(kind) {
            Some(kind) if now.saturating_duration_since(kind.printed_at) < INTERVAL => {
                kind.more += 1;
                None
            }
            known => {
                let more = known.map_or(0, |kind| kind.more);
                let printed = Kind {
                    printed_at: now,
                    more: 0,
                };
                self.0.insert(kind, printed);
                Some(more)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_kind_are_few() {
        let mut messages = RefusalMessages::default();
        let now = Instant::now();
        assert_eq!(messages.count("limit", now), Some(0));
        assert_eq!(messages.count("limit", now), None);
        assert_eq!(messages.count("limit", now), None);
        assert_eq!(messages.count("port", now), Some(0));
        assert_eq!(messages.count("limit", now + INTERVAL), Some(2));
        assert_eq!(messages.count("limit", now + INTERVAL * 2), Some(0));
    }
}
