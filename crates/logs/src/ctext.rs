//! Numbers in text, read as the C library reads them. The stock tools are written in C, and what they make of odd input
//! is what these functions make of it.

/// A number at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The value, modulo 2^64 and saturated as `strtoul` does.
    pub value: u64,
    /// Whether the digits say more than 64 bits hold.
    pub overflow: bool,
    /// Bytes that were read; zero if there was no number.
    pub length: usize,
}

/// `strtoul` with a base of 0 (found from the prefix), 8, 10 or 16.
#[must_use]
pub fn unsigned(text: &[u8], base: u32) -> Number {
    let scan = Scan::new(text, base);
    let value = match (scan.overflow, scan.negative) {
        (true, _) => u64::MAX,
        (false, true) => scan.magnitude.wrapping_neg(),
        (false, false) => scan.magnitude,
    };
    Number {
        value,
        overflow: scan.overflow,
        length: scan.length,
    }
}

/// `strtoll`; the value is that of the two's complement.
#[must_use]
pub fn signed(text: &[u8], base: u32) -> (i64, Number) {
    let scan = Scan::new(text, base);
    let limit = if scan.negative {
        1 << 63
    } else {
        (1 << 63) - 1
    };
    let overflow = scan.overflow || scan.magnitude > limit;
    let magnitude = if overflow { limit } else { scan.magnitude };
    let value = if scan.negative {
        magnitude.wrapping_neg().cast_signed()
    } else {
        magnitude.cast_signed()
    };
    let number = Number {
        value: value.cast_unsigned(),
        overflow,
        length: scan.length,
    };
    (value, number)
}

/// Low 32 bits: what an assignment to an `int` or `uid_t` keeps.
#[must_use]
pub const fn low_32(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Low 32 bits as an `int`.
#[must_use]
pub const fn low_i32(value: u64) -> i32 {
    low_32(value).cast_signed()
}

/// Value of a hex digit.
#[must_use]
pub const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Bytes up to the first NUL.
#[must_use]
pub fn until_nul(text: &[u8]) -> &[u8] {
    match bstr::ByteSlice::find_byte(text, 0) {
        Some(end) => text.get(..end).unwrap_or_default(),
        None => text,
    }
}

struct Scan {
    magnitude: u64,
    negative: bool,
    overflow: bool,
    length: usize,
}

impl Scan {
    fn new(text: &[u8], base: u32) -> Self {
        let blanks = text
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r'))
            .count();
        let mut at = blanks;
        let negative = text.get(at) == Some(&b'-');
        if negative || text.get(at) == Some(&b'+') {
            at += 1;
        }
        let mut base = base;
        let rest = text.get(at..).unwrap_or_default();
        let prefixed =
            matches!(rest, [b'0', b'x' | b'X', digit, ..] if hex_digit(*digit).is_some());
        if prefixed && (base == 0 || base == 16) {
            at += 2;
            base = 16;
        } else if base == 0 {
            base = if rest.first() == Some(&b'0') { 8 } else { 10 };
        }
        let start = at;
        let (mut magnitude, mut overflow) = (0_u64, false);
        while let Some(digit) = text.get(at).copied().and_then(hex_digit) {
            if u32::from(digit) >= base {
                break;
            }
            let next = magnitude
                .checked_mul(u64::from(base))
                .and_then(|value| value.checked_add(u64::from(digit)));
            overflow |= next.is_none();
            magnitude = next.unwrap_or(u64::MAX);
            at += 1;
        }
        Self {
            magnitude,
            negative,
            overflow,
            length: if at == start { 0 } else { at },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_strtoul() {
        for (text, base, value, overflow, length) in [
            (&b"12 x"[..], 10, 12, false, 2),
            (b"-1", 10, u64::MAX, false, 2),
            (b" +7", 10, 7, false, 3),
            (b"0x1f", 16, 31, false, 4),
            (b"0x", 16, 0, false, 1),
            (b"0x1f", 10, 0, false, 1),
            (b"0x1f", 0, 31, false, 4),
            (b"010", 0, 8, false, 3),
            (b"", 10, 0, false, 0),
            (b"x", 16, 0, false, 0),
            (b"18446744073709551616", 10, u64::MAX, true, 20),
        ] {
            let expected = Number {
                value,
                overflow,
                length,
            };
            assert_eq!(unsigned(text, base), expected, "{text:?} {base}");
        }
    }

    #[test]
    fn signed_numbers_saturate() {
        assert_eq!(signed(b"-13", 10).0, -13);
        assert_eq!(signed(b"-99999999999999999999", 10).0, i64::MIN);
        assert!(signed(b"9223372036854775808", 10).1.overflow);
        assert_eq!(signed(b"-9223372036854775808", 10).0, i64::MIN);
    }
}
