//! Checks that the BPF programs run, and counts the time in which they did not.
//!
//! The kernel does not report that it stopped running programs on its functions, so the ring thread checks every
//! [`PERIOD`]. Blind time counts from the last check at which they ran, so it is never too short. A shorter gap
//! between two checks is not noticed.

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use engine::{SkipRisk, SkippablePrograms};

/// Longest time between two checks.
const PERIOD: Duration = Duration::from_secs(5);

/// Results of the checks.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    polled_at: Instant,
    ran_at: Instant,
    is_disabled: bool,
    disabled_time: Duration,
}

/// A change that a check has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatChange {
    /// The programs no longer run.
    Disabled,
    /// They run again, after at most this time.
    Runs(Duration),
}

impl Heartbeat {
    /// Starts while the programs run.
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            polled_at: now,
            ran_at: now,
            is_disabled: false,
            disabled_time: Duration::ZERO,
        }
    }

    /// Time until the next check.
    pub(crate) fn next(&self, now: Instant) -> Duration {
        (self.polled_at + PERIOD).saturating_duration_since(now)
    }

    /// Takes the result of a check.
    pub(crate) fn poll(&mut self, runs: bool, now: Instant) -> Option<HeartbeatChange> {
        let was_disabled = std::mem::replace(&mut self.is_disabled, !runs);
        self.polled_at = now;
        if !runs {
            return (!was_disabled).then_some(HeartbeatChange::Disabled);
        }
        let since = now.saturating_duration_since(self.ran_at);
        self.ran_at = now;
        was_disabled.then(|| {
            self.disabled_time += since;
            HeartbeatChange::Runs(since)
        })
    }

    /// Total blind time, up to the last check.
    pub(crate) fn disabled_time(&self) -> Duration {
        if self.is_disabled {
            self.disabled_time + self.polled_at.saturating_duration_since(self.ran_at)
        } else {
            self.disabled_time
        }
    }
}

impl Display for HeartbeatChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str(
                "hooks disabled: BPF programs on kernel functions do not run \
                 (kernel.ftrace_enabled=0 does this); syscalls are not recorded until they run again; \
                 `sysctl kernel.ftrace_enabled=1` enables them",
            ),
            Self::Runs(disabled_time) => write!(
                f,
                "BPF programs on kernel functions run again; hooks disabled for {} s",
                seconds(*disabled_time)
            ),
        }
    }
}

/// Returns the warning about programs that the kernel can skip.
pub(crate) fn skip_warning(risk: SkipRisk) -> String {
    if risk.programs == SkippablePrograms::SyscallTracepoints {
        return format!(
            "events can be lost: {risk}; each skipped run is counted as lost; restart the daemon, which then uses \
             the raw tracepoints"
        );
    }
    format!(
        "events can be lost: {risk}; each skipped run is counted as lost, and a record can have data of \
         another task; use the engine lsm on Linux 7.0 and later, or boot with \
         preempt=none or voluntary"
    )
}

/// Whole seconds, rounded up, so that a short time is not 0.
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
            Some(HeartbeatChange::Disabled)
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
    fn disabled_time_accumulates() {
        let start = Instant::now();
        let mut heart = Heartbeat::new(start);
        assert_eq!(heart.disabled_time(), Duration::ZERO);
        heart.poll(false, start + 2 * S);
        assert_eq!(heart.disabled_time(), 2 * S);
        heart.poll(true, start + 3 * S);
        heart.poll(true, start + 5 * S);
        assert_eq!(heart.disabled_time(), 3 * S);
        heart.poll(false, start + 6 * S);
        assert_eq!(heart.disabled_time(), 4 * S);
    }

    #[test]
    fn partial_seconds_are_rounded_up() {
        let times = [0, 1, 1000, 1001].map(Duration::from_millis);
        assert_eq!(times.map(seconds), [0, 1, 1, 2]);
        assert!(
            HeartbeatChange::Runs(Duration::from_millis(4200))
                .to_string()
                .ends_with("hooks disabled for 5 s")
        );
    }
}
