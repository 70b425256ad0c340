//! The task list: what is decided about a task when it is made, for its life.
//!
//! The kernel keeps the decision with the task; so do the engines, as a [`TaskState`]. It holds as long as a rule
//! of the list is loaded that marks so: the kernel's holds even when that rule is gone.

use crate::rule::{Action, Rule};

/// What is kept with a task that a rule of the task list is about.
///
/// It is the same for rules that mean the same, so that a task keeps its meaning when the rules around
/// that of its mark are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskState(pub u32);

impl TaskState {
    /// The task is never audited.
    pub const NEVER: Self = Self(1);

    /// Every call of the task is recorded, with the keys of the rule. Of two rules whose keys, by a rare
    /// chance, give one number, the first gives its keys.
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
    fn rules_that_mean_the_same_mark_the_same() {
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
