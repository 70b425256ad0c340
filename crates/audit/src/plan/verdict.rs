//! What a plan says about one event: the plan's own reading, held against [`eval::first_match`].
//!
//! [`eval::first_match`]: super::eval::first_match

use crate::ids::Auid;
use crate::rule::{Action, Field, Op};

use super::eval::{Observed, ObservedObject, compare, is_at_or_below};
use super::fork::Mark;
use super::uring::Operation;
use super::{Call, CallPlan, Facts, Plan, RuleId, Slot, Subject, Test, WatchId};

/// What the rules decide about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An `always` rule matched first: the event is recorded with its key.
    Record(RuleId),
    /// A `never` rule matched first.
    Suppress(RuleId),
    /// No rule that is left in the plan matched. The plan drops `never` rules after which nothing
    /// is recorded anyway, so that their events come here too.
    NoMatch,
}

impl Plan {
    /// Reads the slots of the call in order; the first whose tests all hold decides.
    #[must_use]
    pub fn evaluate(&self, observed: &Observed<'_>) -> Verdict {
        let call = Call {
            arch: observed.arch,
            syscall: observed.syscall,
        };
        self.verdict(self.calls.get(&call), observed)
    }

    /// The same about an operation of `io_uring`; the call of `observed` is the one that does the same.
    #[must_use]
    pub fn evaluate_operation(
        &self,
        operation: &Operation,
        observed: &Observed<'_>,
        with_calls: bool,
    ) -> Verdict {
        let planned = self.operation(operation, with_calls);
        self.verdict(planned.as_ref(), observed)
    }

    fn verdict(&self, planned: Option<&CallPlan>, observed: &Observed<'_>) -> Verdict {
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

    /// What is kept with a new task; `new` is the task, in no call.
    #[must_use]
    pub fn mark(&self, new: &Observed<'_>) -> Option<Mark> {
        let slot = self.forks.iter().find(|slot| self.matches(slot, new))?;
        let planned = self.rules.get(usize::from(slot.rule.0))?;
        Some(Mark::of(&planned.rule))
    }

    /// Leaves the lists task and `io_uring` out, for an engine that sees neither tasks being made nor
    /// operations.
    pub fn keep_calls_only(&mut self) {
        self.forks.clear();
        self.operations.clear();
        self.calls.retain(|_, planned| {
            let is_marked =
                |slot: &Slot| slot.tests.iter().any(|test| test.subject == Subject::Mark);
            planned.slots.retain(|slot| !is_marked(slot));
            planned.facts.remove(Facts::MARK);
            !planned.slots.is_empty()
        });
    }

    fn matches(&self, slot: &Slot, observed: &Observed<'_>) -> bool {
        let all_hold = |one| {
            slot.tests
                .iter()
                .all(|test| self.holds(test, observed, one))
        };
        if slot.is_about_one_object() {
            observed.objects.iter().any(|object| all_hold(Some(object)))
        } else {
            all_hold(None)
        }
    }

    fn holds(
        &self,
        test: &Test,
        observed: &Observed<'_>,
        one: Option<&ObservedObject<'_>>,
    ) -> bool {
        match test.subject {
            Subject::Field(field) => observed.compare(field, test.op, test.value, one),
            Subject::Fields(left, right) => observed.compare_fields(left, test.op, right),
            Subject::AuidSet => compare(
                test.op,
                u32::from(observed.task.auid != Auid::UNSET),
                test.value,
            ),
            Subject::Mark => observed.mark.map(|mark| mark.0) == Some(test.value),
            Subject::OpenPerm => compare(test.op, observed.open_perm(), test.value),
            Subject::Path => one.is_some_and(|object| object.is(self.watch(test))),
            Subject::Dir => {
                let directory = self.watch(test);
                observed
                    .objects
                    .iter()
                    .any(|object| is_at_or_below(object.path, directory))
            }
            Subject::Exe => (observed.task.exe == Some(self.watch(test))) == (test.op == Op::Equal),
        }
    }

    fn watch(&self, test: &Test) -> &[u8] {
        WatchId::of(test)
            .and_then(|id| self.watches.get(usize::from(id.0)))
            .map_or(b"", |watch| watch)
    }
}

impl Slot {
    /// Whether the tests of objects must all hold for the same object; see [`Slot`].
    #[must_use]
    pub fn is_about_one_object(&self) -> bool {
        self.tests.iter().any(|test| {
            test.op == Op::Equal
                && matches!(test.subject, Subject::Path | Subject::Field(Field::Inode))
        })
    }
}

impl WatchId {
    /// The watch that a test of `path`, `dir` or `exe` refers to; `None` for other tests.
    #[must_use]
    pub fn of(test: &Test) -> Option<Self> {
        match test.subject {
            Subject::Path | Subject::Dir | Subject::Exe => u16::try_from(test.value).ok().map(Self),
            _ => None,
        }
    }
}
