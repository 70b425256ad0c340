//! The programs of the kernel side by name: which of them hooks need, and where they are when loaded.

use std::collections::BTreeSet;

use audit::plan::inner::Inner;
use libbpf_rs::{OpenProgramMut, ProgramMut};

use crate::skeleton::{OpenSyscallProgs, SyscallProgs};

macro_rules! programs {
    ($($name:ident => $program:ident,)+) => {
        /// A program of `bpf/syscall.bpf.c`. Hooks inside the kernel are called as in [`Inner`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Program {
            $($name,)+
        }

        impl Program {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)+];

            /// Its name in the object.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($program),)+
                }
            }

            /// The program of a name.
            pub(crate) fn of_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|program| program.name() == name)
            }

            fn open<'p, 'o>(self, programs: &'p mut OpenSyscallProgs<'o>) -> &'p mut OpenProgramMut<'o> {
                match self {
                    $(Self::$name => &mut programs.$program,)+
                }
            }

            /// The program in an object that was loaded; it may have been left out of it.
            pub(crate) fn of<'p, 'o>(self, programs: &'p SyscallProgs<'o>) -> &'p ProgramMut<'o> {
                match self {
                    $(Self::$name => &programs.$program,)+
                }
            }
        }
    };
}

programs! {
    DaemonSelf => daemon_self,
    Beat => beat,
    SysExitOne => sys_exit_one,
    SysEnterOne => sys_enter_one,
    SysEnterLast => sys_enter_last,
    SysExitAny => sys_exit_any,
    SysEnterAny => sys_enter_any,
    ExecPrepare => exec_prepare,
    ExecCommit => exec_commit,
    TaskExit => task_exit,
    TaskFork => task_fork,
    StubCallEnd => stub_call_end,
    StubOpenatEnd => stub_openat_end,
    StubOpenEnd => stub_open_end,
    StubBareEnd => stub_bare_end,
    StubCallLast => stub_call_last,
    StubBareLast => stub_bare_last,
    StubCallEnter => stub_call_enter,
    StubUringEnter => stub_uring_enter,
    StubUringEnd => stub_uring_end,
    UringComplete => uring_complete,
    CallEnd => call_end,
    BareEnd => bare_end,
    CallLast => call_last,
    BareLast => bare_last,
    UringEnd => uring_end,
    OpenObject => open_object,
    ExecObject => exec_object,
    OpenRefused => open_refused,
    NamesUnlink => names_unlink,
    NamesRmdir => names_rmdir,
    NamesMkdir => names_mkdir,
    NamesMknod => names_mknod,
    NamesSymlink => names_symlink,
    NamesLink => names_link,
    NamesRename => names_rename,
    NamesParent => names_parent,
    NamesDelete => names_delete,
    NamesCreate => names_create,
    NamesMadeDir => names_made_dir,
    NamesMadeNode => names_made_node,
    NamesMadeLink => names_made_link,
    NamesLinked => names_linked,
    NamesRenamed => names_renamed,
    SocketAddress => socket_address,
    SocketAnswer => socket_answer,
    UsedChmod => used_chmod,
    UsedChown => used_chown,
    UsedTruncate => used_truncate,
    UsedUtimes => used_utimes,
    UsedSetxattr => used_setxattr,
    UsedRemovexattr => used_removexattr,
    UsedGetxattr => used_getxattr,
    UsedListxattr => used_listxattr,
    UsedChdir => used_chdir,
    UsedChroot => used_chroot,
    UsedMount => used_mount,
    UsedUmount => used_umount,
    TargetSignal => detail_signal,
    TargetTrace => detail_traced,
    FileCaps => detail_fcaps,
    ExecCaps => detail_bprm,
    IpcUsed => ipc_used,
    IpcControl => ipc_control,
    IpcMessages => ipc_messages,
    IpcSemaphores => ipc_semaphores,
    IpcMemory => ipc_memory,
    QueueOpen => queue_open,
    QueueSend => queue_send,
    QueueReceive => queue_receive,
    QueueNotify => queue_notify,
    QueueSet => queue_attr,
    ModuleName => module_name,
    ClockAdjusted => clock_adjusted,
    ClockInjected => clock_injected,
    ClockBefore => clock_before,
    ClockSet => clock_set,
    DenyOpen => deny_open,
    DenyCreate => deny_create,
    DenyExec => deny_exec,
    DenyUnlink => deny_unlink,
    DenyRmdir => deny_rmdir,
    DenyMkdir => deny_mkdir,
    DenyMknod => deny_mknod,
    DenyMake => deny_make,
    DenySymlink => deny_symlink,
    DenyLink => deny_link,
    DenyRename => deny_rename,
    DenySetattr => deny_setattr,
    DenySetxattr => deny_setxattr,
    DenyRemovexattr => deny_removexattr,
    DenyBind => deny_bind,
    DenyConnect => deny_connect,
    DenyMount => deny_mount,
    DenyUmount => deny_umount,
    DenySignal => deny_signal,
    DenyTrace => deny_trace,
    DenyModule => deny_module,
    DenyModuleData => deny_module_data,
    AvcCall => avc_call,
    GuardBegin => guard_begin,
    GuardClaim => guard_claim,
    GuardMap => guard_map,
    GuardOpen => guard_open,
    GuardCreate => guard_create,
    GuardMknod => guard_mknod,
    GuardMkdir => guard_mkdir,
    GuardSymlink => guard_symlink,
    GuardLink => guard_link,
    GuardUnlink => guard_unlink,
    GuardRename => guard_rename,
    GuardSetattr => guard_setattr,
    GuardSetxattr => guard_setxattr,
    GuardRemovexattr => guard_removexattr,
    GuardIoctl => guard_ioctl,
    GuardIoctl32 => guard_ioctl32,
    GuardFileattr => guard_fileattr,
    GuardUmount => guard_umount,
    GuardMount => guard_mount,
    GuardMoveMount => guard_move_mount,
    GuardTrace => guard_trace,
}

impl Program {
    /// What shows a hook inside the kernel.
    pub(crate) const fn of_inner(inner: Inner) -> Self {
        match inner {
            Inner::OpenObject => Self::OpenObject,
            Inner::ExecObject => Self::ExecObject,
            Inner::OpenRefused => Self::OpenRefused,
            Inner::NamesUnlink => Self::NamesUnlink,
            Inner::NamesRmdir => Self::NamesRmdir,
            Inner::NamesMkdir => Self::NamesMkdir,
            Inner::NamesMknod => Self::NamesMknod,
            Inner::NamesSymlink => Self::NamesSymlink,
            Inner::NamesLink => Self::NamesLink,
            Inner::NamesRename => Self::NamesRename,
            Inner::NamesParent => Self::NamesParent,
            Inner::NamesDelete => Self::NamesDelete,
            Inner::NamesCreate => Self::NamesCreate,
            Inner::NamesMadeDir => Self::NamesMadeDir,
            Inner::NamesMadeNode => Self::NamesMadeNode,
            Inner::NamesMadeLink => Self::NamesMadeLink,
            Inner::NamesLinked => Self::NamesLinked,
            Inner::NamesRenamed => Self::NamesRenamed,
            Inner::SocketAddress => Self::SocketAddress,
            Inner::SocketAnswer => Self::SocketAnswer,
            Inner::UsedChmod => Self::UsedChmod,
            Inner::UsedChown => Self::UsedChown,
            Inner::UsedTruncate => Self::UsedTruncate,
            Inner::UsedUtimes => Self::UsedUtimes,
            Inner::UsedSetxattr => Self::UsedSetxattr,
            Inner::UsedRemovexattr => Self::UsedRemovexattr,
            Inner::UsedGetxattr => Self::UsedGetxattr,
            Inner::UsedListxattr => Self::UsedListxattr,
            Inner::UsedChdir => Self::UsedChdir,
            Inner::UsedChroot => Self::UsedChroot,
            Inner::UsedMount => Self::UsedMount,
            Inner::UsedUmount => Self::UsedUmount,
            Inner::TargetSignal => Self::TargetSignal,
            Inner::TargetTrace => Self::TargetTrace,
            Inner::FileCaps => Self::FileCaps,
            Inner::ExecCaps => Self::ExecCaps,
            Inner::IpcUsed => Self::IpcUsed,
            Inner::IpcControl => Self::IpcControl,
            Inner::IpcMessages => Self::IpcMessages,
            Inner::IpcSemaphores => Self::IpcSemaphores,
            Inner::IpcMemory => Self::IpcMemory,
            Inner::QueueOpen => Self::QueueOpen,
            Inner::QueueSend => Self::QueueSend,
            Inner::QueueReceive => Self::QueueReceive,
            Inner::QueueNotify => Self::QueueNotify,
            Inner::QueueSet => Self::QueueSet,
            Inner::ModuleName => Self::ModuleName,
            Inner::ClockAdjusted => Self::ClockAdjusted,
            Inner::ClockInjected => Self::ClockInjected,
            Inner::ClockBefore => Self::ClockBefore,
            Inner::ClockSet => Self::ClockSet,
            Inner::DenyOpen => Self::DenyOpen,
            Inner::DenyCreate => Self::DenyCreate,
            Inner::DenyExec => Self::DenyExec,
            Inner::DenyUnlink => Self::DenyUnlink,
            Inner::DenyRmdir => Self::DenyRmdir,
            Inner::DenyMkdir => Self::DenyMkdir,
            Inner::DenyMknod => Self::DenyMknod,
            Inner::DenyMake => Self::DenyMake,
            Inner::DenySymlink => Self::DenySymlink,
            Inner::DenyLink => Self::DenyLink,
            Inner::DenyRename => Self::DenyRename,
            Inner::DenySetattr => Self::DenySetattr,
            Inner::DenySetxattr => Self::DenySetxattr,
            Inner::DenyRemovexattr => Self::DenyRemovexattr,
            Inner::DenyBind => Self::DenyBind,
            Inner::DenyConnect => Self::DenyConnect,
            Inner::DenyMount => Self::DenyMount,
            Inner::DenyUmount => Self::DenyUmount,
            Inner::DenySignal => Self::DenySignal,
            Inner::DenyTrace => Self::DenyTrace,
            Inner::DenyModule => Self::DenyModule,
            Inner::DenyModuleData => Self::DenyModuleData,
        }
    }

    /// What keeps others from what audits, each in its own place; [`Program::GuardBegin`] tells them what, and
    /// [`Program::GuardClaim`] who has come after the daemon that has run it.
    pub(crate) const GUARDS: &[Self] = &[
        Self::GuardMap,
        Self::GuardOpen,
        Self::GuardCreate,
        Self::GuardMknod,
        Self::GuardMkdir,
        Self::GuardSymlink,
        Self::GuardLink,
        Self::GuardUnlink,
        Self::GuardRename,
        Self::GuardSetattr,
        Self::GuardSetxattr,
        Self::GuardRemovexattr,
        Self::GuardIoctl,
        Self::GuardIoctl32,
        Self::GuardFileattr,
        Self::GuardUmount,
        Self::GuardMount,
        Self::GuardMoveMount,
        Self::GuardTrace,
    ];

    /// Whether it is on a function, whatever the engine: a kernel that refuses it refuses the engine `fentry`.
    pub(crate) fn is_on_a_function(self) -> bool {
        self == Self::AvcCall || Self::GUARDS.contains(&self)
    }

    /// The function that not all kernels have which take such programs, where it is on one.
    pub(crate) const fn needs(self) -> Option<&'static str> {
        match self {
            Self::GuardIoctl32 => Some("security_file_ioctl_compat"),
            Self::GuardFileattr => Some("security_inode_file_setattr"),
            _ => None,
        }
    }

    /// What a stub jumps to.
    pub(crate) const fn body(self) -> Option<Self> {
        match self {
            Self::StubCallEnd | Self::StubOpenatEnd | Self::StubOpenEnd => Some(Self::CallEnd),
            Self::StubBareEnd => Some(Self::BareEnd),
            Self::StubCallLast => Some(Self::CallLast),
            Self::StubBareLast => Some(Self::BareLast),
            Self::StubUringEnd => Some(Self::UringEnd),
            _ => None,
        }
    }
}

/// Has an object load these programs and no other: what is not attached need not pass the verifier.
pub(crate) fn choose(programs: &mut OpenSyscallProgs<'_>, wanted: &BTreeSet<Program>) {
    for program in Program::ALL {
        program
            .open(programs)
            .set_autoload(wanted.contains(program));
    }
}
