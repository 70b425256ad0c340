//! What the stock tools read in a record, where it differs from [`crate::event_values`].
//!
//! They look for `name=` anywhere in a record, so that `ppid=` can be read as `pid=`, and each kind of record has its
//! own rules. Records of syscalls, paths and directories in the kernel's form have the same values for both readers.
//! For others, the values of all names that end in a name that is looked for are added. A line for which not even
//! this holds is irregular: its block is a candidate for every question of `ausearch`.
//!
//! # Source
//! Behaviour of `ausearch` 4.2.1, as `crates/ausearch/src/fields` has it.

use audit::record::decode::Record;
use bstr::ByteSlice as _;

use crate::ctext::hex_digit;
use crate::event_values::Column;

/// Passes the values to `found` that the stock tools may read in a regular line, apart from those that
/// [`crate::event_values::values`] has. Returns false if the line is irregular.
pub(super) fn values(
    record: &Record<'_>,
    line: &[u8],
    mut found: impl FnMut(Column, &[u8]),
) -> bool {
    if line.len() >= audit::record::MAX_LINE_BYTES
        || line.find_byte(0).is_some()
        || record.time.sec > 1 << 40
        || record.kind.len() > 20
        || record
            .node
            .is_some_and(|node| node.is_empty() || node.len() > 255 || node.contains(&b'='))
        || is_odd_kind(record.kind)
    {
        return false;
    }
    // The tools do not look at the names that the daemon added.
    let text = match line.find_byte(0x1d) {
        Some(end) => line.get(..end).unwrap_or_default(),
        None => line,
    };
    let Some(body) = text
        .find_byte(b')')
        .and_then(|at| text.get(at..)?.strip_prefix(b"): "))
    else {
        return false;
    };
    match record.kind.as_bytes() {
        b"EXECVE" | b"PROCTITLE" | b"EOE" | b"BPRM_FCAPS" | b"CAPSET" | b"MMAP" => true,
        b"SYSCALL" => is_syscall(body),
        b"PATH" => is_path(body),
        b"CWD" => body.strip_prefix(b"cwd=").is_some_and(|value| {
            is_string(value).is_some_and(|end| end == value.len()) && {
                string(value, &mut |value| found(Column::Path, value));
                true
            }
        }),
        b"SOCKADDR" => socket(body, &mut found),
        kind => {
            if matches!(kind, b"NETFILTER_CFG" | b"EVENT_LISTENER" | b"TTY")
                || kind.starts_with(b"INTEGRITY_")
            {
                // Without a user, or with one that they misread, it is root.
                found(Column::Uid, b"0");
            }
            every_name(text, &mut found)
        }
    }
}

/// Whether a type may be that of an end record under another name.
fn is_odd_kind(kind: &[u8]) -> bool {
    kind != b"EOE" && kind.eq_ignore_ascii_case(b"EOE")
        || kind.first().is_none_or(u8::is_ascii_digit)
        || kind.starts_with(b"UNKNOWN") && kind.contains_str("1320")
}

/// Whether a record is in the kernel's form.
fn is_syscall(body: &[u8]) -> bool {
    #[derive(Clone, Copy)]
    enum Form {
        Number,
        Signed,
        Word,
        Text,
    }
    use Form::{Number, Signed, Text, Word};
    const FIELDS: [(&[u8], Form, bool); 27] = [
        (b"arch=", Word, true),
        (b"syscall=", Number, true),
        (b"per=", Word, false),
        (b"success=", Word, false),
        (b"exit=", Signed, true),
        (b"a0=", Word, true),
        (b"a1=", Word, true),
        (b"a2=", Word, true),
        (b"a3=", Word, true),
        (b"items=", Word, true),
        (b"ppid=", Number, true),
        (b"pid=", Number, true),
        (b"auid=", Number, true),
        (b"uid=", Number, true),
        (b"gid=", Number, true),
        (b"euid=", Number, true),
        (b"suid=", Number, true),
        (b"fsuid=", Number, true),
        (b"egid=", Number, true),
        (b"sgid=", Number, true),
        (b"fsgid=", Number, true),
        (b"tty=", Word, true),
        (b"ses=", Number, true),
        (b"comm=", Text, true),
        (b"exe=", Text, true),
        (b"subj=", Word, false),
        (b"key=", Text, false),
    ];
    let mut rest = body;
    for (name, form, is_required) in FIELDS {
        let Some(value) = rest.strip_prefix(name) else {
            if is_required {
                return false;
            }
            continue;
        };
        let end = match form {
            Number => is_number(value),
            Signed => {
                let word = value.split(|&byte| byte == b' ').next().unwrap_or_default();
                is_signed(word).then_some(word.len())
            }
            Word => Some(value.find_byte(b' ').unwrap_or(value.len())),
            Text => is_string(value),
        };
        let Some(end) = end else {
            return false;
        };
        if matches!(form, Word) && value.get(..end).is_some_and(|word| word.contains(&b'=')) {
            return false;
        }
        rest = match value.get(end..) {
            Some([b' ', rest @ ..]) => rest,
            Some([]) => &[],
            _ => return false,
        };
    }
    rest.trim().is_empty()
}

/// Whether a record is in the kernel's form, up to the name.
fn is_path(body: &[u8]) -> bool {
    let name = body.strip_prefix(b"item=").and_then(|value| {
        let end = is_number(value)?;
        value.get(end..)?.strip_prefix(b" name=")
    });
    name.is_some_and(|name| {
        is_string(name).is_some_and(|end| matches!(name.get(end), Some(b' ') | None))
    })
}

/// Length of the decimal number of 32 bits at the start of a text, which a blank or the end must follow.
fn is_number(text: &[u8]) -> Option<usize> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = text.get(..digits)?;
    let is_plain = matches!(text.get(digits), Some(b' ') | None)
        && (number == b"0" || number.first().is_some_and(|&digit| digit != b'0'));
    (is_plain && (digits < 10 || fits_32_bits(number))).then_some(digits)
}

fn fits_32_bits(digits: &[u8]) -> bool {
    digits
        .to_str()
        .is_ok_and(|digits| digits.parse::<u32>().is_ok())
}

/// Length of the untrusted string at the start of a text: quoted without a blank or quote, in capital hex without a
/// NUL, or `(null)`.
fn is_string(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'"' => {
            let end = text.get(1..)?.find_byte(b'"')? + 1;
            let value = text.get(1..end)?;
            (!value.contains(&b' ') && !value.contains(&b'=')).then_some(end + 1)
        }
        b'(' => text.starts_with(b"(null)").then_some(6),
        _ => {
            let end = text.find_byte(b' ').unwrap_or(text.len());
            let hex = text.get(..end)?;
            let is_hex = |&byte: &u8| byte.is_ascii_digit() || matches!(byte, b'A'..=b'F');
            let is_plain = end >= 2
                && end.is_multiple_of(2)
                && hex.iter().all(is_hex)
                && hex.chunks(2).all(|pair| pair != b"00");
            is_plain.then_some(end)
        }
    }
}

/// Reads a socket address as far as the index does not.
fn socket(body: &[u8], found: &mut impl FnMut(Column, &[u8])) -> bool {
    const MAX_BYTES: usize = 128;
    let Some(hex) = body.strip_prefix(b"saddr=") else {
        return false;
    };
    let hex = hex.trim_end();
    let Some(bytes) = unhex(hex).filter(|bytes| (4..=MAX_BYTES).contains(&bytes.len())) else {
        return false;
    };
    match bytes.as_slice() {
        [1, 0, 0, 0, ..] => false,
        [1, 0, 0, name @ ..] => {
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            found(Column::Path, name);
            true
        }
        [1, 0, ..] => true,
        [2, 0, ..] => bytes.len() >= 16,
        [10, 0, ..] => bytes.len() >= 28,
        // Of another family, whose number may be in the other order.
        _ => !matches!(bytes.as_slice(), [0, 1 | 2 | 10, ..]),
    }
}

/// Bytes of capital hex digits.
fn unhex(hex: &[u8]) -> Option<Vec<u8>> {
    if !hex.len().is_multiple_of(2) || hex.iter().any(u8::is_ascii_lowercase) {
        return None;
    }
    let pairs = hex.as_chunks::<2>().0.iter();
    pairs
        .map(|[high, low]| Some(hex_digit(*high)? << 4 | hex_digit(*low)?))
        .collect()
}

/// Passes the values of all names that end in a name that the tools look for.
fn every_name(text: &[u8], found: &mut impl FnMut(Column, &[u8])) -> bool {
    const NAMES: [(&[u8], &[Column]); 17] = [
        (b"ppid", &[Column::Ppid, Column::Pid]),
        (b"pid", &[Column::Pid]),
        (b"auid", &[Column::Auid, Column::Uid]),
        (b"loginuid", &[Column::Auid, Column::Uid]),
        (b"euid", &[Column::Euid, Column::Uid]),
        (b"uid", &[Column::Uid]),
        (b"ses", &[Column::Ses]),
        (b"syscall", &[Column::Syscall]),
        (b"uring_op", &[Column::Syscall]),
        (b"exit", &[Column::Exit]),
        (b"comm", &[Column::Comm]),
        (b"exe", &[Column::Exe]),
        (b"key", &[Column::Key]),
        (b"hostname", &[Column::Address]),
        (b"addr", &[Column::Address]),
        (b"name", &[Column::Path]),
        (b"cwd", &[Column::Path]),
    ];
    let mut is_regular = true;
    for at in memchr_all(text, b'=') {
        let before = text.get(..at).unwrap_or_default();
        let value = text.get(at + 1..).unwrap_or_default();
        let is_file = before.ends_with(b"path") || before.ends_with(b"new-disk");
        let columns = match is_file {
            true => Some(&[Column::Path][..]),
            false => NAMES
                .iter()
                .find(|(name, _)| before.ends_with(name))
                .map(|(_, columns)| *columns),
        };
        for &column in columns.unwrap_or_default() {
            is_regular &= match column {
                Column::Comm | Column::Exe | Column::Key | Column::Path => {
                    string(value, &mut |value| found(column, value))
                }
                Column::Address => {
                    host(value, &mut |value| found(column, value));
                    true
                }
                Column::Exit => signed(value, &mut |value| found(column, value)),
                _ => number(value, &mut |value| found(column, value)),
            };
        }
    }
    is_regular
}

fn memchr_all(text: &[u8], byte: u8) -> impl Iterator<Item = usize> + '_ {
    text.iter()
        .enumerate()
        .filter(move |&(_, &other)| other == byte)
        .map(|(at, _)| at)
}

/// A number as `strtoul` reads it.
fn number(value: &[u8], found: &mut impl FnMut(&[u8])) -> bool {
    let digits = value
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let number = value.get(..digits).unwrap_or_default();
    if number.is_empty() {
        if value.starts_with(b"-1 ") || value.starts_with(b"-1'") || value == b"-1" {
            found(b"4294967295");
            return true;
        }
        found(b"0");
        return !value
            .first()
            .is_some_and(|byte| matches!(byte, b'-' | b'+' | b'\t'..=b'\r' | b' '));
    }
    let plain = number.trim_start_with(|digit| digit == '0');
    found(if plain.is_empty() { b"0" } else { plain });
    plain.len() < 10 || fits_32_bits(plain)
}

/// A number as `strtoll` reads it with any base.
fn signed(value: &[u8], found: &mut impl FnMut(&[u8])) -> bool {
    let word = value.split(|&byte| byte == b' ').next().unwrap_or_default();
    if is_signed(word) {
        found(word);
    }
    is_signed(word)
}

/// Whether a word is a decimal number of 64 bits as the kernel writes it.
fn is_signed(word: &[u8]) -> bool {
    let number = word.to_str().ok().and_then(|word| word.parse::<i64>().ok());
    let first = word.strip_prefix(b"-").unwrap_or(word).first();
    number.is_some() && (word == b"0" || first.is_some_and(|digit| (b'1'..=b'9').contains(digit)))
}

/// All that a string may be read as: quoted, in parentheses, in hex, or as a word.
fn string(value: &[u8], found: &mut impl FnMut(&[u8])) -> bool {
    if let Some(quoted) = value.strip_prefix(b"\"") {
        return match quoted.find_byte(b'"') {
            Some(end) => {
                found(quoted.get(..end).unwrap_or_default());
                true
            }
            None => false,
        };
    }
    if value.starts_with(b"(")
        && let Some(end) = value.find_byte(b')')
    {
        found(value.get(..=end).unwrap_or_default());
    }
    let word = value.split(|&byte| byte == b' ').next().unwrap_or_default();
    found(word);
    let digits = word
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    if digits < 2 {
        return true;
    }
    let hex = word.get(..digits).unwrap_or_default();
    let has_small = hex.iter().any(u8::is_ascii_lowercase);
    let has_capital = hex.iter().any(u8::is_ascii_uppercase);
    if has_small && has_capital || !digits.is_multiple_of(2) {
        return false;
    }
    let hex = hex.to_ascii_uppercase();
    let hex = hex.strip_prefix(b"00").unwrap_or(&hex);
    let bytes = unhex(hex).unwrap_or_default();
    let decoded = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    decoded.split(|&byte| byte == 1).for_each(&mut *found);
    found(decoded);
    true
}

/// A host ends at a comma, a blank or a colon.
fn host(value: &[u8], found: &mut impl FnMut(&[u8])) {
    for end in [b',', b' ', b':'] {
        if let Some(end) = value.find_byte(end) {
            found(value.get(..end).unwrap_or_default());
        }
    }
}
