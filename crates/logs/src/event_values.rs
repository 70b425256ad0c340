//! What events are found by: the values of their records, decoded, joined and normalised.
//!
//! The index is built from these values and searches compare them, so that both agree on what an event contains.

use std::borrow::Cow;
use std::sync::OnceLock;

use audit::record::assemble::EventRecords;
use audit::record::decode::{Field, FieldFinder, Record};
use bstr::ByteSlice as _;

/// Kind of a value. The numbers are part of the index format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Column {
    /// Record type, such as `SYSCALL`.
    Type = 0,
    /// Key of a rule; each of several keys is a value.
    Key,
    /// Syscall number, in decimal.
    Syscall,
    /// Login uid.
    Auid,
    /// Real uid.
    Uid,
    /// Effective uid.
    Euid,
    /// Path of the program.
    Exe,
    /// Command name.
    Comm,
    /// Login session.
    Ses,
    /// `yes` or `no`, from `success=` and `res=`.
    Success,
    /// Return value.
    Exit,
    /// Process id.
    Pid,
    /// Process id of the parent.
    Ppid,
    /// Name of a file as recorded, and joined with the working directory.
    Path,
    /// A directory above a [`Column::Path`], without `/` itself.
    Directory,
    /// Last component of a [`Column::Path`].
    FileName,
    /// Address or name of a host.
    Address,
    /// Account name in records of programs.
    Account,
    /// A part of a [`Column::Path`], by which the index finds parts of paths. No value of an event.
    PathPart,
}

impl Column {
    /// Number of columns.
    pub const COUNT: usize = 19;

    /// Number of the column in the index format.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Names of the fields that [`Column::of_field`] gives this column, each with its `=`. `None` if other fields have
    /// values of the column too.
    const fn field_names(self) -> Option<&'static [&'static str]> {
        Some(match self {
            Self::Key => &["key="],
            Self::Syscall => &["syscall="],
            Self::Auid => &["auid="],
            Self::Uid => &["uid="],
            Self::Euid => &["euid="],
            Self::Exe => &["exe="],
            Self::Comm => &["comm="],
            Self::Ses => &["ses="],
            Self::Success => &["success=", "res="],
            Self::Exit => &["exit="],
            Self::Pid => &["pid="],
            Self::Ppid => &["ppid="],
            Self::Account => &["acct="],
            Self::Address => &["addr=", "hostname="],
            Self::Type => &[],
            Self::Path | Self::Directory | Self::FileName | Self::PathPart => return None,
        })
    }

    /// Finds the fields of [`Column::field_names`].
    fn field_finder(self) -> Option<&'static FieldFinder<'static>> {
        static FINDERS: [OnceLock<Option<FieldFinder<'static>>>; Column::COUNT] =
            [const { OnceLock::new() }; Column::COUNT];
        let finder = FINDERS.get(usize::from(self.number()))?;
        let new = || self.field_names().map(FieldFinder::new);
        finder.get_or_init(new).as_ref()
    }

    /// Column of a field that is one, by the field's name in records.
    #[must_use]
    pub fn of_field(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"key" => Self::Key,
            b"syscall" => Self::Syscall,
            b"auid" => Self::Auid,
            b"uid" => Self::Uid,
            b"euid" => Self::Euid,
            b"exe" => Self::Exe,
            b"comm" => Self::Comm,
            b"ses" => Self::Ses,
            b"success" | b"res" => Self::Success,
            b"exit" => Self::Exit,
            b"pid" => Self::Pid,
            b"ppid" => Self::Ppid,
            b"acct" => Self::Account,
            b"addr" | b"hostname" | b"laddr" | b"saddr" => Self::Address,
            _ => return None,
        })
    }
}

/// Prefix of a value that is the name of a user, from the enriched part of a record.
pub const ENRICHED: u8 = 0x1d;

/// Receives the values of an event.
pub(crate) trait Receiver {
    /// Whether values of this column are wanted.
    fn wants(&self, _column: Column) -> bool {
        true
    }

    /// Finds the fields that have wanted values; `None` if many have.
    fn fields(&self) -> Option<&FieldFinder<'_>> {
        None
    }

    /// Takes a value.
    fn value(&mut self, column: Column, value: &[u8]);

    /// Whether a file's values need not be passed, because those of the same name, as written, in the same directory
    /// were.
    fn knows_file(&mut self, _name: &[u8], _cwd: Option<&[u8]>) -> bool {
        false
    }
}

/// Passes all values to a function.
struct All<F>(F);

impl<F: FnMut(Column, &[u8])> Receiver for All<F> {
    fn value(&mut self, column: Column, value: &[u8]) {
        (self.0)(column, value);
    }
}

/// Passes the values of one column to a function.
struct Only<F> {
    column: Column,
    fields: Option<&'static FieldFinder<'static>>,
    found: F,
}

impl<F: FnMut(&[u8])> Receiver for Only<F> {
    fn wants(&self, column: Column) -> bool {
        self.column == column
    }

    fn fields(&self) -> Option<&FieldFinder<'_>> {
        self.fields
    }

    fn value(&mut self, column: Column, value: &[u8]) {
        if column == self.column {
            (self.found)(value);
        }
    }
}

/// Passes every value of an event to `found`, some of them several times.
pub fn values(event: &EventRecords, found: impl FnMut(Column, &[u8])) {
    receive(event.records(), &mut All(found));
}

/// Passes every value of a column in an event to `found`, some of them several times.
pub fn values_of(column: Column, event: &EventRecords, found: impl FnMut(&[u8])) {
    let mut only = Only {
        column,
        fields: column.field_finder(),
        found,
    };
    receive(event.records(), &mut only);
}

/// Passes every name of a file in an event to `found`: as recorded, and joined with the working directory.
pub fn paths(event: &EventRecords, found: impl FnMut(&[u8])) {
    values_of(Column::Path, event, found);
}

/// Passes every value of the records of an event, some of them several times.
pub(crate) fn receive<'a>(records: impl Iterator<Item = Record<'a>>, to: &mut impl Receiver) {
    let mut cwd = None;
    let wants_files = wants_files(to);
    for record in records {
        to.value(Column::Type, record.kind);
        match record.kind.as_bytes() {
            b"PROCTITLE" | b"EOE" | b"EXECVE" => {}
            b"CWD" if wants_files => cwd = cwd.or_else(|| decoded(&record, &record.field("cwd")?)),
            b"PATH" if wants_files => {
                if let Some(name) = record.field("name")
                    && !to.knows_file(name.value, cwd.as_deref())
                    && let Some(name) = decoded(&record, &name)
                {
                    file_values(&name, cwd.as_deref(), to);
                }
            }
            b"CWD" | b"PATH" => {}
            _ => record_values(&record, to),
        }
    }
}

fn wants_files(to: &impl Receiver) -> bool {
    [Column::Path, Column::Directory, Column::FileName]
        .into_iter()
        .any(|column| to.wants(column))
}

fn record_values(record: &Record<'_>, to: &mut impl Receiver) {
    match to.fields().map(|finder| finder.fields(record)) {
        Some(fields) => fields.for_each(|field| all_values(record, &field, to)),
        None => record
            .valid_fields()
            .for_each(|field| all_values(record, &field, to)),
    }
    let wants_accounts = [Column::Auid, Column::Uid, Column::Euid].map(|column| to.wants(column));
    if !wants_accounts.contains(&true) {
        return;
    }
    for field in record.enrichment().map_while(Result::ok) {
        let column = match field.name.as_bytes() {
            b"AUID" => Column::Auid,
            b"UID" => Column::Uid,
            b"EUID" => Column::Euid,
            _ => continue,
        };
        let mut value = [ENRICHED; 64];
        let name = field.value.trim_with(|byte| byte == '"');
        if let Some(room) = value.get_mut(1..=name.len()) {
            room.copy_from_slice(name);
            to.value(column, value.get(..=name.len()).unwrap_or_default());
        }
    }
}

/// Passes the values of a field, or of the fields in it.
#[inline]
fn all_values(record: &Record<'_>, field: &Field<'_>, to: &mut impl Receiver) {
    if field.name == "msg" {
        for nested in record.nested_fields(field).map_while(Result::ok) {
            field_values(record, &nested, to);
        }
    } else {
        field_values(record, field, to);
    }
}

#[inline]
fn field_values(record: &Record<'_>, field: &Field<'_>, to: &mut impl Receiver) {
    let Some(column) = Column::of_field(field.name) else {
        // Security modules name files in other records.
        if matches!(field.name.as_bytes(), b"path" | b"name" | b"cwd" | b"file")
            && wants_files(to)
            && let Some(name) = decoded(record, field)
        {
            file_values(&name, None, to);
        }
        return;
    };
    if column == Column::Address && field.name == "saddr" {
        socket_values(field.value, to);
        return;
    }
    if !to.wants(column) {
        return;
    }
    match column {
        Column::Key => {
            if let Some(keys) = decoded(record, field) {
                let keys = keys.split(|&byte| byte == 1);
                keys.for_each(|key| to.value(column, key));
            }
        }
        Column::Exe | Column::Comm | Column::Account => {
            if let Some(value) = decoded(record, field) {
                to.value(column, &value);
            }
        }
        Column::Success => {
            if let Some(success) = success(field) {
                to.value(column, if success { b"yes" } else { b"no" });
            }
        }
        Column::Address => {
            if !matches!(field.value.as_bytes(), b"?" | b"") {
                to.value(column, field.value.trim_with(|byte| byte == '"'));
            }
        }
        // Some records write an unset id as -1.
        Column::Auid | Column::Uid | Column::Euid | Column::Ses if field.value == "-1" => {
            to.value(column, b"4294967295");
        }
        _ => to.value(column, canonical(field.value)),
    }
}

/// Whether a field says that something succeeded.
///
/// # Source
/// `res=` of programs is `success` or `failed`, of the kernel 1 or 0.
#[must_use]
pub fn success(field: &Field<'_>) -> Option<bool> {
    match field.value.as_bytes() {
        b"yes" | b"success" | b"1" => Some(true),
        b"no" | b"failed" | b"0" => Some(false),
        _ => None,
    }
}

/// A decimal number without leading zeros.
fn canonical(value: &[u8]) -> &[u8] {
    let digits = value.trim_start_with(|digit| digit == '0');
    match (digits.len(), value.len()) {
        (same, len) if same == len => value,
        (0, _) => b"0",
        _ => digits,
    }
}

fn file_values(name: &[u8], cwd: Option<&[u8]>, to: &mut impl Receiver) {
    if name.is_empty() {
        return;
    }
    to.value(Column::Path, name);
    let path = resolved(name, cwd);
    if *path != *name {
        to.value(Column::Path, &path);
    }
    let mut path = &*path;
    let file_name = path.rfind_byte(b'/').map_or(0, |slash| slash + 1);
    to.value(Column::FileName, path.get(file_name..).unwrap_or_default());
    if !to.wants(Column::Directory) {
        return;
    }
    while let Some(slash) = path.rfind_byte(b'/').filter(|&slash| slash > 0) {
        path = path.get(..slash).unwrap_or_default();
        to.value(Column::Directory, path);
    }
}

/// Joins a name with the working directory, without `.`, `..` and repeated slashes. Links are not followed. A name
/// that is relative to nothing known stays as it is.
#[must_use]
pub fn resolved<'a>(name: &'a [u8], cwd: Option<&[u8]>) -> Cow<'a, [u8]> {
    let is_plain = name.starts_with(b"/")
        && !name
            .windows(2)
            .any(|pair| matches!(pair, [b'/', b'/' | b'.']))
        && (!name.ends_with(b"/") || name.len() == 1);
    if is_plain {
        return Cow::Borrowed(name);
    }
    let directory = match cwd {
        _ if name.starts_with(b"/") => &b""[..],
        Some(cwd) => cwd,
        None => return Cow::Borrowed(name),
    };
    let mut path = Vec::with_capacity(directory.len() + name.len() + 1);
    let is_slash = |byte: &u8| *byte == b'/';
    let parts = directory.split(is_slash).chain(name.split(is_slash));
    for part in parts {
        match part {
            b"" | b"." => {}
            b".." => path.truncate(path.rfind_byte(b'/').unwrap_or(0)),
            _ => {
                path.push(b'/');
                path.extend_from_slice(part);
            }
        }
    }
    if path.is_empty() {
        path.push(b'/');
    }
    Cow::Owned(path)
}

/// Values of a socket address in hex: the address of a host, or the path of a local socket.
///
/// # Source
/// `struct sockaddr_in`, `sockaddr_in6` and `sockaddr_un`.
fn socket_values(hex: &[u8], to: &mut impl Receiver) {
    let mut bytes = [0; 128];
    let mut len = 0;
    for (to, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
        let digits = pair.to_str().ok();
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            return;
        };
        *to = byte;
        len += 1;
    }
    match bytes.get(..len).unwrap_or_default() {
        [1, 0, path @ ..] => {
            let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
            file_values(path, None, to);
        }
        [2, 0, _, _, a, b, c, d, ..] => {
            let text = std::net::Ipv4Addr::new(*a, *b, *c, *d).to_string();
            to.value(Column::Address, text.as_bytes());
        }
        [10, 0, _, _, _, _, _, _, address @ ..] => {
            if let Some(address) = address.first_chunk::<16>() {
                let text = std::net::Ipv6Addr::from(*address).to_string();
                to.value(Column::Address, text.as_bytes());
            }
        }
        _ => {}
    }
}

/// Value of a field, decoded; `None` for `(null)`. A value that is not encoded stays as it is.
#[must_use]
pub fn decoded<'a>(record: &Record<'a>, field: &Field<'a>) -> Option<Cow<'a, [u8]>> {
    record.text(field).unwrap_or_else(|_| {
        let value: &'a [u8] = field.value;
        Some(Cow::Borrowed(value))
    })
}

#[cfg(test)]
mod tests;
