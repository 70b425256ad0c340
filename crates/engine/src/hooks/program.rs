//! The BPF programs of `bpf/syscall.bpf.c` by name, and which of them are loaded.

use std::collections::BTreeSet;

use libbpf_rs::{OpenProgramMut, ProgramAttachType, ProgramMut, ProgramType};

use crate::engine_kind::EngineKind;
use crate::skeleton::{OpenSyscallProgs, SyscallProgs};

use super::internal_hook::{AttachKind, InternalHook, InternalHookSet};

macro_rules! programs {
    ($($name:ident => $program:ident,)+) => {
        /// A program of `bpf/syscall.bpf.c`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Program {
            $($name,)+
            /// The program of an internal hook.
            Internal(InternalHook),
        }

        impl Program {
            /// Name in the object.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($program),)+
                    Self::Internal(hook) => hook.program_name(),
                }
            }

            /// All programs.
            pub(crate) fn all() -> impl Iterator<Item = Self> {
                let internal = InternalHook::ALL.iter().copied().map(Self::Internal);
                [$(Self::$name,)+].into_iter().chain(internal)
            }

            /// The program in an object that is not loaded yet.
            fn open<'p, 'o>(self, programs: &'p mut OpenSyscallProgs<'o>) -> &'p mut OpenProgramMut<'o> {
                match self {
                    $(Self::$name => &mut programs.$program,)+
                    Self::Internal(hook) => hook.open_program(programs),
                }
            }

            /// The program in a loaded object, from which it may have been left out.
            pub(crate) fn of<'p, 'o>(self, programs: &'p SyscallProgs<'o>) -> &'p ProgramMut<'o> {
                match self {
                    $(Self::$name => &programs.$program,)+
                    Self::Internal(hook) => hook.program(programs),
                }
            }
        }
    };
}

programs! {
    // First, so that it is attached before the programs that take slots.
    SlotsExit => slots_exit,
    DaemonRegister => daemon_register,
    InodeIdentity => inode_identity,
    Heartbeat => heartbeat,
    HeartbeatKprobe => heartbeat_kprobe,
    SysExitTp => sys_exit_tp,
    SysEnterTp => sys_enter_tp,
    SysEnterNoret => sys_enter_noret,
    SysExitRaw => sys_exit_raw,
    SysEnterRaw => sys_enter_raw,
    ExecPrepare => exec_prepare,
    ExecCommit => exec_commit,
    TaskExit => task_exit,
    TaskFork => task_fork,
    TaskAlloc => task_alloc,
    StubSysExit => stub_sys_exit,
    StubOpenat => stub_openat,
    StubOpen => stub_open,
    StubSysExit0 => stub_sys_exit0,
    StubNoreturn => stub_noreturn,
    StubNoreturn0 => stub_noreturn0,
    SysEnterFn => sys_enter_fn,
    CallEnter => call_enter,
    CallNoReturn => call_noreturn,
    CallReturn => call_return,
    CallSession => call_session,
    CallExit => call_exit,
    CallExec => call_exec,
    CallOpen => call_open,
    StubUringEnter => stub_uring_enter,
    UringEnter => uring_enter,
    StubUringExit => stub_uring_exit,
    UringSession => uring_session,
    UringComplete => uring_complete,
    SysExitFn => sys_exit_fn,
    SysExitFn0 => sys_exit_fn0,
    NoreturnFn => noreturn_fn,
    NoreturnFn0 => noreturn_fn0,
    UringExit => uring_exit,
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
    /// The program of a name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|program| program.name() == name)
    }

    /// Programs that protect the state of a locked daemon, one per function. [`Program::GuardInit`] gives them
    /// what to protect; [`Program::GuardClaim`] passes the protected state to the next daemon.
    pub(crate) fn guards() -> impl Iterator<Item = Self> {
        Self::all().filter(|program| program.is_guard())
    }

    /// Whether a run that the kernel skips loses no event.
    pub(crate) const fn may_be_skipped(self) -> bool {
        matches!(self, Self::HeartbeatKprobe)
    }

    fn is_guard(self) -> bool {
        let is_function = !matches!(self, Self::GuardInit | Self::GuardClaim);
        is_function && self.name().starts_with("guard_")
    }

    /// Whether the program is on a function with this engine. A kernel that refuses it refuses the fentry engine
    /// as well.
    pub(crate) fn needs_functions(self, kind: EngineKind) -> bool {
        (self == Self::AvcSyscall && kind != EngineKind::Lsm) || self.is_guard()
    }

    /// The function of a guard, where some supported kernels lack it.
    pub(crate) const fn required_function(self) -> Option<&'static str> {
        match self {
            Self::GuardSetAcl => Some("security_inode_set_acl"),
            Self::GuardRemoveAcl => Some("security_inode_remove_acl"),
            Self::GuardIoctl32 => Some("security_file_ioctl_compat"),
            Self::GuardFileattr => Some("security_inode_file_setattr"),
            _ => None,
        }
    }

    /// The program that a stub calls by a tail call.
    pub(crate) const fn tail_call_target(self) -> Option<Self> {
        match self {
            Self::StubSysExit | Self::StubOpenat | Self::StubOpen => Some(Self::SysExitFn),
            Self::StubSysExit0 => Some(Self::SysExitFn0),
            Self::StubNoreturn => Some(Self::NoreturnFn),
            Self::StubNoreturn0 => Some(Self::NoreturnFn0),
            Self::StubUringEnter => Some(Self::UringEnter),
            Self::StubUringExit => Some(Self::UringExit),
            _ => None,
        }
    }
}

/// Programs of an engine that run for the daemon itself.
pub(crate) fn of_daemon(kind: EngineKind) -> impl Iterator<Item = Program> {
    let heartbeat = match kind {
        EngineKind::Fentry => Some(Program::Heartbeat),
        EngineKind::Lsm => Some(Program::HeartbeatKprobe),
        EngineKind::Tracepoint => None,
    };
    [Program::DaemonRegister, Program::InodeIdentity]
        .into_iter()
        .chain(heartbeat)
}

/// Selects the programs that an object loads: programs that are not attached need not pass the verifier.
///
/// Programs of internal hooks get the function that this kernel has. On the engine `lsm` they become kprobes, or LSM
/// programs if they deny.
///
/// # Errors
/// That of libbpf if BTF cannot be read.
pub(crate) fn select(
    programs: &mut OpenSyscallProgs<'_>,
    wanted: &BTreeSet<Program>,
    hooks: InternalHookSet,
    kind: EngineKind,
) -> libbpf_rs::Result<()> {
    for program in Program::all() {
        let is_wanted = wanted.contains(&program);
        let open = program.open(programs);
        open.set_autoload(is_wanted);
        match program {
            Program::SlotsExit if kind == EngineKind::Lsm => {
                make_kprobe(open, ProgramAttachType::KprobeMulti);
            }
            Program::AvcSyscall if kind == EngineKind::Lsm => {
                make_kprobe(open, ProgramAttachType::TraceKprobeSession);
            }
            _ => {}
        }
        let Program::Internal(hook) = program else {
            continue;
        };
        let Some(form) = hooks.form(hook).filter(|_| is_wanted) else {
            continue;
        };
        if kind == EngineKind::Lsm {
            match hook.attach_kind() {
                AttachKind::Fentry => make_kprobe(open, ProgramAttachType::KprobeMulti),
                AttachKind::Fexit => make_kprobe(open, ProgramAttachType::TraceKprobeSession),
                AttachKind::ModifyReturn => make_lsm(open)?,
            }
        } else if form.function != hook.function() {
            open.set_attach_target(KERNEL, Some(form.function.to_owned()))?;
        }
    }
    Ok(())
}

/// The descriptor that stands for the kernel as the target of a program.
const KERNEL: i32 = 0;

/// Makes a kprobe of a program on a function.
fn make_kprobe(program: &mut OpenProgramMut<'_>, attach_type: ProgramAttachType) {
    program.set_prog_type(ProgramType::Kprobe);
    program.set_attach_type(attach_type);
}

/// Start of the section of a program on an LSM function.
const ON_LSM_FUNCTION: &str = "fmod_ret/security_";

/// Makes an LSM program, which the kernel never skips, of a program on an LSM function. The LSM hook has the rest of
/// the function's name and its first arguments.
fn make_lsm(program: &mut OpenProgramMut<'_>) -> libbpf_rs::Result<()> {
    let section = program.section().to_string_lossy().into_owned();
    let Some(hook) = section.strip_prefix(ON_LSM_FUNCTION) else {
        return Ok(());
    };
    program.set_prog_type(ProgramType::Lsm);
    program.set_attach_type(ProgramAttachType::LsmMac);
    // The only hook with another name than its function.
    let hook = if hook == "bprm_check" {
        "bprm_check_security"
    } else {
        hook
    };
    program.set_attach_target(KERNEL, Some(hook.to_owned()))
}

/// Makes LSM programs of guards.
///
/// # Errors
/// The kernel has no such hook.
pub(crate) fn make_guards_lsm(
    programs: &mut OpenSyscallProgs<'_>,
    wanted: &BTreeSet<Program>,
) -> libbpf_rs::Result<()> {
    let guards = wanted.iter().filter(|program| program.is_guard());
    guards
        .copied()
        .try_for_each(|guard| make_lsm(guard.open(programs)))
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

    use super::*;
    use crate::skeleton::SyscallSkelBuilder;

    #[test]
    fn every_program_of_the_object_is_listed() {
        let mut storage = MaybeUninit::uninit();
        let open = SyscallSkelBuilder::default().open(&mut storage).unwrap();
        let mut declared: Vec<String> = open
            .open_object()
            .progs()
            .map(|program| program.name().to_string_lossy().into_owned())
            .collect();
        declared.sort_unstable();
        let mut listed: Vec<&str> = Program::all().map(Program::name).collect();
        listed.sort_unstable();
        assert_eq!(declared, listed);
    }

    #[test]
    fn required_functions_are_those_of_the_sections() {
        let mut storage = MaybeUninit::uninit();
        let mut open = SyscallSkelBuilder::default().open(&mut storage).unwrap();
        for guard in Program::guards() {
            let Some(function) = guard.required_function() else {
                continue;
            };
            let program = guard.open(&mut open.progs);
            let section = format!("fmod_ret/{function}");
            assert_eq!(program.section().to_str(), Some(section.as_str()));
        }
    }
}
