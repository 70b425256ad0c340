//! Figures of several rounds: their median, and how far they lie apart.

/// Median and extremes of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Summary {
    /// `None` when there is nothing to summarise.
    pub(super) fn of(sample: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sample: Vec<f64> = sample.into_iter().collect();
        sample.sort_by(f64::total_cmp);
        let (least, most) = (*sample.first()?, *sample.last()?);
        let upper = *sample.get(sample.len() / 2)?;
        let lower = *sample.get((sample.len() - 1) / 2)?;
        Some(Self {
            median: f64::midpoint(lower, upper),
            least,
            most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_or_between_the_two_middles() {
        let median = |sample: &[f64]| Summary::of(sample.iter().copied()).unwrap().median;
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 100.0, 2.0]), 3.0);
    }

    #[test]
    fn extremes_are_kept_and_nothing_has_no_summary() {
        let summary = Summary::of([3.0, -1.0, 2.0]).unwrap();
        assert_eq!((summary.least, summary.most), (-1.0, 3.0));
        assert_eq!(Summary::of([]), None);
    }
}
