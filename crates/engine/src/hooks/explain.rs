//! The model behind `tollgate explain`: the hooks, costs and notes of a plan on an engine.
//!
//! On the tracepoint engine, every syscall of the machine takes the kernel's slow path for tracing as soon as one
//! program is attached: [`Price::every_syscall_ns`], which is 0 on the fentry engine. A syscall "pays" when it
//! also evaluates rules.

mod rule_note;

use std::collections::BTreeSet;

use audit::ids::{Arch, NativeArch, Syscall};
use audit::plan::cost::{RuleScope, syscalls_of};
use audit::plan::objects::{self, ObjectRef};
use audit::plan::uring::{URING_OPS, UringCoverage};
use audit::plan::{Plan, PlannedRule, RuleId, SyscallId, labels};
use audit::rule::{Action, Field, FieldTest, List, Op, Rule, SyscallMask, Value};
use audit::table;

use crate::engine_kind::EngineKind;

pub use rule_note::RuleNote;

use super::hook::{Hook, KernelFeatures};
use super::hook_selection::{HookSelection, plan_hooks};
use super::internal_hook::InternalHook;

/// Prices of the tracepoint engine.
///
/// # Units
/// Nanoseconds per syscall.
///
/// # Source
/// Measured on 6.18 in a guest on one machine, see `docs/bench.md`. Use the proportions, not the absolute values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prices {
    /// For every syscall of the machine, as soon as one `sys_exit_X` or `sys_enter_X` is attached.
    one: u32,
    /// Added where both are attached.
    both: u32,
    /// For every syscall of the machine, with the raw tracepoint `sys_exit`.
    raw_exit: u32,
    /// For every syscall of the machine, with the raw tracepoint `sys_enter`.
    raw_enter: u32,
    /// Added by the raw tracepoint `sys_enter` where exits are attached too.
    raw_both: u32,
    /// To start the program of a syscall that pays, through its own tracepoint.
    pays: u32,
    /// The same through the raw tracepoint.
    raw_pays: u32,
}

const PRICES: Prices = Prices {
    one: 30,
    both: 13,
    raw_exit: 76,
    raw_enter: 72,
    raw_both: 54,
    pays: 200,
    raw_pays: 100,
};

/// Syscalls that ordinary programs make all the time: users ask first whether these pay.
const COMMON: [&str; 6] = ["read", "write", "getpid", "futex", "epoll_wait", "stat"];

/// What a plan costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The engine.
    pub engine: EngineKind,
    /// One entry for each of [`Plan::rules`], in the same order.
    pub rules: Vec<RuleCost>,
    /// Hooks of the plan.
    pub hooks: BTreeSet<Hook>,
    /// Price of the hooks.
    pub price: Price,
    /// How many syscalls pay, for each ABI of the plan; the 64-bit one always, and first.
    pub paying: Vec<Paying>,
    /// Syscalls of the rules whose work `io_uring` can do instead, unseen by the engine.
    pub missed: Vec<&'static str>,
    /// Common 64-bit syscalls, and whether they pay.
    pub common: Vec<(&'static str, bool)>,
    /// Hooks that the rules need and the kernel lacks, on the engine fentry.
    pub missing: Vec<InternalHook>,
    /// What the kernel offers.
    pub kernel: KernelFeatures,
    /// Whether the engine cannot tell a syscall that a seccomp filter or a tracer answered from one that the kernel
    /// executed: records have `executed=?`.
    pub unproven: bool,
}

/// Price of a plan.
///
/// # Units
/// Nanoseconds per syscall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Whether exits are seen at the raw tracepoint.
    pub raw: bool,
    /// What every syscall of the machine pays, in the plan or not.
    pub every_syscall_ns: u32,
    /// What a syscall of the plan pays in addition before its first rule is evaluated; `None` where only
    /// instructions were counted.
    pub paying_syscall_ns: Option<u32>,
}

/// Syscalls of one ABI that pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paying {
    /// The ABI.
    pub arch: Arch,
    /// How many pay.
    pub paying: usize,
    /// How many exist.
    pub known: usize,
}

/// What one rule costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCost {
    /// The syscalls and operations that evaluate the rule.
    pub scope: RuleScope,
    /// Hooks that the rule needs; empty for a rule that only suppresses.
    pub hooks: BTreeSet<Hook>,
    /// What its author should know.
    pub notes: Vec<RuleNote>,
}

/// Explains what a plan costs on an engine of a kernel.
#[must_use]
pub fn explain(plan: &Plan, engine: EngineKind, kernel: KernelFeatures) -> Explanation {
    let hooks = plan_hooks(plan, engine, kernel);
    let selection = HookSelection::new(plan, engine, kernel);
    let arches = plan.syscalls.keys().map(|syscall| syscall.arch);
    let arches: BTreeSet<Arch> = arches.chain([plan.native.b64()]).collect();
    let paying = arches.iter().rev().map(|&arch| {
        let syscalls = plan.syscalls.keys();
        Paying {
            arch,
            paying: syscalls.filter(|syscall| syscall.arch == arch).count(),
            known: syscalls_of(arch),
        }
    });
    let common = COMMON.map(|name| {
        let arch = plan.native.b64();
        let syscall = table::syscall_number(arch, name.as_bytes());
        let pays = |syscall| plan.syscalls.contains_key(&SyscallId { arch, syscall });
        (name, syscall.is_some_and(pays))
    });
    Explanation {
        engine,
        rules: rule_costs(plan, selection),
        price: price(engine, &hooks, selection),
        missing: match engine {
            EngineKind::Fentry => kernel.missing_hooks(plan),
            EngineKind::Lsm | EngineKind::Tracepoint => Vec::new(),
        },
        kernel,
        unproven: sees_exits_only(&hooks),
        hooks,
        paying: paying.collect(),
        missed: missed(plan, selection),
        common: common.into(),
    }
}

/// Whether results are read at `sys_exit`, which runs for syscalls that were never executed too.
fn sees_exits_only(hooks: &BTreeSet<Hook>) -> bool {
    let mut hooks = hooks.iter();
    hooks.any(|hook| matches!(hook, Hook::SysExit(_) | Hook::RawSysExit))
}

/// Syscalls that record, and whose work `io_uring` can do unseen.
fn missed(plan: &Plan, selection: HookSelection) -> Vec<&'static str> {
    if selection.uring_coverage() == UringCoverage::SyscallRules {
        return Vec::new();
    }
    let is_missed = |syscall: &SyscallId| {
        let mut operations = URING_OPS
            .iter()
            .filter(|operation| operation.stands_for(*syscall));
        operations.any(|operation| !plan.uring_ops.contains_key(&operation.op))
    };
    let missed = plan.syscalls.keys().filter(|syscall| is_missed(syscall));
    missed.filter_map(|syscall| syscall.name()).collect()
}

fn price(engine: EngineKind, hooks: &BTreeSet<Hook>, selection: HookSelection) -> Price {
    if engine.is_on_functions() && !selection.raw_exit {
        return Price::default();
    }
    let enters = hooks.iter().any(|hook| {
        matches!(
            hook,
            Hook::SysEnter(_) | Hook::SysEnterNoReturn(_) | Hook::RawSysEnter
        )
    });
    let exits = hooks
        .iter()
        .any(|hook| matches!(hook, Hook::SysExit(_) | Hook::RawSysExit));
    let exit_ns = if selection.raw_exit {
        PRICES.raw_exit
    } else {
        PRICES.one
    };
    let every_syscall_ns = match (enters, exits) {
        (false, false) => return Price::default(),
        (false, true) => exit_ns,
        (true, true) => {
            exit_ns
                + if selection.raw_enter {
                    PRICES.raw_both
                } else {
                    PRICES.both
                }
        }
        (true, false) => {
            if selection.raw_enter {
                PRICES.raw_enter
            } else {
                PRICES.one
            }
        }
    };
    let paying_syscall_ns = if selection.raw_exit {
        PRICES.raw_pays
    } else {
        PRICES.pays
    };
    Price {
        raw: selection.raw_exit,
        every_syscall_ns,
        paying_syscall_ns: Some(paying_syscall_ns),
    }
}

fn rule_costs(plan: &Plan, selection: HookSelection) -> Vec<RuleCost> {
    let scopes = plan.rule_scopes(selection.uring_coverage());
    let rules = (0..=u16::MAX).map(RuleId).zip(&plan.rules);
    rules
        .zip(scopes)
        .map(|((id, planned), scope)| {
            let suppresses = planned.rule.action == Action::Never;
            let is_task_rule = plan.task_slots.iter().any(|slot| slot.rule == id);
            let whole = scope.whole_arches.iter().copied();
            let mut notes: Vec<RuleNote> = whole.map(RuleNote::EverySyscall).collect();
            if is_task_rule {
                notes.push(RuleNote::NewTasks);
            } else if scope.is_empty() && labels::condition(&planned.rule).is_some() {
                notes.push(RuleNote::NoLabels);
            } else if scope.is_empty() {
                notes.push(RuleNote::MatchesNothing);
            } else if suppresses {
                notes.push(RuleNote::OnlySuppresses);
            }
            let mut hooks = BTreeSet::new();
            if !suppresses {
                notes.extend(notes_on_scope(planned, &scope, selection));
            }
            if !is_task_rule && let Some(names) = unseen_objects(&planned.rule, plan.native) {
                notes.push(RuleNote::UnseenObjects(names));
            }
            if !suppresses {
                let syscalls = scope.syscall_ids();
                hooks.extend(syscalls.flat_map(|syscall| selection.syscall_hooks(syscall)));
                let operations = scope.operations.iter();
                hooks.extend(operations.flat_map(|operation| selection.operation_hooks(operation)));
            }
            if is_task_rule {
                hooks.insert(Hook::SchedProcessFork);
            }
            RuleCost {
                scope,
                hooks,
                notes,
            }
        })
        .collect()
}

/// Syscalls that a rule with a condition on objects covers in vain. Of a rule about all syscalls only those of which
/// the kernel's audit has objects.
fn unseen_objects(rule: &Rule, native: NativeArch) -> Option<Vec<&'static str>> {
    let by_object = |field| {
        matches!(
            field,
            Field::Path
                | Field::Dir
                | Field::Inode
                | Field::DevMajor
                | Field::DevMinor
                | Field::ObjUid
                | Field::ObjGid
        )
    };
    let mut fields = rule.fields.iter();
    if rule.list != List::Exit || !fields.any(|test| by_object(test.field)) {
        return None;
    }
    let named = rule.syscalls != SyscallMask::all();
    let covers = |arch: Arch, syscall| {
        let has_arch = |test: &FieldTest| match (test.field, &test.value) {
            (Field::Arch, &Value::Number(value)) => (test.op == Op::Equal) == (value == arch.0),
            (Field::Perm, _) => false,
            _ => true,
        };
        rule.syscalls.contains(syscall) && rule.fields.iter().all(has_arch)
    };
    let is_unseen = |arch: Arch, syscall: Syscall| {
        covers(arch, syscall.0)
            && objects::objects(arch, syscall).is_empty()
            && !matches!(
                table::syscall_name(arch, syscall),
                Some("bind" | "socketcall")
            )
            && (named || objects::has_unseen_object(arch, syscall))
    };
    let mut names: Vec<&str> = native
        .abis()
        .into_iter()
        .flat_map(|arch| (0..1024).map(move |number| (arch, Syscall(number))))
        .filter(|&(arch, syscall)| is_unseen(arch, syscall))
        .filter_map(|(arch, syscall)| table::syscall_name(arch, syscall))
        .collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then_some(names)
}

/// Notes on a rule that records.
fn notes_on_scope(
    planned: &PlannedRule,
    scope: &RuleScope,
    selection: HookSelection,
) -> Vec<RuleNote> {
    let mut notes = Vec::new();
    let has_field = |field| {
        let mut fields = planned.rule.fields.iter();
        fields.any(|test| test.field == field)
    };
    let sees_completions_only = selection.uring_coverage() == UringCoverage::Completions;
    if !scope.operations.is_empty() && sees_completions_only {
        notes.push(RuleNote::EveryOperation);
    }
    let is_wide = |arch: &Arch| arch.is_64_bit();
    if selection.engine() != EngineKind::Fentry && !scope.syscalls.keys().all(is_wide) {
        notes.push(if has_field(Field::Arch) {
            RuleNote::Compat
        } else if is_watch(planned) {
            RuleNote::CompatWatch
        } else {
            RuleNote::CompatUnasked
        });
    }
    let unseen = || {
        let syscalls = scope.syscall_ids();
        syscalls.filter(|&syscall| !selection.sees_names(syscall))
    };
    let mut names: Vec<&str> = unseen()
        .filter(|&syscall| reads_names_from_task(syscall))
        .filter_map(SyscallId::name)
        .collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        notes.push(RuleNote::NamesFromTask(names));
    }
    if has_field(Field::Perm) && unseen().any(|syscall| syscall.name() == Some("openat2")) {
        notes.push(RuleNote::FlagsFromTask);
    }
    if has_field(Field::SaddrFam) && unseen().next().is_some() {
        notes.push(RuleNote::FamilyFromTask);
    }
    notes
}

/// Whether the rule is one that `-w` makes.
fn is_watch(planned: &PlannedRule) -> bool {
    let fields = &planned.rule.fields;
    let is_object = |field| matches!(field, Field::Path | Field::Dir);
    let is_watched = |field| is_object(field) || field == Field::Perm;
    planned.rule.syscalls.is_all()
        && fields.iter().any(|test| is_object(test.field))
        && fields.iter().all(|test| is_watched(test.field))
}

/// Whether the names of the syscall's objects can be read only from the memory of the task, because nothing in
/// the kernel leads from the finished syscall to them. The program of an exec is known.
fn reads_names_from_task(syscall: SyscallId) -> bool {
    let by_name = |object: &objects::ObjectArg| {
        matches!(
            object.place,
            ObjectRef::Path(_) | ObjectRef::At(..) | ObjectRef::Text(_)
        )
    };
    let mut objects = objects::objects(syscall.arch, syscall.syscall).iter();
    !syscall.is_exec() && objects.any(by_name)
}

#[cfg(test)]
mod tests;
