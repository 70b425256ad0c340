//! `--start` and `--end`: dates, times and words.
//!
//! # Source
//! `ausearch(8)` 4.2.1. Dates and times are those of the C locale; a year may also have four digits, and a date may be
//! `YYYY-MM-DD`.

use std::fs;

use bstr::ByteSlice as _;
use jiff::civil::{Date, Time};
use jiff::{Span, ZonedDateTime};

use crate::ctext;
use crate::local_time::Clock;

/// Which end of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Start,
    End,
}

impl Bound {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End => "end",
        }
    }
}

/// A word for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Now,
    Recent,
    ThisHour,
    Boot,
    Today,
    Yesterday,
    ThisWeek,
    WeekAgo,
    ThisMonth,
    ThisYear,
}

/// The words.
pub(crate) const WORDS: [(&str, Word); 10] = [
    ("now", Word::Now),
    ("recent", Word::Recent),
    ("this-hour", Word::ThisHour),
    ("boot", Word::Boot),
    ("today", Word::Today),
    ("yesterday", Word::Yesterday),
    ("this-week", Word::ThisWeek),
    ("week-ago", Word::WeekAgo),
    ("this-month", Word::ThisMonth),
    ("this-year", Word::ThisYear),
];

/// The word that `text` is.
pub(crate) fn word(text: &[u8]) -> Option<Word> {
    WORDS
        .iter()
        .find(|(name, _)| name.as_bytes() == text)
        .map(|&(_, word)| word)
}

/// Seconds since 1970 of a date and a time, either of which may be absent.
///
/// # Errors
/// The message for a text that is neither.
pub(crate) fn parse(
    bound: Bound,
    date: Option<&[u8]>,
    time: Option<&[u8]>,
    clock: &Clock,
) -> Result<i64, String> {
    let now = clock.now();
    let is_midnight = time.is_none_or(|time| time == b"00:00:00");
    let mut day = now.date();
    let mut messages = String::new();
    if let Some(text) = date {
        match word(text).map(|word| (word, at_word(word, &now, &mut messages))) {
            Some((word, Some(at))) => {
                let is_moment =
                    matches!(word, Word::Now | Word::Recent | Word::ThisHour | Word::Boot);
                if is_moment && is_midnight {
                    return Ok(at.timestamp().as_second());
                }
                if word == Word::Today && bound == Bound::End && is_midnight {
                    return Ok(now.timestamp().as_second());
                }
                day = at.date();
            }
            _ => day = parse_date(bound, text).map_err(|error| messages + &error)?,
        }
    }
    let time = match time {
        Some(text) => parse_time(bound, text)?,
        None => now.time(),
    };
    if day.year() < 2004 {
        return Err(format!("Error - year is {}\n", day.year()));
    }
    clock
        .seconds(day, time)
        .ok_or_else(|| format!("Error converting {} time\n", bound.name()))
}

/// The time that a word means.
fn at_word(word: Word, now: &ZonedDateTime, messages: &mut String) -> Option<ZonedDateTime> {
    let days_ago = |days: i64| now.checked_sub(Span::new().hours(days * 24)).ok();
    let midnight = |at: ZonedDateTime| at.start_of_day().ok();
    match word {
        Word::Now => Some(now.clone()),
        Word::Recent => now.checked_sub(Span::new().minutes(10)).ok(),
        Word::ThisHour => now.with().minute(0).second(0).build().ok(),
        Word::Boot => {
            let uptime = uptime_seconds().map_err(|error| {
                *messages = format!("Can't read uptime ({error})\n");
            });
            now.checked_sub(Span::new().seconds(uptime.ok()?)).ok()
        }
        Word::Today => midnight(now.clone()),
        Word::Yesterday => days_ago(1).and_then(midnight),
        Word::ThisWeek => {
            days_ago(i64::from(now.weekday().to_sunday_zero_offset())).and_then(midnight)
        }
        Word::WeekAgo => days_ago(7).and_then(midnight),
        Word::ThisMonth => now.with().day(1).build().ok().and_then(midnight),
        Word::ThisYear => now.with().day(1).month(1).build().ok().and_then(midnight),
    }
}

/// Seconds since the machine started, rounded.
fn uptime_seconds() -> Result<i64, String> {
    let text = fs::read_to_string("/proc/uptime").map_err(|error| error.to_string())?;
    let seconds = text.split(' ').next().unwrap_or_default();
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, ""));
    let whole: i64 = whole
        .parse()
        .map_err(|error: std::num::ParseIntError| error.to_string())?;
    let is_half = part.bytes().next().is_some_and(|digit| digit >= b'5');
    Ok(whole + i64::from(is_half))
}

fn parse_date(bound: Bound, text: &[u8]) -> Result<Date, String> {
    let name = bound.name();
    let shown = text.to_str_lossy();
    let iso = text
        .to_str()
        .ok()
        .and_then(|text| text.parse::<Date>().ok());
    if let Some(date) = iso.filter(|_| text.len() == "YYYY-MM-DD".len()) {
        return Ok(date);
    }
    let invalid = || format!("Invalid {name} date ({shown}). Month, Day, and Year are required.\n");
    let mut rest = text;
    let month = number(&mut rest, 2, 1..=12).ok_or_else(invalid)?;
    let slash = |rest: &mut &[u8]| {
        let behind = rest.strip_prefix(b"/").ok_or_else(invalid)?;
        *rest = behind;
        Ok::<_, String>(())
    };
    slash(&mut rest)?;
    let day = number(&mut rest, 2, 1..=31).ok_or_else(invalid)?;
    slash(&mut rest)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let year = if digits == 4 {
        number(&mut rest, 4, 0..=9999).ok_or_else(invalid)?
    } else {
        let year = number(&mut rest, 2, 0..=99).ok_or_else(invalid)?;
        if year >= 69 { 1900 + year } else { 2000 + year }
    };
    if !rest.is_empty() {
        return Err(format!("Error parsing {name} date ({shown})\n"));
    }
    calendar_day(year, month, day).ok_or_else(invalid)
}

/// The day of a month; a day after the month's last one is of the next month.
fn calendar_day(year: u32, month: u32, day: u32) -> Option<Date> {
    let first = Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, 1).ok()?;
    first.checked_add(Span::new().days(i64::from(day) - 1)).ok()
}

fn parse_time(bound: Bound, text: &[u8]) -> Result<Time, String> {
    let name = bound.name();
    let shown = text.to_str_lossy();
    let invalid =
        || format!("Invalid {name} time ({shown}). Hour, Minute, and Second are required.\n");
    let with_seconds = [text, b":00"].concat();
    let mut rest = if text.len() <= 5 {
        &with_seconds[..]
    } else {
        text
    };
    let mut part = |last: u32, is_last: bool| {
        let value = number(&mut rest, 2, 0..=last)?;
        if !is_last {
            rest = rest.strip_prefix(b":")?;
        }
        i8::try_from(value).ok()
    };
    let hour = part(23, false).ok_or_else(invalid)?;
    let minute = part(59, false).ok_or_else(invalid)?;
    let second = part(61, true).ok_or_else(invalid)?;
    if !rest.is_empty() {
        return Err(format!("Error parsing {name} time ({shown})\n"));
    }
    // A leap second is the one after it.
    Time::new(hour, minute, second.min(59), 0)
        .ok()
        .ok_or_else(invalid)
}

/// A number of at most `digits` digits, after blanks.
fn number(rest: &mut &[u8], digits: usize, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
    let text = rest.trim_start_with(|byte| byte == ' ');
    let length = text
        .iter()
        .take(digits)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let read = ctext::unsigned(text.get(..length)?, 10);
    *rest = text.get(length..)?;
    let value = u32::try_from(read.value).ok()?;
    (length > 0 && range.contains(&value)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(date: &str, time: &str) -> String {
        parse(
            Bound::Start,
            Some(date.as_bytes()),
            Some(time.as_bytes()),
            &Clock::new(),
        )
        .unwrap_err()
    }

    #[test]
    fn dates_have_two_or_four_digits_of_the_year() {
        let clock = Clock::new();
        let at = |date: &str| {
            parse(Bound::Start, Some(date.as_bytes()), Some(b"08:27"), &clock).unwrap()
        };
        assert_eq!(at("11/20/26"), at("11/20/2026"));
        assert_eq!(at("11/20/26"), at("2026-11-20"));
        assert_eq!(at("02/30/26"), at("03/02/26"));
    }

    #[test]
    fn mistakes_are_named() {
        for (date, time, message) in [
            (
                "x",
                "00:00:00",
                "Invalid start date (x). Month, Day, and Year are required.\n",
            ),
            (
                "11/20/26x",
                "00:00:00",
                "Error parsing start date (11/20/26x)\n",
            ),
            ("11/20/03", "00:00:00", "Error - year is 2003\n"),
            (
                "11/20/26",
                "25:00",
                "Invalid start time (25:00). Hour, Minute, and Second are required.\n",
            ),
            (
                "11/20/26",
                "10:00:00x",
                "Error parsing start time (10:00:00x)\n",
            ),
        ] {
            assert_eq!(error(date, time), message);
        }
    }

    #[test]
    fn words_are_in_order() {
        let clock = Clock::new();
        let at = |word: &str| {
            parse(
                Bound::Start,
                Some(word.as_bytes()),
                Some(b"00:00:00"),
                &clock,
            )
            .unwrap()
        };
        assert!(at("this-year") <= at("this-month"));
        assert!(at("week-ago") < at("yesterday"));
        assert!(at("yesterday") < at("today"));
        assert!(at("today") <= at("this-hour"));
        assert!(at("this-hour") <= at("now"));
        assert!(at("recent") < at("now"));
    }
}
