//! Whether the engine's programs still run, and how long they have not.
//!
//! Nothing tells when the kernel stops running programs on its functions: the ring thread asks every
//! [`PERIOD`]. Blindness counts from the last time that they ran for certain, so that it is never
//! told too short; a shorter one between two looks is not noticed.

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use engine::SkipRisk;

/// Longest time between two looks.
const PERIOD: Duration = Duration::from_secs(5);

/// What the looks have shown.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    polled_at: Instant,
    ran_at: Instant,
    is_blind: bool,
    blind: Duration,
}

/// What a look has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatChange {
    /// The programs no longer run.
    Blind,
    /// They run again; how long they may not have.
    Runs(Duration),
}

impl Heartbeat {
    /// At a moment when the programs run.
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            polled_at: now,
            ran_at: now,
            is_blind: false,
            blind: Duration::ZERO,
        }
    }

    /// How long the next look can wait.
    pub(crate) fn next(&self, now: Instant) -> Duration {
        (self.polled_at + PERIOD).saturating_duration_since(now)
    }

    /// Takes in whether the programs run now.
    pub(crate) fn poll(&mut self, runs: bool, now: Instant) -> Option<HeartbeatChange> {
        let was_blind = std::mem::replace(&mut self.is_blind, !runs);
        self.polled_at = now;
        if !runs {
            return (!was_blind).then_some(HeartbeatChange::Blind);
        }
        let since = now.saturating_duration_since(self.ran_at);
        self.ran_at = now;
        was_blind.then(|| {
            self.blind += since;
            HeartbeatChange::Runs(since)
        })
    }

    /// How long the programs may not have run in all, up to the last look.
    pub(crate) fn blind(&self) -> Duration {
        if self.is_blind {
            self.blind + self.polled_at.saturating_duration_since(self.ran_at)
        } else {
            self.blind
        }
    }
}

impl Display for HeartbeatChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blind => f.write_str(
                "BLIND: programs on the kernel's functions no longer run \
                 (kernel.ftrace_enabled=0 does that); calls are not recorded until they do",
            ),
            Self::Runs(blind) => write!(
                f,
                "programs on the kernel's functions run again; blind for {} s",
                seconds(*blind)
            ),
        }
    }
}

/// Returns the warning about programs that the kernel can skip.
pub(crate) fn skip_warning(risk: SkipRisk) -> String {
    format!(
        "EVENTS CAN BE LOST: {risk}; each skipped run is counted as lost, and a record can have data of \
         another task; boot a kernel before 7.0, or with preempt=none or voluntary"
    )
}

/// Whole seconds, rounded up: something is never nothing.
pub(crate) const fn seconds(time: Duration) -> u64 {
    time.as_secs() + if time.subsec_nanos() == 0 { 0 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn polls_are_due_after_the_period() {
        let start = Instant::now();
        let mut heart = Heartbeat::new(start);
        assert_eq!(heart.next(start), PERIOD);
        assert_eq!(heart.next(start + 3 * S), PERIOD - 3 * S);
        assert_eq!(heart.next(start + 2 * PERIOD), Duration::ZERO);
        assert_eq!(heart.poll(true, start + PERIOD), None);
        assert_eq!(heart.next(start + PERIOD), PERIOD);
    }

    #[test]
    fn only_changes_are_reported() {
        let start = Instant::now();
        let mut heart = Heartbeat::new(start);
        assert_eq!(heart.poll(true, start + S), None);
        assert_eq!(
            heart.poll(false, start + 2 * S),
            Some(HeartbeatChange::Blind)
        );
        assert_eq!(heart.poll(false, start + 3 * S), None);
        assert_eq!(
            heart.poll(true, start + 4 * S),
            Some(HeartbeatChange::Runs(3 * S)),
            "from the last moment when they ran for certain"
        );
        assert_eq!(heart.poll(true, start + 5 * S), None);
    }

    #[test]
    fn blind_time_accumulates() {
        let start = Instant::now();
        let mut heart = Heartbeat::new(start);
        assert_eq!(heart.blind(), Duration::ZERO);
        heart.poll(false, start + 2 * S);
        assert_eq!(heart.blind(), 2 * S);
        heart.poll(true, start + 3 * S);
        heart.poll(true, start + 5 * S);
        assert_eq!(heart.blind(), 3 * S);
        heart.poll(false, start + 6 * S);
        assert_eq!(heart.blind(), 4 * S);
    }

    #[test]
    fn partial_seconds_are_rounded_up() {
        let times = [0, 1, 1000, 1001].map(Duration::from_millis);
        assert_eq!(times.map(seconds), [0, 1, 1, 2]);
        assert!(
            HeartbeatChange::Runs(Duration::from_millis(4200))
                .to_string()
                .ends_with("blind for 5 s")
        );
    }
}
