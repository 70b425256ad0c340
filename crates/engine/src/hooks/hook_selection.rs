//! Which hooks a plan needs on an engine and a kernel.
//!
//! The fentry engine attaches to the functions of the plan's syscalls: other syscalls pay nothing.
//!
//! The lsm engine has kprobes at the entries of the same functions, however many; task work shows the end of the
//! syscall. The internal functions and those of operations are the same as well, by kprobes; but an LSM program shows
//! the file that an open finds, because every open passes it.
//!
//! The tracepoint engine attaches to `syscalls:sys_exit_X`, which costs other syscalls little, but never
//! fires for 32-bit syscalls and exists only for syscalls that have a name. One syscall in the plan without
//! such a tracepoint moves all exits to the raw tracepoint: both together would cost more than either. The
//! same holds for entries. Where the kernel can skip programs on the former, all syscalls are seen at the raw
//! tracepoints.
//!
//! The kernel detaches programs from functions and tracepoints one after the other, some 100 ms each. A plan of
//! very many syscalls sees their exits at the raw tracepoint, which is one attachment, on `fentry` and `tracepoint`.
//!
//! State that exec and exit destroy is read at tracepoints of the scheduler on kernels that have them early
//! enough, which costs other syscalls nothing, and at the entry of the syscall on older kernels. `sigreturn` is
//! always seen at its entry: at its exit its number is lost. A debugger that stops a task inside a fork can change
//! its arguments, so they are read at its entry too, but by the tracepoint engine.

use std::collections::BTreeSet;

use audit::ids::NativeArch;
use audit::plan::uring::{UringCoverage, UringOp};
use audit::plan::{Plan, SyscallId, SyscallPlan};

use crate::engine_kind::EngineKind;

use super::denial::{denial_hooks, newer_denial_hooks};
use super::hook::{Hook, KernelFeatures};
use super::internal_hook::InternalHook;
use super::syscall_functions::tracepoint_name;
use super::syscall_hooks::{aux_record_hooks, newer_object_hooks, object_hooks, work_hooks};
use super::syscall_kinds::{opens, runs_task_work, waits};
use super::syscall_set::SyscallSet;
use super::uring_functions::uring_function;

/// Maximum number of syscalls whose exits have a tracepoint of their own. Rules that name more match most of the
/// syscalls that a machine makes, and then the raw tracepoint costs less.
const MAX_TRACEPOINTS: usize = 128;

/// Hooks on the engine `lsm` of opens that fail.
const FAILED_OPEN_HOOKS: [InternalHook; 2] = [InternalHook::OpenDenied, InternalHook::OpenFails];

/// Maximum number of syscalls whose functions have programs.
const MAX_FUNCTIONS: usize = 250;

/// How the syscalls of a plan are hooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HookSelection {
    /// Entries are seen at the raw tracepoint.
    pub(crate) raw_enter: bool,
    /// Exits are seen at the raw tracepoint.
    pub(crate) raw_exit: bool,
    /// Syscalls whose exits are seen at the raw tracepoint although others have hooks of their own: too many for
    /// that were added while programs ran.
    raw_exits: SyscallSet<8>,
    /// Some rule may match an open without a watch.
    unwatched_opens: bool,
    engine: EngineKind,
    kernel: KernelFeatures,
    /// Architecture of the plan.
    native: NativeArch,
}

/// Hooks of a plan on a kernel; empty for a plan without syscalls, operations and rules of the task list.
#[must_use]
pub(crate) fn plan_hooks(
    plan: &Plan,
    engine: EngineKind,
    kernel: KernelFeatures,
) -> BTreeSet<Hook> {
    let selection = HookSelection::new(plan, engine, kernel);
    let mut hooks: BTreeSet<Hook> = selection.task_list_hook(plan).into_iter().collect();
    for (&syscall, planned) in &plan.syscalls {
        hooks.extend(selection.syscall_hooks(syscall));
        hooks.extend(selection.denial_hooks(plan, syscall, planned));
    }
    for (operation, planned) in plan.operations(selection.uring_coverage()) {
        hooks.extend(selection.operation_hooks(operation));
        hooks.extend(selection.denial_hooks(plan, operation.syscall_id(plan.native), &planned));
    }
    hooks
}

impl HookSelection {
    /// Selects hooks for all syscalls of a plan: one syscall that needs a raw tracepoint moves all others to it.
    #[must_use]
    pub(crate) fn new(plan: &Plan, engine: EngineKind, kernel: KernelFeatures) -> Self {
        let mut nameless = plan.syscalls.keys().copied().filter(|&syscall| {
            engine == EngineKind::Tracepoint && tracepoint_name(syscall).is_none()
        });
        let needs_entry = |syscall: SyscallId| {
            !kernel.exec_prepare && syscall.is_exec()
                || !(syscall.returns() || kernel.early_task_exit && syscall.ends_task())
        };
        let returning = plan.syscalls.keys().filter(|syscall| syscall.returns());
        let all_raw = engine == EngineKind::Tracepoint && kernel.skips_single_syscalls;
        let mut selection = Self {
            raw_enter: all_raw || nameless.clone().any(needs_entry),
            raw_exit: all_raw
                || nameless.any(SyscallId::returns)
                || returning.count() > max_exits(engine),
            raw_exits: SyscallSet::default(),
            unwatched_opens: false,
            engine,
            kernel,
            native: plan.native,
        };
        let any_open = |syscall, planned: &SyscallPlan| {
            object_hooks(syscall).contains(&InternalHook::OpenFilp) && !planned.needs_watch()
        };
        let mut syscalls = plan.syscalls.iter();
        let mut operations = plan.operations(selection.uring_coverage());
        selection.unwatched_opens = syscalls.any(|(&syscall, planned)| any_open(syscall, planned))
            || operations
                .any(|(operation, planned)| any_open(operation.syscall_id(plan.native), &planned));
        selection
    }

    /// Whether files that an open finds and is refused are seen. A kprobe there costs every open too much.
    pub(crate) fn sees_refused_opens(self) -> bool {
        self.engine == EngineKind::Fentry
            && self.unwatched_opens
            && self
                .kernel
                .internal_hooks
                .contains(InternalHook::OpenMayOpen)
    }

    /// Selection for a plan that replaces the current one while syscalls are in progress: no syscall moves
    /// from its own hook to a raw tracepoint or back, because a syscall that ends meanwhile would be seen by
    /// both or by neither. Syscalls without a hook of their own, and new ones if there are too many, get the raw
    /// tracepoint in addition. `is_attached` says whether a hook has programs, `raw_now` which syscalls the raw
    /// tracepoint handles now.
    ///
    /// # Errors
    /// That of `is_attached`.
    pub(crate) fn for_replacement<E>(
        self,
        plan: &Plan,
        is_attached: impl Fn(Hook) -> Result<bool, E>,
        raw_now: &SyscallSet,
    ) -> Result<Self, E> {
        let mut selection = Self {
            raw_enter: self.raw_enter,
            raw_exit: self.raw_exit,
            ..Self::new(plan, self.engine, self.kernel)
        };
        if self.raw_exit {
            return Ok(selection);
        }
        let (mut own, mut new) = (0, Vec::new());
        for &syscall in plan.syscalls.keys().filter(|syscall| syscall.returns()) {
            let Some(hook) = self.own_exit(syscall) else {
                continue;
            };
            // First: its function can be hooked for another syscall.
            if raw_now.contains(syscall) {
                selection.raw_exits.insert(syscall);
            } else if is_attached(hook)? {
                own += 1;
            } else {
                new.push(syscall);
            }
        }
        if own + new.len() > max_exits(self.engine) {
            for syscall in new {
                selection.raw_exits.insert(syscall);
            }
        }
        Ok(selection)
    }

    /// Hook at which the task list is evaluated for a new task. It stays attached while no rule names a syscall,
    /// because the result holds for the life of the task.
    pub(crate) fn task_list_hook(self, plan: &Plan) -> Option<Hook> {
        let hook = match self.engine {
            EngineKind::Lsm => Hook::TaskAlloc,
            EngineKind::Fentry | EngineKind::Tracepoint => Hook::SchedProcessFork,
        };
        (!plan.task_slots.is_empty()).then_some(hook)
    }

    /// Hook of the exit of one syscall alone, if the engine has such hooks.
    fn own_exit(self, syscall: SyscallId) -> Option<Hook> {
        match self.engine {
            EngineKind::Fentry => Some(Hook::FunctionExit(syscall)),
            EngineKind::Lsm if runs_task_work(syscall) => Some(Hook::CallReturn(syscall)),
            EngineKind::Lsm if self.kernel.late_work => Some(Hook::CallSession(syscall)),
            EngineKind::Lsm => Some(Hook::CallEnter(syscall)),
            EngineKind::Tracepoint => tracepoint_name(syscall).map(|_| Hook::SysExit(syscall)),
        }
    }

    /// Hook at which the exit of a syscall is seen.
    fn exit(self, syscall: SyscallId) -> Hook {
        if self.raw_exit || self.raw_exits.contains(syscall) {
            return Hook::RawSysExit;
        }
        self.own_exit(syscall).unwrap_or(Hook::RawSysExit)
    }

    /// Hooks of one syscall of the plan.
    #[must_use]
    pub(crate) fn syscall_hooks(self, syscall: SyscallId) -> BTreeSet<Hook> {
        let mut hooks = BTreeSet::new();
        if self.engine == EngineKind::Lsm {
            return self.call_hooks(syscall);
        }
        let on_functions = self.engine == EngineKind::Fentry;
        let nameless = tracepoint_name(syscall).is_none();
        if !syscall.returns() {
            hooks.insert(if on_functions {
                Hook::FunctionEnterNoReturn(syscall)
            } else if self.kernel.early_task_exit && syscall.ends_task() {
                Hook::SchedProcessExit
            } else if self.raw_enter || nameless {
                Hook::RawSysEnter
            } else {
                Hook::SysEnterNoReturn(syscall)
            });
            return hooks;
        }
        hooks.insert(self.exit(syscall));
        if self.sees_objects(syscall) {
            hooks.extend(self.object_hooks(syscall).map(Hook::Internal));
        }
        hooks.extend(self.aux_record_hooks(syscall).map(Hook::Internal));
        if hooks.iter().any(|hook| matches!(hook, Hook::Internal(_))) {
            hooks.insert(Hook::SlotsExit);
        }
        let is_exec = syscall.is_exec();
        if is_exec {
            hooks.insert(Hook::SchedProcessExec);
        }
        if is_exec && self.kernel.exec_prepare {
            hooks.insert(Hook::SchedPrepareExec);
        } else if is_exec || waits(syscall) || on_functions && syscall.forks() {
            if on_functions {
                hooks.insert(Hook::FunctionEnter(syscall));
            } else if self.raw_enter || nameless && is_exec {
                hooks.insert(Hook::RawSysEnter);
            } else if !nameless {
                hooks.insert(Hook::SysEnter(syscall));
            }
        }
        hooks
    }

    /// Whether internal functions show the objects of the syscall.
    #[must_use]
    pub(crate) fn sees_objects(self, syscall: SyscallId) -> bool {
        let hooks = object_hooks(syscall);
        let has = |&hook| self.kernel.internal_hooks.contains(hook);
        match self.engine {
            EngineKind::Lsm if opens(syscall) => true,
            EngineKind::Fentry | EngineKind::Lsm => !hooks.is_empty() && hooks.iter().all(has),
            EngineKind::Tracepoint => false,
        }
    }

    /// Whether only the objects that the syscall finds are seen.
    #[must_use]
    pub(crate) fn sees_found_only(self, syscall: SyscallId) -> bool {
        self.engine == EngineKind::Lsm && opens(syscall)
    }

    /// Whether the engine sees every name of the syscall's objects, also of those that it does not find.
    #[must_use]
    pub(crate) fn sees_names(self, syscall: SyscallId) -> bool {
        self.sees_objects(syscall)
            && (self.has_failed_open_hooks() || !self.sees_found_only(syscall))
    }

    fn has_failed_open_hooks(self) -> bool {
        let has = |&hook| self.kernel.internal_hooks.contains(hook);
        FAILED_OPEN_HOOKS.iter().all(has)
    }

    /// Internal functions that show the auxiliary records of the syscall.
    pub(crate) fn aux_record_hooks(self, syscall: SyscallId) -> impl Iterator<Item = InternalHook> {
        let hooks = aux_record_hooks(syscall).iter().copied();
        hooks.filter(move |&hook| {
            self.engine.is_on_functions() && self.kernel.internal_hooks.contains(hook)
        })
    }

    /// Hooks that deny a syscall or an operation when it cannot be recorded and one of its rules denies.
    pub(crate) fn denial_hooks(
        self,
        plan: &Plan,
        syscall: SyscallId,
        planned: &SyscallPlan,
    ) -> impl Iterator<Item = Hook> + use<> {
        let denies = self.engine.is_on_functions() && plan.denies(planned);
        let newer = newer_denial_hooks(syscall).iter().copied();
        let newer = newer.filter(move |&hook| self.kernel.internal_hooks.contains(hook));
        let hooks = denial_hooks(syscall).iter().copied().chain(newer);
        hooks.filter(move |_| denies).map(Hook::Internal)
    }

    /// A function that would have to deny a syscall, and that the kernel does not have.
    #[must_use]
    pub(crate) fn missing_denial(
        self,
        plan: &Plan,
        syscall: SyscallId,
        planned: &SyscallPlan,
    ) -> Option<InternalHook> {
        let mut hooks = self.denial_hooks(plan, syscall, planned);
        hooks.find_map(|hook| match hook {
            Hook::Internal(hook) if !self.kernel.internal_hooks.contains(hook) => Some(hook),
            _ => None,
        })
    }

    /// What the kernel offers.
    #[must_use]
    pub(crate) const fn kernel(self) -> KernelFeatures {
        self.kernel
    }

    /// The engine.
    #[must_use]
    pub(crate) const fn engine(self) -> EngineKind {
        self.engine
    }

    /// How much of operations of `io_uring` the engine sees, and which rules they evaluate.
    #[must_use]
    pub(crate) const fn uring_coverage(self) -> UringCoverage {
        match self.engine {
            EngineKind::Tracepoint => UringCoverage::Completions,
            EngineKind::Fentry | EngineKind::Lsm if self.kernel.uring => {
                UringCoverage::SyscallRules
            }
            EngineKind::Fentry | EngineKind::Lsm => UringCoverage::OwnRules,
        }
    }

    /// Hooks of one operation.
    #[must_use]
    pub(crate) fn operation_hooks(self, operation: &UringOp) -> BTreeSet<Hook> {
        if self.uring_coverage() == UringCoverage::Completions {
            return [Hook::UringComplete].into();
        }
        let Some(function) = uring_function(operation) else {
            return BTreeSet::new();
        };
        let syscall = operation.syscall_id(self.native);
        if self.engine == EngineKind::Lsm {
            let mut hooks = self.inner_hooks(syscall);
            let exit = match self.kernel.late_work {
                true => Hook::CallExit,
                false => Hook::SlotsExitKprobe,
            };
            hooks.extend([Hook::UringSession(function), exit]);
            return hooks;
        }
        let mut hooks: BTreeSet<Hook> = [Hook::UringExit(function)].into();
        if self.sees_objects(syscall) {
            hooks.extend([Hook::UringEnter(function), Hook::SlotsExit]);
            hooks.extend(self.object_hooks(syscall).map(Hook::Internal));
        }
        hooks
    }

    /// Hooks of a syscall on the engine `lsm`.
    fn call_hooks(self, syscall: SyscallId) -> BTreeSet<Hook> {
        if !syscall.returns() {
            return [Hook::CallNoReturn(syscall)].into();
        }
        let mut hooks = self.inner_hooks(syscall);
        hooks.extend(self.own_exit(syscall));
        hooks.extend(self.kernel.late_work.then_some(Hook::CallExit));
        hooks.extend(syscall.is_exec().then_some(Hook::CallExec));
        hooks.extend(self.aux_record_hooks(syscall).map(Hook::InternalKprobe));
        hooks.extend(
            work_hooks(syscall)
                .iter()
                .copied()
                .map(Hook::InternalKprobe),
        );
        hooks
    }

    /// Hooks on the engine `lsm` that show the objects of a syscall.
    fn inner_hooks(self, syscall: SyscallId) -> BTreeSet<Hook> {
        if opens(syscall) {
            let mut hooks = BTreeSet::from([Hook::CallOpen]);
            if self.has_failed_open_hooks() {
                hooks.extend(FAILED_OPEN_HOOKS.map(Hook::InternalKprobe));
            }
            return hooks;
        }
        if !self.sees_objects(syscall) {
            return BTreeSet::new();
        }
        self.object_hooks(syscall)
            .map(Hook::InternalKprobe)
            .collect()
    }

    /// Internal functions that show the objects of a syscall.
    fn object_hooks(self, syscall: SyscallId) -> impl Iterator<Item = InternalHook> {
        let hooks = object_hooks(syscall);
        let opens = hooks.contains(&InternalHook::OpenFilp);
        let executes = hooks.contains(&InternalHook::OpenExecat);
        let refused = if self.sees_refused_opens() {
            opens.then_some(InternalHook::OpenMayOpen)
        } else {
            (opens || executes).then_some(InternalHook::OpenDenied)
        };
        let newer = newer_object_hooks(syscall).iter().copied();
        let newer = newer.filter(move |&hook| self.kernel.internal_hooks.contains(hook));
        let creates = opens.then_some(InternalHook::OpenCreates);
        let unopened = [refused, creates].into_iter().flatten();
        let unopened = unopened.filter(move |&hook| self.kernel.internal_hooks.contains(hook));
        let hooks = hooks.iter().copied();
        hooks.chain(newer).chain(unopened)
    }

    /// Whether state of the syscall's entry is saved for its exit.
    #[must_use]
    pub(crate) fn saves_enter_state(self, syscall: SyscallId) -> bool {
        if self.engine == EngineKind::Lsm {
            return syscall.is_exec() || waits(syscall) || syscall.forks();
        }
        syscall.returns()
            && self.syscall_hooks(syscall).iter().any(|hook| {
                matches!(
                    hook,
                    Hook::SysEnter(_)
                        | Hook::RawSysEnter
                        | Hook::FunctionEnter(_)
                        | Hook::SchedPrepareExec
                        | Hook::SchedProcessExec
                )
            })
    }
}

/// How many syscalls can have hooks of their own for their exits.
const fn max_exits(engine: EngineKind) -> usize {
    match engine {
        EngineKind::Fentry => MAX_FUNCTIONS,
        EngineKind::Lsm => usize::MAX,
        EngineKind::Tracepoint => MAX_TRACEPOINTS,
    }
}

#[cfg(test)]
mod tests;
