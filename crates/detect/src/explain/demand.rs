//! Events that audit rules must record.

use std::collections::BTreeSet;
use std::fmt;

use audit::ids::{Arch, NativeArch, Syscall};
use audit::plan::SyscallId;
use audit::plan::objects::objects;
use audit::plan::perm::{self, PermClass};
use audit::rule::{Field, FieldTest, Op, Value};
use audit::table;

use super::record_types::{EXEC, syscall_ids};
use crate::sigma::need::Place;

/// `O_ACCMODE`, `O_CREAT` and `O_TRUNC`: an open with one of them creates or writes a file.
const WRITES: u32 = 0o3 | 0o100 | 0o1000;
/// `O_CREAT`.
const CREATES: u32 = 0o100;

/// Syscalls that can give a file a new name, but for those with open flags in an argument.
const MAKE_NAMES: [&str; 11] = [
    "creat",
    "link",
    "linkat",
    "mknod",
    "mknodat",
    "openat2",
    "rename",
    "renameat",
    "renameat2",
    "symlink",
    "symlinkat",
];

/// Families of hosts.
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;

/// Numbers of operations in `socketcall`.
///
/// # Source
/// `SYS_CONNECT`, `SYS_ACCEPT` and `SYS_ACCEPT4` in `include/uapi/linux/net.h`, Linux 6.12.
const SYS_CONNECT: u32 = 3;
const SYS_ACCEPT: u32 = 5;
const SYS_ACCEPT4: u32 = 18;

/// What events are about, which is also the key of the audit rules that record them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Programs that are executed.
    Exec,
    /// Files that are created or written.
    File,
    /// Any access to a file, of the classes of `perm=`.
    Access,
    /// Connections to and from hosts.
    Network,
    /// Certain syscalls.
    Call,
    /// Every syscall.
    Every,
}

impl Kind {
    /// Key of audit rules.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Exec => "sigma-exec",
            Self::File => "sigma-file",
            Self::Access => "sigma-access",
            Self::Network => "sigma-net",
            Self::Call => "sigma-call",
            Self::Every => "sigma-all",
        }
    }
}

/// Events that audit rules must record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Demand {
    pub(super) kind: Kind,
    /// Where a name is.
    pub(super) place: Place,
    /// Conditions that all of the events meet; sorted.
    pub(super) tests: Vec<Condition>,
    /// Key that the events must have.
    pub(super) key: Option<String>,
    /// Syscalls.
    pub(super) syscalls: BTreeSet<SyscallId>,
    /// Types of the records that Sigma rules look at.
    pub(super) types: BTreeSet<String>,
}

/// A condition of an audit rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition(pub(super) FieldTest);

impl Condition {
    /// The field is this number.
    pub(super) fn number(field: Field, number: u32) -> Self {
        Self::new(field, Op::Equal, number)
    }

    fn new(field: Field, op: Op, number: u32) -> Self {
        let value = Value::Number(number);
        Self(FieldTest { field, op, value })
    }

    /// The program has this path.
    pub(super) fn program(path: &str) -> Self {
        Self(FieldTest {
            field: Field::Exe,
            op: Op::Equal,
            value: Value::Text(path.into()),
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FieldTest { field, op, value } = &self.0;
        write!(f, "{}{}", field.name(), op.symbol())?;
        match (field, value) {
            (Field::A0 | Field::A1 | Field::A2 | Field::A3, Value::Number(number)) => {
                write!(f, "{number:#x}")
            }
            (_, Value::Number(number)) => write!(f, "{number}"),
            (_, Value::Text(text)) => write!(f, "{text}"),
            (_, Value::Field(other)) => f.write_str(other.name()),
        }
    }
}

impl Ord for Condition {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |condition: &Self| (condition.0.field, condition.to_string());
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Condition {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Demand {
    /// Events of syscalls.
    pub(super) fn new(
        kind: Kind,
        syscalls: BTreeSet<SyscallId>,
        types: &[&str],
        mut tests: Vec<Condition>,
    ) -> Self {
        tests.sort();
        tests.dedup();
        Self {
            kind,
            place: Place::Anywhere,
            tests,
            key: None,
            syscalls,
            types: types.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// Programs that are executed.
    pub(super) fn exec(mut tests: Vec<Condition>, types: &[&str]) -> Self {
        tests.push(Condition::number(Field::Success, 1));
        Self::new(Kind::Exec, syscall_ids(EXEC).collect(), types, tests)
    }

    /// Files that are created or written, as [`crate::mapping`] maps them.
    pub(super) fn written_files(place: &Place) -> Vec<Self> {
        let others = [&MAKE_NAMES[..], &["truncate", "truncate64"]].concat();
        let opens = ["openat", "open_by_handle_at"];
        let demands = by_flags(&opens, WRITES, &others);
        let with = |(syscalls, mut tests): (_, Vec<_>)| {
            tests.push(Condition::number(Field::Success, 1));
            let demand = Self::new(Kind::File, syscalls, &["SYSCALL", "PATH"], tests);
            demand.at(place)
        };
        demands.into_iter().map(with).collect()
    }

    /// Names that are new.
    pub(super) fn created_names(place: &Place) -> Vec<Self> {
        let others = [&MAKE_NAMES[..], &["bind", "mkdir", "mkdirat"]].concat();
        let demands = by_flags(&["openat"], CREATES, &others).into_iter();
        let with = |(syscalls, tests)| Self::new(Kind::File, syscalls, &["PATH"], tests).at(place);
        demands.map(with).collect()
    }

    /// Any access to a file.
    pub(super) fn access(place: &Place) -> Self {
        Self::new(Kind::Access, accesses(), &["PATH"], Vec::new()).at(place)
    }

    /// Connections from or to this host.
    pub(super) fn connections(is_initiated: bool) -> Vec<Self> {
        let mut demands = Vec::new();
        let (names, operations): (&[&str], &[u32]) = match is_initiated {
            true => (&["connect"], &[SYS_CONNECT]),
            false => (&["accept", "accept4"], &[SYS_ACCEPT, SYS_ACCEPT4]),
        };
        for family in [AF_INET, AF_INET6] {
            let tests = || {
                let mut tests = vec![Condition::number(Field::SaddrFam, family)];
                // A connection can also be made in the background, which is a failure at first.
                tests.extend((!is_initiated).then(|| Condition::number(Field::Success, 1)));
                tests
            };
            let mut add = |names: &[&str], more: Option<Condition>| {
                let syscalls: BTreeSet<SyscallId> = syscall_ids(names).collect();
                if !syscalls.is_empty() {
                    let tests = tests().into_iter().chain(more).collect();
                    let types = ["SYSCALL", "SOCKADDR"];
                    demands.push(Self::new(Kind::Network, syscalls, &types, tests));
                }
            };
            add(names, None);
            for operation in operations {
                let operation = Condition::number(Field::A0, *operation);
                add(&["socketcall"], Some(operation));
            }
        }
        demands
    }

    /// Every syscall.
    pub(super) fn every(tests: Vec<Condition>, types: &[&str]) -> Self {
        let numbers = |arch: Arch| {
            let named = move |number: &u32| table::syscall_name(arch, Syscall(*number)).is_some();
            let numbers = (0..audit::rule::SyscallMask::LIMIT).filter(named);
            numbers.map(move |number| SyscallId {
                arch,
                syscall: Syscall(number),
            })
        };
        let has_result = tests.iter().any(|test| test.0.field == Field::Success);
        let syscalls = NativeArch::BUILD.abis().into_iter().flat_map(numbers);
        let syscalls = syscalls.filter(|syscall| !has_result || syscall.returns());
        Self::new(Kind::Every, syscalls.collect(), types, tests)
    }

    /// The same events, if they name something at a place.
    pub(super) fn at(mut self, place: &Place) -> Self {
        self.place = place.clone();
        self
    }

    /// Whether audit rules for it record so much that nobody wants them unasked: every access to any file, or every
    /// syscall.
    pub(super) fn is_excessive(&self) -> bool {
        match self.kind {
            Kind::Access => self.place == Place::Anywhere && self.tests.is_empty(),
            Kind::Every => true,
            _ => false,
        }
    }

    /// Whether each of its events of a syscall that both have is one of another one, with the key that it needs.
    pub(super) fn is_part_of(&self, other: &Self) -> bool {
        other.place.includes(&self.place)
            && other.tests.iter().all(|test| self.tests.contains(test))
            && (self.key.is_none() || other.key == self.key)
    }
}

/// Opens whose flags have a bit of a mask, and other syscalls, with the conditions that choose them.
fn by_flags(
    third: &[&str],
    mask: u32,
    others: &[&str],
) -> [(BTreeSet<SyscallId>, Vec<Condition>); 3] {
    let test = |field| vec![Condition::new(field, Op::BitMask, mask)];
    [
        (syscall_ids(others).collect(), Vec::new()),
        (syscall_ids(&["open"]).collect(), test(Field::A1)),
        (syscall_ids(third).collect(), test(Field::A2)),
    ]
}

/// Syscalls that `perm=rwxa` chooses, if they name an object; `socketcall` is not one of them, because only its `bind` is.
pub(super) fn accesses() -> BTreeSet<SyscallId> {
    let of = |arch: Arch| {
        (0..audit::rule::SyscallMask::LIMIT).filter_map(move |number| {
            let syscall = Syscall(number);
            let is_bind = table::syscall_name(arch, syscall) == Some("bind");
            match perm::class(arch, syscall) {
                _ if objects(arch, syscall).is_empty() && !is_bind => None,
                PermClass::Fixed(0) | PermClass::SocketCall => None,
                PermClass::Fixed(_) | PermClass::Open(_) => Some(SyscallId { arch, syscall }),
            }
        })
    };
    NativeArch::BUILD.abis().into_iter().flat_map(of).collect()
}
