//! Attributes: names and values of a record or a resource.
//!
//! Numbers of fields are those of `common.proto`: `KeyValue`, `AnyValue` and `ArrayValue`.
//!
//! # Source
//! opentelemetry-proto 1.5.

use super::protobuf::{bytes, field_len, head, integer, integer_len};

/// Fields of `KeyValue`.
pub(super) const KEY: u32 = 1;
pub(super) const VALUE: u32 = 2;
/// Fields of `AnyValue`.
pub(super) const TEXT: u32 = 1;
const BOOLEAN: u32 = 2;
const INTEGER: u32 = 3;
const ARRAY: u32 = 5;
/// The field of `ArrayValue`.
const VALUES: u32 = 1;

/// Appends attributes, as a field of a message with this number.
#[derive(Debug)]
pub(super) struct Attributes<'a> {
    pub(super) number: u32,
    pub(super) to: &'a mut Vec<u8>,
}

impl Attributes<'_> {
    pub(super) fn text(&mut self, key: &str, value: &str) {
        self.head(key, field_len(value.len()));
        bytes(TEXT, value.as_bytes(), self.to);
    }

    pub(super) fn integer(&mut self, key: &str, value: i64) {
        // A negative number is one of 64 bits.
        let value = value.cast_unsigned();
        self.head(key, integer_len(value));
        integer(INTEGER, value, self.to);
    }

    pub(super) fn boolean(&mut self, key: &str, value: bool) {
        self.head(key, 2);
        integer(BOOLEAN, value.into(), self.to);
    }

    /// Appends a list of texts.
    pub(super) fn texts(&mut self, key: &str, values: &[impl AsRef<str>]) {
        let values = values.iter().map(AsRef::as_ref);
        let item = |value: &str| field_len(value.len());
        let array: usize = values.clone().map(|value| field_len(item(value))).sum();
        self.head(key, field_len(array));
        head(ARRAY, array, self.to);
        for value in values {
            head(VALUES, item(value), self.to);
            bytes(TEXT, value.as_bytes(), self.to);
        }
    }

    /// Appends what is before the value, which has `len` bytes.
    fn head(&mut self, key: &str, len: usize) {
        head(self.number, field_len(key.len()) + field_len(len), self.to);
        bytes(KEY, key.as_bytes(), self.to);
        head(VALUE, len, self.to);
    }
}

/// Appends a text, as a field of a message with this number.
pub(super) fn text_value(number: u32, value: &str, to: &mut Vec<u8>) {
    head(number, field_len(value.len()), to);
    bytes(TEXT, value.as_bytes(), to);
}
