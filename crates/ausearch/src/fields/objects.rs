//! Records about objects: paths, sockets, labels, packets.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use bstr::ByteSlice as _;

use super::cursor::{Cursor, Malformed, unescape};
use super::programs;
use super::task::object;
use super::{Avc, AvcResult, FAILED, FieldText, FileName, Found, Reader, SUCCEEDED, UNSET, Wanted};
use crate::ctext::{hex_digit, low_i32, until_nul};
use crate::event::Record;
use crate::interpret::address;
use crate::record_type as ty;

/// Bytes at the start of a record that hold its type and stamp.
const STAMP_BYTES: usize = 28;

/// Reads the working directory.
pub(super) fn cwd<'e>(
    reader: &mut Reader<'_>,
    text: &'e [u8],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    if !reader.wants(Wanted::FILE) || text.len() < 34 {
        return Ok(());
    }
    let mut cursor = Cursor {
        text,
        at: STAMP_BYTES,
    };
    if let Some(at) = cursor.find(" cwd=") {
        let cwd = cursor.untrusted(at, 1)?;
        if found.cwd.is_none() {
            found.cwd = cwd;
        }
    }
    Ok(())
}

/// Reads the path that older records of access vector checks have apart.
pub(super) fn avc_path<'e>(
    reader: &mut Reader<'_>,
    text: &'e [u8],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    if !reader.wants(Wanted::FILE) {
        return Ok(());
    }
    let cursor = Cursor::new(text);
    let at = cursor.find(" path=").ok_or(Malformed::new(1))?;
    file(&cursor, at, found)
}

/// Reads a `PATH` record.
pub(super) fn path<'e>(
    reader: &mut Reader<'_>,
    text: &'e [u8],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    if text.len() < 35 {
        return Ok(());
    }
    let mut cursor = Cursor {
        text,
        at: STAMP_BYTES,
    };
    if reader.wants(Wanted::FILE)
        && let Some(at) = cursor.find(" name=")
    {
        file(&cursor, at, found)?;
        cursor.at = at;
        // `nametype=` or the older `objtype=`.
        let kind = cursor.find("type=").map(|at| cursor.from(at));
        if let Some(last) = found.files.as_mut().and_then(|files| files.last_mut()) {
            last.kind = kind;
        }
    }
    label(reader, cursor, found);
    Ok(())
}

/// Adds the name at `at`; a name relative to the working directory is joined to it.
pub(super) fn file<'e>(
    cursor: &Cursor<'e>,
    at: usize,
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let rest = cursor.from(at);
    let name: FieldText<'e> = if rest.first() == Some(&b'"') {
        found.files.get_or_insert_default();
        let mut quoted = *cursor;
        Cow::Borrowed(quoted.quoted(at, 2)?)
    } else {
        found.files.get_or_insert_default();
        if rest.starts_with(b"(null)") {
            push_file(found, Cow::Borrowed(b"(null)"));
            return Ok(());
        }
        if !rest.first().is_some_and(u8::is_ascii_hexdigit) {
            return Err(Malformed::new(4));
        }
        let decoded = if let Some(name) = rest.strip_prefix(b"00") {
            unescape(name)
        } else {
            let end = rest.find_byte(b' ').ok_or(Malformed::new(5))?;
            unescape(rest.get(..end).unwrap_or_default())
        };
        decoded.ok_or(Malformed::new(7))?
    };
    let name = match (&*name, &found.cwd) {
        ([b'.', b'.' | b'/', ..], Some(cwd)) => joined(cwd, &name),
        _ => name,
    };
    push_file(found, name);
    Ok(())
}

/// Joins a name to a directory, at most as long as a path can be.
fn joined<'e>(cwd: &[u8], name: &[u8]) -> FieldText<'e> {
    const PATH_MAX: usize = 4096;
    let mut path = [cwd, b"/", name].concat();
    path.truncate(PATH_MAX - 1);
    Cow::Owned(path)
}

fn push_file<'e>(found: &mut Found<'e>, name: FieldText<'e>) {
    found
        .files
        .get_or_insert_default()
        .push(FileName { name, kind: None });
}

/// Reads a record that has the label of an object at most.
pub(super) fn labelled<'e>(reader: &Reader<'_>, text: &'e [u8], found: &mut Found<'e>) {
    label(reader, Cursor::new(text), found);
}

/// Adds the label of the object after the cursor.
fn label<'e>(reader: &Reader<'_>, mut cursor: Cursor<'e>, found: &mut Found<'e>) {
    if reader.wants(Wanted::OBJECT)
        && let Some(at) = cursor.find("obj=")
    {
        let label = cursor.word_or_rest(at);
        object(found, label);
    }
}

/// Reads a packet that netfilter recorded.
pub(super) fn packet<'e>(
    reader: &mut Reader<'_>,
    text: &'e [u8],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(text);
    if reader.wants(Wanted::HOST)
        && let Some(at) = cursor.find("saddr=")
    {
        found.host = Some(cursor.word(at, 1)?.into());
    }
    label(reader, cursor, found);
    Ok(())
}

/// Reads a socket address: the host, or the name of a local socket.
pub(super) fn sockaddr<'e>(
    reader: &mut Reader<'_>,
    text: &'e [u8],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    const LOCAL: u16 = 1;
    const INET: u16 = 2;
    const INET6: u16 = 10;
    if !reader.wants(Wanted::HOST | Wanted::FILE) {
        return Ok(());
    }
    let cursor = Cursor::new(text);
    let Some(at) = cursor.find("saddr=") else {
        return Ok(());
    };
    let rest = cursor.from(at);
    let (bytes, length) = if rest.first() == Some(&b'(') {
        let end = rest.find_byte(b')').ok_or(Malformed::new(4))?;
        (rest.get(..=end).unwrap_or_default().to_vec(), end + 1)
    } else {
        let digits = rest
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        if digits < 2 {
            return Err(Malformed::new(4));
        }
        (
            raw_bytes(rest.get(..digits).unwrap_or_default()),
            digits / 2,
        )
    };
    found.host = None;
    let at = |index: usize| bytes.get(index).copied().unwrap_or_default();
    match u16::from_ne_bytes([at(0), at(1)]) {
        INET => {
            if length < 16 {
                reader
                    .messages
                    .extend_from_slice(b"sockaddr len too short\n");
                return Err(Malformed::new(1));
            }
            if reader.wants(Wanted::HOST) {
                let host = Ipv4Addr::new(at(4), at(5), at(6), at(7)).to_string();
                found.host = Some(host.into_bytes().into());
            }
        }
        INET6 => {
            if length < 28 {
                reader
                    .messages
                    .extend_from_slice(b"sockaddr6 len too short\n");
                return Err(Malformed::new(2));
            }
            if reader.wants(Wanted::HOST) {
                found.host = Some(address::inet6_host(&bytes).into_bytes().into());
            }
        }
        LOCAL => {
            if length != 2 && length < 4 {
                let message = format!("sun_path len too short ({length})\n");
                reader.messages.extend_from_slice(message.as_bytes());
                return Err(Malformed::new(4));
            }
            if reader.wants(Wanted::FILE) {
                let name = match (at(2), at(3)) {
                    (0, 0) => return Err(Malformed::new(6)),
                    (0, _) => bytes.get(3..),
                    _ => bytes.get(2..),
                };
                let name = until_nul(name.unwrap_or_default()).to_vec();
                push_file(found, Cow::Owned(name));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Bytes of hex digits; the half of an odd one is the high half. The stock tools decode in place, and for the shortest
/// address look at what is left of the digits behind it.
fn raw_bytes(digits: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.copied().and_then(hex_digit).unwrap_or_default();
    let mut bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| (digit(pair.first()) << 4) | digit(pair.get(1)))
        .collect();
    bytes.push(0);
    bytes.extend_from_slice(digits.get(bytes.len()..).unwrap_or_default());
    bytes
}

/// Reads an access vector check, of the kernel or of a program.
pub(super) fn avc<'e>(
    reader: &mut Reader<'_>,
    record: &Record<'e>,
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(record.text);
    let mut avc = Avc::default();
    if let Some(at) = cursor.find("avc: ")
        && let Some(brace) = cursor.position(at, b'{')
    {
        if reader.wants(Wanted::SUCCESS) && found.success == UNSET {
            let denied = cursor.between(at, brace).contains_str("denied");
            (found.success, avc.result) = if denied {
                (FAILED, AvcResult::Denied)
            } else {
                (SUCCEEDED, AvcResult::Granted)
            };
        }
        let blanks = cursor
            .from(brace + 1)
            .iter()
            .take_while(|&&byte| byte == b' ')
            .count();
        let start = brace + 1 + blanks;
        let close = cursor.position(start, b'}').ok_or(Malformed::new(2))?;
        let padding = cursor
            .between(0, close)
            .iter()
            .rev()
            .take_while(|&&byte| byte == b' ')
            .count();
        let end = close - padding;
        avc.permission = Some(cursor.between(start, end.max(start)));
        cursor.at = end;
    }
    if record.kind == ty::USER_AVC {
        let read = programs::user(reader, record, found, Some(&mut avc));
        found.avcs.get_or_insert_default().push(avc);
        return read.or_else(|error| {
            if error.code() > 20 {
                Ok(())
            } else {
                Err(error)
            }
        });
    }
    kernel_avc(reader, &mut cursor, avc, found)
}

fn kernel_avc<'e>(
    reader: &Reader<'_>,
    cursor: &mut Cursor<'e>,
    mut avc: Avc<'e>,
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    if reader.wants(Wanted::PID)
        && let Some(at) = cursor.find("pid=")
    {
        found.pid = low_i32(cursor.number(at, 3, 4)?);
    }
    if reader.wants(Wanted::COMM) && found.comm.is_none() {
        let at = cursor.find("comm=").ok_or(Malformed::new(5))?;
        let is_quoted = cursor.byte(at) == Some(b'"');
        found.comm = cursor.untrusted(at, 6)?;
        if !is_quoted {
            if found.comm.is_none() {
                return Err(Malformed::new(11));
            }
            cursor.at = (at + 6).min(cursor.text.len());
        }
    }
    if reader.wants(Wanted::FILE)
        && let Some(at) = cursor.find(" path=").or_else(|| cursor.find(" name="))
    {
        file(cursor, at, found)?;
        cursor.at = (cursor.at + 7).min(cursor.text.len());
    }
    if reader.wants(Wanted::SUBJECT)
        && let Some(at) = cursor.find("scontext=")
    {
        avc.subject = Some(cursor.word(at, 7)?);
    }
    if reader.wants(Wanted::OBJECT)
        && let Some(at) = cursor.find("tcontext=")
    {
        avc.object = Some(cursor.word(at, 8)?);
    }
    let at = cursor.find("tclass=").ok_or(Malformed::new(9))?;
    avc.class = Some(cursor.word_or_rest(at));
    found.avcs.get_or_insert_default().push(avc);
    Ok(())
}
