//! Perm classes: the letters of `perm=` that a syscall matches.
//!
//! The kernel decides `perm` by the syscall, not by its effect. For open syscalls it also checks the access mode;
//! `O_CREAT` and `O_TRUNC` do not count as writing.

use crate::ids::{Arch, Syscall};
use crate::rule::perm::{ATTR, EXEC, READ, WRITE};
use crate::table;

/// Source of the perm bits of a syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermClass {
    /// The syscall alone: these bits; 0 for a syscall without class.
    Fixed(u32),
    /// The access mode of the flags at this position; see [`access_mode`].
    Open(OpenFlags),
    /// The first argument: `WRITE` for [`SOCKETCALL_BIND`], otherwise none.
    SocketCall,
}

/// Position of the flags of an open syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFlags {
    /// The argument with this index.
    Argument(usize),
    /// The `struct open_how` of the third argument.
    OpenHow,
}

/// Number of bind in `socketcall`.
///
/// # Source
/// `SYS_BIND` in `include/uapi/linux/net.h`, Linux 6.12.
pub const SOCKETCALL_BIND: u32 = 2;

/// Perm bits of an access mode, given the flags of an open.
///
/// # Source
/// `ACC_MODE` in `include/linux/fs.h`, Linux 6.12: mode 3 permits neither reading nor writing but matches both.
#[must_use]
pub const fn access_mode(flags: u32) -> u32 {
    match flags & 3 {
        0 => READ,
        1 => WRITE,
        _ => READ | WRITE,
    }
}

/// Returns the class of a syscall. Numbers without a name have none.
///
/// # Source
/// `audit_match_perm` in `kernel/auditsc.c`, `lib/audit.c` and `include/asm-generic/audit_*.h`, Linux 6.12, and of
/// later kernels the syscalls for extended and file attributes that 6.12 does not have.
/// `auditctl` 4 uses a larger table to fill in `-S`.
#[must_use]
pub fn class(arch: Arch, syscall: Syscall) -> PermClass {
    match table::syscall_name(arch, syscall) {
        // The generic compat table has no execveat: `lib/compat_audit.c`.
        Some("execveat") if arch == Arch::ARM => PermClass::Fixed(0),
        Some(name) => by_name(name),
        None => PermClass::Fixed(0),
    }
}

/// One table for all ABIs: a name that only some of them have is in the class only there.
fn by_name(name: &str) -> PermClass {
    match name {
        "open" => PermClass::Open(OpenFlags::Argument(1)),
        "openat" => PermClass::Open(OpenFlags::Argument(2)),
        "openat2" => PermClass::Open(OpenFlags::OpenHow),
        "socketcall" => PermClass::SocketCall,
        "execve" | "execveat" => PermClass::Fixed(EXEC),
        "link" | "linkat" => PermClass::Fixed(WRITE | ATTR),
        "quotactl" => PermClass::Fixed(READ | WRITE),
        "rename" | "mkdir" | "rmdir" | "creat" | "unlink" | "symlink" | "mknod" | "mkdirat"
        | "mknodat" | "unlinkat" | "renameat" | "symlinkat" | "renameat2" | "acct" | "swapon"
        | "truncate" | "truncate64" | "ftruncate" | "ftruncate64" | "bind" | "fallocate" => {
            PermClass::Fixed(WRITE)
        }
        "readlink" | "readlinkat" | "listxattr" | "llistxattr" | "flistxattr" | "listxattrat"
        | "getxattr" | "lgetxattr" | "fgetxattr" | "getxattrat" => PermClass::Fixed(READ),
        "chmod" | "fchmod" | "fchmodat" | "fchmodat2" | "chown" | "lchown" | "fchown"
        | "fchownat" | "chown32" | "lchown32" | "fchown32" | "setxattr" | "lsetxattr"
        | "fsetxattr" | "setxattrat" | "removexattr" | "lremovexattr" | "fremovexattr"
        | "removexattrat" | "file_setattr" => PermClass::Fixed(ATTR),
        _ => PermClass::Fixed(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of a class on an arch, ascending.
    fn members(arch: Arch, bit: u32) -> Vec<u32> {
        (0..460)
            .filter(|&number| {
                matches!(class(arch, Syscall(number)), PermClass::Fixed(bits) if bits & bit != 0)
            })
            .collect()
    }

    #[test]
    fn x86_64_classes_match_the_kernel() {
        let write = [
            49, 76, 77, 82, 83, 84, 85, 86, 87, 88, 133, 163, 167, 179, 258, 259, 263, 264, 265,
            266, 285, 316,
        ];
        let attr = [
            86, 90, 91, 92, 93, 94, 188, 189, 190, 197, 198, 199, 260, 265, 268, 452,
        ];
        assert_eq!(members(Arch::X86_64, WRITE), write);
        assert_eq!(
            members(Arch::X86_64, READ),
            [89, 179, 191, 192, 193, 194, 195, 196, 267]
        );
        assert_eq!(members(Arch::X86_64, ATTR), attr);
        assert_eq!(members(Arch::X86_64, EXEC), [59, 322]);
    }

    #[test]
    fn i386_classes_have_the_64_bit_variants() {
        for (name, bits) in [
            ("truncate64", WRITE),
            ("ftruncate64", WRITE),
            ("lchown32", ATTR),
        ] {
            let syscall = table::syscall_number(Arch::I386, name.as_bytes()).unwrap();
            assert_eq!(class(Arch::I386, syscall), PermClass::Fixed(bits), "{name}");
        }
        assert_eq!(class(Arch::I386, Syscall(102)), PermClass::SocketCall);
        assert_eq!(
            class(Arch::I386, Syscall(5)),
            PermClass::Open(OpenFlags::Argument(1))
        );
    }

    #[test]
    fn aarch64_classes_lack_the_calls_without_a_descriptor() {
        let number = |name: &str| {
            let Syscall(number) = table::syscall_number(Arch::AARCH64, name.as_bytes()).unwrap();
            number
        };
        let numbers = |names: &[&str]| {
            let mut numbers: Vec<u32> = names.iter().map(|name| number(name)).collect();
            numbers.sort_unstable();
            numbers
        };
        assert_eq!(
            members(Arch::AARCH64, WRITE),
            numbers(&[
                "quotactl",
                "mknodat",
                "mkdirat",
                "unlinkat",
                "symlinkat",
                "linkat",
                "renameat",
                "truncate",
                "ftruncate",
                "fallocate",
                "acct",
                "bind",
                "swapon",
                "renameat2",
            ])
        );
        assert_eq!(members(Arch::AARCH64, EXEC), [221, 281]);
        assert_eq!(
            class(Arch::AARCH64, Syscall(56)),
            PermClass::Open(OpenFlags::Argument(2))
        );
        assert_eq!(table::syscall_number(Arch::AARCH64, b"open"), None);
    }

    #[test]
    fn arm_classes_are_those_of_the_generic_compat_table() {
        let class_of = |name: &str| {
            let syscall = table::syscall_number(Arch::ARM, name.as_bytes()).unwrap();
            class(Arch::ARM, syscall)
        };
        assert_eq!(class_of("open"), PermClass::Open(OpenFlags::Argument(1)));
        assert_eq!(class_of("truncate64"), PermClass::Fixed(WRITE));
        assert_eq!(class_of("fchown32"), PermClass::Fixed(ATTR));
        assert_eq!(class_of("execve"), PermClass::Fixed(EXEC));
        assert_eq!(class_of("execveat"), PermClass::Fixed(0));
    }

    #[test]
    fn opens_are_decided_by_flags() {
        assert_eq!(
            class(Arch::X86_64, Syscall(257)),
            PermClass::Open(OpenFlags::Argument(2))
        );
        assert_eq!(
            class(Arch::X86_64, Syscall(437)),
            PermClass::Open(OpenFlags::OpenHow)
        );
        assert_eq!([0, 1, 2, 3].map(access_mode), [4, 2, 6, 6]);
        assert_eq!(
            access_mode(0o1101),
            WRITE,
            "O_CREAT and O_TRUNC change nothing"
        );
    }

    #[test]
    fn read_and_stat_have_no_class() {
        for name in [
            "read",
            "write",
            "stat",
            "access",
            "chdir",
            "utimensat",
            "umount2",
            "mount",
        ] {
            let syscall = table::syscall_number(Arch::X86_64, name.as_bytes()).unwrap();
            assert_eq!(class(Arch::X86_64, syscall), PermClass::Fixed(0), "{name}");
        }
        assert_eq!(
            class(Arch(1), Syscall(56)),
            PermClass::Fixed(0),
            "no table, no class"
        );
    }
}
