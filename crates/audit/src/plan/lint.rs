//! Reports valid rules that probably do not do what was meant: conflicts between rules, and differences from
//! what the kernel does.
//!
//! All findings are advice. The rules are loaded anyway.

use std::collections::BTreeSet;

use crate::ids::{Arch, Syscall};
use crate::rule::{Action, Field, FieldTest, List, Op, Rule, Severity, Value};
use crate::table;

use super::cost::Cost;
use super::eval::compare;
use super::name_list::shortened;
use super::rule_list::RuleEntry;
use super::uring::UringCoverage;
use super::{Plan, labels};

/// One finding about a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintFinding {
    /// Index of the rule in the linted rules.
    pub rule: usize,
    /// Stable short name; [`crate::rule::diagnostic_codes`] explains it.
    pub code: &'static str,
    /// Severity.
    pub severity: Severity,
    /// The finding: a lower-case sentence fragment.
    pub message: String,
    /// How to correct it.
    pub advice: String,
}

/// Lints rules, given in evaluation order. `native` is the arch of the host.
#[must_use]
pub fn lint(rules: &[RuleEntry], native: Arch) -> Vec<LintFinding> {
    let arches: Vec<Arch> = [Some(native), table::arch_32(native)]
        .into_iter()
        .flatten()
        .collect();
    let plan = Plan::compile(rules.iter().cloned(), &arches);
    let costs = costs(&plan, rules);
    let mut findings = Vec::new();
    for (index, listed) in rules.iter().enumerate() {
        let mut found = Vec::new();
        found.extend(never_matches(listed, &arches));
        if found.is_empty() {
            found.extend(shadowed(rules, index));
        }
        found.extend(ends_its_list(&listed.rule));
        found.extend(one_arch(rules, index, &arches));
        found.extend(misses_a_sibling(rules, index, native));
        found.extend(without_key(&listed.rule));
        found.extend(costs.get(index).copied().flatten().and_then(expensive));
        findings.extend(found.into_iter().map(|found| LintFinding {
            rule: index,
            ..found
        }));
    }
    findings.extend(no_uring(rules));
    findings
}

fn warning(
    code: &'static str,
    message: impl Into<String>,
    advice: impl Into<String>,
) -> LintFinding {
    LintFinding {
        rule: 0,
        code,
        severity: Severity::Warning,
        message: message.into(),
        advice: advice.into(),
    }
}

fn note(code: &'static str, message: impl Into<String>, advice: impl Into<String>) -> LintFinding {
    LintFinding {
        severity: Severity::Note,
        ..warning(code, message, advice)
    }
}

/// Returns the arch that a rule requires with `=`.
fn stated_arch(rule: &Rule) -> Option<Arch> {
    rule.fields
        .iter()
        .find_map(|test| match (test.field, test.op, &test.value) {
            (Field::Arch, Op::Equal, &Value::Number(number)) => Some(Arch(number)),
            _ => None,
        })
}

/// Reports a rule of the exit list that no syscall of this host can match, except rules for other archs.
fn never_matches(listed: &RuleEntry, arches: &[Arch]) -> Option<LintFinding> {
    let rule = &listed.rule;
    if let Some((first, second)) = contradiction(rule) {
        let show = |test: &FieldTest| format!("{}{}", test.field.name(), operand(test));
        return Some(warning(
            "matches-nothing",
            format!("`{}` and `{}` cannot both hold", show(first), show(second)),
            "conditions of one rule must hold together: write two rules, or correct a condition",
        ));
    }
    let is_foreign = stated_arch(rule).is_some_and(|arch| !arches.contains(&arch));
    if rule.list != List::Exit || is_foreign {
        return None;
    }
    if let Some(field) = labels::condition(rule) {
        return Some(note(
            "label-condition",
            format!("`{field}` matches only with a security module that compares it"),
            "with SELinux such rules are refused, because tollgate does not read labels; without a module that \
             compares labels the rule matches nothing, as with the kernel's audit",
        ));
    }
    // The plan contains a recording rule if it can match.
    let alone = RuleEntry {
        rule: Rule {
            action: Action::Always,
            ..rule.clone()
        },
        ..listed.clone()
    };
    let plan = Plan::compile([alone], arches);
    (plan.unsupported.is_empty() && plan.syscalls.is_empty()).then(|| {
        warning(
            "matches-nothing",
            "no syscall can match this rule",
            "its conditions exclude each other, or its syscalls lack what they test: \
             a perm class, an object, a return value",
        )
    })
}

/// Two conditions of a rule that no number meets together.
fn contradiction(rule: &Rule) -> Option<(&FieldTest, &FieldTest)> {
    let tests = || rule.fields.iter().filter(|test| orders(test));
    tests().enumerate().find_map(|(index, first)| {
        let second = tests()
            .skip(index + 1)
            .find(|second| second.field == first.field && exclude_each_other(first, second))?;
        Some((first, second))
    })
}

/// Whether a condition compares a field that has one number with a number.
fn orders(test: &FieldTest) -> bool {
    let has_one_number = !matches!(
        test.field,
        Field::Arch
            | Field::Gid
            | Field::Egid
            | Field::ObjUid
            | Field::ObjGid
            | Field::DevMajor
            | Field::DevMinor
            | Field::Inode
            | Field::FileType
            | Field::Perm
            | Field::Success
    );
    has_one_number
        && matches!(test.value, Value::Number(_))
        && !matches!(test.op, Op::BitMask | Op::BitTest)
}

/// Whether no number meets both conditions. If one does, then the least is 0, or a number in a condition, or the one
/// after it.
fn exclude_each_other(first: &FieldTest, second: &FieldTest) -> bool {
    let (&Value::Number(one), &Value::Number(other)) = (&first.value, &second.value) else {
        return false;
    };
    let candidates = [
        Some(0),
        Some(one),
        Some(other),
        one.checked_add(1),
        other.checked_add(1),
    ];
    !candidates
        .into_iter()
        .flatten()
        .any(|value| compare(first.op, value, one) && compare(second.op, value, other))
}

/// Operator and value of a condition, as written.
fn operand(test: &FieldTest) -> String {
    match test.value {
        Value::Number(u32::MAX) => format!("{}unset", test.op.symbol()),
        Value::Number(number) => format!("{}{number}", test.op.symbol()),
        Value::Text(_) | Value::Field(_) => String::new(),
    }
}

/// Reports a rule that never decides, because an earlier one matches everything that it matches.
fn shadowed(rules: &[RuleEntry], index: usize) -> Option<LintFinding> {
    let later = &rules.get(index)?.rule;
    let (at, earlier) = rules
        .iter()
        .take(index)
        .find(|earlier| covers(&earlier.rule, later))
        .map(|earlier| (earlier.line, &earlier.rule))?;
    let advice = match (earlier.action, later.action) {
        (Action::Never, Action::Always) => "it records nothing: put it before the other rule",
        (Action::Always, Action::Never) => {
            "it suppresses nothing: put it before the other rule, or use `-A`"
        }
        _ => "remove it, or put it before the other rule",
    };
    Some(warning(
        "shadowed",
        format!("the earlier rule in line {at} matches everything that this rule matches"),
        advice,
    ))
}

/// Whether a rule matches everything that another rule of its list matches.
fn covers(wide: &Rule, narrow: &Rule) -> bool {
    let same_calls = match wide.list {
        List::Exit | List::IoUring => {
            wide.syscalls.is_all()
                || narrow
                    .syscalls
                    .iter()
                    .all(|number| wide.syscalls.contains(number))
        }
        _ => true,
    };
    // On these lists a rule without conditions matches nothing, and a rule with a key ends the list.
    let is_plain = !matches!(wide.list, List::User | List::Exclude)
        || (wide.keys.is_empty() && !wide.fields.is_empty());
    wide.list == narrow.list
        && wide.list != List::Filesystem
        && is_plain
        && same_calls
        && wide
            .fields
            .iter()
            .all(|test| narrow.fields.iter().any(|other| implies(other, test)))
}

/// Whether one condition implies the other.
fn implies(narrow: &FieldTest, wide: &FieldTest) -> bool {
    if narrow == wide {
        return true;
    }
    // Conditions on fields with several values are only compared for equality.
    let is_one_number = !matches!(
        wide.field,
        Field::Gid
            | Field::Egid
            | Field::ObjUid
            | Field::ObjGid
            | Field::DevMajor
            | Field::DevMinor
            | Field::Inode
            | Field::FileType
            | Field::Perm
            | Field::Success
            | Field::Auid
    );
    match (&narrow.value, &wide.value) {
        (&Value::Number(left), &Value::Number(right)) if narrow.field == wide.field => {
            let is_set = |test: &FieldTest, value| {
                test.field == Field::Auid && value == u32::MAX && test.op == Op::NotEqual
            };
            if wide.field == Field::Perm {
                return narrow.op == Op::Equal && wide.op == Op::Equal && left & !right == 0;
            }
            // A login uid of 1000 or more may be unset, because the comparison is unsigned.
            if is_set(wide, right) {
                return narrow.op == Op::Equal && left != u32::MAX;
            }
            is_one_number && narrow.op == Op::Equal && compare(wide.op, left, right)
        }
        _ => false,
    }
}

/// Reports a rule of the exclude or user list with a condition that ends the list.
fn ends_its_list(rule: &Rule) -> Option<LintFinding> {
    let is_messages = matches!(rule.list, List::User | List::Exclude);
    (is_messages && !rule.keys.is_empty()).then(|| {
        warning(
            "key-ends-list",
            "a rule with a key on this list excludes nothing",
            "the kernel does not support keys on this list: it stops at this rule and keeps the record; \
             remove the key",
        )
    })
}

/// Reports a rule for 64-bit or 32-bit syscalls without the rule for the other ABI.
fn one_arch(rules: &[RuleEntry], index: usize, arches: &[Arch]) -> Option<LintFinding> {
    let rule = &rules.get(index)?.rule;
    let arch = stated_arch(rule)?;
    let &[native, narrow] = arches else {
        return None;
    };
    if rule.action != Action::Always || rule.list != List::Exit || arch != native {
        return None;
    }
    let covered: BTreeSet<&str> = rules
        .iter()
        .map(|other| &other.rule)
        .filter(|other| is_counterpart(other, rule, narrow))
        .flat_map(|other| names(other, narrow))
        .collect();
    let missing: Vec<&str> = names(rule, native)
        .filter(|name| {
            table::syscall_number(narrow, name.as_bytes()).is_some() && !covered.contains(name)
        })
        .collect();
    (!missing.is_empty() && !rule.syscalls.is_all()).then(|| {
        warning(
            "one-arch",
            format!(
                "this rule does not cover 32-bit programs: no rule with `arch=b32` has {}",
                shortened(&missing)
            ),
            "add the same rule with `-F arch=b32`, or forbid 32-bit programs with \
             `-a always,exit -F arch=b32 -S all`",
        )
    })
}

/// Whether another rule records everything that this rule does, for its syscalls, on an arch.
/// Ignores conditions on arguments, because another syscall has other arguments.
fn is_counterpart(other: &Rule, rule: &Rule, arch: Arch) -> bool {
    let counts = |test: &&FieldTest| {
        !matches!(
            test.field,
            Field::Arch | Field::A0 | Field::A1 | Field::A2 | Field::A3
        )
    };
    other.list == List::Exit
        && other.action == Action::Always
        && stated_arch(other).is_none_or(|other| other == arch)
        && other
            .fields
            .iter()
            .filter(counts)
            .all(|wide| rule.fields.iter().any(|narrow| implies(narrow, wide)))
}

/// Names of the syscalls of a rule.
fn names(rule: &Rule, arch: Arch) -> impl Iterator<Item = &'static str> {
    rule.syscalls
        .iter()
        .filter_map(move |number| table::syscall_name(arch, Syscall(number)))
}

/// Syscalls for the same operation. Rules for the older ones should include the newest.
///
/// # Source
/// `syscalls(2)`: each later one was added with more arguments.
const SIBLINGS: &[(&[&str], &str)] = &[
    (&["open", "openat"], "openat2"),
    (&["rename", "renameat"], "renameat2"),
    (&["chmod", "fchmodat"], "fchmodat2"),
    (&["chown", "lchown"], "fchownat"),
    (&["unlink", "rmdir"], "unlinkat"),
    (&["mkdir"], "mkdirat"),
    (&["mknod"], "mknodat"),
    (&["link"], "linkat"),
    (&["symlink"], "symlinkat"),
    (&["execve"], "execveat"),
    (&["setxattr", "lsetxattr", "fsetxattr"], "setxattrat"),
    (
        &["removexattr", "lremovexattr", "fremovexattr"],
        "removexattrat",
    ),
    (&["init_module"], "finit_module"),
    (&["clone"], "clone3"),
    (&["kexec_load"], "kexec_file_load"),
    (&["settimeofday"], "clock_settime"),
];

/// Reports a rule with syscalls whose newest variant no rule has.
fn misses_a_sibling(rules: &[RuleEntry], index: usize, native: Arch) -> Option<LintFinding> {
    let rule = &rules.get(index)?.rule;
    if rule.action != Action::Always || rule.list != List::Exit || rule.syscalls.is_all() {
        return None;
    }
    let arch = stated_arch(rule).unwrap_or(native);
    let has = |rule: &Rule, name: &str| {
        table::syscall_number(arch, name.as_bytes())
            .is_some_and(|syscall| rule.syscalls.contains(syscall.0))
    };
    let missing: Vec<&str> = SIBLINGS
        .iter()
        .filter(|(older, newest)| {
            older.iter().any(|name| has(rule, name))
                && table::syscall_number(arch, newest.as_bytes()).is_some()
                && !rules.iter().any(|other| {
                    is_counterpart(&other.rule, rule, arch) && has(&other.rule, newest)
                })
        })
        .map(|&(_, newest)| newest)
        .collect();
    (!missing.is_empty()).then(|| {
        warning(
            "missing-sibling",
            format!(
                "programs can bypass this rule: no rule names {}",
                missing.join(", ")
            ),
            "add the newer syscalls to `-S`; where they take other arguments, in a rule of their \
             own",
        )
    })
}

fn without_key(rule: &Rule) -> Option<LintFinding> {
    let records = rule.action == Action::Always && matches!(rule.list, List::Exit | List::IoUring);
    (records && rule.keys.is_empty()).then(|| {
        note(
            "no-key",
            "the rule has no key",
            "add `-k KEY`: `ausearch -k KEY` then finds its events",
        )
    })
}

/// Cost and number of syscalls of each rule; `None` for rules that are not in the plan.
fn costs(plan: &Plan, rules: &[RuleEntry]) -> Vec<Option<(Cost, usize)>> {
    let scopes = plan.rule_scopes(UringCoverage::SyscallRules);
    let mut planned = plan.rules.iter().zip(scopes).peekable();
    rules
        .iter()
        .map(|listed| {
            // The plan has the rules in the same order, without refused ones.
            let (_, scope) = planned.next_if(|(planned, _)| {
                planned.source == listed.source && planned.line == listed.line
            })?;
            Some((scope.cost, scope.syscall_ids().count()))
        })
        .collect()
}

fn expensive((cost, syscalls): (Cost, usize)) -> Option<LintFinding> {
    let message = match cost {
        Cost::Everything => format!("the rule is evaluated for {syscalls} syscalls, nearly all"),
        Cost::High => "the rule is evaluated for very frequent syscalls".to_owned(),
        Cost::Nothing | Cost::Low | Cost::Medium => return None,
    };
    Some(warning(
        "expensive",
        message,
        "name fewer syscalls with `-S`; `tollgate explain` shows the cost",
    ))
}

/// Reports `io_uring` operations that are equivalent to syscalls of rules but covered by no rule.
fn no_uring(rules: &[RuleEntry]) -> Option<LintFinding> {
    let first = rules.iter().position(|listed| {
        let rule = &listed.rule;
        rule.list == List::Exit && rule.action == Action::Always
    })?;
    let covered = rules.iter().any(|listed| listed.rule.list == List::IoUring);
    (!covered).then(|| LintFinding {
        rule: first,
        ..note(
            "no-io-uring",
            "rules for syscalls do not see files and sockets that are used through io_uring, except on \
             tollgate's engine fentry",
            "add rules of the io_uring list, such as `-a always,io_uring -S openat`, or forbid it with \
             `sysctl kernel.io_uring_disabled=2` where nothing needs it",
        )
    })
}

#[cfg(test)]
mod tests;
