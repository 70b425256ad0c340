//! Numbers of the audit ABI. Each has its own type, and a constant for "unset" where the ABI has one.

use std::fmt;

/// ABI of a syscall in the audit system's numbering: an ELF machine plus 64-bit and endian flags.
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
    /// aarch64, `b64` on an arm64 machine.
    pub const AARCH64: Self = Self(0xc000_00b7);
    /// 32-bit arm, `b32` on an arm64 machine.
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

    /// Whether the arch is a 64-bit one.
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

/// Architecture of a machine: gives the ABIs of `b64` and `b32`.
///
/// A plan is made for one architecture, and the BPF programs and filters of a build know only [`Self::BUILD`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NativeArch {
    /// x86-64, with i386 programs.
    X86_64,
    /// arm64, with 32-bit arm programs.
    Aarch64,
}

impl NativeArch {
    /// The architecture that this program is built for.
    #[cfg(target_arch = "x86_64")]
    pub const BUILD: Self = Self::X86_64;
    /// The architecture that this program is built for.
    #[cfg(target_arch = "aarch64")]
    pub const BUILD: Self = Self::Aarch64;

    /// ABI of `b64`.
    #[must_use]
    pub const fn b64(self) -> Arch {
        match self {
            Self::X86_64 => Arch::X86_64,
            Self::Aarch64 => Arch::AARCH64,
        }
    }

    /// ABI of `b32`.
    #[must_use]
    pub const fn b32(self) -> Arch {
        match self {
            Self::X86_64 => Arch::I386,
            Self::Aarch64 => Arch::ARM,
        }
    }

    /// ABIs of the architecture, `b64` first.
    #[must_use]
    pub const fn abis(self) -> [Arch; 2] {
        [self.b64(), self.b32()]
    }

    /// Architecture that has an ABI; `None` for an ABI of another machine.
    #[must_use]
    pub const fn with_abi(arch: Arch) -> Option<Self> {
        match arch {
            Arch::X86_64 | Arch::I386 => Some(Self::X86_64),
            Arch::AARCH64 | Arch::ARM => Some(Self::Aarch64),
            _ => None,
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "tollgate supports x86_64 and aarch64: other architectures need a variant of `NativeArch`"
);

impl Default for NativeArch {
    /// The architecture of the build.
    fn default() -> Self {
        Self::BUILD
    }
}

impl fmt::LowerHex for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// Syscall number. It identifies a syscall only together with an [`Arch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Syscall(pub u32);

impl Syscall {
    /// No syscall: for an `io_uring` operation without an equivalent syscall.
    pub const NONE: Self = Self(u32::MAX);
}

/// Login uid. It is set at login and does not change with the task's other ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Auid(pub u32);

impl Auid {
    /// Unset: the task belongs to no login, such as a system daemon.
    pub const UNSET: Self = Self(u32::MAX);
}

/// Serial number of an event. All records of the event have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(pub u32);

impl Serial {
    /// First serial that tollgate uses. The kernel counts its events from 1, so its serials differ from
    /// tollgate's until it has recorded 2^31 events.
    pub const FIRST: Self = Self(0x8000_0001);

    /// Whether the serial is in tollgate's half of the range.
    #[must_use]
    pub const fn is_tollgates(self) -> bool {
        self.0 >= 0x8000_0000
    }

    /// The next serial. It stays in tollgate's half of the range.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1) | 0x8000_0000)
    }
}

/// Device number in the kernel's format: 12 bits of major, 20 bits of minor.
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
    /// Text sent by a user, such as with `auditctl -m`.
    pub const USER: Self = Self(1005);
    /// Error of the audit daemon.
    pub const DAEMON_ERR: Self = Self(1209);
    /// Change of rules or settings, or a failed attempt.
    pub const CONFIG_CHANGE: Self = Self(1305);
    /// A syscall: task, arguments and result.
    pub const SYSCALL: Self = Self(1300);
    /// One object that the syscall named.
    pub const PATH: Self = Self(1302);
    /// Socket address of the syscall.
    pub const SOCKADDR: Self = Self(1306);
    /// Working directory of the task.
    pub const CWD: Self = Self(1307);
    /// Arguments of an executed program.
    pub const EXECVE: Self = Self(1309);
    /// End of a multi-record event.
    pub const EOE: Self = Self(1320);
    /// Command line of the task.
    pub const PROCTITLE: Self = Self(1327);
}

/// Version of `auditctl` to imitate. The versions differ in accepted syntax, in the rules that they send to the
/// kernel, and in their listings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// audit-userspace 3.0.9.
    V3,
    /// audit-userspace 4.
    #[default]
    V4,
}
