//! Syscalls of each arch: the names of the kernel and of audit-userspace.
//!
//! The kernel's names come from its headers. audit-userspace has separate tables, in which a few syscalls have
//! other names. `auditctl` parses and lists only these; rules of tollgate accept both.

use std::sync::LazyLock;

use super::NameTable;
use super::generated::{
    syscalls_aarch64, syscalls_arm, syscalls_i386, syscalls_ppc, syscalls_ppc64, syscalls_riscv32,
    syscalls_riscv64, syscalls_s390x, syscalls_x86_64,
};
use crate::ids::Dialect;
use crate::ids::{Arch, Syscall};

/// The syscalls of one arch.
struct SyscallTable {
    /// Names of the kernel's headers.
    kernel: NameTable,
    /// Names of audit-userspace that differ, sorted by number. If a number has two names, the first is listed. For an
    /// arch without headers here, this is the whole table.
    userspace: NameTable,
    /// Numbers up to [`LAST_OF_V3`] that audit-userspace 3 does not have.
    absent_from_v3: &'static [u32],
    /// Fallback table: a related arch with the same numbers in audit-userspace or the kernel.
    base: Option<&'static LazyLock<Self>>,
}

/// Syscalls of audit-userspace 4.2 that are not in the headers yet; the same on every arch.
///
/// # Source
/// `lib/*_table.h` of audit-userspace 4.2.1.
const NEWEST: &[(u32, &str)] = &[(470, "listns"), (471, "rseq_slice_yield")];

/// Highest number in the tables of audit-userspace 3.0.9, on every arch.
const LAST_OF_V3: u32 = 450;

/// # Source
/// Differences between `lib/*_table.h` of audit-userspace 3.0.9 and 4.2.1 and the headers of Linux 6.17, compared
/// by number.
static X86_64: LazyLock<SyscallTable> = LazyLock::new(|| SyscallTable {
    kernel: NameTable::new(syscalls_x86_64::BY_NUMBER),
    userspace: NameTable::new(&[(17, "pread"), (18, "pwrite")]),
    absent_from_v3: &[],
    base: None,
});

static I386: LazyLock<SyscallTable> = LazyLock::new(|| SyscallTable {
    kernel: NameTable::new(syscalls_i386::BY_NUMBER),
    userspace: NameTable::new(&[
        (219, "madvise"),
        (219, "madvise1"),
        (283, "sys_kexec_load"),
        (423, "sched_rr_get_interval64"),
    ]),
    absent_from_v3: &[],
    base: None,
});

static AARCH64: LazyLock<SyscallTable> = LazyLock::new(|| SyscallTable {
    kernel: NameTable::new(syscalls_aarch64::BY_NUMBER),
    userspace: NameTable::new(&[
        (61, "getdents"),
        (67, "pread"),
        (68, "pwrite"),
        (80, "newfstat"),
    ]),
    absent_from_v3: &[],
    base: None,
});

static ARM: LazyLock<SyscallTable> = LazyLock::new(|| SyscallTable {
    kernel: NameTable::new(syscalls_arm::BY_NUMBER),
    userspace: NameTable::new(&[
        (13, "time"),
        (22, "umount"),
        (25, "stime"),
        (27, "alarm"),
        (30, "utime"),
        (76, "getrlimit"),
        (82, "select"),
        (89, "readdir"),
        (90, "mmap"),
        (102, "socketcall"),
        (113, "syscall"),
        (117, "ipc"),
        (140, "llseek"),
        (142, "newselect"),
        (149, "sysctl"),
        (270, "fadvise64_64"),
        (341, "sync_file_range"),
        (423, "sched_rr_get_interval64"),
    ]),
    absent_from_v3: &[335, 336, 346],
    base: None,
});

static PPC: LazyLock<SyscallTable> = LazyLock::new(|| SyscallTable {
    kernel: NameTable::new(syscalls_ppc::BY_NUMBER),
    userspace: NameTable::new(&[
        (179, "pread"),
        (180, "pwrite"),
        (306, "timerfd"),
        (319, "perf_counter_open"),
        (392, "semtimedop"),
    ]),
    absent_from_v3: &[0, 256, 258, 259, 260, 261],
    base: None,
});

/// audit-userspace has one table for both widths, so 32-bit syscalls have names here too.
static PPC64: LazyLock<SyscallTable> = LazyLock::new(|| SyscallTable {
    kernel: NameTable::new(syscalls_ppc64::BY_NUMBER),
    userspace: NameTable::new(&[
        (179, "pread"),
        (180, "pwrite"),
        (291, "fstatat64"),
        (306, "timerfd"),
        (319, "perf_counter_open"),
    ]),
    absent_from_v3: &[0, 256, 258, 259, 260, 261],
    base: Some(&PPC),
});

/// Numbers of s390x and s390 that audit-userspace 3 does not have.
const ABSENT_FROM_V3_S390: &[u32] = &[
    7, 110, 220, 268, 269, 270, 287, 310, 378, 392, 393, 394, 395, 396, 397, 398, 399, 400, 401,
    402, 447,
];

static S390X: LazyLock<SyscallTable> = LazyLock::new(|| SyscallTable {
    kernel: NameTable::new(syscalls_s390x::BY_NUMBER),
    userspace: NameTable::new(&[(180, "pread"), (181, "pwrite")]),
    absent_from_v3: ABSENT_FROM_V3_S390,
    base: None,
});

/// There are no 31-bit headers here. The differences from s390x are those of audit-userspace.
static S390: LazyLock<SyscallTable> = LazyLock::new(|| SyscallTable {
    kernel: NameTable::new(&[]),
    userspace: NameTable::new(S390_USERSPACE),
    absent_from_v3: ABSENT_FROM_V3_S390,
    base: Some(&S390X),
});

const S390_USERSPACE: &[(u32, &str)] = &[
    (13, "time"),
    (16, "lchown"),
    (23, "setuid"),
    (24, "getuid"),
    (25, "stime"),
    (46, "setgid"),
    (47, "getgid"),
    (49, "geteuid"),
    (50, "getegid"),
    (70, "setreuid"),
    (71, "setregid"),
    (76, "getrlimit"),
    (80, "getgroups"),
    (81, "setgroups"),
    (95, "fchown"),
    (101, "ioperm"),
    (138, "setfsuid"),
    (139, "setfsgid"),
    (140, "_llseek"),
    (142, "_newselect"),
    (164, "setresuid"),
    (165, "getresuid"),
    (170, "setresgid"),
    (171, "getresgid"),
    (182, "chown"),
    (191, "ugetrlimit"),
    (192, "mmap2"),
    (193, "truncate64"),
    (194, "ftruncate64"),
    (195, "stat64"),
    (196, "lstat64"),
    (197, "fstat64"),
    (198, "lchown32"),
    (199, "getuid32"),
    (200, "getgid32"),
    (201, "geteuid32"),
    (202, "getegid32"),
    (203, "setreuid32"),
    (204, "setregid32"),
    (205, "getgroups32"),
    (206, "setgroups32"),
    (207, "fchown32"),
    (208, "setresuid32"),
    (209, "getresuid32"),
    (210, "setresgid32"),
    (211, "getresgid32"),
    (212, "chown32"),
    (213, "setuid32"),
    (214, "setgid32"),
    (215, "setfsuid32"),
    (216, "setfsgid32"),
    (221, "fcntl64"),
    (223, "sendfile64"),
    (264, "fadvise64_64"),
    (293, "fstatat64"),
    (403, "clock_gettime64"),
    (404, "clock_settime64"),
    (405, "clock_adjtime64"),
    (406, "clock_getres_time64"),
    (407, "clock_nanosleep_time64"),
    (408, "timer_gettime64"),
    (409, "timer_settime64"),
    (410, "timerfd_gettime64"),
    (411, "timerfd_settime64"),
    (412, "utimensat_time64"),
    (413, "pselect6_time64"),
    (414, "ppoll_time64"),
    (416, "io_pgetevents_time64"),
    (417, "recvmmsg_time64"),
    (418, "mq_timedsend_time64"),
    (419, "mq_timedreceive_time64"),
    (420, "semtimedop_time64"),
    (421, "rt_sigtimedwait_time64"),
    (422, "futex_time64"),
    (423, "sched_rr_get_interval_time64"),
];

static RISCV32: LazyLock<SyscallTable> = LazyLock::new(|| SyscallTable {
    kernel: NameTable::new(syscalls_riscv32::BY_NUMBER),
    userspace: NameTable::new(&[]),
    absent_from_v3: &[],
    base: None,
});

static RISCV64: LazyLock<SyscallTable> = LazyLock::new(|| SyscallTable {
    kernel: NameTable::new(syscalls_riscv64::BY_NUMBER),
    userspace: NameTable::new(&[]),
    absent_from_v3: &[],
    base: None,
});

impl SyscallTable {
    /// Name that `auditctl` lists.
    fn listed(&self, number: u32) -> Option<&'static str> {
        self.userspace
            .name(number)
            .or_else(|| self.kernel.name(number))
            .or_else(|| self.base?.listed(number))
            .or_else(|| newest(number))
    }

    fn number(&self, name: &[u8]) -> Option<u32> {
        self.userspace
            .number(name)
            .or_else(|| self.kernel.number(name))
            .or_else(|| self.base?.number(name))
            .or_else(|| {
                let &(number, _) = NEWEST
                    .iter()
                    .find(|(_, newest)| name.eq_ignore_ascii_case(newest.as_bytes()))?;
                Some(number)
            })
    }

    /// Whether the tables of a dialect have the number.
    fn has_number(&self, number: u32, dialect: Dialect) -> bool {
        match dialect {
            Dialect::V3 => number <= LAST_OF_V3 && !self.absent_from_v3.contains(&number),
            Dialect::V4 => true,
        }
    }
}

fn newest(number: u32) -> Option<&'static str> {
    let &(_, name) = NEWEST.iter().find(|&&(other, _)| other == number)?;
    Some(name)
}

/// The syscall `uretprobe`, which no audit-userspace has.
const URETPROBE: (Arch, u32) = (Arch::X86_64, 335);

/// Returns the kernel's name of a syscall; `None` if the number is unused or the arch has no table.
#[must_use]
pub fn syscall_name(arch: Arch, syscall: Syscall) -> Option<&'static str> {
    table(arch)?.kernel.name(syscall.0)
}

/// Returns the name of a syscall that `auditctl` lists; `None` if it lists the number.
#[must_use]
pub fn listed_syscall_name(arch: Arch, syscall: Syscall, dialect: Dialect) -> Option<&'static str> {
    let table = table(arch)?;
    let known = table.has_number(syscall.0, dialect) && (arch, syscall.0) != URETPROBE;
    known.then(|| table.listed(syscall.0)).flatten()
}

/// Returns the number of a syscall by its name in the kernel or in audit-userspace.
#[must_use]
pub fn syscall_number(arch: Arch, name: &[u8]) -> Option<Syscall> {
    table(arch)?.number(name).map(Syscall)
}

/// As [`syscall_number`], only for syscalls that the dialect has.
#[must_use]
pub fn syscall_number_in(arch: Arch, name: &[u8], dialect: Dialect) -> Option<Syscall> {
    let table = table(arch)?;
    let number = table.number(name)?;
    table.has_number(number, dialect).then_some(Syscall(number))
}

/// The kernel's names of all syscalls of an arch; none if it has no table.
pub fn syscall_names(arch: Arch) -> impl Iterator<Item = &'static str> {
    table(arch)
        .into_iter()
        .flat_map(|table| table.kernel.names())
}

fn table(arch: Arch) -> Option<&'static SyscallTable> {
    Some(match arch {
        Arch::X86_64 => &X86_64,
        Arch::I386 => &I386,
        Arch::AARCH64 => &AARCH64,
        Arch::ARM => &ARM,
        Arch::PPC => &PPC,
        Arch::PPC64 | Arch::PPC64LE => &PPC64,
        Arch::S390 => &S390,
        Arch::S390X => &S390X,
        Arch::RISCV32 => &RISCV32,
        Arch::RISCV64 => &RISCV64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Arch; 11] = [
        Arch::X86_64,
        Arch::I386,
        Arch::AARCH64,
        Arch::ARM,
        Arch::PPC,
        Arch::PPC64,
        Arch::PPC64LE,
        Arch::S390,
        Arch::S390X,
        Arch::RISCV32,
        Arch::RISCV64,
    ];

    #[test]
    fn tables_are_sorted_and_names_unique() {
        for arch in ALL {
            let table = table(arch).unwrap();
            table.kernel.assert_sound(&format!("{arch:#x}"));
            table.userspace.assert_sound(&format!("{arch:#x}, own"));
        }
    }

    #[test]
    fn syscall_names_and_numbers_round_trip() {
        for arch in ALL {
            for number in 0..2048 {
                for name in [
                    syscall_name(arch, Syscall(number)),
                    listed_syscall_name(arch, Syscall(number), Dialect::V3),
                    listed_syscall_name(arch, Syscall(number), Dialect::V4),
                ]
                .into_iter()
                .flatten()
                {
                    let found = syscall_number(arch, name.as_bytes());
                    assert_eq!(found, Some(Syscall(number)), "{arch:#x} {name}");
                }
            }
        }
    }

    #[test]
    fn syscalls_have_kernel_numbers() {
        for (arch, name, number) in [
            (Arch::X86_64, "openat", 257),
            (Arch::I386, "openat", 295),
            (Arch::X86_64, "read", 0),
            (Arch::I386, "restart_syscall", 0),
            (Arch::X86_64, "file_setattr", 469),
            (Arch::I386, "umount", 22),
            (Arch::I386, "umount2", 52),
            (Arch::AARCH64, "openat", 56),
            (Arch::ARM, "restart_syscall", 0),
            (Arch::PPC64LE, "openat", 286),
            (Arch::S390X, "openat", 288),
            (Arch::RISCV64, "openat", 56),
        ] {
            assert_eq!(
                syscall_number(arch, name.as_bytes()),
                Some(Syscall(number)),
                "{name}"
            );
            assert_eq!(syscall_name(arch, Syscall(number)), Some(name));
        }
        assert_eq!(syscall_number(Arch::X86_64, b"socketcall"), None);
        assert_eq!(syscall_name(Arch::X86_64, Syscall(400)), None);
        assert_eq!(syscall_name(Arch::X86_64, Syscall(u32::MAX)), None);
        assert_eq!(syscall_number(Arch(1), b"openat"), None);
    }

    #[test]
    fn both_spellings_parse_and_listing_uses_auditctls() {
        let pread = Syscall(17);
        for name in ["pread", "pread64", "PREAD64"] {
            assert_eq!(
                syscall_number(Arch::X86_64, name.as_bytes()),
                Some(pread),
                "{name}"
            );
        }
        assert_eq!(syscall_name(Arch::X86_64, pread), Some("pread64"));
        let listed = |arch, number| listed_syscall_name(arch, Syscall(number), Dialect::V4);
        assert_eq!(listed(Arch::X86_64, 17), Some("pread"));
        assert_eq!(listed(Arch::I386, 283), Some("sys_kexec_load"));
        assert_eq!(listed(Arch::I386, 219), Some("madvise"));
        assert_eq!(listed(Arch::X86_64, 335), None);
        assert_eq!(listed(Arch::X86_64, 470), Some("listns"));
        assert_eq!(syscall_name(Arch::X86_64, Syscall(470)), None);
    }

    #[test]
    fn version_3_lacks_newer_syscalls() {
        let number_v3 = |name: &str| syscall_number_in(Arch::X86_64, name.as_bytes(), Dialect::V3);
        assert_eq!(number_v3("set_mempolicy_home_node"), Some(Syscall(450)));
        assert_eq!(number_v3("fchmodat2"), None);
        let listed = |number| listed_syscall_name(Arch::X86_64, Syscall(number), Dialect::V3);
        assert_eq!(listed(450), Some("set_mempolicy_home_node"));
        assert_eq!(listed(452), None);
    }

    #[test]
    fn base_table_fills_gaps() {
        assert_eq!(syscall_number(Arch::S390, b"lchown"), Some(Syscall(16)));
        assert_eq!(syscall_number(Arch::S390X, b"lchown"), Some(Syscall(198)));
        assert_eq!(syscall_number(Arch::S390, b"openat"), Some(Syscall(288)));
        assert_eq!(
            syscall_number(Arch::PPC64LE, b"truncate64"),
            Some(Syscall(193))
        );
    }
}
