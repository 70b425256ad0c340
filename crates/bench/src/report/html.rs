//! The report as one HTML page without scripts or external resources.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::table::{self, LEGEND, Table};
use super::{CaseReport, Report, chart, picture};

/// Renders the whole page.
pub(crate) fn render(report: &Report) -> String {
    let summary = table::summary(report);
    let goals = table::goals(report);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { "tollgate bench" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Overhead of auditing" }
                p { (report.machine.describe()) }
                p { code { (report.command.join(" ")) } ", " (report.version) ", " (report.runs) " runs" }
                @if !summary.rows.is_empty() {
                    (PreEscaped(picture::render(report)))
                    (draw(&summary, "summary"))
                    p { (LEGEND) }
                }
                @for case in &report.cases { (of_case(case)) }
                (list("Skipped", &report.skipped))
                (list("Failed", &report.failures))
                @if !goals.rows.is_empty() {
                    h2 { "Goals" }
                    (draw(&goals, "goals"))
                }
            }
        }
    };
    page.into_string()
}

fn of_case(case: &CaseReport) -> Markup {
    html! {
        section.case id=(case.name) {
            h2 { (case.name) }
            p { (case.about) }
            p.origin { "Origin: " (case.origin) }
            @for figure in &case.figures {
                h3 { (figure.name) ", " (figure.unit) }
                (chart::of(figure))
            }
            (draw(&table::of_case(case), "details"))
            ul.warnings { @for warning in case.warnings() { li { (warning) } } }
            details {
                summary { "Rules and notes" }
                @for note in &case.notes { pre { (note) } }
            }
        }
    }
}

fn list(heading: &str, lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            h2 { (heading) }
            ul { @for line in lines { li { (line) } } }
        }
    }
}

fn draw(table: &Table, class: &str) -> Markup {
    html! {
        table.(class) {
            thead { tr { @for cell in &table.heading { th { (cell) } } } }
            tbody {
                @for row in &table.rows {
                    tr { @for cell in row { td { (cell) } } }
                }
            }
        }
    }
}

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8886; --off: #888; --tollgate: #1a7f5a; --kernel: #c2491d; --eaudit: #7048c8 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; display: block; overflow-x: auto }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line) }
.origin, .warnings { color: var(--off) }
.chart { max-width: 100%; height: auto; font: 13px system-ui, sans-serif }
.chart text { fill: currentColor }
.chart .scale { fill: var(--off); font-size: 11px }
.chart .tick { stroke: var(--line) }
.chart .reference { stroke: var(--off); stroke-dasharray: 3 3 }
.off { --own: var(--off) } .tollgate { --own: var(--tollgate) } .kernel { --own: var(--kernel) }
.eaudit { --own: var(--eaudit) }
.series .range { stroke: var(--own); stroke-width: 2 }
.series .median { fill: var(--own) }
.series .sample { fill: var(--own); fill-opacity: .45 }
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn page_has_no_external_resources() {
        let page = render(&report());
        for forbidden in ["<script", "src=", "@import", "url(", "<link", "href="] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.contains("single calls &lt;&amp;&gt;"), "{page}");
        assert_eq!(page.matches("<svg").count(), 2);
    }
}
