//! Goals: bounds on figures, and whether a report reaches them.

use serde::{Deserialize, Serialize};

use super::{Figure, Series};
use crate::variant::AuditMode;

/// A bound that a variant must reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Goal {
    /// Name of the variant.
    pub(crate) variant: String,
    /// The bound.
    pub(crate) bound: Bound,
}

/// A bound on a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// The ratio of the medians, rounded to two decimals, is at most this.
    RatioAtMost(f64),
    /// The ratio of the medians, rounded to two decimals, is at most that of eAudit, or this if eAudit was not
    /// measured.
    RatioAtMostEaudit(f64),
    /// The ratio of the medians, rounded to two decimals, is at least this.
    RatioAtLeast(f64),
    /// Each sample has this value.
    Exactly(f64),
    /// Each sample has the median of the reference.
    EqualsReference,
    /// The median is at most this.
    ValueAtMost(f64),
    /// Each sample is at least this.
    ValueAtLeast(f64),
}

/// A goal that was evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoalResult {
    /// The goal and the measured value.
    pub(crate) text: String,
    /// Whether the value is within the bound.
    pub(crate) reached: bool,
}

impl Figure {
    /// Evaluates the goals; those of variants that were not measured are left out.
    pub(crate) fn goal_results(&self) -> Vec<GoalResult> {
        let evaluate = |goal: &Goal| {
            let series = self.series(&goal.variant)?;
            let (found, bound, reached) = self.evaluate(series, goal.bound)?;
            Some(GoalResult {
                text: format!("{}, {}: {found}, {bound}", self.name, goal.variant),
                reached,
            })
        };
        self.goals.iter().filter_map(evaluate).collect()
    }

    /// The value, the bound, and whether it is reached.
    fn evaluate(&self, series: &Series, bound: Bound) -> Option<(String, String, bool)> {
        // The rounded ratio that the report shows is the one that counts.
        let ratio_of =
            |series: &Series| Some((self.compare(series)?.ratio * 100.0).round() / 100.0);
        let ratio = || ratio_of(series);
        let of_reference = |ratio: f64| format!("{ratio:.2}x of {}", self.reference);
        let summary = series.summarize()?;
        let all = |value: f64| {
            series
                .samples
                .iter()
                .all(|own| own.total_cmp(&value).is_eq())
        };
        let unit = &self.unit;
        Some(match bound {
            Bound::RatioAtMost(most) => {
                let ratio = ratio()?;
                (
                    of_reference(ratio),
                    format!("at most {most}x"),
                    ratio <= most,
                )
            }
            Bound::RatioAtMostEaudit(published) => {
                let ratio = ratio()?;
                let eaudit = self.series(AuditMode::Eaudit.name()).and_then(ratio_of);
                let (most, measured) = match eaudit {
                    Some(measured) => (measured, "in this run"),
                    None => (published, "measured earlier"),
                };
                (
                    of_reference(ratio),
                    format!("at most {most}x, that of eAudit {measured}"),
                    ratio <= most,
                )
            }
            Bound::RatioAtLeast(least) => {
                let ratio = ratio()?;
                (
                    of_reference(ratio),
                    format!("at least {least}x"),
                    ratio >= least,
                )
            }
            Bound::Exactly(value) => {
                let found = format!("{} {unit}", summary.least);
                (found, format!("exactly {value}"), all(value))
            }
            Bound::ValueAtMost(most) => {
                let found = format!("{:.2} {unit}", summary.median);
                (found, format!("at most {most}"), summary.median <= most)
            }
            Bound::ValueAtLeast(least) => {
                let found = format!("{:.2} {unit} or more", summary.least);
                (found, format!("at least {least}"), summary.least >= least)
            }
            Bound::EqualsReference => {
                let reference = self.series(&self.reference)?.summarize()?.median;
                let found = format!("{} {unit}", summary.median);
                (found, format!("exactly {reference}"), all(reference))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::figure;

    #[test]
    fn goals_are_reached_or_missed() {
        for (bound, reached) in [
            (Bound::RatioAtMost(1.3), true),
            (Bound::RatioAtMost(1.29), false),
            (Bound::RatioAtMostEaudit(1.3), true),
            (Bound::RatioAtMostEaudit(1.29), false),
            (Bound::RatioAtLeast(1.3), true),
            (Bound::RatioAtLeast(1.31), false),
            (Bound::Exactly(130.0), false),
            (Bound::ValueAtMost(130.0), true),
            (Bound::ValueAtMost(129.9), false),
            (Bound::ValueAtLeast(129.0), true),
            (Bound::ValueAtLeast(129.5), false),
            (Bound::EqualsReference, false),
        ] {
            let goal_results = figure(bound).goal_results();
            assert_eq!(goal_results.len(), 1, "{bound:?}");
            assert_eq!(goal_results[0].reached, reached, "{bound:?}");
        }
        let mut near = figure(Bound::RatioAtMost(1.3));
        for (added, reached) in [(0.4, true), (0.6, false)] {
            for series in near
                .variants
                .iter_mut()
                .filter(|series| series.name == "tollgate")
            {
                series.samples = vec![130.0 + added; 3];
            }
            assert_eq!(near.goal_results()[0].reached, reached, "{added}");
        }
        let mut beside = figure(Bound::RatioAtMostEaudit(9.9));
        beside.variants[2].name = "eaudit".into();
        for (samples, reached) in [([129.0; 3], false), ([130.0; 3], true)] {
            beside.variants[2].samples = samples.into();
            let result = &beside.goal_results()[0];
            assert_eq!(result.reached, reached, "{result:?}");
            assert!(
                result.text.ends_with("that of eAudit in this run"),
                "{result:?}"
            );
        }
        let mut same = figure(Bound::EqualsReference);
        for series in &mut same.variants {
            series.samples = vec![322.0; 2];
        }
        assert!(same.goal_results()[0].reached);
    }
}
