//! Numbers as people read them.

use crate::model::rounded;

/// Largest number that is written with all its digits.
const WHOLE: u64 = 99_999_999;

/// A count, with commas between thousands; a very large one is shortened.
pub(crate) fn count(count: u64) -> String {
    for (unit, name) in [
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
    ] {
        if count > WHOLE && count >= unit {
            return format!("{}.{:02}{name}", count / unit, count % unit / (unit / 100));
        }
    }
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate: with one decimal if it is small.
pub(crate) fn rate(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 {
        format!("{rate:.1}")
    } else {
        count(rounded(rate))
    }
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// The end of a text that is too long: the last part of a path tells most.
pub(crate) fn end_of(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let left_out = length - width.saturating_sub(1);
    let end = text.chars().skip(left_out);
    ['…'].into_iter().chain(end).collect()
}

/// A duration in its two largest units.
pub(crate) fn duration(seconds: u64) -> String {
    let [days, hours, minutes] = [seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60];
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, ..) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (99_999_999, "99,999,999"),
            (123_456_789, "123.45M"),
            (1_020_000_000, "1.02G"),
            (u64::MAX, "18446744.07T"),
        ] {
            assert_eq!(count(number), text);
        }
        for (number, text) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (9.94, "9.9"),
            (10.4, "10"),
            (41_212.3, "41,212"),
        ] {
            assert_eq!(rate(number), text);
        }
        assert_eq!(end_of("/usr/bin/cat", 12), "/usr/bin/cat");
        assert_eq!(end_of("/usr/bin/cat", 6), "…n/cat");
        assert_eq!(percent(0.123), "12.3%");
        for (seconds, text) in [
            (59, "59s"),
            (61, "1m01s"),
            (3700, "1h01m"),
            (90_000, "1d01h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
