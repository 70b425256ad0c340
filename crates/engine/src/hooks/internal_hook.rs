//! Hooks on functions inside the kernel that several syscalls pass, on the engines `fentry` and `lsm`.
//!
//! They show the objects of a syscall as the kernel itself finds them, and the details of auxiliary records.
//! A program on such a function first checks which syscall it runs in. Functions that ordinary syscalls share
//! with those of rules are avoided: `stat`, `access` and `read` pass none of these. The exception is
//! `do_filp_open`, which every open by name passes: a rule about one way to open a file costs the other ways
//! this check.
//!
//! Kernels differ in names and arguments of these functions. A hook lists the forms that its program knows, and
//! the kernel's BTF decides by prototype which of them is attached.

use libbpf_rs::{OpenProgramMut, ProgramMut};

use crate::abi::form;
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

/// A function to which a hook attaches on some kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Name of the function.
    pub function: &'static str,
    /// First kernel with this form; `None` for the form of the oldest kernels.
    pub since: Option<&'static str>,
    /// Prototype as [`super::prototype::matches`] takes it: what the program relies on.
    pub(crate) prototype: &'static str,
    /// Bit of `tlg_forms` that the program needs for this form, or 0.
    pub(crate) bit: u32,
}

macro_rules! internal_hooks {
    ($(
        #[doc = $doc:literal]
        $name:ident = $program:ident: $kind:ident [
            $($function:literal $(since $since:literal)?: $prototype:literal $(as $bit:ident)?),+ $(,)?
        ],
    )+) => {
        /// A function inside the kernel, and what its program sees or denies there.
        ///
        /// This is the only list of these functions on the Rust side; a test compares it with the sections of
        /// the BPF object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum InternalHook {
            $(#[doc = $doc] $name,)+
        }

        impl InternalHook {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)+];

            /// What the program sees or denies, as a sentence.
            #[must_use]
            pub const fn purpose(self) -> &'static str {
                match self {
                    $(Self::$name => $doc.trim_ascii(),)+
                }
            }

            /// The functions by which kernels differ, the oldest first.
            #[must_use]
            pub const fn forms(self) -> &'static [Form] {
                match self {
                    $(Self::$name => &[$(Form {
                        function: $function,
                        since: internal_hooks!(@since $($since)?),
                        prototype: $prototype,
                        bit: internal_hooks!(@bit $($bit)?),
                    },)+],)+
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
    (@since) => { None };
    (@since $since:literal) => { Some($since) };
    (@bit) => { 0 };
    (@bit $bit:ident) => { form::$bit };
}

internal_hooks! {
    /// File that an open finds by name.
    OpenFilp = open_filp: Fexit [
        "do_filp_open": "file*(_, filename*, open_flags*)",
        "do_file_open" since "7.0": "file*(_, filename*, open_flags*)",
    ],
    /// Program file and interpreters of an exec.
    OpenExecat = open_execat: Fexit ["do_open_execat": "file*(_, filename*, _)"],
    /// File that an open finds and is refused.
    OpenMayOpen = open_may_open: Fexit ["may_open": "int(_, path*, _, _)"],
    /// File that an open finds and whose mode refuses it.
    OpenDenied = open_denied: Fexit ["capable_wrt_inode_uidgid": "bool(_, inode*, int)"],
    /// File that an open creates, if the open fails then.
    OpenCreates = open_creates: Fexit ["security_inode_create": "int(inode*, dentry*, _)"],
    /// Name and flags of an open that finds no file or is refused (engine `lsm`).
    OpenFails = open_fails: Fentry ["fput_close": "_(file*)"],
    /// Name argument of `unlink` and `unlinkat`.
    NamesUnlink = names_unlink: Fentry [
        "do_unlinkat": "_(_, filename*)",
        "filename_unlinkat" since "7.0": "_(_, filename*)",
    ],
    /// Name argument of `rmdir` and `unlinkat`.
    NamesRmdir = names_rmdir: Fentry [
        "do_rmdir": "_(_, filename*)",
        "filename_rmdir" since "7.0": "_(_, filename*)",
    ],
    /// Name argument of `mkdir`.
    NamesMkdir = names_mkdir: Fentry [
        "do_mkdirat": "_(_, filename*, _)",
        "filename_mkdirat" since "7.0": "_(_, filename*, _)",
    ],
    /// Name argument of `mknod`.
    NamesMknod = names_mknod: Fentry [
        "do_mknodat": "_(_, filename*, _, _)",
        "filename_mknodat" since "7.0": "_(_, filename*, _, _)",
    ],
    /// Name arguments of `symlink`.
    NamesSymlink = names_symlink: Fentry [
        "do_symlinkat": "_(filename*, _, filename*)",
        "filename_symlinkat" since "7.0": "_(filename*, _, filename*)" as NAMES_IN_ORDER,
    ],
    /// Name arguments of `link`.
    NamesLink = names_link: Fentry [
        "do_linkat": "_(_, filename*, _, filename*, _)",
        "filename_linkat" since "7.0": "_(_, filename*, _, filename*, _)" as NAMES_IN_ORDER,
    ],
    /// Existing object of a hard link that `protected_hardlinks` may refuse.
    NamesLinked = names_linked: Fentry ["inode_owner_or_capable": "_(_, inode*)"],
    /// Name arguments of `rename`.
    NamesRename = names_rename: Fentry [
        "do_renameat2": "_(_, filename*, _, filename*, _)",
        "filename_renameat2" since "7.0": "_(_, filename*, _, filename*, _)" as NAMES_IN_ORDER,
    ],
    /// Parent directory of a name that is created or removed.
    NamesParent = names_parent: Fexit [
        "path_parentat": "int(nameidata*, _, path*)",
        "__filename_parentat" since "6.17": "int(_, filename*, _, path*, qstr*, _, path*)" as PARENT_BY_NAME,
    ],
    /// Object to be removed, renamed or replaced.
    NamesDelete = names_delete: Fexit [
        "may_delete": "int(_, inode*, dentry*, _)",
        "may_delete_dentry" since "7.0": "int(_, inode*, dentry*, _)",
    ],
    /// Regular file created by `mknod`.
    CreatedFile = created_file: Fexit [
        "vfs_create": "int(_, inode*, dentry*, _, _)",
        "vfs_create" since "6.19": "int(_, dentry*, _, delegated_inode*)" as CREATE_IN_PARENT,
    ],
    /// Directory created.
    CreatedDir = created_dir: Fexit [
        "vfs_mkdir": "int(_, inode*, dentry*, _)",
        "vfs_mkdir" since "6.15": "dentry*(_, inode*, dentry*, _)" as MKDIR_DENTRY,
        "vfs_mkdir" since "6.19": "dentry*(_, inode*, dentry*, _, delegated_inode*)" as MKDIR_DENTRY,
    ],
    /// Special file created.
    CreatedNode = created_node: Fexit [
        "vfs_mknod": "int(_, inode*, dentry*, _, _)",
        "vfs_mknod" since "6.19": "int(_, inode*, dentry*, _, _, delegated_inode*)",
    ],
    /// Symbolic link created.
    CreatedSymlink = created_symlink: Fexit [
        "vfs_symlink": "int(_, inode*, dentry*, _)",
        "vfs_symlink" since "6.19": "int(_, inode*, dentry*, _, delegated_inode*)",
    ],
    /// Hard link created.
    CreatedLink = created_link: Fexit ["vfs_link": "int(dentry*, _, inode*, dentry*, _)"],
    /// Object renamed.
    CreatedRename = created_rename: Fexit ["vfs_rename": "int(renamedata*)"],
    /// Socket address passed to the kernel.
    SockaddrKernel = sockaddr_kernel: Fexit ["move_addr_to_kernel": "int(_, _, __kernel_sockaddr_storage*)"],
    /// Socket address returned by the kernel.
    SockaddrUser = sockaddr_user: Fentry ["move_addr_to_user": "_(__kernel_sockaddr_storage*, _, _, _)"],
    /// Object whose mode is changed.
    AttrChmod = attr_chmod: Fentry ["chmod_common": "_(path*, _)"],
    /// Object whose owner is changed.
    AttrChown = attr_chown: Fentry ["chown_common": "_(path*, _, _)"],
    /// Object whose length is changed.
    AttrTruncate = attr_truncate: Fentry ["vfs_truncate": "_(path*, _)"],
    /// Object whose times are changed.
    AttrUtimes = attr_utimes: Fentry ["vfs_utimes": "_(path*, timespec64*)"],
    /// Object whose extended attributes are changed.
    AttrSetxattr = attr_setxattr: Fentry ["vfs_setxattr": "_(_, dentry*, _, _, _, _)"],
    /// Object from which an extended attribute is removed.
    AttrRmxattr = attr_rmxattr: Fentry ["vfs_removexattr": "_(_, dentry*, _)"],
    /// Object from which an extended attribute is read.
    AttrGetxattr = attr_getxattr: Fentry ["vfs_getxattr": "_(_, dentry*, _, _, _)"],
    /// Object whose extended attributes are listed.
    AttrListxattr = attr_listxattr: Fentry ["vfs_listxattr": "_(dentry*, _, _)"],
    /// Object whose access control list is changed (Linux 6.2).
    AttrSetAcl = attr_set_acl: Fentry ["vfs_set_acl": "_(_, dentry*, _, posix_acl*)"],
    /// Object whose access control list is removed (Linux 6.2).
    AttrRemoveAcl = attr_remove_acl: Fentry ["vfs_remove_acl": "_(_, dentry*, _)"],
    /// Object whose access control list is read (Linux 6.2).
    AttrGetAcl = attr_get_acl: Fentry ["vfs_get_acl": "_(_, dentry*, _)"],
    /// New working directory.
    AttrChdir = attr_chdir: Fentry ["set_fs_pwd": "_(fs_struct*, path*)"],
    /// New root directory.
    AttrChroot = attr_chroot: Fentry ["set_fs_root": "_(fs_struct*, path*)"],
    /// Mount point.
    AttrMount = attr_mount: Fentry ["path_mount": "_(_, path*, _, _, _)"],
    /// File system to be unmounted.
    AttrUmount = attr_umount: Fentry ["path_umount": "_(path*, _)"],
    /// Task that receives a signal.
    AuxSignal = aux_signal: Fentry ["audit_signal_info": "_(_, task_struct*)"],
    /// Task to be traced.
    AuxPtrace = aux_ptrace: Fexit ["ptrace_attach": "int(task_struct*, _, _, _)"],
    /// Capabilities of a program file.
    AuxFileCaps = aux_file_caps: Fexit ["get_vfs_caps_from_disk": "int(_, dentry*, cpu_vfs_cap_data*)"],
    /// Capabilities after an exec.
    AuxExecCaps = aux_exec_caps: Fexit ["cap_bprm_creds_from_file": "int(linux_binprm*, file*)"],
    /// System V object that is used.
    IpcPerms = ipc_perms: Fentry ["ipcperms": "_(ipc_namespace*, kern_ipc_perm*, _)"],
    /// System V object to be changed or removed, and its new permissions.
    IpcCtl = ipc_ctl: Fexit ["ipcctl_obtain_check": "kern_ipc_perm*(ipc_namespace*, ipc_ids*, _, _, ipc64_perm*, _)"],
    /// System V message queue that is queried.
    IpcMsgctl = ipc_msgctl: Fentry ["security_msg_queue_msgctl": "_(kern_ipc_perm*, _)"],
    /// System V semaphores that are queried.
    IpcSemctl = ipc_semctl: Fentry ["security_sem_semctl": "_(kern_ipc_perm*, _)"],
    /// System V shared memory that is queried or locked.
    IpcShmctl = ipc_shmctl: Fentry ["security_shm_shmctl": "_(kern_ipc_perm*, _)"],
    /// POSIX message queue that is opened.
    MqOpen = mq_open: Fentry ["do_mq_open": "_(_, _, _, mq_attr*)"],
    /// Message that is sent.
    MqSend = mq_send: Fentry ["do_mq_timedsend": "_(_, _, _, _, timespec64*)"],
    /// Message that is received.
    MqReceive = mq_receive: Fentry ["do_mq_timedreceive": "_(_, _, _, _, timespec64*)"],
    /// Notification requested for a message queue.
    MqNotify = mq_notify: Fentry ["do_mq_notify": "_(_, sigevent*)"],
    /// Attributes of a message queue that are changed.
    MqSetattr = mq_setattr: Fexit ["do_mq_getsetattr": "int(_, mq_attr*, mq_attr*)"],
    /// Name of a module that is loaded or unloaded.
    ModuleName = module_name: Fentry ["find_module_all": "_(_, _, _)"],
    /// Clock adjustment.
    ClockAdjtimex = clock_adjtimex: Fexit [
        "__do_adjtimex": "int(__kernel_timex*, timespec64*, _, audit_ntp_data*)",
        "ntp_adjtimex" since "6.17": "int(_, __kernel_timex*, timespec64*, _, audit_ntp_data*)" as NTP_ADJTIMEX,
    ],
    /// Offset added to the clock.
    ClockInject = clock_inject: Fexit ["timekeeping_inject_offset": "int(timespec64*)"],
    /// Offset added to the clock, where `timekeeping_inject_offset` is inlined (Linux 6.17).
    ClockInjectNtp = clock_inject_ntp: Fentry ["ntp_adjtimex": "_(_, __kernel_timex*, timespec64*, _, audit_ntp_data*)"],
    /// Clock before it is set.
    ClockSetEnter = clock_set_enter: Fentry ["do_settimeofday64": "_(timespec64*)"],
    /// Clock after it is set.
    ClockSetExit = clock_set_exit: Fexit ["do_settimeofday64": "int(timespec64*)"],
    /// Stop of a traced task, before which the kernel may run task work of a fork or exec (engine `lsm`).
    CallTraced = call_traced: Fexit ["ptrace_notify": "int(_, _)"],
    /// Exec in whose middle the kernel may run task work (engine `lsm`).
    CallNewExec = call_new_exec: Fexit ["begin_new_exec": "int(linux_binprm*)"],
    /// Denies opening a file.
    DenyOpen = deny_open: ModifyReturn ["security_file_open": "int(file*)"],
    /// Denies creating a file by an open.
    DenyPathMknod = deny_path_mknod: ModifyReturn ["security_path_mknod": "int(path*, dentry*, _, _)"],
    /// Denies executing a program.
    DenyExec = deny_exec: ModifyReturn ["security_bprm_check": "int(linux_binprm*)"],
    /// Denies removing a name.
    DenyUnlink = deny_unlink: ModifyReturn ["security_inode_unlink": "int(inode*, dentry*)"],
    /// Denies removing a directory.
    DenyRmdir = deny_rmdir: ModifyReturn ["security_inode_rmdir": "int(inode*, dentry*)"],
    /// Denies creating a directory.
    DenyMkdir = deny_mkdir: ModifyReturn ["security_inode_mkdir": "int(inode*, dentry*, _)"],
    /// Denies creating a special file.
    DenyMknod = deny_mknod: ModifyReturn ["security_inode_mknod": "int(inode*, dentry*, _, _)"],
    /// Denies creating a regular file by `mknod`.
    DenyCreate = deny_create: ModifyReturn ["security_inode_create": "int(inode*, dentry*, _)"],
    /// Denies creating a symbolic link.
    DenySymlink = deny_symlink: ModifyReturn ["security_inode_symlink": "int(inode*, dentry*, _)"],
    /// Denies creating a hard link.
    DenyLink = deny_link: ModifyReturn ["security_inode_link": "int(dentry*, inode*, dentry*)"],
    /// Denies renaming.
    DenyRename = deny_rename: ModifyReturn ["security_inode_rename": "int(inode*, dentry*, inode*, dentry*, _)"],
    /// Denies changing mode, owner, length or times.
    DenySetattr = deny_setattr: ModifyReturn ["security_inode_setattr": "int(_, dentry*, iattr*)"],
    /// Denies setting an extended attribute.
    DenySetxattr = deny_setxattr: ModifyReturn ["security_inode_setxattr": "int(_, dentry*, _, _, _, _)"],
    /// Denies removing an extended attribute.
    DenyRmxattr = deny_rmxattr: ModifyReturn ["security_inode_removexattr": "int(_, dentry*, _)"],
    /// Denies setting an access control list (Linux 6.2).
    DenySetAcl = deny_set_acl: ModifyReturn ["security_inode_set_acl": "int(_, dentry*, _, posix_acl*)"],
    /// Denies removing an access control list (Linux 6.2).
    DenyRemoveAcl = deny_remove_acl: ModifyReturn ["security_inode_remove_acl": "int(_, dentry*, _)"],
    /// Denies binding a socket.
    DenyBind = deny_bind: ModifyReturn ["security_socket_bind": "int(socket*, sockaddr*, _)"],
    /// Denies connecting a socket.
    DenyConnect = deny_connect: ModifyReturn ["security_socket_connect": "int(socket*, sockaddr*, _)"],
    /// Denies mounting.
    DenyMount = deny_mount: ModifyReturn ["security_sb_mount": "int(_, path*, _, _, _)"],
    /// Denies unmounting.
    DenyUmount = deny_umount: ModifyReturn ["security_sb_umount": "int(vfsmount*, _)"],
    /// Denies sending a signal.
    DenyKill = deny_kill: ModifyReturn ["security_task_kill": "int(task_struct*, kernel_siginfo*, _, cred*)"],
    /// Denies tracing a task.
    DenyPtrace = deny_ptrace: ModifyReturn ["security_ptrace_access_check": "int(task_struct*, _)"],
    /// Denies loading a module from a file.
    DenyModule = deny_module: ModifyReturn ["security_kernel_read_file": "int(file*, _, _)"],
    /// Denies loading a module from memory.
    DenyLoadData = deny_load_data: ModifyReturn ["security_kernel_load_data": "int(_, _)"],
}

impl InternalHook {
    /// Name of the function that the program declares: that of the oldest kernels.
    #[must_use]
    pub const fn function(self) -> &'static str {
        match self.forms() {
            [first, ..] => first.function,
            [] => "",
        }
    }

    /// A hook that sees the same on other kernels.
    #[must_use]
    pub const fn alternative(self) -> Option<Self> {
        match self {
            Self::ClockInject => Some(Self::ClockInjectNtp),
            Self::ClockInjectNtp => Some(Self::ClockInject),
            _ => None,
        }
    }
}

/// The hooks that a kernel has, and the form of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InternalHookSet {
    /// One plus the index of the form, or 0 for a hook that is missing.
    forms: [u8; InternalHook::ALL.len()],
}

impl InternalHookSet {
    /// All of them, in the form of the oldest kernels.
    pub const ALL: Self = Self {
        forms: [1; InternalHook::ALL.len()],
    };
    /// None of them.
    pub const NONE: Self = Self {
        forms: [0; InternalHook::ALL.len()],
    };

    /// Selects for each hook the first form that a kernel has.
    pub(crate) fn select(has: impl Fn(&Form) -> bool) -> Self {
        let mut set = Self::NONE;
        for (&hook, chosen) in InternalHook::ALL.iter().zip(&mut set.forms) {
            let found = hook.forms().iter().position(&has);
            *chosen = found.map_or(0, |index| u8::try_from(index + 1).unwrap_or_default());
        }
        set
    }

    /// Whether the set contains a hook.
    #[must_use]
    pub fn contains(self, hook: InternalHook) -> bool {
        self.form(hook).is_some()
    }

    /// The form of a hook; `None` if the hook is missing.
    #[must_use]
    pub fn form(self, hook: InternalHook) -> Option<&'static Form> {
        let index = usize::from(*self.forms.get(hook as usize)?).checked_sub(1)?;
        hook.forms().get(index)
    }

    /// The value of `tlg_forms`.
    pub(crate) fn form_bits(self) -> u32 {
        let forms = InternalHook::ALL.iter().filter_map(|&hook| self.form(hook));
        forms.fold(0, |bits, form| bits | form.bit)
    }
}

impl FromIterator<InternalHook> for InternalHookSet {
    fn from_iter<I: IntoIterator<Item = InternalHook>>(hooks: I) -> Self {
        let mut set = Self::NONE;
        for hook in hooks {
            if let Some(form) = set.forms.get_mut(hook as usize) {
                *form = 1;
            }
        }
        set
    }
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
    fn the_first_form_that_a_kernel_has_is_selected() {
        let of =
            |functions: &[&str]| InternalHookSet::select(|form| functions.contains(&form.function));
        let hook = InternalHook::NamesParent;
        let function = |set: InternalHookSet| set.form(hook).map(|form| form.function);
        let both = of(&["__filename_parentat", "path_parentat"]);
        assert_eq!(
            (function(both), both.form_bits()),
            (Some("path_parentat"), 0)
        );
        let newer = of(&["__filename_parentat"]);
        assert_eq!(function(newer), Some("__filename_parentat"));
        assert_eq!(newer.form_bits(), form::PARENT_BY_NAME);
        assert_eq!(function(of(&["vfs_link"])), None);
    }

    #[test]
    fn forms_differ_and_prototypes_are_well_formed() {
        for &hook in InternalHook::ALL {
            let forms = hook.forms();
            for (index, form) in forms.iter().enumerate() {
                assert!(form.prototype.ends_with(')'), "{hook:?}");
                assert_eq!(form.since.is_none(), index == 0, "{hook:?}");
                let same = |other: &&Form| {
                    (other.function, other.prototype) == (form.function, form.prototype)
                };
                assert_eq!(forms.iter().filter(same).count(), 1, "{hook:?}");
            }
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
