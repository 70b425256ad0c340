//! The report for a terminal: details first, the summary and the goals last, where the reader looks.

use super::Report;
use super::table::{self, LEGEND};

/// Renders the whole report.
pub(crate) fn render(report: &Report) -> String {
    let mut parts = vec![format!(
        "{}\n{}\n",
        report.machine.describe(),
        report.command.join(" ")
    )];
    for case in &report.cases {
        let table = table::of_case(case).markdown();
        let warnings = indent(&case.warnings());
        parts.push(format!("{}: {}\n{table}{warnings}", case.name, case.about));
    }
    if !report.skipped.is_empty() {
        parts.push(format!("Skipped:\n{}", indent(&report.skipped)));
    }
    let summary = table::summary(report);
    if !summary.rows.is_empty() {
        parts.push(format!("{}{LEGEND}\n", summary.markdown()));
    }
    let goals = table::goals(report);
    if !goals.rows.is_empty() {
        parts.push(goals.markdown());
    }
    let failures = report.failures.iter();
    parts.push(failures.map(|text| format!("FAILED: {text}\n")).collect());
    parts.retain(|part| !part.is_empty());
    format!("\n{}", parts.join("\n"))
}

fn indent(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn report_holds_figures_warnings_and_goals() {
        let text = render(&report());
        for part in [
            "syscalls: single calls",
            "130 ±1 %  1.30x",
            "no significant difference",
            "`fio` is missing",
            "| reached | syscalls: getpid, tollgate: 1.30x of off, at most 1.4x |",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
