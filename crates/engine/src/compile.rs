//! Compiles a plan to map contents and a set of hooks. No I/O.

mod attribute;
mod aux_records;
mod denial;
pub(crate) mod fast_path;
pub(crate) mod objects;
pub(crate) mod prefilter;
mod rule_tests;
mod served_by;
mod socket_address;
pub(crate) mod watch_hash;
pub(crate) mod watches;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use audit::ids::{Arch, Syscall};
use audit::plan::filesystem_list::FstypeCondition;
use audit::plan::task_list::TaskState;
use audit::plan::{Facts, Operand, Plan, Slot, SyscallId, SyscallPlan, Test};
use audit::rule::{Field, Op};

use self::rule_tests::tests;
use crate::abi::{self, WireEvent, WireObject, WireSyscall, WireTest, word};
use crate::hooks::hook::Hook;
use crate::hooks::hook_selection::HookSelection;
use crate::hooks::internal_hook::InternalHook;
use crate::hooks::syscall_functions::tracepoint_name;
use crate::hooks::syscall_hooks::object_hooks;
use crate::hooks::syscall_set::SyscallSet;

/// A compiled plan: map contents and hooks.
#[derive(Debug)]
pub(crate) struct CompiledPlan {
    /// Tests of all syscalls; those of one syscall are consecutive.
    pub(crate) tests: Vec<WireTest>,
    /// Tests of the task list; indexes are relative to the first of them.
    pub(crate) task_tests: Vec<WireTest>,
    /// Index of each test sequence, to share it between syscalls with the same rules.
    shared_tests: HashMap<Vec<WireTest>, u32>,
    /// One entry per syscall and per `io_uring` operation of the plan, by its index in `tlg_syscalls`.
    pub(crate) syscalls: BTreeMap<u32, WireSyscall>,
    /// Syscalls that need the raw tracepoint `sys_enter`.
    pub(crate) raw_enter: SyscallSet,
    /// Syscalls that need the raw tracepoint `sys_exit`.
    pub(crate) raw_exit: SyscallSet,
    /// Conditions of the filesystem list; objects on these file systems are not recorded.
    pub(crate) filesystems: Vec<FstypeCondition>,
    /// Hooks to attach to.
    pub(crate) hooks: BTreeSet<Hook>,
    /// Whether rules of the plan apply to `io_uring` operations.
    pub(crate) uring: bool,
    /// Whether rules can match an `openat` or `open` with `O_RDONLY`.
    pub(crate) read_only_opens: ReadOnlyOpens,
    /// Open flags of which one must be set for any rule to match; 0 when rules match without.
    pub(crate) open_gate: u32,
    /// Whether a rule denies syscalls that could not be recorded.
    pub(crate) denies: bool,
}

/// Whether rules can match an open with `O_RDONLY`, by syscall. Applies to the ABI whose registers the stubs
/// read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadOnlyOpens {
    pub(crate) openat: bool,
    pub(crate) open: bool,
}

/// Compiles a plan. Indexes of tests are relative to the first test of the plan.
pub(crate) fn compile(plan: &Plan, selection: HookSelection) -> CompiledPlan {
    let mut compiled = CompiledPlan {
        tests: Vec::new(),
        task_tests: task_tests(plan),
        filesystems: plan.filesystem_list.conditions().collect(),
        shared_tests: HashMap::new(),
        syscalls: BTreeMap::new(),
        raw_enter: SyscallSet::default(),
        raw_exit: SyscallSet::default(),
        hooks: selection.task_list_hook(plan).into_iter().collect(),
        uring: false,
        read_only_opens: ReadOnlyOpens::default(),
        open_gate: O_ACCMODE | O_PATH,
        denies: plan.denying() != 0,
    };
    for (syscall_id, rules) in &plan.syscalls {
        let abi = wire_abi(syscall_id.arch);
        let Syscall(number) = syscall_id.syscall;
        if number >= abi::SYSCALLS {
            continue; // no kernel has this syscall
        }
        let mut hooks = selection.syscall_hooks(*syscall_id);
        hooks.extend(selection.denial_hooks(plan, *syscall_id, rules));
        if hooks.contains(&Hook::RawSysEnter) {
            compiled.raw_enter.insert(*syscall_id);
        }
        if hooks.contains(&Hook::RawSysExit) {
            compiled.raw_exit.insert(*syscall_id);
        }
        compiled.hooks.extend(hooks);
        let wire = compiled.compile_syscall(*syscall_id, rules, selection, plan);
        let reads = wire.facts & abi::FACT_HOOKED == 0 || !opens_only_for_write(&wire);
        match tracepoint_name(*syscall_id) {
            Some("openat") => compiled.read_only_opens.openat = reads,
            Some("open") => compiled.read_only_opens.open = reads,
            _ => {}
        }
        compiled.syscalls.insert(abi * abi::SYSCALLS + number, wire);
    }
    for (operation, rules) in plan.operations(selection.uring_coverage()) {
        compiled.uring = true;
        compiled.hooks.extend(selection.operation_hooks(operation));
        let denials = selection.denial_hooks(plan, operation.syscall_id(plan.native), &rules);
        compiled.hooks.extend(denials);
        let wire =
            compiled.compile_syscall(operation.syscall_id(plan.native), &rules, selection, plan);
        let index = abi::URING_FIRST + u32::from(operation.op);
        compiled.syscalls.insert(index, wire);
    }
    denial::mark_tests(&mut compiled.tests, plan);
    compiled
}

impl CompiledPlan {
    /// Compiles a syscall, or the syscall that an `io_uring` operation stands for.
    fn compile_syscall(
        &mut self,
        syscall_id: SyscallId,
        rules: &SyscallPlan,
        selection: HookSelection,
        plan: &Plan,
    ) -> WireSyscall {
        let mut wire = self.wire_syscall(syscall_id, rules, selection);
        if plan.denies(rules) {
            wire.facts |= abi::FACT_DENY;
        }
        if selection.aux_record_hooks(syscall_id).next().is_some() {
            wire.facts |= abi::FACT_AUX;
        }
        if selection.sees_objects(syscall_id) {
            wire.facts |= served_by::hooked_facts(syscall_id, selection);
            let creates = syscall_id.name() == Some("creat");
            if !opens_only_for_write(&wire)
                && !creates
                && object_hooks(syscall_id).contains(&InternalHook::OpenFilp)
            {
                self.open_gate = 0;
            }
        }
        wire
    }

    fn wire_syscall(
        &mut self,
        syscall_id: SyscallId,
        rules: &SyscallPlan,
        selection: HookSelection,
    ) -> WireSyscall {
        let name = syscall_id.name().unwrap_or_default();
        let watched = rules.slots.iter().any(Slot::needs_watch);
        let tests = self.append_tests(rules.slots.iter());
        let tests_unwatched = if watched {
            self.append_tests(rules.slots.iter().filter(|slot| !slot.needs_watch()))
        } else {
            tests
        };
        let (open_arg, open_fact) = match syscall_id.open_flags_arg() {
            Some(arg) => (arg, abi::FACT_OPEN_FLAGS),
            None if name == "openat2" => (2, abi::FACT_OPEN_HOW),
            None => (0, 0),
        };
        let mut facts = open_fact;
        for (ours, wire) in [
            (Facts::CREDS, abi::FACT_CREDS),
            (Facts::GROUPS, 0), // read from the task when a test needs them
            (Facts::TASK, abi::FACT_TASK),
            (Facts::EXE, abi::FACT_EXE),
            (Facts::TASK_STATE, abi::FACT_TASK_MARK | abi::FACT_TASK),
            (Facts::ADDRESS, abi::FACT_SADDR),
        ] {
            if rules.facts.contains(ours) {
                facts |= wire;
            }
        }
        let mut all_tests = rules.slots.iter().flat_map(|slot| slot.tests.iter());
        if all_tests.clone().any(tests_object) {
            facts |= abi::FACT_OBJECTS;
        }
        if all_tests.any(tests_result) {
            facts |= abi::FACT_RESULT;
        }
        if selection.saves_enter_state(syscall_id) {
            facts |= abi::FACT_ENTER_STATE;
        }
        if syscall_id.forks() {
            facts |= abi::FACT_FORKS;
        }
        if syscall_id.is_exec() {
            facts |= abi::FACT_EXEC;
        }
        if rules.needs_watch() {
            facts |= abi::FACT_WATCH_ONLY;
        }
        WireSyscall {
            tests,
            tests_unwatched,
            facts,
            open_arg,
            watch_perm: watch_perm(&rules.slots),
            epoch: 0,
            aux_source: aux_records::source(syscall_id.arch, name, selection.engine()),
            address: socket_address::sockaddr_source(syscall_id),
            attribute: attribute::wire_attribute(syscall_id),
            hooks: served_by::wire_hooks(syscall_id),
            _pad: [0; 4],
            objects: objects::wire_shapes(syscall_id, selection.kernel()),
        }
    }

    /// Appends the tests of some rules and returns the index of the first. Reuses an equal sequence.
    fn append_tests<'a>(&mut self, slots: impl Iterator<Item = &'a Slot>) -> u32 {
        let first = u32::try_from(self.tests.len()).unwrap_or(u32::MAX);
        let tests = tests(slots);
        if let Some(&same) = self.shared_tests.get(&tests) {
            return same;
        }
        self.tests
            .extend(tests.iter().map(|test| test.moved(first)));
        self.shared_tests.insert(tests, first);
        first
    }
}

/// Tests of the task list. Verdicts are the task states of the rules.
fn task_tests(plan: &Plan) -> Vec<WireTest> {
    if plan.task_slots.is_empty() {
        return Vec::new();
    }
    let mut all = tests(plan.task_slots.iter());
    let verdicts = all.iter_mut().map(|test| &mut test.verdict);
    let verdicts = verdicts.filter(|verdict| **verdict != abi::NO_VERDICT);
    for (verdict, fork) in verdicts.zip(&plan.task_slots) {
        if let Some(planned) = plan.rules.get(usize::from(fork.rule.0)) {
            *verdict = TaskState::of(&planned.rule).0;
        }
    }
    all
}

fn wire_abi(arch: Arch) -> u32 {
    if arch.is_64_bit() { abi::B64 } else { abi::B32 }
}

fn tests_object(test: &Test) -> bool {
    match test.operand {
        Operand::Field(field) => is_object_field(field),
        Operand::Fields(left, right) => is_object_field(left) || is_object_field(right),
        _ => false,
    }
}

fn tests_result(test: &Test) -> bool {
    matches!(test.operand, Operand::Field(Field::Exit | Field::Success))
}

fn is_object_field(field: Field) -> bool {
    matches!(
        field,
        Field::ObjUid
            | Field::ObjGid
            | Field::Inode
            | Field::DevMajor
            | Field::DevMinor
            | Field::FileType
    )
}

/// Access mode bits of open flags; 0 is `O_RDONLY`.
const O_ACCMODE: u32 = 3;

/// The kernel drops the access mode of an open with it; rules are compared with the mode that was asked for.
const O_PATH: u32 = 0o10_000_000;

/// Whether rules can match the syscall only when it opens for writing.
fn opens_only_for_write(syscall: &WireSyscall) -> bool {
    const READ: u8 = 4;
    let opens = abi::FACT_OPEN_FLAGS | abi::FACT_OPEN_HOW;
    syscall.facts & opens != 0
        && syscall.facts & abi::FACT_WATCH_ONLY != 0
        && syscall.watch_perm & READ == 0
}

/// Access modes for which some rule tests a watch. An open with another mode needs no path walk.
fn watch_perm(slots: &[Slot]) -> u8 {
    slots
        .iter()
        .filter(|slot| slot.needs_watch())
        .map(|slot| {
            slot.tests
                .iter()
                .find(|test| test.operand == Operand::OpenPerm)
                .map_or(0xff, |test| match test.op {
                    Op::BitMask | Op::Equal => u8::try_from(test.value & 0xf).unwrap_or(0xff),
                    _ => 0xff,
                })
        })
        .fold(0, |all, perm| all | perm)
}

/// Encodes one test, without `on_false` and verdict.
fn wire_test(test: &Test) -> WireTest {
    let op = wire_op(test.op);
    let wire = |kind, word, value| WireTest {
        value,
        word,
        op,
        kind,
        ..WireTest::default()
    };
    match test.operand {
        Operand::Field(field @ (Field::Gid | Field::Egid)) => {
            wire(abi::TEST_GROUP, event_word(field), test.value)
        }
        Operand::Field(Field::FileType) => wire(abi::TEST_TYPE, 0, test.value),
        Operand::Field(Field::DevMajor) => wire(abi::TEST_MAJOR, 0, test.value),
        Operand::Field(Field::DevMinor) => wire(abi::TEST_MINOR, 0, test.value),
        Operand::Field(field) if is_object_field(field) => {
            wire(abi::TEST_OBJECT, object_word(field), test.value)
        }
        Operand::Field(field) => wire(abi::TEST_WORD, event_word(field), test.value),
        Operand::Fields(left, right) if is_object_field(right) => wire(
            abi::TEST_OBJECTS,
            object_word(right),
            u32::from(event_word(left)),
        ),
        Operand::Fields(left, right) if is_object_field(left) => wire(
            abi::TEST_OBJECTS,
            object_word(left),
            u32::from(event_word(right)),
        ),
        Operand::Fields(left, right) => wire(
            abi::TEST_WORDS,
            event_word(left),
            u32::from(event_word(right)),
        ),
        Operand::AuidSet => wire(abi::TEST_WORD, word!(WireEvent.auid_set), test.value),
        Operand::TaskState => wire(abi::TEST_WORD, word!(WireEvent.rule), test.value),
        Operand::UringEnter => wire(
            abi::TEST_WORD,
            word!(WireEvent.abi),
            wire_abi(Arch(test.value)),
        ),
        Operand::OpenPerm => wire(abi::TEST_WORD, word!(WireEvent.open_perm), test.value),
        Operand::Path => wire(abi::TEST_PATH, 0, test.value),
        Operand::Dir => wire(abi::TEST_DIR, 0, test.value),
        Operand::Exe => wire(abi::TEST_EXE, 0, test.value),
    }
}

fn wire_op(op: Op) -> u8 {
    match op {
        Op::Equal => abi::OP_EQ,
        Op::NotEqual => abi::OP_NE,
        Op::Greater => abi::OP_GT,
        Op::GreaterOrEqual => abi::OP_GE,
        Op::Less => abi::OP_LT,
        Op::LessOrEqual => abi::OP_LE,
        Op::BitMask => abi::OP_ANY,
        Op::BitTest => abi::OP_ALL,
    }
}

fn event_word(field: Field) -> u16 {
    match field {
        Field::Pid => word!(WireEvent.pid),
        Field::Uid => word!(WireEvent.uid),
        Field::Euid => word!(WireEvent.euid),
        Field::Suid => word!(WireEvent.suid),
        Field::Fsuid => word!(WireEvent.fsuid),
        Field::Gid => word!(WireEvent.gid),
        Field::Egid => word!(WireEvent.egid),
        Field::Sgid => word!(WireEvent.sgid),
        Field::Fsgid => word!(WireEvent.fsgid),
        Field::Auid => word!(WireEvent.auid),
        Field::Pers => word!(WireEvent.personality),
        Field::SaddrFam => word!(WireEvent.open_perm),
        Field::Ppid => word!(WireEvent.ppid),
        Field::SessionId => word!(WireEvent.ses),
        Field::Exit => word!(WireEvent.exit),
        Field::Success => word!(WireEvent.success),
        Field::A0 => word!(WireEvent.args),
        Field::A1 => word!(WireEvent.args) + 2,
        Field::A2 => word!(WireEvent.args) + 4,
        Field::A3 => word!(WireEvent.args) + 6,
        // Plans test no other field as a word of the event.
        _ => word!(WireEvent.len),
    }
}

fn object_word(field: Field) -> u16 {
    match field {
        Field::ObjUid => word!(WireObject.inode.uid),
        Field::ObjGid => word!(WireObject.inode.gid),
        _ => word!(WireObject.inode.ino),
    }
}

#[cfg(test)]
mod filter_test;
#[cfg(test)]
mod tests;
