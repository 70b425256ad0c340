//! Work that can wait is put off while events arrive faster than they are read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long work is put off: bursts have pauses.
const PUT_OFF: Duration = Duration::from_secs(1);
/// How long the archiver waits at most, and works then: somebody who makes bursts for ever does not stop it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const LEAST_WORK: Duration = Duration::from_secs(1);

/// A time until which work is put off.
#[derive(Debug)]
pub(super) struct PutOff {
    start: Instant,
    /// Nanoseconds after the start: since when and until when.
    since: AtomicU64,
    until: AtomicU64,
}

impl Default for PutOff {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            since: AtomicU64::new(0),
            until: AtomicU64::new(0),
        }
    }
}

impl PutOff {
    /// Puts work off from now on.
    pub(super) fn begin(&self) {
        self.begin_at(self.start.elapsed());
    }

    fn begin_at(&self, now: Duration) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if self.left_at(now).is_none() {
            self.since.store(nanos(now), Ordering::Relaxed);
        }
        self.until.store(nanos(now + PUT_OFF), Ordering::Relaxed);
    }

    /// How long work is still put off.
    pub(super) fn left(&self) -> Option<Duration> {
        // Most often it never was.
        if self.until.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.left_at(self.start.elapsed())
    }

    fn left_at(&self, now: Duration) -> Option<Duration> {
        let until = Duration::from_nanos(self.until.load(Ordering::Relaxed));
        until.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// How long the archiver still waits. After [`LONGEST_WAIT`] it works for [`LEAST_WORK`].
    pub(super) fn left_for_archiver(&self) -> Option<Duration> {
        let left = self.left()?;
        self.wait_of_archiver(left, self.start.elapsed())
    }

    fn wait_of_archiver(&self, left: Duration, now: Duration) -> Option<Duration> {
        let since = Duration::from_nanos(self.since.load(Ordering::Relaxed));
        let round = (LONGEST_WAIT + LEAST_WORK).as_nanos();
        let waited = now.saturating_sub(since).as_nanos() % round;
        let waited = Duration::from_nanos(u64::try_from(waited).unwrap_or(u64::MAX));
        let most = LONGEST_WAIT.checked_sub(waited)?;
        Some(left.min(most)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_bursts_leave_the_archiver_a_second_in_thirty() {
        let put_off = PutOff::default();
        let half_seconds = |count: u32| Duration::from_millis(500) * count;
        let works: Vec<u32> = (1..200)
            .filter(|&count| {
                let now = half_seconds(count);
                put_off.begin_at(now);
                put_off.wait_of_archiver(PUT_OFF, now).is_none()
            })
            .collect();
        assert_eq!(works, [61, 62, 123, 124, 185, 186]);
        // The next burst after a pause is a new one.
        let now = half_seconds(300);
        assert_eq!(put_off.left_at(now), None);
        put_off.begin_at(now);
        assert_eq!(put_off.wait_of_archiver(PUT_OFF, now), Some(PUT_OFF));
    }
}
