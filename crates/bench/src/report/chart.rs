//! Charts: a dot for each sample, in rows of variants, on a scale that starts at zero.
//!
//! The SVG is a template of lines, dots and text. Plotting crates need a script, a font or a rasteriser for this.

use maud::{Markup, html};

use super::table::{format_number, ratio};
use super::{Better, Figure, Series};
use crate::statistics::Summary;

/// Sizes in pixels.
const WIDTH: f64 = 880.0;
const NAMES: f64 = 330.0;
const VALUES: f64 = 190.0;
const ROW: f64 = 26.0;
const MARGIN: f64 = 14.0;
/// Height of the scale below the rows.
const SCALE: f64 = 26.0;
/// Number of intervals on the scale.
const TICKS: u32 = 4;

/// Draws the chart of a figure.
pub(super) fn of(figure: &Figure) -> Markup {
    let rows: Vec<&Series> = figure
        .variants
        .iter()
        .filter(|series| !series.samples.is_empty())
        .collect();
    let most = rows
        .iter()
        .filter_map(|series| Summary::of(&series.samples))
        .map(|summary| summary.most)
        .fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    let scale = Scale { most };
    let count = u32::try_from(rows.len()).map_or(0.0, f64::from);
    let bottom = MARGIN + count * ROW;
    let height = bottom + SCALE;
    let hint = match figure.better {
        Better::Less => "less is better",
        Better::More => "more is better",
    };
    let title = format!("{}, {}: {hint}", figure.name, figure.unit);
    html! {
        svg.chart viewBox=(format!("0 0 {WIDTH} {height}")) width=(WIDTH) height=(height)
            role="img" aria-label=(title) xmlns="http://www.w3.org/2000/svg" {
            title { (title) }
            @for tick in 0..=TICKS {
                (self::tick(&scale, f64::from(tick) / f64::from(TICKS), bottom))
            }
            @if let Some(median) = reference(figure) {
                line.reference x1=(scale.x(median)) x2=(scale.x(median)) y1=(MARGIN / 2.0) y2=(bottom) {}
            }
            @for (series, index) in rows.iter().zip(0_u32..) {
                (row(figure, series, &scale, MARGIN + (f64::from(index) + 0.5) * ROW))
            }
        }
    }
}

fn reference(figure: &Figure) -> Option<f64> {
    let series = figure.series(&figure.reference)?;
    Summary::of(&series.samples).map(|summary| summary.median)
}

/// Maps values to positions.
struct Scale {
    most: f64,
}

impl Scale {
    fn x(&self, value: f64) -> f64 {
        let room = WIDTH - NAMES - VALUES;
        ((NAMES + room * value / self.most) * 10.0).round() / 10.0
    }
}

fn tick(scale: &Scale, part: f64, bottom: f64) -> Markup {
    let value = scale.most * part;
    let x = scale.x(value);
    html! {
        line.tick x1=(x) x2=(x) y1=(MARGIN) y2=(bottom + 4.0) {}
        text.scale x=(x) y=(bottom + 18.0) text-anchor="middle" { (format_number(value)) }
    }
}

/// Name, samples, median, value.
fn row(figure: &Figure, series: &Series, scale: &Scale, middle: f64) -> Markup {
    let Some(summary) = Summary::of(&series.samples) else {
        return Markup::default();
    };
    let kind = match series.name.split([',', ' ']).next() {
        Some("tollgate" | "run" | "fentry") => "tollgate",
        Some("kernel") => "kernel",
        Some("eaudit") => "eaudit",
        _ => "off",
    };
    let compared = ratio(figure, series);
    html! {
        g.series.(kind) {
            text.name x=(NAMES - 10.0) y=(middle + 4.0) text-anchor="end" { (series.name) }
            line.range x1=(scale.x(summary.least)) x2=(scale.x(summary.most)) y1=(middle) y2=(middle) {}
            rect.median x=(scale.x(summary.median) - 1.5) y=(middle - 8.0) width="3" height="16" {}
            @for sample in &series.samples {
                circle.sample cx=(scale.x(*sample)) cy=(middle) r="3" {}
            }
            text.value x=(WIDTH - VALUES + 12.0) y=(middle + 4.0) {
                (format_number(summary.median)) " " (compared)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Bound;
    use crate::report::tests::figure;

    #[test]
    fn every_sample_is_a_dot_and_every_configuration_a_row() {
        let svg = of(&figure(Bound::EqualsReference)).into_string();
        assert_eq!(svg.matches("<circle").count(), 9);
        assert_eq!(svg.matches("class=\"name\"").count(), 3);
        assert_eq!(svg.matches("class=\"median\"").count(), 3);
        assert!(svg.contains("getpid, ns: less is better"));
    }

    #[test]
    fn scale_spans_zero_to_the_maximum() {
        let scale = Scale { most: 200.0 };
        assert_eq!(scale.x(0.0), NAMES);
        assert_eq!(scale.x(200.0), WIDTH - VALUES);
        assert_eq!(scale.x(100.0), NAMES.midpoint(WIDTH - VALUES));
    }
}
