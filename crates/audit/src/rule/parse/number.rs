//! Parses numbers as C does: `0x` for hex, a leading `0` for octal, up to the first byte that is not a digit.

use super::super::diagnostic::{Findings, escape_text};
use super::super::lexer::Word;

/// A number at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rule) struct ParsedNumber {
    /// The number; `None` if it has more than 64 bits.
    pub(super) value: Option<u64>,
    /// Number of bytes parsed.
    pub(super) used: usize,
}

impl ParsedNumber {
    /// The low 32 bits, as C truncates; `None` if the number has more than 64 bits.
    pub(in crate::rule) fn low_bits(self) -> Option<u32> {
        u32::try_from(self.value? & u64::from(u32::MAX)).ok()
    }
}

/// Handling of a number of more than 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OversizeNumber {
    /// Report an error.
    Refuse,
    /// Truncate to the low 32 bits, as the kernel does, and warn.
    Truncate,
}

/// Parses a number that begins with a digit, as `strtoul(3)` does with base 0.
pub(in crate::rule) fn scan(text: &[u8]) -> Option<ParsedNumber> {
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    let (radix, prefix): (u32, usize) = match text {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => (16, 2),
        [b'0', ..] => (8, 0),
        _ => (10, 0),
    };
    let mut value = Some(0_u64);
    let mut used = prefix;
    let digits = text
        .iter()
        .skip(prefix)
        .map_while(|&byte| char::from(byte).to_digit(radix));
    for digit in digits {
        value = value
            .and_then(|value| value.checked_mul(radix.into()))
            .and_then(|value| value.checked_add(digit.into()));
        used += 1;
    }
    Some(ParsedNumber { value, used })
}

/// As [`unsigned`], for a field for which `auditctl` requires a digit first.
pub(super) fn field(
    what: &str,
    word: &Word,
    wide: OversizeNumber,
    findings: &mut Findings<'_>,
) -> Option<u32> {
    if !word.text.first().is_some_and(u8::is_ascii_digit) {
        refuse_field(what, findings);
    }
    unsigned(what, word, wide, findings)
}

/// Adds the message of `auditctl` for a field without a number.
pub(super) fn refuse_field(what: &str, findings: &mut Findings<'_>) {
    findings.auditctl_fails(&[b"-F value should be number for ", what.as_bytes()]);
}

/// Parses 32 bits; `None` if `word` is not a number. Bytes after the number give a warning, because `auditctl`
/// ignores them. A number that is too large gives an error and its low bits, which `auditctl` uses.
pub(super) fn unsigned(
    what: &str,
    word: &Word,
    wide: OversizeNumber,
    findings: &mut Findings<'_>,
) -> Option<u32> {
    let Some(scanned) = scan(&word.text) else {
        findings.error(
            "bad-number",
            &word.span,
            format!("`{}` is not a number for `{what}`", escape_text(&word.text)),
            "write digits: decimal, `0x` and hex, or `0` and octal",
        );
        return None;
    };
    let value = to_32_bits(what, word, scanned, wide, findings);
    warn_of_rest(word, scanned.used, findings);
    Some(value)
}

/// As [`unsigned`], with an optional minus; negative numbers in two's complement.
pub(super) fn signed(
    what: &str,
    word: &Word,
    wide: OversizeNumber,
    findings: &mut Findings<'_>,
) -> Option<u32> {
    match word.text.as_slice() {
        [b'-', b'0'..=b'9', ..] => {
            unsigned(what, &word.tail(1), wide, findings).map(u32::wrapping_neg)
        }
        _ => unsigned(what, word, wide, findings),
    }
}

fn to_32_bits(
    what: &str,
    word: &Word,
    scanned: ParsedNumber,
    wide: OversizeNumber,
    findings: &mut Findings<'_>,
) -> u32 {
    if let Some(value) = scanned.value.and_then(|value| u32::try_from(value).ok()) {
        return value;
    }
    let message = format!("`{}` is too large for `{what}`", escape_text(&word.text));
    // C saturates a number of more than 64 bits: all low bits are set.
    let low = scanned.low_bits().unwrap_or(u32::MAX);
    match (wide, scanned.value) {
        (OversizeNumber::Truncate, Some(_)) => findings.warning(
            "number-cut",
            &word.span,
            message,
            format!("the kernel compares only the low 32 bits, here {low:#x}"),
        ),
        _ => findings.error(
            "number-too-large",
            &word.span,
            message,
            "it must fit 32 bits",
        ),
    }
    low
}

/// Warns that `auditctl` ignores the text after a number.
pub(super) fn warn_of_rest(word: &Word, used: usize, findings: &mut Findings<'_>) {
    if used < word.text.len() {
        let read = word.text.get(..used).unwrap_or_default();
        findings.warning(
            "number-rest",
            &word.tail(used).span,
            format!(
                "`{}` is read as {}",
                escape_text(&word.text),
                escape_text(read)
            ),
            "remove the text after the number",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_parse_as_strtoul() {
        for (text, value, used) in [
            ("0", 0, 1),
            ("42", 42, 2),
            ("0x1f", 31, 4),
            ("0X1F", 31, 4),
            ("0100", 64, 4),
            ("12abc", 12, 2),
            ("08", 0, 1),
            ("0x", 0, 1),
            ("0xg", 0, 1),
        ] {
            let expected = ParsedNumber {
                value: Some(value),
                used,
            };
            assert_eq!(scan(text.as_bytes()), Some(expected), "{text}");
        }
        assert_eq!(scan(b""), None);
        assert_eq!(scan(b"-1"), None);
        let huge = scan(b"99999999999999999999").unwrap();
        assert_eq!(
            huge,
            ParsedNumber {
                value: None,
                used: 20
            }
        );
    }
}
