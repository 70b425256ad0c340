//! Encoding of untrusted strings: `"text"` or hex.
//!
//! A value is double-quoted if all of its bytes are printable ASCII other than space and double quote.
//! Otherwise it is upper-case hex without quotes. A reader must know which fields are encoded, because
//! `comm=64616B` is also a valid plain word: see [`super::decode`].

use std::borrow::Cow;

use bstr::ByteSlice as _;

use super::digits::UPPER;

/// Whether `bytes` must be encoded as hex.
///
/// # Source
/// `audit_string_contains_control` in `kernel/audit.c`, Linux 6.12.
#[must_use]
pub fn needs_hex(bytes: &[u8]) -> bool {
    // Without an early exit the compiler vectorises the scan; most strings need no hex.
    bytes
        .iter()
        .fold(false, |found, &byte| found | must_escape(byte))
}

/// Length of the output of [`untrusted`].
#[must_use]
pub fn encoded_len(bytes: &[u8]) -> usize {
    if needs_hex(bytes) {
        bytes.len() * 2
    } else {
        bytes.len() + 2
    }
}

/// Appends `bytes` as the value of an untrusted field.
pub fn untrusted(bytes: &[u8], out: &mut Vec<u8>) {
    if needs_hex(bytes) {
        hex(bytes, out);
    } else {
        quoted(bytes, out);
    }
}

/// Decodes the value of an untrusted field.
///
/// # Errors
/// [`UnquoteError`] if the value is neither double-quoted nor pairs of hex digits.
pub fn unquote(value: &[u8]) -> Result<Cow<'_, [u8]>, UnquoteError> {
    if let Some(rest) = value.strip_prefix(b"\"") {
        return match rest.find_byte(b'"') {
            Some(end) if end + 1 == rest.len() => Ok(Cow::Borrowed(&rest[..end])),
            Some(end) => Err(UnquoteError { offset: end + 2 }),
            None => Err(UnquoteError {
                offset: value.len(),
            }),
        };
    }
    let (pairs, odd) = value.as_chunks::<2>();
    let mut bytes = Vec::with_capacity(pairs.len());
    for (index, &[high, low]) in pairs.iter().enumerate() {
        let high = nibble(high).ok_or(UnquoteError { offset: index * 2 })?;
        let low = nibble(low).ok_or(UnquoteError {
            offset: index * 2 + 1,
        })?;
        bytes.push(high << 4 | low);
    }
    if odd.is_empty() && !value.is_empty() {
        Ok(Cow::Owned(bytes))
    } else {
        Err(UnquoteError {
            offset: value.len(),
        })
    }
}

/// The value of an untrusted field is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("neither quoted text nor hex at byte {offset} of the value")]
pub struct UnquoteError {
    /// Offset of the first invalid byte; the length of the value if it ends too early.
    pub offset: usize,
}

/// Appends upper-case hex digits.
pub(super) fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + bytes.len() * 2, 0);
    for (pair, &byte) in out[start..].as_chunks_mut().0.iter_mut().zip(bytes) {
        *pair = UPPER[usize::from(byte)];
    }
}

/// Appends `bytes` between double quotes.
pub(super) fn quoted(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(bytes);
    out.push(b'"');
}

const fn must_escape(byte: u8) -> bool {
    byte == b'"' || byte < 0x21 || byte > 0x7e
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        untrusted(bytes, &mut out);
        out
    }

    #[test]
    fn only_printable_bytes_are_quoted() {
        assert_eq!(encoded(b"!~"), b"\"!~\"");
        assert_eq!(encoded(b""), b"\"\"");
        for (byte, hex) in [
            (b' ', "20"),
            (0x7f, "7F"),
            (b'"', "22"),
            (0, "00"),
            (0xff, "FF"),
        ] {
            assert_eq!(encoded(&[byte]), hex.as_bytes());
        }
    }

    #[test]
    fn malformed_values_have_the_offset() {
        for (value, offset) in [
            ("", 0),
            ("\"abc", 4),
            ("\"a\"b\"", 3),
            ("6", 1),
            ("616", 3),
            ("6g", 1),
            ("(null)", 0),
        ] {
            assert_eq!(
                unquote(value.as_bytes()),
                Err(UnquoteError { offset }),
                "{value}"
            );
        }
    }

    proptest! {
        #[test]
        fn quoted_bytes_round_trip(bytes: Vec<u8>) {
            let text = encoded(&bytes);
            prop_assert_eq!(text.len(), encoded_len(&bytes));
            prop_assert!(text.iter().all(u8::is_ascii_graphic));
            prop_assert_eq!(unquote(&text).unwrap(), Cow::Borrowed(bytes.as_slice()));
        }

        #[test]
        fn any_value_is_decoded_or_refused(value: Vec<u8>) {
            if let Err(error) = unquote(&value) {
                prop_assert!(error.offset <= value.len());
            }
        }
    }
}
