//! Cells of the tables, which all forms of the report share.

use crate::report::{Measured, Quantity, Report, Series};
use crate::statistics::{Direction, Summary};

/// A table: its heading, and rows as wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) heading: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// The table of a case: a row for each configuration, a column for each quantity.
pub(super) fn of_case(case: &Measured) -> Table {
    let mut names: Vec<&str> = Vec::new();
    for series in case.figures.iter().flat_map(|quantity| &quantity.variants) {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    let mut heading = vec![String::new()];
    heading.extend(
        case.figures
            .iter()
            .map(|quantity| format!("{}, {}", quantity.name, quantity.unit)),
    );
    let rows = names
        .into_iter()
        .map(|name| {
            let mut row = vec![name.to_owned()];
            row.extend(case.figures.iter().map(|quantity| {
                let series = quantity.series(name);
                series.map_or_else(String::new, |series| cell(quantity, series))
            }));
            row
        })
        .collect();
    Table { heading, rows }
}

/// The table that says it all: each quantity that can be compared, in the plain states.
pub(super) fn summary(report: &Report) -> Table {
    let mut rows = Vec::new();
    for case in &report.cases {
        for quantity in &case.figures {
            let plain = ["off", "tollgate", "kernel"].map(|name| quantity.series(name));
            let [Some(off), tollgate, kernel] = plain else {
                continue;
            };
            if tollgate.is_none() && kernel.is_none() || quantity.reference != "off" {
                continue;
            }
            let value = Summary::of(&off.samples).map(|summary| shown(summary.median));
            let compared = |series: Option<&Series>| {
                series.map_or_else(String::new, |one| ratio(quantity, one))
            };
            rows.push(vec![
                case.name.clone(),
                quantity.name.clone(),
                format!("{} {}", value.unwrap_or_default(), quantity.unit),
                compared(tollgate),
                compared(kernel),
            ]);
        }
    }
    Table {
        heading: ["case", "", "off", "tollgate", "kernel"]
            .map(str::to_owned)
            .into(),
        rows,
    }
}

/// Median and spread, and the ratio where there is one: `104.3 ±2 %  1.08x`.
fn cell(quantity: &Quantity, series: &Series) -> String {
    let Some(summary) = Summary::of(&series.samples) else {
        return String::new();
    };
    let spread = format!(
        "{} ±{:.0} %",
        shown(summary.median),
        summary.spread() * 50.0
    );
    match quantity.compare(series) {
        Some(_) => format!("{spread}  {}", ratio(quantity, series)),
        None => spread,
    }
}

/// `1.08x`, or `~1.08x` where the rounds disagree.
pub(super) fn ratio(quantity: &Quantity, series: &Series) -> String {
    quantity.compare(series).map_or_else(String::new, |found| {
        let doubtful = if found.direction == Direction::Unclear {
            "~"
        } else {
            ""
        };
        format!("{doubtful}{:.2}x", found.ratio)
    })
}

/// A number as people read it: four digits or more, thousands apart.
pub(super) fn shown(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        return grouped(&format!("{value:.0}"));
    }
    if value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    let digits = if size >= 100.0 { 1 } else { 2 };
    format!("{value:.digits$}")
}

fn grouped(digits: &str) -> String {
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
    fn numbers_are_as_exact_as_they_can_be_read() {
        for (value, text) in [
            (0.0, "0"),
            (1.234, "1.23"),
            (93.44, "93.44"),
            (104.32, "104.3"),
            (322.0, "322"),
            (1234.6, "1,235"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(shown(value), text);
        }
    }

    #[test]
    fn a_case_has_a_row_for_each_configuration() {
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
    fn the_summary_is_a_row_for_each_quantity() {
        assert_eq!(
            summary(&report()).rows,
            [["syscalls", "getpid", "100 ns", "1.30x", "~3.00x"]]
        );
    }
}
