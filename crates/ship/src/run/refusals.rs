//! What a destination has refused for ever: told now and then, and shown by the status for a while.

use std::time::{Duration, Instant};

use crate::output::one_line;
use crate::sink::Refusal;

/// How long a refusal is an error of the destination.
const SHOWN: Duration = Duration::from_secs(3600);
/// Shortest time between two messages: a destination may refuse on and on, with a new reason each time.
const TOLD: Duration = Duration::from_secs(60);

/// Refusals of a destination.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    last: Option<(Instant, String)>,
    told: Option<Instant>,
}

impl Refusals {
    /// Takes a refusal; returns a message, unless there was one a short time ago.
    pub(super) fn take(&mut self, refusal: &Refusal, now: Instant) -> Option<String> {
        let reason = one_line(&refusal.reason);
        let text = match (refusal.records, refusal.cut) {
            (0, 0) => format!("the destination warns: {reason}"),
            (0, _) => format!("records are cut: {reason}"),
            _ => format!("the destination rejects records, which are not sent again: {reason}"),
        };
        if refusal.records + refusal.cut > 0 {
            self.last = Some((now, text.clone()));
        }
        let is_recent = self.told.is_some_and(|told| now - told < TOLD);
        if is_recent {
            return None;
        }
        self.told = Some(now);
        Some(text)
    }

    /// The last refusal, if it is not long ago.
    pub(super) fn error(&self, now: Instant) -> Option<String> {
        let (at, text) = self.last.as_ref()?;
        (now - *at < SHOWN).then(|| text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_once_a_minute_and_shown_for_an_hour() {
        let mut refusals = Refusals::default();
        let now = Instant::now();
        let refusal = |records, reason: &str| Refusal {
            records,
            cut: 0,
            reason: reason.to_owned(),
        };
        assert_eq!(refusals.error(now), None);
        let told = refusals.take(&refusal(0, "old\nclient"), now);
        assert_eq!(told.unwrap(), "the destination warns: old client");
        assert_eq!(refusals.error(now), None);
        let later = now + TOLD;
        assert!(refusals.take(&refusal(2, "too old"), later).is_some());
        assert_eq!(refusals.take(&refusal(1, "too large"), later), None);
        assert!(refusals.error(later).unwrap().ends_with(": too large"));
        assert_eq!(refusals.error(later + SHOWN), None);
        let cut = Refusal {
            cut: 1,
            ..refusal(0, "too long")
        };
        assert!(refusals.take(&cut, later + TOLD).is_some());
        let error = refusals.error(later + TOLD);
        assert_eq!(error.unwrap(), "records are cut: too long");
    }
}
