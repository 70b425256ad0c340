//! The filesystem list: names on these file systems are not collected.
//!
//! A name on such a file system has no object: its `PATH` record has no inode, and no condition on objects
//! matches it.

use crate::rule::{Action, Field, Op, Value};

use super::rule_list::RuleEntry;

/// The rules of the filesystem list, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesystemList(Vec<RuleEntry>);

/// Condition on the file systems that are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FstypeCondition {
    /// A magic number.
    pub magic: u32,
    /// Whether file systems with another magic number are skipped, rather than those with this one.
    pub negated: bool,
}

impl FilesystemList {
    /// Maximum number of conditions.
    pub const MOST: usize = 16;

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[RuleEntry] {
        &self.0
    }

    /// Adds a rule at the end.
    ///
    /// # Errors
    /// The reason why the rule is not supported.
    pub(super) fn push(&mut self, listed: RuleEntry) -> Result<(), String> {
        let is_known = listed.rule.fields.iter().all(|test| {
            let equality = matches!(test.op, Op::Equal | Op::NotEqual);
            test.field == Field::FsType && equality && matches!(test.value, Value::Number(_))
        });
        if !is_known {
            return Err("the filesystem list takes `fstype` with `=` and `!=` only".into());
        }
        self.0.push(listed);
        if self.conditions().count() > Self::MOST {
            self.0.pop();
            let most = Self::MOST;
            return Err(format!(
                "the filesystem list holds at most {most} conditions of `never` rules"
            ));
        }
        Ok(())
    }

    /// Conditions that skip file systems. Rules with the action always skip none. One matching condition is enough.
    ///
    /// # Source
    /// `__audit_inode` and `__audit_inode_child` in `kernel/auditsc.c`, Linux 6.12.
    pub fn conditions(&self) -> impl Iterator<Item = FstypeCondition> {
        let rules = self.0.iter().map(|listed| &listed.rule);
        let never = rules.filter(|rule| rule.action == Action::Never);
        never
            .flat_map(|rule| &rule.fields)
            .filter_map(|test| match test.value {
                Value::Number(magic) => Some(FstypeCondition {
                    magic,
                    negated: test.op == Op::NotEqual,
                }),
                _ => None,
            })
    }

    /// Whether names on a file system with this magic number are skipped.
    #[must_use]
    pub fn excludes(&self, magic: u32) -> bool {
        let mut conditions = self.conditions();
        conditions.any(|left_out| (left_out.magic == magic) != left_out.negated)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::plan::eval::other_lists::path_collected;
    use crate::rule::{FieldTest, List, Rule, SyscallMask};

    fn rule(action: Action, conditions: &[(Op, u32)]) -> RuleEntry {
        let condition = |&(op, magic)| FieldTest {
            field: Field::FsType,
            op,
            value: Value::Number(magic),
        };
        let rule = Rule {
            list: List::Filesystem,
            action,
            syscalls: SyscallMask::none(),
            fields: conditions.iter().map(condition).collect(),
            keys: Vec::new(),
        };
        let (source, line) = (0, 1);
        RuleEntry { rule, source, line }
    }

    proptest! {
        #[test]
        fn excluded_file_systems_are_not_collected(
            rules in proptest::collection::vec(
                (
                    select(vec![Action::Never, Action::Always]),
                    proptest::collection::vec((select(vec![Op::Equal, Op::NotEqual]), 0..4_u32), 0..3),
                ),
                0..4,
            ),
            magic in 0..4_u32,
        ) {
            let mut list = FilesystemList::default();
            for (action, conditions) in &rules {
                list.push(rule(*action, conditions)).unwrap();
            }
            let rules: Vec<Rule> = list.rules().iter().map(|listed| listed.rule.clone()).collect();
            prop_assert_eq!(list.excludes(magic), !path_collected(&rules, magic));
        }
    }

    #[test]
    fn conditions_are_limited() {
        let mut list = FilesystemList::default();
        for magic in 0..16 {
            assert_eq!(
                list.push(rule(Action::Never, &[(Op::Equal, magic)])),
                Ok(())
            );
        }
        assert!(list.push(rule(Action::Never, &[(Op::Equal, 16)])).is_err());
        assert_eq!(list.push(rule(Action::Always, &[(Op::Equal, 16)])), Ok(()));
        assert!(list.excludes(15) && !list.excludes(16));
    }

    #[test]
    fn other_conditions_are_refused() {
        let mut list = FilesystemList::default();
        assert!(list.push(rule(Action::Never, &[(Op::Greater, 1)])).is_err());
        assert_eq!(list.rules(), []);
    }
}
