//! Denial: syscalls that fail when they cannot be recorded.
//!
//! The keys of a rule select it for denial. The fentry engine has programs on the functions in which the kernel
//! asks its security modules, after every other check and before the syscall has an effect. There the rules are
//! evaluated as if the syscall succeeded; when the ring has no room for the event that they would record, the
//! syscall fails with `EPERM`.

use audit::plan::{Plan, SyscallId};

use super::internal_hook::InternalHook;

/// Functions that can deny a syscall; empty when no function can.
///
/// # Source
/// Callers of `security_*` in `fs/namei.c`, `fs/open.c`, `fs/attr.c`, `fs/xattr.c`, `fs/exec.c`,
/// `fs/namespace.c`, `net/socket.c`, `kernel/signal.c`, `kernel/ptrace.c` and `kernel/module`, Linux 6.1 and
/// 6.12.
#[must_use]
pub(crate) fn denial_hooks(syscall: SyscallId) -> &'static [InternalHook] {
    use InternalHook::{
        DenyBind, DenyConnect, DenyCreate, DenyExec, DenyKill, DenyLink, DenyLoadData, DenyMkdir,
        DenyMknod, DenyModule, DenyMount, DenyOpen, DenyPathMknod, DenyPtrace, DenyRename,
        DenyRmdir, DenyRmxattr, DenySetattr, DenySetxattr, DenySymlink, DenyUmount, DenyUnlink,
    };
    match syscall.name().unwrap_or_default() {
        "open" | "openat" | "openat2" | "creat" => &[DenyOpen, DenyPathMknod],
        "execve" | "execveat" => &[DenyExec],
        "unlink" => &[DenyUnlink],
        "rmdir" => &[DenyRmdir],
        "unlinkat" => &[DenyUnlink, DenyRmdir],
        "mkdir" | "mkdirat" => &[DenyMkdir],
        "mknod" | "mknodat" => &[DenyMknod, DenyCreate],
        "symlink" | "symlinkat" => &[DenySymlink],
        "link" | "linkat" => &[DenyLink],
        "rename" | "renameat" | "renameat2" => &[DenyRename],
        "chmod" | "fchmod" | "fchmodat" | "fchmodat2" | "chown" | "lchown" | "fchown"
        | "fchownat" | "chown32" | "lchown32" | "fchown32" | "truncate" | "truncate64"
        | "utime" | "utimes" | "futimesat" | "utimensat" | "utimensat_time64" => &[DenySetattr],
        "setxattr" | "lsetxattr" | "fsetxattr" | "setxattrat" => &[DenySetxattr],
        "removexattr" | "lremovexattr" | "fremovexattr" | "removexattrat" => &[DenyRmxattr],
        "bind" => &[DenyBind, DenyMknod],
        "connect" => &[DenyConnect],
        "mount" => &[DenyMount],
        "umount" | "umount2" => &[DenyUmount],
        "kill" | "tkill" | "tgkill" | "rt_sigqueueinfo" | "rt_tgsigqueueinfo"
        | "pidfd_send_signal" => &[DenyKill],
        "ptrace" => &[DenyPtrace],
        "init_module" => &[DenyLoadData],
        "finit_module" => &[DenyModule],
        _ => &[],
    }
}

/// Functions beside those of [`denial_hooks`] that newer kernels call for some objects: see
/// [`super::syscall_hooks::newer_object_hooks`].
#[must_use]
pub(crate) fn newer_denial_hooks(syscall: SyscallId) -> &'static [InternalHook] {
    match syscall.name().unwrap_or_default() {
        "setxattr" | "lsetxattr" | "fsetxattr" | "setxattrat" => &[InternalHook::DenySetAcl],
        "removexattr" | "lremovexattr" | "fremovexattr" | "removexattrat" => {
            &[InternalHook::DenyRemoveAcl]
        }
        _ => &[],
    }
}

/// Whether some function can deny a syscall.
#[must_use]
pub fn is_deniable(syscall: SyscallId) -> bool {
    !denial_hooks(syscall).is_empty()
}

/// Names of the syscalls that a rule denies and that no function can deny, each once.
#[must_use]
pub fn undeniable_syscalls(plan: &Plan) -> Vec<&'static str> {
    let mut names: Vec<&str> = plan
        .syscalls
        .iter()
        .filter(|&(&syscall, planned)| !is_deniable(syscall) && plan.denies(planned))
        .filter_map(|(syscall, _)| syscall.name())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use audit::ids::Arch;
    use audit::plan::rule_list::RuleList;
    use audit::rule::parse_file;
    use inputs::host::TestHost;

    use super::*;

    #[test]
    fn undeniable_syscalls_are_named() {
        let rules = b"-a always,exit -F arch=b64 -S openat -S read -k deny\n";
        let mut list = RuleList::default();
        list.load(0, parse_file(rules, &TestHost).0);
        let mut plan = Plan::compile(list.into_rules(), &[Arch::X86_64]);
        plan.deny(&["deny".into()], is_deniable);
        assert_eq!(plan.unsupported, []);
        assert_eq!(undeniable_syscalls(&plan), ["read"]);
    }
}
