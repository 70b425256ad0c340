//! Table of fields: name, syntax of the value, operators and lists. The parser and the printer use it.
//!
//! Both `auditctl` (audit-userspace 4.2) and the kernel (6.12, `audit_field_valid()` and the functions that
//! `audit_data_to_entry()` calls) refuse some combinations. The table has them separately, so messages can name
//! which of the two refuses. The kernel answers EINVAL.

use super::{Dialect, Field, List, Op};

/// Properties of a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldSpec {
    pub(super) field: Field,
    pub(super) name: &'static str,
    /// Syntax of the value.
    pub(super) kind: ValueKind,
    /// Operators that `auditctl` accepts.
    pub(super) parser_ops: OpSet,
    /// Operators that the kernel accepts.
    pub(super) kernel_ops: OpSet,
    /// Lists on which the kernel accepts the field.
    pub(super) lists: ListSet,
}

/// Syntax of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// Digits.
    Unsigned,
    /// Digits; the kernel compares the low 32 bits.
    Low32,
    /// Digits with an optional minus; the kernel compares the low 32 bits.
    Argument,
    /// A user: digits, a name, `unset`.
    User,
    /// A group: digits or a name.
    Group,
    /// `b32`, `b64`, a machine or an ELF number.
    Arch,
    /// A record type: digits or a name.
    MsgType,
    /// A security label.
    Label,
    /// A return value: digits or an errno name, with an optional minus.
    Exit,
    /// Digits with an optional minus, or `unset`; anything else is 0.
    Session,
    /// Digits below `AF_MAX`; anything else is 0.
    SocketFamily,
    /// A name from a short list.
    FileType,
    /// Digits or a name from a short list.
    FsType,
    /// Letters of `rwxa`.
    Perm,
    /// An absolute path that ends in a name.
    Path,
    /// An absolute path.
    Dir,
}

/// Sets of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpSet {
    /// Every operator.
    Any,
    /// All but `&` and `&=`.
    NoBits,
    /// `=` and `!=`.
    Equality,
    /// `=`.
    Equal,
}

impl OpSet {
    pub(super) fn contains(self, op: Op) -> bool {
        match self {
            Self::Any => true,
            Self::NoBits => !matches!(op, Op::BitMask | Op::BitTest),
            Self::Equality => matches!(op, Op::Equal | Op::NotEqual),
            Self::Equal => op == Op::Equal,
        }
    }

    /// Text of the set, for advice.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Any => "every operator",
            Self::NoBits => "`=`, `!=`, `<`, `<=`, `>` and `>=`",
            Self::Equality => "`=` and `!=`",
            Self::Equal => "`=`",
        }
    }
}

/// Sets of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListSet {
    /// All but filesystem, where the kernel accepts only `fstype` and a key.
    NotFilesystem,
    /// exit. The kernel accepts some of these on the `io_uring` list; `auditctl` does not.
    Exit,
    /// exit and exclude.
    ExitExclude,
    /// exclude and user.
    ExcludeUser,
    /// exclude, user and exit.
    ExcludeUserExit,
    /// filesystem.
    Filesystem,
}

impl ListSet {
    pub(super) fn contains(self, list: List) -> bool {
        match self {
            Self::NotFilesystem => list != List::Filesystem,
            Self::Exit => list == List::Exit,
            Self::ExitExclude => matches!(list, List::Exit | List::Exclude),
            Self::ExcludeUser => matches!(list, List::Exclude | List::User),
            Self::ExcludeUserExit => matches!(list, List::Exclude | List::User | List::Exit),
            Self::Filesystem => list == List::Filesystem,
        }
    }

    /// Text of the set, for advice.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::NotFilesystem => "every list but filesystem",
            Self::Exit => "the exit list",
            Self::ExitExclude => "the exit and exclude lists",
            Self::ExcludeUser => "the exclude and user lists",
            Self::ExcludeUserExit => "the exclude, user and exit lists",
            Self::Filesystem => "the filesystem list",
        }
    }
}

/// Fields that differ only in their names.
struct FieldFamily {
    kind: ValueKind,
    parser_ops: OpSet,
    kernel_ops: OpSet,
    lists: ListSet,
    names: &'static [(Field, &'static str)],
}

/// All fields. If a field has two names, the first is printed.
///
/// # Source
/// `auditctl(8)` and `lib/fieldtab.h` of audit-userspace 4.2; `audit_field_valid()` in
/// `kernel/auditfilter.c`, Linux 6.12.
const FIELD_FAMILIES: &[FieldFamily] = &[
    FieldFamily {
        kind: ValueKind::User,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::NoBits,
        lists: ListSet::NotFilesystem,
        names: &[
            (Field::Uid, "uid"),
            (Field::Euid, "euid"),
            (Field::Suid, "suid"),
            (Field::Fsuid, "fsuid"),
            (Field::Auid, "auid"),
            (Field::Auid, "loginuid"),
            (Field::ObjUid, "obj_uid"),
        ],
    },
    FieldFamily {
        kind: ValueKind::Group,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::NoBits,
        lists: ListSet::NotFilesystem,
        names: &[
            (Field::Gid, "gid"),
            (Field::Egid, "egid"),
            (Field::Sgid, "sgid"),
            (Field::Fsgid, "fsgid"),
            (Field::ObjGid, "obj_gid"),
        ],
    },
    FieldFamily {
        kind: ValueKind::Unsigned,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::NoBits,
        lists: ListSet::NotFilesystem,
        names: &[(Field::Pid, "pid")],
    },
    FieldFamily {
        kind: ValueKind::Unsigned,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::Any,
        lists: ListSet::NotFilesystem,
        names: &[(Field::Pers, "pers")],
    },
    FieldFamily {
        kind: ValueKind::Unsigned,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::NoBits,
        lists: ListSet::Exit,
        names: &[
            (Field::Ppid, "ppid"),
            (Field::DevMajor, "devmajor"),
            (Field::Success, "success"),
        ],
    },
    FieldFamily {
        kind: ValueKind::Unsigned,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::Any,
        lists: ListSet::Exit,
        names: &[(Field::DevMinor, "devminor")],
    },
    FieldFamily {
        kind: ValueKind::Low32,
        parser_ops: OpSet::Equality,
        kernel_ops: OpSet::NoBits,
        lists: ListSet::Exit,
        names: &[(Field::Inode, "inode")],
    },
    FieldFamily {
        kind: ValueKind::Argument,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::Any,
        lists: ListSet::NotFilesystem,
        names: &[
            (Field::A0, "a0"),
            (Field::A1, "a1"),
            (Field::A2, "a2"),
            (Field::A3, "a3"),
        ],
    },
    FieldFamily {
        kind: ValueKind::Exit,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::NoBits,
        lists: ListSet::Exit,
        names: &[(Field::Exit, "exit")],
    },
    FieldFamily {
        kind: ValueKind::Arch,
        parser_ops: OpSet::Equality,
        kernel_ops: OpSet::Equality,
        lists: ListSet::NotFilesystem,
        names: &[(Field::Arch, "arch")],
    },
    FieldFamily {
        kind: ValueKind::MsgType,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::NoBits,
        lists: ListSet::ExcludeUser,
        names: &[(Field::MsgType, "msgtype")],
    },
    FieldFamily {
        kind: ValueKind::Session,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::NoBits,
        lists: ListSet::ExcludeUserExit,
        names: &[(Field::SessionId, "sessionid")],
    },
    FieldFamily {
        kind: ValueKind::SocketFamily,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::NoBits,
        lists: ListSet::NotFilesystem,
        names: &[(Field::SaddrFam, "saddr_fam")],
    },
    FieldFamily {
        kind: ValueKind::FileType,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::Equality,
        lists: ListSet::Exit,
        names: &[(Field::FileType, "filetype")],
    },
    FieldFamily {
        kind: ValueKind::FsType,
        parser_ops: OpSet::Equality,
        kernel_ops: OpSet::Equality,
        lists: ListSet::Filesystem,
        names: &[(Field::FsType, "fstype")],
    },
    FieldFamily {
        kind: ValueKind::Perm,
        parser_ops: OpSet::Equal,
        kernel_ops: OpSet::Equality,
        lists: ListSet::ExitExclude,
        names: &[(Field::Perm, "perm")],
    },
    FieldFamily {
        kind: ValueKind::Path,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::Equal,
        lists: ListSet::Exit,
        names: &[(Field::Path, "path")],
    },
    FieldFamily {
        kind: ValueKind::Dir,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::Equal,
        lists: ListSet::Exit,
        names: &[(Field::Dir, "dir")],
    },
    FieldFamily {
        kind: ValueKind::Path,
        parser_ops: OpSet::Equality,
        kernel_ops: OpSet::Equality,
        lists: ListSet::NotFilesystem,
        names: &[(Field::Exe, "exe")],
    },
    FieldFamily {
        kind: ValueKind::Label,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::Equality,
        lists: ListSet::NotFilesystem,
        names: &[
            (Field::SubjUser, "subj_user"),
            (Field::SubjRole, "subj_role"),
            (Field::SubjType, "subj_type"),
        ],
    },
    FieldFamily {
        kind: ValueKind::Label,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::NoBits,
        lists: ListSet::NotFilesystem,
        names: &[(Field::SubjSen, "subj_sen"), (Field::SubjClr, "subj_clr")],
    },
    FieldFamily {
        kind: ValueKind::Label,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::Equality,
        lists: ListSet::Exit,
        names: &[
            (Field::ObjUser, "obj_user"),
            (Field::ObjRole, "obj_role"),
            (Field::ObjType, "obj_type"),
        ],
    },
    FieldFamily {
        kind: ValueKind::Label,
        parser_ops: OpSet::Any,
        kernel_ops: OpSet::NoBits,
        lists: ListSet::Exit,
        names: &[
            (Field::ObjLevLow, "obj_lev_low"),
            (Field::ObjLevHigh, "obj_lev_high"),
        ],
    },
];

/// Every name of every field.
pub(super) fn all() -> impl Iterator<Item = FieldSpec> {
    FIELD_FAMILIES.iter().flat_map(|family| {
        let FieldFamily {
            kind,
            parser_ops,
            kernel_ops,
            lists,
            names,
        } = *family;
        names.iter().map(move |&(field, name)| FieldSpec {
            field,
            name,
            kind,
            parser_ops,
            kernel_ops,
            lists,
        })
    })
}

/// Returns the field with a name, ignoring case.
pub(super) fn by_name(name: &[u8]) -> Option<FieldSpec> {
    all().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()))
}

/// Returns the properties of `field`.
pub(super) fn spec(field: Field) -> Option<FieldSpec> {
    all().find(|spec| spec.field == field)
}

/// Name under which a field is printed.
pub(crate) fn name(field: Field) -> &'static str {
    spec(field).map_or("", |spec| spec.name)
}

/// Lists on which `auditctl` accepts a field; `None` if it leaves the check to the kernel.
///
/// # Source
/// `audit_rule_fieldpair_data()` in `lib/libaudit.c` of audit-userspace 3.0.9 and 4.2.
pub(super) fn auditctl_lists(field: Field, dialect: Dialect) -> Option<&'static [List]> {
    Some(match field {
        Field::Exit
        | Field::Success
        | Field::Ppid
        | Field::DevMajor
        | Field::DevMinor
        | Field::Inode
        | Field::Path
        | Field::Dir
        | Field::FileType
        | Field::ObjUser
        | Field::ObjRole
        | Field::ObjType
        | Field::ObjLevLow
        | Field::ObjLevHigh => &[List::Exit],
        Field::Perm => match dialect {
            Dialect::V3 => &[List::Exit],
            Dialect::V4 => &[List::Exit, List::Exclude],
        },
        Field::MsgType => &[List::Exclude, List::User],
        Field::SessionId => &[List::Exclude, List::User, List::Exit],
        Field::FsType => &[List::Filesystem],
        _ => return None,
    })
}

/// Whether the kernel evaluates `field` on the user and exclude lists. At a rule with any other field it stops
/// evaluating the list and keeps the record.
///
/// # Source
/// `audit_filter()` in `kernel/auditfilter.c`, Linux 6.12.
pub(super) fn evaluated_for_messages(field: Field) -> bool {
    matches!(
        field,
        Field::Pid
            | Field::Uid
            | Field::Gid
            | Field::Auid
            | Field::MsgType
            | Field::SubjUser
            | Field::SubjRole
            | Field::SubjType
            | Field::SubjSen
            | Field::SubjClr
            | Field::Exe
    )
}

/// Operators and their spelling, in the order in which a condition is searched for them.
///
/// # Source
/// `audit_rule_fieldpair_data()` in `lib/libaudit.c` of audit-userspace 4.2.
pub(super) const OPERATORS: [(&str, Op); 8] = [
    ("!=", Op::NotEqual),
    (">=", Op::GreaterOrEqual),
    ("<=", Op::LessOrEqual),
    ("&=", Op::BitTest),
    ("=", Op::Equal),
    (">", Op::Greater),
    ("<", Op::Less),
    ("&", Op::BitMask),
];

/// Spelling of an operator.
pub(super) fn operator(op: Op) -> &'static str {
    OPERATORS
        .iter()
        .find(|&&(_, other)| other == op)
        .map_or("", |&(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_found_by_name_in_any_case() {
        for spec in all() {
            let found = by_name(spec.name.to_ascii_uppercase().as_bytes()).unwrap();
            assert_eq!(found.field, spec.field, "{}", spec.name);
        }
        assert_eq!(all().count(), 44);
        assert_eq!(name(Field::Auid), "auid");
        assert!(by_name(b"a4").is_none());
    }
}
