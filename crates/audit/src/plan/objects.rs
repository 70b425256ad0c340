//! Objects of syscalls: which arguments name objects, and how.
//!
//! The plan uses this table to decide whether a syscall can name an object, the engine to find what it must read, and
//! the records to list PATH items in order.

use crate::ids::{Arch, Syscall};
use crate::table;

/// Arguments that refer to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRef {
    /// Path string in this argument, relative to the working directory.
    Path(u8),
    /// Path string in the second argument, relative to the directory descriptor in the first.
    At(u8, u8),
    /// Descriptor in this argument.
    Fd(u8),
    /// Descriptor that the syscall returned, opened by a path.
    Opened {
        /// Argument with the directory descriptor; `None` for the working directory.
        dir: Option<u8>,
        /// Argument with the path string.
        path: u8,
    },
    /// Descriptor that the syscall returned, opened without a path.
    Returned,
    /// String that is stored and not resolved: the target of a symbolic link.
    Text(u8),
}

/// What a syscall does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectEffect {
    /// Uses the object: one NORMAL item.
    Use,
    /// Creates the object: PARENT and CREATE items.
    Create,
    /// Removes the object: PARENT and DELETE items.
    Delete,
}

/// One object of a syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectArg {
    /// The arguments that refer to it.
    pub place: ObjectRef,
    /// What the syscall does to it.
    pub effect: ObjectEffect,
}

/// Objects that a syscall names, in argument order; empty when it names none.
#[must_use]
pub fn objects(arch: Arch, syscall: Syscall) -> &'static [ObjectArg] {
    match table::syscall_name(arch, syscall) {
        // Its mask has 64 bits, which are two arguments there.
        Some("fanotify_mark") if !arch.is_64_bit() => const { &[use_of(ObjectRef::At(4, 5))] },
        Some(name) => by_name(name),
        None => &[],
    }
}

/// Whether the kernel's audit writes a PATH record for an object of the syscall that is not among [`objects`]: its
/// name is in a structure, in a socket address or in another name space, or means a path only for some commands.
#[must_use]
pub fn has_unseen_object(arch: Arch, syscall: Syscall) -> bool {
    matches!(
        table::syscall_name(arch, syscall),
        Some(
            "bpf"
                | "fsconfig"
                | "mq_open"
                | "mq_unlink"
                | "connect"
                | "sendto"
                | "sendmsg"
                | "sendmmsg"
        )
    )
}

const fn use_of(place: ObjectRef) -> ObjectArg {
    let effect = ObjectEffect::Use;
    ObjectArg { place, effect }
}

fn by_name(name: &str) -> &'static [ObjectArg] {
    use ObjectEffect::{Create, Delete, Use};
    use ObjectRef::{At, Fd, Opened, Path, Returned, Text};

    macro_rules! shape {
        ($($place:expr => $effect:expr),*) => {
            const { &[$(ObjectArg { place: $place, effect: $effect }),*] }
        };
    }
    match name {
        "open" | "creat" => shape!(Opened { dir: None, path: 0 } => Use),
        "openat" | "openat2" => shape!(Opened { dir: Some(0), path: 1 } => Use),
        "open_by_handle_at" => shape!(Returned => Use),
        "unlink" | "rmdir" => shape!(Path(0) => Delete),
        "unlinkat" => shape!(At(0, 1) => Delete),
        "mkdir" | "mknod" => shape!(Path(0) => Create),
        "mkdirat" | "mknodat" => shape!(At(0, 1) => Create),
        "rename" => shape!(Path(0) => Delete, Path(1) => Create),
        "renameat" | "renameat2" => shape!(At(0, 1) => Delete, At(2, 3) => Create),
        "link" => shape!(Path(0) => Use, Path(1) => Create),
        "linkat" => shape!(At(0, 1) => Use, At(2, 3) => Create),
        "symlink" => shape!(Text(0) => Use, Path(1) => Create),
        "symlinkat" => shape!(Text(0) => Use, At(1, 2) => Create),
        "execve" | "chmod" | "chown" | "lchown" | "chown32" | "lchown32" | "truncate"
        | "truncate64" | "setxattr" | "lsetxattr" | "removexattr" | "lremovexattr" | "getxattr"
        | "lgetxattr" | "listxattr" | "llistxattr" | "readlink" | "access" | "stat" | "lstat"
        | "stat64" | "lstat64" | "oldstat" | "oldlstat" | "statfs" | "statfs64" | "chdir"
        | "chroot" | "acct" | "swapon" | "swapoff" | "utime" | "utimes" | "uselib" | "umount"
        | "umount2" => {
            shape!(Path(0) => Use)
        }
        "mount" | "inotify_add_watch" | "quotactl" => shape!(Path(1) => Use),
        "fanotify_mark" => shape!(At(3, 4) => Use),
        "move_mount" => shape!(At(0, 1) => Use, At(2, 3) => Use),
        "pivot_root" => shape!(Path(0) => Use, Path(1) => Use),
        "execveat" | "fchmodat" | "fchmodat2" | "fchownat" | "readlinkat" | "faccessat"
        | "faccessat2" | "newfstatat" | "fstatat64" | "statx" | "utimensat"
        | "utimensat_time64" | "futimesat" | "name_to_handle_at" | "setxattrat" | "getxattrat"
        | "listxattrat" | "removexattrat" | "file_getattr" | "file_setattr" | "open_tree"
        | "open_tree_attr" | "mount_setattr" | "fspick" => shape!(At(0, 1) => Use),
        "fchmod"
        | "fchown"
        | "fchown32"
        | "fsetxattr"
        | "fremovexattr"
        | "fgetxattr"
        | "flistxattr"
        | "mq_timedsend"
        | "mq_timedsend_time64"
        | "mq_timedreceive"
        | "mq_timedreceive_time64" => shape!(Fd(0) => Use),
        _ => &[],
    }
}
