//! Syscalls that version 4 of `auditctl` adds to a rule with `perm` and an arch.
//!
//! Without them the kernel would evaluate the rule for every syscall. The table has more syscalls than the
//! kernel's `perm` classes (see [`crate::plan::perm`]), such as `stat`.

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

/// Adds the syscalls of the perm bits that exist on the arch.
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
