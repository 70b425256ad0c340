//! Records about a task: `SYSCALL`, `URINGOP`, and those with the fields of a task in the same order.

use super::cursor::{Cursor, Malformed};
use super::{AvcResult, FAILED, Found, Reader, SUCCEEDED, Wanted};
use crate::ctext::{self, low_32, low_i32};
use crate::event::Record;
use crate::fields::Avc;
use crate::record_type as ty;

/// Reads a `SYSCALL` or `URINGOP` record.
pub(super) fn syscall<'e>(
    reader: &mut Reader<'_>,
    index: usize,
    record: &Record<'e>,
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(record.text);
    let is_syscall = record.kind == ty::SYSCALL;
    if is_syscall && reader.wants(Wanted::ARCH) {
        let at = cursor.find("arch=").ok_or(Malformed::new(1))?;
        found.arch = low_32(cursor.hex(at, 2, 3)?);
    }
    if !is_syscall {
        found.arch = NO_ARCH;
    }
    let name = if is_syscall { "syscall=" } else { "uring_op=" };
    let at = cursor.find(name).ok_or(Malformed::new(4))?;
    found.syscall = low_i32(cursor.number(at, 5, 6)?);
    if reader.wants(Wanted::SUCCESS)
        && let Some(at) = cursor.find("success=")
    {
        let word = cursor.word(at, 7)?;
        found.success = if word == b"yes" { SUCCEEDED } else { FAILED };
    }
    if reader.wants(Wanted::EXIT) {
        let at = cursor.find("exit=").ok_or(Malformed::new(8))?;
        let word = cursor.word(at, 9)?;
        let (value, number) = ctext::signed(word, 0);
        if number.overflow {
            return Err(cursor.out_of_range(10));
        }
        found.exit = Some(value);
    }
    if is_syscall {
        let at = cursor.find("a0=").ok_or(Malformed::new(11))?;
        let a0 = cursor.hex(at, 12, 13)?;
        let at = cursor.find("a1=").ok_or(Malformed::new(11))?;
        let a1 = cursor.hex(at, 12, 13)?;
        reader.arguments.push((index, [a0, a1]));
    }
    info(reader, record.text, found)?;
    if reader.wants(Wanted::KEY)
        && let Some(at) = cursor.find("key=")
    {
        keys(&mut cursor, at, [44, 45], found)?;
    }
    Ok(())
}

/// An arch that no machine has.
const NO_ARCH: u32 = u32::MAX;

/// Appends the keys of a record. The codes are those of an unended and of a malformed key.
pub(super) fn keys<'e>(
    cursor: &mut Cursor<'e>,
    at: usize,
    codes: [u8; 2],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    /// Separator of keys in hex.
    const SEPARATOR: u8 = 1;
    let keys = found.keys.get_or_insert_default();
    if cursor.byte(at) == Some(b'"') {
        keys.push(cursor.quoted(at, codes[0])?.to_vec());
        return Ok(());
    }
    let decoded = super::unescape(cursor.from(at)).ok_or_else(|| Malformed::new(codes[1]))?;
    keys.extend(
        decoded
            .split(|&byte| byte == SEPARATOR)
            .filter(|key| !key.is_empty())
            .map(<[u8]>::to_vec),
    );
    Ok(())
}

/// Reads the fields of a task.
pub(super) fn info<'e>(
    reader: &mut Reader<'_>,
    text: &'e [u8],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(text);
    if reader.wants(Wanted::PPID)
        && let Some(at) = cursor.find("ppid=")
    {
        found.ppid = low_i32(cursor.number(at, 14, 15)?);
    }
    if reader.wants(Wanted::PID) {
        let at = cursor.find(" pid=").ok_or(Malformed::new(16))?;
        found.pid = low_i32(cursor.number(at, 17, 18)?);
    }
    if reader.wants(Wanted::AUID) {
        let at = cursor
            .find("auid=")
            .or_else(|| cursor.find("loginuid="))
            .ok_or(Malformed::new(19))?;
        let id = low_32(cursor.number(at, 20, 21)?);
        found.auid = reader.user(id);
    }
    if reader.wants(Wanted::UID) {
        let at = plain_uid(&mut cursor).ok_or(Malformed::new(22))?;
        let id = low_32(cursor.number(at, 23, 24)?);
        found.uid = reader.user(id);
    }
    if reader.wants(Wanted::GID) {
        let at = cursor.find("gid=").ok_or(Malformed::new(25))?;
        found.gid = low_32(cursor.number(at, 26, 27)?);
    }
    if reader.wants(Wanted::EUID) {
        let at = cursor.find("euid=").ok_or(Malformed::new(28))?;
        let id = low_32(cursor.number(at, 29, 30)?);
        found.euid = reader.user(id);
    }
    if reader.wants(Wanted::EGID) {
        let at = cursor.find("egid=").ok_or(Malformed::new(31))?;
        found.egid = low_32(cursor.number(at, 32, 33)?);
    }
    if reader.wants(Wanted::TERMINAL)
        && let Some(at) = cursor.find("tty=")
    {
        found.terminal = Some(cursor.word(at, 34)?.into());
    }
    if reader.wants(Wanted::SESSION)
        && let Some(at) = cursor.find("ses=")
    {
        found.session = low_32(cursor.number(at, 35, 36)?);
    }
    if reader.wants(Wanted::COMM) {
        let at = cursor.find("comm=").ok_or(Malformed::new(38))?;
        found.comm = cursor.untrusted(at, 37)?;
    }
    if reader.wants(Wanted::EXE) {
        let at = cursor.find_from_start("exe=").ok_or(Malformed::new(40))?;
        found.exe = cursor.untrusted(at, 39)?;
    }
    if reader.wants(Wanted::SUBJECT)
        && let Some(at) = cursor.find("subj=")
    {
        let word = cursor.word(at, 41)?;
        subject(found, word);
    }
    if reader.wants(Wanted::SUCCESS) {
        number_result(&mut cursor, found, 43)?;
    }
    Ok(())
}

/// Finds `uid=` that is not the end of `auid=`. The cursor moves past the others.
fn plain_uid(cursor: &mut Cursor<'_>) -> Option<usize> {
    loop {
        let at = cursor.find("uid=")?;
        let start = at - "uid=".len();
        if start == 0 || cursor.byte(start - 1) != Some(b'a') {
            return Some(at);
        }
        cursor.at = start + 1;
    }
}

/// Reads `res=` as a number.
pub(super) fn number_result(
    cursor: &mut Cursor<'_>,
    found: &mut Found<'_>,
    range: u8,
) -> Result<(), Malformed> {
    if let Some(at) = cursor.find("res=") {
        found.success = low_i32(cursor.number_or_rest(at, range)?);
    }
    Ok(())
}

/// Adds the label of a subject.
pub(super) fn subject<'e>(found: &mut Found<'e>, label: &'e [u8]) {
    found.avcs.get_or_insert_default().push(Avc {
        subject: Some(label),
        result: AvcResult::Unset,
        ..Avc::default()
    });
}

/// Adds the label of an object.
pub(super) fn object<'e>(found: &mut Found<'e>, label: &'e [u8]) {
    found.avcs.get_or_insert_default().push(Avc {
        object: Some(label),
        ..Avc::default()
    });
}
