//! The picture of the stages: a bar for each call, in parts.

use maud::{PreEscaped, html};

use super::stage::{Counts, Stage};

/// What the picture shows.
const TITLE: &str = "Instructions that auditing adds to a call, by stage";
const SCALE: &str = "Engine fentry, Linux 6.12, ten rules. Beside each call: what is added, and to how many of its own.";

/// Sizes in pixels.
const WIDTH: usize = 880;
const MARGIN: usize = 16;
const BARS: usize = WIDTH - 2 * MARGIN;
const TITLE_HEIGHT: usize = 76;
const BAR_HEIGHT: usize = 22;
const CALL_HEIGHT: usize = 66;
const KEY_HEIGHT: usize = 22;
/// The narrowest part that has its number in it.
const NUMBERED: usize = 34;

/// A part of a bar.
struct Part {
    stage: Stage,
    count: usize,
    left: usize,
    width: usize,
}

/// Draws the calls as an SVG document.
pub(super) fn draw(followed: &[(String, Counts)]) -> String {
    let longest = followed.iter().map(|(_, counts)| counts.added()).max();
    let longest = longest.unwrap_or_default().max(1);
    let keys = TITLE_HEIGHT + followed.len() * CALL_HEIGHT;
    let stages = || Stage::ALL.iter().filter(|stage| **stage != Stage::Call);
    let height = keys + stages().count().div_ceil(2) * KEY_HEIGHT + MARGIN;
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}"))
            width=(WIDTH) height=(height) role="img" aria-label=(TITLE) {
            title { (TITLE) }
            style { (PreEscaped(STYLE)) }
            rect.page width=(WIDTH) height=(height) {}
            text.title x=(MARGIN) y="28" { (TITLE) }
            text.note x=(MARGIN) y="48" { (SCALE) }
            @for (place, (call, counts)) in followed.iter().enumerate() {
                @let top = TITLE_HEIGHT + place * CALL_HEIGHT;
                text x=(MARGIN) y=(top + 12) {
                    tspan.heading { (call) }
                    tspan.note dx="10" { "+" (counts.added()) ", to " (counts.of(Stage::Call)) }
                }
                @for part in parts(counts, longest) {
                    rect fill=(color(part.stage)) x=(part.left) y=(top + 20)
                        width=(part.width) height=(BAR_HEIGHT) {
                        title { (part.stage.title()) ": " (part.count) }
                    }
                    @if part.width >= NUMBERED {
                        text.number x=(part.left + part.width / 2) y=(top + 36) { (part.count) }
                    }
                }
            }
            @for (place, stage) in stages().enumerate() {
                @let left = MARGIN + place % 2 * (BARS / 2);
                @let top = keys + place / 2 * KEY_HEIGHT;
                rect fill=(color(*stage)) x=(left) y=(top) width="12" height="12" {}
                text x=(left + 20) y=(top + 11) { (stage.title()) }
            }
        }
    };
    svg.into_string() + "\n"
}

/// The parts of the bar of a call; `longest` instructions take the whole width.
fn parts(counts: &Counts, longest: usize) -> Vec<Part> {
    let mut before = 0;
    let mut parts = Vec::new();
    for stage in Stage::ALL.into_iter().filter(|stage| *stage != Stage::Call) {
        let count = counts.of(stage);
        let [start, end] = [before, before + count].map(|sum| sum * BARS / longest);
        before += count;
        parts.push(Part {
            stage,
            count,
            left: MARGIN + start,
            width: end - start,
        });
    }
    parts
}

const fn color(stage: Stage) -> &'static str {
    match stage {
        Stage::Enter => "#57606a",
        Stage::Gate => "#0969da",
        Stage::Watches => "#1a7f5a",
        Stage::State => "#9a6700",
        Stage::Facts => "#8250df",
        Stage::Rules => "#bf3989",
        Stage::Paths => "#c2491d",
        Stage::Event => "#0e7490",
        Stage::Ring => "#82071e",
        Stage::Call => "#8c959f",
    }
}

const STYLE: &str = "
.page{fill:#fff}text{fill:#1f2328;font:13px system-ui,sans-serif}
.title{font-size:17px;font-weight:600}.heading{font-weight:600}
.note{fill:#59636e;font-size:12px}.number{fill:#fff;font-size:12px;text-anchor:middle}
@media (prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3}.note{fill:#9198a1}}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_long_as_their_counts() {
        let counts = |stages: &[(Stage, usize)]| Counts {
            by_stage: stages.iter().copied().collect(),
            ..Counts::default()
        };
        let svg = draw(&[
            ("open & close".to_owned(), counts(&[(Stage::Call, 9000)])),
            (
                "openat".to_owned(),
                counts(&[(Stage::Enter, 250), (Stage::Ring, 750)]),
            ),
        ]);
        for part in [
            "open &amp; close",
            "+1000, to 0",
            "+0, to 9000",
            &format!("width=\"{}\"", BARS / 4),
            &format!("width=\"{}\"", BARS - BARS / 4),
            ">750<",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }
}
