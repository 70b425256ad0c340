//! Numbers that cross the audit ABI, each a type of its own, each with its "unset".

use std::fmt;

/// ABI of a syscall, as the audit system numbers it: an ELF machine plus 64-bit and endian flags.
///
/// # Source
/// `AUDIT_ARCH_*` in `include/uapi/linux/audit.h`, Linux 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch(pub u32);

impl Arch {
    /// `x86_64`, `b64` on an x86 machine.
    pub const X86_64: Self = Self(0xc000_003e);
    /// i386, `b32` on an x86 machine.
    pub const I386: Self = Self(0x4000_0003);
    /// aarch64.
    pub const AARCH64: Self = Self(0xc000_00b7);
    /// 32-bit arm, `b32` on aarch64.
    pub const ARM: Self = Self(0x4000_0028);
    /// 32-bit big-endian PowerPC.
    pub const PPC: Self = Self(0x14);
    /// 64-bit big-endian PowerPC.
    pub const PPC64: Self = Self(0x8000_0015);
    /// 64-bit little-endian PowerPC.
    pub const PPC64LE: Self = Self(0xc000_0015);
    /// 31-bit s390.
    pub const S390: Self = Self(0x16);
    /// 64-bit s390.
    pub const S390X: Self = Self(0x8000_0016);
    /// 64-bit RISC-V.
    pub const RISCV64: Self = Self(0xc000_00f3);
    /// 32-bit RISC-V.
    pub const RISCV32: Self = Self(0x4000_00f3);

    /// Whether it is for programs of 64 bits.
    ///
    /// # Source
    /// `__AUDIT_ARCH_64BIT` in `include/uapi/linux/audit.h`, Linux 6.12.
    #[must_use]
    pub const fn is_64_bit(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }

    /// `64-bit` or `32-bit`.
    #[must_use]
    pub const fn bits(self) -> &'static str {
        if self.is_64_bit() { "64-bit" } else { "32-bit" }
    }
}

impl fmt::LowerHex for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// Number of a syscall; only together with an [`Arch`] does it name one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Syscall(pub u32);

impl Syscall {
    /// None: of an operation of `io_uring` that does what no call does.
    pub const NONE: Self = Self(u32::MAX);
}

/// Login uid: who logged in, whatever the task has become since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Auid(pub u32);

impl Auid {
    /// No one logged in: a daemon, or the kernel itself.
    pub const UNSET: Self = Self(u32::MAX);
}

/// Number that the records of one event share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(pub u32);

impl Serial {
    /// First serial tollgate uses. The kernel counts its own events from 1, so that the two cannot
    /// meet in one millisecond before it has recorded two thousand million of them.
    pub const FIRST: Self = Self(0x8000_0001);

    /// The serial after this one; stays in tollgate's half of the range.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1) | 0x8000_0000)
    }
}

/// Device number as the kernel keeps it: 12 bits of major above 20 bits of minor.
///
/// # Source
/// `MINORBITS` in `include/linux/kdev_t.h`, Linux 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dev(pub u32);

impl Dev {
    /// Major number.
    #[must_use]
    pub const fn major(self) -> u32 {
        self.0 >> 20
    }

    /// Minor number.
    #[must_use]
    pub const fn minor(self) -> u32 {
        self.0 & 0xf_ffff
    }
}

/// Type of a record.
///
/// # Source
/// `include/uapi/linux/audit.h`, Linux 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MsgType(pub u16);

impl MsgType {
    /// What a user wants to have recorded.
    pub const USER: Self = Self(1005);
    /// The daemon itself has failed at something.
    pub const DAEMON_ERR: Self = Self(1209);
    /// Rules or settings were changed, or were not.
    pub const CONFIG_CHANGE: Self = Self(1305);
    /// The call itself: who, what, outcome.
    pub const SYSCALL: Self = Self(1300);
    /// One object that the call named.
    pub const PATH: Self = Self(1302);
    /// Socket address of the call.
    pub const SOCKADDR: Self = Self(1306);
    /// Working directory of the task.
    pub const CWD: Self = Self(1307);
    /// Arguments of a program that was started.
    pub const EXECVE: Self = Self(1309);
    /// End of a multi-record event.
    pub const EOE: Self = Self(1320);
    /// Command line of the task.
    pub const PROCTITLE: Self = Self(1327);
}

/// Version of `auditctl` whose syntax and output apply: the two in use differ in what they read, what they send
/// to the kernel, and how they list it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// audit-userspace 3.0.9.
    V3,
    /// audit-userspace 4.
    #[default]
    V4,
}
