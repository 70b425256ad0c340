//! The picture of the report: bars of `off`, tollgate, the kernel and eAudit for the headlines that ask for it.

use maud::{Markup, PreEscaped, html};

use super::table::{format_number, ratio};
use super::{Figure, Headline, Report, Series};
use crate::variant::AuditMode;

/// Name of the file, beside the report in Markdown.
pub(crate) const FILE: &str = "overhead.svg";
/// What the picture shows.
pub(crate) const TITLE: &str =
    "Time per operation without auditing, with tollgate, with the kernel's audit";

/// Sizes in pixels.
const WIDTH: f64 = 880.0;
const MARGIN: f64 = 16.0;
const NAMES: f64 = 90.0;
const VALUES: f64 = 190.0;
const TITLE_HEIGHT: f64 = 64.0;
const HEADING_HEIGHT: f64 = 26.0;
const BAR_HEIGHT: f64 = 16.0;
const ROW_HEIGHT: f64 = 20.0;
const GROUP_GAP: f64 = 18.0;
const FOOTER_HEIGHT: f64 = 44.0;
const LINE_HEIGHT: f64 = 18.0;
/// Characters of a line in the footer.
const LINE_CHARS: usize = 110;

/// The bars of a headline.
struct Group<'a> {
    case: &'a str,
    figure: &'a Figure,
    headline: &'a Headline,
    bars: Vec<(&'static str, &'a Series, f64)>,
}

/// Renders the picture as an SVG document.
pub(crate) fn render(report: &Report) -> String {
    let groups = groups(report);
    let mut y = TITLE_HEIGHT;
    let mut drawn = Vec::new();
    for group in &groups {
        drawn.push(draw_group(group, y));
        y += HEADING_HEIGHT + count(group.bars.len()) * ROW_HEIGHT + GROUP_GAP;
    }
    let height = y + FOOTER_HEIGHT;
    let scale = "Median; shorter is better. Each group has its own scale, which starts at zero.";
    let svg = html! {
        svg.overhead xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}"))
            width=(WIDTH) height=(height) role="img" aria-label=(TITLE) {
            title { (TITLE) }
            style { (PreEscaped(STYLE)) }
            rect.page width=(WIDTH) height=(height) {}
            text.title x=(MARGIN) y="28" { (TITLE) }
            text.note x=(MARGIN) y="48" { (scale) }
            @for group in drawn { (group) }
            @for (index, line) in wrap(&report.machine.describe()).into_iter().enumerate() {
                text.note x=(MARGIN) y=(y + 4.0 + count(index) * LINE_HEIGHT) { (line) }
            }
        }
    };
    svg.into_string() + "\n"
}

fn groups(report: &Report) -> Vec<Group<'_>> {
    let mut groups = Vec::new();
    for case in &report.cases {
        for figure in &case.figures {
            let pictured = figure
                .headlines
                .iter()
                .filter(|headline| headline.in_picture);
            groups.extend(pictured.map(|headline| Group {
                case: &case.name,
                figure,
                headline,
                bars: bars(figure, headline),
            }));
        }
    }
    groups
}

fn bars<'a>(figure: &'a Figure, headline: &Headline) -> Vec<(&'static str, &'a Series, f64)> {
    let names = [
        ("off", "off"),
        ("tollgate", headline.tollgate.as_str()),
        ("kernel", headline.kernel.as_str()),
        ("eaudit", AuditMode::Eaudit.name()),
    ];
    let bar = |(kind, name): (&'static str, &str)| {
        let series = figure.series(name)?;
        Some((kind, series, series.summarize()?.median))
    };
    names.into_iter().filter_map(bar).collect()
}

fn draw_group(group: &Group<'_>, top: f64) -> Markup {
    let longest = group.bars.iter().map(|(_, _, median)| *median);
    let longest = longest.fold(f64::MIN_POSITIVE, f64::max);
    let room = WIDTH - 2.0 * MARGIN - NAMES - VALUES;
    let left = MARGIN + NAMES;
    html! {
        g {
            text x=(MARGIN) y=(top + 16.0) {
                tspan.heading { (group.case) ": " (group.figure.name) }
                tspan.note dx="10" { (group.headline.rules) }
            }
            @for (index, (kind, series, median)) in group.bars.iter().enumerate() {
                @let y = top + HEADING_HEIGHT + count(index) * ROW_HEIGHT;
                @let length = round(room * median / longest);
                g.(kind) {
                    text.name x=(left - 10.0) y=(y + 12.0) text-anchor="end" { (kind) }
                    rect.bar x=(left) y=(y) width=(length) height=(BAR_HEIGHT) {}
                    text.value x=(left + length + 8.0) y=(y + 12.0) {
                        (format_number(*median)) " " (group.figure.unit)
                        " " (ratio(group.figure, series))
                    }
                }
            }
        }
    }
}

/// Breaks a list into lines after commas.
fn wrap(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for part in text.split_inclusive(", ") {
        let full = lines.last().map_or(0, String::len) + part.len() > LINE_CHARS;
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(part);
        }
    }
    lines
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(0.0, f64::from)
}

/// To a tenth of a pixel.
fn round(length: f64) -> f64 {
    (length * 10.0).round() / 10.0
}

/// The page in HTML holds the picture, so its rules are for the picture alone.
const STYLE: &str = "
.overhead .page{fill:#fff}.overhead text{fill:#1f2328;font:13px system-ui,sans-serif}
.overhead .title{font-size:17px;font-weight:600}.overhead .heading{font-weight:600}
.overhead .note{fill:#59636e;font-size:12px}
.overhead .off .bar{fill:#8c959f}.overhead .tollgate .bar{fill:#1a7f5a}.overhead .kernel .bar{fill:#c2491d}
.overhead .eaudit .bar{fill:#7048c8}
@media (prefers-color-scheme:dark){.overhead .page{fill:#0d1117}.overhead text{fill:#e6edf3}.overhead .note{fill:#9198a1}}
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn bars_are_as_long_as_medians() {
        let svg = render(&report());
        let room = WIDTH - 2.0 * MARGIN - NAMES - VALUES;
        for part in [
            "syscalls: getpid",
            "ten rules, none names it",
            &format!("width=\"{room}\""),
            &format!("width=\"{}\"", round(room / 3.0)),
            "130 ns 1.30x",
            "300 ns ~3.00x",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert_eq!(svg.matches("class=\"bar\"").count(), 3);
    }

    #[test]
    fn details_are_not_drawn() {
        let mut report = report();
        report.cases[0].figures[0].headlines[0].in_picture = false;
        assert!(!render(&report).contains("class=\"bar\""));
    }
}
