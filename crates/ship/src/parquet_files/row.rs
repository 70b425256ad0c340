//! A row of a frame.
//!
//! Columns have the names of the JSON log (docs/json.md). The columns of a task and of a message are filled by the
//! SYSCALL record, and in an event without one by the first other record that has the field.

use audit::ids::{Arch, Syscall};
use audit::record::assemble::EventRecords;
use audit::record::decode::{Field, Record};
use audit::record::execve;
use audit::table;
use bstr::ByteSlice as _;
use logs::event_values::decoded;

use super::schema::Leaf;
use super::table::Table;
use crate::frame::{self, Frame, Gap, Heartbeat, Time};
use crate::socket_address::{Place, SocketAddress};

/// What becomes of a field.
#[derive(Clone, Copy)]
enum Take {
    /// Nothing.
    Nothing,
    /// A value that is never encoded.
    Plain(Leaf),
    /// A value that may be encoded.
    Text(Leaf),
    /// A decimal number.
    Number(Leaf),
    Tty,
    Success,
    Syscall,
    Key,
    /// A text with fields of its own.
    Message,
}

/// Fields of a SYSCALL or URINGOP record, in the order of the kernel.
const SYSCALL: [(&[u8], Take); 27] = [
    (b"arch", Take::Plain(Leaf::Arch)),
    (b"syscall", Take::Syscall),
    (b"success", Take::Success),
    (b"exit", Take::Number(Leaf::Exit)),
    (b"a0", Take::Plain(Leaf::A0)),
    (b"a1", Take::Plain(Leaf::A1)),
    (b"a2", Take::Plain(Leaf::A2)),
    (b"a3", Take::Plain(Leaf::A3)),
    (b"items", Take::Nothing),
    (b"ppid", Take::Number(Leaf::Ppid)),
    (b"pid", Take::Number(Leaf::Pid)),
    (b"auid", Take::Number(Leaf::Auid)),
    (b"uid", Take::Number(Leaf::Uid)),
    (b"gid", Take::Number(Leaf::Gid)),
    (b"euid", Take::Number(Leaf::Euid)),
    (b"suid", Take::Number(Leaf::Suid)),
    (b"fsuid", Take::Number(Leaf::Fsuid)),
    (b"egid", Take::Number(Leaf::Egid)),
    (b"sgid", Take::Number(Leaf::Sgid)),
    (b"fsgid", Take::Number(Leaf::Fsgid)),
    (b"tty", Take::Tty),
    (b"ses", Take::Number(Leaf::Ses)),
    (b"comm", Take::Text(Leaf::Comm)),
    (b"exe", Take::Text(Leaf::Exe)),
    (b"subj", Take::Plain(Leaf::Subj)),
    (b"key", Take::Key),
    (b"cwd", Take::Text(Leaf::Cwd)),
];

/// Fields of other records, and of the messages in them.
const OTHER: [(&[u8], Take); 20] = [
    (b"pid", Take::Number(Leaf::Pid)),
    (b"uid", Take::Number(Leaf::Uid)),
    (b"auid", Take::Number(Leaf::Auid)),
    (b"ses", Take::Number(Leaf::Ses)),
    (b"subj", Take::Plain(Leaf::Subj)),
    (b"msg", Take::Message),
    (b"op", Take::Plain(Leaf::Op)),
    (b"acct", Take::Text(Leaf::Acct)),
    (b"cwd", Take::Text(Leaf::Cwd)),
    (b"cmd", Take::Text(Leaf::Cmd)),
    (b"exe", Take::Text(Leaf::Exe)),
    (b"hostname", Take::Plain(Leaf::Hostname)),
    (b"addr", Take::Plain(Leaf::Addr)),
    (b"terminal", Take::Plain(Leaf::Terminal)),
    (b"res", Take::Plain(Leaf::Res)),
    (b"key", Take::Key),
    (b"ppid", Take::Number(Leaf::Ppid)),
    (b"gid", Take::Number(Leaf::Gid)),
    (b"comm", Take::Text(Leaf::Comm)),
    (b"tty", Take::Tty),
];

/// Fields of a PATH record, in the order of the kernel. Each is in every element of the list.
const PATH: [(&[u8], Take); 10] = [
    (b"item", Take::Nothing),
    (b"name", Take::Text(Leaf::PathName)),
    (b"inode", Take::Number(Leaf::PathInode)),
    (b"dev", Take::Plain(Leaf::PathDev)),
    (b"mode", Take::Plain(Leaf::PathMode)),
    (b"ouid", Take::Number(Leaf::PathOuid)),
    (b"ogid", Take::Number(Leaf::PathOgid)),
    (b"rdev", Take::Plain(Leaf::PathRdev)),
    (b"obj", Take::Plain(Leaf::PathObj)),
    (b"nametype", Take::Plain(Leaf::PathNametype)),
];

/// Time of a frame.
pub(super) fn time(frame: &Frame<'_>) -> Time {
    match frame.record {
        frame::Record::Event(event) => Time::of(event.time()),
        frame::Record::Gap(gap) => gap.time,
        frame::Record::Heartbeat(heartbeat) => heartbeat.time,
    }
}

/// Appends the row of a frame.
pub(super) fn append(frame: &Frame<'_>, table: &mut Table) {
    table.begin_row();
    let kind: &[u8] = match frame.record {
        frame::Record::Event(_) => b"event",
        frame::Record::Gap(_) => b"gap",
        frame::Record::Heartbeat(_) => b"heartbeat",
    };
    table.text(Leaf::Kind, kind);
    table.text(Leaf::Host, frame.host.as_bytes());
    table.text(Leaf::Boot, frame.boot.as_bytes());
    let micros = time(frame).ms.saturating_mul(1000);
    count(table, Leaf::Time, micros);
    match frame.record {
        frame::Record::Event(event) => self::event(event, table),
        frame::Record::Gap(gap) => self::gap(gap, table),
        frame::Record::Heartbeat(heartbeat) => self::heartbeat(heartbeat, table),
    }
}

fn gap(gap: &Gap, table: &mut Table) {
    table.text(Leaf::Reason, gap.reason.name().as_bytes());
    table.number(Leaf::After, gap.after.into());
    table.number(Leaf::Before, gap.before.into());
    if let Some(missing) = gap.missing {
        count(table, Leaf::Missing, missing);
    }
}

fn heartbeat(heartbeat: &Heartbeat, table: &mut Table) {
    let serials = [
        (Leaf::Serial, heartbeat.serial),
        (Leaf::KernelSerial, heartbeat.kernel_serial),
    ];
    for (leaf, serial) in serials {
        if let Some(serial) = serial {
            table.number(leaf, serial.into());
        }
    }
    let counts = &heartbeat.counts;
    count(table, Leaf::Events, counts.events);
    count(table, Leaf::Sent, counts.sent);
    count(table, Leaf::Malformed, counts.malformed);
    count(table, Leaf::Gaps, counts.gaps);
    count(table, Leaf::Missing, counts.missing);
    for (reason, lost) in &counts.lost {
        table.add_text(Leaf::LostKey, reason.as_bytes());
        table.add_number(Leaf::LostValue, i64::try_from(*lost).unwrap_or(i64::MAX));
    }
    table.text(Leaf::Version, heartbeat.version.as_bytes());
}

fn count(table: &mut Table, leaf: Leaf, number: u64) {
    table.number(leaf, i64::try_from(number).unwrap_or(i64::MAX));
}

fn event(event: &EventRecords, table: &mut Table) {
    table.number(Leaf::Serial, event.serial().0.into());
    table.text(Leaf::Records, event.text());
    if let Some(node) = event.node() {
        table.text(Leaf::Node, node);
    }
    let is_call = |record: &Record<'_>| matches!(record.kind.as_bytes(), b"SYSCALL" | b"URINGOP");
    let has_call = event.records().any(|record| is_call(&record));
    let mut arguments = Vec::new();
    for record in event.records() {
        table.text(Leaf::Type, record.kind);
        match record.kind.as_bytes() {
            b"SYSCALL" | b"URINGOP" => fields(&record, &SYSCALL, table),
            b"PATH" => path(&record, table),
            b"CWD" => one(&record, "cwd", Leaf::Cwd, table),
            b"PROCTITLE" => one(&record, "proctitle", Leaf::Proctitle, table),
            b"SOCKADDR" => address(&record, table),
            b"EXECVE" => arguments.push(record),
            b"EOE" => {}
            _ if has_call => {}
            _ => fields(&record, &OTHER, table),
        }
    }
    for argument in &execve::readable(&arguments).args {
        table.add_text(Leaf::Argv, argument);
    }
}

/// Fields of a record by a table, which is in the order of most records.
fn fields(record: &Record<'_>, known: &[(&[u8], Take)], table: &mut Table) {
    let mut found = Found::among(known);
    let mut syscall = None;
    for field in record.valid_fields() {
        match found.take(&field) {
            Take::Syscall => syscall = number(field.value),
            Take::Message => {
                let nested = record.nested_fields(&field).map_while(Result::ok);
                for field in nested {
                    take(found.take(&field), record, &field, table);
                }
            }
            how => take(how, record, &field, table),
        }
        // The name needs the arch, which comes first.
        if let Some(number) = syscall.take() {
            syscall_name(record, number, table);
        }
    }
}

/// Finds what becomes of fields.
struct Found<'k> {
    known: &'k [(&'k [u8], Take)],
    /// Where the next field is expected.
    at: usize,
}

impl<'k> Found<'k> {
    const fn among(known: &'k [(&'k [u8], Take)]) -> Self {
        Self { known, at: 0 }
    }

    /// Place of a field in the table.
    fn next(&mut self, field: &Field<'_>) -> Option<usize> {
        let name = field.name.as_bytes();
        let is_found = |(known, _): &(&[u8], Take)| *known == name;
        let found = match self.known.get(self.at).is_some_and(is_found) {
            true => self.at,
            false => self.known.iter().position(is_found)?,
        };
        self.at = found + 1;
        Some(found)
    }

    fn take(&mut self, field: &Field<'_>) -> Take {
        let found = self.next(field).and_then(|at| self.known.get(at));
        found.map_or(Take::Nothing, |(_, take)| *take)
    }
}

fn take<'a>(how: Take, record: &Record<'a>, field: &Field<'a>, table: &mut Table) {
    let value = field.value.as_bytes();
    match how {
        Take::Nothing | Take::Syscall | Take::Message => {}
        Take::Plain(leaf) => {
            if !matches!(value, b"?" | b"(null)") {
                table.text(leaf, unquoted(value));
            }
        }
        Take::Text(leaf) => {
            if let Some(text) = decoded(record, field) {
                table.text(leaf, unquoted(&text));
            }
        }
        Take::Number(leaf) => {
            if let Some(number) = number(value) {
                table.number(leaf, number);
            }
        }
        Take::Tty => {
            let tty = if value == b"(none)" { b"" } else { value };
            table.text(Leaf::Tty, tty);
        }
        Take::Success => table.flag(Leaf::Success, value == b"yes"),
        Take::Key => {
            if !table.has(Leaf::Key)
                && let Some(keys) = decoded(record, field)
            {
                for key in keys.split(|&byte| byte == 1) {
                    table.add_text(Leaf::Key, unquoted(key));
                }
            }
        }
    }
}

fn syscall_name(record: &Record<'_>, number: i64, table: &mut Table) {
    table.number(Leaf::Number, number);
    let arch = record.field("arch").and_then(|field| {
        let digits = field.value.to_str().ok()?;
        u32::from_str_radix(digits, 16).ok()
    });
    if let Some((arch, number)) = arch.zip(u32::try_from(number).ok())
        && let Some(name) = table::syscall_name(Arch(arch), Syscall(number))
    {
        table.text(Leaf::Syscall, name.as_bytes());
    }
}

/// An element of the list of paths.
fn path(record: &Record<'_>, table: &mut Table) {
    let mut values: [Option<Field<'_>>; PATH.len()] = [None; PATH.len()];
    let mut found = Found::among(&PATH);
    // Capabilities are the last fields, and have no column.
    let is_kept = |field: &Field<'_>| !field.name.starts_with(b"cap_");
    for field in record.valid_fields().take_while(is_kept) {
        if let Some(value) = found.next(&field).and_then(|at| values.get_mut(at)) {
            *value = Some(field);
        }
    }
    for ((_, how), field) in PATH.iter().zip(&values) {
        match how {
            Take::Number(leaf) => match field.and_then(|field| number(field.value)) {
                Some(number) => table.add_number(*leaf, number),
                None => table.add_null(*leaf),
            },
            Take::Text(leaf) | Take::Plain(leaf) => {
                let text = field.as_ref().and_then(|field| decoded(record, field));
                match text {
                    Some(text) => table.add_text(*leaf, &text),
                    None => table.add_null(*leaf),
                }
            }
            _ => {}
        }
    }
}

/// The only field of a record.
fn one(record: &Record<'_>, name: &str, leaf: Leaf, table: &mut Table) {
    if let Some(field) = record.field(name)
        && let Some(text) = decoded(record, &field)
    {
        table.text(leaf, &text);
    }
}

/// The columns of a socket address.
fn address(record: &Record<'_>, table: &mut Table) {
    let Some(field) = record.field("saddr") else {
        return;
    };
    table.text(Leaf::Saddr, field.value);
    let Some(SocketAddress { family, place }) = SocketAddress::parse(field.value) else {
        return;
    };
    table.number(Leaf::SaddrFam, family.into());
    match place {
        Place::Local { is_abstract, name } => {
            if !name.is_empty() {
                // As `ss` shows it.
                let mark: &[u8] = if is_abstract { b"@" } else { b"" };
                table.text(Leaf::SaddrPath, &[mark, &name].concat());
            }
        }
        Place::Host { address, port } => {
            table.text(Leaf::SaddrAddress, address.to_string().as_bytes());
            table.number(Leaf::SaddrPort, port.into());
        }
        Place::Other => {}
    }
}

/// A decimal number.
fn number(text: &[u8]) -> Option<i64> {
    let (digits, sign) = match text.strip_prefix(b"-") {
        Some(digits) => (digits, -1),
        None => (text, 1),
    };
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_i64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        let digit = (digit <= 9).then_some(i64::from(digit) * sign)?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

fn unquoted(bytes: &[u8]) -> &[u8] {
    let inner = bytes.strip_prefix(b"\"");
    inner
        .and_then(|inner| inner.strip_suffix(b"\""))
        .unwrap_or(bytes)
}

#[cfg(test)]
mod tests;
