//! Converts kernel ticks to wall-clock time.
//!
//! The kernel's audit stamps events with the coarse realtime clock, which advances with the tick. BPF programs
//! cannot read that clock; they read the tick count, which is one load. A recent pair of tick count and clock
//! converts it, so that the time of an event equals the time in the kernel's records.

use std::time::Duration;

use audit::event::Timestamp;
use nix::time::{ClockId, clock_getres, clock_gettime};

/// A simultaneous reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Tick count, as `bpf_jiffies64()` returns it.
    pub jiffies: u64,
    /// Coarse realtime clock.
    ///
    /// # Units
    /// Nanoseconds since 1970.
    pub wall_ns: u64,
}

/// Converts ticks to time.
#[derive(Clone, Copy, Debug)]
pub struct TickClock {
    now: ClockReading,
    tick_ns: u64,
}

impl TickClock {
    /// Creates a clock from a reading and the length of a tick.
    #[must_use]
    pub const fn new(now: ClockReading, tick: Duration) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a tick is at most 10 ms")]
        let tick_ns = tick.as_nanos() as u64;
        Self { now, tick_ns }
    }

    /// Replaces the reference with a later reading.
    pub const fn sync(&mut self, now: ClockReading) {
        self.now = now;
    }

    /// Time of a tick.
    #[must_use]
    pub fn time_at(&self, jiffies: u64) -> Timestamp {
        let elapsed = jiffies.wrapping_sub(self.now.jiffies).cast_signed();
        let tick_ns = self.tick_ns.cast_signed();
        let wall_ns = self
            .now
            .wall_ns
            .wrapping_add_signed(elapsed.wrapping_mul(tick_ns));
        Timestamp {
            sec: wall_ns / 1_000_000_000,
            milli: u16::try_from(wall_ns / 1_000_000 % 1000).unwrap_or(0),
        }
    }
}

/// Reads the coarse realtime clock.
///
/// # Units
/// Nanoseconds since 1970.
///
/// # Errors
/// When the kernel lacks the clock; no supported one does.
pub(crate) fn wall_ns() -> nix::Result<u64> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_REALTIME_COARSE)?);
    Ok(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// Length of a tick, which is the resolution of the coarse clock.
///
/// # Errors
/// When the kernel lacks the clock; no supported one does.
pub(crate) fn tick() -> nix::Result<Duration> {
    Ok(Duration::from(clock_getres(
        ClockId::CLOCK_REALTIME_COARSE,
    )?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jiffies_before_and_after_the_reading_convert() {
        let now = ClockReading {
            jiffies: 1000,
            wall_ns: 5_000_000_000,
        };
        let clock = TickClock::new(now, Duration::from_millis(4));
        assert_eq!(clock.time_at(1000), Timestamp { sec: 5, milli: 0 });
        assert_eq!(clock.time_at(999), Timestamp { sec: 4, milli: 996 });
        assert_eq!(clock.time_at(1251), Timestamp { sec: 6, milli: 4 });
    }
}
