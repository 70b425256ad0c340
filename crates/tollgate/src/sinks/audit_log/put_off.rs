//! Work that can wait is put off while events arrive faster than they are read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long work is put off: bursts have pauses.
const PUT_OFF: Duration = Duration::from_secs(1);

/// A time until which work is put off.
#[derive(Debug)]
pub(super) struct PutOff {
    start: Instant,
    /// Nanoseconds after the start.
    until: AtomicU64,
}

impl Default for PutOff {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            until: AtomicU64::new(0),
        }
    }
}

impl PutOff {
    /// Puts work off from now on.
    pub(super) fn begin(&self) {
        let until = (self.start.elapsed() + PUT_OFF).as_nanos();
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        self.until.store(until, Ordering::Relaxed);
    }

    /// How long work is still put off.
    pub(super) fn left(&self) -> Option<Duration> {
        let until = Duration::from_nanos(self.until.load(Ordering::Relaxed));
        // Most often it never was.
        if until.is_zero() {
            return None;
        }
        until.checked_sub(self.start.elapsed())
    }
}
