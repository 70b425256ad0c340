//! Hooks: where an engine must attach for a plan, and nowhere else.
//!
//! The fentry engine attaches to the kernel's own functions for the calls of the plan: other calls
//! pay nothing.
//!
//! The tracepoint engine has `syscalls:sys_exit_X`, which is cheap for the rest of the machine, but
//! never fires for 32-bit calls and exists only for calls that have a name. One call in the plan that
//! it cannot serve moves all exits to the raw tracepoint: paying both would be worse than either.
//! Likewise for the entries.
//!
//! What vanishes in exec and exit is seen where the kernel does it, on kernels that show it there in
//! time: that costs other calls nothing. On others it is seen at the call's entry.
//! Attaching is the engine's job.

use std::collections::BTreeSet;
use std::fmt;

use crate::ids::{Arch, Syscall};
use crate::rule::Action;
use crate::table;

use super::deny;
use super::inner::{self, InternalHook, InternalHookSet};
use super::task_list;
use super::uring::{URING_OPS, UringOp};
use super::{Operand, Plan, SyscallId, SyscallPlan};

/// How syscalls are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Through the kernel functions that do the work of the calls named.
    Fentry,
    /// Through tracepoints.
    Tracepoint,
}

impl EngineKind {
    /// Its name, as options and messages have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::Tracepoint => "tracepoint",
        }
    }
}

/// A place in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// `syscalls:sys_enter_X` of a call that ends: something of its entry is remembered.
    Enter(SyscallId),
    /// `syscalls:sys_enter_X` of a call that never ends.
    Last(SyscallId),
    /// `syscalls:sys_exit_X`.
    Exit(SyscallId),
    /// The raw tracepoint `sys_enter`, with a bitmap of the calls that are wanted.
    RawEnter,
    /// The raw tracepoint `sys_exit`, with a bitmap of the calls that are wanted.
    RawExit,
    /// The raw tracepoint `sched_prepare_exec`.
    ExecPrepare,
    /// The raw tracepoint `sched_process_exec`.
    ExecCommit,
    /// The raw tracepoint `sched_process_exit`.
    TaskExit,
    /// Entry of the function of a call that ends: something of it is remembered.
    FunctionEnter(SyscallId),
    /// Entry of the function of a call that never ends.
    FunctionLast(SyscallId),
    /// End of the function of a call.
    FunctionExit(SyscallId),
    /// Entry of the function of an operation of `io_uring`.
    UringEnter(&'static str),
    /// End of the same.
    UringExit(&'static str),
    /// The raw tracepoint `io_uring_complete`, which every operation passes.
    UringComplete,
    /// A function inside the kernel that shows what calls name.
    InternalHook(InternalHook),
    /// The raw tracepoint `sched_process_fork`.
    Fork,
}

/// What the kernel shows beside the calls themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFeatures {
    /// `sched_prepare_exec`, where the arguments of exec are still there: v6.10.
    pub exec_prepare: bool,
    /// `sched_process_exit` before the task's memory is released: v6.16.
    pub early_task_exit: bool,
    /// Which of the functions inside the kernel it has.
    pub inner: InternalHookSet,
    /// Whether rules about calls are about what `io_uring` does instead, where that can be seen.
    pub uring: bool,
}

impl KernelFeatures {
    /// Shows all of it.
    pub const NEW: Self = Self {
        exec_prepare: true,
        early_task_exit: true,
        inner: InternalHookSet::ALL,
        uring: true,
    };
    /// Shows no more than v5.15.
    pub const OLD: Self = Self {
        exec_prepare: false,
        early_task_exit: false,
        inner: InternalHookSet::ALL,
        uring: true,
    };
}

/// How each side of a syscall is seen for a whole plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookSelection {
    /// Entries are seen through the raw tracepoint.
    pub raw_enter: bool,
    /// Exits are seen through the raw tracepoint.
    pub raw_exit: bool,
    /// What an open has found and may not have is seen: some rule may match that without a watch.
    pub refusals: bool,
    engine: EngineKind,
    kernel: KernelFeatures,
}

/// Hooks that a plan needs on a kernel; none for a plan without calls, operations and a task list.
#[must_use]
pub fn hooks(plan: &Plan, engine: EngineKind, kernel: KernelFeatures) -> BTreeSet<Hook> {
    let sides = HookSelection::of(plan, engine, kernel);
    let mut hooks: BTreeSet<Hook> = task_list::hook(plan).into_iter().collect();
    for (&call, rules) in &plan.syscalls {
        hooks.extend(sides.hooks(call));
        hooks.extend(sides.denials(plan, call, rules));
    }
    for (operation, rules) in sides.operations(plan) {
        hooks.extend(sides.operation_hooks(operation));
        hooks.extend(sides.denials(plan, operation.call(), &rules));
    }
    hooks
}

impl HookSelection {
    /// What some call of the plan cannot do without, all calls get.
    #[must_use]
    pub fn of(plan: &Plan, engine: EngineKind, kernel: KernelFeatures) -> Self {
        let mut nameless =
            plan.syscalls.keys().copied().filter(|&call| {
                engine == EngineKind::Tracepoint && tracepoint_name(call).is_none()
            });
        let shown_at_entry_only = |call| {
            !kernel.exec_prepare && starts(call) || !kernel.early_task_exit && !returns(call)
        };
        let mut sides = Self {
            raw_enter: nameless.clone().any(shown_at_entry_only),
            raw_exit: nameless.any(returns),
            refusals: false,
            engine,
            kernel,
        };
        let any_open = |call, rules: &SyscallPlan| {
            inner::of(call).contains(&InternalHook::OpenFilp) && !needs_watch(rules)
        };
        let mut operations = sides.operations(plan);
        sides.refusals = kernel.inner.contains(InternalHook::OpenMayOpen)
            && (plan
                .syscalls
                .iter()
                .any(|(&call, rules)| any_open(call, rules))
                || operations.any(|(operation, rules)| any_open(operation.call(), &rules)));
        sides
    }

    /// For a plan that takes the place of the one that these are of, while calls are under way: no call moves
    /// from a tracepoint of its own to a raw one or back, because a call that ends meanwhile would be seen by
    /// both or by neither. Calls without a tracepoint of their own get the raw one beside the others.
    #[must_use]
    pub fn next(self, plan: &Plan) -> Self {
        Self {
            raw_enter: self.raw_enter,
            raw_exit: self.raw_exit,
            ..Self::of(plan, self.engine, self.kernel)
        }
    }

    /// Hooks that serve one call of the plan.
    #[must_use]
    pub fn hooks(self, call: SyscallId) -> BTreeSet<Hook> {
        let mut hooks = BTreeSet::new();
        let on_functions = self.engine == EngineKind::Fentry;
        let nameless = tracepoint_name(call).is_none();
        if !returns(call) {
            hooks.insert(if on_functions {
                Hook::FunctionLast(call)
            } else if self.kernel.early_task_exit {
                Hook::TaskExit
            } else if self.raw_enter || nameless {
                Hook::RawEnter
            } else {
                Hook::Last(call)
            });
            return hooks;
        }
        hooks.insert(if on_functions {
            Hook::FunctionExit(call)
        } else if self.raw_exit || nameless {
            Hook::RawExit
        } else {
            Hook::Exit(call)
        });
        if self.sees(call) {
            hooks.extend(self.inner(call));
        }
        hooks.extend(self.details(call).map(Hook::InternalHook));
        if starts(call) {
            hooks.insert(Hook::ExecCommit);
        }
        if starts(call) && self.kernel.exec_prepare {
            hooks.insert(Hook::ExecPrepare);
        } else if starts(call) || waits(call) {
            if on_functions {
                hooks.insert(Hook::FunctionEnter(call));
            } else if self.raw_enter || nameless && starts(call) {
                hooks.insert(Hook::RawEnter);
            } else if !nameless {
                hooks.insert(Hook::Enter(call));
            }
        }
        hooks
    }

    /// Whether functions inside the kernel show what the call names.
    #[must_use]
    pub fn sees(self, call: SyscallId) -> bool {
        let inner = inner::of(call);
        self.engine == EngineKind::Fentry
            && !inner.is_empty()
            && inner.iter().all(|&inner| self.kernel.inner.contains(inner))
    }

    /// Functions inside the kernel that show details of the call.
    pub fn details(self, call: SyscallId) -> impl Iterator<Item = InternalHook> {
        let inner = inner::details(call).iter().copied();
        inner.filter(move |&inner| {
            self.engine == EngineKind::Fentry && self.kernel.inner.contains(inner)
        })
    }

    /// Hooks that refuse a call, or an operation, when it could not be recorded and one of these rules denies it
    /// then.
    pub fn denials(
        self,
        plan: &Plan,
        call: SyscallId,
        rules: &SyscallPlan,
    ) -> impl Iterator<Item = Hook> + use<> {
        let denies = self.engine == EngineKind::Fentry && plan.denies(rules);
        let newer = deny::newer(call).iter().copied();
        let newer = newer.filter(move |&hook| self.kernel.inner.contains(hook));
        let all = deny::of(call).iter().copied().chain(newer);
        all.filter(move |_| denies).map(Hook::InternalHook)
    }

    /// A function that would have to refuse a call, and that the kernel does not have.
    #[must_use]
    pub fn missing_denial(
        self,
        plan: &Plan,
        call: SyscallId,
        rules: &SyscallPlan,
    ) -> Option<InternalHook> {
        let mut denials = self.denials(plan, call, rules);
        denials.find_map(|hook| match hook {
            Hook::InternalHook(inner) if !self.kernel.inner.contains(inner) => Some(inner),
            _ => None,
        })
    }

    /// The engine that sees them.
    #[must_use]
    pub const fn engine(self) -> EngineKind {
        self.engine
    }

    /// Whether rules about calls are about what `io_uring` does instead.
    #[must_use]
    pub fn calls_are_operations(self) -> bool {
        self.kernel.uring && self.engine == EngineKind::Fentry
    }

    /// Whether nothing of operations is seen but that they are complete.
    #[must_use]
    pub fn sees_completions_only(self) -> bool {
        self.engine == EngineKind::Tracepoint
    }

    /// The operations of `io_uring` that evaluate rules, and what they evaluate.
    pub fn operations(
        self,
        plan: &Plan,
    ) -> impl Iterator<Item = (&'static UringOp, SyscallPlan)> + use<'_> {
        URING_OPS.iter().filter_map(move |operation| {
            let planned = plan.operation(operation, self.calls_are_operations())?;
            Some((operation, planned))
        })
    }

    /// Hooks that serve one operation.
    #[must_use]
    pub fn operation_hooks(self, operation: &UringOp) -> BTreeSet<Hook> {
        if self.sees_completions_only() {
            return [Hook::UringComplete].into();
        }
        let call = operation.call();
        let mut hooks: BTreeSet<Hook> = [Hook::UringExit(operation.function)].into();
        if self.sees(call) {
            hooks.insert(Hook::UringEnter(operation.function));
            hooks.extend(self.inner(call));
        }
        hooks
    }

    /// Hooks that show what a call names.
    fn inner(self, call: SyscallId) -> impl Iterator<Item = Hook> {
        let shown = inner::of(call);
        let refused = self.refusals && shown.contains(&InternalHook::OpenFilp);
        let shown = shown.iter().copied();
        let newer = inner::newer(call).iter().copied();
        let newer = newer.filter(move |&hook| self.kernel.inner.contains(hook));
        shown
            .chain(newer)
            .chain(refused.then_some(InternalHook::OpenMayOpen))
            .map(Hook::InternalHook)
    }

    /// Whether something of the call's entry is remembered until it ends.
    #[must_use]
    pub fn remembers(self, call: SyscallId) -> bool {
        returns(call)
            && self.hooks(call).iter().any(|hook| {
                matches!(
                    hook,
                    Hook::Enter(_)
                        | Hook::RawEnter
                        | Hook::FunctionEnter(_)
                        | Hook::ExecPrepare
                        | Hook::ExecCommit
                )
            })
    }
}

/// Whether every rule of a call that records needs a watch to be hit.
#[must_use]
pub fn needs_watch(rules: &SyscallPlan) -> bool {
    rules.slots.iter().all(|slot| {
        let mut subjects = slot.tests.iter().map(|test| test.operand);
        let is_watch = |operand| matches!(operand, Operand::Path | Operand::Dir);
        slot.action == Action::Never || subjects.any(is_watch)
    })
}

/// Whether the call turns the task into another program: its registers do not survive it.
#[must_use]
pub fn starts(call: SyscallId) -> bool {
    matches!(name(call), Some("execve" | "execveat"))
}

/// Whether the call can return.
#[must_use]
pub fn returns(call: SyscallId) -> bool {
    !matches!(name(call), Some("exit" | "exit_group"))
}

/// Whether programs make the call to wait: its time is that of its entry, which may be long ago when
/// it ends. Of other calls the two are the same tick, or nearly.
fn waits(call: SyscallId) -> bool {
    matches!(
        name(call),
        Some(
            "accept"
                | "accept4"
                | "clock_nanosleep"
                | "connect"
                | "epoll_wait"
                | "epoll_pwait"
                | "fcntl"
                | "flock"
                | "futex"
                | "nanosleep"
                | "pause"
                | "poll"
                | "ppoll"
                | "pselect6"
                | "recvfrom"
                | "recvmsg"
                | "rt_sigtimedwait"
                | "select"
                | "wait4"
                | "waitid"
        )
    )
}

/// What the per-syscall tracepoints call the syscall, after `sys_enter_` or `sys_exit_`; `None` for
/// calls that they do not serve.
///
/// # Source
/// The `SYSCALL_DEFINE` names in Linux 6.12, where they are not those of `syscall_64.tbl`.
#[must_use]
pub fn tracepoint_name(call: SyscallId) -> Option<&'static str> {
    if call.arch != Arch::X86_64 {
        return None;
    }
    Some(match name(call)? {
        "stat" => "newstat",
        "fstat" => "newfstat",
        "lstat" => "newlstat",
        "uname" => "newuname",
        "sendfile" => "sendfile64",
        "umount2" => "umount",
        name => name,
    })
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (side, call) = match *self {
            Self::RawEnter => return f.write_str("raw_syscalls:sys_enter"),
            Self::RawExit => return f.write_str("raw_syscalls:sys_exit"),
            Self::ExecPrepare => return f.write_str("sched:sched_prepare_exec"),
            Self::ExecCommit => return f.write_str("sched:sched_process_exec"),
            Self::TaskExit => return f.write_str("sched:sched_process_exit"),
            Self::Fork => return f.write_str("sched:sched_process_fork"),
            Self::FunctionEnter(call) | Self::FunctionLast(call) => {
                return write!(f, "fentry:{}", function_label(call));
            }
            Self::FunctionExit(call) => return write!(f, "fexit:{}", function_label(call)),
            Self::UringEnter(function) => return write!(f, "fentry:{function}"),
            Self::UringExit(function) => return write!(f, "fexit:{function}"),
            Self::UringComplete => return f.write_str("io_uring:io_uring_complete"),
            Self::InternalHook(inner) => {
                let side = match inner.side() {
                    inner::Side::Enter => "fentry",
                    inner::Side::Exit => "fexit",
                    inner::Side::Deny => "fmod_ret",
                };
                return write!(f, "{side}:{}", inner.function());
            }
            Self::Enter(call) | Self::Last(call) => ("enter", call),
            Self::Exit(call) => ("exit", call),
        };
        match (tracepoint_name(call), call.syscall) {
            (Some(name), _) => write!(f, "syscalls:sys_{side}_{name}"),
            (None, Syscall(number)) => write!(f, "syscalls:sys_{side}_{number}"),
        }
    }
}

/// What a call's function is called in lists: the exact name depends on the kernel.
fn function_label(call: SyscallId) -> String {
    let prefix = if call.arch == Arch::X86_64 {
        "__x64_sys_"
    } else {
        "__ia32_sys_"
    };
    match (tracepoint_name(call).or_else(|| name(call)), call.syscall) {
        (Some(name), _) => format!("{prefix}{name}"),
        (None, Syscall(number)) => format!("{prefix}{number}"),
    }
}

fn name(call: SyscallId) -> Option<&'static str> {
    table::syscall_name(call.arch, call.syscall)
}

#[cfg(test)]
mod tests;
