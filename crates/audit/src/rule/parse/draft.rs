//! A rule while its options are read. Their order matters: the list comes before conditions, the
//! arch before syscalls, and what a key labels before the key.

use std::ops::Range;

use super::super::diag::{Findings, shown};
use super::super::lex::Word;
use super::super::{
    Action, Command, Field, FieldTest, Host, List, Op, Place, Rule, SyscallMask, Value, field,
};
use super::option::{Flag, Given};
use super::{condition, list, syscalls, value, watch};
use crate::ids::Arch;
use crate::table;

/// Conditions that a rule can hold, the key included.
///
/// # Source
/// `audit_rule_fieldpair_data()` in `lib/libaudit.c` of audit-userspace 4.2, which keeps the last
/// of the kernel's `AUDIT_MAX_FIELDS` free.
const FIELDS_LIMIT: usize = 63;

/// Bytes of all keys of a rule with one byte between them: `AUDIT_MAX_KEY_LEN`.
const KEYS_LIMIT_BYTES: usize = 256;

/// Separates keys in the kernel ABI: `AUDIT_KEY_SEPARATOR`.
const KEY_SEPARATOR: u8 = 1;

#[derive(Clone, Copy)]
enum Verb {
    Add(Place),
    Delete,
}

#[derive(Clone, Copy)]
struct Target {
    verb: Verb,
    list: List,
    action: Action,
}

pub(super) struct Draft<'h> {
    host: &'h dyn Host,
    target: Option<Target>,
    /// Whether a condition without a list was reported: once is enough.
    list_missed: bool,
    fields: Vec<FieldTest>,
    mask: Option<SyscallMask>,
    /// The first `-S`, as long as no list says whether it may be there.
    early_syscall: Option<Word>,
    /// Whether the mask is settled, by `-S` or by `-w`, and an arch comes too late.
    masked: bool,
    arch: Option<Arch>,
    /// The arch whose syscalls are not known here, and which the rule cannot do without.
    foreign: Option<Word>,
    keys: Vec<Word>,
    /// Whether there is something that a key may label.
    labelled: bool,
    /// The line is to be left out without an error.
    left_out: bool,
}

impl<'h> Draft<'h> {
    pub(super) fn new(host: &'h dyn Host) -> Self {
        Self {
            host,
            target: None,
            list_missed: false,
            fields: Vec::new(),
            mask: None,
            early_syscall: None,
            masked: false,
            arch: None,
            foreign: None,
            keys: Vec::new(),
            labelled: false,
            left_out: false,
        }
    }

    /// Takes one option of a rule.
    pub(super) fn take(&mut self, given: &Given, findings: &mut Findings<'_>) {
        let word = &given.value;
        match given.flag {
            Flag::Append => self.target(given, Verb::Add(Place::Tail), findings),
            Flag::Insert => self.target(given, Verb::Add(Place::Head), findings),
            Flag::Delete => self.target(given, Verb::Delete, findings),
            Flag::Watch => self.watch(given, Verb::Add(Place::Tail), findings),
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

    /// The command, when there was no error.
    pub(super) fn finish(
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
        if let Some(key) = self.keys.first() {
            if !self.labelled {
                key_without_object(&key.span, findings);
            }
            if self.fields.len() >= FIELDS_LIMIT {
                too_many_fields(&key.span, findings);
            }
        }
        let Target { verb, list, action } = self.target?;
        if findings.failed() {
            return None;
        }
        if let Some(arch) = self.foreign {
            findings.warning(
                "foreign-arch",
                &arch.span,
                format!(
                    "arch `{}` is not supported yet on this machine",
                    shown(&arch.text)
                ),
                "the rule is loaded nowhere: its syscalls cannot be made here",
            );
            return None;
        }
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
            fields: self.fields,
            keys: self.keys.into_iter().map(|key| key.text.into()).collect(),
        };
        Some(match verb {
            Verb::Add(place) => Command::Add { rule, place },
            Verb::Delete => Command::Delete(rule),
        })
    }

    fn target(&mut self, given: &Given, verb: Verb, findings: &mut Findings<'_>) {
        if !self.is_first(given, findings) {
            return;
        }
        let word = &given.value;
        let (list, action) = match list::read(word, findings) {
            list::Reading::Both(list, action) => (list, action),
            // What follows is still worth reading, as the commonest kind of rule.
            list::Reading::Neither => (List::Exit, Action::Always),
            list::Reading::Deprecated => {
                self.left_out = true;
                (List::Exit, Action::Always)
            }
        };
        self.target = Some(Target { verb, list, action });
        if let Some(early) = self.early_syscall.take() {
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
        if !self.is_first(given, findings) {
            return;
        }
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
                self.push(test, &given.value.span, findings);
            }
        }
    }

    fn is_first(&self, given: &Given, findings: &mut Findings<'_>) -> bool {
        if self.target.is_some() {
            findings.error(
                "two-rules",
                &given.name.span,
                format!("second rule `{}` on one line", shown(&given.name.text)),
                "put it on a line of its own; a watch is written `-F path=` after `-a`",
            );
        }
        self.target.is_none()
    }

    fn perms(&mut self, given: &Given, findings: &mut Findings<'_>) {
        let Some(list) = self.list(given, findings) else {
            return;
        };
        let Some(bits) = value::perms(&given.value, findings) else {
            return;
        };
        self.labelled = true;
        let value = Value::Number(bits);
        if let Some(test) = self
            .fields
            .iter_mut()
            .find(|test| test.field == Field::Perm)
        {
            test.value = value;
        } else if condition::check_field_list(Field::Perm, list, &given.name, findings) {
            let test = FieldTest {
                field: Field::Perm,
                op: Op::Equal,
                value,
            };
            self.push(test, &given.value.span, findings);
        }
    }

    fn syscalls(&mut self, word: &Word, findings: &mut Findings<'_>) {
        match self.target {
            Some(Target { list, .. }) => syscalls::check_list(list, word, findings),
            None => {
                self.early_syscall.get_or_insert_with(|| word.clone());
            }
        }
        let names = match (self.target, self.arch) {
            (
                Some(Target {
                    list: List::IoUring,
                    ..
                }),
                _,
            ) => syscalls::Names::Uring,
            (_, Some(arch)) if table::has_syscalls(arch) => syscalls::Names::Stated(arch),
            (_, Some(_)) => syscalls::Names::Foreign,
            (_, None) => syscalls::Names::Native(self.host.native()),
        };
        let mask = self.mask.get_or_insert_with(SyscallMask::none);
        if syscalls::read(word, names, mask, findings) {
            self.foreign.get_or_insert_with(|| word.clone());
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
            self.key(word.tail(4), findings);
            return;
        }
        let Some(split) = condition::split(word, findings) else {
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
            self.key(split.right, findings);
            return;
        }
        let Some(test) = condition::read(&split, list, self.host, findings) else {
            return;
        };
        match test.field {
            Field::Arch => self.arch(&test, &split.right, word, findings),
            Field::Path | Field::Dir | Field::Exe | Field::Perm | Field::FsType => {
                self.labelled = true;
            }
            _ => {}
        }
        self.push(test, &word.span, findings);
    }

    fn arch(&mut self, test: &FieldTest, text: &Word, word: &Word, findings: &mut Findings<'_>) {
        let Value::Number(number) = test.value else {
            return;
        };
        let arch = Arch(number);
        if self.masked {
            findings.error(
                "arch-after-syscall",
                &word.span,
                "`arch` after the syscalls",
                "put `-F arch=` before `-S`: it says what the names mean; a watch takes none",
            );
        }
        self.arch = Some(arch);
        if test.op == Op::Equal && !table::has_syscalls(arch) {
            self.foreign.get_or_insert_with(|| text.clone());
        }
    }

    fn comparison(&mut self, given: &Given, findings: &mut Findings<'_>) {
        let Some(list) = self.list(given, findings) else {
            return;
        };
        let Some(split) = condition::split(&given.value, findings) else {
            return;
        };
        if let Some(test) = condition::read_pair(&split, list, findings) {
            self.push(test, &given.value.span, findings);
        }
    }

    /// The list that conditions are checked against.
    fn list(&mut self, given: &Given, findings: &mut Findings<'_>) -> Option<List> {
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
            self.key(given.value.clone(), findings);
        } else {
            key_without_object(&given.name.span, findings);
        }
    }

    fn key(&mut self, word: Word, findings: &mut Findings<'_>) {
        if word.text.is_empty() {
            findings.warning(
                "empty-key",
                &word.span,
                "the key is empty",
                "the rule gets no key: leave `key=` out",
            );
            return;
        }
        if word.text.contains(&KEY_SEPARATOR) {
            findings.error(
                "bad-key",
                &word.span,
                format!("key `{}` holds the byte 0x01", shown(&word.text)),
                "that byte separates keys: write several `-k`",
            );
        }
        let bytes: usize = self
            .keys
            .iter()
            .map(|key| key.text.len() + 1)
            .sum::<usize>()
            + word.text.len();
        if bytes > KEYS_LIMIT_BYTES {
            findings.error(
                "key-too-long",
                &word.span,
                format!("the keys of the rule have {bytes} bytes"),
                format!("they may have {KEYS_LIMIT_BYTES} together, one between each two included"),
            );
        }
        self.keys.push(word);
    }

    fn push(&mut self, test: FieldTest, span: &Range<usize>, findings: &mut Findings<'_>) {
        let is_object = |field| matches!(field, Field::Path | Field::Dir | Field::Inode);
        if !matches!(test.value, Value::Field(_)) {
            let other = self.fields.iter().find(|other| {
                (is_object(test.field) && is_object(other.field))
                    || (test.field == Field::Exe && other.field == Field::Exe)
            });
            if let Some(other) = other {
                findings.error(
                    "two-objects",
                    span,
                    format!(
                        "`{}` in a rule that has `{}` already",
                        field::name(test.field),
                        field::name(other.field)
                    ),
                    "the kernel answers EINVAL: it takes one of path, dir and inode, and one exe; \
                     write a rule for each",
                );
            }
        }
        if self.fields.len() == FIELDS_LIMIT {
            too_many_fields(span, findings);
        }
        self.fields.push(test);
    }
}

fn too_many_fields(span: &Range<usize>, findings: &mut Findings<'_>) {
    findings.error(
        "too-many-fields",
        span,
        format!("more than {FIELDS_LIMIT} conditions in one rule"),
        "arch and key count too: split the rule",
    );
}

fn key_without_object(span: &Range<usize>, findings: &mut Findings<'_>) {
    findings.error(
        "key-first",
        span,
        "nothing before the key that it could label",
        "put `-S`, `-w`, `perm`, `path`, `dir`, `exe` or `fstype` before it",
    );
}
