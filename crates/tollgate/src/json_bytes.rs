//! Byte strings in JSON, for the control protocol, the lock file and the helper's messages.

use std::fmt;

use bstr::{BString, ByteSlice as _};
use serde::{Deserialize, Serialize};

/// Bytes that are usually text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum JsonBytes {
    /// Valid UTF-8.
    Utf8(String),
    /// Other bytes, as two hexadecimal digits each.
    Bytes {
        /// The digits.
        hex: String,
    },
}

impl Default for JsonBytes {
    fn default() -> Self {
        Self::Utf8(String::new())
    }
}

impl fmt::Display for JsonBytes {
    /// Formats for a terminal: control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Utf8(text) => write!(f, "{}", text.escape_debug()),
            Self::Bytes { hex } => write!(f, "0x{}", hex.escape_debug()),
        }
    }
}

impl JsonBytes {
    /// Encodes bytes.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        match bytes.to_str() {
            Ok(text) => Self::Utf8(text.to_owned()),
            Err(_) => Self::Bytes {
                hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            },
        }
    }

    /// Decodes the bytes; `None` if the digits are malformed.
    pub(crate) fn bytes(&self) -> Option<BString> {
        match self {
            Self::Utf8(text) => Some(text.as_str().into()),
            Self::Bytes { hex } => {
                let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
                if !rest.is_empty() {
                    return None;
                }
                let digit = |byte: u8| char::from(byte).to_digit(16);
                pairs
                    .iter()
                    .map(|&[high, low]| u8::try_from(digit(high)? * 16 + digit(low)?).ok())
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_round_trip() {
        for bytes in [&b"plain"[..], b"", b"\xff\x00\x01", "é".as_bytes()] {
            let text = serde_json::to_string(&JsonBytes::new(bytes)).unwrap();
            let back: JsonBytes = serde_json::from_str(&text).unwrap();
            assert_eq!(back.bytes().unwrap(), bytes);
        }
        for hex in ["f", "fg", "é"] {
            assert_eq!(JsonBytes::Bytes { hex: hex.into() }.bytes(), None);
        }
    }
}
