//! Parsers for the values of `auditd.conf`, one per syntax.

use core::time::Duration;

use bstr::{BStr, ByteSlice as _};

use super::SpaceLimit;

/// Invalid value: the error and advice.
#[derive(Debug)]
pub(super) struct ValueError {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) advice: String,
}

impl ValueError {
    pub(super) fn new(
        code: &'static str,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            code,
            message: message.into(),
            advice: advice.into(),
        }
    }
}

/// Looks up a word in a table, ignoring case.
pub(super) fn parse_choice<T: Clone>(value: &BStr, table: &[(&str, T)]) -> Result<T, ValueError> {
    let found = table
        .iter()
        .find(|(name, _)| value.eq_ignore_ascii_case(name.as_bytes()));
    found.map(|(_, meaning)| meaning.clone()).ok_or_else(|| {
        let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        ValueError::new(
            "bad-value",
            format!("`{value}` is not a valid value"),
            format!("write one of {}", names.join(", ")),
        )
    })
}

pub(super) fn parse_yes_no(value: &BStr) -> Result<bool, ValueError> {
    parse_choice(value, &[("yes", true), ("no", false)])
}

/// Parses decimal digits, from `least` to `most`.
pub(super) fn number(value: &BStr, least: u64, most: u64) -> Result<u64, ValueError> {
    let digits = value.iter().all(u8::is_ascii_digit);
    value
        .to_str()
        .ok()
        .filter(|_| digits)
        .and_then(|text| text.parse().ok())
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| {
            ValueError::new(
                "bad-number",
                format!("`{value}` is not a number from {least} to {most}"),
                "write a whole number in that range, in decimal digits",
            )
        })
}

/// As [`number`], for 32 bits.
pub(super) fn parse_u32(value: &BStr, least: u32, most: u32) -> Result<u32, ValueError> {
    let number = number(value, least.into(), most.into())?;
    Ok(u32::try_from(number).unwrap_or(most))
}

/// Parses MiB, or a percentage of the file system.
pub(super) fn space(value: &BStr) -> Result<SpaceLimit, ValueError> {
    let Some(percent) = value.strip_suffix(b"%") else {
        return Ok(SpaceLimit::Mebibytes(number(value, 0, u64::MAX >> 20)?));
    };
    let percent = number(percent.as_bstr(), 0, 99)
        .ok()
        .and_then(|percent| u8::try_from(percent).ok());
    percent.map(SpaceLimit::Percent).ok_or_else(|| {
        ValueError::new(
            "bad-number",
            format!("`{value}` is not a percentage"),
            "write 1% to 99%, or a number of MiB",
        )
    })
}

/// Parses a duration in seconds, or with a one-letter unit.
///
/// # Source
/// `time_string_to_seconds` in `common/common.c`, audit-userspace 4.2.1.
pub(super) fn time(value: &BStr, most: Duration) -> Result<Duration, ValueError> {
    let units = [
        ("s", 1),
        ("m", 60),
        ("h", 3600),
        ("d", 86_400),
        ("M", 2_592_000),
        ("", 1),
    ];
    let split = value
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (digits, unit) = value.split_at(split);
    let seconds = units
        .iter()
        .find(|(name, _)| name.as_bytes() == unit)
        .and_then(|(_, seconds)| {
            number(digits.as_bstr(), 0, u64::MAX)
                .ok()?
                .checked_mul(*seconds)
        });
    seconds
        .map(Duration::from_secs)
        .filter(|time| !digits.is_empty() && *time <= most)
        .ok_or_else(|| {
            ValueError::new(
                "bad-number",
                format!(
                    "`{value}` is not a duration of at most {} s",
                    most.as_secs()
                ),
                "write a number of seconds, or a number with the unit m, h or d, such as 15m",
            )
        })
}

/// Checks a mail address as `auditd` does, but does not look up the host.
pub(super) fn check_mail_address(value: &BStr) -> Result<(), ValueError> {
    let wrong = |what: &str| {
        ValueError::new(
            "bad-value",
            format!("`{value}` {what}"),
            "write a user of this host, or user@host.domain",
        )
    };
    if value.len() < 2 {
        return Err(wrong("is too short for a mail address"));
    }
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"@.-_+".contains(byte);
    if !value.iter().all(plain) {
        return Err(wrong("has an invalid character for a mail address"));
    }
    match (value.find_byte(b'@'), value.rfind_byte(b'.')) {
        (Some(at), Some(dot)) if dot < at => Err(wrong("has no `.` after the `@`")),
        (Some(_), None) => Err(wrong("has no `.` after the `@`")),
        _ => Ok(()),
    }
}

/// Checks for an absolute path.
pub(super) fn check_absolute_path(value: &BStr) -> Result<(), ValueError> {
    if value.starts_with(b"/") {
        return Ok(());
    }
    Err(ValueError::new(
        "bad-value",
        format!("`{value}` is not an absolute path"),
        "write the full path, beginning with `/`",
    ))
}

/// Checks a port or a port range.
pub(super) fn check_ports(value: &BStr) -> Result<(), ValueError> {
    let wrong = || {
        ValueError::new(
            "bad-number",
            format!("`{value}` is not a port or a port range"),
            "write a number up to 65535, or a range such as 1024-65535",
        )
    };
    let (first, last) = value.split_once_str("-").unwrap_or((value, value));
    let port = |text: &[u8]| {
        let text = (!text.is_empty()).then_some(text.as_bstr());
        text.and_then(|text| number(text, 0, 65_535).ok())
            .ok_or_else(wrong)
    };
    if port(first)? > port(last)? {
        return Err(wrong());
    }
    Ok(())
}
