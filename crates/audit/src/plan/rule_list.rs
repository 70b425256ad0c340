//! The rule list: the rules that are loaded after the commands of rule files.

use bstr::{BStr, ByteSlice as _};

use crate::ids::NativeArch;
use crate::rule::{Command, Diagnostic, Insertion, Rule, RuleLine, Severity};

use super::syscall_class;

/// A loaded rule and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleEntry {
    /// The rule.
    pub rule: Rule,
    /// Index of the source file, given by the caller.
    pub source: usize,
    /// Line in that file.
    pub line: u32,
}

/// Rules of all lists in evaluation order.
///
/// One sequence holds all lists: their order among each other matters for `io_uring` operations only.
#[derive(Clone, Debug, Default)]
pub struct RuleList {
    rules: Vec<RuleEntry>,
    /// Architecture whose syscalls replace classes.
    native: NativeArch,
}

/// A command that the kernel would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleListError {
    /// An equal rule is already loaded, at this index.
    Exists(usize),
    /// No equal rule is loaded.
    Missing,
}

impl RuleList {
    /// Applies the lines of one file in order. Returns the commands that the kernel would refuse: adding a loaded
    /// rule, or deleting a rule that is not loaded.
    pub fn load(
        &mut self,
        source: usize,
        lines: impl IntoIterator<Item = RuleLine>,
    ) -> Vec<Diagnostic> {
        lines
            .into_iter()
            .filter_map(|line| {
                let RuleLine {
                    number,
                    span,
                    command,
                } = line;
                let refused = self.apply(source, number, command).err()?;
                let (code, message, advice) = self.describe(refused, source);
                Some(Diagnostic {
                    severity: Severity::Warning,
                    code,
                    line: number,
                    column: 1,
                    span,
                    message,
                    advice: advice.into(),
                })
            })
            .collect()
    }

    /// The rules, in evaluation order.
    #[must_use]
    pub fn rules(&self) -> &[RuleEntry] {
        &self.rules
    }

    /// Appends a rule even if an equal one is loaded: a prepended rule may equal another.
    pub fn push(&mut self, source: usize, line: u32, rule: Rule) {
        self.rules.push(RuleEntry { rule, source, line });
    }

    /// Removes rules by a predicate.
    pub fn remove(&mut self, is_wanted: impl Fn(&RuleEntry) -> bool) {
        self.rules.retain(|listed| !is_wanted(listed));
    }

    /// The rules, in evaluation order, for [`super::Plan::compile`].
    #[must_use]
    pub fn into_rules(self) -> Vec<RuleEntry> {
        self.rules
    }

    /// Applies one command. Commands other than for rules have no effect.
    ///
    /// # Errors
    /// A command that the kernel would refuse.
    pub fn apply(
        &mut self,
        source: usize,
        line: u32,
        command: Command,
    ) -> Result<(), RuleListError> {
        match command {
            Command::Add {
                mut rule,
                insertion,
            } if syscall_class::has_class(&rule.syscalls) => {
                syscall_class::expand(&mut rule.syscalls, self.native);
                return self.apply(source, line, Command::Add { rule, insertion });
            }
            Command::Delete(mut rule) if syscall_class::has_class(&rule.syscalls) => {
                syscall_class::expand(&mut rule.syscalls, self.native);
                return self.apply(source, line, Command::Delete(rule));
            }
            // The kernel also compares the prepend flag, which no loaded rule has, so a prepended
            // rule never equals a loaded one: `audit_compare_rule` in `kernel/auditfilter.c`,
            // Linux 6.12.
            Command::Add {
                rule,
                insertion: Insertion::Prepend,
            } => self.rules.insert(0, RuleEntry { rule, source, line }),
            Command::Add {
                rule,
                insertion: Insertion::Append,
            } => match self.find(&rule) {
                Some(equal) => return Err(RuleListError::Exists(equal)),
                None => self.rules.push(RuleEntry { rule, source, line }),
            },
            Command::Delete(rule) => match self.find(&rule) {
                Some(index) => drop(self.rules.remove(index)),
                None => return Err(RuleListError::Missing),
            },
            Command::DeleteAll(None) => self.rules.clear(),
            Command::DeleteAll(Some(key)) => {
                self.rules
                    .retain(|listed| !has_key(&listed.rule, key.as_bstr()));
            }
            _ => {}
        }
        Ok(())
    }

    /// The rules as `auditctl -l` lists them: list by list, in evaluation order.
    ///
    /// # Source
    /// `audit_list_rules()` in `kernel/auditfilter.c`, Linux 6.12.
    pub fn listed(&self) -> impl Iterator<Item = &Rule> {
        let mut rules: Vec<&Rule> = self.rules.iter().map(|listed| &listed.rule).collect();
        rules.sort_by_key(|rule| rule.list);
        rules.into_iter()
    }

    fn describe(
        &self,
        refused: RuleListError,
        source: usize,
    ) -> (&'static str, String, &'static str) {
        match refused {
            RuleListError::Exists(equal) => {
                let equal = self.rules.get(equal);
                let place = equal.map_or_else(String::new, |equal| equal.place(source));
                (
                    "rule-exists",
                    format!("this rule is already loaded, from {place}"),
                    "remove one of the two: `auditctl -R` stops here unless `-i` or `-c` precedes",
                )
            }
            RuleListError::Missing => (
                "no-such-rule",
                "no loaded rule equals the rule to delete".into(),
                "write the fields, values, perms and keys of the rule to delete",
            ),
        }
    }

    fn find(&self, rule: &Rule) -> Option<usize> {
        self.rules.iter().position(|listed| listed.rule == *rule)
    }
}

impl RuleEntry {
    fn place(&self, from: usize) -> String {
        if self.source == from {
            format!("line {}", self.line)
        } else {
            format!("line {} of another file", self.line)
        }
    }
}

/// Whether the joined keys of a rule contain `key` anywhere.
///
/// # Source
/// `key_match` of `auditctl`, which does not compare whole keys.
fn has_key(rule: &Rule, key: &BStr) -> bool {
    bstr::join([1], &rule.keys).contains_str(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{Action, List, SyscallMask};

    fn rule(number: u32, key: &str) -> Rule {
        let mut syscalls = SyscallMask::none();
        syscalls.insert(number);
        let (list, action) = (List::Exit, Action::Always);
        Rule {
            list,
            action,
            syscalls,
            fields: Vec::new(),
            keys: vec![key.into()],
        }
    }

    fn add(number: u32, key: &str) -> Command {
        Command::Add {
            rule: rule(number, key),
            insertion: Insertion::Append,
        }
    }

    fn lines(commands: Vec<Command>) -> Vec<RuleLine> {
        let line = |(number, command)| RuleLine {
            number,
            span: 0..1,
            command,
        };
        (1..).zip(commands).map(line).collect()
    }

    /// Lines of the loaded rules, and the findings with their lines.
    fn load(commands: Vec<Command>) -> (Vec<u32>, Vec<(u32, &'static str)>) {
        let mut list = RuleList::default();
        let findings = list.load(0, lines(commands));
        let findings = findings
            .iter()
            .map(|finding| (finding.line, finding.code))
            .collect();
        (
            list.rules().iter().map(|listed| listed.line).collect(),
            findings,
        )
    }

    #[test]
    fn rules_are_appended_or_prepended() {
        let front = Command::Add {
            rule: rule(3, "c"),
            insertion: Insertion::Prepend,
        };
        assert_eq!(
            load(vec![add(1, "a"), add(2, "b"), front]),
            (vec![3, 1, 2], vec![])
        );
    }

    #[test]
    fn rules_are_listed_list_by_list() {
        let on = |list, key: &str| Command::Add {
            rule: Rule {
                list,
                ..rule(1, key)
            },
            insertion: Insertion::Append,
        };
        let mut loaded = RuleList::default();
        for command in [
            on(List::Exit, "a"),
            on(List::Exclude, "b"),
            on(List::Exit, "c"),
            on(List::User, "d"),
            on(List::Task, "e"),
        ] {
            loaded.apply(0, 1, command).unwrap();
        }
        let keys: Vec<_> = loaded.listed().map(|rule| rule.keys[0].clone()).collect();
        assert_eq!(keys, ["d", "e", "a", "c", "b"]);
    }

    #[test]
    fn equal_rule_is_loaded_once() {
        let commands = vec![add(1, "a"), add(1, "b"), add(1, "a")];
        assert_eq!(load(commands), (vec![1, 2], vec![(3, "rule-exists")]));
    }

    #[test]
    fn equal_rule_can_be_prepended() {
        let front = Command::Add {
            rule: rule(1, "a"),
            insertion: Insertion::Prepend,
        };
        assert_eq!(load(vec![add(1, "a"), front]), (vec![2, 1], vec![]));
    }

    #[test]
    fn equal_rule_is_deleted() {
        let commands = vec![
            add(1, "a"),
            Command::Delete(rule(1, "b")),
            Command::Delete(rule(1, "a")),
        ];
        assert_eq!(load(commands), (vec![], vec![(2, "no-such-rule")]));
    }

    #[test]
    fn rules_are_deleted_by_any_part_of_their_key() {
        let by_key = Command::DeleteAll(Some("tim".into()));
        assert_eq!(load(vec![add(1, "time"), add(2, "mount"), by_key]).0, [2]);
        assert_eq!(
            load(vec![add(1, "time"), Command::DeleteAll(None), add(2, "b")]).0,
            [3]
        );
    }

    #[test]
    fn finding_names_line_of_other_rule() {
        let mut list = RuleList::default();
        assert_eq!(list.load(0, lines(vec![add(1, "a")])), []);
        let findings = list.load(1, lines(vec![add(2, "b"), add(1, "a"), add(2, "b")]));
        assert!(findings[0].message.ends_with("line 1 of another file"));
        assert!(findings[1].message.ends_with("line 1"));
        assert_eq!(list.into_rules().len(), 2);
    }
}
