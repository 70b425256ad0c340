//! `io_uring` operations: rules of the `io_uring` list, and exit rules for equivalent syscalls.
//!
//! Rules of the `io_uring` list are evaluated first. If none matches, exit rules for the equivalent syscall
//! decide, on engines that observe operations, unless the user disabled it. The kernel evaluates exit rules for
//! `io_uring_enter` only.

use crate::ids::{Arch, Syscall};
use crate::rule::SyscallMask;
use crate::table;

use super::{Operand, Plan, Slot, SyscallId, SyscallPlan, Test};

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
/// `enum io_uring_op` in `include/uapi/linux/io_uring.h`, Linux 6.12; 64 is newer.
pub const URING_OPS: [UringOp; 58] = [
    plain(0, "nop"),
    like(1, "readv"),
    like(2, "writev"),
    like(3, "fsync"),
    like(4, "read_fixed").does("read"),
    like(5, "write_fixed").does("write"),
    plain(6, "poll_add"),
    plain(7, "poll_remove"),
    like(8, "sync_file_range"),
    like(9, "sendmsg"),
    like(10, "recvmsg"),
    plain(11, "timeout"),
    plain(12, "timeout_remove"),
    like(13, "accept").does("accept4"),
    plain(14, "async_cancel"),
    like(16, "connect"),
    like(17, "fallocate"),
    like(18, "openat"),
    like(19, "close"),
    plain(20, "files_update"),
    like(21, "statx"),
    like(22, "read"),
    like(23, "write"),
    like(24, "fadvise").does("fadvise64"),
    like(25, "madvise"),
    like(26, "send").does("sendto"),
    like(27, "recv").does("recvfrom"),
    like(28, "openat2"),
    like(29, "epoll_ctl"),
    like(30, "splice"),
    plain(31, "provide_buffers"),
    plain(32, "remove_buffers"),
    like(33, "tee"),
    like(34, "shutdown"),
    like(35, "renameat").does("renameat2"),
    like(36, "unlinkat"),
    like(37, "mkdirat"),
    like(38, "symlinkat"),
    like(39, "linkat"),
    plain(40, "msg_ring"),
    like(41, "fsetxattr"),
    like(42, "setxattr"),
    like(43, "fgetxattr"),
    like(44, "getxattr"),
    like(45, "socket"),
    plain(46, "uring_cmd"),
    like(47, "send_zc").does("sendto"),
    like(48, "sendmsg_zc").does("sendmsg"),
    like(49, "read_multishot").does("read"),
    like(50, "waitid"),
    plain(51, "futex_wait"),
    plain(52, "futex_wake"),
    plain(53, "futex_waitv"),
    plain(54, "fixed_fd_install"),
    like(55, "ftruncate"),
    like(56, "bind"),
    like(57, "listen"),
    plain(64, "uring_cmd128"),
];

/// Which parts of operations an engine observes, and which rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UringCoverage {
    /// Completions only: rules of the `io_uring` list.
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
const fn like(op: u8, name: &'static str) -> UringOp {
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

    /// The equivalent syscall; [`Syscall::NONE`] if there is none.
    #[must_use]
    pub fn call(&self) -> SyscallId {
        let arch = Arch::X86_64;
        let same = self
            .syscall
            .and_then(|name| table::syscall_number(arch, name.as_bytes()));
        SyscallId {
            arch,
            syscall: same.unwrap_or(Syscall::NONE),
        }
    }

    /// Whether kernel audit records it.
    #[must_use]
    pub fn is_audited(&self) -> bool {
        table::uring_op_name(self.op.into()).is_some()
    }

    /// Whether rules for a syscall also cover the operation. Operations have no 32-bit variant.
    #[must_use]
    pub fn stands_for(&self, call: SyscallId) -> bool {
        self.is_audited() && self.call() == call
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
        let with_calls = coverage == UringCoverage::SyscallRules;
        URING_OPS.iter().filter_map(move |operation| {
            let planned = self.operation(operation, with_calls)?;
            Some((operation, planned))
        })
    }

    /// Slots of an operation: rules of the `io_uring` list, then, with `with_calls`, exit rules for the equivalent
    /// syscall. `None` if nothing can be recorded.
    #[must_use]
    pub fn operation(&self, operation: &UringOp, with_calls: bool) -> Option<SyscallPlan> {
        let own = self.uring_ops.get(&operation.op);
        let call = self.syscalls.get(&operation.call());
        let call = call.filter(|_| with_calls && operation.is_audited());
        let mut slots = own.map_or_else(Vec::new, |own| own.slots.clone());
        let decided = slots.last().is_some_and(|last| last.tests.is_empty());
        if let Some(call) = call.filter(|_| !decided) {
            let is_there = |slot: &Slot| tests_task_state(slot) && slots.contains(slot);
            let behind: Vec<Slot> = call
                .slots
                .iter()
                .filter(|slot| !is_there(slot))
                .cloned()
                .collect();
            slots.extend(behind);
        }
        SyscallPlan::of(slots)
    }
}

/// Whether a slot tests the mark of the task.
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
    fn evaluated(plan: &Plan, name: &str, with_calls: bool) -> Vec<u16> {
        let mut operations = URING_OPS.iter();
        let operation = operations.find(|operation| operation.name == name);
        let planned = plan.operation(operation.unwrap(), with_calls);
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
                operation.call().syscall == Syscall::NONE,
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
        let call = |arch| SyscallId {
            arch,
            syscall: table::syscall_number(arch, b"openat").unwrap(),
        };
        let openat = UringOp::numbered(18).unwrap();
        assert!(openat.stands_for(call(Arch::X86_64)));
        assert!(!openat.stands_for(call(Arch::I386)));
        let read = UringOp::numbered(22).unwrap();
        assert!(
            !read.stands_for(read.call()),
            "the kernel's audit skips reads"
        );
    }
}
