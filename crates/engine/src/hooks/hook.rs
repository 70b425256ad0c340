//! Hooks: the points in the kernel where programs run.

use std::fmt;

use audit::ids::Syscall;
use audit::plan::SyscallId;

use super::internal_hook::{AttachKind, InternalHook, InternalHookSet};
use super::syscall_functions::{function_prefix, tracepoint_name};

/// A point in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// `syscalls:sys_enter_X` of a syscall that returns: saves state for its exit.
    SysEnter(SyscallId),
    /// `syscalls:sys_enter_X` of a syscall that never returns.
    SysEnterNoReturn(SyscallId),
    /// `syscalls:sys_exit_X`.
    SysExit(SyscallId),
    /// The raw tracepoint `sys_enter`, with a bitmap of syscalls.
    RawSysEnter,
    /// The raw tracepoint `sys_exit`, with a bitmap of syscalls.
    RawSysExit,
    /// The raw tracepoint `sched_prepare_exec`.
    SchedPrepareExec,
    /// The raw tracepoint `sched_process_exec`.
    SchedProcessExec,
    /// The raw tracepoint `sched_process_exit`: the end of `exit` and `exit_group`.
    SchedProcessExit,
    /// The raw tracepoint `sched_process_exit`: gives back the slots of the task.
    SlotsExit,
    /// The same by a kprobe.
    SlotsExitKprobe,
    /// Entry of the function of a syscall that returns: saves state for its exit.
    FunctionEnter(SyscallId),
    /// Entry of the function of a syscall that never returns.
    FunctionEnterNoReturn(SyscallId),
    /// Exit of the function of a syscall.
    FunctionExit(SyscallId),
    /// Kprobe at the entry of the function of a syscall that returns: its end is seen by task work.
    CallEnter(SyscallId),
    /// Kprobe at the entry of the function of a syscall that never returns.
    CallNoReturn(SyscallId),
    /// Kprobe session of the function of a syscall inside which the kernel runs task work.
    CallReturn(SyscallId),
    /// Kprobe session of the function of a syscall whose task work can be late: its entry and its end.
    CallSession(SyscallId),
    /// Kprobe at the end of a task whose task work can be late.
    CallExit,
    /// The LSM hook `bprm_committed_creds`: an exec has succeeded.
    CallExec,
    /// The LSM hook `file_open`: an open has found a file.
    CallOpen,
    /// Entry of the function of an operation of `io_uring`.
    UringEnter(&'static str),
    /// Exit of the function of an operation of `io_uring`.
    UringExit(&'static str),
    /// Kprobe session of the function of an operation of `io_uring`.
    UringSession(&'static str),
    /// The raw tracepoint `io_uring_complete`, which every operation passes.
    UringComplete,
    /// A function inside the kernel that several syscalls pass.
    Internal(InternalHook),
    /// The same at a kprobe: the engine `lsm`.
    InternalKprobe(InternalHook),
    /// The raw tracepoint `sched_process_fork`.
    SchedProcessFork,
    /// The LSM hook `task_alloc`: a task is being made.
    TaskAlloc,
}

/// What a kernel offers to hooks, and what the configuration takes from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFeatures {
    /// `sched_prepare_exec`, at which the arguments of exec are still readable: v6.10.
    pub exec_prepare: bool,
    /// `sched_process_exit` runs before the task's memory is released: v6.16.
    pub early_task_exit: bool,
    /// The internal functions that the kernel has.
    pub internal_hooks: InternalHookSet,
    /// What the engine `lsm` needs, as far as BTF shows it.
    pub task_work: bool,
    /// Whether the kernel can run task work when the task has gone on: `PREEMPT_RT`.
    pub late_work: bool,
    /// What `newfstatat` and `statx` do with an empty name.
    pub empty_stat_name: EmptyStatName,
    /// Whether operations of `io_uring` evaluate the rules of the syscalls that they replace, on an engine
    /// that sees operations.
    pub uring: bool,
    /// Whether the kernel can skip programs on the tracepoints of single syscalls, and not those on the raw
    /// tracepoints. [`crate::KernelProbe::features`] reads it, because root can change the preemption mode.
    pub skips_single_syscalls: bool,
}

/// What `newfstatat` and `statx` do with an empty name and `AT_EMPTY_PATH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyStatName {
    /// They look it up, as other calls do.
    Name,
    /// They look it up unless they use a descriptor: `newfstatat` since v6.6, `statx` since v6.11.
    NotOfDescriptor,
    /// They look it up in the working directory only, and it is no name then: v6.13.
    Nameless,
}

impl KernelFeatures {
    /// Everything.
    pub const ALL: Self = Self {
        exec_prepare: true,
        early_task_exit: true,
        internal_hooks: InternalHookSet::ALL,
        task_work: true,
        late_work: false,
        empty_stat_name: EmptyStatName::Nameless,
        uring: true,
        skips_single_syscalls: false,
    };
    /// What v5.15 offers.
    pub const V5_15: Self = Self {
        exec_prepare: false,
        early_task_exit: false,
        internal_hooks: InternalHookSet::ALL,
        task_work: false,
        late_work: false,
        empty_stat_name: EmptyStatName::Name,
        uring: true,
        skips_single_syscalls: false,
    };
}

impl KernelFeatures {
    /// A hook as text, with the function that this kernel has.
    #[must_use]
    pub fn label(&self, hook: Hook) -> String {
        let text = hook.to_string();
        match hook {
            Hook::Internal(internal) | Hook::InternalKprobe(internal) => {
                match self.internal_hooks.form(internal) {
                    Some(form) => text.replace(internal.function(), form.function),
                    None => text,
                }
            }
            _ => text,
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::RawSysEnter => f.write_str("raw_syscalls:sys_enter"),
            Self::RawSysExit => f.write_str("raw_syscalls:sys_exit"),
            Self::SchedPrepareExec => f.write_str("sched:sched_prepare_exec"),
            Self::SchedProcessExec => f.write_str("sched:sched_process_exec"),
            Self::SchedProcessExit | Self::SlotsExit => f.write_str("sched:sched_process_exit"),
            Self::SlotsExitKprobe | Self::CallExit => f.write_str("kprobe:do_exit"),
            Self::SchedProcessFork => f.write_str("sched:sched_process_fork"),
            Self::TaskAlloc => f.write_str("lsm:task_alloc"),
            Self::FunctionEnter(syscall) | Self::FunctionEnterNoReturn(syscall) => {
                write!(f, "fentry:{}", function_label(syscall))
            }
            Self::FunctionExit(syscall) => write!(f, "fexit:{}", function_label(syscall)),
            Self::CallEnter(syscall) | Self::CallNoReturn(syscall) => {
                write!(f, "kprobe:{}", function_label(syscall))
            }
            Self::CallReturn(syscall) | Self::CallSession(syscall) => {
                write!(f, "kprobe.session:{}", function_label(syscall))
            }
            Self::CallExec => f.write_str("lsm:bprm_committed_creds"),
            Self::CallOpen => f.write_str("lsm:file_open"),
            Self::UringEnter(function) => write!(f, "fentry:{function}"),
            Self::UringExit(function) => write!(f, "fexit:{function}"),
            Self::UringSession(function) => write!(f, "kprobe.session:{function}"),
            Self::UringComplete => f.write_str("io_uring:io_uring_complete"),
            Self::Internal(hook) => {
                let kind = match hook.attach_kind() {
                    AttachKind::Fentry => "fentry",
                    AttachKind::Fexit => "fexit",
                    AttachKind::ModifyReturn => "fmod_ret",
                };
                write!(f, "{kind}:{}", hook.function())
            }
            Self::InternalKprobe(hook) => {
                let kind = match hook.attach_kind() {
                    AttachKind::Fentry => "kprobe",
                    AttachKind::Fexit | AttachKind::ModifyReturn => "kprobe.session",
                };
                write!(f, "{kind}:{}", hook.function())
            }
            Self::SysEnter(syscall) | Self::SysEnterNoReturn(syscall) => {
                write!(f, "syscalls:sys_enter_{}", tracepoint_label(syscall))
            }
            Self::SysExit(syscall) => write!(f, "syscalls:sys_exit_{}", tracepoint_label(syscall)),
        }
    }
}

/// Name of a syscall in its tracepoints, or its number.
fn tracepoint_label(syscall: SyscallId) -> String {
    let Syscall(number) = syscall.syscall;
    tracepoint_name(syscall).map_or_else(|| number.to_string(), str::to_owned)
}

/// Name of a syscall's function in lists: the exact name depends on the kernel.
fn function_label(syscall: SyscallId) -> String {
    let prefix = function_prefix(syscall.arch);
    let name = tracepoint_name(syscall).map_or_else(|| syscall.label(), str::to_owned);
    format!("{prefix}{name}")
}
