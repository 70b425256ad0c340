//! The start of a record, read as the stock tools do: node, type and stamp.

use bstr::ByteSlice as _;

use crate::ctext::{self, low_32};

/// Bytes in which the stamp must lie.
const STAMP_BYTES: usize = 80;
/// The same with a node.
const NODE_STAMP_BYTES: usize = 340;

/// The start of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp<'l> {
    /// Seconds since 1970.
    pub seconds: u64,
    /// Milliseconds, less than 1000.
    pub millis: u32,
    /// Serial number of the event.
    pub serial: u64,
    /// Node, if the record names one.
    pub node: Option<&'l [u8]>,
    /// Name of the type.
    pub kind: &'l [u8],
}

/// A stamp that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadStamp<'l> {
    /// The line is no record.
    NoRecord,
    /// The numbers in parentheses are out of range.
    OutOfRange(&'l [u8]),
}

/// Reads the start of a line. Times must leave `timeout_seconds` below the end of time.
///
/// # Errors
/// [`BadStamp`].
pub fn parse(line: &[u8], timeout_seconds: u64) -> Result<Stamp<'_>, BadStamp<'_>> {
    let has_node = line.first() == Some(&b'n');
    let limit = if has_node {
        NODE_STAMP_BYTES
    } else {
        STAMP_BYTES
    };
    let start = line.get(..limit).unwrap_or(line);
    let mut words = Words { text: start, at: 0 };
    let mut word = words.next().ok_or(BadStamp::NoRecord)?;
    // A word that begins with an `n` is a node, whatever its name.
    let node = (start.get(word.0) == Some(&b'n')).then(|| behind_name(start, word));
    if node.is_some() {
        word = words.next().ok_or(BadStamp::NoRecord)?;
    }
    let kind = behind_name(start, word);
    let (from, to) = words.next().ok_or(BadStamp::NoRecord)?;
    let message = start.get(from..to).unwrap_or_default();
    if message.len() <= 18 {
        return Err(BadStamp::NoRecord);
    }
    let open = if message.get(9) == Some(&b'(') {
        9
    } else {
        message.find_byte(b'(').ok_or(BadStamp::NoRecord)?
    };
    let numbers = message.get(open + 1..).unwrap_or_default();
    let numbers = match numbers.find_byte(b')') {
        Some(end) => numbers.get(..end).unwrap_or_default(),
        None => numbers,
    };
    let (seconds, millis, serial) =
        parse_numbers(numbers, timeout_seconds).ok_or(BadStamp::OutOfRange(numbers))?;
    Ok(Stamp {
        seconds,
        millis,
        serial,
        node,
        kind,
    })
}

/// Value of a word whose name is five bytes long, `node=` or `type=`, without a look at the name.
fn behind_name(text: &[u8], (from, to): (usize, usize)) -> &[u8] {
    let start = from + 5;
    if start <= to {
        return text.get(start..to).unwrap_or_default();
    }
    // The stock tools take what lies there.
    let rest = text.get(start..).unwrap_or_default();
    match rest.find_byte(b' ') {
        Some(end) => rest.get(..end).unwrap_or_default(),
        None => rest,
    }
}

/// Reads `SECONDS.MILLISECONDS:SERIAL`; the last two may be absent.
fn parse_numbers(text: &[u8], timeout_seconds: u64) -> Option<(u64, u32, u64)> {
    if let Some(numbers) = parse_usual(text) {
        return Some(numbers);
    }
    let seconds = ctext::unsigned(text, 10);
    let last = i64::MAX
        .cast_unsigned()
        .saturating_sub(timeout_seconds)
        .saturating_sub(1);
    if seconds.overflow || timeout_seconds >= i64::MAX.cast_unsigned() || seconds.value > last {
        return None;
    }
    let (millis, rest) = match text.find_byte(b'.') {
        Some(dot) => {
            let rest = text.get(dot + 1..).unwrap_or_default();
            let millis = ctext::unsigned(rest, 10);
            if millis.overflow || low_32(millis.value) > 999 {
                return None;
            }
            (low_32(millis.value), rest)
        }
        None => (0, text),
    };
    let serial = match rest.find_byte(b':') {
        Some(colon) => {
            let serial = ctext::unsigned(rest.get(colon + 1..).unwrap_or_default(), 10);
            if serial.overflow {
                return None;
            }
            serial.value
        }
        None => 0,
    };
    Some((seconds.value, millis, serial))
}

/// Reads the numbers as the kernel writes them, without the cases that odd input needs.
fn parse_usual(text: &[u8]) -> Option<(u64, u32, u64)> {
    let (seconds, rest) = usual_digits(text)?;
    let (millis, rest) = usual_digits(rest.strip_prefix(b".")?)?;
    let (serial, rest) = usual_digits(rest.strip_prefix(b":")?)?;
    (millis < 1000 && rest.is_empty()).then_some((seconds, low_32(millis), serial))
}

/// The number of at most 15 digits at the start of a text, and what follows it.
fn usual_digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    let mut length = 0;
    for byte in text.iter().take(15) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number * 10 + u64::from(digit);
        length += 1;
    }
    let rest = text.get(length..)?;
    (length > 0).then_some((number, rest))
}

/// Words between blanks, as ranges.
struct Words<'l> {
    text: &'l [u8],
    at: usize,
}

impl Words<'_> {
    fn next(&mut self) -> Option<(usize, usize)> {
        let rest = self.text.get(self.at..)?;
        let blanks = rest.iter().take_while(|&&byte| byte == b' ').count();
        let word = rest.get(blanks..)?;
        if word.is_empty() {
            return None;
        }
        let from = self.at + blanks;
        let to = from + word.find_byte(b' ').unwrap_or(word.len());
        self.at = to;
        Some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_of_the_kernel_are_read() {
        let stamp = parse(b"type=SYSCALL msg=audit(1700000000.123:42): a\n", 2).unwrap();
        assert_eq!(
            (stamp.seconds, stamp.millis, stamp.serial),
            (1_700_000_000, 123, 42)
        );
        assert_eq!((stamp.kind, stamp.node), (&b"SYSCALL"[..], None));
        let stamp = parse(b"node=web1 type=CWD msg=audit(1700000000.001:7): a\n", 2).unwrap();
        assert_eq!((stamp.kind, stamp.node), (&b"CWD"[..], Some(&b"web1"[..])));
        assert_eq!((stamp.millis, stamp.serial), (1, 7));
    }

    #[test]
    fn odd_stamps_are_read_as_c_does() {
        for (line, expected) in [
            (
                &b"type=X msg=audit(1700000000)xxxxxxx"[..],
                Some((1_700_000_000, 0, 0)),
            ),
            (
                b"type=X msg=audit(1700000000.5:1) ",
                Some((1_700_000_000, 5, 1)),
            ),
            (b"type=X msg=audit(1700000000.1000:1) ", None),
            (b"type=X msg=audit(99999999999999999999.1:1) ", None),
            (b"type=X msg=audit(1.1:1)", None),
            (b"type=X msg", None),
            (b"", None),
        ] {
            let stamp = parse(line, 2).ok();
            let numbers = stamp.map(|stamp| (stamp.seconds, stamp.millis, stamp.serial));
            assert_eq!(numbers, expected, "{line:?}");
        }
    }
}
