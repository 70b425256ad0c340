//! Compiles rules to a plan: for each syscall, the remaining tests of each rule.

use std::collections::{BTreeMap, HashMap};

use bstr::BString;

use crate::ids::{Arch, NativeArch, Syscall};
use crate::rule::{Action, Field, List, Op, Rule, SyscallMask};
use crate::table;

use super::prepare::{Condition, ConditionResult, Prepared, SyscallTraits, prepare, prepare_fork};
use super::rule_list::RuleEntry;
use super::task_list::TaskState;
use super::unsupported::UnsupportedReason;
use super::uring::URING_OPS;
use super::{
    Facts, Operand, Plan, PlannedRule, RuleId, Slot, SyscallId, SyscallPlan, Test, UnsupportedRule,
    WatchId,
};

impl Plan {
    /// Most rules of a plan; further rules are in [`Plan::unsupported`].
    pub const MAX_RULES: usize = 65_535;

    /// Compiles rules, in evaluation order within each list, for the syscalls of `arches` that have a name or that a
    /// rule selects by number. `arches` are ABIs of one architecture.
    ///
    /// A rule that is not supported goes to [`Plan::unsupported`]; the others are compiled without it.
    #[must_use]
    pub fn compile(rules: impl IntoIterator<Item = RuleEntry>, arches: &[Arch]) -> Self {
        let native = arches.iter().find_map(|&arch| NativeArch::with_abi(arch));
        let mut plan = Self {
            native: native.unwrap_or_default(),
            ..Self::default()
        };
        let mut watches = WatchedPaths::default();
        let mut prepared = Vec::new();
        for listed in rules {
            match listed.rule.list {
                List::Exclude => {
                    plan.exclude_list.push(listed);
                    continue;
                }
                List::User => {
                    plan.user_list.push(listed);
                    continue;
                }
                List::Filesystem => {
                    let (source, line, loses_records) = (listed.source, listed.line, false);
                    if let Err(reason) = plan.filesystem_list.push(listed) {
                        plan.unsupported.push(UnsupportedRule {
                            source,
                            line,
                            loses_records,
                            reason,
                        });
                    }
                    continue;
                }
                List::Exit | List::Task | List::IoUring => {}
            }
            let conditions = if plan.rules.len() < Self::MAX_RULES {
                if listed.rule.list == List::Task {
                    prepare_fork(&listed.rule).map(|tests| {
                        plan.task_slots.extend(tests.map(|tests| Slot {
                            rule: RuleId(u16::try_from(plan.rules.len()).unwrap_or(u16::MAX)),
                            action: listed.rule.action,
                            tests,
                        }));
                        Prepared::Never // no syscall evaluates it
                    })
                } else {
                    prepare(&listed.rule, &mut |path| watches.index(path))
                }
            } else {
                let reason = format!("a plan holds at most {} rules", Self::MAX_RULES);
                Err(UnsupportedReason::of(&listed.rule, reason))
            };
            match conditions {
                Ok(conditions) => {
                    prepared.push(conditions);
                    plan.rules.push(planned(listed));
                }
                Err(UnsupportedReason {
                    loses_records,
                    reason,
                }) => {
                    let RuleEntry { source, line, .. } = listed;
                    plan.unsupported.push(UnsupportedRule {
                        source,
                        line,
                        loses_records,
                        reason,
                    });
                }
            }
        }
        plan.watches = watches.paths;
        let state_slots = task_state_slots(&plan.task_slots, &plan.rules);
        plan.syscalls = plan_syscalls(&plan.rules, &prepared, &state_slots, arches);
        plan.uring_ops = operations(&plan.rules, &prepared, &state_slots, plan.native);
        plan.uring_enters = uring_enters(&plan.rules, &prepared, &state_slots, arches);
        plan
    }
}

/// Watched paths by index.
#[derive(Default)]
struct WatchedPaths {
    paths: Vec<BString>,
    numbers: HashMap<BString, WatchId>,
}

impl WatchedPaths {
    /// Index of a path; `None` when all indexes are taken.
    fn index(&mut self, path: BString) -> Option<WatchId> {
        if let Some(&id) = self.numbers.get(&path) {
            return Some(id);
        }
        let id = WatchId(u16::try_from(self.paths.len()).ok()?);
        self.paths.push(path.clone());
        self.numbers.insert(path, id);
        Some(id)
    }
}

fn planned(RuleEntry { rule, source, line }: RuleEntry) -> PlannedRule {
    let key = (!rule.keys.is_empty()).then(|| BString::from(bstr::join([1], &rule.keys)));
    PlannedRule {
        rule,
        source,
        line,
        key,
        denies: false,
    }
}

/// Slots for tasks whose state the task list has set; every syscall evaluates them first.
fn task_state_slots(task_slots: &[Slot], rules: &[PlannedRule]) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    for task_slot in task_slots {
        let Some(planned) = rules.get(usize::from(task_slot.rule.0)) else {
            continue;
        };
        let state = TaskState::of(&planned.rule);
        let test = Test {
            operand: Operand::TaskState,
            op: Op::Equal,
            value: state.0,
        };
        // Rules that set the same state are indistinguishable: the first one is used for all of them, even if no
        // task can satisfy it.
        let alike = |planned: &PlannedRule| {
            planned.rule.list == List::Task && TaskState::of(&planned.rule) == state
        };
        let first = rules
            .iter()
            .position(alike)
            .and_then(|at| u16::try_from(at).ok());
        if slots.iter().all(|slot| !slot.tests.contains(&test)) {
            slots.push(Slot {
                rule: first.map_or(task_slot.rule, RuleId),
                action: task_slot.action,
                tests: vec![test],
            });
        }
        if task_slot.tests.is_empty() {
            break; // matches every new task
        }
    }
    slots
}

fn plan_syscalls(
    rules: &[PlannedRule],
    prepared: &[Prepared],
    state_slots: &[Slot],
    arches: &[Arch],
) -> BTreeMap<SyscallId, SyscallPlan> {
    let masks: Vec<&SyscallMask> = rules
        .iter()
        .filter(|planned| planned.rule.list == List::Exit)
        .map(|planned| &planned.rule.syscalls)
        .filter(|mask| !mask.is_all())
        .collect();
    let mut planned_syscalls = BTreeMap::new();
    for &arch in arches {
        for number in 0..SyscallMask::LIMIT - 32 {
            let syscall = Syscall(number);
            let is_named = || masks.iter().any(|mask| mask.contains(number));
            if table::syscall_name(arch, syscall).is_none() && !is_named() {
                continue;
            }
            let traits = SyscallTraits::of(SyscallId { arch, syscall });
            let is_about = |rule: &Rule| rule.list == List::Exit && rule.syscalls.contains(number);
            let slots = slots(rules, prepared, state_slots, &traits, is_about);
            if let Some(planned) = SyscallPlan::of(slots) {
                planned_syscalls.insert(traits.syscall_id, planned);
            }
        }
    }
    planned_syscalls
}

/// Rules of the `io_uring` list per operation. All slots are kept, because rules about the equivalent syscall may
/// follow.
fn operations(
    rules: &[PlannedRule],
    prepared: &[Prepared],
    state_slots: &[Slot],
    native: NativeArch,
) -> BTreeMap<u8, SyscallPlan> {
    let mut operations = BTreeMap::new();
    for operation in &URING_OPS {
        let is_about = |rule: &Rule| rule.list == List::IoUring && operation.is_in(&rule.syscalls);
        if !rules.iter().any(|planned| is_about(&planned.rule)) {
            continue;
        }
        let traits = SyscallTraits::of(operation.syscall_id(native));
        let slots = slots(rules, prepared, state_slots, &traits, is_about);
        let facts = facts(&slots);
        operations.insert(operation.op, SyscallPlan { slots, facts });
    }
    operations
}

/// Rules about `io_uring_enter` in each ABI.
fn uring_enters(
    rules: &[PlannedRule],
    prepared: &[Prepared],
    state_slots: &[Slot],
    arches: &[Arch],
) -> BTreeMap<Arch, Vec<Slot>> {
    let of_arch = |&arch: &Arch| {
        let syscall = table::syscall_number(arch, b"io_uring_enter")?;
        let traits = SyscallTraits::of(SyscallId { arch, syscall });
        let is_about = |rule: &Rule| rule.list == List::Exit && rule.syscalls.contains(syscall.0);
        Some((arch, slots(rules, prepared, state_slots, &traits, is_about)))
    };
    arches.iter().filter_map(of_arch).collect()
}

impl SyscallPlan {
    /// Builds the plan of a syscall from its slots up to the last one that records; `None` when no slot records.
    pub(super) fn of(mut slots: Vec<Slot>) -> Option<Self> {
        let records = slots.iter().rposition(|slot| slot.action == Action::Always);
        slots.truncate(records? + 1);
        let facts = facts(&slots);
        Some(Self { slots, facts })
    }
}

/// Slots of one syscall or operation, up to the first that always matches.
fn slots(
    rules: &[PlannedRule],
    prepared: &[Prepared],
    state_slots: &[Slot],
    traits: &SyscallTraits,
    is_about: impl Fn(&Rule) -> bool,
) -> Vec<Slot> {
    let mut slots = state_slots.to_vec();
    for (id, (planned, prepared)) in (0..=u16::MAX).map(RuleId).zip(rules.iter().zip(prepared)) {
        let Prepared::Conditions(conditions) = prepared else {
            continue;
        };
        if !is_about(&planned.rule) {
            continue;
        }
        if let Some(tests) = remaining_tests(conditions, traits) {
            let decides = tests.is_empty();
            slots.push(Slot {
                rule: id,
                action: planned.rule.action,
                tests,
            });
            if decides {
                break;
            }
        }
    }
    slots
}

/// Tests that remain for one syscall; `None` when the rule cannot match.
fn remaining_tests(conditions: &[Condition], traits: &SyscallTraits) -> Option<Vec<Test>> {
    let mut tests = Vec::new();
    for condition in conditions {
        match condition.on(traits) {
            ConditionResult::Holds => {}
            ConditionResult::Fails => return None,
            ConditionResult::Ask(test) if tests.iter().any(|&other| contradict(test, other)) => {
                return None;
            }
            ConditionResult::Ask(test) if tests.contains(&test) => {}
            ConditionResult::Ask(test) => tests.push(test),
        }
    }
    Some(tests)
}

/// Whether two tests of one number exclude each other.
fn contradict(a: Test, b: Test) -> bool {
    let differ = match (a.op, b.op) {
        (Op::Equal, Op::Equal) => a.value != b.value,
        (Op::Equal, Op::NotEqual) | (Op::NotEqual, Op::Equal) => a.value == b.value,
        _ => false,
    };
    differ && a.operand == b.operand && is_one_number(a.operand)
}

/// Whether the operand is a single number, which can equal only one value.
const fn is_one_number(operand: Operand) -> bool {
    match operand {
        Operand::Field(
            Field::Gid
            | Field::Egid
            | Field::ObjUid
            | Field::ObjGid
            | Field::Inode
            | Field::DevMajor
            | Field::DevMinor
            | Field::FileType,
        ) => false,
        Operand::Field(_)
        | Operand::AuidSet
        | Operand::TaskState
        | Operand::UringEnter
        | Operand::OpenPerm
        | Operand::Exe => true,
        Operand::Fields(..) | Operand::Path | Operand::Dir => false,
    }
}

pub(super) fn facts(slots: &[Slot]) -> Facts {
    let tests = slots.iter().flat_map(|slot| &slot.tests);
    tests.fold(Facts::empty(), |facts, test| facts | facts_of(test))
}

fn facts_of(test: &Test) -> Facts {
    match test.operand {
        Operand::Field(field @ (Field::Gid | Field::Egid))
            if matches!(test.op, Op::Equal | Op::NotEqual) =>
        {
            facts_of_field(field) | Facts::GROUPS
        }
        Operand::Field(field) => facts_of_field(field),
        Operand::Fields(left, right) => facts_of_field(left) | facts_of_field(right),
        Operand::AuidSet => Facts::TASK,
        Operand::TaskState => Facts::TASK_STATE,
        Operand::UringEnter | Operand::OpenPerm => Facts::empty(),
        Operand::Path | Operand::Dir => Facts::OBJECTS,
        Operand::Exe => Facts::EXE,
    }
}

const fn facts_of_field(field: Field) -> Facts {
    match field {
        Field::Uid
        | Field::Euid
        | Field::Suid
        | Field::Fsuid
        | Field::Gid
        | Field::Egid
        | Field::Sgid
        | Field::Fsgid => Facts::CREDS,
        Field::Ppid | Field::Auid | Field::SessionId | Field::Pers => Facts::TASK,
        Field::SaddrFam => Facts::ADDRESS,
        Field::ObjUid
        | Field::ObjGid
        | Field::Inode
        | Field::DevMajor
        | Field::DevMinor
        | Field::FileType => Facts::OBJECTS,
        _ => Facts::empty(),
    }
}

#[cfg(test)]
mod tests;
