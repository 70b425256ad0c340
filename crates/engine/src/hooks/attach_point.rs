//! Attach points: one program at one target in the kernel. An attach point that the old and the new rules both need
//! stays attached when the rules are replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use audit::plan::SyscallId;
use nix::errno::Errno;

use crate::error::EngineError;
use crate::hooks::kernel_functions::{Function, FunctionKind, FunctionSide, Functions};
use crate::hooks::kernel_probe::KernelProbe;
use crate::hooks::program::Program;
use crate::sys::tracefs::Tracefs;

use super::hook::Hook;
use super::internal_hook::{InternalHook, InternalHookSet};
use super::syscall_functions::{alias_of, function_candidates, tracepoint_name};

/// The hooks that are attached, for messages and `--json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachedHooks {
    /// The hooks.
    pub hooks: Vec<Hook>,
    /// Syscalls that the rules name and this kernel does not have: no events are lost.
    pub absent: Vec<&'static str>,
}

/// A program and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AttachPoint {
    pub(crate) program: Program,
    pub(crate) target: AttachTarget,
}

/// Target of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AttachTarget {
    /// The target that the program declares.
    Declared,
    /// This function, by a copy of the program.
    Function(Function, FunctionSide),
    /// The entry of this function, by a kprobe.
    Kprobe(Function),
    /// This function, at both ends, by a kprobe session.
    Session(Function),
    /// The function with this name, by a kprobe.
    InternalKprobe(&'static str),
    /// The raw tracepoint with this name.
    RawTracepoint(&'static str),
    /// The tracepoint with this number.
    Tracepoint(u64),
}

impl AttachTarget {
    /// Whether it is a tracepoint of system calls.
    pub(crate) const fn is_syscall(self) -> bool {
        match self {
            Self::Tracepoint(_) => true,
            Self::RawTracepoint(name) => matches!(name.as_bytes(), b"sys_enter" | b"sys_exit"),
            Self::Declared
            | Self::Function(..)
            | Self::Kprobe(_)
            | Self::Session(_)
            | Self::InternalKprobe(_) => false,
        }
    }
}

/// The function by which every task ends.
const TASK_EXIT: &str = "do_exit";

/// Raw tracepoints that programs are attached to.
const RAW_TRACEPOINTS: [&str; 7] = [
    "sys_exit",
    "sys_enter",
    "sched_prepare_exec",
    "sched_process_exec",
    "sched_process_exit",
    "sched_process_fork",
    "io_uring_complete",
];

/// Name of the pinned link. The BPF file system allows no dots.
impl Display for AttachPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.program.name())?;
        match self.target {
            AttachTarget::Declared => write!(f, "own"),
            AttachTarget::RawTracepoint(name) => write!(f, "raw-{name}"),
            AttachTarget::InternalKprobe(function) => write!(f, "inside-{function}"),
            AttachTarget::Tracepoint(id) => write!(f, "event-{id}"),
            AttachTarget::Kprobe(Function { id, kind }) => write!(f, "kprobe-{}-{id}", kind.name()),
            AttachTarget::Session(Function { id, kind }) => {
                write!(f, "session-{}-{id}", kind.name())
            }
            AttachTarget::Function(Function { id, kind }, side) => {
                write!(f, "{}-{}-{id}", kind.name(), side.name())
            }
        }
    }
}

impl AttachPoint {
    /// Parses the name of a pinned link.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let mut words = name.split('-');
        let program = Program::from_name(words.next()?)?;
        let target = match words.next()? {
            "own" => AttachTarget::Declared,
            "raw" => {
                let name = words.next()?;
                AttachTarget::RawTracepoint(
                    RAW_TRACEPOINTS.iter().copied().find(|raw| *raw == name)?,
                )
            }
            "inside" => {
                let name = words.next()?;
                let function = match program {
                    Program::SlotsExit | Program::CallExit => {
                        Some(TASK_EXIT).filter(|&exit| exit == name)
                    }
                    Program::Internal(hook) => {
                        let mut forms = hook.forms().iter();
                        forms.find_map(|form| (form.function == name).then_some(form.function))
                    }
                    _ => None,
                };
                AttachTarget::InternalKprobe(function?)
            }
            kind @ ("kprobe" | "session") => {
                let is_session = kind == "session";
                let kind = FunctionKind::from_name(words.next()?)?;
                let id = words.next()?.parse().ok()?;
                let function = Function { id, kind };
                if is_session {
                    AttachTarget::Session(function)
                } else {
                    AttachTarget::Kprobe(function)
                }
            }
            "event" => AttachTarget::Tracepoint(words.next()?.parse().ok()?),
            kind => {
                let kind = FunctionKind::from_name(kind)?;
                let side = FunctionSide::from_name(words.next()?)?;
                let id = words.next()?.parse().ok()?;
                AttachTarget::Function(Function { id, kind }, side)
            }
        };
        words.next().is_none().then_some(Self { program, target })
    }
}

/// The attach points of a plan.
#[derive(Debug, Default)]
pub(crate) struct AttachPoints {
    /// Each with the first of its hooks, for messages: syscalls of the two ABIs share some functions.
    pub(crate) hooks: BTreeMap<AttachPoint, Hook>,
    pub(crate) attached: AttachedHooks,
}

impl AttachPoints {
    /// Finds the attach points of hooks.
    ///
    /// # Errors
    /// Fails when tracefs cannot be read, or BTF has no functions of syscalls.
    pub(crate) fn find(
        hooks: &BTreeSet<Hook>,
        finder: &AttachPointFinder<'_>,
    ) -> Result<Self, EngineError> {
        let mut attach_points = Self::default();
        for &hook in hooks {
            for attach_point in finder.find(hook)? {
                attach_points.hooks.entry(attach_point).or_insert(hook);
                if attach_points.attached.hooks.last() != Some(&hook) {
                    attach_points.attached.hooks.push(hook);
                }
            }
            if attach_points.attached.hooks.last() != Some(&hook)
                && let Some(name) = missing_syscall(hook)
                && !attach_points.attached.absent.contains(&name)
            {
                attach_points.attached.absent.push(name);
            }
        }
        Ok(attach_points)
    }

    /// The programs to load for the attach points that are not attached yet.
    pub(crate) fn programs(&self, is_attached: impl Fn(&AttachPoint) -> bool) -> BTreeSet<Program> {
        let new = self
            .hooks
            .keys()
            .filter(|attach_point| !is_attached(attach_point));
        let stubs = new.map(|attach_point| attach_point.program);
        stubs
            .flat_map(|stub| [Some(stub), stub.tail_call_target()])
            .flatten()
            .collect()
    }
}

/// The attach point of a kprobe at the end of a task.
fn on_task_exit(program: Program) -> Vec<AttachPoint> {
    let target = AttachTarget::InternalKprobe(TASK_EXIT);
    vec![AttachPoint { program, target }]
}

/// Name of the syscall that the kernel does not have when a hook has no target.
fn missing_syscall(hook: Hook) -> Option<&'static str> {
    match hook {
        Hook::SysEnter(call) | Hook::SysEnterNoReturn(call) | Hook::SysExit(call) => {
            Some(tracepoint_name(call).unwrap_or_default())
        }
        Hook::CallEnter(call)
        | Hook::CallNoReturn(call)
        | Hook::CallReturn(call)
        | Hook::CallSession(call)
        | Hook::FunctionEnter(call)
        | Hook::FunctionEnterNoReturn(call)
        | Hook::FunctionExit(call) => Some(call.name().unwrap_or("?")),
        _ => None,
    }
}

/// Finds the targets of hooks in this kernel.
pub(crate) struct AttachPointFinder<'k> {
    functions: Option<&'k Functions>,
    internal_hooks: InternalHookSet,
    tracefs: Result<&'k Tracefs, Errno>,
}

impl<'k> AttachPointFinder<'k> {
    pub(crate) fn new(probe: &'k KernelProbe) -> Self {
        Self {
            functions: probe.functions.as_ref(),
            internal_hooks: probe.kernel.internal_hooks,
            tracefs: probe.tracefs.as_ref().map_err(|&errno| errno),
        }
    }

    /// Attach points of a hook; empty when this kernel has no target for it.
    pub(crate) fn find(&self, hook: Hook) -> Result<Vec<AttachPoint>, EngineError> {
        let raw = |program, name| {
            Ok(vec![AttachPoint {
                program,
                target: AttachTarget::RawTracepoint(name),
            }])
        };
        let declared = |program| {
            let target = AttachTarget::Declared;
            vec![AttachPoint { program, target }]
        };
        match hook {
            Hook::RawSysExit => raw(Program::SysExitRaw, "sys_exit"),
            Hook::RawSysEnter => raw(Program::SysEnterRaw, "sys_enter"),
            Hook::SchedPrepareExec => raw(Program::ExecPrepare, "sched_prepare_exec"),
            Hook::SchedProcessExec => raw(Program::ExecCommit, "sched_process_exec"),
            Hook::SchedProcessExit => raw(Program::TaskExit, "sched_process_exit"),
            Hook::SlotsExit => raw(Program::SlotsExit, "sched_process_exit"),
            Hook::SlotsExitKprobe => Ok(on_task_exit(Program::SlotsExit)),
            Hook::CallExit => Ok(on_task_exit(Program::CallExit)),
            Hook::SysExit(call) => self.syscall_tracepoint(Program::SysExitTp, "exit", call),
            Hook::SysEnter(call) => self.syscall_tracepoint(Program::SysEnterTp, "enter", call),
            Hook::SysEnterNoReturn(call) => {
                self.syscall_tracepoint(Program::SysEnterNoret, "enter", call)
            }
            Hook::FunctionExit(call) => self.syscall(call, FunctionSide::Exit, |kind| {
                match (kind, tracepoint_name(call)) {
                    (FunctionKind::NoArgument, _) => Program::StubSysExit0,
                    (_, Some("openat")) => Program::StubOpenat,
                    (_, Some("open")) => Program::StubOpen,
                    _ => Program::StubSysExit,
                }
            }),
            Hook::FunctionEnter(call) => {
                self.syscall(call, FunctionSide::Enter, |_kind| Program::SysEnterFn)
            }
            Hook::FunctionEnterNoReturn(call) => {
                self.syscall(call, FunctionSide::Enter, |kind| match kind {
                    FunctionKind::NoArgument => Program::StubNoreturn0,
                    _ => Program::StubNoreturn,
                })
            }
            Hook::CallEnter(call) => self.kprobes(Program::CallEnter, AttachTarget::Kprobe, call),
            Hook::CallNoReturn(call) => {
                self.kprobes(Program::CallNoReturn, AttachTarget::Kprobe, call)
            }
            Hook::CallReturn(call) => {
                self.kprobes(Program::CallReturn, AttachTarget::Session, call)
            }
            Hook::CallSession(call) => {
                self.kprobes(Program::CallSession, AttachTarget::Session, call)
            }
            Hook::CallExec => Ok(declared(Program::CallExec)),
            Hook::CallOpen => Ok(declared(Program::CallOpen)),
            Hook::UringEnter(name) => {
                let target = |function| AttachTarget::Function(function, FunctionSide::Enter);
                self.uring_operation(Program::StubUringEnter, target, name)
            }
            Hook::UringExit(name) => {
                let target = |function| AttachTarget::Function(function, FunctionSide::Exit);
                self.uring_operation(Program::StubUringExit, target, name)
            }
            Hook::UringSession(name) => {
                self.uring_operation(Program::UringSession, AttachTarget::Session, name)
            }
            Hook::UringComplete => raw(Program::UringComplete, "io_uring_complete"),
            Hook::Internal(hook) => Ok(declared(Program::Internal(hook))),
            Hook::InternalKprobe(hook) => Ok(self.internal_kprobe(hook)),
            Hook::SchedProcessFork => Ok(declared(Program::TaskFork)),
            Hook::TaskAlloc => Ok(declared(Program::TaskAlloc)),
        }
    }

    /// Attach point on a tracepoint of the `syscalls` system.
    fn syscall_tracepoint(
        &self,
        program: Program,
        side: &str,
        call: SyscallId,
    ) -> Result<Vec<AttachPoint>, EngineError> {
        let tracefs = self
            .tracefs
            .map_err(|errno| EngineError::Tracefs(errno.into()))?;
        let name = tracepoint_name(call).unwrap_or_default();
        let event = tracefs
            .syscall_event(&format!("sys_{side}_{name}"))
            .map_err(EngineError::Tracefs)?;
        let target = event.map(AttachTarget::Tracepoint);
        Ok(target
            .map(|target| AttachPoint { program, target })
            .into_iter()
            .collect())
    }

    /// Attach points of stubs on the functions of a syscall.
    fn syscall(
        &self,
        call: SyscallId,
        side: FunctionSide,
        stub: impl Fn(FunctionKind) -> Program,
    ) -> Result<Vec<AttachPoint>, EngineError> {
        let attach_point = |function: Function| AttachPoint {
            program: stub(function.kind),
            target: AttachTarget::Function(function, side),
        };
        let functions = self.syscall_functions(call)?.into_iter();
        Ok(functions.map(attach_point).collect())
    }

    /// Attach points of a kprobe on the functions of a syscall.
    fn kprobes(
        &self,
        program: Program,
        target: fn(Function) -> AttachTarget,
        call: SyscallId,
    ) -> Result<Vec<AttachPoint>, EngineError> {
        let attach_point = |function| AttachPoint {
            program,
            target: target(function),
        };
        let functions = self.syscall_functions(call)?.into_iter();
        Ok(functions.map(attach_point).collect())
    }

    /// Attach point of a kprobe on the function of an internal hook.
    fn internal_kprobe(&self, hook: InternalHook) -> Vec<AttachPoint> {
        let form = self.internal_hooks.form(hook).into_iter();
        form.map(|form| AttachPoint {
            program: Program::Internal(hook),
            target: AttachTarget::InternalKprobe(form.function),
        })
        .collect()
    }

    /// The functions of a syscall.
    fn syscall_functions(&self, call: SyscallId) -> Result<Vec<Function>, EngineError> {
        let kernel = self.functions.ok_or(EngineError::NoSyscallFunctions)?;
        let names = function_candidates(call);
        let mut found: Vec<Function> = names
            .iter()
            .filter(|name| {
                let alias = alias_of(name).and_then(|name| kernel.find(&name));
                alias.is_none()
            })
            .filter_map(|name| kernel.find(name))
            .collect();
        if tracepoint_name(call).is_some() {
            found.truncate(1);
        }
        Ok(found)
    }

    /// Attach point on the function of an operation of `io_uring`.
    fn uring_operation(
        &self,
        program: Program,
        target: fn(Function) -> AttachTarget,
        name: &str,
    ) -> Result<Vec<AttachPoint>, EngineError> {
        let kernel = self.functions.ok_or(EngineError::NoSyscallFunctions)?;
        let found = kernel.find_operation(name);
        let attach_point = |function| AttachPoint {
            program,
            target: target(function),
        };
        Ok(found.map(attach_point).into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_round_trip(attach_point: AttachPoint) {
        let name = attach_point.to_string();
        assert!(!name.contains('.'), "{name}: the kernel takes no dots");
        assert_eq!(AttachPoint::from_name(&name), Some(attach_point), "{name}");
    }

    #[test]
    fn link_name_round_trips() {
        let function = |kind, side| AttachTarget::Function(Function { id: 4711, kind }, side);
        for target in [
            AttachTarget::Declared,
            AttachTarget::Tracepoint(823),
            AttachTarget::Kprobe(Function {
                id: 4711,
                kind: FunctionKind::NoArgument,
            }),
            function(FunctionKind::Syscall, FunctionSide::Enter),
            function(FunctionKind::NoArgument, FunctionSide::Exit),
            function(FunctionKind::Uring, FunctionSide::Exit),
            AttachTarget::Session(Function {
                id: 4711,
                kind: FunctionKind::Uring,
            }),
        ]
        .into_iter()
        .chain(RAW_TRACEPOINTS.map(AttachTarget::RawTracepoint))
        {
            let attach_point = AttachPoint {
                program: Program::StubSysExit,
                target,
            };
            assert_round_trip(attach_point);
        }
        for &hook in InternalHook::ALL {
            for form in hook.forms() {
                assert_round_trip(AttachPoint {
                    program: Program::Internal(hook),
                    target: AttachTarget::InternalKprobe(form.function),
                });
            }
        }
        for wrong in [
            "",
            "stub",
            "stub_sys_exit",
            "stub_sys_exit-raw-other",
            "stub_sys_exit-inside-vfs_link",
            "created_link-inside-vfs_rename",
            "heartbeat-own-1",
        ] {
            assert_eq!(AttachPoint::from_name(wrong), None, "{wrong}");
        }
    }
}
