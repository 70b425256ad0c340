//! Evaluates a plan for one event. Tests compare the result with [`eval::first_match`].
//!
//! [`eval::first_match`]: super::eval::first_match

use crate::ids::{Arch, Auid};
use crate::rule::{Action, Field, Op};

use super::eval::{EventFacts, ObjectFacts, compare, is_at_or_below};
use super::task_list::TaskState;
use super::uring::UringOp;
use super::{Facts, Operand, Plan, RuleId, Slot, SyscallId, SyscallPlan, Test, WatchId};

/// Decision about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An `always` rule matched first: the event is recorded with its key.
    Record(RuleId),
    /// A `never` rule matched first.
    Suppress(RuleId),
    /// No rule of the plan matched. The plan drops `never` rules without a later `always` rule, so this includes
    /// their events.
    NoMatch,
}

impl Plan {
    /// Evaluates the slots of the syscall in order. The first one whose tests all hold decides.
    #[must_use]
    pub fn evaluate(&self, observed: &EventFacts<'_>) -> Verdict {
        let syscall_id = SyscallId {
            arch: observed.arch,
            syscall: observed.syscall,
        };
        self.verdict(self.syscalls.get(&syscall_id), observed)
    }

    /// As [`Plan::evaluate`], for an `io_uring` operation. `observed` has the equivalent syscall.
    #[must_use]
    pub fn evaluate_operation(
        &self,
        operation: &UringOp,
        observed: &EventFacts<'_>,
        with_syscalls: bool,
    ) -> Verdict {
        let planned = self.operation(operation, with_syscalls);
        self.verdict(planned.as_ref(), observed)
    }

    /// As [`Plan::evaluate`], for an `io_uring` operation of which only the completion is seen.
    #[must_use]
    pub fn evaluate_completion(&self, operation: &UringOp, observed: &EventFacts<'_>) -> Verdict {
        let planned = self.completion(operation);
        self.verdict(planned.as_ref(), observed)
    }

    fn verdict(&self, planned: Option<&SyscallPlan>, observed: &EventFacts<'_>) -> Verdict {
        planned
            .and_then(|planned| {
                planned
                    .slots
                    .iter()
                    .find(|slot| self.matches(slot, observed))
            })
            .map_or(Verdict::NoMatch, |slot| match slot.action {
                Action::Always => Verdict::Record(slot.rule),
                Action::Never => Verdict::Suppress(slot.rule),
            })
    }

    /// Returns the state of a new task. `new` is the task outside a syscall.
    #[must_use]
    pub fn task_state(&self, new: &EventFacts<'_>) -> Option<TaskState> {
        let slot = self
            .task_slots
            .iter()
            .find(|slot| self.matches(slot, new))?;
        let planned = self.rules.get(usize::from(slot.rule.0))?;
        Some(TaskState::of(&planned.rule))
    }

    /// Removes the lists task and `io_uring`, for an engine that observes neither task creation nor operations.
    pub fn retain_exit_list(&mut self) {
        self.task_slots.clear();
        self.uring_ops.clear();
        self.uring_enters.clear();
        self.syscalls.retain(|_, planned| {
            let tests_task_state = |slot: &Slot| {
                slot.tests
                    .iter()
                    .any(|test| test.operand == Operand::TaskState)
            };
            planned.slots.retain(|slot| !tests_task_state(slot));
            planned.facts.remove(Facts::TASK_STATE);
            !planned.slots.is_empty()
        });
    }

    fn matches(&self, slot: &Slot, observed: &EventFacts<'_>) -> bool {
        let all_hold = |one| {
            slot.tests
                .iter()
                .all(|test| self.holds(test, observed, one))
        };
        if slot.tests_one_object() {
            observed.objects.iter().any(|object| all_hold(Some(object)))
        } else {
            all_hold(None)
        }
    }

    fn holds(&self, test: &Test, observed: &EventFacts<'_>, one: Option<&ObjectFacts<'_>>) -> bool {
        match test.operand {
            Operand::Field(field) => observed.compare(field, test.op, test.value, one),
            Operand::Fields(left, right) => observed.compare_fields(left, test.op, right),
            Operand::AuidSet => compare(
                test.op,
                u32::from(observed.task.auid != Auid::UNSET),
                test.value,
            ),
            Operand::TaskState => {
                observed.task_state.map(|task_state| task_state.0) == Some(test.value)
            }
            Operand::UringEnter => observed.uring_enter.map(|Arch(arch)| arch) == Some(test.value),
            Operand::OpenPerm => compare(test.op, observed.open_perm(), test.value),
            Operand::Path => one.is_some_and(|object| object.is(self.watch(test))),
            Operand::Dir => {
                let directory = self.watch(test);
                observed
                    .objects
                    .iter()
                    .any(|object| is_at_or_below(object.path, directory))
            }
            Operand::Exe => (observed.task.exe == Some(self.watch(test))) == (test.op == Op::Equal),
        }
    }

    fn watch(&self, test: &Test) -> &[u8] {
        WatchId::of(test)
            .and_then(|id| self.watches.get(usize::from(id.0)))
            .map_or(b"", |watch| watch)
    }
}

impl Slot {
    /// Whether all tests of objects must hold for the same object; see [`Slot`].
    #[must_use]
    pub fn tests_one_object(&self) -> bool {
        self.tests.iter().any(|test| {
            test.op == Op::Equal
                && matches!(test.operand, Operand::Path | Operand::Field(Field::Inode))
        })
    }
}

impl WatchId {
    /// The watch of a `path`, `dir` or `exe` test; `None` for other tests.
    #[must_use]
    pub fn of(test: &Test) -> Option<Self> {
        match test.operand {
            Operand::Path | Operand::Dir | Operand::Exe => u16::try_from(test.value).ok().map(Self),
            _ => None,
        }
    }
}
