//! The report in Markdown: picture, summary, details, goals.

use super::table::{self, LEGEND};
use super::{CaseReport, Report, picture};

/// Name of the file.
pub(crate) const FILE: &str = "report.md";

/// Renders the whole report; the picture is a file beside it.
pub(crate) fn render(report: &Report) -> String {
    let mut text = format!(
        "# Overhead of auditing\n\n{}.\n\n`{}`, {} runs, {} s.\n\n",
        report.machine.describe(),
        report.command.join(" "),
        report.runs,
        report.seconds,
    );
    let summary = table::summary(report);
    if !summary.rows.is_empty() {
        text.extend([
            format!("![{}]({})\n\n", picture::TITLE, picture::FILE),
            format!("{}\n{LEGEND}\n\n", summary.markdown()),
        ]);
    }
    for case in &report.cases {
        text.push_str(&of_case(case));
    }
    let reservations: Vec<&String> = report.skipped.iter().chain(&report.failures).collect();
    if !reservations.is_empty() {
        text.push_str("## Skipped and failed\n\n");
        text.extend(reservations.iter().map(|line| format!("- {line}\n")));
        text.push('\n');
    }
    let goals = table::goals(report);
    if !goals.rows.is_empty() {
        text.extend([format!("## Goals\n\n{}", goals.markdown())]);
    }
    format!("{}\n", text.trim_end())
}

fn of_case(case: &CaseReport) -> String {
    let mut text = format!(
        "## {}\n\n{}.\nOrigin: {}.\n\n{}\n",
        case.name,
        case.about,
        case.origin,
        table::of_case(case).markdown()
    );
    let warnings = case.warnings();
    text.extend(warnings.iter().map(|warning| format!("- {warning}\n")));
    if !warnings.is_empty() {
        text.push('\n');
    }
    for note in &case.notes {
        text.extend([format!("```text\n{note}\n```\n\n")]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn picture_summary_details_and_goals_are_in_this_order() {
        let text = render(&report());
        let mut last = 0;
        for part in [
            "`tollgate bench --runs 3`, 3 runs",
            "](overhead.svg)",
            "| case     | figure | rules                    | off    | tollgate | kernel |\n",
            "\n## syscalls\n",
            "| tollgate | 130 ±1 %  1.30x   |",
            "\n- fio: `fio` is missing\n",
            "at most 1.4x |",
        ] {
            let found = text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
            assert!(found > last, "{part}");
            last = found;
        }
        assert!(!text.contains(" \n"), "{text}");
    }
}
