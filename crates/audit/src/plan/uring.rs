//! `io_uring` operations: rules of the `io_uring` list, and exit rules for equivalent syscalls.
//!
//! Rules of the `io_uring` list are evaluated first. If none matches, exit rules for the equivalent syscall
//! decide, on engines that observe operations, unless the user disabled it. The kernel evaluates exit rules for
//! `io_uring_enter` only, before the list; so do engines that see completions.

use crate::ids::{Arch, NativeArch, Syscall};
use crate::rule::{Action, Op, SyscallMask};
use crate::table;

use super::compile::facts;
use super::{Facts, Operand, Plan, Slot, SyscallId, SyscallPlan, Test};

/// An operation of `io_uring`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringOp {
    /// Number.
    pub op: u8,
    /// The kernel's name, in lower case.
    pub name: &'static str,
    /// The equivalent syscall, if any.
    pub syscall: Option<&'static str>,
}

/// All operations that rules can name. Those that kernel audit skips have only a number in rules.
///
/// # Source
/// `enum io_uring_op` in `include/uapi/linux/io_uring.h`, Linux 6.19.
pub const URING_OPS: [UringOp; 64] = [
    plain(0, "nop"),
    equivalent_op(1, "readv"),
    equivalent_op(2, "writev"),
    equivalent_op(3, "fsync"),
    equivalent_op(4, "read_fixed").does("read"),
    equivalent_op(5, "write_fixed").does("write"),
    plain(6, "poll_add"),
    plain(7, "poll_remove"),
    equivalent_op(8, "sync_file_range"),
    equivalent_op(9, "sendmsg"),
    equivalent_op(10, "recvmsg"),
    plain(11, "timeout"),
    plain(12, "timeout_remove"),
    equivalent_op(13, "accept").does("accept4"),
    plain(14, "async_cancel"),
    equivalent_op(16, "connect"),
    equivalent_op(17, "fallocate"),
    equivalent_op(18, "openat"),
    equivalent_op(19, "close"),
    plain(20, "files_update"),
    equivalent_op(21, "statx"),
    equivalent_op(22, "read"),
    equivalent_op(23, "write"),
    equivalent_op(24, "fadvise").does("fadvise64"),
    equivalent_op(25, "madvise"),
    equivalent_op(26, "send").does("sendto"),
    equivalent_op(27, "recv").does("recvfrom"),
    equivalent_op(28, "openat2"),
    equivalent_op(29, "epoll_ctl"),
    equivalent_op(30, "splice"),
    plain(31, "provide_buffers"),
    plain(32, "remove_buffers"),
    equivalent_op(33, "tee"),
    equivalent_op(34, "shutdown"),
    equivalent_op(35, "renameat").does("renameat2"),
    equivalent_op(36, "unlinkat"),
    equivalent_op(37, "mkdirat"),
    equivalent_op(38, "symlinkat"),
    equivalent_op(39, "linkat"),
    plain(40, "msg_ring"),
    equivalent_op(41, "fsetxattr"),
    equivalent_op(42, "setxattr"),
    equivalent_op(43, "fgetxattr"),
    equivalent_op(44, "getxattr"),
    equivalent_op(45, "socket"),
    plain(46, "uring_cmd"),
    equivalent_op(47, "send_zc").does("sendto"),
    equivalent_op(48, "sendmsg_zc").does("sendmsg"),
    equivalent_op(49, "read_multishot").does("read"),
    equivalent_op(50, "waitid"),
    plain(51, "futex_wait"),
    plain(52, "futex_wake"),
    plain(53, "futex_waitv"),
    plain(54, "fixed_fd_install"),
    equivalent_op(55, "ftruncate"),
    equivalent_op(56, "bind"),
    equivalent_op(57, "listen"),
    equivalent_op(58, "recv_zc").does("recvfrom"),
    equivalent_op(59, "epoll_wait"),
    equivalent_op(60, "readv_fixed").does("readv"),
    equivalent_op(61, "writev_fixed").does("writev"),
    equivalent_op(62, "pipe").does("pipe2"),
    plain(63, "nop128"),
    plain(64, "uring_cmd128"),
];

/// Which parts of operations an engine observes, and which rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UringCoverage {
    /// Completions only: exit rules about the `io_uring_enter` in which the operation ran, then rules of the `io_uring`
    /// list, as in the kernel.
    Completions,
    /// Operations: rules of the `io_uring` list.
    OwnRules,
    /// Operations: rules of the `io_uring` list, then those of the exit list about the same syscall.
    SyscallRules,
}

/// An operation without an equivalent syscall.
const fn plain(op: u8, name: &'static str) -> UringOp {
    UringOp {
        op,
        name,
        syscall: None,
    }
}

/// An operation equivalent to the syscall of the same name.
const fn equivalent_op(op: u8, name: &'static str) -> UringOp {
    UringOp {
        syscall: Some(name),
        ..plain(op, name)
    }
}

impl UringOp {
    /// The operation with another equivalent syscall.
    const fn does(self, syscall: &'static str) -> Self {
        Self {
            syscall: Some(syscall),
            ..self
        }
    }

    /// Returns the operation with a number; `None` for those that rules cannot name.
    #[must_use]
    pub fn numbered(op: u8) -> Option<&'static Self> {
        URING_OPS.iter().find(|operation| operation.op == op)
    }

    /// The equivalent 64-bit syscall; [`Syscall::NONE`] if there is none.
    #[must_use]
    pub fn syscall_id(&self, native: NativeArch) -> SyscallId {
        let arch = native.b64();
        let same = self
            .syscall
            .and_then(|name| table::syscall_number(arch, name.as_bytes()));
        SyscallId {
            arch,
            syscall: same.unwrap_or(Syscall::NONE),
        }
    }

    /// Whether kernel audit records it: those that the stock tools can name, and `pipe`.
    #[must_use]
    pub fn is_audited(&self) -> bool {
        table::uring_op_name(self.op.into()).is_some() || self.name == "pipe"
    }

    /// Whether rules for a syscall also cover the operation. Operations have no 32-bit variant.
    #[must_use]
    pub fn stands_for(&self, syscall_id: SyscallId) -> bool {
        let native = NativeArch::with_abi(syscall_id.arch);
        self.is_audited() && native.is_some_and(|native| self.syscall_id(native) == syscall_id)
    }

    /// Whether a rule of the `io_uring` list with this mask covers the operation. A mask of all operations covers
    /// those that kernel audit records.
    #[must_use]
    pub fn is_in(&self, mask: &SyscallMask) -> bool {
        mask.contains(self.op.into()) && (!mask.is_all() || self.is_audited())
    }
}

impl Plan {
    /// Operations that evaluate rules, and their slots.
    pub fn operations(
        &self,
        coverage: UringCoverage,
    ) -> impl Iterator<Item = (&'static UringOp, SyscallPlan)> + use<'_> {
        URING_OPS.iter().filter_map(move |operation| {
            let planned = match coverage {
                UringCoverage::Completions => self.completion(operation),
                UringCoverage::OwnRules => self.operation(operation, false),
                UringCoverage::SyscallRules => self.operation(operation, true),
            };
            Some((operation, planned?))
        })
    }

    /// Slots for the completion of an operation: exit rules about the `io_uring_enter` in which it ran, then rules of the
    /// `io_uring` list. `None` if nothing can be recorded.
    ///
    /// An exit rule that suppresses leaves the decision to those rules of the list that were loaded before it.
    ///
    /// # Source
    /// `__audit_uring_exit` and `audit_filter_rules` (`rule->prio`) in `kernel/auditsc.c`, Linux 6.12.
    pub(super) fn completion(&self, operation: &UringOp) -> Option<SyscallPlan> {
        let own = self.uring_ops.get(&operation.op);
        let own = own.map_or(&[][..], |own| &own.slots);
        let (own_of_task, own): (Vec<&Slot>, Vec<&Slot>) =
            own.iter().partition(|slot| tests_task_state(slot));
        let mut of_task: Vec<Slot> = own_of_task.into_iter().cloned().collect();
        let mut of_enter = Vec::new();
        let enters = self.uring_enters.iter();
        for (&Arch(arch), slots) in enters.filter(|_| operation.is_audited()) {
            let in_enter = Test {
                operand: Operand::UringEnter,
                op: Op::Equal,
                value: arch,
            };
            for slot in slots.iter().filter(|slot| !tests_objects(slot)) {
                let mut tests = vec![in_enter];
                tests.extend(&slot.tests);
                let in_call = |rule: &Slot, more: &[Test]| Slot {
                    rule: rule.rule,
                    action: rule.action,
                    tests: tests.iter().chain(more).copied().collect(),
                };
                if tests_task_state(slot) {
                    of_task.push(in_call(slot, &[]));
                    continue;
                }
                if slot.action == Action::Never {
                    let before = own.iter().filter(|own| own.rule.0 < slot.rule.0);
                    of_enter.extend(before.map(|own| in_call(own, &own.tests)));
                }
                of_enter.push(in_call(slot, &[]));
            }
        }
        of_task.extend(of_enter);
        of_task.extend(own.into_iter().cloned());
        SyscallPlan::of(of_task)
    }

    /// Slots of an operation: rules of the `io_uring` list, then, with `with_syscalls`, exit rules for the equivalent
    /// syscall. `None` if nothing can be recorded.
    #[must_use]
    pub fn operation(&self, operation: &UringOp, with_syscalls: bool) -> Option<SyscallPlan> {
        let own = self.uring_ops.get(&operation.op);
        let syscall_plan = self.syscalls.get(&operation.syscall_id(self.native));
        let syscall_plan = syscall_plan.filter(|_| with_syscalls && operation.is_audited());
        let mut slots = own.map_or_else(Vec::new, |own| own.slots.clone());
        let decided = slots.last().is_some_and(|last| last.tests.is_empty());
        if let Some(syscall_plan) = syscall_plan.filter(|_| !decided) {
            let is_there = |slot: &Slot| tests_task_state(slot) && slots.contains(slot);
            let exit_slots: Vec<Slot> = syscall_plan
                .slots
                .iter()
                .filter(|slot| !is_there(slot))
                .cloned()
                .collect();
            slots.extend(exit_slots);
        }
        SyscallPlan::of(slots)
    }
}

/// Whether a slot tests objects, which completions do not show.
fn tests_objects(slot: &Slot) -> bool {
    facts(std::slice::from_ref(slot)).contains(Facts::OBJECTS)
}

/// Whether a slot tests the state of the task.
fn tests_task_state(slot: &Slot) -> bool {
    let asks = |test: &Test| test.operand == Operand::TaskState;
    slot.tests.iter().any(asks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::planned;

    /// Indices of the rules of an operation, in order.
    #[track_caller]
    fn evaluated(plan: &Plan, name: &str, with_syscalls: bool) -> Vec<u16> {
        let mut operations = URING_OPS.iter();
        let operation = operations.find(|operation| operation.name == name);
        let planned = plan.operation(operation.unwrap(), with_syscalls);
        let slots = planned.map_or_else(Vec::new, |planned| planned.slots);
        slots.iter().map(|slot| slot.rule.0).collect()
    }

    #[test]
    fn own_rules_are_evaluated_first() {
        let plan = planned(&[
            "-a always,exit -F arch=b64 -S openat,close",
            "-a always,io_uring -S openat,openat2 -F uid=0",
            "-a never,io_uring -S openat -F uid=0",
        ]);
        assert_eq!(evaluated(&plan, "openat", true), [1, 2, 0]);
        assert_eq!(evaluated(&plan, "openat", false), [1]);
        assert_eq!(evaluated(&plan, "openat2", true), [1]);
        assert_eq!(evaluated(&plan, "close", true), [0]);
        assert_eq!(evaluated(&plan, "close", false), []);
        assert_eq!(
            plan.syscalls.len(),
            2,
            "syscalls do not evaluate rules of operations"
        );
    }

    #[test]
    fn completions_evaluate_rules_about_their_syscall_first() {
        let plan = planned(&[
            "-a always,io_uring -S openat -F uid=0",
            "-a always,exit -S io_uring_enter -F uid=1000 -F success=1",
            "-a always,exit -F arch=b64 -S openat",
            "-a always,exit -F arch=b64 -S io_uring_enter -F path=/tmp/x",
        ]);
        let completions: Vec<_> = plan.operations(UringCoverage::Completions).collect();
        let of = |name: &str| {
            let found = completions
                .iter()
                .find(|(operation, _)| operation.name == name);
            found.map(|(_, planned)| &planned.slots)
        };
        let enters = |slot: &Slot| {
            slot.tests
                .iter()
                .find(|test| test.operand == Operand::UringEnter)
                .map(|test| Arch(test.value))
        };
        let rules = |slots: &Vec<Slot>| -> Vec<(u16, Option<Arch>)> {
            slots
                .iter()
                .map(|slot| (slot.rule.0, enters(slot)))
                .collect()
        };
        let enter = (1, Some(Arch::X86_64));
        assert_eq!(rules(of("openat").unwrap()), [enter, (0, None)]);
        assert_eq!(rules(of("close").unwrap()), [enter]);
        assert!(of("nop").is_none(), "the kernel's audit skips it");
        let plan = planned(&["-a always,exit -F path=/tmp/x"]);
        let mut operations = plan.operations(UringCoverage::Completions);
        assert!(operations.next().is_none(), "objects are not seen");
    }

    #[test]
    fn exit_rule_that_suppresses_leaves_earlier_list_rules() {
        let plan = planned(&[
            "-a always,io_uring -S openat -F pid=1",
            "-a never,exit -F arch=b64 -S io_uring_enter -F uid=1000",
            "-a always,exit -F arch=b64 -S io_uring_enter",
            "-a always,io_uring -S openat -F pid=2",
        ]);
        let mut completions = plan.operations(UringCoverage::Completions);
        let (_, openat) = completions
            .find(|(operation, _)| operation.name == "openat")
            .unwrap();
        let slots = openat.slots.iter();
        let slots: Vec<_> = slots
            .map(|slot| (slot.rule.0, slot.action, slot.tests.len()))
            .collect();
        let (always, never) = (Action::Always, Action::Never);
        // A test for the syscall, one for each condition.
        let expected = [
            (0, always, 3),
            (1, never, 2),
            (2, always, 1),
            (0, always, 1),
            (3, always, 1),
        ];
        assert_eq!(slots, expected);
    }

    #[test]
    fn state_of_the_task_comes_before_rules_about_the_call() {
        let plan = planned(&[
            "-a always,task -F uid=0",
            "-a always,exit -F arch=b64 -S io_uring_enter",
            "-a always,io_uring -S close",
        ]);
        let completions = plan.operations(UringCoverage::Completions);
        for (operation, planned) in completions {
            let rules: Vec<u16> = planned.slots.iter().map(|slot| slot.rule.0).collect();
            let with_own = operation.name == "close";
            assert_eq!(
                rules,
                if with_own { &[0, 0, 1, 2][..] } else { &[0, 1] },
                "{}",
                operation.name
            );
        }
    }

    #[test]
    fn never_rule_hides_syscall_rules() {
        let plan = planned(&[
            "-a never,io_uring -S openat",
            "-a always,exit -F arch=b64 -S openat",
        ]);
        assert_eq!(evaluated(&plan, "openat", true), []);
        assert_eq!(evaluated(&plan, "openat", false), []);
        assert_eq!(plan.syscalls.len(), 1);
    }

    #[test]
    fn operations_are_sorted_and_their_syscalls_exist() {
        assert!(URING_OPS.is_sorted_by(|one, next| one.op < next.op));
        for operation in &URING_OPS {
            assert_eq!(
                operation.syscall_id(NativeArch::X86_64).syscall == Syscall::NONE,
                operation.syscall.is_none(),
                "{}",
                operation.name
            );
        }
    }

    #[test]
    fn every_named_operation_is_in_the_table() {
        for name in table::uring_op_names() {
            let number = table::uring_op_number(name.as_bytes()).unwrap();
            let known = UringOp::numbered(number.try_into().unwrap());
            assert_eq!(known.unwrap().name, name);
        }
    }

    #[test]
    fn operations_without_kernel_audit_are_selected_by_number() {
        let [nop, read, openat] = [0, 22, 18].map(|op| UringOp::numbered(op).unwrap());
        let all = SyscallMask::all();
        assert!(!nop.is_in(&all) && !read.is_in(&all) && openat.is_in(&all));
        let mut some = SyscallMask::none();
        some.insert(22);
        assert!(read.is_in(&some) && !openat.is_in(&some));
    }

    #[test]
    fn compat_syscalls_have_no_operation() {
        let syscall_id = |arch| SyscallId {
            arch,
            syscall: table::syscall_number(arch, b"openat").unwrap(),
        };
        let openat = UringOp::numbered(18).unwrap();
        assert!(openat.stands_for(syscall_id(Arch::X86_64)));
        assert!(!openat.stands_for(syscall_id(Arch::I386)));
        let read = UringOp::numbered(22).unwrap();
        assert!(
            !read.stands_for(read.syscall_id(NativeArch::X86_64)),
            "the kernel's audit skips reads"
        );
    }
}
