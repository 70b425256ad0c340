//! The programs of the kernel side by name: which of them hooks need, and where they are when loaded.

use std::collections::BTreeSet;

use audit::plan::inner::InternalHook;
use libbpf_rs::{OpenProgramMut, ProgramMut};

use crate::skeleton::{OpenSyscallProgs, SyscallProgs};

macro_rules! programs {
    ($($name:ident => $program:ident,)+) => {
        /// A program of `bpf/syscall.bpf.c`. Hooks inside the kernel are called as in [`InternalHook`].
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
            pub(crate) fn from_name(name: &str) -> Option<Self> {
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
    DaemonRegister => daemon_register,
    InodeIdentity => inode_identity,
    Heartbeat => heartbeat,
    SysExitTp => sys_exit_tp,
    SysEnterTp => sys_enter_tp,
    SysEnterNoret => sys_enter_noret,
    SysExitRaw => sys_exit_raw,
    SysEnterRaw => sys_enter_raw,
    ExecPrepare => exec_prepare,
    ExecCommit => exec_commit,
    TaskExit => task_exit,
    TaskFork => task_fork,
    StubSysExit => stub_sys_exit,
    StubOpenat => stub_openat,
    StubOpen => stub_open,
    StubSysExit0 => stub_sys_exit0,
    StubNoreturn => stub_noreturn,
    StubNoreturn0 => stub_noreturn0,
    SysEnterFn => sys_enter_fn,
    UringEnter => uring_enter,
    StubUringExit => stub_uring_exit,
    UringComplete => uring_complete,
    SysExitFn => sys_exit_fn,
    SysExitFn0 => sys_exit_fn0,
    NoreturnFn => noreturn_fn,
    NoreturnFn0 => noreturn_fn0,
    UringExit => uring_exit,
    OpenFilp => open_filp,
    OpenExecat => open_execat,
    OpenMayOpen => open_may_open,
    NamesUnlink => names_unlink,
    NamesRmdir => names_rmdir,
    NamesMkdir => names_mkdir,
    NamesMknod => names_mknod,
    NamesSymlink => names_symlink,
    NamesLink => names_link,
    NamesRename => names_rename,
    NamesParent => names_parent,
    NamesDelete => names_delete,
    CreatedFile => created_file,
    CreatedDir => created_dir,
    CreatedNode => created_node,
    CreatedSymlink => created_symlink,
    CreatedLink => created_link,
    CreatedRename => created_rename,
    SockaddrKernel => sockaddr_kernel,
    SockaddrUser => sockaddr_user,
    AttrChmod => attr_chmod,
    AttrChown => attr_chown,
    AttrTruncate => attr_truncate,
    AttrUtimes => attr_utimes,
    AttrSetxattr => attr_setxattr,
    AttrRmxattr => attr_rmxattr,
    AttrGetxattr => attr_getxattr,
    AttrListxattr => attr_listxattr,
    AttrSetAcl => attr_set_acl,
    AttrRemoveAcl => attr_remove_acl,
    AttrGetAcl => attr_get_acl,
    AttrChdir => attr_chdir,
    AttrChroot => attr_chroot,
    AttrMount => attr_mount,
    AttrUmount => attr_umount,
    AuxSignal => aux_signal,
    AuxPtrace => aux_ptrace,
    AuxFileCaps => aux_file_caps,
    AuxExecCaps => aux_exec_caps,
    IpcPerms => ipc_perms,
    IpcCtl => ipc_ctl,
    IpcMsgctl => ipc_msgctl,
    IpcSemctl => ipc_semctl,
    IpcShmctl => ipc_shmctl,
    MqOpen => mq_open,
    MqSend => mq_send,
    MqReceive => mq_receive,
    MqNotify => mq_notify,
    MqSetattr => mq_setattr,
    ModuleName => module_name,
    ClockAdjtimex => clock_adjtimex,
    ClockInject => clock_inject,
    ClockSetEnter => clock_set_enter,
    ClockSetExit => clock_set_exit,
    DenyOpen => deny_open,
    DenyPathMknod => deny_path_mknod,
    DenyExec => deny_exec,
    DenyUnlink => deny_unlink,
    DenyRmdir => deny_rmdir,
    DenyMkdir => deny_mkdir,
    DenyMknod => deny_mknod,
    DenyCreate => deny_create,
    DenySymlink => deny_symlink,
    DenyLink => deny_link,
    DenyRename => deny_rename,
    DenySetattr => deny_setattr,
    DenySetxattr => deny_setxattr,
    DenyRmxattr => deny_rmxattr,
    DenySetAcl => deny_set_acl,
    DenyRemoveAcl => deny_remove_acl,
    DenyBind => deny_bind,
    DenyConnect => deny_connect,
    DenyMount => deny_mount,
    DenyUmount => deny_umount,
    DenyKill => deny_kill,
    DenyPtrace => deny_ptrace,
    DenyModule => deny_module,
    DenyLoadData => deny_load_data,
    AvcSyscall => avc_syscall,
    GuardInit => guard_init,
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
    GuardRmxattr => guard_rmxattr,
    GuardSetAcl => guard_set_acl,
    GuardRemoveAcl => guard_remove_acl,
    GuardIoctl => guard_ioctl,
    GuardIoctl32 => guard_ioctl32,
    GuardFileattr => guard_fileattr,
    GuardUmount => guard_umount,
    GuardMount => guard_mount,
    GuardMovemount => guard_movemount,
    GuardPtrace => guard_ptrace,
}

impl Program {
    /// What shows a hook inside the kernel.
    pub(crate) const fn from_internal_hook(inner: InternalHook) -> Self {
        match inner {
            InternalHook::OpenFilp => Self::OpenFilp,
            InternalHook::OpenExecat => Self::OpenExecat,
            InternalHook::OpenMayOpen => Self::OpenMayOpen,
            InternalHook::NamesUnlink => Self::NamesUnlink,
            InternalHook::NamesRmdir => Self::NamesRmdir,
            InternalHook::NamesMkdir => Self::NamesMkdir,
            InternalHook::NamesMknod => Self::NamesMknod,
            InternalHook::NamesSymlink => Self::NamesSymlink,
            InternalHook::NamesLink => Self::NamesLink,
            InternalHook::NamesRename => Self::NamesRename,
            InternalHook::NamesParent => Self::NamesParent,
            InternalHook::NamesDelete => Self::NamesDelete,
            InternalHook::CreatedFile => Self::CreatedFile,
            InternalHook::CreatedDir => Self::CreatedDir,
            InternalHook::CreatedNode => Self::CreatedNode,
            InternalHook::CreatedSymlink => Self::CreatedSymlink,
            InternalHook::CreatedLink => Self::CreatedLink,
            InternalHook::CreatedRename => Self::CreatedRename,
            InternalHook::SockaddrKernel => Self::SockaddrKernel,
            InternalHook::SockaddrUser => Self::SockaddrUser,
            InternalHook::AttrChmod => Self::AttrChmod,
            InternalHook::AttrChown => Self::AttrChown,
            InternalHook::AttrTruncate => Self::AttrTruncate,
            InternalHook::AttrUtimes => Self::AttrUtimes,
            InternalHook::AttrSetxattr => Self::AttrSetxattr,
            InternalHook::AttrRmxattr => Self::AttrRmxattr,
            InternalHook::AttrGetxattr => Self::AttrGetxattr,
            InternalHook::AttrListxattr => Self::AttrListxattr,
            InternalHook::AttrSetAcl => Self::AttrSetAcl,
            InternalHook::AttrRemoveAcl => Self::AttrRemoveAcl,
            InternalHook::AttrGetAcl => Self::AttrGetAcl,
            InternalHook::AttrChdir => Self::AttrChdir,
            InternalHook::AttrChroot => Self::AttrChroot,
            InternalHook::AttrMount => Self::AttrMount,
            InternalHook::AttrUmount => Self::AttrUmount,
            InternalHook::AuxSignal => Self::AuxSignal,
            InternalHook::AuxPtrace => Self::AuxPtrace,
            InternalHook::AuxFileCaps => Self::AuxFileCaps,
            InternalHook::AuxExecCaps => Self::AuxExecCaps,
            InternalHook::IpcPerms => Self::IpcPerms,
            InternalHook::IpcCtl => Self::IpcCtl,
            InternalHook::IpcMsgctl => Self::IpcMsgctl,
            InternalHook::IpcSemctl => Self::IpcSemctl,
            InternalHook::IpcShmctl => Self::IpcShmctl,
            InternalHook::MqOpen => Self::MqOpen,
            InternalHook::MqSend => Self::MqSend,
            InternalHook::MqReceive => Self::MqReceive,
            InternalHook::MqNotify => Self::MqNotify,
            InternalHook::MqSetattr => Self::MqSetattr,
            InternalHook::ModuleName => Self::ModuleName,
            InternalHook::ClockAdjtimex => Self::ClockAdjtimex,
            InternalHook::ClockInject => Self::ClockInject,
            InternalHook::ClockSetEnter => Self::ClockSetEnter,
            InternalHook::ClockSetExit => Self::ClockSetExit,
            InternalHook::DenyOpen => Self::DenyOpen,
            InternalHook::DenyPathMknod => Self::DenyPathMknod,
            InternalHook::DenyExec => Self::DenyExec,
            InternalHook::DenyUnlink => Self::DenyUnlink,
            InternalHook::DenyRmdir => Self::DenyRmdir,
            InternalHook::DenyMkdir => Self::DenyMkdir,
            InternalHook::DenyMknod => Self::DenyMknod,
            InternalHook::DenyCreate => Self::DenyCreate,
            InternalHook::DenySymlink => Self::DenySymlink,
            InternalHook::DenyLink => Self::DenyLink,
            InternalHook::DenyRename => Self::DenyRename,
            InternalHook::DenySetattr => Self::DenySetattr,
            InternalHook::DenySetxattr => Self::DenySetxattr,
            InternalHook::DenyRmxattr => Self::DenyRmxattr,
            InternalHook::DenySetAcl => Self::DenySetAcl,
            InternalHook::DenyRemoveAcl => Self::DenyRemoveAcl,
            InternalHook::DenyBind => Self::DenyBind,
            InternalHook::DenyConnect => Self::DenyConnect,
            InternalHook::DenyMount => Self::DenyMount,
            InternalHook::DenyUmount => Self::DenyUmount,
            InternalHook::DenyKill => Self::DenyKill,
            InternalHook::DenyPtrace => Self::DenyPtrace,
            InternalHook::DenyModule => Self::DenyModule,
            InternalHook::DenyLoadData => Self::DenyLoadData,
        }
    }

    /// What keeps others from what audits, each in its own place; [`Program::GuardInit`] tells them what, and
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
        Self::GuardRmxattr,
        Self::GuardSetAcl,
        Self::GuardRemoveAcl,
        Self::GuardIoctl,
        Self::GuardIoctl32,
        Self::GuardFileattr,
        Self::GuardUmount,
        Self::GuardMount,
        Self::GuardMovemount,
        Self::GuardPtrace,
    ];

    /// Whether it is on a function, whatever the engine: a kernel that refuses it refuses the engine `fentry`.
    pub(crate) fn needs_functions(self) -> bool {
        self == Self::AvcSyscall || Self::GUARDS.contains(&self)
    }

    /// The function that not all kernels have which take such programs, where it is on one.
    pub(crate) const fn required_function(self) -> Option<&'static str> {
        match self {
            Self::GuardIoctl32 => Some("security_file_ioctl_compat"),
            Self::GuardSetAcl => Some("security_inode_set_acl"),
            Self::GuardRemoveAcl => Some("security_inode_remove_acl"),
            Self::GuardFileattr => Some("security_inode_file_setattr"),
            _ => None,
        }
    }

    /// What a stub jumps to.
    pub(crate) const fn tail_call_target(self) -> Option<Self> {
        match self {
            Self::StubSysExit | Self::StubOpenat | Self::StubOpen => Some(Self::SysExitFn),
            Self::StubSysExit0 => Some(Self::SysExitFn0),
            Self::StubNoreturn => Some(Self::NoreturnFn),
            Self::StubNoreturn0 => Some(Self::NoreturnFn0),
            Self::StubUringExit => Some(Self::UringExit),
            _ => None,
        }
    }
}

/// Has an object load these programs and no other: what is not attached need not pass the verifier.
pub(crate) fn select(programs: &mut OpenSyscallProgs<'_>, wanted: &BTreeSet<Program>) {
    for program in Program::ALL {
        program
            .open(programs)
            .set_autoload(wanted.contains(program));
    }
}
