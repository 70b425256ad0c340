//! The task list: decides about a task at its creation, for its lifetime.
//!
//! The kernel and the engines store the decision with the task; the engines as a [`TaskState`]. In tollgate it is
//! valid while a rule with the same state is loaded. In the kernel it is valid even after the rule is deleted.

use crate::rule::{Action, Rule};

/// State of a task that a rule of the task list matched.
///
/// Equivalent rules set the same state, so a task keeps its state when other rules are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskState(pub u32);

impl TaskState {
    /// No syscall of the task is recorded.
    pub const NEVER: Self = Self(1);

    /// Every syscall of the task is recorded with the keys of the rule. If the keys of two rules have the same hash,
    /// the first rule provides the keys.
    #[must_use]
    pub fn of(rule: &Rule) -> Self {
        const ALWAYS: u32 = 1 << 30;
        if rule.action == Action::Never {
            return Self::NEVER;
        }
        // FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv, 2012.
        let keys = bstr::join([1], &rule.keys);
        let hash = keys.iter().fold(0x811c_9dc5_u32, |hash, &byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        Self(ALWAYS | (hash % ALWAYS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{List, SyscallMask};

    #[test]
    fn rules_with_equal_action_and_keys_set_one_state() {
        let rule = |action, key: &str| Rule {
            list: List::Task,
            action,
            syscalls: SyscallMask::none(),
            fields: Vec::new(),
            keys: vec![key.into()],
        };
        let always = |key| TaskState::of(&rule(Action::Always, key));
        assert_eq!(always("a"), always("a"));
        assert_ne!(always("a"), always("b"));
        assert_ne!(always(""), TaskState::NEVER);
        assert_eq!(TaskState::of(&rule(Action::Never, "a")), TaskState::NEVER);
    }
}
