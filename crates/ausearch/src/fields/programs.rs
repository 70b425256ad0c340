//! Records of programs: those that they send to the kernel, and those of the audit daemon.

use std::borrow::Cow;

use super::cursor::{Cursor, Malformed};
use super::objects;
use super::task::subject;
use super::{Avc, FAILED, Found, Reader, SUCCEEDED, Wanted};
use crate::ctext::{self, low_32, low_i32};
use crate::event::Record;
use crate::record_type as ty;

/// Reads a record of a program. The labels of an access vector check go to `avc`.
pub(super) fn user<'e>(
    reader: &mut Reader<'_>,
    record: &Record<'e>,
    found: &mut Found<'e>,
    mut avc: Option<&mut Avc<'e>>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(record.text);
    sender(reader, &mut cursor, found)?;
    if reader.wants(Wanted::SUBJECT)
        && let Some(at) = cursor.find("subj=")
    {
        let word = cursor.word(at, 12)?;
        match &mut avc {
            Some(avc) => avc.subject = Some(word),
            None => subject(found, word),
        }
    }
    if let Some(avc) = avc
        && reader.wants(Wanted::OBJECT)
    {
        if let Some(object) = checked_word(&mut cursor, "tcontext=") {
            avc.object = Some(object);
        }
        if let Some(class) = checked_word(&mut cursor, "tclass=") {
            avc.class = Some(class);
        }
    }
    group(reader, record.kind, &mut cursor, found)?;
    machine(reader, record.kind, &mut cursor, found)?;
    second_user(reader, &mut cursor, found)?;
    message(reader, cursor, found)
}

/// Reads the fields that the kernel puts in front: process, users, session.
fn sender(
    reader: &mut Reader<'_>,
    cursor: &mut Cursor<'_>,
    found: &mut Found<'_>,
) -> Result<(), Malformed> {
    if reader.wants(Wanted::PID) {
        let at = cursor.find("pid=").ok_or(Malformed::new(1))?;
        found.pid = low_i32(cursor.number(at, 2, 3)?);
    }
    if reader.wants(Wanted::UID) {
        let at = cursor.find("uid=").ok_or(Malformed::new(4))?;
        let id = low_32(cursor.number(at, 5, 6)?);
        found.uid = reader.user(id);
    }
    if reader.wants(Wanted::AUID) {
        let at = cursor
            .find("auid=")
            .or_else(|| cursor.find("loginuid="))
            .ok_or(Malformed::new(7))?;
        let id = low_32(cursor.number(at, 8, 9)?);
        found.auid = reader.user(id);
    }
    if reader.wants(Wanted::SESSION)
        && let Some(at) = cursor.find("ses=")
    {
        found.session = low_32(cursor.number(at, 10, 11)?);
    }
    Ok(())
}

/// The word after `name`; `None` if there is none or no blank ends it, with the cursor at it then.
fn checked_word<'e>(cursor: &mut Cursor<'e>, name: &str) -> Option<&'e [u8]> {
    let at = cursor.find(name)?;
    match cursor.position(at, b' ') {
        Some(end) => {
            cursor.at = end;
            Some(cursor.between(at, end))
        }
        None => {
            cursor.at = at;
            None
        }
    }
}

fn group(
    reader: &Reader<'_>,
    kind: i32,
    cursor: &mut Cursor<'_>,
    found: &mut Found<'_>,
) -> Result<(), Malformed> {
    if !reader.wants(Wanted::GID) || !matches!(kind, ty::ADD_GROUP | ty::DEL_GROUP | ty::GRP_MGMT) {
        return Ok(());
    }
    let at = cursor.find(" id=").or_else(|| {
        let is_management = kind == ty::GRP_MGMT;
        is_management.then(|| cursor.find("gid=")).flatten()
    });
    if let Some(at) = at {
        found.gid = low_32(cursor.number(at, 31, 32)?);
    }
    Ok(())
}

/// Reads the fields of virtual machines.
fn machine<'e>(
    reader: &Reader<'_>,
    kind: i32,
    cursor: &mut Cursor<'e>,
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    if reader.wants(Wanted::VM)
        && let Some(at) = cursor.find("vm=")
    {
        found.vm = cursor.untrusted(at, 23)?;
    }
    if reader.wants(Wanted::UUID)
        && let Some(at) = cursor.find("uuid=")
    {
        let rest = cursor.from(at);
        let length = rest
            .iter()
            .take_while(|&&byte| !matches!(byte, b' ' | b':'))
            .count();
        if length == 0 {
            return Err(Malformed::new(24));
        }
        cursor.at = at + length;
        found.uuid = Some(Cow::Borrowed(cursor.between(at, at + length)));
    }
    if kind == ty::VIRT_MACHINE_ID {
        if reader.wants(Wanted::SUBJECT)
            && let Some(at) = cursor.find("vm-ctx=")
        {
            let word = cursor.word(at, 27)?;
            subject(found, word);
        }
        if reader.wants(Wanted::OBJECT)
            && let Some(at) = cursor.find("img-ctx=")
        {
            let word = cursor.word(at, 29)?;
            super::task::object(found, word);
        }
    } else if kind == ty::VIRT_RESOURCE
        && reader.wants(Wanted::FILE)
        && let Some(at) = cursor.find(" path=").or_else(|| cursor.find(" new-disk="))
    {
        objects::file(cursor, at, found)?;
        cursor.at = at;
    }
    Ok(())
}

/// Reads the user in the message, which some records mean: of `USER_LOGIN` for example.
fn second_user(
    reader: &mut Reader<'_>,
    cursor: &mut Cursor<'_>,
    found: &mut Found<'_>,
) -> Result<(), Malformed> {
    if !reader.wants(Wanted::UID) {
        return Ok(());
    }
    loop {
        let Some(at) = cursor.find("uid=") else {
            return Ok(());
        };
        let start = at - "uid=".len();
        match start.checked_sub(1).and_then(|before| cursor.byte(before)) {
            Some(b'a') => cursor.at = start + 1,
            // The end of another name, such as `suid=`.
            Some(b's' | b'u') => return Ok(()),
            Some(b'\'' | b' ') => {
                let length = cursor
                    .from(at)
                    .iter()
                    .take_while(|byte| byte.is_ascii_digit())
                    .count();
                cursor.at = at + length;
                if length == 0 {
                    return Err(Malformed::new(14));
                }
                let number = ctext::unsigned(cursor.between(at, at + length), 10);
                if number.overflow {
                    return Err(cursor.out_of_range(15));
                }
                found.uid = reader.user(low_32(number.value));
                return Ok(());
            }
            _ => return Err(Malformed::new(25)),
        }
    }
}

/// Reads the message of the program: what it is about, from where, with which result.
fn message<'e>(
    reader: &Reader<'_>,
    mut cursor: Cursor<'e>,
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut end = cursor.at;
    if reader.wants(Wanted::COMM)
        && let Some(at) = cursor.find("comm=")
    {
        let mut here = cursor;
        found.comm = here.untrusted(at, 16)?;
        end = here.at;
    }
    if let Some(at) = cursor.find("acct=") {
        end = account(&cursor, at, found);
    }
    // All that follows is looked for from the account on, or from the command, or from the user.
    cursor.at = end;
    if reader.wants(Wanted::HOST)
        && let Some(at) = cursor.find("hostname=")
    {
        found.host = Some(host(&cursor, at)?.into());
    }
    if reader.wants(Wanted::FILE)
        && let Some(at) = cursor.find("cwd=")
    {
        found.cwd = quoted_or_legacy(&cursor, at, 20)?;
    }
    if reader.wants(Wanted::TERMINAL)
        && let Some(at) = cursor.find("terminal=")
    {
        let end = cursor
            .position(at, b' ')
            .or_else(|| cursor.position(at, b')'))
            .ok_or(Malformed::new(19))?;
        found.terminal = Some(cursor.between(at, end).into());
    }
    if reader.wants(Wanted::EXE)
        && let Some(at) = cursor.find("exe=")
    {
        found.exe = quoted_or_legacy(&cursor, at, 26)?;
    }
    if reader.wants(Wanted::SUCCESS) {
        result(&cursor, found)?;
    }
    Ok(())
}

fn quoted_or_legacy<'e>(
    cursor: &Cursor<'e>,
    at: usize,
    code: u8,
) -> Result<Option<super::FieldText<'e>>, Malformed> {
    let mut here = *cursor;
    if here.byte(at) == Some(b'"') {
        return Ok(Some(here.quoted(at, code)?.into()));
    }
    Ok(here.legacy(at))
}

/// Reads the account; returns where it ends.
fn account<'e>(cursor: &Cursor<'e>, at: usize, found: &mut Found<'e>) -> usize {
    let mut here = *cursor;
    if here.byte(at) == Some(b'"') {
        let start = at + 1;
        let end = here.position(start, b'"').unwrap_or(here.text.len());
        if found.account.is_none() {
            found.account = Some(here.between(start, end).into());
        }
        return end;
    }
    found.account = here.legacy(at);
    here.at
}

/// The host, or the address if the host is unknown.
fn host<'e>(cursor: &Cursor<'e>, at: usize) -> Result<&'e [u8], Malformed> {
    let end_of = |at| {
        cursor
            .position(at, b',')
            .or_else(|| cursor.position(at, b' '))
    };
    let end = end_of(at).ok_or(Malformed::new(17))?;
    let host = cursor.between(at, end);
    let behind = Cursor {
        text: cursor.text,
        at: end + 1,
    };
    if host == b"?"
        && let Some(at) = behind.find("addr=")
    {
        let end = end_of(at).ok_or(Malformed::new(18))?;
        return Ok(cursor.between(at, end));
    }
    Ok(host)
}

fn result(cursor: &Cursor<'_>, found: &mut Found<'_>) -> Result<(), Malformed> {
    if let Some(at) = cursor.find("res=") {
        let end = cursor.position(at, b'\'').ok_or(Malformed::new(21))?;
        let failed = cursor.between(at, end).starts_with(b"failed");
        found.success = if failed { FAILED } else { SUCCEEDED };
    } else if let Some(at) = cursor.find("result=") {
        let end = cursor.position(at, b')').ok_or(Malformed::new(22))?;
        let succeeded = cursor.between(at, end).eq_ignore_ascii_case(b"success");
        found.success = if succeeded { SUCCEEDED } else { FAILED };
    }
    Ok(())
}

/// Reads a `LOGIN` record.
pub(super) fn login<'e>(
    reader: &mut Reader<'_>,
    text: &'e [u8],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(text);
    if reader.wants(Wanted::PID) {
        let at = cursor.find("pid=").ok_or(Malformed::new(1))?;
        found.pid = low_i32(cursor.number(at, 2, 3)?);
    }
    if reader.wants(Wanted::UID) {
        let at = cursor.find("uid=").ok_or(Malformed::new(4))?;
        let id = low_32(cursor.number(at, 5, 6)?);
        found.uid = reader.user(id);
    }
    if reader.wants(Wanted::SUBJECT)
        && let Some(at) = cursor.find("subj=")
    {
        cursor.word(at, 12)?;
        // The stock tool keeps the name of the field before the label, so `-w` does not find the label alone.
        let start = at - "subj=".len();
        subject(found, cursor.between(start, cursor.at));
    }
    if reader.wants(Wanted::AUID) {
        let at = cursor
            .find("new auid=")
            .or_else(|| cursor.find(" auid="))
            .or_else(|| cursor.find("new loginuid="))
            .ok_or(Malformed::new(7))?;
        let id = low_32(number_or_restart(&mut cursor, at, 8)?);
        found.auid = reader.user(id);
    }
    if reader.wants(Wanted::SUCCESS) {
        match cursor.find("res=") {
            Some(at) => found.success = low_i32(number_or_restart(&mut cursor, at, 9)?),
            // Older kernels logged successes only.
            None => found.success = SUCCEEDED,
        }
    }
    if reader.wants(Wanted::SESSION) {
        let at = cursor
            .find("new ses=")
            .or_else(|| cursor.find(" ses="))
            .ok_or(Malformed::new(14))?;
        found.session = low_32(number_or_restart(&mut cursor, at, 11)?);
    }
    Ok(())
}

/// A number; when the record ends with it, what follows is looked for from the start.
fn number_or_restart(cursor: &mut Cursor<'_>, at: usize, range: u8) -> Result<u64, Malformed> {
    let ends_record = cursor.position(at, b' ').is_none();
    let number = cursor.number_or_rest(at, range)?;
    if ends_record {
        cursor.at = 0;
    }
    Ok(number)
}

/// Reads a record of the audit daemon's life.
pub(super) fn daemon<'e>(
    reader: &mut Reader<'_>,
    text: &'e [u8],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(text);
    let start = cursor.position(0, b')').unwrap_or_default();
    cursor.at = start;
    if reader.wants(Wanted::AUID) {
        let at = cursor.find("auid=").ok_or(Malformed::new(1))?;
        let id = low_32(cursor.number(at, 2, 3)?);
        found.auid = reader.user(id);
    }
    if reader.wants(Wanted::PID) {
        let at = cursor.find("pid=").ok_or(Malformed::new(4))?;
        found.pid = low_i32(cursor.number(at, 5, 6)?);
    }
    if reader.wants(Wanted::UID) {
        // It may stand before the process.
        cursor.at = start;
        if let Some(at) = cursor.find(" uid=") {
            found.uid.id = low_32(cursor.number(at, 7, 8)?);
        }
    }
    if reader.wants(Wanted::SESSION)
        && let Some(at) = cursor.find("ses=")
    {
        found.session = low_32(cursor.number(at, 9, 10)?);
    }
    if reader.wants(Wanted::SUBJECT)
        && let Some(at) = cursor.find("subj=")
    {
        let word = cursor.word_or_rest(at);
        subject(found, word);
    }
    if reader.wants(Wanted::SUCCESS) {
        cursor.at = start;
        daemon_result(&cursor, found, 12)?;
    }
    Ok(())
}

/// Reads a record of a connection to the audit daemon.
pub(super) fn daemon_connection<'e>(
    reader: &Reader<'_>,
    text: &'e [u8],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(text);
    if reader.wants(Wanted::HOST)
        && let Some(at) = cursor.find("addr=")
    {
        let end = cursor
            .position(at, b':')
            .or_else(|| cursor.position(at, b' '))
            .ok_or(Malformed::new(1))?;
        cursor.at = end;
        found.host = Some(cursor.between(at, end).into());
    }
    if reader.wants(Wanted::SUCCESS) {
        daemon_result(&cursor, found, 2)?;
    }
    Ok(())
}

fn daemon_result(cursor: &Cursor<'_>, found: &mut Found<'_>, code: u8) -> Result<(), Malformed> {
    let Some(at) = cursor.find("res=") else {
        return Ok(());
    };
    let rest = cursor.from(at);
    if !rest.first().is_some_and(u8::is_ascii_alphabetic) {
        return Err(Malformed::new(code));
    }
    found.success = if rest.starts_with(b"failed") {
        FAILED
    } else {
        SUCCEEDED
    };
    Ok(())
}
