//! The explanation for readers: a table of rules, then what they should know, then the whole.
//!
//! Everything that matters is on the left of a line; only lists at the end of one are long, and
//! those are shortened.

use std::collections::BTreeSet;

use audit::ids::Dialect;
use audit::ids::{Arch, Syscall};
use audit::plan::name_list::shortened;
use audit::plan::rule_list::RuleEntry;
use audit::plan::{PlannedRule, SyscallId};
use audit::rule::print;
use bstr::ByteSlice as _;
use engine::{Hook, InternalHook, Note, RuleCost};

use super::Explained;
use super::json::{abi, cost_name};

/// The whole explanation, ready to print.
pub(super) fn render(explained: &Explained) -> String {
    let mut sections = vec![heading(explained)];
    sections.extend(rules(explained));
    let plan = &explained.plan;
    for (title, rules) in [
        ("records that are not written", plan.exclude_list.rules()),
        ("messages of programs, kept or not", plan.user_list.rules()),
        (
            "file systems, names on which are left out or not",
            plan.filesystem_list.rules(),
        ),
    ] {
        sections.extend(beside(explained, title, rules));
    }
    sections.extend(notes(explained));
    sections.extend(unsupported(explained));
    sections.extend(findings(explained));
    sections.push(price(explained));
    sections.join("\n")
}

fn heading(explained: &Explained) -> String {
    let plan = &explained.plan;
    let files: Vec<String> = (0..explained.files.len())
        .map(|index| explained.file(index))
        .collect();
    let mut parts = vec![format!(
        "{}: {} in force",
        shortened(&files),
        count(
            plan.rules.len()
                + plan.exclude_list.rules().len()
                + plan.user_list.rules().len()
                + plan.filesystem_list.rules().len(),
            "rule"
        )
    )];
    let left_out = explained.plan.unsupported.len();
    if left_out > 0 {
        parts.push(format!("{left_out} not supported"));
    }
    if explained.errors > 0 {
        let mistakes = count(explained.errors, "mistake");
        parts.push(format!("{mistakes} left out (`tollgate check` shows them)"));
    }
    parts.join(", ") + "\n"
}

/// One line for each rule.
fn rules(explained: &Explained) -> Option<String> {
    let rules = explained
        .plan
        .rules
        .iter()
        .zip(&explained.explanation.rules);
    let rows: Vec<[String; 6]> = rules
        .map(|(planned, cost)| row(explained, planned, cost))
        .collect();
    let header = ["rule", "cost", "syscalls", "hooks", "key", "touches"].map(String::from);
    (!rows.is_empty()).then(|| table(std::iter::once(header).chain(rows)))
}

fn row(explained: &Explained, planned: &PlannedRule, cost: &RuleCost) -> [String; 6] {
    let keys: Vec<String> = planned
        .rule
        .keys
        .iter()
        .map(|key| key.as_bytes().escape_ascii().to_string())
        .collect();
    [
        place(explained, planned.source, planned.line),
        cost_name(cost.scope.cost).into(),
        cost.scope.syscall_ids().count().to_string(),
        hooks(&cost.hooks),
        shortened(&keys),
        touches(cost),
    ]
}

/// Names of the syscalls; with their ABI when there are 32-bit ones.
fn touches(cost: &RuleCost) -> String {
    let names = |arch: Arch, syscalls: &[Syscall]| -> String {
        let names: Vec<String> = syscalls
            .iter()
            .map(|&syscall| SyscallId { arch, syscall }.label())
            .collect();
        shortened(&names)
    };
    let plain = cost.scope.syscalls.keys().all(|&arch| arch == Arch::X86_64);
    let parts: Vec<String> = cost
        .scope
        .syscalls
        .iter()
        .rev()
        .map(|(&arch, syscalls)| match plain {
            true => names(arch, syscalls),
            false => format!("{}: {}", abi(arch), names(arch, syscalls)),
        })
        .collect();
    if cost.scope.syscalls.is_empty() && !cost.scope.operations.is_empty() {
        return format!("io_uring: {}", shortened(&operations(cost)));
    }
    parts.join("; ")
}

/// Names of the operations.
pub(super) fn operations(cost: &RuleCost) -> Vec<&'static str> {
    let names = cost.scope.operations.iter().map(|operation| operation.name);
    names.collect()
}

/// Hooks by kind: `2 enter, 3 exit`, and those inside the kernel.
fn hooks(hooks: &BTreeSet<Hook>) -> String {
    let (mut enters, mut exits, mut inside, mut uring, mut raw) = (0, 0, 0, 0, Vec::new());
    for hook in hooks {
        match hook {
            Hook::SysEnter(_) | Hook::SysEnterNoReturn(_) => enters += 1,
            Hook::SysExit(_) => exits += 1,
            Hook::RawSysEnter => raw.push("raw enter".to_owned()),
            Hook::RawSysExit => raw.push("raw exit".to_owned()),
            Hook::SchedPrepareExec | Hook::SchedProcessExec => raw.push("exec".to_owned()),
            Hook::SchedProcessExit => raw.push("task exit".to_owned()),
            Hook::SchedProcessFork => raw.push("new tasks".to_owned()),
            Hook::FunctionEnter(_) | Hook::FunctionEnterNoReturn(_) => enters += 1,
            Hook::FunctionExit(_) => exits += 1,
            Hook::Internal(_) => inside += 1,
            Hook::UringEnter(_) => {}
            Hook::UringExit(_) => uring += 1,
            Hook::UringComplete => raw.push("all of io_uring".to_owned()),
        }
    }
    raw.dedup(); // what an exec needs is one thing to people
    let counted = [
        (enters, "enter"),
        (exits, "exit"),
        (inside, "inside"),
        (uring, "io_uring"),
    ];
    let counted = counted.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = counted
        .map(|(number, kind)| format!("{number} {kind}"))
        .chain(raw)
        .collect();
    if parts.is_empty() {
        "-".into()
    } else {
        parts.join(", ")
    }
}

/// Each note once, with the rules that it is about. Names that are read from task memory are put
/// together: a rule's own are in its row.
fn notes(explained: &Explained) -> Option<String> {
    let mut notes: Vec<(Note, Vec<&PlannedRule>)> = Vec::new();
    for (planned, cost) in explained
        .plan
        .rules
        .iter()
        .zip(&explained.explanation.rules)
    {
        for note in &cost.notes {
            match notes.iter_mut().find(|(other, _)| is_same(other, note)) {
                Some((Note::NamesFromTask(all), rules)) => {
                    if let Note::NamesFromTask(names) = note {
                        all.extend(names);
                        all.sort_unstable();
                        all.dedup();
                    }
                    rules.push(planned);
                }
                Some((_, rules)) => rules.push(planned),
                None => notes.push((note.clone(), vec![planned])),
            }
        }
    }
    let lines = notes
        .iter()
        .map(|(note, rules)| format!("{}: {note}", places(explained, rules)));
    section("notes", lines)
}

fn is_same(a: &Note, b: &Note) -> bool {
    let of_names = |note: &Note| matches!(note, Note::NamesFromTask(_));
    a == b || (of_names(a) && of_names(b))
}

/// Rules of a list beside exit.
fn beside(explained: &Explained, title: &str, rules: &[RuleEntry]) -> Option<String> {
    let lines = rules.iter().map(|listed| {
        format!(
            "{}: {}",
            place(explained, listed.source, listed.line),
            print(&listed.rule, Arch::X86_64, Dialect::V4)
        )
    });
    section(title, lines)
}

fn unsupported(explained: &Explained) -> Option<String> {
    let lines = explained.plan.unsupported.iter().map(|rule| {
        let loses = if rule.loses_records {
            "RECORDS ARE MISSED"
        } else {
            "no record is missed"
        };
        format!(
            "{}: {loses}: {}",
            place(explained, rule.source, rule.line),
            rule.reason
        )
    });
    section("not supported", lines)
}

fn findings(explained: &Explained) -> Option<String> {
    let lines = explained.findings.iter().map(|(source, finding)| {
        format!(
            "{}: {}",
            place(explained, *source, finding.line),
            finding.message
        )
    });
    section("refused while loading", lines)
}

/// What all rules come to.
fn price(explained: &Explained) -> String {
    let explanation = &explained.explanation;
    let mut lines = Vec::new();
    for paying in &explanation.paying {
        let (abi, known) = (paying.arch.bits(), paying.known);
        lines.push(format!(
            "{} of {known} {abi} syscalls evaluate rules",
            paying.paying
        ));
    }
    let (pay, free): (Vec<_>, Vec<_>) = explanation.common.iter().partition(|(_, pays)| *pays);
    for (what, common) in [("pay", pay), ("do not pay", free)] {
        let names: Vec<&str> = common.iter().map(|&&(name, _)| name).collect();
        if !names.is_empty() {
            lines.push(format!("{what}: {}", names.join(", ")));
        }
    }
    if explanation.hooks.is_empty() {
        lines.push("nothing is attached: no syscall pays anything".into());
    } else {
        let price = explanation.price;
        lines.push(format!("attached: {}", hooks(&explanation.hooks)));
        match price.paying_syscall_ns {
            Some(paying) => lines.extend([
                format!(
                    "price: {} ns on every syscall of the machine, rule or no rule, because the kernel",
                    price.every_syscall_ns
                ),
                format!(
                    "       then takes its slow path; about {paying} ns more where rules are evaluated"
                ),
                "       (measured on 6.18, see docs/bench.md)".into(),
            ]),
            None => {
                lines.extend([
                    "price: nothing on any other syscall; for one of the rules 400 to 2100 instructions, and"
                        .into(),
                    "       some 5000 for one that is recorded (counted in VMs, see docs/bench.md)".into(),
                ]);
                if explanation.hooks.contains(&Hook::Internal(InternalHook::OpenFilp)) {
                    lines.push(
                        "       but some 220 on every other way to open a file: all pass one function"
                            .into(),
                    );
                }
            }
        }
    }
    if !explanation.missed.is_empty() {
        lines.push(format!(
            "missed: what io_uring does instead of {}",
            explanation.missed.join(", ")
        ));
    }
    section(
        &format!("in all, on the {} engine", explanation.engine.name()),
        lines.into_iter(),
    )
    .unwrap_or_default()
}

/// A rule's place: the line, and the file where there are several.
fn place(explained: &Explained, source: usize, line: u32) -> String {
    if explained.files.len() > 1 {
        format!("{}:{line}", explained.file(source))
    } else {
        format!("line {line}")
    }
}

/// Places of several rules: `lines 3, 5, 8 +20`.
fn places(explained: &Explained, rules: &[&PlannedRule]) -> String {
    let lines: Vec<String> = rules.iter().map(|rule| rule.line.to_string()).collect();
    let places = rules
        .iter()
        .map(|rule| place(explained, rule.source, rule.line));
    match lines.len() {
        2.. if explained.files.len() == 1 => format!("lines {}", shortened(&lines)),
        _ => shortened(&places.collect::<Vec<_>>()),
    }
}

fn count(number: usize, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}

/// A title and indented lines; nothing when there are none.
fn section(title: &str, lines: impl Iterator<Item = String>) -> Option<String> {
    let text: String = lines.map(|line| format!("  {line}\n")).collect();
    (!text.is_empty()).then(|| format!("{title}\n{text}"))
}

/// Rows with aligned columns; the last is not padded.
fn table<const N: usize>(rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = rows.collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; N]| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:<width$}  "));
        format!("{}\n", cells.collect::<String>().trim_end())
    };
    rows.iter().map(line).collect()
}
