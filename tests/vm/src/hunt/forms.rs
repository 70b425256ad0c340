//! The syscalls of random programs: their names and the kinds of their arguments.
//!
//! Restrictions, because programs run as root in test machines and as users on developers' hosts:
//! - Names that change something are below the program's directory. Signals go to the program itself.
//! - Nothing sets clocks, limits or names of the machine, or makes an object that outlives the program.
//! - No syscall blocks for long: sockets and pipes do not block, sleeps take a millisecond.

use audit::ids::Arch;
use audit::table;

/// A syscall.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) name: &'static str,
    pub(super) args: &'static [Kind],
    /// The kind of descriptor that it returns.
    pub(super) returns: Option<Descriptor>,
}

/// A kind of argument.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `AT_FDCWD`, or a descriptor.
    At,
    /// A name below the program's directory.
    Name,
    /// A name that may be of the system, for calls that change nothing.
    AnyName,
    Fd(Descriptor),
    /// One of these.
    Number(&'static [i64]),
    /// One of these strings.
    Text(&'static [&'static str]),
    /// 256 writable bytes.
    Buffer,
    /// The number of the program's process.
    OwnPid,
    /// A `struct open_how`.
    How,
    /// A `struct sockaddr`; its length follows.
    Address,
    /// A `struct msghdr` with an address.
    Message,
    /// A `struct timespec` of a millisecond.
    Short,
    /// A user or group of the program.
    Id,
}

/// A kind of descriptor; programs keep two of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Descriptor {
    File,
    Socket,
}

use Descriptor::{File, Socket};
use Kind::{Address, AnyName, At, Buffer, Fd, How, Id, Message, Name, Number, OwnPid, Short, Text};

const ZERO: Kind = Number(&[0]);
const FILE: Kind = Fd(File);
const SOCKET: Kind = Fd(Socket);
const LENGTH: Kind = Number(&[1, 16, 100]);

/// Read, write, both, create, create new, truncate, append, directory, no links, path.
pub(super) const OPEN: &[i64] = &[
    0,
    0,
    1,
    2,
    0o101,
    0o102,
    0o301,
    0o1001,
    0o1102,
    0o2001,
    0o200_000,
    0o400_000,
    0o10_000_000,
];
const MODE: Kind = Number(&[0o600, 0o644, 0o755, 0, 0o4755]);
const AT_LINKS: Kind = Number(&[0, 0, 0x100, 0x1000]);

const fn form(name: &'static str, args: &'static [Kind]) -> Form {
    Form {
        name,
        args,
        returns: None,
    }
}

const fn opens(name: &'static str, args: &'static [Kind], returns: Descriptor) -> Form {
    Form {
        name,
        args,
        returns: Some(returns),
    }
}

/// Syscalls that name files.
pub(super) const FILES: &[Form] = &[
    opens("open", &[AnyName, Number(&[0, 0o200_000]), ZERO], File),
    opens("open", &[Name, Number(OPEN), MODE], File),
    opens("openat", &[At, Name, Number(OPEN), MODE], File),
    opens("openat", &[At, Name, Number(OPEN), MODE], File),
    opens("openat2", &[At, Name, How, Number(&[24, 24, 8])], File),
    opens("creat", &[Name, MODE], File),
    form("mkdir", &[Name, MODE]),
    form("mkdirat", &[At, Name, MODE]),
    form("rmdir", &[Name]),
    form("unlink", &[Name]),
    form("unlinkat", &[At, Name, Number(&[0, 0, 0x200])]),
    form(
        "mknod",
        &[Name, Number(&[0o010_600, 0o100_600, 0o140_600]), ZERO],
    ),
    form(
        "mknodat",
        &[At, Name, Number(&[0o010_600, 0o100_600]), ZERO],
    ),
    form("symlink", &[Name, Name]),
    form("symlinkat", &[Name, At, Name]),
    form("link", &[Name, Name]),
    form("linkat", &[At, Name, At, Name, Number(&[0, 0x400, 0x1000])]),
    form("rename", &[Name, Name]),
    form("renameat", &[At, Name, At, Name]),
    form("renameat2", &[At, Name, At, Name, Number(&[0, 1, 2, 4])]),
    form("chmod", &[Name, MODE]),
    form("fchmod", &[FILE, MODE]),
    form("fchmodat", &[At, Name, MODE]),
    form("chown", &[Name, Id, Id]),
    form("lchown", &[Name, Id, Id]),
    form("fchown", &[FILE, Id, Id]),
    form("fchownat", &[At, Name, Id, Id, AT_LINKS]),
    form("chown32", &[Name, Id, Id]),
    form("lchown32", &[Name, Id, Id]),
    form("fchown32", &[FILE, Id, Id]),
    form("truncate", &[Name, LENGTH]),
    form("ftruncate", &[FILE, LENGTH]),
    form("truncate64", &[Name, LENGTH, ZERO]),
    form("utime", &[Name, ZERO]),
    form("utimes", &[Name, ZERO]),
    form("futimesat", &[At, Name, ZERO]),
    form("utimensat", &[At, Name, ZERO, AT_LINKS]),
    form(
        "setxattr",
        &[
            Name,
            Text(ATTRIBUTES),
            Text(&["v"]),
            Number(&[1]),
            Number(&[0, 1, 2]),
        ],
    ),
    form(
        "lsetxattr",
        &[Name, Text(ATTRIBUTES), Text(&["v"]), Number(&[1]), ZERO],
    ),
    form(
        "fsetxattr",
        &[FILE, Text(ATTRIBUTES), Text(&["v"]), Number(&[1]), ZERO],
    ),
    form(
        "getxattr",
        &[Name, Text(ATTRIBUTES), Buffer, Number(&[16, 0])],
    ),
    form(
        "lgetxattr",
        &[Name, Text(ATTRIBUTES), Buffer, Number(&[16])],
    ),
    form(
        "fgetxattr",
        &[FILE, Text(ATTRIBUTES), Buffer, Number(&[16])],
    ),
    form("listxattr", &[Name, Buffer, Number(&[256, 0])]),
    form("llistxattr", &[Name, Buffer, Number(&[256])]),
    form("flistxattr", &[FILE, Buffer, Number(&[256])]),
    form("removexattr", &[Name, Text(ATTRIBUTES)]),
    form("lremovexattr", &[Name, Text(ATTRIBUTES)]),
    form("fremovexattr", &[FILE, Text(ATTRIBUTES)]),
    form("stat", &[AnyName, Buffer]),
    form("lstat", &[AnyName, Buffer]),
    form("newfstatat", &[At, AnyName, Buffer, AT_LINKS]),
    form("statx", &[At, AnyName, AT_LINKS, Number(&[0x7ff]), Buffer]),
    form("access", &[AnyName, Number(&[0, 1, 4])]),
    form("faccessat", &[At, AnyName, Number(&[0, 2])]),
    form(
        "faccessat2",
        &[At, Name, Number(&[0, 2]), Number(&[0, 0x200])],
    ),
    form("readlink", &[AnyName, Buffer, Number(&[64])]),
    form("readlinkat", &[At, Name, Buffer, Number(&[64])]),
    form("statfs", &[Name, Buffer]),
    form("chdir", &[Name]),
    form("fchdir", &[FILE]),
    form("fallocate", &[FILE, ZERO, ZERO, LENGTH]),
    form(
        "name_to_handle_at",
        &[At, Name, Buffer, Buffer, Number(&[0, 0x400])],
    ),
    form("inotify_add_watch", &[FILE, Name, Number(&[0x20])]),
    form(
        "execve",
        &[
            Text(&["missing", "text", "secret", "sub", "file/x", ""]),
            ZERO,
            ZERO,
        ],
    ),
    form(
        "execveat",
        &[
            At,
            Text(&["missing", "text", "secret"]),
            ZERO,
            ZERO,
            AT_LINKS,
        ],
    ),
    form(
        "swapon",
        &[Text(&["missing", "file"]), Number(&[0x07ff_ffff])],
    ),
    form(
        "mount",
        &[ZERO, Name, Text(&["tmpfs", "missing"]), ZERO, ZERO],
    ),
    form("mount", &[Name, Name, ZERO, Number(&[0x1000]), ZERO]),
    form("chroot", &[Name]),
    form("umount", &[Name]),
    form("umount2", &[Name, Number(&[8])]),
    form("pivot_root", &[Name, Name]),
    form("quotactl", &[Number(&[0x8000_0700]), Name, ZERO, Buffer]),
];

const ATTRIBUTES: &[&str] = &["user.x", "user.y", "trusted.a", "security.none", "bad"];

/// Syscalls that name no file.
pub(super) const OTHERS: &[Form] = &[
    opens(
        "socket",
        &[Number(&[1, 2, 10, 16]), Number(&[0x801, 0x802]), ZERO],
        Socket,
    ),
    form(
        "socketpair",
        &[Number(&[1]), Number(&[0x801, 0x802]), ZERO, Buffer],
    ),
    form("bind", &[SOCKET, Address, Number(&[110, 16, 2])]),
    form("connect", &[SOCKET, Address, Number(&[110, 16, 2])]),
    form("listen", &[SOCKET, Number(&[1])]),
    opens("accept4", &[SOCKET, ZERO, ZERO, Number(&[0x800])], Socket),
    form(
        "sendto",
        &[
            SOCKET,
            Text(&["x"]),
            Number(&[1]),
            Number(&[0x40]),
            Address,
            Number(&[110, 16]),
        ],
    ),
    form("sendmsg", &[SOCKET, Message, Number(&[0x40])]),
    form(
        "recvfrom",
        &[SOCKET, Buffer, Number(&[16]), Number(&[0x40]), ZERO, ZERO],
    ),
    form("getsockname", &[SOCKET, Buffer, Buffer]),
    form("getpeername", &[SOCKET, Buffer, Buffer]),
    form("shutdown", &[SOCKET, Number(&[0, 2, 9])]),
    form(
        "setsockopt",
        &[SOCKET, Number(&[1]), Number(&[2, 9]), Buffer, Number(&[4])],
    ),
    form(
        "getsockopt",
        &[SOCKET, Number(&[1]), Number(&[3]), Buffer, Buffer],
    ),
    form("pipe", &[Buffer]),
    form("pipe2", &[Buffer, Number(&[0, 0o4000, 1])]),
    opens("dup", &[FILE], File),
    opens("dup2", &[FILE, Number(&[20, 21, -1])], File),
    opens(
        "dup3",
        &[FILE, Number(&[20, 21]), Number(&[0, 0o2_000_000])],
        File,
    ),
    form("close", &[FILE]),
    form("fcntl", &[FILE, Number(&[1, 3, 1033]), ZERO]),
    form("fcntl64", &[FILE, Number(&[1, 3, 1033]), ZERO]),
    form("ioctl", &[FILE, Number(&[0x541b, 0x5401]), Buffer]),
    form("read", &[FILE, Buffer, Number(&[16, 0])]),
    form("write", &[FILE, Text(&["text"]), Number(&[4])]),
    form("pread", &[FILE, Buffer, Number(&[16]), ZERO]),
    form("pwrite", &[FILE, Text(&["text"]), Number(&[4]), ZERO]),
    form("lseek", &[FILE, Number(&[0, 100]), Number(&[0, 2, 9])]),
    form("fsync", &[FILE]),
    form("flock", &[FILE, Number(&[5, 8])]),
    form("fstat", &[FILE, Buffer]),
    form("fstatfs", &[FILE, Buffer]),
    form("getdents64", &[FILE, Buffer, Number(&[256])]),
    form("sendfile", &[FILE, FILE, ZERO, Number(&[4])]),
    form(
        "copy_file_range",
        &[FILE, ZERO, FILE, ZERO, Number(&[4]), ZERO],
    ),
    form("getcwd", &[Buffer, Number(&[256, 1])]),
    form("umask", &[Number(&[0o22, 0o77])]),
    opens("inotify_init1", &[ZERO], File),
    opens(
        "memfd_create",
        &[Text(&["memory", ""]), Number(&[0, 1, 0x8000])],
        File,
    ),
    opens("eventfd2", &[ZERO, Number(&[0x800])], File),
    opens("epoll_create1", &[ZERO], File),
    opens("timerfd_create", &[Number(&[1, 99]), ZERO], File),
    opens("pidfd_open", &[OwnPid, ZERO], File),
    form("kill", &[OwnPid, ZERO]),
    form("kill", &[Number(&[1]), ZERO]),
    form("tkill", &[OwnPid, ZERO]),
    form("tgkill", &[OwnPid, OwnPid, ZERO]),
    form("rt_sigqueueinfo", &[OwnPid, ZERO, Buffer]),
    form("ptrace", &[Number(&[16, 0x4206, 0x99]), OwnPid, ZERO, ZERO]),
    form(
        "prctl",
        &[Number(&[4, 38, 99]), Number(&[1]), ZERO, ZERO, ZERO],
    ),
    form("prctl", &[Number(&[15]), Text(&["other", "new name"])]),
    form("personality", &[Number(&[0, 0x4_0000, 0xffff_ffff])]),
    form("capget", &[Buffer, Buffer]),
    form("capset", &[Buffer, Buffer]),
    form("setuid", &[Id]),
    form("setgid", &[Number(&[7])]),
    form("setreuid", &[Number(&[-1]), Id]),
    form("setregid", &[Number(&[-1]), Id]),
    form("setresuid", &[Number(&[-1]), Id, Number(&[-1])]),
    form("setresgid", &[Number(&[-1]), Id, Number(&[-1])]),
    form("setfsuid", &[Id]),
    form("setfsgid", &[Id]),
    form("setgroups", &[Number(&[0, 1]), Buffer]),
    form("getpid", &[]),
    form("getuid", &[]),
    form("gettid", &[]),
    form("setsid", &[]),
    form("setpgid", &[ZERO, ZERO]),
    form("setpriority", &[ZERO, ZERO, Number(&[1, 2])]),
    form("sched_yield", &[]),
    form("getrandom", &[Buffer, Number(&[8]), ZERO]),
    form("uname", &[Buffer]),
    form("nanosleep", &[Short, ZERO]),
    form("prlimit64", &[ZERO, Number(&[7, 99]), ZERO, Buffer]),
    form("getrusage", &[ZERO, Buffer]),
    form(
        "mmap",
        &[
            ZERO,
            Number(&[4096]),
            Number(&[1, 3, 7]),
            Number(&[0x22, 0x21, 2]),
            Number(&[-1]),
            ZERO,
        ],
    ),
    form(
        "mmap",
        &[
            ZERO,
            Number(&[4096]),
            Number(&[1]),
            Number(&[1, 2]),
            FILE,
            ZERO,
        ],
    ),
    form(
        "mprotect",
        &[Number(&[0x1000]), Number(&[4096]), Number(&[1])],
    ),
    form("munmap", &[Number(&[0x1000, 1]), Number(&[4096])]),
    form(
        "mremap",
        &[
            Number(&[0x1000]),
            Number(&[4096]),
            Number(&[8192]),
            ZERO,
            ZERO,
        ],
    ),
    form(
        "madvise",
        &[Number(&[0x1000]), Number(&[4096]), Number(&[4])],
    ),
    form("brk", &[ZERO]),
    form("bpf", &[Number(&[0, 99]), Buffer, Number(&[8])]),
    form(
        "perf_event_open",
        &[Buffer, ZERO, Number(&[-1]), Number(&[-1]), ZERO],
    ),
    form(
        "add_key",
        &[Text(&["user"]), Text(&["name"]), ZERO, ZERO, Number(&[-1])],
    ),
    form("keyctl", &[Number(&[0, 99]), Number(&[-3]), ZERO]),
    form("userfaultfd", &[Number(&[0, 1])]),
    form("seccomp", &[Number(&[2, 9]), ZERO, Buffer]),
    form("unshare", &[Number(&[0, 0x200, 0x400])]),
    form("setns", &[FILE, ZERO]),
    form("msgget", &[Number(&[0x7467]), ZERO]),
    form("semget", &[Number(&[0x7467]), ZERO, ZERO]),
    form("shmget", &[Number(&[0x7467]), ZERO, ZERO]),
    form("mq_open", &[Text(&["missing"]), ZERO, ZERO, ZERO]),
    form("mq_unlink", &[Text(&["missing"])]),
    form(
        "init_module",
        &[Text(&["not a module"]), Number(&[12]), Text(&[""])],
    ),
    form("delete_module", &[Text(&["missing"]), ZERO]),
    form("io_uring_setup", &[Number(&[0, 8]), Buffer]),
    form("fanotify_init", &[ZERO, ZERO]),
    form("waitid", &[ZERO, ZERO, ZERO, Number(&[5]), ZERO]),
    form("wait4", &[Number(&[-1]), ZERO, Number(&[1]), ZERO]),
    form("process_vm_readv", &[OwnPid, ZERO, ZERO, ZERO, ZERO, ZERO]),
    form("adjtimex", &[ZERO]),
    form("clock_gettime", &[Number(&[1]), Buffer]),
    form("iopl", &[ZERO]),
];

/// The syscalls of groups of rules.
pub(super) const GROUPS: &[&str] = &[
    "open,openat,openat2,creat,open_by_handle_at",
    "mkdir,mkdirat,rmdir,unlink,unlinkat,mknod,mknodat",
    "symlink,symlinkat,link,linkat,rename,renameat,renameat2",
    "chmod,fchmod,fchmodat,chown,lchown,fchown,fchownat,chown32,lchown32,fchown32",
    "truncate,truncate64,ftruncate,fallocate,utime,utimes,utimensat,futimesat",
    "setxattr,lsetxattr,fsetxattr,getxattr,lgetxattr,fgetxattr",
    "listxattr,llistxattr,flistxattr,removexattr,lremovexattr,fremovexattr",
    "stat,lstat,newfstatat,statx,access,faccessat,faccessat2,readlink,readlinkat,statfs",
    "chdir,fchdir,chroot,mount,umount,umount2,pivot_root,unshare,setns,quotactl,swapon",
    "execve,execveat,exit,exit_group",
    "socket,bind,connect,listen,accept4,sendto,sendmsg,recvfrom",
    "getsockname,getpeername,socketpair,shutdown,setsockopt,getsockopt",
    "kill,tgkill,tkill,rt_sigqueueinfo,ptrace,prctl,seccomp,capget,capset,personality",
    "setuid,setgid,setreuid,setregid,setresuid,setresgid,setfsuid,setfsgid,setgroups",
    "mmap,mprotect,munmap,mremap,madvise,brk,memfd_create",
    "pipe,pipe2,dup,dup2,dup3,close,fcntl,fcntl64,ioctl",
    "read,write,pread,pwrite,lseek,fsync,flock,fstat,fstatfs,getdents64,sendfile,getcwd,umask",
    "bpf,perf_event_open,add_key,keyctl,userfaultfd,io_uring_setup,fanotify_init,inotify_init1",
    "inotify_add_watch,name_to_handle_at,eventfd2,epoll_create1,timerfd_create,pidfd_open",
    "clone,clone3,fork,vfork,wait4,waitid,nanosleep,getpid,getuid,gettid,setsid,setpgid",
    "mq_open,mq_unlink,msgget,semget,shmget,init_module,delete_module,adjtimex,clock_gettime",
    "setpriority,sched_yield,getrandom,uname,prlimit64,getrusage,process_vm_readv,iopl,copy_file_range",
];

/// The syscalls of a group that an architecture has.
pub(super) fn known(group: &str, arch: Arch) -> Option<String> {
    let has = |name: &&str| table::syscall_number(arch, name.as_bytes()).is_some();
    let names: Vec<&str> = group.split(',').filter(has).collect();
    (!names.is_empty()).then(|| names.join(","))
}
