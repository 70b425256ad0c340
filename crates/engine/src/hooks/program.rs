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
    pub(crate) const fn from_internal_hook(inner: Inner) -> Self {
        match inner {
            Inner::OpenFilp => Self::OpenFilp,
            Inner::OpenExecat => Self::OpenExecat,
            Inner::OpenMayOpen => Self::OpenMayOpen,
            Inner::NamesUnlink => Self::NamesUnlink,
            Inner::NamesRmdir => Self::NamesRmdir,
            Inner::NamesMkdir => Self::NamesMkdir,
            Inner::NamesMknod => Self::NamesMknod,
            Inner::NamesSymlink => Self::NamesSymlink,
            Inner::NamesLink => Self::NamesLink,
            Inner::NamesRename => Self::NamesRename,
            Inner::NamesParent => Self::NamesParent,
            Inner::NamesDelete => Self::NamesDelete,
            Inner::CreatedFile => Self::CreatedFile,
            Inner::CreatedDir => Self::CreatedDir,
            Inner::CreatedNode => Self::CreatedNode,
            Inner::CreatedSymlink => Self::CreatedSymlink,
            Inner::CreatedLink => Self::CreatedLink,
            Inner::CreatedRename => Self::CreatedRename,
            Inner::SockaddrKernel => Self::SockaddrKernel,
            Inner::SockaddrUser => Self::SockaddrUser,
            Inner::AttrChmod => Self::AttrChmod,
            Inner::AttrChown => Self::AttrChown,
            Inner::AttrTruncate => Self::AttrTruncate,
            Inner::AttrUtimes => Self::AttrUtimes,
            Inner::AttrSetxattr => Self::AttrSetxattr,
            Inner::AttrRmxattr => Self::AttrRmxattr,
            Inner::AttrGetxattr => Self::AttrGetxattr,
            Inner::AttrListxattr => Self::AttrListxattr,
            Inner::AttrChdir => Self::AttrChdir,
            Inner::AttrChroot => Self::AttrChroot,
            Inner::AttrMount => Self::AttrMount,
            Inner::AttrUmount => Self::AttrUmount,
            Inner::AuxSignal => Self::AuxSignal,
            Inner::AuxPtrace => Self::AuxPtrace,
            Inner::AuxFileCaps => Self::AuxFileCaps,
            Inner::AuxExecCaps => Self::AuxExecCaps,
            Inner::IpcPerms => Self::IpcPerms,
            Inner::IpcCtl => Self::IpcCtl,
            Inner::IpcMsgctl => Self::IpcMsgctl,
            Inner::IpcSemctl => Self::IpcSemctl,
            Inner::IpcShmctl => Self::IpcShmctl,
            Inner::MqOpen => Self::MqOpen,
            Inner::MqSend => Self::MqSend,
            Inner::MqReceive => Self::MqReceive,
            Inner::MqNotify => Self::MqNotify,
            Inner::MqSetattr => Self::MqSetattr,
            Inner::ModuleName => Self::ModuleName,
            Inner::ClockAdjtimex => Self::ClockAdjtimex,
            Inner::ClockInject => Self::ClockInject,
            Inner::ClockSetEnter => Self::ClockSetEnter,
            Inner::ClockSetExit => Self::ClockSetExit,
            Inner::DenyOpen => Self::DenyOpen,
            Inner::DenyPathMknod => Self::DenyPathMknod,
            Inner::DenyExec => Self::DenyExec,
            Inner::DenyUnlink => Self::DenyUnlink,
            Inner::DenyRmdir => Self::DenyRmdir,
            Inner::DenyMkdir => Self::DenyMkdir,
            Inner::DenyMknod => Self::DenyMknod,
            Inner::DenyCreate => Self::DenyCreate,
            Inner::DenySymlink => Self::DenySymlink,
            Inner::DenyLink => Self::DenyLink,
            Inner::DenyRename => Self::DenyRename,
            Inner::DenySetattr => Self::DenySetattr,
            Inner::DenySetxattr => Self::DenySetxattr,
            Inner::DenyRmxattr => Self::DenyRmxattr,
            Inner::DenyBind => Self::DenyBind,
            Inner::DenyConnect => Self::DenyConnect,
            Inner::DenyMount => Self::DenyMount,
            Inner::DenyUmount => Self::DenyUmount,
            Inner::DenyKill => Self::DenyKill,
            Inner::DenyPtrace => Self::DenyPtrace,
            Inner::DenyModule => Self::DenyModule,
            Inner::DenyLoadData => Self::DenyLoadData,
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
