//! Statistics of a few rounds: median, spread, outliers, and whether two samples differ.
//!
//! Five samples support no model. Variants are measured in turn, so a difference counts if it has the same
//! direction in every round.

use serde::Serialize;

/// Median, minimum and maximum of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// The median.
    pub(crate) median: f64,
    /// The minimum.
    pub(crate) least: f64,
    /// The maximum.
    pub(crate) most: f64,
}

impl Summary {
    /// `None` for an empty sample.
    pub(crate) fn of(sample: &[f64]) -> Option<Self> {
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: middle(&sorted)?,
            least: *sorted.first()?,
            most: *sorted.last()?,
        })
    }

    /// Range divided by the median.
    pub(crate) fn spread(&self) -> f64 {
        if self.median == 0.0 {
            return 0.0;
        }
        (self.most - self.least) / self.median
    }
}

/// Nearest-rank percentile; `part` is 0.99 for the 99th.
pub(crate) fn percentile(sample: &[f64], part: f64) -> Option<f64> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let within = |index: usize| {
        let (rank, all) = (u32::try_from(index + 1), u32::try_from(sorted.len()));
        rank.is_ok_and(|rank| f64::from(rank) >= part * all.map_or(0.0, f64::from))
    };
    let index = (0..sorted.len()).find(|&index| within(index))?;
    sorted.get(index).copied()
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// Modified z-score above which a value is an outlier.
const OUTLIER_SCORE: f64 = 3.5;
/// 0.6745, the upper quartile of the standard normal distribution.
const SCALE: f64 = 0.6745;

/// Number of outliers: values with a modified z-score above 3.5.
///
/// # Source
/// Iglewicz and Hoaglin, How to detect and handle outliers, 1993.
pub(crate) fn outliers(sample: &[f64]) -> usize {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(median) = middle(&sorted) else {
        return 0;
    };
    let mut deviations: Vec<f64> = sorted.iter().map(|value| (value - median).abs()).collect();
    deviations.sort_by(f64::total_cmp);
    match middle(&deviations) {
        Some(mad) if mad > 0.0 => deviations
            .iter()
            .filter(|&&deviation| SCALE * deviation / mad > OUTLIER_SCORE)
            .count(),
        _ => 0,
    }
}

/// How a variant compares with the reference over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Above the reference in every round.
    More,
    /// Below the reference in every round.
    Less,
    /// Equal to the reference in every round.
    Equal,
    /// The rounds disagree: the difference may be noise.
    Unclear,
}

/// Compares two samples round by round.
pub(crate) fn direction(sample: &[f64], reference: &[f64]) -> Direction {
    let mut rounds = sample
        .iter()
        .zip(reference)
        .map(|(own, other)| own.total_cmp(other));
    let Some(first) = rounds.next() else {
        return Direction::Unclear;
    };
    if !rounds.all(|round| round == first) {
        return Direction::Unclear;
    }
    match first {
        std::cmp::Ordering::Greater => Direction::More,
        std::cmp::Ordering::Less => Direction::Less,
        std::cmp::Ordering::Equal => Direction::Equal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_one_of_the_values() {
        let sample: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        for (part, value) in [(0.5, 100.0), (0.99, 198.0), (1.0, 200.0)] {
            assert_eq!(percentile(&sample, part), Some(value));
        }
        assert_eq!(percentile(&[7.0], 0.99), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn median_is_the_middle_or_between_the_two_middles() {
        let median = |sample: &[f64]| Summary::of(sample).unwrap().median;
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 100.0, 2.0]), 3.0);
    }

    #[test]
    fn summary_has_extremes_and_is_none_without_values() {
        let summary = Summary::of(&[3.0, -1.0, 2.0]).unwrap();
        assert_eq!((summary.least, summary.most), (-1.0, 3.0));
        assert_eq!(summary.spread(), 2.0);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn spread_of_zeros_is_none() {
        assert_eq!(Summary::of(&[0.0, 0.0]).unwrap().spread(), 0.0);
    }

    #[test]
    fn outliers_are_far_from_the_others() {
        assert_eq!(outliers(&[10.0, 10.5, 9.5, 10.2, 9.8, 30.0]), 1);
        assert_eq!(outliers(&[10.0, 10.5, 9.5, 10.2, 9.8]), 0);
        assert_eq!(
            outliers(&[5.0, 5.0, 5.0, 5.0, 9.0]),
            0,
            "no deviation, no measure"
        );
        assert_eq!(outliers(&[]), 0);
    }

    #[test]
    fn one_disagreeing_round_makes_the_difference_unclear() {
        let off = [100.0, 110.0, 90.0];
        assert_eq!(direction(&[101.0, 111.0, 91.0], &off), Direction::More);
        assert_eq!(direction(&[99.0, 109.0, 89.0], &off), Direction::Less);
        assert_eq!(direction(&off, &off), Direction::Equal);
        assert_eq!(direction(&[300.0, 109.0, 300.0], &off), Direction::Unclear);
        assert_eq!(direction(&[], &off), Direction::Unclear);
    }
}
