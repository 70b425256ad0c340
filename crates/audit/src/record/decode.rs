//! Parses the lines that the kernel, tollgate and `auditd` write.
//!
//! Lines are untrusted: malformed input is an error with its column and never a panic. Text without `=` in
//! the body, as in AVC records, belongs to no field and is skipped.

mod field;

use std::borrow::Cow;
use std::ops::Range;

use bstr::{BStr, ByteSlice as _};

pub use field::{Field, FieldFinder};
use field::{Fields, LineSlice, ValidFields};

use super::{execve, quote};
use crate::event::Timestamp;
use crate::ids::Serial;

/// Byte between the kernel's text and the fields that `auditd` adds in the enriched format.
pub(super) const ENRICHMENT: u8 = 0x1d;

/// A parsed line: the header that all records have, and the unparsed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Node name, if the log has one.
    pub node: Option<&'a BStr>,
    /// Name of the record type, such as `SYSCALL` or `UNKNOWN[1234]`.
    pub kind: &'a BStr,
    /// Time of the event.
    pub time: Timestamp,
    /// Serial number of the event.
    pub serial: Serial,
    body: LineSlice<'a>,
    enrichment: LineSlice<'a>,
}

/// Error in a line or in a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The record header is malformed.
    #[error("column {column}: expected {what}")]
    Expected {
        /// What is expected at the column.
        what: &'static str,
        /// Column, from 1.
        column: usize,
    },
    /// A control byte, which no writer of records emits.
    #[error("column {column}: control byte {byte:#04x}")]
    Control {
        /// The byte.
        byte: u8,
        /// Column, from 1.
        column: usize,
    },
    /// A quote or brace is not closed before the end of the line.
    #[error("column {column}: value is not closed")]
    Unclosed {
        /// Column of the value, from 1.
        column: usize,
    },
    /// The value of an untrusted field is neither quoted text nor hex.
    #[error("column {column}: malformed value")]
    Value {
        /// Column of the first invalid byte, from 1.
        column: usize,
        /// The error in the value.
        #[source]
        cause: quote::UnquoteError,
    },
    /// An argument is missing, incomplete or out of order.
    #[error("column {column}: arguments are incomplete or out of order")]
    Argument {
        /// Column of the value of the unexpected field, from 1.
        column: usize,
    },
}

/// Parses a line. It may end with one newline.
///
/// # Errors
/// [`DecodeError::Expected`] if the header is malformed, [`DecodeError::Control`] if the line has a control
/// byte, which the kernel never writes.
pub fn line(line: &[u8]) -> Result<Record<'_>, DecodeError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let hidden = |&byte: &u8| byte.is_ascii_control() && byte != ENRICHMENT;
    if let Some((at, &byte)) = line.iter().enumerate().find(|(_, byte)| hidden(byte)) {
        return Err(DecodeError::Control {
            byte,
            column: at + 1,
        });
    }
    header(line)
}

/// Parses a line as [`line`] does, but accepts control bytes, which other writers of logs may emit. It reads only
/// the header.
///
/// # Errors
/// [`DecodeError::Expected`] if the header is malformed.
pub fn header(line: &[u8]) -> Result<Record<'_>, DecodeError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    Ok(Header::parse(line)?.record(line))
}

/// The header of a record, and where its parts are in the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<'a> {
    pub(super) node: Option<&'a BStr>,
    pub(super) kind: &'a BStr,
    pub(super) time: Timestamp,
    pub(super) serial: Serial,
    /// Start of the seconds.
    pub(super) stamp: usize,
    /// End of the header.
    pub(super) end: usize,
}

impl<'a> Header<'a> {
    /// Parses the header of a line; a newline must not be in it.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor { line, at: 0 };
        let (node, kind) = cursor.node_and_type()?;
        let stamp = cursor.at;
        let (time, serial) = cursor.stamp()?;
        Ok(Self {
            node,
            kind,
            time,
            serial,
            stamp,
            end: cursor.at,
        })
    }

    /// Start of the record type.
    pub(super) fn kind_start(&self) -> usize {
        self.stamp - b" msg=audit(".len() - self.kind.len()
    }

    /// The record in the line, without its newline.
    pub(super) fn record(&self, line: &'a [u8]) -> Record<'a> {
        let text = line.get(self.end..).unwrap_or_default();
        self.record_with(text, text.find_byte(ENRICHMENT))
    }

    /// The record with the text behind the header, in which the byte before the enriched part is at a known place.
    pub(super) fn record_with(&self, text: &'a [u8], enrichment: Option<usize>) -> Record<'a> {
        let start = self.end;
        let (body, enrichment) = match enrichment {
            Some(at) => (
                text.get(..at).unwrap_or_default(),
                text.get(at + 1..).unwrap_or_default(),
            ),
            None => (text, &b""[..]),
        };
        Record {
            node: self.node,
            kind: self.kind,
            time: self.time,
            serial: self.serial,
            body: LineSlice {
                text: body,
                column: start + 1,
            },
            enrichment: LineSlice {
                text: enrichment,
                column: start + body.len() + 2,
            },
        }
    }
}

/// Parses the stamp at the start of the kernel's text, from `audit(` on: time and serial of the event.
///
/// # Errors
/// [`DecodeError::Expected`] if the stamp is malformed.
pub fn stamp(text: &[u8]) -> Result<(Timestamp, Serial), DecodeError> {
    let mut cursor = Cursor { line: text, at: 0 };
    cursor.literal(b"audit(", "`audit(`")?;
    cursor.stamp()
}

/// Parses the time and serial at the start of `text`, such as `1700000000.042:7`, before a `)`. Returns their length
/// too.
#[must_use]
pub fn time_and_serial(text: &[u8]) -> Option<(Timestamp, Serial, usize)> {
    let mut cursor = Cursor { line: text, at: 0 };
    let (time, serial) = cursor.stamp().ok()?;
    Some((time, serial, cursor.at - b"):".len()))
}

/// Parses what follows the seconds and the dot of a stamp, before a `)`: milliseconds and serial. Returns their length
/// too.
#[must_use]
pub fn millis_and_serial(text: &[u8]) -> Option<(u16, Serial, usize)> {
    let (milli, rest) = text.split_first_chunk::<3>()?;
    let rest = rest.strip_prefix(b":")?;
    let milli = parse(milli)?;
    // Index and search read the stamp of each event: digit by digit, without the positions of errors.
    let (mut serial, mut digits) = (0_u64, 0);
    for byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        serial = serial * 10 + u64::from(digit);
        if serial > u32::MAX.into() {
            return None;
        }
        digits += 1;
    }
    let serial = u32::try_from(serial).ok().filter(|_| digits != 0)?;
    let len = "123:".len() + digits;
    text.get(len..)?
        .starts_with(b"):")
        .then_some((milli, Serial(serial), len))
}

impl<'a> Record<'a> {
    /// The kernel's text.
    #[must_use]
    pub fn body(&self) -> &'a BStr {
        self.body.text.trim_with(|byte| byte == ' ').as_bstr()
    }

    /// Fields of the kernel's text, in order. The iterator ends after an error.
    pub fn fields(&self) -> impl Iterator<Item = Result<Field<'a>, DecodeError>> + use<'a> {
        Fields::of(self.body)
    }

    /// Fields of the kernel's text before the first malformed one, in order.
    pub fn valid_fields(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        ValidFields(Fields::of(self.body))
    }

    /// The kernel's text with the blanks around it.
    #[must_use]
    pub const fn untrimmed(&self) -> &'a [u8] {
        self.body.text
    }

    /// Fields of the kernel's text before the first malformed one, in order, at least up to the one whose name ends at
    /// this offset in [`Record::untrimmed`], with its `=` or without; none if there is no offset.
    fn fields_up_to(&self, end: Option<usize>) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let LineSlice { text, column } = self.body;
        let slice = LineSlice {
            text: if end.is_some() { text } else { b"" },
            column,
        };
        let last = column + end.unwrap_or(0);
        ValidFields(Fields::of(slice)).take_while(move |field| field.column <= last + 1)
    }

    /// Fields of a part of [`Record::untrimmed`] before the first malformed one, in order. No field is at both sides of
    /// an end.
    pub fn fields_in(&self, part: Range<usize>) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let LineSlice { text, column } = self.body;
        let text = text.get(..part.end).unwrap_or(text);
        ValidFields(Fields::of(LineSlice { text, column }).skip_to(part.start))
    }

    /// The text that `auditd` added in the enriched format.
    #[must_use]
    pub const fn enrichment_text(&self) -> &'a [u8] {
        self.enrichment.text
    }

    /// First field of the kernel's text with this name. Fields after a malformed one are not found.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Field<'a>> {
        self.valid_fields().find(|field| field.name == name)
    }

    /// Fields that `auditd` added in the enriched format, in order. The iterator ends after an error.
    pub fn enrichment(&self) -> impl Iterator<Item = Result<Field<'a>, DecodeError>> + use<'a> {
        Fields::of(self.enrichment)
    }

    /// Fields inside the value of a field, as in `msg='op=login acct="root"'`; none if the value is not between
    /// apostrophes. The iterator ends after an error.
    pub fn nested_fields(
        &self,
        field: &Field<'a>,
    ) -> impl Iterator<Item = Result<Field<'a>, DecodeError>> + use<'a> {
        let value: &'a [u8] = field.value;
        let text = value
            .strip_prefix(b"'")
            .and_then(|value| value.strip_suffix(b"'"));
        Fields::of(LineSlice {
            text: text.unwrap_or_default(),
            column: field.column + 1,
        })
    }

    /// Value of a field. Untrusted strings are decoded, other values are returned as they are.
    /// `None` if an untrusted field has no string, such as `(null)`.
    ///
    /// # Errors
    /// [`DecodeError::Value`] if an untrusted field is neither quoted nor hex.
    pub fn text(&self, field: &Field<'a>) -> Result<Option<Cow<'a, [u8]>>, DecodeError> {
        let value: &'a [u8] = field.value;
        if !self.is_untrusted(field.name) {
            return Ok(Some(Cow::Borrowed(value)));
        }
        match value {
            b"(null)" | b"(none)" | b"?" => Ok(None),
            _ => quote::unquote(value)
                .map(Some)
                .map_err(|cause| DecodeError::Value {
                    column: field.column + cause.offset,
                    cause,
                }),
        }
    }

    fn is_untrusted(&self, name: &[u8]) -> bool {
        field::is_untrusted(name) || self.kind == "EXECVE" && execve::is_argument(name)
    }
}

/// Parses the record header.
struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a [u8] {
        self.line.get(self.at..).unwrap_or_default()
    }

    fn expected(&self, what: &'static str) -> DecodeError {
        DecodeError::Expected {
            what,
            column: self.at + 1,
        }
    }

    fn literal(&mut self, text: &[u8], what: &'static str) -> Result<(), DecodeError> {
        if !self.rest().starts_with(text) {
            return Err(self.expected(what));
        }
        self.at += text.len();
        Ok(())
    }

    /// Returns the bytes before the next space and skips the space.
    fn word(&mut self, what: &'static str) -> Result<&'a BStr, DecodeError> {
        let rest = self.rest();
        let Some(end) = field::find_near(rest, |byte| byte == b' ') else {
            self.at = self.line.len();
            return Err(self.expected(what));
        };
        self.at += end + 1;
        Ok(rest.get(..end).unwrap_or_default().as_bstr())
    }

    /// Returns the node and the type of a record, and skips everything up to its stamp.
    fn node_and_type(&mut self) -> Result<(Option<&'a BStr>, &'a BStr), DecodeError> {
        let node = match self.literal(b"node=", "`node=`") {
            Ok(()) => Some(self.word("a blank after the node")?),
            Err(_) => None,
        };
        self.literal(b"type=", "`type=`")?;
        let kind = self.word("a blank after the type")?;
        self.literal(b"msg=audit(", "`msg=audit(`")?;
        Ok((node, kind))
    }

    /// Returns the digits here and skips them; and their number, if it cannot overflow.
    fn digits(&mut self) -> (&'a [u8], Option<u64>) {
        const SAFE: usize = 19;
        let rest = self.rest();
        let (mut number, mut len) = (0_u64, 0);
        for byte in rest {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            number = number.wrapping_mul(10).wrapping_add(digit.into());
            len += 1;
        }
        self.at += len;
        let digits = rest.get(..len).unwrap_or_default();
        (digits, (1..=SAFE).contains(&len).then_some(number))
    }

    fn number<T: TryFrom<u64>>(&mut self, what: &'static str) -> Result<T, DecodeError> {
        let column = self.at + 1;
        let (digits, number) = self.digits();
        let number = number.or_else(|| parse(digits));
        number
            .and_then(|number| number.try_into().ok())
            .ok_or(DecodeError::Expected { what, column })
    }

    /// Parses the stamp after `audit(`, up to the colon.
    fn stamp(&mut self) -> Result<(Timestamp, Serial), DecodeError> {
        let sec = self.number("seconds")?;
        self.literal(b".", "`.` after the seconds")?;
        let (milli, serial) = self.millis_and_serial()?;
        Ok((Timestamp { sec, milli }, serial))
    }

    /// Parses the part of the stamp behind the dot, up to the colon.
    fn millis_and_serial(&mut self) -> Result<(u16, Serial), DecodeError> {
        let milli = self.milli()?;
        self.literal(b":", "`:` before the serial")?;
        let serial = self.number("a serial of 32 bits")?;
        self.literal(b"):", "`):` after the serial")?;
        Ok((milli, Serial(serial)))
    }

    fn milli(&mut self) -> Result<u16, DecodeError> {
        let error = self.expected("three digits of milliseconds");
        match self.digits() {
            ([_, _, _], Some(number)) => u16::try_from(number).map_err(|_too_many| error),
            _ => Err(error),
        }
    }
}

/// Parses digits; `None` if there are none, or too many for `T`.
pub(super) fn parse<T: TryFrom<u64>>(digits: &[u8]) -> Option<T> {
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_u64;
    for byte in digits {
        let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    number.try_into().ok()
}

#[cfg(test)]
mod tests;
