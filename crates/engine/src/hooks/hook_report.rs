//! Which internal hooks a kernel has, and what records lack without the others.

use std::collections::BTreeSet;

use audit::ids::NativeArch;
use audit::plan::{Plan, SyscallId};
use audit::table;

use crate::engine_kind::EngineKind;

use super::denial::{denial_hooks, newer_denial_hooks};
use super::hook::KernelFeatures;
use super::hook_selection::HookSelection;
use super::internal_hook::{AttachKind, InternalHook};
use super::syscall_hooks::{aux_record_hooks, newer_object_hooks, object_hooks};

/// Whether a kernel has a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookState {
    /// The function that the oldest kernels have.
    Found,
    /// Another name, or other arguments.
    Replaced,
    /// It is missing, and the kernel does the same elsewhere.
    Unneeded,
    /// It is missing.
    Missing,
}

/// A hook on a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookReport {
    /// The hook.
    pub hook: InternalHook,
    /// Whether the kernel has it.
    pub state: HookState,
    /// The function: that of this kernel, or else that of the oldest kernels.
    pub function: &'static str,
    /// How the program is attached: `fentry`, `fexit` or `fmod_ret`.
    pub kind: &'static str,
    /// First kernel with this function and these arguments, if they are [`HookState::Replaced`].
    pub since: Option<&'static str>,
}

impl KernelFeatures {
    /// All internal hooks on this kernel.
    #[must_use]
    pub fn hook_reports(&self) -> Vec<HookReport> {
        let all = InternalHook::ALL.iter();
        all.map(|&hook| self.hook_report(hook)).collect()
    }

    fn hook_report(&self, hook: InternalHook) -> HookReport {
        let form = self.internal_hooks.form(hook);
        HookReport {
            hook,
            state: match form {
                Some(form) if form.since.is_none() => HookState::Found,
                Some(_) => HookState::Replaced,
                None if self.is_unneeded(hook) => HookState::Unneeded,
                None => HookState::Missing,
            },
            function: form.map_or_else(|| hook.function(), |form| form.function),
            kind: match hook.attach_kind() {
                AttachKind::Fentry => "fentry",
                AttachKind::Fexit => "fexit",
                AttachKind::ModifyReturn => "fmod_ret",
            },
            since: form.and_then(|form| form.since),
        }
    }

    /// Whether the kernel does what a missing hook sees elsewhere.
    fn is_unneeded(&self, hook: InternalHook) -> bool {
        let has = |other| self.internal_hooks.contains(other);
        hook.alternative().is_some_and(has)
            || hook.is_of_lsm() && !self.task_work
            || syscalls(hook, newer_object_hooks).next().is_some()
            || syscalls(hook, newer_denial_hooks).next().is_some()
    }

    /// Internal hooks that the rules of a plan need on the engine fentry, and that are missing.
    #[must_use]
    pub fn missing_hooks(&self, plan: &Plan) -> Vec<InternalHook> {
        let selection = HookSelection::new(plan, EngineKind::Fentry, *self);
        let syscalls = plan.syscalls.keys().copied();
        let operations = plan.operations(selection.uring_coverage());
        let operations = operations.map(|(operation, _)| operation.syscall_id(plan.native));
        let wanted: BTreeSet<InternalHook> = syscalls
            .chain(operations)
            .flat_map(|syscall| {
                object_hooks(syscall)
                    .iter()
                    .chain(aux_record_hooks(syscall))
            })
            .copied()
            .collect();
        let is_missing =
            |&hook: &InternalHook| !self.internal_hooks.contains(hook) && !self.is_unneeded(hook);
        wanted.into_iter().filter(is_missing).collect()
    }
}

impl InternalHook {
    /// What records lack on a kernel without the hook, as a noun phrase.
    #[must_use]
    pub fn lacks(self) -> String {
        let names = |of| syscalls(self, of).collect::<Vec<_>>().join(", ");
        if syscalls(self, object_hooks).next().is_some() {
            return format!(
                "names and objects from the kernel for {}: they are read from the caller's memory after the call",
                names(object_hooks)
            );
        }
        if syscalls(self, aux_record_hooks).next().is_some() {
            return format!("auxiliary record of {}", names(aux_record_hooks));
        }
        if syscalls(self, denial_hooks).next().is_some() {
            return format!("`[on_loss] deny` for {}", names(denial_hooks));
        }
        match self {
            Self::OpenFails => "names and flags from the kernel for opens that fail",
            Self::CallTraced | Self::CallNewExec => "results of calls inside which task work runs",
            _ => "objects that exist and are refused",
        }
        .to_owned()
    }

    /// Whether only the engine `lsm` uses it.
    const fn is_of_lsm(self) -> bool {
        matches!(self, Self::OpenFails | Self::CallTraced | Self::CallNewExec)
    }
}

/// The 64-bit syscalls for which the engine fentry hooks internal functions.
#[must_use]
pub fn hooked_syscalls() -> Vec<&'static str> {
    let arch = NativeArch::BUILD.b64();
    let is_hooked = |name: &&str| {
        let syscall = table::syscall_number(arch, name.as_bytes());
        syscall.is_some_and(|syscall| {
            let id = SyscallId { arch, syscall };
            !object_hooks(id).is_empty() || !aux_record_hooks(id).is_empty()
        })
    };
    table::syscall_names(arch).filter(is_hooked).collect()
}

/// The 64-bit syscalls that a table of hooks has for a hook.
fn syscalls(
    hook: InternalHook,
    of: fn(SyscallId) -> &'static [InternalHook],
) -> impl Iterator<Item = &'static str> {
    let arch = NativeArch::BUILD.b64();
    table::syscall_names(arch).filter(move |name| {
        let syscall = table::syscall_number(arch, name.as_bytes());
        syscall.is_some_and(|syscall| of(SyscallId { arch, syscall }).contains(&hook))
    })
}

#[cfg(test)]
mod tests {
    use audit::ids::Arch;
    use audit::plan::rule_list::RuleList;
    use audit::rule::parse_file;
    use inputs::host::TestHost;

    use super::super::internal_hook::InternalHookSet;
    use super::*;

    fn kernel_without(missing: &[InternalHook]) -> KernelFeatures {
        let all = InternalHook::ALL.iter().copied();
        KernelFeatures {
            internal_hooks: all.filter(|hook| !missing.contains(hook)).collect(),
            ..KernelFeatures::ALL
        }
    }

    #[test]
    fn every_hook_says_what_records_lack_without_it() {
        for &hook in InternalHook::ALL {
            let lacks = hook.lacks();
            assert!(
                !lacks.ends_with("for ") && !lacks.ends_with("of "),
                "{lacks}"
            );
        }
        let parent = InternalHook::NamesParent.lacks();
        assert!(
            parent.contains("unlink") && parent.contains("mkdir"),
            "{parent}"
        );
    }

    #[test]
    fn missing_hooks_are_told_from_those_that_are_not_needed() {
        let state = |kernel: &KernelFeatures, hook| {
            let mut reports = kernel.hook_reports().into_iter();
            reports.find(|report| report.hook == hook).unwrap().state
        };
        use InternalHook::{AttrSetAcl, ClockInject, ClockInjectNtp, NamesDelete};
        let kernel = kernel_without(&[AttrSetAcl, ClockInject, NamesDelete]);
        assert_eq!(state(&kernel, AttrSetAcl), HookState::Unneeded);
        assert_eq!(state(&kernel, ClockInject), HookState::Unneeded);
        assert_eq!(state(&kernel, NamesDelete), HookState::Missing);
        assert_eq!(state(&kernel, InternalHook::OpenFilp), HookState::Found);
        let kernel = kernel_without(&[ClockInject, ClockInjectNtp]);
        assert_eq!(state(&kernel, ClockInject), HookState::Missing);
        let newer = KernelFeatures {
            internal_hooks: InternalHookSet::select(|form| form.since == Some("7.0")),
            ..KernelFeatures::ALL
        };
        assert_eq!(state(&newer, NamesDelete), HookState::Replaced);
        assert_eq!(
            newer.label(super::super::hook::Hook::Internal(NamesDelete)),
            "fexit:may_delete_dentry"
        );
    }

    #[test]
    fn only_hooks_of_the_plan_are_missing() {
        let mut list = RuleList::default();
        let rules = b"-a always,exit -F arch=b64 -S unlink,kill -k x\n";
        list.load(0, parse_file(rules, &TestHost).0);
        let plan = Plan::compile(list.into_rules(), &[Arch::X86_64]);
        use InternalHook::{AuxSignal, CreatedDir, NamesDelete};
        let kernel = kernel_without(&[AuxSignal, CreatedDir, NamesDelete]);
        assert_eq!(kernel.missing_hooks(&plan), [NamesDelete, AuxSignal]);
    }
}
