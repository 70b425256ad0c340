//! Syscalls that version 4 of `auditctl` adds to a rule with `perm` and an arch.
//!
//! Without them the rule would be asked about every syscall. The table is wider than the classes by
//! which the kernel then decides (see [`crate::plan::perm`]): it holds what looks at files, too.

use super::super::{SyscallMask, perm};
use crate::ids::Arch;
use crate::table;

const EXEC: &[&str] = &["execve", "execveat"];

const WRITE: &[&str] = &[
    "acct",
    "bind",
    "creat",
    "fallocate",
    "ftruncate",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "open",
    "openat",
    "openat2",
    "quotactl",
    "quotactl_fd",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "swapon",
    "symlink",
    "symlinkat",
    "truncate",
    "unlink",
    "unlinkat",
];

const READ: &[&str] = &[
    "fgetxattr",
    "file_getattr",
    "flistxattr",
    "fstat",
    "getxattr",
    "getxattrat",
    "lgetxattr",
    "listxattr",
    "listxattrat",
    "llistxattr",
    "lstat",
    "newfstatat",
    "open",
    "openat",
    "openat2",
    "quotactl",
    "quotactl_fd",
    "readlink",
    "readlinkat",
    "stat",
    "statx",
];

const ATTR: &[&str] = &[
    "chmod",
    "chown",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchownat",
    "file_setattr",
    "fremovexattr",
    "fsetxattr",
    "lchown",
    "link",
    "linkat",
    "lremovexattr",
    "lsetxattr",
    "removexattr",
    "removexattrat",
    "setxattr",
    "setxattrat",
];

/// Adds the syscalls of the perm bits that the arch has.
///
/// # Source
/// `lib/permtab.h` and `audit_add_perm_syscalls()` in `lib/libaudit.c` of audit-userspace 4.2.
pub(super) fn insert(bits: u32, arch: Arch, mask: &mut SyscallMask) {
    for (bit, names) in [
        (perm::EXEC, EXEC),
        (perm::WRITE, WRITE),
        (perm::READ, READ),
        (perm::ATTR, ATTR),
    ] {
        if bits & bit != 0 {
            names
                .iter()
                .filter_map(|name| table::syscall_number(arch, name.as_bytes()))
                .for_each(|syscall| mask.insert(syscall.0));
        }
    }
}
