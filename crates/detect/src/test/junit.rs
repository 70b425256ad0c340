//! Results of cases as `JUnit` writes them.
//!
//! # Source
//! The schema of the Apache Ant task, `testsuite` with `testcase`, `failure` and `error`, which CI systems read.

use super::{Outcome, Report};
use crate::sigma::one_line;

/// The results as an XML document.
pub(super) fn document(reports: &[Report]) -> String {
    let count = |name: &str| {
        let named = reports
            .iter()
            .filter(|report| report.outcome.name() == name);
        named.count()
    };
    let seconds: f64 = reports
        .iter()
        .map(|report| report.elapsed.as_secs_f64())
        .sum();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"tollgate-detect\" tests=\"{}\" failures=\"{}\" \
         errors=\"{}\" time=\"{seconds:.3}\">\n",
        reports.len(),
        count("failed"),
        count("error"),
    );
    for report in reports {
        let path = report.path.to_string_lossy();
        let name = escaped(&path);
        let seconds = report.elapsed.as_secs_f64();
        let case =
            format!("  <testcase classname=\"detect\" name=\"{name}\" time=\"{seconds:.3}\"");
        let element = match report.outcome {
            Outcome::Passed => {
                text.extend([case, "/>\n".to_owned()]);
                continue;
            }
            Outcome::Failed(_) => "failure",
            Outcome::Error(_) => "error",
        };
        let reasons = report.outcome.reasons().iter();
        let reasons: Vec<String> = reasons.map(|reason| escaped(reason)).collect();
        let first = reasons.first().map_or("", String::as_str);
        text.extend([format!(
            "{case}>\n    <{element} message=\"{first}\">{}</{element}>\n  </testcase>\n",
            reasons.join("\n")
        )]);
    }
    text.push_str("</testsuite>\n");
    text
}

/// Text for content and attributes, without characters that XML cannot have.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in one_line(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}
