//! A rule while its options are read, in order: list, conditions; arch, syscalls; key last.

use std::ops::Range;

use super::super::diagnostic::{Findings, shown};
use super::super::lexer::Word;
use super::super::{
    Action, Command, Dialect, Field, FieldTest, Insertion, List, Op, Rule, RuleHost, SyscallMask,
    Value,
};
use super::fields::{self, Fields};
use super::keys::{self, Keys};
use super::option::{Flag, Given};
use super::{condition, list, narrow, syscalls, value, watch};
use crate::ids::Arch;
use crate::table;

/// What `auditctl` says of a key that labels nothing.
const KEY_DEPENDS: &[u8] = b"Key field needs a watch, syscall or exe path given prior to it";

#[derive(Clone, Copy)]
enum Verb {
    Add(Insertion),
    Delete,
}

impl Verb {
    const fn called(self) -> &'static [u8] {
        match self {
            Self::Add(Insertion::Append) => b"Append",
            Self::Add(Insertion::Prepend) => b"Add",
            Self::Delete => b"Delete",
        }
    }
}

#[derive(Clone, Copy)]
struct Target {
    verb: Verb,
    list: List,
    action: Action,
}

pub(in crate::rule) struct Draft<'h> {
    host: &'h dyn RuleHost,
    dialect: Dialect,
    target: Option<Target>,
    /// Whether a condition without a list was reported: once is enough.
    list_missed: bool,
    fields: Fields,
    mask: Option<SyscallMask>,
    /// The first `-S`, while no list says whether it may be there.
    early_syscall: Option<Word>,
    /// Whether the mask is settled, by `-S`, `-w` or `perm`, and an arch comes too late.
    masked: bool,
    /// Whether `perm` adds syscalls to the mask (`auditctl` 4).
    perm_names: bool,
    /// Where names of syscalls are looked up: as the rule states, or as its first `-S` assumed.
    arch: Option<Arch>,
    keys: Keys,
    /// Whether there is something that a key may label.
    labelled: bool,
    /// The line is to be left out without an error.
    left_out: bool,
}

impl<'h> Draft<'h> {
    pub(in crate::rule) fn new(host: &'h dyn RuleHost, dialect: Dialect) -> Self {
        Self {
            host,
            dialect,
            target: None,
            list_missed: false,
            fields: Fields::default(),
            mask: None,
            early_syscall: None,
            masked: false,
            perm_names: dialect == Dialect::V4,
            arch: None,
            keys: Keys::default(),
            labelled: false,
            left_out: false,
        }
    }

    /// Whether the line is to be left out without an error.
    pub(in crate::rule) fn is_left_out(&self) -> bool {
        self.left_out
    }

    /// Whether there is a list to put the rule on.
    pub(in crate::rule) fn has_rule(&self) -> bool {
        self.target.is_some()
    }

    /// Whether it has syscalls of its own.
    pub(in crate::rule) fn is_masked(&self) -> bool {
        self.masked
    }

    pub(in crate::rule) fn take(&mut self, given: &Given, findings: &mut Findings<'_>) {
        let word = &given.value;
        match given.flag {
            Flag::Append => self.target(given, Verb::Add(Insertion::Append), findings),
            Flag::Insert => self.target(given, Verb::Add(Insertion::Prepend), findings),
            Flag::Delete => self.target(given, Verb::Delete, findings),
            Flag::Watch => self.watch(given, Verb::Add(Insertion::Append), findings),
            Flag::Unwatch => self.watch(given, Verb::Delete, findings),
            Flag::Perm => self.perms(given, findings),
            Flag::Key => self.key_option(given, findings),
            Flag::Syscall => self.syscalls(word, findings),
            Flag::Field => self.condition(given, findings),
            Flag::Compare => self.comparison(given, findings),
            _ => findings.error(
                "two-commands",
                &given.name.span,
                format!("`{}` is not part of a rule", shown(&given.name.text)),
                "put it on a line of its own",
            ),
        }
    }

    /// The command, as far as it could be read.
    pub(in crate::rule) fn finish(
        mut self,
        whole: &Range<usize>,
        findings: &mut Findings<'_>,
    ) -> Option<Command> {
        if self.left_out {
            return None;
        }
        if self.target.is_none() && !self.list_missed && !findings.failed() {
            findings.error(
                "missing-list",
                whole,
                "the rule names no list",
                "begin with `-a always,exit`, or with `-w` and a path",
            );
        }
        self.check_keys(findings);
        let Target { verb, list, action } = self.target?;
        let mask = self.mask.take().unwrap_or_else(|| match list {
            List::Task => SyscallMask::none(),
            _ => SyscallMask::all(),
        });
        let rule = Rule {
            list,
            action,
            // Naming every number is the same as saying `all`.
            syscalls: if mask.is_all() {
                SyscallMask::all()
            } else {
                mask
            },
            fields: self.fields.into_tests(),
            keys: self.keys.into_texts(),
        };
        Some(match verb {
            Verb::Add(insertion) => Command::Add { rule, insertion },
            Verb::Delete => Command::Delete(rule),
        })
    }

    /// Keys become the last field of the rule when all else is read.
    fn check_keys(&self, findings: &mut Findings<'_>) {
        let Some(first) = self.keys.first() else {
            return;
        };
        let target = self.target;
        let on_exclude = target.is_some_and(|target| target.list == List::Exclude);
        if on_exclude && self.dialect == Dialect::V3 {
            let text = condition::NOT_ON_EXCLUDE;
            findings.transcript.refuses_late(&[text]);
        } else if !self.labelled {
            findings.transcript.refuses_late(&[KEY_DEPENDS]);
        }
        if !self.labelled {
            keys::without_object(&first.span, findings);
        }
        if self.fields.is_full() {
            findings
                .transcript
                .refuses_late(&[b"Too many fields in rule: key=", &self.keys.joined()]);
            fields::too_many(&first.span, findings);
        }
    }

    fn target(&mut self, given: &Given, verb: Verb, findings: &mut Findings<'_>) {
        let word = &given.value;
        if self.target.is_some() {
            findings.refuses(&[b"Multiple rule insert/delete operations are not allowed"]);
            second_rule(given, findings);
            return;
        }
        let (list, action) = match list::read(word, self.dialect, findings) {
            list::Reading::Both(list, action) => (list, action),
            // What follows is still worth reading, as the commonest kind of rule.
            list::Reading::Neither => {
                findings.refuses(&[verb.called(), b" rule - bad keyword ", &word.text]);
                (List::Exit, Action::Always)
            }
            list::Reading::Deprecated => {
                self.left_out = true;
                findings.transcript.says(match verb {
                    Verb::Add(_) => &[b"Append rule - possible is deprecated"],
                    Verb::Delete => &[b"Delete rule - possible is deprecated"],
                });
                (List::Exit, Action::Always)
            }
        };
        self.target = Some(Target { verb, list, action });
        if let Some(early) = self.early_syscall.take() {
            if list == List::Task {
                findings.refuses(match verb {
                    Verb::Add(Insertion::Prepend) => {
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
                    "put the list first: its operations are not syscalls",
                );
            }
        }
    }

    fn watch(&mut self, given: &Given, verb: Verb, findings: &mut Findings<'_>) {
        if self.target.is_some() {
            findings.refuses(&[b"watch option can't be given with a syscall"]);
            second_rule(given, findings);
            return;
        }
        let early = self.early_syscall.take();
        self.target = Some(Target {
            verb,
            list: List::Exit,
            action: Action::Always,
        });
        self.mask = Some(SyscallMask::all());
        self.masked = true;
        self.labelled = true;
        if let Some(fields) = watch::read(&given.value, self.host, findings) {
            for test in fields {
                self.fields.push(test, &given.value.span, findings);
            }
        }
        if self.dialect == Dialect::V3 {
            return;
        }
        if let Some(early) = early {
            findings.refuses(&[b"Watches may not include fields or actions"]);
            findings.error(
                "syscall-with-watch",
                &early.span,
                "`-S` before a watch",
                "a watch is for all syscalls: write `-a always,exit` with `-F path=` instead",
            );
        }
        if matches!(verb, Verb::Add(_)) {
            findings
                .transcript
                .says(&[b"Old style watch rules are slower"]);
        }
    }

    fn perms(&mut self, given: &Given, findings: &mut Findings<'_>) {
        let Some(list) = self.list(given, findings) else {
            return;
        };
        let letters = value::Letters::Option;
        let Some(bits) = value::perms(&given.value, letters, findings) else {
            return;
        };
        self.labelled = true;
        let value = Value::Number(bits);
        if self.fields.change(Field::Perm, &value) {
            return;
        }
        condition::check_perm_list(list, &given.name, findings);
        if self.fields.is_empty() {
            findings.refuses(match self.dialect {
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
            findings.refuses(&[b"Too many fields when adding permissions"]);
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
            Some(Target { list, .. }) => syscalls::check_list(list, word, findings),
            None => {
                self.early_syscall.get_or_insert_with(|| word.clone());
            }
        }
        let native = self.host.native();
        let names = match (self.target, self.arch) {
            (
                Some(Target {
                    list: List::IoUring,
                    ..
                }),
                _,
            ) => syscalls::Names::Uring,
            (_, Some(arch)) => syscalls::Names::Stated(arch, self.dialect),
            (
                Some(Target {
                    verb: Verb::Add(_), ..
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
        self.masked = true;
        self.labelled = true;
    }

    fn condition(&mut self, given: &Given, findings: &mut Findings<'_>) {
        let word = &given.value;
        let Some(list) = self.list(given, findings) else {
            return;
        };
        // A key is taken before operators are looked for: it may hold some.
        if word.text.starts_with(b"key=") {
            self.keys.add(word.tail(4), self.dialect, findings);
            return;
        }
        if self.fields.is_full() {
            findings.refuses(&[b"Too many fields in rule: ", &word.text]);
        }
        let Some(split) = condition::split(word, condition::Given::Field, findings) else {
            return;
        };
        if split.left.text.eq_ignore_ascii_case(b"key") {
            if split.op != Op::Equal {
                findings.warning(
                    "key-operator",
                    &split.operator.span,
                    "the operator of a key counts for nothing",
                    "a key is a label: write `key=`",
                );
            }
            if !self.labelled {
                findings.refuses(&[KEY_DEPENDS]);
                keys::without_object(&split.left.span, findings);
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
                self.labelled = true;
                self.narrow(bits);
            }
            (Field::Path | Field::Dir | Field::Exe | Field::FsType, _) => {
                self.labelled = true;
            }
            _ => {}
        }
        self.fields.push(test, &word.span, findings);
    }

    fn check_arch_place(&self, word: &Word, findings: &mut Findings<'_>) {
        if self.masked {
            findings.refuses(&[b"arch must be before -S"]);
            findings.error(
                "arch-after-syscall",
                &word.span,
                "`arch` after the syscalls",
                "put `-F arch=` before `-S` and `perm`: it says what the names mean; a watch takes \
                 none",
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
                    shown(&text.text)
                ),
                "the rule is loaded and matches nothing here; it is for other machines",
            );
        }
    }

    /// Leaves the mask as it is written: a plan needs no help from `perm`.
    pub(in crate::rule) fn literal(mut self) -> Self {
        self.perm_names = false;
        self
    }

    /// Names the syscalls that `perm` is about, when it is known what they are called; no arch may follow.
    fn narrow(&mut self, bits: u32) {
        self.masked |= self.arch.is_some() && self.dialect == Dialect::V4;
        if let (true, Some(arch)) = (self.perm_names, self.arch) {
            narrow::insert(bits, arch, self.mask.get_or_insert_with(SyscallMask::none));
        }
    }

    fn comparison(&mut self, given: &Given, findings: &mut Findings<'_>) {
        let word = &given.value;
        if self.fields.is_full() {
            findings.refuses(&[b"Too many fields in rule: ", &word.text]);
        }
        let split = condition::split(word, condition::Given::Pair, findings);
        let list = self.target.map(|target| target.list);
        // Without a list `auditctl` reads on, as on a list that takes no comparison.
        let test = split.and_then(|split| condition::read_pair(&split, list, findings));
        self.list(given, findings);
        if let (Some(test), Some(_)) = (test, list) {
            self.fields.push(test, &word.span, findings);
        }
    }

    /// The list that conditions are checked against.
    fn list(&mut self, given: &Given, findings: &mut Findings<'_>) -> Option<List> {
        if self.target.is_none() {
            findings.refuses(match given.flag {
                Flag::Perm => &[b"permission option needs a watch given prior to it"],
                Flag::Key => &[b"key option needs a watch or syscall given prior to it"],
                _ => &[b"List must be given before field"],
            });
        }
        if self.target.is_none() && !self.list_missed {
            self.list_missed = true;
            findings.error(
                "list-first",
                &given.name.span,
                format!("`{}` before a list is given", shown(&given.name.text)),
                "begin the rule with `-a always,exit`, or with `-w` and a path",
            );
        }
        self.target.map(|target| target.list)
    }

    fn key_option(&mut self, given: &Given, findings: &mut Findings<'_>) {
        if self.list(given, findings).is_none() {
            return;
        }
        if self.labelled {
            self.keys.add(given.value.clone(), self.dialect, findings);
        } else {
            findings.refuses(&[b"key option needs a watch or syscall given prior to it"]);
            keys::without_object(&given.name.span, findings);
        }
    }
}

fn second_rule(given: &Given, findings: &mut Findings<'_>) {
    findings.error(
        "two-rules",
        &given.name.span,
        format!("second rule `{}` on one line", shown(&given.name.text)),
        "put it on a line of its own; a watch is written `-F path=` after `-a`",
    );
}
