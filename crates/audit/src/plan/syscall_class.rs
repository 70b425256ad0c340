//! Classes of syscalls: the highest numbers of `-S`, each for several syscalls.
//!
//! Rules written by hand do not use them, but other programs may. When a rule is loaded, the kernel replaces a
//! class with its syscalls, and lists the rule with these.

use crate::ids::{Arch, NativeArch, Syscall};
use crate::rule::SyscallMask;
use crate::rule::perm::{ATTR, READ, WRITE};
use crate::table;

use super::perm::{self, PermClass};

/// First number that is a class.
const FIRST: u32 = SyscallMask::LIMIT - 16;
/// Syscalls that change directories.
///
/// # Source
/// `include/asm-generic/audit_dir_write.h`, Linux 6.12.
const DIRECTORY: [&str; 15] = [
    "rename",
    "mkdir",
    "rmdir",
    "creat",
    "link",
    "unlink",
    "symlink",
    "mknod",
    "mkdirat",
    "mknodat",
    "unlinkat",
    "renameat",
    "linkat",
    "symlinkat",
    "renameat2",
];
/// `include/asm-generic/audit_signal.h`, Linux 6.12.
const SIGNAL: [&str; 3] = ["kill", "tkill", "tgkill"];

/// Whether a mask, other than that of all syscalls, has a class.
pub(super) fn has_class(syscalls: &SyscallMask) -> bool {
    !syscalls.is_all() && (FIRST..SyscallMask::LIMIT).any(|bit| syscalls.contains(bit))
}

/// Replaces classes with their syscalls. A number that is not a class is removed.
///
/// # Source
/// `audit_to_entry_common` in `kernel/auditfilter.c`, `audit_classes_init` in `arch/x86/kernel/audit_64.c` and
/// `lib/audit.c`, and `AUDIT_CLASS_*` in `include/uapi/linux/audit.h`, Linux 6.12.
pub(super) fn expand(syscalls: &mut SyscallMask, native: NativeArch) {
    for bit in FIRST..SyscallMask::LIMIT {
        if !syscalls.contains(bit) {
            continue;
        }
        syscalls.remove(bit);
        let number = SyscallMask::LIMIT - 1 - bit;
        let arch = if number.is_multiple_of(2) {
            native.b64()
        } else {
            native.b32()
        };
        for call in 0..FIRST {
            if is_member(number / 2, arch, Syscall(call)) {
                syscalls.insert(call);
            }
        }
    }
}

fn is_member(class: u32, arch: Arch, syscall: Syscall) -> bool {
    let Some(name) = table::syscall_name(arch, syscall) else {
        return false;
    };
    let has = |bit| matches!(perm::class(arch, syscall), PermClass::Fixed(bits) if bits & bit != 0);
    match class {
        0 => DIRECTORY.contains(&name),
        1 => has(ATTR),
        2 => has(READ),
        3 => has(WRITE),
        4 => SIGNAL.contains(&name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(numbers: &[u32]) -> Vec<u32> {
        expanded_on(NativeArch::X86_64, numbers)
    }

    fn expanded_on(native: NativeArch, numbers: &[u32]) -> Vec<u32> {
        let mut mask = SyscallMask::none();
        numbers.iter().for_each(|&number| mask.insert(number));
        assert!(has_class(&mask));
        expand(&mut mask, native);
        assert!(!has_class(&mask));
        (0..SyscallMask::LIMIT)
            .filter(|&number| mask.contains(number))
            .collect()
    }

    #[test]
    fn class_expands_to_the_syscalls_of_one_abi() {
        let directory = [
            82, 83, 84, 85, 86, 87, 88, 133, 258, 259, 263, 264, 265, 266, 316,
        ];
        assert_eq!(expanded(&[2047]), directory);
        // 32-bit: creat link unlink mknod rename mkdir rmdir symlink, and newer ones.
        let compat = [
            8, 9, 10, 14, 38, 39, 40, 83, 296, 297, 301, 302, 303, 304, 353,
        ];
        assert_eq!(expanded(&[2046]), compat);
        // The last two are newer than 6.12.
        let reads = [89, 179, 191, 192, 193, 194, 195, 196, 267, 464, 465];
        assert_eq!(expanded(&[2043]), reads);
        assert_eq!(expanded(&[2039]), [62, 200, 234]);
        assert_eq!(expanded(&[0, 2039]), [0, 62, 200, 234]);
    }

    #[test]
    fn class_expands_to_the_syscalls_of_arm64() {
        let on_arm64 = |numbers| expanded_on(NativeArch::Aarch64, numbers);
        assert_eq!(on_arm64(&[2047]), [33, 34, 35, 36, 37, 38, 276]);
        assert_eq!(on_arm64(&[2039]), [129, 130, 131]);
        assert_eq!(on_arm64(&[2038]), [37, 238, 268]);
    }

    #[test]
    fn unknown_class_is_removed() {
        assert_eq!(expanded(&[2032]), Vec::<u32>::new());
        assert_eq!(expanded(&[1, 2037]), [1]);
    }

    #[test]
    fn full_mask_has_no_class() {
        assert!(!has_class(&SyscallMask::all()));
        let mut plain = SyscallMask::none();
        plain.insert(2031);
        assert!(!has_class(&plain));
    }
}
