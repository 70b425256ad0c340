//! Vocabulary of random rules.

/// Syscalls in rules. The workload makes all but some of the last.
pub(super) const SYSCALLS_64: [&str; 61] = [
    "getpid",
    "open",
    "openat",
    "openat2",
    "creat",
    "access",
    "stat",
    "newfstatat",
    "readlink",
    "mkdir",
    "mkdirat",
    "rmdir",
    "unlink",
    "unlinkat",
    "mknod",
    "mknodat",
    "symlink",
    "link",
    "linkat",
    "rename",
    "renameat2",
    "chmod",
    "fchmod",
    "fchmodat",
    "chown",
    "fchown",
    "lchown",
    "truncate",
    "ftruncate",
    "setxattr",
    "getxattr",
    "utimensat",
    "chdir",
    "socket",
    "bind",
    "connect",
    "sendto",
    "sendmsg",
    "getsockname",
    "personality",
    "setfsuid",
    "setresuid",
    "setresgid",
    "setuid",
    "setgroups",
    "kill",
    "mount",
    "execve",
    "exit_group",
    "exit",
    "acct",
    "swapon",
    "execveat",
    "statfs",
    "ptrace",
    "umount2",
    "fallocate",
    "removexattr",
    "symlinkat",
    "faccessat",
    "listxattr",
];
pub(super) const SYSCALLS_32: [&str; 23] = [
    "getpid",
    "open",
    "openat",
    "mkdir",
    "rmdir",
    "rename",
    "chmod",
    "chown32",
    "truncate",
    "unlink",
    "socketcall",
    "connect",
    "setfsuid32",
    "setresuid32",
    "setresgid32",
    "setgroups32",
    "execve",
    "exit",
    "creat",
    "link",
    "exit_group",
    "truncate64",
    "lchown32",
];

pub(super) const ORDERED: [&str; 6] = ["=", "!=", ">", ">=", "<", "<="];
pub(super) const ALL: [&str; 8] = ["=", "!=", ">", ">=", "<", "<=", "&", "&="];
pub(super) const EQUALITY: [&str; 2] = ["=", "!="];

/// File names in a list's directory that rules use.
pub(super) const FILES: [&str; 12] = [
    "kept",
    "twin",
    "file",
    "secret",
    "other",
    "sub/below",
    "full/file",
    "new",
    "missing",
    "link",
    "made",
    "regular",
];
pub(super) const DIRECTORIES: [&str; 4] = ["", "/sub", "/full", "/theirs"];

pub(super) const PERMS: [&str; 10] = ["r", "w", "x", "a", "wa", "rw", "rwxa", "rx", "xa", "ra"];

pub(super) const EXITS: [&str; 14] = [
    "0", "1", "3", "4", "-1", "-2", "-13", "-ENOENT", "-EACCES", "-EPERM", "-EEXIST", "ENOENT",
    "EACCES", "-EINVAL",
];
pub(super) const ARGUMENTS: [&str; 15] = [
    "0", "1", "2", "3", "4", "6", "0x41", "0100", "0600", "-100", "-1", "0644", "110", "01101",
    "0x40000",
];

pub(super) const PAIRS: [&str; 25] = [
    "uid:obj_uid",
    "gid:obj_gid",
    "euid:obj_uid",
    "egid:obj_gid",
    "auid:obj_uid",
    "suid:obj_uid",
    "sgid:obj_gid",
    "fsuid:obj_uid",
    "fsgid:obj_gid",
    "uid:auid",
    "uid:euid",
    "uid:fsuid",
    "uid:suid",
    "auid:fsuid",
    "auid:suid",
    "auid:euid",
    "euid:suid",
    "euid:fsuid",
    "suid:fsuid",
    "gid:egid",
    "gid:fsgid",
    "gid:sgid",
    "egid:fsgid",
    "egid:sgid",
    "sgid:fsgid",
];

/// `io_uring` operations in rules. The workload submits all but the last.
pub(super) const OPERATIONS: [&str; 9] = [
    "openat",
    "openat2",
    "close",
    "mkdirat",
    "symlinkat",
    "linkat",
    "renameat",
    "unlinkat",
    "msg_ring",
];

/// File systems: proc, tmpfs, all but proc, and one that no workload uses.
pub(super) const FILESYSTEMS: [&str; 4] = ["=0x9fa0", "=0x1021994", "!=0x9fa0", "=tracefs"];
