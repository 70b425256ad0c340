//! The fields that expressions can test, and their types.

use crate::event_values::Column;

/// A field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in expressions.
    pub name: &'static str,
    /// Type of its values.
    pub kind: Kind,
    /// Where its values are.
    pub source: Source,
}

/// Type of a field: what may be written on the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// An absolute or relative path.
    Path,
    /// A decimal number.
    Number,
    /// A hexadecimal number, as syscall arguments are recorded.
    Hex,
    /// A user: name, number or `unset`.
    User,
    /// A group.
    Group,
    /// A syscall: name or number.
    Syscall,
    /// A return value: number or name of an error.
    Exit,
    /// `yes` or `no`.
    Success,
    /// A record type.
    Type,
}

/// Where the values of a field are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Values that the index knows.
    Column(Column),
    /// A field of this name in any record.
    Record,
    /// The serial of the event.
    Serial,
    /// The node of the event.
    Node,
    /// The text of the records, as logged.
    Text,
}

const fn column(name: &'static str, kind: Kind, column: Column) -> Field {
    Field {
        name,
        kind,
        source: Source::Column(column),
    }
}

const fn record(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        source: Source::Record,
    }
}

/// Names of files.
pub(super) const PATH: Field = column("path", Kind::Path, Column::Path);

/// Fields with values of their own, before the ones that are only in records.
const FIELDS: [Field; 22] = [
    column("type", Kind::Type, Column::Type),
    column("key", Kind::Text, Column::Key),
    column("syscall", Kind::Syscall, Column::Syscall),
    column("auid", Kind::User, Column::Auid),
    column("uid", Kind::User, Column::Uid),
    column("euid", Kind::User, Column::Euid),
    column("exe", Kind::Text, Column::Exe),
    column("comm", Kind::Text, Column::Comm),
    column("ses", Kind::Number, Column::Ses),
    column("success", Kind::Success, Column::Success),
    column("exit", Kind::Exit, Column::Exit),
    column("pid", Kind::Number, Column::Pid),
    column("ppid", Kind::Number, Column::Ppid),
    PATH,
    column("dir", Kind::Path, Column::Directory),
    column("file", Kind::Text, Column::FileName),
    column("addr", Kind::Text, Column::Address),
    column("acct", Kind::Text, Column::Account),
    Field {
        name: "serial",
        kind: Kind::Number,
        source: Source::Serial,
    },
    Field {
        name: "node",
        kind: Kind::Text,
        source: Source::Node,
    },
    Field {
        name: "text",
        kind: Kind::Text,
        source: Source::Text,
    },
    record("arch", Kind::Hex),
];

/// Fields of records, by type.
const RECORD_FIELDS: [(Kind, &[&str]); 5] = [
    (
        Kind::User,
        &[
            "suid", "fsuid", "ouid", "oauid", "old-auid", "new-auid", "sauid", "iuid", "id",
        ],
    ),
    (
        Kind::Group,
        &["gid", "egid", "sgid", "fsgid", "ogid", "igid", "new_gid"],
    ),
    (Kind::Hex, &["a0", "a1", "a2", "a3", "per", "flags"]),
    (
        Kind::Number,
        &[
            "items", "item", "inode", "argc", "opid", "oses", "old-ses", "sig", "fd", "fd0", "fd1",
            "uring_op", "entries", "family", "prom", "old_prom", "port", "lport", "res_code",
        ],
    ),
    (
        Kind::Text,
        &[
            "name",
            "cwd",
            "proctitle",
            "tty",
            "terminal",
            "hostname",
            "subj",
            "obj",
            "scontext",
            "tcontext",
            "tclass",
            "op",
            "cmd",
            "data",
            "nametype",
            "mode",
            "dev",
            "rdev",
            "saddr",
            "ocomm",
            "table",
            "list",
            "unit",
            "ver",
            "format",
            "kernel",
            "vm",
            "uuid",
            "device",
            "apparmor",
            "operation",
            "profile",
            "requested_mask",
            "denied_mask",
            "permissive",
            "cgroup",
            "module",
            "code",
            "compat",
            "ip",
            "reason",
            "res",
            "grantors",
            "func",
        ],
    ),
];

/// The field of a name.
pub fn find(name: &str) -> Option<Field> {
    if let Some(field) = FIELDS.iter().find(|field| field.name == name) {
        return Some(*field);
    }
    if let Some(name) = argument(name) {
        return Some(record(name, Kind::Text));
    }
    RECORD_FIELDS.iter().find_map(|(kind, names)| {
        let name = names.iter().find(|other| **other == name)?;
        Some(record(name, *kind))
    })
}

/// Names of arguments of programs beyond `a3`; the first four are numbers in SYSCALL records.
fn argument(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 12] = [
        "a4", "a5", "a6", "a7", "a8", "a9", "a10", "a11", "a12", "a13", "a14", "a15",
    ];
    NAMES.into_iter().find(|other| *other == name)
}

/// All names.
pub fn names() -> impl Iterator<Item = &'static str> {
    let own = FIELDS.iter().map(|field| field.name);
    own.chain(
        RECORD_FIELDS
            .iter()
            .flat_map(|(_, names)| names.iter().copied()),
    )
}

/// The name that is most like a mistyped one, if any is.
pub fn similar(name: &str) -> Option<&'static str> {
    audit::spelling::nearest(name.as_bytes(), names())
}
