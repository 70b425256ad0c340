//! Which internal functions serve which syscalls.

use audit::plan::SyscallId;

use super::internal_hook::InternalHook;

/// Internal functions that show the objects of a syscall; empty when no function does.
///
/// # Source
/// `fs/namei.c`, `fs/open.c`, `fs/xattr.c`, `fs/namespace.c`, Linux 6.1 and 6.12; compared with the
/// kernel's own records in the test `differential` of `tests/vm`.
#[must_use]
pub(crate) fn object_hooks(syscall: SyscallId) -> &'static [InternalHook] {
    use InternalHook::{
        AttrChdir, AttrChmod, AttrChown, AttrChroot, AttrGetxattr, AttrListxattr, AttrMount,
        AttrRmxattr, AttrSetxattr, AttrTruncate, AttrUmount, AttrUtimes, CreatedDir, CreatedFile,
        CreatedLink, CreatedNode, CreatedRename, CreatedSymlink, NamesDelete, NamesLink,
        NamesMkdir, NamesMknod, NamesParent, NamesRename, NamesRmdir, NamesSymlink, NamesUnlink,
        OpenExecat, OpenFilp, SockaddrKernel, SockaddrUser,
    };
    match syscall.name().unwrap_or_default() {
        "open" | "openat" | "openat2" | "creat" => &[OpenFilp],
        "execve" | "execveat" => &[OpenExecat],
        "unlink" => &[NamesUnlink, NamesParent, NamesDelete],
        "rmdir" => &[NamesRmdir, NamesParent, NamesDelete],
        "unlinkat" => &[NamesUnlink, NamesRmdir, NamesParent, NamesDelete],
        "mkdir" | "mkdirat" => &[NamesMkdir, NamesParent, CreatedDir],
        "mknod" | "mknodat" => &[NamesMknod, NamesParent, CreatedNode, CreatedFile],
        "symlink" | "symlinkat" => &[NamesSymlink, NamesParent, CreatedSymlink],
        "link" | "linkat" => &[NamesLink, NamesParent, CreatedLink],
        "rename" | "renameat" | "renameat2" => {
            &[NamesRename, NamesParent, NamesDelete, CreatedRename]
        }
        "chmod" | "fchmod" | "fchmodat" | "fchmodat2" => &[AttrChmod],
        "chown" | "lchown" | "fchown" | "fchownat" | "chown32" | "lchown32" | "fchown32" => {
            &[AttrChown]
        }
        "truncate" | "truncate64" => &[AttrTruncate],
        "utime" | "utimes" | "futimesat" | "utimensat" | "utimensat_time64" => &[AttrUtimes],
        "setxattr" | "lsetxattr" | "fsetxattr" | "setxattrat" => &[AttrSetxattr],
        "removexattr" | "lremovexattr" | "fremovexattr" | "removexattrat" => &[AttrRmxattr],
        "getxattr" | "lgetxattr" | "fgetxattr" | "getxattrat" => &[AttrGetxattr],
        "listxattr" | "llistxattr" | "flistxattr" | "listxattrat" => &[AttrListxattr],
        "bind" => &[SockaddrKernel, NamesParent, CreatedNode],
        "connect" | "sendto" | "sendmsg" | "sendmmsg" => &[SockaddrKernel],
        "accept" | "accept4" | "getsockname" | "getpeername" | "recvfrom" | "recvmsg"
        | "recvmmsg" | "recvmmsg_time64" => &[SockaddrUser],
        "socketcall" => &[SockaddrKernel, SockaddrUser, NamesParent, CreatedNode],
        "chdir" => &[AttrChdir],
        "chroot" => &[AttrChroot],
        "mount" => &[AttrMount],
        "umount" | "umount2" => &[AttrUmount],
        _ => &[],
    }
}

/// Internal functions beside those of [`object_hooks`] that newer kernels call for some objects; older kernels call
/// the others for these objects too, or do not show them.
///
/// # Source
/// `do_setxattr()`, `removexattr()` and `do_getxattr()` in `fs/xattr.c`, Linux 6.2 to 6.12: since 6.2,
/// `vfs_setxattr()` does not set access control lists. `may_linkat()` in `fs/namei.c`, Linux 5.12 to 6.12.
#[must_use]
pub(crate) fn newer_object_hooks(syscall: SyscallId) -> &'static [InternalHook] {
    use InternalHook::{AttrGetAcl, AttrRemoveAcl, AttrSetAcl, NamesLinked};
    match syscall.name().unwrap_or_default() {
        "setxattr" | "lsetxattr" | "fsetxattr" | "setxattrat" => &[AttrSetAcl],
        "removexattr" | "lremovexattr" | "fremovexattr" | "removexattrat" => &[AttrRemoveAcl],
        "getxattr" | "lgetxattr" | "fgetxattr" | "getxattrat" => &[AttrGetAcl],
        "link" | "linkat" => &[NamesLinked],
        _ => &[],
    }
}

/// Internal functions that show the auxiliary records of a syscall; a syscall is audited without those that the
/// kernel lacks.
///
/// # Source
/// Callers of the `audit_*` functions of `include/linux/audit.h`, Linux 6.1 and 6.12; compared with the
/// kernel's own records in the test `differential` of `tests/vm`.
#[must_use]
pub(crate) fn aux_record_hooks(syscall: SyscallId) -> &'static [InternalHook] {
    use InternalHook::{
        AuxExecCaps, AuxFileCaps, AuxPtrace, AuxSignal, ClockAdjtimex, ClockInject, ClockInjectNtp,
        ClockSetEnter, ClockSetExit, IpcCtl, IpcMsgctl, IpcPerms, IpcSemctl, IpcShmctl, ModuleName,
        MqNotify, MqOpen, MqReceive, MqSend, MqSetattr,
    };
    match syscall.name().unwrap_or_default() {
        "kill" | "tkill" | "tgkill" | "rt_sigqueueinfo" | "rt_tgsigqueueinfo"
        | "pidfd_send_signal" => &[AuxSignal],
        "ptrace" => &[AuxPtrace],
        "execve" | "execveat" => &[AuxFileCaps, AuxExecCaps],
        "msgget" | "msgsnd" | "msgrcv" | "semget" | "semop" | "semtimedop"
        | "semtimedop_time64" | "shmget" | "shmat" => &[IpcPerms],
        "msgctl" => &[IpcPerms, IpcCtl, IpcMsgctl],
        "semctl" => &[IpcPerms, IpcCtl, IpcSemctl],
        "shmctl" => &[IpcPerms, IpcCtl, IpcShmctl],
        "ipc" => &[IpcPerms, IpcCtl, IpcMsgctl, IpcSemctl, IpcShmctl],
        "mq_open" => &[MqOpen],
        "mq_timedsend" | "mq_timedsend_time64" => &[MqSend],
        "mq_timedreceive" | "mq_timedreceive_time64" => &[MqReceive],
        "mq_notify" => &[MqNotify],
        "mq_getsetattr" => &[MqSetattr],
        "init_module" | "finit_module" | "delete_module" => &[ModuleName],
        "adjtimex" | "clock_adjtime" | "clock_adjtime64" => {
            &[ClockAdjtimex, ClockInject, ClockInjectNtp]
        }
        "clock_settime" | "clock_settime64" | "settimeofday" | "stime" => {
            &[ClockSetEnter, ClockSetExit]
        }
        _ => &[],
    }
}

/// Internal functions in which the kernel may run task work of a syscall before its end.
///
/// # Source
/// Callers of `task_work_run()`: `ptrace_notify()` in `kernel/signal.c`, for forks and execs of a traced task, and
/// `io_uring_cancel_generic()` in `io_uring/cancel.c`, for execs, Linux 7.0 to 7.3.
#[must_use]
pub(crate) fn work_hooks(syscall: SyscallId) -> &'static [InternalHook] {
    if syscall.forks() {
        &[InternalHook::CallTraced]
    } else if syscall.is_exec() {
        &[InternalHook::CallNewExec, InternalHook::CallTraced]
    } else {
        &[]
    }
}

/// Whether the functions of a syscall show every name that the kernel has copied, including names by which it
/// finds nothing.
#[must_use]
pub(crate) fn shows_every_name(syscall: SyscallId) -> bool {
    object_hooks(syscall).iter().any(|hook| {
        matches!(
            hook,
            InternalHook::OpenFilp | InternalHook::OpenExecat | InternalHook::NamesParent
        )
    })
}

#[cfg(test)]
mod tests {
    use audit::ids::{Arch, Syscall};
    use audit::plan::rule_list::RuleEntry;
    use audit::plan::{Plan, sockaddr};
    use audit::rule::{Action, Field, FieldTest, List, Op, Rule, SyscallMask, Value};
    use audit::table;

    use super::*;

    fn all_syscalls() -> impl Iterator<Item = SyscallId> {
        let arches = [Arch::X86_64, Arch::I386].into_iter();
        arches.flat_map(|arch| {
            (0..1024)
                .map(Syscall)
                .map(move |syscall| SyscallId { arch, syscall })
        })
    }

    #[test]
    fn common_syscalls_have_no_internal_hooks() {
        for name in ["stat", "access", "read", "write", "futex", "readlink"] {
            let syscall = table::syscall_number(Arch::X86_64, name.as_bytes()).unwrap();
            let arch = Arch::X86_64;
            assert_eq!(object_hooks(SyscallId { arch, syscall }), [], "{name}");
        }
    }

    #[test]
    fn socket_address_hooks_are_those_of_the_plan() {
        for syscall in all_syscalls() {
            let hooks = object_hooks(syscall);
            let hooked = hooks.contains(&InternalHook::SockaddrKernel)
                || hooks.contains(&InternalHook::SockaddrUser);
            let planned = sockaddr::of(syscall.arch, syscall.syscall).is_some();
            assert_eq!(planned, hooked, "{syscall:?}");
        }
    }

    #[test]
    fn syscalls_with_a_hooked_name_can_match_an_object() {
        let hooked = all_syscalls().filter(|&syscall| shows_every_name(syscall));
        for syscall in hooked {
            let mut syscalls = SyscallMask::none();
            syscalls.insert(syscall.syscall.0);
            let rule = Rule {
                list: List::Exit,
                action: Action::Always,
                syscalls,
                fields: vec![FieldTest {
                    field: Field::ObjUid,
                    op: Op::Equal,
                    value: Value::Number(0),
                }],
                keys: Vec::new(),
            };
            let (source, line) = (0, 1);
            let plan = Plan::compile([RuleEntry { rule, source, line }], &[syscall.arch]);
            assert!(plan.syscalls.contains_key(&syscall), "{syscall:?}");
        }
    }
}
