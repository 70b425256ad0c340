//! What a plan costs on an engine: a model for `tollgate explain` to print.
//!
//! On the tracepoint engine every syscall of the machine takes the kernel's trace slow path once anything is
//! attached: [`Price::every_syscall_ns`], 0 on the fentry engine. A call "pays" if it also evaluates rules.

mod cost;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ids::{Arch, Syscall};
use crate::rule::{Action, Field, List, SyscallMask};
use crate::table;

pub use cost::Cost;
use cost::{cost_of, cost_of_operation};

use super::hook::{self, EngineKind, Hook, HookSelection, KernelFeatures};
use super::labels;
use super::objects::{self, ObjectRef};
use super::uring::{URING_OPS, UringOp};
use super::{Plan, RuleId, SyscallId};

/// Prices of the tracepoint engine.
///
/// # Units
/// Nanoseconds per syscall.
///
/// # Source
/// Measured on 6.18, see `docs/bench.md`: a guest on one machine. Take the proportions, not the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// On every syscall of the machine, as soon as one `sys_exit_X` or `sys_enter_X` is attached.
    pub one: u32,
    /// The same, on top, where both sides are attached.
    pub both: u32,
    /// On every syscall of the machine for the raw tracepoint `sys_exit`.
    pub raw_exit: u32,
    /// On every syscall of the machine for the raw tracepoint `sys_enter`.
    pub raw_enter: u32,
    /// The same, on top, where exits are attached too.
    pub raw_both: u32,
    /// To start the program of a call that pays, through its own tracepoint.
    pub pays: u32,
    /// The same through the raw tracepoint.
    pub raw_pays: u32,
}

/// The one table of prices.
pub const PRICES: Prices = Prices {
    one: 30,
    both: 13,
    raw_exit: 76,
    raw_enter: 72,
    raw_both: 54,
    pays: 200,
    raw_pays: 100,
};

/// Calls that ordinary programs make all the time; whether they pay is what users ask first.
pub const COMMON: [&str; 6] = ["read", "write", "getpid", "futex", "epoll_wait", "stat"];

/// What a plan costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The engine that it is about.
    pub engine: EngineKind,
    /// One entry for each of [`Plan::rules`], in the same order.
    pub rules: Vec<RuleCost>,
    /// What is attached.
    pub hooks: BTreeSet<Hook>,
    /// What that costs.
    pub price: Price,
    /// How many syscalls pay, for each ABI that has some; `x86_64` in any case, and first.
    pub paying: Vec<Paying>,
    /// Calls of the rules whose work `io_uring` can do instead, unseen by this engine.
    pub missed: Vec<&'static str>,
    /// For each of [`COMMON`], as a 64-bit call: whether it pays.
    pub common: Vec<(&'static str, bool)>,
}

/// Price of a plan.
///
/// # Units
/// Nanoseconds per syscall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Whether calls are seen to return by the raw tracepoint.
    pub raw: bool,
    /// What every syscall of the machine pays, in the plan or not.
    pub every_syscall_ns: u32,
    /// What a syscall of the plan pays on top before its first rule is read; where only instructions
    /// have been counted, there is no time.
    pub paying_syscall_ns: Option<u32>,
}

/// Syscalls of one ABI that pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paying {
    /// The ABI.
    pub arch: Arch,
    /// How many pay.
    pub paying: usize,
    /// How many there are.
    pub known: usize,
}

/// What one rule touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCost {
    /// The rule.
    pub rule: RuleId,
    /// Syscalls that evaluate it.
    pub calls: BTreeMap<Arch, Vec<Syscall>>,
    /// Operations of `io_uring` that evaluate it.
    pub operations: Vec<&'static UringOp>,
    /// Hooks that it needs; none for a rule that only suppresses.
    pub hooks: BTreeSet<Hook>,
    /// How much of the machine it burdens.
    pub cost: Cost,
    /// What its writer should know.
    pub notes: Vec<Note>,
}

/// Something to know about a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// It can match no call: its conditions exclude each other, or an earlier rule takes all.
    MatchesNothing,
    /// It asks for security labels, which no security module of this machine compares.
    NoLabels,
    /// A `never` rule.
    OnlySuppresses,
    /// It decides about tasks when they are made: those that run already are not concerned.
    NewTasks,
    /// It is evaluated for nearly all syscalls of an ABI.
    EverySyscall(Arch),
    /// All operations of `io_uring` pay for it, and only their results are seen.
    EveryOperation,
    /// It covers 32-bit calls because it says so.
    Compat,
    /// It covers 32-bit calls because it does not say which ABI it means.
    CompatUnasked,
    /// Names that these calls are given are read from the task's memory.
    NamesFromTask(Vec<&'static str>),
    /// It looks at the flags of openat2, which are read from the task's memory.
    FlagsFromTask,
    /// It looks at the family of a socket address, which is read from the task's memory.
    FamilyFromTask,
}

/// Says what a plan costs on an engine of a kernel.
#[must_use]
pub fn explain(plan: &Plan, engine: EngineKind, kernel: KernelFeatures) -> Explanation {
    let hooks = hook::hooks(plan, engine, kernel);
    let raw = HookSelection::of(plan, engine, kernel);
    let arches: BTreeSet<Arch> = plan
        .syscalls
        .keys()
        .map(|call| call.arch)
        .chain([Arch::X86_64])
        .collect();
    let known: BTreeMap<Arch, usize> = arches.iter().map(|&arch| (arch, known(arch))).collect();
    let paying = known
        .iter()
        .rev()
        .map(|(&arch, &known)| Paying {
            arch,
            known,
            paying: plan
                .syscalls
                .keys()
                .filter(|call| call.arch == arch)
                .count(),
        })
        .collect();
    let common = COMMON.map(|name| {
        let call = table::syscall_number(Arch::X86_64, name.as_bytes()).map(|syscall| SyscallId {
            arch: Arch::X86_64,
            syscall,
        });
        (
            name,
            call.is_some_and(|call| plan.syscalls.contains_key(&call)),
        )
    });
    Explanation {
        engine,
        rules: rules(plan, raw, &known),
        price: price(engine, &hooks, raw),
        hooks,
        paying,
        missed: missed(plan, raw),
        common: common.into(),
    }
}

impl Note {
    /// Stable short name.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::MatchesNothing => "matches-nothing",
            Self::NoLabels => "no-labels",
            Self::OnlySuppresses => "only-suppresses",
            Self::NewTasks => "new-tasks",
            Self::EverySyscall(_) => "every-syscall",
            Self::EveryOperation => "every-operation",
            Self::Compat => "compat",
            Self::CompatUnasked => "compat-unasked",
            Self::NamesFromTask(_) => "names-from-task",
            Self::FlagsFromTask => "flags-from-task",
            Self::FamilyFromTask => "family-from-task",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MatchesNothing => f.write_str(
                "matches nothing: its conditions exclude each other, or an earlier rule takes all",
            ),
            Self::NoLabels => f.write_str(
                "matches nothing: it asks for security labels, and no security module here compares them",
            ),
            Self::OnlySuppresses => f.write_str("only suppresses: needs no hook of its own"),
            Self::NewTasks => f.write_str(
                "decides about tasks when they are made; those that run already are not concerned",
            ),
            Self::EverySyscall(arch) => {
                write!(f, "is evaluated for nearly every {} syscall", bits(*arch))
            }
            Self::EveryOperation => f.write_str(
                "every operation of io_uring pays, 40 % of what one costs that does nothing; names and objects \
                 are not seen, and ids are those of who completes it",
            ),
            Self::Compat => f.write_str("32-bit calls: needs the raw tracepoint"),
            Self::CompatUnasked => f.write_str(
                "32-bit calls: needs the raw tracepoint; add `-F arch=b64` if they are not meant",
            ),
            Self::NamesFromTask(names) => write!(
                f,
                "names are read from task memory, where another thread can change them, for {}",
                shortened(names)
            ),
            Self::FlagsFromTask => f.write_str(
                "flags of openat2 are read from task memory, where another thread can change them",
            ),
            Self::FamilyFromTask => f.write_str(
                "the family of socket addresses is read from task memory, where another thread can change it",
            ),
        }
    }
}

/// Name of a call, or its number when it has none.
#[must_use]
pub fn call_name(call: SyscallId) -> String {
    table::syscall_name(call.arch, call.syscall)
        .map_or_else(|| call.syscall.0.to_string(), str::to_owned)
}

/// The first few names of a list, and how many more there are.
#[must_use]
pub fn shortened(names: &[impl AsRef<str>]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} +{more}", shown.join(", ")),
    }
}

/// `64-bit` or `32-bit`.
#[must_use]
pub const fn bits(arch: Arch) -> &'static str {
    // The flag that the audit system puts into the numbers of 64-bit ABIs.
    if arch.0 & 0x8000_0000 == 0 {
        "32-bit"
    } else {
        "64-bit"
    }
}

/// Calls that record, and whose work `io_uring` can do without being seen.
fn missed(plan: &Plan, sides: HookSelection) -> Vec<&'static str> {
    if sides.calls_are_operations() {
        return Vec::new();
    }
    let is_missed = |call: &SyscallId| {
        let mut same = URING_OPS
            .iter()
            .filter(|operation| operation.stands_for(*call));
        same.any(|operation| !plan.uring_ops.contains_key(&operation.op))
    };
    let missed = plan.syscalls.keys().filter(|call| is_missed(call));
    missed
        .filter_map(|call| table::syscall_name(call.arch, call.syscall))
        .collect()
}

fn price(engine: EngineKind, hooks: &BTreeSet<Hook>, raw: HookSelection) -> Price {
    if engine == EngineKind::Fentry {
        return Price::default();
    }
    let enters = hooks
        .iter()
        .any(|hook| matches!(hook, Hook::Enter(_) | Hook::Last(_) | Hook::RawEnter));
    let exits = hooks
        .iter()
        .any(|hook| matches!(hook, Hook::Exit(_) | Hook::RawExit));
    let of_exits = if raw.raw_exit {
        PRICES.raw_exit
    } else {
        PRICES.one
    };
    let every_syscall_ns = match (enters, exits) {
        (false, false) => return Price::default(),
        (false, true) => of_exits,
        (true, true) => {
            of_exits
                + if raw.raw_enter {
                    PRICES.raw_both
                } else {
                    PRICES.both
                }
        }
        (true, false) => {
            if raw.raw_enter {
                PRICES.raw_enter
            } else {
                PRICES.one
            }
        }
    };
    let paying_syscall_ns = if raw.raw_exit {
        PRICES.raw_pays
    } else {
        PRICES.pays
    };
    Price {
        raw: raw.raw_exit,
        every_syscall_ns,
        paying_syscall_ns: Some(paying_syscall_ns),
    }
}

fn known(arch: Arch) -> usize {
    (0..SyscallMask::LIMIT)
        .filter(|&number| table::syscall_name(arch, Syscall(number)).is_some())
        .count()
}

fn rules(plan: &Plan, raw: HookSelection, known: &BTreeMap<Arch, usize>) -> Vec<RuleCost> {
    let mut touched: Vec<Vec<SyscallId>> = vec![Vec::new(); plan.rules.len()];
    for (&call, planned) in &plan.syscalls {
        for slot in &planned.slots {
            if let Some(calls) = touched.get_mut(usize::from(slot.rule.0)) {
                calls.push(call);
            }
        }
    }
    let mut operations: Vec<Vec<&'static UringOp>> = vec![Vec::new(); plan.rules.len()];
    for (operation, planned) in raw.operations(plan) {
        for slot in &planned.slots {
            if let Some(operations) = operations.get_mut(usize::from(slot.rule.0)) {
                operations.push(operation);
            }
        }
    }
    let touched = touched.into_iter().zip(operations);
    let with_ids = (0..=u16::MAX).map(RuleId).zip(&plan.rules).zip(touched);
    with_ids
        .map(|((rule, planned), (calls, operations))| {
            let is_idle = calls.is_empty() && operations.is_empty();
            let of_operations = planned.rule.list == List::IoUring && !is_idle;
            let suppresses = planned.rule.action == Action::Never;
            let mut by_arch: BTreeMap<Arch, Vec<Syscall>> = BTreeMap::new();
            for call in &calls {
                by_arch.entry(call.arch).or_default().push(call.syscall);
            }
            let everywhere = by_arch
                .iter()
                .filter(|(arch, calls)| {
                    known
                        .get(arch)
                        .is_some_and(|known| calls.len() * 10 >= known * 9)
                })
                .map(|(&arch, _)| arch);
            let mut notes: Vec<Note> = everywhere.map(Note::EverySyscall).collect();
            let cost = match (suppresses || is_idle, notes.is_empty()) {
                (true, _) => Cost::Nothing,
                (false, false) => Cost::Everything,
                (false, true) if of_operations => operations
                    .iter()
                    .map(|operation| cost_of_operation(operation, raw))
                    .max()
                    .unwrap_or(Cost::Nothing),
                (false, true) => calls
                    .iter()
                    .map(|&call| cost_of(call))
                    .max()
                    .unwrap_or(Cost::Nothing),
            };
            let of_tasks = plan.task_slots.iter().any(|fork| fork.rule == rule);
            if of_tasks {
                notes.push(Note::NewTasks);
            } else if is_idle && labels::condition(&planned.rule).is_some() {
                notes.push(Note::NoLabels);
            } else if is_idle {
                notes.push(Note::MatchesNothing);
            } else if suppresses {
                notes.push(Note::OnlySuppresses);
            }
            let mut hooks = BTreeSet::new();
            if !suppresses {
                if of_operations && raw.sees_completions_only() {
                    notes.push(Note::EveryOperation);
                }
                notes.extend(notes_on(plan, rule, &calls, raw));
                hooks.extend(calls.into_iter().flat_map(|call| raw.hooks(call)));
                let of_each = |operation: &&UringOp| raw.operation_hooks(operation);
                hooks.extend(operations.iter().flat_map(of_each));
            }
            if of_tasks {
                hooks.insert(Hook::Fork);
            }
            RuleCost {
                rule,
                calls: by_arch,
                operations,
                hooks,
                cost,
                notes,
            }
        })
        .collect()
}

/// What to know about a rule that records on `calls`.
fn notes_on(plan: &Plan, rule: RuleId, calls: &[SyscallId], sides: HookSelection) -> Vec<Note> {
    let mut notes = Vec::new();
    let fields = plan
        .rules
        .get(usize::from(rule.0))
        .map_or(&[][..], |planned| &planned.rule.fields);
    if calls.iter().any(|call| call.arch != Arch::X86_64) {
        let says_which = fields.iter().any(|test| test.field == Field::Arch);
        notes.push(if says_which {
            Note::Compat
        } else {
            Note::CompatUnasked
        });
    }
    let mut names: Vec<&str> = calls
        .iter()
        .filter(|&&call| takes_names(call) && !sides.sees(call))
        .filter_map(|call| table::syscall_name(call.arch, call.syscall))
        .collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        notes.push(Note::NamesFromTask(names));
    }
    let openat2 = |call: &SyscallId| {
        table::syscall_name(call.arch, call.syscall) == Some("openat2") && !sides.sees(*call)
    };
    if fields.iter().any(|test| test.field == Field::Perm) && calls.iter().any(openat2) {
        notes.push(Note::FlagsFromTask);
    }
    let asks_family = fields.iter().any(|test| test.field == Field::SaddrFam);
    if asks_family && calls.iter().any(|&call| !sides.sees(call)) {
        notes.push(Note::FamilyFromTask);
    }
    notes
}

/// Whether the names of objects of this call can only be read from the task's memory: nothing that
/// the kernel keeps leads from the finished call to them. A program that was started is known.
fn takes_names(call: SyscallId) -> bool {
    let by_name = |object: &objects::ObjectArg| {
        matches!(
            object.place,
            ObjectRef::Path(_) | ObjectRef::At(..) | ObjectRef::Text(_)
        )
    };
    let starts = matches!(
        table::syscall_name(call.arch, call.syscall),
        Some("execve" | "execveat")
    );
    !starts
        && objects::objects(call.arch, call.syscall)
            .iter()
            .any(by_name)
}

#[cfg(test)]
mod tests;
