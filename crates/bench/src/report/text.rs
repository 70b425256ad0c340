//! The report for a terminal.

use std::fmt::Write as _;

use comfy_table::presets;
use comfy_table::{CellAlignment, ContentArrangement};

use super::table::{self, Table};
use super::{Measured, Report};

/// The whole report; its last table says it all.
pub(crate) fn render(report: &Report) -> String {
    let mut text = format!(
        "\n{}\n{}\n",
        report.machine.line(),
        report.command.join(" ")
    );
    for case in &report.cases {
        text.push_str(&of_case(case));
    }
    if !report.left_out.is_empty() {
        text.push_str("\nleft out:\n");
        lines(&mut text, &report.left_out);
    }
    let summary = table::summary(report);
    if !summary.rows.is_empty() {
        text.push_str("\nmedians next to `off`; ~ where some runs say otherwise:\n");
        text.push_str(&draw(&summary));
    }
    for (outcome, reached) in report.outcomes() {
        let word = if reached { "reached" } else { "MISSED" };
        text.extend([format!("goal {word}: {outcome}\n")]);
    }
    for complaint in &report.complaints {
        text.extend([format!("FAILED: {complaint}\n")]);
    }
    text
}

fn of_case(case: &Measured) -> String {
    let mut text = format!("\n{}: {}\n", case.name, case.about);
    text.push_str(&draw(&table::of_case(case)));
    lines(&mut text, &case.doubts());
    text
}

fn lines(text: &mut String, lines: &[String]) {
    for line in lines {
        // Writing to a string does not fail.
        let _written = writeln!(text, "  {line}");
    }
}

fn draw(table: &Table) -> String {
    let mut drawn = comfy_table::Table::new();
    drawn
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(&table.heading)
        .add_rows(&table.rows);
    for (index, column) in drawn.column_iter_mut().enumerate() {
        let is_name = table.rows.iter().all(|row| {
            row.get(index).is_some_and(|cell| {
                !cell.starts_with(|first: char| first.is_ascii_digit() || first == '~')
            })
        });
        column.set_cell_alignment(if is_name {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        });
    }
    let lines = drawn.lines().map(|line| format!(" {}\n", line.trim_end()));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn the_report_says_what_was_found_and_what_is_doubtful() {
        let text = render(&report());
        for part in [
            "syscalls: single calls",
            "130 ±1 %  1.30x",
            "no difference is shown",
            "`fio` is missing",
            "goal reached: syscalls: getpid, tollgate: 1.30x of off, at most 1.4x",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
