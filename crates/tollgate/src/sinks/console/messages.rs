//! Events that are no syscall: logins, messages of programs, changes of the configuration, denials.
//!
//! ```text
//! 22:13:20.007Z ok       USER_LOGIN   /usr/sbin/sshd[4322]  root (login alice)  op=login id=1000 hostname=gate
//! ```

use std::borrow::Cow;
use std::fmt::{self, Display};

use audit::ids::Auid;
use audit::record::assemble::EventRecords;
use audit::record::decode::{Field, Record};
use audit::record::interpret;
use audit::table;
use bstr::ByteSlice as _;

use super::{BAD, BOLD, DIM, GOOD, Interpret, KEY, ODD, clock};
use crate::sinks::escaped::Escaped;

/// First record type of security modules, anomalies and integrity checks. Those below belong to syscalls.
///
/// # Source
/// `AUDIT_AVC` in `include/uapi/linux/audit.h`, Linux 6.12.
const FIRST_OF_DENIALS: u16 = 1400;

/// Prints an event without a syscall.
pub(super) struct Message<'a> {
    pub(super) event: &'a EventRecords,
    pub(super) interpret: &'a Interpret,
}

/// Prints the records of an event that are not about its syscall.
pub(super) struct Denials<'a>(pub(super) &'a EventRecords);

impl Display for Denials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for record in self.0.records() {
            let number = table::msg_type_number(record.kind);
            if number.is_some_and(|number| number.0 >= FIRST_OF_DENIALS) {
                let (kind, body) = (Escaped(record.kind), record.body());
                writeln!(f, "    {BAD}{kind}{BAD:#}  {}", Line(body))?;
            }
        }
        Ok(())
    }
}

impl Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut records = self.event.records();
        let Some(first) = records.next() else {
            return Ok(());
        };
        self.header(&first, f)?;
        for record in records.filter(|record| record.kind != "EOE") {
            let (kind, body) = (Escaped(record.kind), record.body());
            writeln!(f, "    {DIM}{kind}{DIM:#}  {}", Line(body))?;
        }
        Ok(())
    }
}

/// What the header shows in a place of its own.
#[derive(Default)]
struct Facts<'a> {
    pid: Option<u32>,
    uid: Option<u32>,
    auid: Option<u32>,
    exe: Option<Cow<'a, [u8]>>,
    key: Option<Cow<'a, [u8]>>,
    result: Option<&'static str>,
    others: Vec<Field<'a>>,
}

impl<'a> Facts<'a> {
    fn read(record: &Record<'a>) -> Self {
        let mut facts = Self::default();
        for field in record.fields().map_while(Result::ok) {
            let mut nested = record
                .nested_fields(&field)
                .map_while(Result::ok)
                .peekable();
            if nested.peek().is_none() {
                facts.add(record, field);
            } else {
                nested.for_each(|field| facts.add(record, field));
            }
        }
        facts
    }

    fn add(&mut self, record: &Record<'a>, field: Field<'a>) {
        let number = || field.value.to_str().ok()?.parse().ok();
        let text = || record.text(&field).ok().flatten();
        match field.name.as_bytes() {
            b"pid" => self.pid = number(),
            b"uid" => self.uid = number(),
            b"auid" => self.auid = number(),
            b"ses" | b"subj" => {}
            b"exe" => self.exe = text(),
            b"key" => self.key = text(),
            b"res" => {
                self.result = match field.value.as_bytes() {
                    b"success" | b"yes" | b"1" => Some("ok"),
                    b"failed" | b"no" | b"0" => Some("failed"),
                    _ => None,
                }
            }
            _ => self.others.push(field),
        }
    }
}

impl Message<'_> {
    fn header(&self, record: &Record<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = Facts::read(record);
        write!(f, "{DIM}{}{DIM:#} ", clock(record.time))?;
        match facts.result {
            Some(result @ "ok") => write!(f, "{GOOD}{result:<8}{GOOD:#}")?,
            Some(result) => write!(f, "{BAD}{result:<8}{BAD:#}")?,
            None => write!(f, "{ODD}{:<8}{ODD:#}", "-")?,
        }
        write!(
            f,
            " {BOLD}{:<12}{BOLD:#} ",
            Escaped(record.kind).to_string()
        )?;
        match &facts.exe {
            Some(exe) => write!(f, "{}", Escaped(exe))?,
            None => write!(f, "-")?,
        }
        if let Some(pid) = facts.pid {
            write!(f, "{DIM}[{pid}]{DIM:#}")?;
        }
        if let Some(uid) = facts.uid {
            write!(f, "  {}", self.user(uid))?;
        }
        match facts.auid {
            Some(login) if login != Auid::UNSET.0 && Some(login) != facts.uid => {
                write!(f, " (login {})", self.user(login))?;
            }
            _ => {}
        }
        if let Some(key) = &facts.key {
            write!(f, "  {KEY}[{}]{KEY:#}", Escaped(key))?;
        }
        f.write_str(" ")?;
        for field in &facts.others {
            write!(f, " {}={}", Line(field.name), Line(field.value))?;
        }
        writeln!(f)
    }

    fn user(&self, uid: u32) -> impl Display {
        fmt::from_fn(move |f| match self.interpret {
            Interpret::Raw => write!(f, "uid {uid}"),
            Interpret::Names(names) => write!(f, "{}", interpret::user(names, uid)),
        })
    }
}

/// Text of a record, which is one line: bytes that a terminal could obey are escaped.
struct Line<'a>(&'a [u8]);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            match char {
                '"' | '\'' | '\\' => write!(f, "{char}")?,
                // Also those that change the text direction.
                char => write!(f, "{}", char.escape_debug())?,
            }
        }
        Ok(())
    }
}
