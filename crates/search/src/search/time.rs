//! Times of `--since` and `--until`, in UTC.

use std::time::SystemTime;

use anyhow::{Context as _, bail};
use audit::event::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use logs::index::Condition;

/// Seconds of a day.
const DAY: i64 = 86_400;

/// A range of times, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeRange {
    since_ms: u64,
    /// The first time that is too late.
    until_ms: u64,
}

impl TimeRange {
    /// Parses the arguments of `--since` and `--until`.
    ///
    /// # Errors
    /// A time is malformed, or the range is empty.
    pub(crate) fn parse(since: Option<&str>, until: Option<&str>) -> anyhow::Result<Self> {
        Self::parse_at(since, until, now()?)
    }

    /// Whether the range begins later than now.
    ///
    /// # Errors
    /// The clock is before 1970.
    pub(crate) fn is_future(&self) -> anyhow::Result<bool> {
        Ok(u64::try_from(now()?)? < self.since_ms / 1000)
    }

    fn parse_at(since: Option<&str>, until: Option<&str>, now: i64) -> anyhow::Result<Self> {
        let parse = |text: &str, name| {
            let ms = milliseconds(text, now).with_context(|| {
                format!(
                    "{name} `{text}` is not a valid time: use an age (2h), a date (2026-11-24), a date and time \
                     ('2026-11-24 10:30', 2026-11-24T10:30:00+02:00), a time (10:30), today, yesterday or @SECONDS"
                )
            })?;
            anyhow::Ok(u64::try_from(ms).unwrap_or(0))
        };
        let range = Self {
            since_ms: match since {
                Some(text) => parse(text, "--since")?,
                None => 0,
            },
            until_ms: match until {
                Some(text) => parse(text, "--until")?,
                None => u64::MAX,
            },
        };
        if range.since_ms >= range.until_ms {
            bail!(
                "--until {} is not after --since {}: swap them, or correct one",
                until.unwrap_or("now"),
                since.unwrap_or("0")
            );
        }
        Ok(range)
    }

    pub(crate) fn contains(&self, time: Timestamp) -> bool {
        let ms = time
            .sec
            .saturating_mul(1000)
            .saturating_add(time.milli.into());
        (self.since_ms..self.until_ms).contains(&ms)
    }

    /// The range as a condition of the index.
    pub(crate) const fn condition(&self) -> Condition<'static> {
        match (self.since_ms, self.until_ms) {
            (0, u64::MAX) => Condition::Any,
            (since, until) => Condition::TimeMs(since..=until.saturating_sub(1)),
        }
    }
}

/// Seconds since the epoch.
fn now() -> anyhow::Result<i64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(i64::try_from(now.as_secs())?)
}

/// Milliseconds since the epoch; `None` for malformed text. `now` is in seconds. A time without an offset is in UTC.
fn milliseconds(text: &str, now: i64) -> Option<i64> {
    let midnight = now - now.rem_euclid(DAY);
    let of_seconds = |seconds: i64| seconds.checked_mul(1000);
    match text {
        "now" => return of_seconds(now),
        "today" => return of_seconds(midnight),
        "yesterday" => return of_seconds(midnight - DAY),
        _ => {}
    }
    if let Some(seconds) = text.strip_prefix('@') {
        return of_seconds(seconds.parse().ok()?);
    }
    if let Some(age) = age(text) {
        return of_seconds(now.checked_sub(age)?);
    }
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(time.as_millisecond());
    }
    let utc = |time: DateTime| Some(TimeZone::UTC.to_timestamp(time).ok()?.as_millisecond());
    // An offset of what follows would be ignored.
    let of_day = text.find(':').and_then(|at| text.get(at..));
    if of_day.unwrap_or(text).contains(['+', '[']) || of_day.is_some_and(|text| text.contains('-'))
    {
        return None;
    }
    if let Ok(time) = text.parse::<DateTime>() {
        return utc(time);
    }
    if let Ok(date) = text.parse::<Date>() {
        return utc(date.at(0, 0, 0, 0));
    }
    let time = text.parse::<Time>().ok()?;
    let today = TimeZone::UTC.to_datetime(jiff::Timestamp::from_second(now).ok()?);
    utc(today.date().to_datetime(time))
}

/// An age such as `2h`, in seconds.
fn age(text: &str) -> Option<i64> {
    let unit = text.chars().next_back()?;
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => DAY,
        'w' => 7 * DAY,
        _ => return None,
    };
    let number = text.strip_suffix(unit)?;
    let is_digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| number.parse::<i64>().ok()?.checked_mul(factor))?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-24 10:00:00.
    const NOW: i64 = 1_795_514_400;

    #[test]
    fn times_are_ages_dates_and_words() {
        for (text, expected) in [
            ("2h", NOW - 7200),
            ("90s", NOW - 90),
            ("1w", NOW - 7 * DAY),
            ("today", NOW - 36_000),
            ("yesterday", NOW - 36_000 - DAY),
            ("2026-11-24", NOW - 36_000),
            ("2026-11-24 09:30", NOW - 1800),
            ("2026-11-24T09:30:01", NOW - 1799),
            ("09:30", NOW - 1800),
            ("@17", 17),
            ("2026-11-24T10:30:00+02:00", NOW - 5400),
            ("2026-11-24 10:30-02", NOW + 9000),
            ("2026-11-24T09:30:00Z", NOW - 1800),
        ] {
            let expected = Some(expected * 1000);
            assert_eq!(milliseconds(text, NOW), expected, "{text}");
        }
        for text in [
            "2026-11-24T10:00:00.007",
            "10:00:00.007",
            "2026-11-24T10:00:00.007Z",
        ] {
            assert_eq!(milliseconds(text, NOW), Some(NOW * 1000 + 7), "{text}");
        }
        for text in [
            "",
            "h",
            "-2h",
            "2y",
            "99999999999999999999d",
            "tomorrow",
            "24:61",
            "2026-13-01",
            "10:30+02:00",
            "10:30-02:00",
            "2026-11-24T10:30[Europe/Berlin]",
            "2026-11-24[Europe/Berlin]",
        ] {
            assert_eq!(milliseconds(text, NOW), None, "{text}");
        }
    }

    #[test]
    fn range_contains_its_start_and_not_its_end() {
        let range = TimeRange::parse_at(Some("@10"), Some("@20"), NOW).unwrap();
        let time = |sec, milli| Timestamp { sec, milli };
        assert!(!range.contains(time(9, 999)) && range.contains(time(10, 0)));
        assert!(range.contains(time(19, 999)) && !range.contains(time(20, 0)));
        let error = TimeRange::parse_at(Some("@20"), Some("@20"), NOW).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--until @20 is not after --since @20: swap them, or correct one"
        );
    }
}
