//! Formats numbers into the record buffer like the kernel's `printf`, without `core::fmt`.

/// Writes `%d` or `%u`.
#[inline]
pub(super) fn decimal(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes `%03u`.
pub(super) fn decimal3(value: u16, out: &mut Vec<u8>) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value).as_bytes();
    out.extend_from_slice(b"000".get(digits.len()..).unwrap_or_default());
    out.extend_from_slice(digits);
}

/// Writes `%lx`.
pub(super) fn lower_hex(value: u64, out: &mut Vec<u8>) {
    let (digits, count) = hex_digits(value);
    out.extend_from_slice(digits.get(..count).unwrap_or_default());
}

/// The digits of `%lx` and their number; zeros follow them.
#[inline]
pub(super) fn hex_digits(value: u64) -> ([u8; 16], usize) {
    let (high, low) = (hex_of_half(value >> 32), hex_of_half(value & 0xffff_ffff));
    let zeros = (value | 1).leading_zeros() / 4;
    let digits = (u128::from(high) << 64 | u128::from(low)) << (8 * zeros);
    let count = usize::try_from(16 - zeros).unwrap_or(16);
    (digits.to_be_bytes(), count)
}

/// The eight digits of the low 32 bits, the first one in the highest byte.
#[inline]
const fn hex_of_half(half: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let spread = (half << 16 | half) & 0x0000_ffff_0000_ffff;
    let spread = (spread << 8 | spread) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (spread << 4 | spread) & (0x0f * EACH);
    // 1 where the digit is a letter.
    let letters = (nibbles + 0x06 * EACH) >> 4 & EACH;
    nibbles + 0x30 * EACH + letters * 0x27
}

/// Writes `%02x`.
pub(super) fn lower_hex2(value: u32, out: &mut Vec<u8>) {
    match u8::try_from(value) {
        Ok(byte) => out.extend_from_slice(&LOWER[usize::from(byte)]),
        Err(_) => lower_hex(value.into(), out),
    }
}

/// Writes `%016llx`.
pub(super) fn lower_hex16(value: u64, out: &mut Vec<u8>) {
    for byte in value.to_be_bytes() {
        out.extend_from_slice(&LOWER[usize::from(byte)]);
    }
}

/// Writes `%#llo`: with a leading 0 unless the value is 0.
pub(super) fn octal(value: u64, out: &mut Vec<u8>) {
    // 64 bits have at most 22 octal digits: there is always room for the leading 0.
    let mut digits = [b'0'; 23];
    let mut rest = value;
    let mut first = digits.len() - 1;
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        first = at;
        if rest == 0 {
            break;
        }
        *digit |= rest.to_le_bytes()[0] & 7;
        rest >>= 3;
    }
    out.extend_from_slice(digits.get(first..).unwrap_or_default());
}

/// Two lower-case hex digits of every byte.
const LOWER: [[u8; 2]; 256] = pairs(b"0123456789abcdef");

/// Two upper-case hex digits of every byte.
pub(super) const UPPER: [[u8; 2]; 256] = pairs(b"0123456789ABCDEF");

const fn pairs(digits: &[u8; 16]) -> [[u8; 2]; 256] {
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn digits_equal_those_of_fmt(wide: u64, shift in 0_u32..64, number: u32, by in 0_u32..32) {
            let (wide, number) = (wide >> shift, number >> by);
            prop_assert_eq!(text(|out| lower_hex16(wide, out)), format!("{wide:016x}"));
            prop_assert_eq!(text(|out| lower_hex(wide, out)), format!("{wide:x}"));
            prop_assert_eq!(text(|out| lower_hex2(number, out)), format!("{number:02x}"));
            let octal_text = if wide == 0 { "0".to_owned() } else { format!("0{wide:o}") };
            prop_assert_eq!(text(|out| octal(wide, out)), octal_text);
        }
    }

    #[test]
    fn zero_has_one_digit() {
        assert_eq!(text(|out| lower_hex(0, out)), "0");
        assert_eq!(text(|out| lower_hex2(0, out)), "00");
        assert_eq!(text(|out| octal(0, out)), "0");
    }

    #[test]
    fn milliseconds_have_three_digits() {
        for (value, expected) in [(0, "000"), (7, "007"), (42, "042"), (999, "999")] {
            assert_eq!(text(|out| decimal3(value, out)), expected);
        }
    }
}
