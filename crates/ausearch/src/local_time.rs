//! Times of this host's zone, in the notation of the C locale.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};

/// This host's time zone.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    zone: TimeZone,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            zone: TimeZone::system(),
        }
    }

    /// The time of an event; `None` after the year 9999.
    pub(crate) fn at(&self, seconds: i64) -> Option<ZonedDateTime> {
        Some(
            Timestamp::from_second(seconds)
                .ok()?
                .to_zoned_datetime(self.zone.clone()),
        )
    }

    pub(crate) fn now(&self) -> ZonedDateTime {
        Timestamp::now().to_zoned_datetime(self.zone.clone())
    }

    /// Seconds since 1970 of a local time.
    pub(crate) fn seconds(&self, date: Date, time: Time) -> Option<i64> {
        let zoned = DateTime::from_parts(date, time)
            .to_zoned_datetime(self.zone.clone())
            .ok()?;
        Some(zoned.timestamp().as_second())
    }

    /// `MM/DD/YY HH:MM:SS`, or `?`.
    pub(crate) fn date_time(&self, seconds: i64) -> String {
        self.format(seconds, |at| format!("{} {}", date(at), time(at)))
    }

    /// Text of an event's time, or `?`.
    pub(crate) fn format(
        &self,
        seconds: i64,
        format: impl FnOnce(&ZonedDateTime) -> String,
    ) -> String {
        self.at(seconds)
            .map_or_else(|| "?".to_owned(), |at| format(&at))
    }

    /// As `ctime` does, with a newline.
    pub(crate) fn ctime(&self, seconds: i64) -> String {
        const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        self.format(seconds, |at| {
            let day = usize::try_from(at.weekday().to_sunday_zero_offset()).unwrap_or_default();
            let month = usize::try_from(at.month() - 1).unwrap_or_default();
            let names = (DAYS.get(day), MONTHS.get(month));
            let (day, month) = (
                names.0.copied().unwrap_or_default(),
                names.1.copied().unwrap_or_default(),
            );
            format!("{day} {month} {:2} {} {}\n", at.day(), time(at), at.year())
        })
    }
}

/// `MM/DD/YY`.
pub(crate) fn date(at: &ZonedDateTime) -> String {
    format!(
        "{:02}/{:02}/{:02}",
        at.month(),
        at.day(),
        at.year().rem_euclid(100)
    )
}

/// `HH:MM:SS`.
pub(crate) fn time(at: &ZonedDateTime) -> String {
    format!("{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())
}

/// Year, month, day, weekday, hour, milliseconds and offset, with commas between.
pub(crate) fn parts(at: &ZonedDateTime, millis: u32) -> String {
    let offset = at.offset().seconds();
    let sign = if offset < 0 { '-' } else { '+' };
    let offset = offset.unsigned_abs();
    // The stock tool takes the seconds of the last minute for the minutes.
    format!(
        "{},{:02},{:02},{},{:2},{millis},{sign}{:02}:{:02}",
        at.year(),
        at.month(),
        at.day(),
        at.weekday().to_monday_one_offset(),
        at.hour(),
        offset / 3600,
        offset % 3600 % 60
    )
}
