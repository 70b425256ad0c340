//! Tables of the report, and how their cells are written.

use super::{Better, CaseReport, Figure, Report, Series};
use crate::statistics::Direction;
use crate::variant::AuditMode;

/// A table; each row is as wide as the heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) heading: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// The table in Markdown, padded so that it also reads well in a terminal.
    pub(super) fn markdown(&self) -> String {
        let cells = |row: &[String]| -> Vec<String> {
            row.iter().map(|cell| cell.replace('|', "\\|")).collect()
        };
        let heading = cells(&self.heading);
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| cells(row)).collect();
        let width = |column: usize| {
            let all = std::iter::once(&heading).chain(&rows);
            let lengths = all.filter_map(|row| Some(row.get(column)?.chars().count()));
            lengths.max().unwrap_or(0).max(3)
        };
        let widths: Vec<usize> = (0..heading.len()).map(width).collect();
        let line = |row: &[String]| {
            let padded = row.iter().zip(&widths);
            let padded = padded.map(|(cell, &width)| format!(" {cell:<width$} |"));
            format!("|{}\n", padded.collect::<String>())
        };
        let dashes: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        let body: String = rows.iter().map(|row| line(row)).collect();
        line(&heading) + &line(&dashes) + &body
    }
}

/// The table of a case: a row for each variant, a column for each figure.
pub(super) fn of_case(case: &CaseReport) -> Table {
    let mut names: Vec<&str> = Vec::new();
    for series in case.figures.iter().flat_map(|figure| &figure.variants) {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    let titles = case.figures.iter();
    let titles = titles.map(|figure| format!("{}, {}", figure.name, figure.unit));
    let row = |name: &str| {
        let cells = case.figures.iter().map(|figure| {
            let series = figure.series(name);
            series.map_or_else(String::new, |series| cell(figure, series))
        });
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    Table {
        heading: std::iter::once(String::new()).chain(titles).collect(),
        rows: names.into_iter().map(row).collect(),
    }
}

/// The summary: a row for each headline, compared with `off`.
pub(super) fn summary(report: &Report) -> Table {
    let mut rows = Vec::new();
    let mut columns = vec!["case", "figure", "rules", "off", "tollgate", "kernel"];
    let eaudit = AuditMode::Eaudit.name();
    let with_eaudit = report.measured(eaudit);
    if with_eaudit {
        columns.push(eaudit);
    }
    for case in &report.cases {
        for figure in &case.figures {
            let Some(off) = figure.series("off").and_then(Series::summarize) else {
                continue;
            };
            let arrow = match figure.better {
                Better::Less => "",
                Better::More => " ↑",
            };
            for headline in &figure.headlines {
                let compared = |name: &str| {
                    let series = figure.series(name);
                    series.map_or_else(|| "–".to_owned(), |series| ratio(figure, series))
                };
                let mut row = vec![
                    case.name.clone(),
                    format!("{}{arrow}", figure.name),
                    headline.rules.clone(),
                    format!("{} {}", format_number(off.median), figure.unit),
                    compared(&headline.tollgate),
                    compared(&headline.kernel),
                ];
                if with_eaudit {
                    row.push(compared(eaudit));
                }
                rows.push(row);
            }
        }
    }
    Table {
        heading: columns.into_iter().map(str::to_owned).collect(),
        rows,
    }
}

/// The table of goals.
pub(super) fn goals(report: &Report) -> Table {
    let results = report.goal_results().into_iter();
    let rows = results.map(|result| {
        let verdict = if result.reached { "reached" } else { "missed" };
        vec![verdict.to_owned(), result.text]
    });
    Table {
        heading: ["", "goal"].map(str::to_owned).into(),
        rows: rows.collect(),
    }
}

/// How to read [`summary`].
pub(super) const LEGEND: &str = "`off` is the median without auditing; the columns after it are ratios to it. \
    ↑: more is better, otherwise less is better. ~: the runs disagree on the direction. –: not measured.";

/// Median and spread, and the ratio if there is one: `104.3 ±2 %  1.08x`.
fn cell(figure: &Figure, series: &Series) -> String {
    let Some(summary) = series.summarize() else {
        return String::new();
    };
    let spread = format!(
        "{} ±{:.0} %",
        format_number(summary.median),
        summary.spread() * 50.0
    );
    match figure.compare(series) {
        Some(_) => format!("{spread}  {}", ratio(figure, series)),
        None => spread,
    }
}

/// `1.08x`, or `~1.08x` if the rounds disagree.
pub(super) fn ratio(figure: &Figure, series: &Series) -> String {
    figure.compare(series).map_or_else(String::new, |found| {
        let unclear = found.direction == Direction::Unclear;
        format!("{}{:.2}x", if unclear { "~" } else { "" }, found.ratio)
    })
}

/// Three or four significant digits, or all of them from 1,000 on, grouped.
pub(super) fn format_number(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        return group_thousands(&format!("{value:.0}"));
    }
    if value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    let digits = if size >= 100.0 { 1 } else { 2 };
    format!("{value:.digits$}")
}

fn group_thousands(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index != 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn numbers_have_few_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.234, "1.23"),
            (93.44, "93.44"),
            (104.32, "104.3"),
            (322.0, "322"),
            (1234.6, "1,235"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(format_number(value), text);
        }
    }

    #[test]
    fn case_table_has_a_row_for_each_variant() {
        let table = of_case(&report().cases[0]);
        assert_eq!(table.heading, ["", "getpid, ns"]);
        assert_eq!(
            table.rows,
            [
                ["off", "100 ±1 %"],
                ["tollgate", "130 ±1 %  1.30x"],
                ["kernel", "300 ±35 %  ~3.00x"]
            ]
        );
    }

    #[test]
    fn summary_has_a_row_for_each_headline() {
        let mut report = report();
        let rules = "ten rules, none names it";
        let row = ["syscalls", "getpid", rules, "100 ns", "1.30x", "~3.00x"];
        assert_eq!(summary(&report).rows, [row]);
        report.cases[0].figures[0].headlines[0].kernel = "elsewhere".into();
        report.cases[0].figures[0].better = Better::More;
        let row = ["syscalls", "getpid ↑", rules, "100 ns", "1.30x", "–"];
        assert_eq!(summary(&report).rows, [row]);
        report.cases[0].figures[0].variants[2].name = "eaudit".into();
        let summary = summary(&report);
        assert_eq!(summary.heading.last().unwrap(), "eaudit");
        assert_eq!(summary.rows[0].last().unwrap(), "~3.00x");
    }

    #[test]
    fn markdown_columns_are_aligned() {
        let table = Table {
            heading: ["a", "long heading"].map(str::to_owned).into(),
            rows: vec![["1 | 2", "±"].map(str::to_owned).into()],
        };
        assert_eq!(
            table.markdown(),
            "| a      | long heading |\n| ------ | ------------ |\n| 1 \\| 2 | ±            |\n"
        );
    }
}
