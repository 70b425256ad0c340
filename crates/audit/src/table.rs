//! Names and numbers of syscalls, errno values, record types, file types and archs.
//!
//! Look-ups by name ignore case, as `auditctl` does. `cargo xtask tables` generates the tables of syscalls and
//! errno values from kernel headers. [`syscalls`] adds the names that differ in `auditctl`.

mod generated;
mod msg_type;
mod syscalls;

use std::cmp::Ordering;
use std::sync::LazyLock;

use crate::ids::{Arch, Dialect, MsgType};

use generated::errno;
pub use syscalls::{
    listed_syscall_name, syscall_name, syscall_names, syscall_number, syscall_number_in,
};

static ERRNO: LazyLock<NameTable> = LazyLock::new(|| NameTable::new(errno::BY_NUMBER));

static MSG_TYPES: LazyLock<NameTable> = LazyLock::new(|| NameTable::new(msg_type::BY_NUMBER));

/// # Source
/// `S_IFMT` values of `inode(7)`; the names are those of `auditctl(8)`.
static FILE_TYPES: LazyLock<NameTable> = LazyLock::new(|| {
    NameTable::new(&[
        (0o010_000, "fifo"),
        (0o020_000, "character"),
        (0o040_000, "dir"),
        (0o060_000, "block"),
        (0o100_000, "file"),
        (0o120_000, "link"),
        (0o140_000, "socket"),
    ])
});

/// # Source
/// `include/uapi/linux/magic.h`, Linux 6.12; the names are those that `auditctl(8)` knows.
static FS_TYPES: LazyLock<NameTable> = LazyLock::new(|| {
    NameTable::new(&[
        (0x0027_e0eb, "cgroup"),
        (0x6367_7270, "cgroup2"),
        (0x6462_6720, "debugfs"),
        (0x7472_6163, "tracefs"),
    ])
});

/// The operations that the kernel audits: those without `audit_skip` in `io_uring/opdef.c`.
///
/// # Source
/// `enum io_uring_op` in `include/uapi/linux/io_uring.h`, Linux 6.19.
static URING_OPS: LazyLock<NameTable> = LazyLock::new(|| {
    NameTable::new(&[
        (9, "sendmsg"),
        (10, "recvmsg"),
        (13, "accept"),
        (16, "connect"),
        (17, "fallocate"),
        (18, "openat"),
        (19, "close"),
        (28, "openat2"),
        (34, "shutdown"),
        (35, "renameat"),
        (36, "unlinkat"),
        (37, "mkdirat"),
        (38, "symlinkat"),
        (39, "linkat"),
        (40, "msg_ring"),
        (41, "fsetxattr"),
        (42, "setxattr"),
        (43, "fgetxattr"),
        (44, "getxattr"),
        (46, "uring_cmd"),
        (48, "sendmsg_zc"),
        (50, "waitid"),
        (51, "futex_wait"),
        (52, "futex_wake"),
        (53, "futex_waitv"),
        (54, "fixed_fd_install"),
        (55, "ftruncate"),
        (56, "bind"),
        (57, "listen"),
        (64, "uring_cmd128"),
    ])
});

/// Machine names of `-F arch=`.
///
/// # Source
/// `lib/machinetab.h` of audit-userspace 4.2.
const MACHINES: &[(Arch, &str)] = &[
    (Arch::X86_64, "x86_64"),
    (Arch::I386, "i386"),
    (Arch::I386, "i486"),
    (Arch::I386, "i586"),
    (Arch::I386, "i686"),
    (Arch::AARCH64, "aarch64"),
    (Arch::ARM, "arm"),
    (Arch::ARM, "armeb"),
    (Arch::ARM, "armv5tejl"),
    (Arch::ARM, "armv5tel"),
    (Arch::ARM, "armv6l"),
    (Arch::ARM, "armv7l"),
    (Arch::ARM, "armv8l"),
    (Arch::PPC, "ppc"),
    (Arch::PPC64, "ppc64"),
    (Arch::PPC64LE, "ppc64le"),
    (Arch::S390, "s390"),
    (Arch::S390X, "s390x"),
    (Arch::RISCV32, "riscv32"),
    (Arch::RISCV64, "riscv64"),
];

/// Name of an error; the number is positive.
#[must_use]
pub fn errno_name(errno: i32) -> Option<&'static str> {
    ERRNO.name(u32::try_from(errno).ok()?)
}

/// Number of the error called `name`, positive.
#[must_use]
pub fn errno_number(name: &[u8]) -> Option<i32> {
    i32::try_from(ERRNO.number(name)?).ok()
}

/// Names of all errors.
pub fn errno_names() -> impl Iterator<Item = &'static str> {
    ERRNO.names()
}

/// Name of a record type.
#[must_use]
pub fn msg_type_name(number: MsgType) -> Option<&'static str> {
    MSG_TYPES.name(number.0.into())
}

/// Number of the record type called `name`.
#[must_use]
pub fn msg_type_number(name: &[u8]) -> Option<MsgType> {
    // Most records have one of these types.
    let usual = match name {
        b"SYSCALL" => Some(MsgType::SYSCALL),
        b"PATH" => Some(MsgType::PATH),
        b"CWD" => Some(MsgType::CWD),
        b"PROCTITLE" => Some(MsgType::PROCTITLE),
        b"EXECVE" => Some(MsgType::EXECVE),
        b"SOCKADDR" => Some(MsgType::SOCKADDR),
        b"EOE" => Some(MsgType::EOE),
        _ => None,
    };
    usual.or_else(|| u16::try_from(MSG_TYPES.number(name)?).ok().map(MsgType))
}

/// Names of all record types.
pub fn msg_type_names() -> impl Iterator<Item = &'static str> {
    MSG_TYPES.names()
}

/// `S_IFMT` bits of the file type called `name`.
#[must_use]
pub fn file_type_number(name: &[u8]) -> Option<u32> {
    FILE_TYPES.number(name)
}

/// Names of all file types.
pub fn file_type_names() -> impl Iterator<Item = &'static str> {
    FILE_TYPES.names()
}

/// Magic numbers of the file systems that version 3 of `auditctl` does not know: cgroup and cgroup2.
///
/// # Source
/// Answers of audit-userspace 3.0.9 in `tests/golden/auditctl/rules`.
const FS_TYPES_ABSENT_FROM_V3: [u32; 2] = [0x0027_e0eb, 0x6367_7270];

fn has_fs_type(magic: u32, dialect: Dialect) -> bool {
    dialect == Dialect::V4 || !FS_TYPES_ABSENT_FROM_V3.contains(&magic)
}

/// Name of a file system in rules, given its magic number.
#[must_use]
pub fn fs_type_name(magic: u32, dialect: Dialect) -> Option<&'static str> {
    FS_TYPES.name(magic).filter(|_| has_fs_type(magic, dialect))
}

/// Magic number of a file system in rules, given its name.
#[must_use]
pub fn fs_type_number(name: &[u8], dialect: Dialect) -> Option<u32> {
    FS_TYPES
        .number(name)
        .filter(|&magic| has_fs_type(magic, dialect))
}

/// Names of all file systems that rules name.
pub fn fs_type_names() -> impl Iterator<Item = &'static str> {
    FS_TYPES.names()
}

/// Name of an `io_uring` operation that the kernel audits.
#[must_use]
pub fn uring_op_name(number: u32) -> Option<&'static str> {
    URING_OPS.name(number)
}

/// Number of the `io_uring` operation called `name`, among those that the kernel audits.
#[must_use]
pub fn uring_op_number(name: &[u8]) -> Option<u32> {
    URING_OPS.number(name)
}

/// Names of all `io_uring` operations that the kernel audits.
pub fn uring_op_names() -> impl Iterator<Item = &'static str> {
    URING_OPS.names()
}

/// Arch of the machine called `name`.
#[must_use]
pub fn arch_by_name(name: &[u8]) -> Option<Arch> {
    let &(arch, _) = MACHINES
        .iter()
        .find(|(_, machine)| name.eq_ignore_ascii_case(machine.as_bytes()))?;
    Some(arch)
}

/// Machine name of an arch.
#[must_use]
pub fn arch_name(arch: Arch) -> Option<&'static str> {
    MACHINES
        .iter()
        .find(|&&(known, _)| known == arch)
        .map(|&(_, machine)| machine)
}

/// Names of all machines.
pub fn arch_names() -> impl Iterator<Item = &'static str> {
    MACHINES.iter().map(|&(_, machine)| machine)
}

/// Returns the arch of `b32` on a host whose `b64` is `native`.
#[must_use]
pub fn arch_32(native: Arch) -> Option<Arch> {
    match native {
        Arch::X86_64 => Some(Arch::I386),
        Arch::AARCH64 => Some(Arch::ARM),
        Arch::PPC64 => Some(Arch::PPC),
        Arch::S390X => Some(Arch::S390),
        Arch::RISCV64 => Some(Arch::RISCV32),
        _ => None,
    }
}

/// A table for look-ups by name and by number.
struct NameTable {
    /// Sorted by number. The primary name of a number is first.
    by_number: &'static [(u32, &'static str)],
    /// Sorted by name, ignoring case.
    by_name: Vec<(&'static str, u32)>,
}

impl NameTable {
    fn new(by_number: &'static [(u32, &'static str)]) -> Self {
        let mut by_name: Vec<_> = by_number
            .iter()
            .map(|&(number, name)| (name, number))
            .collect();
        by_name.sort_unstable_by(|a, b| cmp_ignore_case(a.0.as_bytes(), b.0.as_bytes()));
        Self { by_number, by_name }
    }

    fn name(&self, number: u32) -> Option<&'static str> {
        let index = self.by_number.partition_point(|&(other, _)| other < number);
        let &(found, name) = self.by_number.get(index)?;
        (found == number).then_some(name)
    }

    fn number(&self, name: &[u8]) -> Option<u32> {
        let index = self
            .by_name
            .binary_search_by(|(other, _)| cmp_ignore_case(other.as_bytes(), name));
        self.by_name.get(index.ok()?).map(|&(_, number)| number)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.by_number.iter().map(|&(_, name)| name)
    }
}

#[cfg(test)]
impl NameTable {
    #[track_caller]
    fn assert_sound(&self, title: &str) {
        assert!(
            self.by_number.is_sorted_by_key(|&(number, _)| number),
            "{title}"
        );
        let names: std::collections::BTreeSet<String> = self
            .by_name
            .iter()
            .map(|(name, _)| name.to_ascii_lowercase())
            .collect();
        assert_eq!(names.len(), self.by_number.len(), "{title}");
    }
}

fn cmp_ignore_case(a: &[u8], b: &[u8]) -> Ordering {
    a.iter()
        .map(u8::to_ascii_lowercase)
        .cmp(b.iter().map(u8::to_ascii_lowercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [(&'static str, &'static NameTable); 5] {
        [
            ("errno", &ERRNO),
            ("record types", &MSG_TYPES),
            ("file types", &FILE_TYPES),
            ("file systems", &FS_TYPES),
            ("io_uring", &URING_OPS),
        ]
    }

    #[test]
    fn tables_are_sorted_and_names_unique() {
        for (title, table) in all() {
            table.assert_sound(title);
        }
    }

    #[test]
    fn names_and_numbers_round_trip() {
        for (title, table) in all() {
            for &(number, name) in table.by_number {
                assert_eq!(
                    table.number(name.as_bytes()),
                    Some(number),
                    "{title}: {name}"
                );
                let upper = name.to_ascii_uppercase();
                assert_eq!(
                    table.number(upper.as_bytes()),
                    Some(number),
                    "{title}: {upper}"
                );
                let proper = table.name(number).unwrap();
                assert_eq!(
                    table.number(proper.as_bytes()),
                    Some(number),
                    "{title}: {proper}"
                );
            }
        }
    }

    #[test]
    fn errno_aliases_have_one_primary_name() {
        assert_eq!(errno_name(11), Some("EAGAIN"));
        assert_eq!(errno_number(b"EWOULDBLOCK"), Some(11));
        assert_eq!(errno_number(b"eacces"), Some(13));
        assert_eq!(errno_name(-13), None);
    }

    #[test]
    fn record_types_have_kernel_numbers() {
        assert_eq!(msg_type_number(b"SYSCALL"), Some(MsgType::SYSCALL));
        assert_eq!(msg_type_name(MsgType::EOE), Some("EOE"));
        assert_eq!(msg_type_number(b"CRYPTO_KEY_USER"), Some(MsgType(2404)));
    }

    #[test]
    fn machine_names_and_archs_round_trip() {
        assert_eq!(arch_by_name(b"I686"), Some(Arch::I386));
        assert_eq!(arch_by_name(b"vax"), None);
        for &(arch, _) in MACHINES {
            assert_eq!(
                arch_by_name(arch_name(arch).unwrap().as_bytes()),
                Some(arch)
            );
        }
        assert_eq!(arch_32(Arch::X86_64), Some(Arch::I386));
        assert_eq!(arch_32(Arch::I386), None);
    }
}
