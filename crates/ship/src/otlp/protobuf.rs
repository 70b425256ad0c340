//! Protocol buffers, as far as OTLP needs them.
//!
//! ```text
//! message = (key value)...     key = number << 3 | wire type, as varint
//! ```
//!
//! # Source
//! The encoding guide of Protocol Buffers.

use anyhow::{Context as _, bail};

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const FIXED32: u32 = 5;

/// Appends a number in groups of seven bits, the lowest first.
fn varint(mut value: u64, to: &mut Vec<u8>) {
    while let Some(rest) = Some(value >> 7).filter(|rest| *rest > 0) {
        to.push(low_bits(value) | 0x80);
        value = rest;
    }
    to.push(low_bits(value));
}

fn low_bits(value: u64) -> u8 {
    let [low, ..] = value.to_le_bytes();
    low & 0x7f
}

/// Bytes of a number.
const fn varint_len(mut value: u64) -> usize {
    let mut len = 1;
    while value > 0x7f {
        value >>= 7;
        len += 1;
    }
    len
}

/// Bytes of a field of `len` bytes, with its key. The number of the field is below 16.
pub(super) fn field_len(len: usize) -> usize {
    1 + varint_len(as_u64(len)) + len
}

/// Bytes of a field with a number. The number of the field is below 16.
pub(super) const fn integer_len(value: u64) -> usize {
    1 + varint_len(value)
}

fn as_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Appends key and length of a field, whose `len` bytes follow.
pub(super) fn head(number: u32, len: usize, to: &mut Vec<u8>) {
    varint(u64::from(number << 3 | BYTES), to);
    varint(as_u64(len), to);
}

/// Appends a string, bytes or a message.
pub(super) fn bytes(number: u32, value: &[u8], to: &mut Vec<u8>) {
    head(number, value.len(), to);
    to.extend_from_slice(value);
}

/// Appends a number, or an enumeration.
pub(super) fn integer(number: u32, value: u64, to: &mut Vec<u8>) {
    varint(u64::from(number << 3 | VARINT), to);
    varint(value, to);
}

/// Appends a number of eight bytes.
pub(super) fn fixed64(number: u32, value: u64, to: &mut Vec<u8>) {
    varint(u64::from(number << 3 | FIXED64), to);
    to.extend_from_slice(&value.to_le_bytes());
}

/// A value of a message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, with their numbers. The last one is an error if it is cut or no field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

/// The fields of a message.
pub(super) const fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

impl<'a> Iterator for Fields<'a> {
    type Item = anyhow::Result<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = read_field(&mut self.rest);
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// What the fields with a number have: messages or texts. Others are passed over.
pub(super) fn messages(message: &[u8], number: u32) -> impl Iterator<Item = anyhow::Result<&[u8]>> {
    fields(message).filter_map(move |field| match field {
        Ok((found, Value::Bytes(bytes))) if found == u64::from(number) => Some(Ok(bytes)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })
}

/// The last of them, as of a field that comes once.
///
/// # Errors
/// The message is cut, or none.
pub(super) fn last(message: &[u8], number: u32) -> anyhow::Result<Option<&[u8]>> {
    let mut found = None;
    for value in messages(message, number) {
        found = Some(value?);
    }
    Ok(found)
}

fn read_field<'a>(rest: &mut &'a [u8]) -> anyhow::Result<(u64, Value<'a>)> {
    let key = read_varint(rest)?;
    let value = match u32::try_from(key & 7)? {
        VARINT => Value::Number(read_varint(rest)?),
        FIXED64 => Value::Number(u64::from_le_bytes(*read(rest)?)),
        FIXED32 => Value::Number(u32::from_le_bytes(*read(rest)?).into()),
        BYTES => {
            let len = usize::try_from(read_varint(rest)?)?;
            let (bytes, behind) = rest.split_at_checked(len).context("a field is cut")?;
            *rest = behind;
            Value::Bytes(bytes)
        }
        other => bail!("a field has the unknown type {other}"),
    };
    Ok((key >> 3, value))
}

fn read<'a, const LEN: usize>(rest: &mut &'a [u8]) -> anyhow::Result<&'a [u8; LEN]> {
    let (bytes, behind) = rest.split_first_chunk().context("a number is cut")?;
    *rest = behind;
    Ok(bytes)
}

fn read_varint(rest: &mut &[u8]) -> anyhow::Result<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let [byte] = *read(rest)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    bail!("a number is too long")
}

#[cfg(test)]
mod tests {
    use inputs::fuzz::fuzz;

    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut message = Vec::new();
            integer(3, number, &mut message);
            fixed64(1, number, &mut message);
            bytes(2, b"text", &mut message);
            message.extend_from_slice(&[0x25, 1, 0, 0, 0]);
            let found: anyhow::Result<Vec<_>> = fields(&message).collect();
            let expected = [
                (3, Value::Number(number)),
                (1, Value::Number(number)),
                (2, Value::Bytes(b"text")),
                (4, Value::Number(1)),
            ];
            assert_eq!(found.unwrap(), expected);
            // What is cut within a field is no message.
            for end in [1, message.len() - 1] {
                assert!(fields(&message[..end]).any(|field| field.is_err()), "{end}");
            }
        }
        for len in [0, 1, 127, 128, 16_383, 16_384, 1 << 20] {
            let mut message = Vec::new();
            bytes(1, &vec![0; len], &mut message);
            assert_eq!(field_len(len), message.len());
        }
    }

    /// Bytes of a peer are fields or an error.
    #[test]
    fn fuzz_ship_protobuf() {
        let corpus = [vec![0x0a, 4, 0x08, 3, 0x12, 0], vec![0xff; 11]];
        fuzz(
            "fuzz_ship_protobuf",
            &corpus,
            &["\n", "\u{1}"],
            2000,
            |input| {
                let lens = fields(input).map_while(|field| match field.ok()? {
                    (_, Value::Bytes(bytes)) => Some(bytes.len()),
                    (_, Value::Number(_)) => Some(1),
                });
                assert!(lens.sum::<usize>() <= input.len());
            },
        );
    }
}
