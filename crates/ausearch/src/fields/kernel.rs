//! Records of the kernel that describe no syscall: anomalies, changes of configuration, integrity, terminals.

use super::cursor::{Cursor, Malformed};
use super::objects;
use super::task::{keys, number_result, subject};
use super::{Found, NO_ID, NO_LOGIN, Reader, SUCCEEDED, Wanted};
use crate::ctext::{low_32, low_i32};
use crate::event::Record;
use crate::record_type as ty;

/// Reads `ANOM_PROMISCUOUS`, `ANOM_ABEND` and `SECCOMP`.
pub(super) fn anomaly<'e>(
    reader: &mut Reader<'_>,
    record: &Record<'e>,
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(record.text);
    if reader.wants(Wanted::AUID) {
        let at = cursor.find("auid=").ok_or(Malformed::new(1))?;
        let id = low_32(cursor.number_or_rest(at, 2)?);
        found.auid = reader.user(id);
    }
    if reader.wants(Wanted::UID)
        && let Some(at) = cursor.find("uid=")
    {
        let id = low_32(cursor.number(at, 3, 4)?);
        found.uid = reader.user(id);
    }
    if reader.wants(Wanted::GID)
        && let Some(at) = cursor.find("gid=")
    {
        found.gid = low_32(cursor.number(at, 5, 6)?);
    }
    if reader.wants(Wanted::SESSION)
        && let Some(at) = cursor.find("ses=")
    {
        found.session = low_32(cursor.number_or_rest(at, 7)?);
    }
    if record.kind == ty::ANOM_PROMISCUOUS {
        return Ok(());
    }
    if reader.wants(Wanted::SUBJECT)
        && let Some(at) = cursor.find("subj=")
    {
        let word = cursor.word(at, 8)?;
        subject(found, word);
    }
    if reader.wants(Wanted::PID)
        && let Some(at) = cursor.find("pid=")
    {
        found.pid = low_i32(cursor.number(at, 10, 11)?);
    }
    if reader.wants(Wanted::COMM)
        && let Some(at) = cursor.find("comm=")
    {
        found.comm = cursor.untrusted(at, 12)?;
    }
    if reader.wants(Wanted::EXE) {
        match cursor.find("exe=") {
            Some(at) => found.exe = cursor.untrusted(at, 13)?,
            None if record.kind == ty::ANOM_ABEND => {}
            None => return Err(Malformed::new(14)),
        }
    }
    if record.kind == ty::SECCOMP {
        // Some kernels do not have it.
        let Some(at) = cursor.find("arch=") else {
            return Ok(());
        };
        found.arch = low_32(cursor.hex(at, 15, 16)?);
        let at = cursor.find("syscall=").ok_or(Malformed::new(17))?;
        found.syscall = low_i32(cursor.number(at, 18, 19)?);
    }
    if reader.wants(Wanted::SUCCESS) {
        number_result(&mut cursor, found, 68)?;
    }
    Ok(())
}

/// Reads a record that has a login user, a session, a label, keys and a result at most.
pub(super) fn simple<'e>(
    reader: &mut Reader<'_>,
    record: &Record<'e>,
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(record.text);
    if reader.wants(Wanted::AUID) {
        match cursor.find("auid=") {
            Some(at) => {
                let id = low_32(cursor.number_or_rest(at, 2)?);
                found.auid = reader.user(id);
            }
            None if record.kind == ty::CONFIG_CHANGE => {}
            None => return Err(Malformed::new(1)),
        }
    }
    if reader.wants(Wanted::SESSION)
        && let Some(at) = cursor.find("ses=")
    {
        found.session = low_32(cursor.number_or_rest(at, 3)?);
    }
    if reader.wants(Wanted::SUBJECT)
        && let Some(at) = cursor.find("subj=")
    {
        let before = cursor.at;
        let word = cursor.word_or_rest(at);
        if cursor.at == before {
            cursor.at = at;
        }
        subject(found, word);
    }
    if reader.wants(Wanted::KEY)
        && let Some(at) = cursor.find("key=")
    {
        keys(&mut cursor, at, [6, 8], found)?;
    }
    if record.kind == ty::CONFIG_CHANGE {
        found.success = SUCCEEDED;
    }
    if reader.wants(Wanted::SUCCESS) {
        number_result(&mut cursor, found, 7)?;
    }
    Ok(())
}

/// Reads a record of integrity measurement.
pub(super) fn integrity<'e>(
    reader: &mut Reader<'_>,
    text: &'e [u8],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(text);
    if let Some(at) = cursor.find("pid=") {
        found.pid = low_i32(cursor.number(at, 1, 2)?);
    }
    if reader.wants(Wanted::UID)
        && let Some(at) = cursor.find(" uid=")
    {
        // The stock tools begin one byte early, at the `=`, and read no number.
        let id = low_32(cursor.number(at - 1, 3, 4)?);
        found.uid = reader.user(id);
    }
    if reader.wants(Wanted::AUID)
        && let Some(at) = cursor.find_from_start("auid=")
    {
        let id = low_32(cursor.number(at, 5, 6)?);
        found.auid = reader.user(id);
    }
    if reader.wants(Wanted::SESSION)
        && let Some(at) = cursor.find("ses=")
    {
        found.session = low_32(cursor.number(at, 10, 11)?);
    }
    if reader.wants(Wanted::SUBJECT)
        && let Some(at) = cursor.find("subj=")
    {
        let word = cursor.word(at, 12)?;
        subject(found, word);
    }
    if reader.wants(Wanted::COMM)
        && let Some(at) = cursor.find("comm=")
    {
        found.comm = cursor.untrusted(at, 7)?;
    }
    if reader.wants(Wanted::FILE)
        && let Some(at) = cursor.find(" name=")
    {
        objects::file(&cursor, at, found).or(Err(Malformed::new(8)))?;
    }
    if reader.wants(Wanted::SUCCESS) {
        number_result(&mut cursor, found, 9)?;
    }
    Ok(())
}

/// Reads the keystrokes of a terminal.
pub(super) fn tty<'e>(
    reader: &mut Reader<'_>,
    text: &'e [u8],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(text);
    if reader.wants(Wanted::PID)
        && let Some(at) = cursor.find("pid=")
    {
        found.pid = low_i32(cursor.number(at, 1, 2)?);
    }
    if reader.wants(Wanted::UID)
        && let Some(at) = cursor.find(" uid=")
    {
        // As in records of integrity measurement.
        let id = low_32(cursor.number(at - 1, 3, 4)?);
        found.uid = reader.user(id);
    }
    if reader.wants(Wanted::AUID) {
        let at = cursor.find("auid=").ok_or(Malformed::new(5))?;
        let id = low_32(cursor.number_or_rest(at, 6)?);
        found.auid = reader.user(id);
    }
    if reader.wants(Wanted::SESSION)
        && let Some(at) = cursor.find("ses=")
    {
        found.session = low_32(cursor.number(at, 7, 8)?);
    }
    if reader.wants(Wanted::COMM)
        && let Some(at) = cursor.find("comm=")
    {
        found.comm = cursor.untrusted(at, 11)?;
    }
    Ok(())
}

/// Reads a record that stands alone or beside a `SYSCALL` record, whose fields it leaves as they are.
pub(super) fn other<'e>(
    reader: &mut Reader<'_>,
    text: &'e [u8],
    found: &mut Found<'e>,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(text);
    if reader.wants(Wanted::PID) && found.pid == -1 {
        let at = cursor.find(" pid=").ok_or(Malformed::new(54))?;
        found.pid = low_i32(cursor.number(at, 52, 53)?);
    }
    if reader.wants(Wanted::UID) && found.uid.id == NO_ID && found.uid.name.is_none() {
        let id = match cursor.find("uid=") {
            Some(at) => low_32(cursor.number(at, 55, 56)?),
            None => 0,
        };
        found.uid = reader.user(id);
    }
    if reader.wants(Wanted::AUID) && found.auid.id == NO_LOGIN && found.auid.name.is_none() {
        let id = match cursor.find("auid=") {
            Some(at) => low_32(cursor.number(at, 57, 58)?),
            None => NO_ID,
        };
        found.auid = reader.user(id);
    }
    if reader.wants(Wanted::TERMINAL) && found.terminal.is_none() {
        found.terminal = Some(match cursor.find("tty=") {
            Some(at) => cursor.word(at, 59)?.into(),
            None => b"(none)".as_slice().into(),
        });
    }
    if reader.wants(Wanted::SESSION) && found.session == NO_LOGIN {
        found.session = match cursor.find("ses=") {
            Some(at) => low_32(cursor.number(at, 60, 61)?),
            None => NO_ID,
        };
    }
    if reader.wants(Wanted::SUBJECT) && found.avcs.is_none() {
        let at = cursor.find("subj=").ok_or(Malformed::new(64))?;
        let word = cursor.word(at, 62)?;
        subject(found, word);
    }
    if reader.wants(Wanted::COMM) && found.comm.is_none() {
        let at = cursor.find("comm=").ok_or(Malformed::new(66))?;
        found.comm = cursor.untrusted(at, 65)?;
    }
    if reader.wants(Wanted::EXE) && found.exe.is_none() {
        found.exe = match cursor.find_from_start("exe=") {
            Some(at) => cursor.untrusted(at, 67)?,
            None => Some(b"(null)".as_slice().into()),
        };
    }
    if reader.wants(Wanted::SUCCESS) {
        number_result(&mut cursor, found, 69)?;
    }
    Ok(())
}
