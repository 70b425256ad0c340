//! Values of `auditd.conf`: each function reads one kind, and says what it wants.

use core::time::Duration;

use bstr::{BStr, ByteSlice as _};

use super::SpaceLimit;

/// What is wrong with a value, and what to do about it.
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

/// Finds a word, in letters of any case, in a table.
pub(super) fn parse_choice<T: Clone>(value: &BStr, table: &[(&str, T)]) -> Result<T, ValueError> {
    let found = table
        .iter()
        .find(|(name, _)| value.eq_ignore_ascii_case(name.as_bytes()));
    found.map(|(_, meaning)| meaning.clone()).ok_or_else(|| {
        let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        ValueError::new(
            "bad-value",
            format!("`{value}` is none of the values that the key can have"),
            format!("write one of {}", names.join(", ")),
        )
    })
}

pub(super) fn parse_yes_no(value: &BStr) -> Result<bool, ValueError> {
    parse_choice(value, &[("yes", true), ("no", false)])
}

/// A number of decimal digits alone, from `least` to `most`.
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
                format!("`{value}` is no number from {least} to {most}"),
                "write decimal digits",
            )
        })
}

/// The same for what is kept in 32 bits.
pub(super) fn parse_u32(value: &BStr, least: u32, most: u32) -> Result<u32, ValueError> {
    let number = number(value, least.into(), most.into())?;
    Ok(u32::try_from(number).unwrap_or(most))
}

/// MiB, or a part of the file system.
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
            format!("`{value}` is no percentage"),
            "write 1% to 99%, or a number of MiB",
        )
    })
}

/// Seconds, or another unit that is said by one letter.
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
                format!("`{value}` is no time up to {} s", most.as_secs()),
                "write a number of seconds, or one with m, h or d after it, such as 15m",
            )
        })
}

/// An address to write to, as `auditd` verifies it; whether its host exists is not asked.
pub(super) fn check_mail_address(value: &BStr) -> Result<(), ValueError> {
    let wrong = |what: &str| {
        ValueError::new(
            "bad-value",
            format!("`{value}` {what}"),
            "write a user of this machine, or user@host.domain",
        )
    };
    if value.len() < 2 {
        return Err(wrong("is too short for an address"));
    }
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"@.-_+".contains(byte);
    if !value.iter().all(plain) {
        return Err(wrong("has a character that no address has"));
    }
    match (value.find_byte(b'@'), value.rfind_byte(b'.')) {
        (Some(at), Some(dot)) if dot < at => Err(wrong("has no `.` after the `@`")),
        (Some(_), None) => Err(wrong("has no `.` after the `@`")),
        _ => Ok(()),
    }
}

/// A path from the root.
pub(super) fn check_absolute_path(value: &BStr) -> Result<(), ValueError> {
    if value.starts_with(b"/") {
        return Ok(());
    }
    Err(ValueError::new(
        "bad-value",
        format!("`{value}` is no absolute path"),
        "write the whole path, beginning with `/`",
    ))
}

/// One port, or a range of them.
pub(super) fn check_ports(value: &BStr) -> Result<(), ValueError> {
    let wrong = || {
        ValueError::new(
            "bad-number",
            format!("`{value}` is no port and no range of ports"),
            "write a number up to 65535, or two with a dash between them, the smaller first",
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
