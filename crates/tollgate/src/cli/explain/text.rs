//! The explanation as text: a table of rules, notes about rules, and totals.
//!
//! Lists at the end of a line are shortened.

use std::collections::BTreeSet;

use audit::ids::{Arch, Dialect, NativeArch, Syscall};
use audit::plan::name_list::shortened;
use audit::plan::rule_list::RuleEntry;
use audit::plan::{PlannedRule, SyscallId};
use audit::rule::print;
use bstr::ByteSlice as _;
use engine::{Hook, InternalHook, RuleCost, RuleNote};

use super::Explained;
use super::json::abi;
use crate::messages::{count, escape_control};

/// Renders the explanation.
pub(super) fn render(explained: &Explained) -> String {
    let mut sections = vec![heading(explained)];
    sections.extend(rules(explained));
    let plan = &explained.plan;
    for (title, rules) in [
        ("exclude list", plan.exclude_list.rules()),
        ("user list", plan.user_list.rules()),
        ("filesystem list", plan.filesystem_list.rules()),
    ] {
        sections.extend(list(explained, title, rules));
    }
    sections.extend(notes(explained));
    sections.extend(unsupported(explained));
    sections.extend(findings(explained));
    sections.push(totals(explained));
    sections.extend(explained.this_machine.iter().filter_map(|this_machine| {
        let lines = this_machine.lines(explained.explanation.engine);
        section("this machine", lines.into_iter())
    }));
    sections.join("\n")
}

fn heading(explained: &Explained) -> String {
    let plan = &explained.plan;
    let files: Vec<String> = (0..explained.files.len())
        .map(|index| escape_control(&explained.file(index)).into_owned())
        .collect();
    let mut parts = vec![format!(
        "{}: {}",
        shortened(&files),
        count(
            plan.rules.len()
                + plan.exclude_list.rules().len()
                + plan.user_list.rules().len()
                + plan.filesystem_list.rules().len(),
            "rule"
        )
    )];
    let unsupported = explained.plan.unsupported.len();
    if unsupported > 0 {
        parts.push(format!("{unsupported} not supported"));
    }
    if explained.errors > 0 {
        let lines = count(explained.errors, "line");
        parts.push(format!(
            "{lines} with errors ignored (see `tollgate check`)"
        ));
    }
    parts.join(", ") + "\n"
}

/// The table of rules.
fn rules(explained: &Explained) -> Option<String> {
    let rules = explained
        .plan
        .rules
        .iter()
        .zip(&explained.explanation.rules);
    let rows: Vec<[String; 6]> = rules
        .map(|(planned, cost)| row(explained, planned, cost))
        .collect();
    let header = ["rule", "cost", "syscalls", "hooks", "key", "names"].map(String::from);
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
        location(explained, planned.source, planned.line),
        cost.scope.cost.name().into(),
        cost.scope.syscall_ids().count().to_string(),
        hooks(&cost.hooks),
        shortened(&keys),
        syscall_names(cost),
    ]
}

/// Names of the syscalls, with their ABI if some are 32-bit.
fn syscall_names(cost: &RuleCost) -> String {
    let names = |arch: Arch, syscalls: &[Syscall]| -> String {
        let names: Vec<String> = syscalls
            .iter()
            .map(|&syscall| SyscallId { arch, syscall }.label())
            .collect();
        shortened(&names)
    };
    let plain = cost.scope.syscalls.keys().all(|arch| arch.is_64_bit());
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

/// Number of hooks by kind, such as `2 enter, 3 exit`.
fn hooks(hooks: &BTreeSet<Hook>) -> String {
    let (mut enters, mut exits, mut inside, mut uring, mut raw) = (0, 0, 0, 0, Vec::new());
    for hook in hooks {
        match hook {
            Hook::SysEnter(_) | Hook::SysEnterNoReturn(_) => enters += 1,
            Hook::SysExit(_) => exits += 1,
            Hook::RawSysEnter => raw.push("raw enter".to_owned()),
            Hook::RawSysExit => raw.push("raw exit".to_owned()),
            Hook::SchedPrepareExec | Hook::SchedProcessExec => raw.push("exec".to_owned()),
            Hook::SchedProcessExit | Hook::SlotsExit | Hook::SlotsExitKprobe | Hook::CallExit => {
                raw.push("task exit".to_owned());
            }
            Hook::SchedProcessFork | Hook::TaskAlloc => raw.push("new tasks".to_owned()),
            Hook::FunctionEnter(_)
            | Hook::FunctionEnterNoReturn(_)
            | Hook::CallEnter(_)
            | Hook::CallNoReturn(_) => enters += 1,
            Hook::CallExec => raw.push("exec".to_owned()),
            Hook::FunctionExit(_) | Hook::CallReturn(_) | Hook::CallSession(_) => exits += 1,
            Hook::Internal(_) | Hook::InternalKprobe(_) | Hook::CallOpen => inside += 1,
            Hook::UringEnter(_) => {}
            Hook::UringExit(_) | Hook::UringSession(_) => uring += 1,
            Hook::UringComplete => raw.push("all of io_uring".to_owned()),
        }
    }
    raw.dedup(); // exec has two hooks
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

/// Each note with its rules. Notes about names from task memory are merged.
fn notes(explained: &Explained) -> Option<String> {
    let mut notes: Vec<(RuleNote, Vec<&PlannedRule>)> = Vec::new();
    for (planned, cost) in explained
        .plan
        .rules
        .iter()
        .zip(&explained.explanation.rules)
    {
        for note in &cost.notes {
            match notes.iter_mut().find(|(other, _)| is_same(other, note)) {
                Some((RuleNote::NamesFromTask(all), rules)) => {
                    if let RuleNote::NamesFromTask(names) = note {
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
        .map(|(note, rules)| format!("{}: {note}", locations(explained, rules)));
    section("notes", lines)
}

fn is_same(a: &RuleNote, b: &RuleNote) -> bool {
    let is_about_names = |note: &RuleNote| matches!(note, RuleNote::NamesFromTask(_));
    a == b || (is_about_names(a) && is_about_names(b))
}

/// Rules of a list that is not compiled.
fn list(explained: &Explained, title: &str, rules: &[RuleEntry]) -> Option<String> {
    let lines = rules.iter().map(|listed| {
        format!(
            "{}: {}",
            location(explained, listed.source, listed.line),
            print(&listed.rule, NativeArch::BUILD.b64(), Dialect::V4)
        )
    });
    section(title, lines)
}

fn unsupported(explained: &Explained) -> Option<String> {
    let lines = explained.plan.unsupported.iter().map(|rule| {
        let loses = if rule.loses_records {
            "records are missed"
        } else {
            "no record is missed"
        };
        format!(
            "{}: {loses}: {}",
            location(explained, rule.source, rule.line),
            rule.reason
        )
    });
    section("not supported", lines)
}

fn findings(explained: &Explained) -> Option<String> {
    let lines = explained.findings.iter().map(|(source, finding)| {
        format!(
            "{}: {}",
            location(explained, *source, finding.line),
            finding.message
        )
    });
    section("refused while loading", lines)
}

/// Cost and hooks of all rules together.
fn totals(explained: &Explained) -> String {
    let explanation = &explained.explanation;
    let mut lines = Vec::new();
    for paying in &explanation.paying {
        let (abi, known) = (paying.arch.bits(), paying.known);
        lines.push(format!(
            "{} of {known} {abi} syscalls evaluate rules",
            paying.paying
        ));
    }
    let (paying, others): (Vec<_>, Vec<_>) = explanation.common.iter().partition(|(_, pays)| *pays);
    for (what, common) in [
        ("common syscalls that evaluate rules", paying),
        ("common syscalls that do not", others),
    ] {
        let names: Vec<&str> = common.iter().map(|&&(name, _)| name).collect();
        if !names.is_empty() {
            lines.push(format!("{what}: {}", names.join(", ")));
        }
    }
    if explanation.hooks.is_empty() {
        lines.push("no hooks: no syscall has overhead".into());
    } else {
        let price = explanation.price;
        lines.push(format!("hooks: {}", hooks(&explanation.hooks)));
        match price.paying_syscall_ns {
            Some(paying) => lines.extend([
                format!(
                    "overhead: {} ns for every syscall of the machine, because the kernel takes its slow path;",
                    price.every_syscall_ns
                ),
                format!("          about {paying} ns more for a syscall that evaluates rules"),
                "          (measured on Linux 6.18, see docs/bench.md)".into(),
            ]),
            None => {
                lines.extend([
                    "overhead: 400 to 2100 instructions for a syscall that evaluates rules, about 5000 if it is"
                        .into(),
                    "          recorded, none for others (counted in VMs, see docs/bench.md)".into(),
                ]);
                if explanation.hooks.contains(&Hook::Internal(InternalHook::OpenFilp)) {
                    lines.push(
                        "          Exception: about 220 for every other way to open a file: all use one function"
                            .into(),
                    );
                }
            }
        }
    }
    if !explanation.missed.is_empty() {
        lines.push(format!(
            "not seen: io_uring operations equivalent to {}",
            explanation.missed.join(", ")
        ));
    }
    for hook in &explanation.missing {
        lines.push(format!(
            "missing on this kernel: {}: no {}",
            hook.function(),
            hook.lacks()
        ));
    }
    if explanation.unproven {
        lines.push(
            "not known: whether the kernel executed a call of a task with a seccomp filter or a tracer (executed=?)"
                .into(),
        );
    }
    section(
        &format!("total, engine {}", explanation.engine.name()),
        lines.into_iter(),
    )
    .unwrap_or_default()
}

/// Location of a rule: the line, with the file if there are several.
fn location(explained: &Explained, source: usize, line: u32) -> String {
    if explained.files.len() > 1 {
        format!("{}:{line}", escape_control(&explained.file(source)))
    } else {
        format!("line {line}")
    }
}

/// Locations of several rules: `lines 3, 5, 8 +20`.
fn locations(explained: &Explained, rules: &[&PlannedRule]) -> String {
    let lines: Vec<String> = rules.iter().map(|rule| rule.line.to_string()).collect();
    let locations = rules
        .iter()
        .map(|rule| location(explained, rule.source, rule.line));
    match lines.len() {
        2.. if explained.files.len() == 1 => format!("lines {}", shortened(&lines)),
        _ => shortened(&locations.collect::<Vec<_>>()),
    }
}

/// A title and indented lines; `None` without lines.
fn section(title: &str, lines: impl Iterator<Item = String>) -> Option<String> {
    let text: String = lines.map(|line| format!("  {line}\n")).collect();
    (!text.is_empty()).then(|| format!("{title}\n{text}"))
}

/// Rows with aligned columns; the last column is not padded.
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
