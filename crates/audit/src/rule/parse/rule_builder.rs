//! Builds a rule from its options, in order: list, conditions; arch, syscalls; key last.

use std::ops::Range;

use super::super::diagnostic::{Findings, escape_text};
use super::super::lexer::Word;
use super::super::{
    Action, Command, Dialect, Field, FieldTest, Insertion, List, Op, Rule, RuleHost, SyscallMask,
    Value,
};
use super::field_tests::{self, FieldTests};
use super::keys::{self, Keys};
use super::option::{Flag, ParsedOption};
use super::rule_target::{self, Operation, RuleTarget};
use super::{condition, list, perm_syscalls, syscalls, value, watch};
use crate::ids::Arch;
use crate::table;

/// Message of `auditctl` for a key without anything to label.
const KEY_DEPENDS: &[u8] = b"Key field needs a watch, syscall or exe path given prior to it";

pub(in crate::rule) struct RuleBuilder<'h> {
    host: &'h dyn RuleHost,
    dialect: Dialect,
    target: Option<RuleTarget>,
    /// Whether a condition without a list was reported.
    missing_list_reported: bool,
    fields: FieldTests,
    mask: Option<SyscallMask>,
    /// The first `-S` before the list is known.
    early_syscall: Option<Word>,
    /// Whether `-S`, `-w` or `perm` set the mask. An arch after that is an error.
    has_syscalls: bool,
    /// Whether `perm` adds syscalls to the mask (`auditctl` 4).
    add_perm_syscalls: bool,
    /// Arch of syscall names: stated by the rule, or assumed by its first `-S`.
    arch: Option<Arch>,
    keys: Keys,
    /// Whether the rule has something that a key may label.
    key_allowed: bool,
    /// Whether the line is skipped without an error.
    skipped: bool,
}

impl<'h> RuleBuilder<'h> {
    pub(in crate::rule) fn new(host: &'h dyn RuleHost, dialect: Dialect) -> Self {
        Self {
            host,
            dialect,
            target: None,
            missing_list_reported: false,
            fields: FieldTests::default(),
            mask: None,
            early_syscall: None,
            has_syscalls: false,
            add_perm_syscalls: dialect == Dialect::V4,
            arch: None,
            keys: Keys::default(),
            key_allowed: false,
            skipped: false,
        }
    }

    /// Whether the line is skipped without an error.
    pub(in crate::rule) fn is_skipped(&self) -> bool {
        self.skipped
    }

    /// Whether the rule has a list.
    pub(in crate::rule) fn has_rule(&self) -> bool {
        self.target.is_some()
    }

    /// Whether the mask is set.
    pub(in crate::rule) fn has_syscalls(&self) -> bool {
        self.has_syscalls
    }

    pub(in crate::rule) fn take(&mut self, given: &ParsedOption, findings: &mut Findings<'_>) {
        let word = &given.value;
        match given.flag {
            Flag::Append => self.target(given, Operation::Add(Insertion::Append), findings),
            Flag::Insert => self.target(given, Operation::Add(Insertion::Prepend), findings),
            Flag::Delete => self.target(given, Operation::Delete, findings),
            Flag::Watch => self.watch(given, Operation::Add(Insertion::Append), findings),
            Flag::Unwatch => self.watch(given, Operation::Delete, findings),
            Flag::Perm => self.perms(given, findings),
            Flag::Key => self.key_option(given, findings),
            Flag::Syscall => self.syscalls(word, findings),
            Flag::Field => self.condition(given, findings),
            Flag::Compare => self.comparison(given, findings),
            _ => findings.error(
                "two-commands",
                &given.name.span,
                format!("`{}` is not part of a rule", escape_text(&given.name.text)),
                "put it on a line of its own",
            ),
        }
    }

    /// Returns the command, if its list is known.
    pub(in crate::rule) fn finish(
        mut self,
        whole: &Range<usize>,
        findings: &mut Findings<'_>,
    ) -> Option<Command> {
        if self.skipped {
            return None;
        }
        if self.target.is_none() && !self.missing_list_reported && !findings.failed() {
            findings.error(
                "missing-list",
                whole,
                "the rule names no list",
                "begin with `-a always,exit`, or with `-w PATH`",
            );
        }
        self.check_keys(findings);
        let RuleTarget {
            operation,
            list,
            action,
        } = self.target?;
        let mask = self.mask.take().unwrap_or_else(|| match list {
            List::Task => SyscallMask::none(),
            _ => SyscallMask::all(),
        });
        let rule = Rule {
            list,
            action,
            // A mask of every number is the same as `all`.
            syscalls: if mask.is_all() {
                SyscallMask::all()
            } else {
                mask
            },
            fields: self.fields.into_tests(),
            keys: self.keys.into_texts(),
        };
        Some(match operation {
            Operation::Add(insertion) => Command::Add { rule, insertion },
            Operation::Delete => Command::Delete(rule),
        })
    }

    /// Checks the keys, which become the last field of the rule.
    fn check_keys(&self, findings: &mut Findings<'_>) {
        let Some(first) = self.keys.first() else {
            return;
        };
        let target = self.target;
        let on_exclude = target.is_some_and(|target| target.list == List::Exclude);
        if on_exclude && self.dialect == Dialect::V3 {
            let text = condition::NOT_ON_EXCLUDE;
            findings.transcript.fails_late(&[text]);
        } else if !self.key_allowed {
            findings.transcript.fails_late(&[KEY_DEPENDS]);
        }
        if !self.key_allowed {
            keys::report_unlabelled(&first.span, findings);
        }
        if self.fields.is_full() {
            findings
                .transcript
                .fails_late(&[b"Too many fields in rule: key=", &self.keys.joined()]);
            field_tests::report_too_many(&first.span, findings);
        }
    }

    fn target(&mut self, given: &ParsedOption, operation: Operation, findings: &mut Findings<'_>) {
        let word = &given.value;
        if self.target.is_some() {
            findings.auditctl_fails(&[b"Multiple rule insert/delete operations are not allowed"]);
            rule_target::report_second_rule(given, findings);
            return;
        }
        let (list, action) = match list::read(word, self.dialect, findings) {
            list::ParsedList::Valid(list, action) => (list, action),
            // Parse the rest as the most common kind of rule.
            list::ParsedList::Invalid => {
                findings.auditctl_fails(&[operation.name(), b" rule - bad keyword ", &word.text]);
                (List::Exit, Action::Always)
            }
            list::ParsedList::Deprecated => {
                self.skipped = true;
                findings.transcript.warns(match operation {
                    Operation::Add(_) => &[b"Append rule - possible is deprecated"],
                    Operation::Delete => &[b"Delete rule - possible is deprecated"],
                });
                (List::Exit, Action::Always)
            }
        };
        self.target = Some(RuleTarget {
            operation,
            list,
            action,
        });
        if let Some(early) = self.early_syscall.take() {
            if list == List::Task {
                findings.auditctl_fails(match operation {
                    Operation::Add(Insertion::Prepend) => {
                        &[b"Error: syscall auditing requested for task list"]
                    }
                    _ => &[b"Syscall auditing requested for task list"],
                });
            }
            syscalls::check_list(list, &early, findings);
            if list == List::IoUring {
                findings.error(
                    "list-first",
                    &early.span,
                    "`-S` before the io_uring list",
                    "put `-a` before `-S`: io_uring operations are not syscalls",
                );
            }
        }
    }

    fn watch(&mut self, given: &ParsedOption, operation: Operation, findings: &mut Findings<'_>) {
        if self.target.is_some() {
            findings.auditctl_fails(&[b"watch option can't be given with a syscall"]);
            rule_target::report_second_rule(given, findings);
            return;
        }
        let early = self.early_syscall.take();
        self.target = Some(RuleTarget {
            operation,
            list: List::Exit,
            action: Action::Always,
        });
        self.mask = Some(SyscallMask::all());
        self.has_syscalls = true;
        self.key_allowed = true;
        if let Some(fields) = watch::read(&given.value, self.host, findings) {
            for test in fields {
                self.fields.push(test, &given.value.span, findings);
            }
        }
        if self.dialect == Dialect::V3 {
            return;
        }
        if let Some(early) = early {
            findings.auditctl_fails(&[b"Watches may not include fields or actions"]);
            findings.error(
                "syscall-with-watch",
                &early.span,
                "`-S` before a watch",
                "a watch covers all syscalls: write `-a always,exit` with `-F path=` instead",
            );
        }
        if matches!(operation, Operation::Add(_)) {
            findings
                .transcript
                .warns(&[b"Old style watch rules are slower"]);
        }
    }

    fn perms(&mut self, given: &ParsedOption, findings: &mut Findings<'_>) {
        let Some(list) = self.list(given, findings) else {
            return;
        };
        let letters = value::PermSyntax::Option;
        let Some(bits) = value::perms(&given.value, letters, findings) else {
            return;
        };
        self.key_allowed = true;
        let value = Value::Number(bits);
        if self.fields.replace_value(Field::Perm, &value) {
            return;
        }
        condition::check_perm_list(list, &given.name, findings);
        if self.fields.is_empty() {
            findings.auditctl_fails(match self.dialect {
                Dialect::V3 => &[b"Permissions should be preceeded by other fields"],
                Dialect::V4 => &[b"Permissions should be preceded by other fields"],
            });
            if !findings.failed() {
                findings.error(
                    "perm-first",
                    &given.name.span,
                    "`-p` before any condition",
                    "put `-w`, or `-F path=` or `-F dir=`, before it",
                );
            }
        }
        if self.fields.is_full() {
            findings.auditctl_fails(&[b"Too many fields when adding permissions"]);
        }
        let test = FieldTest {
            field: Field::Perm,
            op: Op::Equal,
            value,
        };
        self.fields.push(test, &given.value.span, findings);
    }

    fn syscalls(&mut self, word: &Word, findings: &mut Findings<'_>) {
        match self.target {
            Some(RuleTarget { list, .. }) => syscalls::check_list(list, word, findings),
            None => {
                self.early_syscall.get_or_insert_with(|| word.clone());
            }
        }
        let native = self.host.native();
        let names = match (self.target, self.arch) {
            (
                Some(RuleTarget {
                    list: List::IoUring,
                    ..
                }),
                _,
            ) => syscalls::Names::Uring,
            (_, Some(arch)) => syscalls::Names::Stated(arch, self.dialect),
            (
                Some(RuleTarget {
                    operation: Operation::Add(_),
                    ..
                }),
                None,
            ) => syscalls::Names::Native(native, self.dialect),
            (_, None) => syscalls::Names::Stated(native, self.dialect),
        };
        let mask = self.mask.get_or_insert_with(SyscallMask::none);
        syscalls::read(word, names, mask, findings);
        if names != syscalls::Names::Uring {
            self.arch.get_or_insert(native);
        }
        self.has_syscalls = true;
        self.key_allowed = true;
    }

    fn condition(&mut self, given: &ParsedOption, findings: &mut Findings<'_>) {
        let word = &given.value;
        let Some(list) = self.list(given, findings) else {
            return;
        };
        // A key may contain operators, so it is handled before the condition is split.
        if word.text.starts_with(b"key=") {
            self.keys.add(word.tail(4), self.dialect, findings);
            return;
        }
        if self.fields.is_full() {
            findings.auditctl_fails(&[b"Too many fields in rule: ", &word.text]);
        }
        let Some(split) = condition::split(word, condition::ConditionOption::Field, findings)
        else {
            return;
        };
        if split.left.text.eq_ignore_ascii_case(b"key") {
            if split.op != Op::Equal {
                findings.warning(
                    "key-operator",
                    &split.operator.span,
                    "the operator of a key has no effect",
                    "a key is a label: write `key=`",
                );
            }
            if !self.key_allowed {
                findings.auditctl_fails(&[KEY_DEPENDS]);
                keys::report_unlabelled(&split.left.span, findings);
                return;
            }
            self.keys.add(split.right, self.dialect, findings);
            return;
        }
        if split.left.text.eq_ignore_ascii_case(b"arch") && !split.right.text.is_empty() {
            self.check_arch_place(word, findings);
        }
        let dialect = self.dialect;
        let Some(test) = condition::read(&split, list, dialect, self.host, findings) else {
            return;
        };
        match (test.field, &test.value) {
            (Field::Arch, &Value::Number(number)) => {
                self.state_arch(Arch(number), test.op, &split.right, findings);
            }
            (Field::Perm, &Value::Number(bits)) => {
                self.key_allowed = true;
                self.perm_syscalls(bits);
            }
            (Field::Path | Field::Dir | Field::Exe | Field::FsType, _) => {
                self.key_allowed = true;
            }
            _ => {}
        }
        self.fields.push(test, &word.span, findings);
    }

    fn check_arch_place(&self, word: &Word, findings: &mut Findings<'_>) {
        if self.has_syscalls {
            findings.auditctl_fails(&[b"arch must be before -S"]);
            findings.error(
                "arch-after-syscall",
                &word.span,
                "`arch` after the syscalls",
                "put `-F arch=` before `-S` and `perm`: syscall names depend on it; a watch accepts none",
            );
        }
    }

    fn state_arch(&mut self, arch: Arch, op: Op, text: &Word, findings: &mut Findings<'_>) {
        self.arch = Some(arch);
        let native = self.host.native();
        if op == Op::Equal && arch != native && table::arch_32(native) != Some(arch) {
            findings.note(
                "foreign-arch",
                &text.span,
                format!(
                    "arch `{}` is not an arch of this machine",
                    escape_text(&text.text)
                ),
                "the rule is loaded and matches nothing on this host",
            );
        }
    }

    /// Does not add the syscalls of `perm` to the mask: a plan does not need them.
    pub(in crate::rule) fn without_perm_syscalls(mut self) -> Self {
        self.add_perm_syscalls = false;
        self
    }

    /// Adds the syscalls of `perm` to the mask, if the arch is known. No arch may follow.
    fn perm_syscalls(&mut self, bits: u32) {
        self.has_syscalls |= self.arch.is_some() && self.dialect == Dialect::V4;
        if let (true, Some(arch)) = (self.add_perm_syscalls, self.arch) {
            perm_syscalls::insert(bits, arch, self.mask.get_or_insert_with(SyscallMask::none));
        }
    }

    fn comparison(&mut self, given: &ParsedOption, findings: &mut Findings<'_>) {
        let word = &given.value;
        if self.fields.is_full() {
            findings.auditctl_fails(&[b"Too many fields in rule: ", &word.text]);
        }
        let split = condition::split(word, condition::ConditionOption::Pair, findings);
        let list = self.target.map(|target| target.list);
        // Without a list `auditctl` continues, as on a list that accepts no comparison.
        let test = split.and_then(|split| condition::read_pair(&split, list, findings));
        self.list(given, findings);
        if let (Some(test), Some(_)) = (test, list) {
            self.fields.push(test, &word.span, findings);
        }
    }

    /// Returns the list of the rule, or reports that it is missing.
    fn list(&mut self, given: &ParsedOption, findings: &mut Findings<'_>) -> Option<List> {
        if self.target.is_none() {
            findings.auditctl_fails(match given.flag {
                Flag::Perm => &[b"permission option needs a watch given prior to it"],
                Flag::Key => &[b"key option needs a watch or syscall given prior to it"],
                _ => &[b"List must be given before field"],
            });
        }
        if self.target.is_none() && !self.missing_list_reported {
            self.missing_list_reported = true;
            findings.error(
                "list-first",
                &given.name.span,
                format!("`{}` before a list is given", escape_text(&given.name.text)),
                "begin the rule with `-a always,exit`, or with `-w PATH`",
            );
        }
        self.target.map(|target| target.list)
    }

    fn key_option(&mut self, given: &ParsedOption, findings: &mut Findings<'_>) {
        if self.list(given, findings).is_none() {
            return;
        }
        if self.key_allowed {
            self.keys.add(given.value.clone(), self.dialect, findings);
        } else {
            findings.auditctl_fails(&[b"key option needs a watch or syscall given prior to it"]);
            keys::report_unlabelled(&given.name.span, findings);
        }
    }
}
