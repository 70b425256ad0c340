//! Hooks on functions inside the kernel that several syscalls pass, on the fentry engine only.
//!
//! They show the objects of a syscall as the kernel itself finds them, and the details of auxiliary records.
//! A program on such a function first checks which syscall it runs in. Functions that ordinary syscalls share
//! with those of rules are avoided: `stat`, `access` and `read` pass none of these. The exception is
//! `do_filp_open`, which every open by name passes: a rule about one way to open a file costs the other ways
//! this check.

use libbpf_rs::{OpenProgramMut, ProgramMut};

use crate::skeleton::{OpenSyscallProgs, SyscallProgs};

/// How a program is attached to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachKind {
    /// `fentry`: before the first instruction of the function.
    Fentry,
    /// `fexit`: after the function has returned.
    Fexit,
    /// `fmod_ret`: before the function, whose result the program can replace; see [`super::denial`].
    ModifyReturn,
}

macro_rules! internal_hooks {
    ($($(#[$doc:meta])* $name:ident = $program:ident: $kind:ident $function:literal,)+) => {
        /// A function inside the kernel, and what its program sees or denies there.
        ///
        /// This is the only list of these functions on the Rust side; a test compares it with the sections of
        /// the BPF object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum InternalHook {
            $($(#[$doc])* $name,)+
        }

        impl InternalHook {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)+];

            /// Name of the function.
            #[must_use]
            pub(crate) const fn function(self) -> &'static str {
                match self {
                    $(Self::$name => $function,)+
                }
            }

            /// How the program is attached.
            #[must_use]
            pub(crate) const fn attach_kind(self) -> AttachKind {
                match self {
                    $(Self::$name => AttachKind::$kind,)+
                }
            }

            /// Name of the program in the object.
            pub(super) const fn program_name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($program),)+
                }
            }

            /// The program in an object that is not loaded yet.
            pub(super) fn open_program<'p, 'o>(
                self,
                programs: &'p mut OpenSyscallProgs<'o>,
            ) -> &'p mut OpenProgramMut<'o> {
                match self {
                    $(Self::$name => &mut programs.$program,)+
                }
            }

            /// The program in a loaded object.
            pub(super) fn program<'p, 'o>(
                self,
                programs: &'p SyscallProgs<'o>,
            ) -> &'p ProgramMut<'o> {
                match self {
                    $(Self::$name => &programs.$program,)+
                }
            }
        }
    };
}

internal_hooks! {
    /// File that an open finds by name.
    OpenFilp = open_filp: Fexit "do_filp_open",
    /// Program file and interpreters of an exec.
    OpenExecat = open_execat: Fexit "do_open_execat",
    /// File that an open finds and is refused.
    OpenMayOpen = open_may_open: Fexit "may_open",
    /// Name argument of `unlink` and `unlinkat`.
    NamesUnlink = names_unlink: Fentry "do_unlinkat",
    /// Name argument of `rmdir` and `unlinkat`.
    NamesRmdir = names_rmdir: Fentry "do_rmdir",
    /// Name argument of `mkdir`.
    NamesMkdir = names_mkdir: Fentry "do_mkdirat",
    /// Name argument of `mknod`.
    NamesMknod = names_mknod: Fentry "do_mknodat",
    /// Name arguments of `symlink`.
    NamesSymlink = names_symlink: Fentry "do_symlinkat",
    /// Name arguments of `link`.
    NamesLink = names_link: Fentry "do_linkat",
    /// Name arguments of `rename`.
    NamesRename = names_rename: Fentry "do_renameat2",
    /// Parent directory of a name that is created or removed.
    NamesParent = names_parent: Fexit "path_parentat",
    /// Object to be removed, renamed or replaced.
    NamesDelete = names_delete: Fexit "may_delete",
    /// Regular file created by `mknod`.
    CreatedFile = created_file: Fexit "vfs_create",
    /// Directory created.
    CreatedDir = created_dir: Fexit "vfs_mkdir",
    /// Special file created.
    CreatedNode = created_node: Fexit "vfs_mknod",
    /// Symbolic link created.
    CreatedSymlink = created_symlink: Fexit "vfs_symlink",
    /// Hard link created.
    CreatedLink = created_link: Fexit "vfs_link",
    /// Object renamed.
    CreatedRename = created_rename: Fexit "vfs_rename",
    /// Socket address passed to the kernel.
    SockaddrKernel = sockaddr_kernel: Fexit "move_addr_to_kernel",
    /// Socket address returned by the kernel.
    SockaddrUser = sockaddr_user: Fentry "move_addr_to_user",
    /// Object whose mode is changed.
    AttrChmod = attr_chmod: Fentry "chmod_common",
    /// Object whose owner is changed.
    AttrChown = attr_chown: Fentry "chown_common",
    /// Object whose length is changed.
    AttrTruncate = attr_truncate: Fentry "vfs_truncate",
    /// Object whose times are changed.
    AttrUtimes = attr_utimes: Fentry "vfs_utimes",
    /// Object whose extended attributes are changed.
    AttrSetxattr = attr_setxattr: Fentry "vfs_setxattr",
    /// Object from which an extended attribute is removed.
    AttrRmxattr = attr_rmxattr: Fentry "vfs_removexattr",
    /// Object from which an extended attribute is read.
    AttrGetxattr = attr_getxattr: Fentry "vfs_getxattr",
    /// Object whose extended attributes are listed.
    AttrListxattr = attr_listxattr: Fentry "vfs_listxattr",
    /// New working directory.
    AttrChdir = attr_chdir: Fentry "set_fs_pwd",
    /// New root directory.
    AttrChroot = attr_chroot: Fentry "set_fs_root",
    /// Mount point.
    AttrMount = attr_mount: Fentry "path_mount",
    /// File system to be unmounted.
    AttrUmount = attr_umount: Fentry "path_umount",
    /// Task that receives a signal.
    AuxSignal = aux_signal: Fentry "audit_signal_info",
    /// Task to be traced.
    AuxPtrace = aux_ptrace: Fexit "ptrace_attach",
    /// Capabilities of a program file.
    AuxFileCaps = aux_file_caps: Fexit "get_vfs_caps_from_disk",
    /// Capabilities after an exec.
    AuxExecCaps = aux_exec_caps: Fexit "cap_bprm_creds_from_file",
    /// System V object that is used.
    IpcPerms = ipc_perms: Fentry "ipcperms",
    /// System V object to be changed or removed, and its new permissions.
    IpcCtl = ipc_ctl: Fexit "ipcctl_obtain_check",
    /// System V message queue that is queried.
    IpcMsgctl = ipc_msgctl: Fentry "security_msg_queue_msgctl",
    /// System V semaphores that are queried.
    IpcSemctl = ipc_semctl: Fentry "security_sem_semctl",
    /// System V shared memory that is queried or locked.
    IpcShmctl = ipc_shmctl: Fentry "security_shm_shmctl",
    /// POSIX message queue that is opened.
    MqOpen = mq_open: Fentry "do_mq_open",
    /// Message that is sent.
    MqSend = mq_send: Fentry "do_mq_timedsend",
    /// Message that is received.
    MqReceive = mq_receive: Fentry "do_mq_timedreceive",
    /// Notification requested for a message queue.
    MqNotify = mq_notify: Fentry "do_mq_notify",
    /// Attributes of a message queue that are changed.
    MqSetattr = mq_setattr: Fexit "do_mq_getsetattr",
    /// Name of a module that is loaded or unloaded.
    ModuleName = module_name: Fentry "find_module_all",
    /// Clock adjustment.
    ClockAdjtimex = clock_adjtimex: Fexit "__do_adjtimex",
    /// Offset added to the clock.
    ClockInject = clock_inject: Fexit "timekeeping_inject_offset",
    /// Clock before it is set.
    ClockSetEnter = clock_set_enter: Fentry "do_settimeofday64",
    /// Clock after it is set.
    ClockSetExit = clock_set_exit: Fexit "do_settimeofday64",
    /// Denies opening a file.
    DenyOpen = deny_open: ModifyReturn "security_file_open",
    /// Denies creating a file by an open.
    DenyPathMknod = deny_path_mknod: ModifyReturn "security_path_mknod",
    /// Denies executing a program.
    DenyExec = deny_exec: ModifyReturn "security_bprm_check",
    /// Denies removing a name.
    DenyUnlink = deny_unlink: ModifyReturn "security_inode_unlink",
    /// Denies removing a directory.
    DenyRmdir = deny_rmdir: ModifyReturn "security_inode_rmdir",
    /// Denies creating a directory.
    DenyMkdir = deny_mkdir: ModifyReturn "security_inode_mkdir",
    /// Denies creating a special file.
    DenyMknod = deny_mknod: ModifyReturn "security_inode_mknod",
    /// Denies creating a regular file by `mknod`.
    DenyCreate = deny_create: ModifyReturn "security_inode_create",
    /// Denies creating a symbolic link.
    DenySymlink = deny_symlink: ModifyReturn "security_inode_symlink",
    /// Denies creating a hard link.
    DenyLink = deny_link: ModifyReturn "security_inode_link",
    /// Denies renaming.
    DenyRename = deny_rename: ModifyReturn "security_inode_rename",
    /// Denies changing mode, owner, length or times.
    DenySetattr = deny_setattr: ModifyReturn "security_inode_setattr",
    /// Denies setting an extended attribute.
    DenySetxattr = deny_setxattr: ModifyReturn "security_inode_setxattr",
    /// Denies removing an extended attribute.
    DenyRmxattr = deny_rmxattr: ModifyReturn "security_inode_removexattr",
    /// Denies binding a socket.
    DenyBind = deny_bind: ModifyReturn "security_socket_bind",
    /// Denies connecting a socket.
    DenyConnect = deny_connect: ModifyReturn "security_socket_connect",
    /// Denies mounting.
    DenyMount = deny_mount: ModifyReturn "security_sb_mount",
    /// Denies unmounting.
    DenyUmount = deny_umount: ModifyReturn "security_sb_umount",
    /// Denies sending a signal.
    DenyKill = deny_kill: ModifyReturn "security_task_kill",
    /// Denies tracing a task.
    DenyPtrace = deny_ptrace: ModifyReturn "security_ptrace_access_check",
    /// Denies loading a module from a file.
    DenyModule = deny_module: ModifyReturn "security_kernel_read_file",
    /// Denies loading a module from memory.
    DenyLoadData = deny_load_data: ModifyReturn "security_kernel_load_data",
}

/// A subset of [`InternalHook::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternalHookSet(u128);

impl InternalHookSet {
    /// All of them.
    pub const ALL: Self = Self((1 << InternalHook::ALL.len()) - 1);

    /// Whether the set contains a hook.
    #[must_use]
    pub(crate) fn contains(self, hook: InternalHook) -> bool {
        self.0 & bit(hook) != 0
    }
}

impl FromIterator<InternalHook> for InternalHookSet {
    fn from_iter<I: IntoIterator<Item = InternalHook>>(hooks: I) -> Self {
        Self(hooks.into_iter().fold(0, |set, hook| set | bit(hook)))
    }
}

const fn bit(hook: InternalHook) -> u128 {
    1 << hook as u32
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use libbpf_rs::skel::SkelBuilder as _;

    use super::*;
    use crate::skeleton::SyscallSkelBuilder;

    #[test]
    fn the_set_contains_what_was_inserted() {
        let inserted = [InternalHook::OpenFilp, InternalHook::AttrUmount];
        let set: InternalHookSet = inserted.into_iter().collect();
        for &hook in InternalHook::ALL {
            assert_eq!(set.contains(hook), inserted.contains(&hook), "{hook:?}");
            assert!(InternalHookSet::ALL.contains(hook), "{hook:?}");
        }
    }

    #[test]
    fn programs_are_declared_for_these_functions() {
        let mut storage = MaybeUninit::uninit();
        let mut open = SyscallSkelBuilder::default().open(&mut storage).unwrap();
        for &hook in InternalHook::ALL {
            let section = match hook.attach_kind() {
                AttachKind::Fentry => "fentry",
                AttachKind::Fexit => "fexit",
                AttachKind::ModifyReturn => "fmod_ret",
            };
            let program = hook.open_program(&mut open.progs);
            assert_eq!(
                program.section().to_str(),
                Some(format!("{section}/{}", hook.function()).as_str()),
                "{hook:?}"
            );
        }
    }
}
