//! Times as seconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970; 0 for an earlier time.
pub(crate) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Seconds since 1970, now.
pub(crate) fn now() -> u64 {
    unix_seconds(SystemTime::now())
}
