//! Hooks inside the kernel: which of its functions show the objects of a call as the kernel itself has
//! found them. Only the fentry engine has them.
//!
//! A function here serves more calls than one, so its program first asks which call it runs in. Functions
//! that ordinary calls share with those of rules are avoided: none of these is passed by `stat`, `access`
//! or `read`. `do_filp_open` is passed by whatever opens by name, and is the only one of the kind: rules
//! that name one way to open make the others pay for the look at which call it is.

use crate::table;

use super::SyscallId;

/// When a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before the function's first instruction.
    Enter,
    /// When it has returned.
    Exit,
    /// Before the function, whose answer it may be: see [`super::deny`].
    Deny,
}

macro_rules! inner {
    ($($(#[$doc:meta])* $name:ident = $side:ident $function:literal,)+) => {
        /// A function of the kernel on the way of some calls, and what its program sees there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum InternalHook {
            $($(#[$doc])* $name,)+
        }

        impl InternalHook {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Name of the function.
            #[must_use]
            pub const fn function(self) -> &'static str {
                match self {
                    $(Self::$name => $function,)+
                }
            }

            /// When its program runs.
            #[must_use]
            pub const fn side(self) -> Side {
                match self {
                    $(Self::$name => Side::$side,)+
                }
            }
        }
    };
}

inner! {
    /// What a call opens by name.
    OpenFilp = Exit "do_filp_open",
    /// Programs that a call starts, and their interpreters.
    OpenExecat = Exit "do_open_execat",
    /// What a call has found and may not open.
    OpenMayOpen = Exit "may_open",
    /// Name that `unlink` and `unlinkat` are given.
    NamesUnlink = Enter "do_unlinkat",
    /// Name that `rmdir` and `unlinkat` are given.
    NamesRmdir = Enter "do_rmdir",
    /// Name that `mkdir` is given.
    NamesMkdir = Enter "do_mkdirat",
    /// Name that `mknod` is given.
    NamesMknod = Enter "do_mknodat",
    /// Names that `symlink` is given.
    NamesSymlink = Enter "do_symlinkat",
    /// Names that `link` is given.
    NamesLink = Enter "do_linkat",
    /// Names that `rename` is given.
    NamesRename = Enter "do_renameat2",
    /// Directory of a name that is made or removed.
    NamesParent = Exit "path_parentat",
    /// What is to be removed, moved away or replaced.
    NamesDelete = Exit "may_delete",
    /// A regular file that `mknod` makes.
    CreatedFile = Exit "vfs_create",
    /// A directory that is made.
    CreatedDir = Exit "vfs_mkdir",
    /// A special file that is made.
    CreatedNode = Exit "vfs_mknod",
    /// A symbolic link that is made.
    CreatedSymlink = Exit "vfs_symlink",
    /// A hard link that is made.
    CreatedLink = Exit "vfs_link",
    /// What is moved.
    CreatedRename = Exit "vfs_rename",
    /// Socket address that a call gives.
    SockaddrKernel = Exit "move_addr_to_kernel",
    /// Socket address that a call is given.
    SockaddrUser = Enter "move_addr_to_user",
    /// Object whose mode is changed.
    AttrChmod = Enter "chmod_common",
    /// Object whose owner is changed.
    AttrChown = Enter "chown_common",
    /// Object whose length is changed.
    AttrTruncate = Enter "vfs_truncate",
    /// Object whose times are changed.
    AttrUtimes = Enter "vfs_utimes",
    /// Object whose extended attributes are changed.
    AttrSetxattr = Enter "vfs_setxattr",
    /// Object of which an extended attribute is removed.
    AttrRmxattr = Enter "vfs_removexattr",
    /// Object of which an extended attribute is read.
    AttrGetxattr = Enter "vfs_getxattr",
    /// Object whose extended attributes are listed.
    AttrListxattr = Enter "vfs_listxattr",
    /// Object whose access control list is changed: v6.2.
    AttrSetAcl = Enter "vfs_set_acl",
    /// Object whose access control list is removed: v6.2.
    AttrRemoveAcl = Enter "vfs_remove_acl",
    /// Object whose access control list is read: v6.2.
    AttrGetAcl = Enter "vfs_get_acl",
    /// The new working directory.
    AttrChdir = Enter "set_fs_pwd",
    /// The new root directory.
    AttrChroot = Enter "set_fs_root",
    /// Where something is mounted.
    AttrMount = Enter "path_mount",
    /// What is unmounted.
    AttrUmount = Enter "path_umount",
    /// A task that is sent a signal.
    AuxSignal = Enter "audit_signal_info",
    /// A task that is to be traced.
    AuxPtrace = Exit "ptrace_attach",
    /// Capabilities of a program's file.
    AuxFileCaps = Exit "get_vfs_caps_from_disk",
    /// Capabilities that a program gets.
    AuxExecCaps = Exit "cap_bprm_creds_from_file",
    /// A System V object that is used.
    IpcPerms = Enter "ipcperms",
    /// A System V object that is to be changed or removed, and what it is to become.
    IpcCtl = Exit "ipcctl_obtain_check",
    /// A message queue of System V that is looked at.
    IpcMsgctl = Enter "security_msg_queue_msgctl",
    /// Semaphores that are looked at.
    IpcSemctl = Enter "security_sem_semctl",
    /// Shared memory that is looked at or locked.
    IpcShmctl = Enter "security_shm_shmctl",
    /// A message queue that is opened.
    MqOpen = Enter "do_mq_open",
    /// A message that is sent.
    MqSend = Enter "do_mq_timedsend",
    /// A message that is received.
    MqReceive = Enter "do_mq_timedreceive",
    /// A signal asked for when a message comes.
    MqNotify = Enter "do_mq_notify",
    /// Attributes of a message queue that are changed.
    MqSetattr = Exit "do_mq_getsetattr",
    /// Name of a module that is loaded or unloaded.
    ModuleName = Enter "find_module_all",
    /// What of the clock's discipline is changed.
    ClockAdjtimex = Exit "__do_adjtimex",
    /// By how much the clock is set forward.
    ClockInject = Exit "timekeeping_inject_offset",
    /// The clock before it is set.
    ClockSetEnter = Enter "do_settimeofday64",
    /// The clock when it is set.
    ClockSetExit = Exit "do_settimeofday64",
    /// What is to be opened.
    DenyOpen = Deny "security_file_open",
    /// What an open is to make.
    DenyPathMknod = Deny "security_path_mknod",
    /// A program that is to be started.
    DenyExec = Deny "security_bprm_check",
    /// What is to be removed.
    DenyUnlink = Deny "security_inode_unlink",
    /// A directory that is to be removed.
    DenyRmdir = Deny "security_inode_rmdir",
    /// A directory that is to be made.
    DenyMkdir = Deny "security_inode_mkdir",
    /// A special file that is to be made.
    DenyMknod = Deny "security_inode_mknod",
    /// A regular file that `mknod` is to make.
    DenyCreate = Deny "security_inode_create",
    /// A symbolic link that is to be made.
    DenySymlink = Deny "security_inode_symlink",
    /// A hard link that is to be made.
    DenyLink = Deny "security_inode_link",
    /// What is to be moved.
    DenyRename = Deny "security_inode_rename",
    /// Mode, owner, length or times that are to be changed.
    DenySetattr = Deny "security_inode_setattr",
    /// An extended attribute that is to be changed.
    DenySetxattr = Deny "security_inode_setxattr",
    /// An extended attribute that is to be removed.
    DenyRmxattr = Deny "security_inode_removexattr",
    /// An access control list that is to be changed: v6.2.
    DenySetAcl = Deny "security_inode_set_acl",
    /// An access control list that is to be removed: v6.2.
    DenyRemoveAcl = Deny "security_inode_remove_acl",
    /// An address that a socket is to have.
    DenyBind = Deny "security_socket_bind",
    /// An address that a socket is to be connected to.
    DenyConnect = Deny "security_socket_connect",
    /// What is to be mounted.
    DenyMount = Deny "security_sb_mount",
    /// What is to be unmounted.
    DenyUmount = Deny "security_sb_umount",
    /// A task that is to be sent a signal.
    DenyKill = Deny "security_task_kill",
    /// A task that is to be traced.
    DenyPtrace = Deny "security_ptrace_access_check",
    /// A module that is to be loaded from a file.
    DenyModule = Deny "security_kernel_read_file",
    /// A module that is to be loaded from memory.
    DenyLoadData = Deny "security_kernel_load_data",
}

/// Some of [`InternalHook::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternalHookSet(u128);

impl InternalHookSet {
    /// All of them.
    pub const ALL: Self = Self((1 << InternalHook::ALL.len()) - 1);

    /// Whether it is one of them.
    #[must_use]
    pub fn contains(self, inner: InternalHook) -> bool {
        self.0 & bit(inner) != 0
    }
}

impl FromIterator<InternalHook> for InternalHookSet {
    fn from_iter<I: IntoIterator<Item = InternalHook>>(all: I) -> Self {
        Self(all.into_iter().fold(0, |set, inner| set | bit(inner)))
    }
}

fn bit(inner: InternalHook) -> u128 {
    let at = InternalHook::ALL.iter().position(|&other| other == inner);
    at.map_or(0, |at| 1 << at)
}

/// The functions that show what a call names; none for calls whose objects nothing shows.
///
/// # Source
/// `fs/namei.c`, `fs/open.c`, `fs/xattr.c`, `fs/namespace.c`, Linux 6.1 and 6.12; compared with what the
/// kernel's audit lists in the test `differential` of `tests/vm`.
#[must_use]
pub fn of(call: SyscallId) -> &'static [InternalHook] {
    use InternalHook::{
        AttrChdir, AttrChmod, AttrChown, AttrChroot, AttrGetxattr, AttrListxattr, AttrMount,
        AttrRmxattr, AttrSetxattr, AttrTruncate, AttrUmount, AttrUtimes, CreatedDir, CreatedFile,
        CreatedLink, CreatedNode, CreatedRename, CreatedSymlink, NamesDelete, NamesLink,
        NamesMkdir, NamesMknod, NamesParent, NamesRename, NamesRmdir, NamesSymlink, NamesUnlink,
        OpenExecat, OpenFilp, SockaddrKernel, SockaddrUser,
    };
    match table::syscall_name(call.arch, call.syscall).unwrap_or_default() {
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

/// Functions beside those of [`of`] that newer kernels call for some objects. A kernel without them calls the
/// others for these objects too.
///
/// # Source
/// `do_setxattr()`, `removexattr()` and `do_getxattr()` in `fs/xattr.c`, Linux 6.2 to 6.12: access control lists
/// are not set by `vfs_setxattr()` since 6.2.
#[must_use]
pub fn newer(call: SyscallId) -> &'static [InternalHook] {
    use InternalHook::{AttrGetAcl, AttrRemoveAcl, AttrSetAcl};
    match table::syscall_name(call.arch, call.syscall).unwrap_or_default() {
        "setxattr" | "lsetxattr" | "fsetxattr" | "setxattrat" => &[AttrSetAcl],
        "removexattr" | "lremovexattr" | "fremovexattr" | "removexattrat" => &[AttrRemoveAcl],
        "getxattr" | "lgetxattr" | "fgetxattr" | "getxattrat" => &[AttrGetAcl],
        _ => &[],
    }
}

/// The functions that show what else of a call has a record of its own; a call is audited without those
/// that a kernel lacks.
///
/// # Source
/// Callers of the `audit_*` functions of `include/linux/audit.h`, Linux 6.1 and 6.12; compared with what the
/// kernel's audit writes in the test `differential` of `tests/vm`.
#[must_use]
pub fn details(call: SyscallId) -> &'static [InternalHook] {
    use InternalHook::{
        AuxExecCaps, AuxFileCaps, AuxPtrace, AuxSignal, ClockAdjtimex, ClockInject, ClockSetEnter,
        ClockSetExit, IpcCtl, IpcMsgctl, IpcPerms, IpcSemctl, IpcShmctl, ModuleName, MqNotify,
        MqOpen, MqReceive, MqSend, MqSetattr,
    };
    match table::syscall_name(call.arch, call.syscall).unwrap_or_default() {
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
        "adjtimex" | "clock_adjtime" | "clock_adjtime64" => &[ClockAdjtimex, ClockInject],
        "clock_settime" | "clock_settime64" | "settimeofday" | "stime" => {
            &[ClockSetEnter, ClockSetExit]
        }
        _ => &[],
    }
}

/// Whether the functions of a call show every name that the kernel has copied, also when it then finds
/// nothing by it.
#[must_use]
pub fn shows_every_name(call: SyscallId) -> bool {
    of(call).iter().any(|inner| {
        matches!(
            inner,
            InternalHook::OpenFilp | InternalHook::OpenExecat | InternalHook::NamesParent
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Arch;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set: InternalHookSet = [InternalHook::OpenFilp, InternalHook::AttrUmount]
            .into_iter()
            .collect();
        let held: Vec<InternalHook> = InternalHook::ALL
            .iter()
            .copied()
            .filter(|&inner| set.contains(inner))
            .collect();
        assert_eq!(held, [InternalHook::OpenFilp, InternalHook::AttrUmount]);
        assert!(
            InternalHook::ALL
                .iter()
                .all(|&inner| InternalHookSet::ALL.contains(inner))
        );
    }

    #[test]
    fn common_calls_have_no_hooks_inside_the_kernel() {
        for name in ["stat", "access", "read", "write", "futex", "readlink"] {
            let syscall = table::syscall_number(Arch::X86_64, name.as_bytes()).unwrap();
            let arch = Arch::X86_64;
            assert_eq!(of(SyscallId { arch, syscall }), [], "{name}");
        }
    }
}
