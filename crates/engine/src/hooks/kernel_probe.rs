//! What this kernel offers, read from BTF rather than from its version.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use audit::ids::NativeArch;
use audit::plan::uring::{URING_OPS, UringOp};
use libbpf_rs::btf::types::{Enum, Func, FuncProto, Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, ReferencesType as _};
use nix::errno::Errno;

use crate::engine_kind::EngineKind;
use crate::error::EngineError;
use crate::preemption::{self, PreemptionFacts, parse_release};
use crate::sys::kprobes::Kprobes;
use crate::sys::security_modules;
use crate::sys::tracefs::Tracefs;

use super::hook::{EmptyStatName, KernelFeatures};
use super::internal_hook::{InternalHook, InternalHookSet};
use super::kernel_functions::Functions;
use super::program::Program;
use super::prototype;
use super::uring_functions::uring_function;

/// Function of `fs/stat.c` that came when `statx` of a descriptor stopped to look up a name, v6.11; `newfstatat` had
/// done so since v6.6.
const STAT_BY_DESCRIPTOR: &str = "do_statx_fd";
/// Function of `fs/namei.c` that came when both lost an empty name, v6.13.
const NAMELESS_STAT: &str = "__getname_maybe_null";

/// The function that requests task work, and its number of parameters since v7.0.
const TASK_WORK: &str = "bpf_task_work_schedule_resume";
/// The link of kprobes at functions by name, which a kernel without `CONFIG_FPROBE` does not have.
const KPROBE_LINK: &str = "bpf_kprobe_multi_link";
const TASK_WORK_PARAMETERS: usize = 4;

/// What this kernel offers. BTF is large, so it is read once. Tracefs is mounted here because tracepoints are looked
/// up again later, when the process may no longer mount anything.
#[derive(Debug)]
pub struct KernelProbe {
    /// What it offers to hooks, whatever its preemption mode is.
    pub kernel: KernelFeatures,
    /// Functions of syscalls; `None` when the functions whose prototypes the stubs have are missing.
    pub(crate) functions: Option<Functions>,
    /// Operations of `io_uring` that the kernel has, and whose functions are missing: the engine fentry does not
    /// see them.
    pub unseen_operations: Vec<&'static str>,
    /// Guards whose functions this kernel has.
    pub(crate) guards: Vec<Program>,
    /// Which programs the kernel skips in which preemption mode.
    pub(crate) preemption: PreemptionFacts,
    /// The kernel's kprobes.
    pub(crate) kprobes: Kprobes,
    /// Whether the security module `bpf` is active, so that LSM programs run.
    pub(crate) has_bpf_lsm: bool,
    /// The kernel's tracepoints, or why they cannot be looked up.
    pub(crate) tracefs: Result<Tracefs, Errno>,
}

impl KernelProbe {
    /// Reads the kernel's BTF.
    ///
    /// # Errors
    /// Fails when the kernel has none (`CONFIG_DEBUG_INFO_BTF`).
    pub fn read() -> libbpf_rs::Result<Self> {
        Ok(Self::of(&Btf::from_vmlinux()?))
    }

    /// Reads the BTF of another kernel from a file.
    ///
    /// # Errors
    /// Fails when the file has none.
    pub fn read_file(path: &Path) -> libbpf_rs::Result<Self> {
        Ok(Self::of(&Btf::from_path(path)?))
    }

    /// What the BTF of a kernel says. Its release and `tracefs` are those of the running one.
    fn of(btf: &Btf<'_>) -> Self {
        let guards = Program::guards().filter_map(Program::required_function);
        let forms = InternalHook::ALL.iter().flat_map(|hook| hook.forms());
        let mut prototypes: HashMap<&str, Option<String>> = forms
            .map(|form| form.function)
            .chain(guards)
            .chain([STAT_BY_DESCRIPTOR, NAMELESS_STAT])
            .map(|name| (name, None))
            .collect();
        let functions = Functions::read(btf, |name, function| {
            let wanted = name.to_str().and_then(|name| prototypes.get_mut(name));
            // The kernel resolves a name to the first function that has it.
            if let Some(found @ None) = wanted {
                *found = prototype::of(btf, function);
            }
        });
        let prototype = |name: &str| prototypes.get(name).and_then(Option::as_deref);
        let internal_hooks = InternalHookSet::select(|form| {
            prototype(form.function).is_some_and(|found| prototype::matches(found, form.prototype))
        });
        let preemption = preemption_facts(btf);
        let kernel = KernelFeatures {
            exec_prepare: arguments(btf, "btf_trace_sched_prepare_exec").is_some(),
            // The tracepoint got its second argument when it moved before exit_mm(), in v6.16.
            early_task_exit: arguments(btf, "btf_trace_sched_process_exit") == Some(2),
            internal_hooks,
            task_work: parameters(btf, TASK_WORK) == Some(TASK_WORK_PARAMETERS)
                && btf.type_by_name::<Struct<'_>>(KPROBE_LINK).is_some(),
            late_work: preemption.is_realtime,
            empty_stat_name: match (prototype(NAMELESS_STAT), prototype(STAT_BY_DESCRIPTOR)) {
                (Some(_), _) => EmptyStatName::Nameless,
                (None, Some(_)) => EmptyStatName::NotOfDescriptor,
                (None, None) => EmptyStatName::Name,
            },
            uring: true,
            skips_single_syscalls: false,
        };
        let unseen_operations = unseen_operations(btf, functions.as_ref());
        let is_available = |guard: &Program| {
            guard
                .required_function()
                .is_none_or(|function| prototype(function).is_some())
        };
        Self {
            kernel,
            functions,
            unseen_operations,
            guards: Program::guards().filter(is_available).collect(),
            preemption,
            kprobes: Kprobes::of_kernel(),
            has_bpf_lsm: security_modules::has_bpf(),
            tracefs: Tracefs::mount(),
        }
    }

    /// What the running kernel offers to the hooks of an engine in its present preemption mode. Without the privilege
    /// to load programs the mode is not known, and does not count.
    #[must_use]
    pub fn features(&self, engine: EngineKind) -> KernelFeatures {
        KernelFeatures {
            skips_single_syscalls: engine == EngineKind::Tracepoint
                && preemption::skips_single_syscalls_now(self.preemption),
            ..self.kernel
        }
    }

    /// Checks that the engine `lsm` works here.
    ///
    /// # Errors
    /// [`EngineError::NoTaskWork`] names what is missing.
    pub(crate) fn check_task_work(&self) -> Result<(), EngineError> {
        let missing = if NativeArch::BUILD != NativeArch::X86_64 {
            "x86_64: registers of other machines do not tell whether a syscall has ended"
        } else if !self.kernel.task_work {
            "task work for programs, which Linux has since 7.0, or CONFIG_FPROBE"
        } else if self.kprobes.event_type().is_none() {
            "kprobes (CONFIG_KPROBE_EVENTS)"
        } else if !self.has_bpf_lsm {
            "the security module `bpf` (kernel parameter `lsm=`)"
        } else {
            return Ok(());
        };
        Err(EngineError::NoTaskWork { missing })
    }
}

/// Operations of the kernel's `enum io_uring_op` without a function of the type that the programs need.
fn unseen_operations(btf: &Btf<'_>, functions: Option<&Functions>) -> Vec<&'static str> {
    let Some((known, functions)) = btf.type_by_name::<Enum<'_>>("io_uring_op").zip(functions)
    else {
        return Vec::new();
    };
    let names: HashSet<&OsStr> = known.iter().filter_map(|member| member.name).collect();
    let is_unseen = |operation: &&UringOp| {
        let name = format!("IORING_OP_{}", operation.name.to_ascii_uppercase());
        let function = uring_function(operation);
        names.contains(OsStr::new(&name))
            && function.is_none_or(|name| functions.find_operation(name).is_none())
    };
    let unseen = URING_OPS.iter().filter(is_unseen);
    unseen.map(|operation| operation.name).collect()
}

/// Whether AppArmor is enabled and labels tasks.
#[must_use]
pub(crate) fn apparmor_enabled() -> bool {
    fs::read("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with(b"Y"))
}

/// Whether the kernel counts runs of BPF programs.
#[must_use]
pub(crate) fn bpf_stats_enabled() -> bool {
    fs::read("/proc/sys/kernel/bpf_stats_enabled").is_ok_and(|text| text.starts_with(b"1"))
}

/// How many arguments a tracepoint has; `None` when there is no such tracepoint.
fn arguments(btf: &Btf<'_>, typedef: &str) -> Option<usize> {
    let typedef: Typedef<'_> = btf.type_by_name(typedef)?;
    let pointer: Ptr<'_> = typedef.referenced_type().try_into().ok()?;
    let proto: FuncProto<'_> = pointer.referenced_type().try_into().ok()?;
    proto.len().checked_sub(1) // the first argument is the data of the attachment
}

/// How many parameters a function has; `None` when there is no such function.
fn parameters(btf: &Btf<'_>, function: &str) -> Option<usize> {
    let function: Func<'_> = btf.type_by_name(function)?;
    let proto: FuncProto<'_> = function.referenced_type().try_into().ok()?;
    Some(proto.len())
}

/// Reads what decides which programs a preemptible kernel skips. `task_struct` has the member
/// `rcu_read_lock_nesting` only with `CONFIG_PREEMPT_RCU`.
fn preemption_facts(btf: &Btf<'_>) -> PreemptionFacts {
    let task: Option<Struct<'_>> = btf.type_by_name("task_struct");
    let is_nesting = |name: Option<&OsStr>| name == Some(OsStr::new("rcu_read_lock_nesting"));
    let name = nix::sys::utsname::uname().ok();
    let has = |word| {
        let name = name.as_ref();
        name.is_none_or(|name| name.version().to_string_lossy().contains(word))
    };
    PreemptionFacts {
        release: name.as_ref().map_or((u32::MAX, u32::MAX), |name| {
            parse_release(&name.release().to_string_lossy())
        }),
        has_preempt_rcu: task.is_none_or(|task| task.iter().any(|member| is_nesting(member.name))),
        is_preemptible_build: has("PREEMPT"),
        is_realtime: has("PREEMPT_RT"),
    }
}
