//! The report as a page of documentation.

use super::table::{self, Table};
use super::{Measured, Report};

/// The whole report.
pub(crate) fn render(report: &Report) -> String {
    let mut text = format!(
        "# What auditing costs here\n\n{}, {} runs, {} s.\n\n{}.\n\n",
        code(&report.command.join(" ")),
        report.runs,
        report.seconds,
        report.machine.line()
    );
    let summary = table::summary(report);
    if !summary.rows.is_empty() {
        text.push_str("Medians next to `off`; `~` where some runs say otherwise:\n\n");
        text.push_str(&draw(&summary));
        text.push('\n');
    }
    let outcomes = report.outcomes();
    if !outcomes.is_empty() {
        text.push_str("| goal | |\n| --- | --- |\n");
        for (outcome, reached) in outcomes {
            let word = if reached { "reached" } else { "missed" };
            text.extend([format!("| {} | {word} |\n", cell(&outcome))]);
        }
        text.push('\n');
    }
    for case in &report.cases {
        text.push_str(&of_case(case));
    }
    for line in report.left_out.iter().chain(&report.complaints) {
        text.extend([format!("- {line}\n")]);
    }
    format!("{}\n", text.trim_end())
}

fn of_case(case: &Measured) -> String {
    let mut text = format!("## {}\n\n{}.\n", case.name, case.about);
    text.extend([format!("From: {}.\n\n", case.seed)]);
    text.push_str(&draw(&table::of_case(case)));
    text.push('\n');
    let doubts = case.doubts();
    for doubt in &doubts {
        text.extend([format!("- {doubt}\n")]);
    }
    if !doubts.is_empty() {
        text.push('\n');
    }
    for note in &case.notes {
        text.extend([format!("```text\n{note}\n```\n\n")]);
    }
    text
}

fn draw(table: &Table) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let dashes = vec!["---".to_owned(); table.heading.len()];
    let mut text = line(&table.heading) + &line(&dashes);
    text.extend(table.rows.iter().map(|row| line(row)));
    text
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn tables_are_markdown() {
        let text = render(&report());
        for part in [
            "`tollgate bench --runs 3`, 3 runs",
            "| case |  | off | tollgate | kernel |\n| --- | --- | --- | --- | --- |\n| syscalls |",
            "\n## syscalls\n",
            "| tollgate | 130 ±1 %  1.30x |",
            "at most 1.4x | reached |",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            text.ends_with("missing\n") && !text.contains(" \n"),
            "{text}"
        );
    }
}
