//! What was measured: the form of `--json`, and what follows from it.
//!
//! Samples are kept as they were taken, in the order of the rounds; medians and ratios are worked out from
//! them wherever they are shown. Instruction counts of `cargo xtask vm` have the same form.

pub(crate) mod chart;
pub(crate) mod markdown;
pub(crate) mod page;
mod table;
pub(crate) mod text;

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::statistics::{Direction, Summary, direction, outliers};

/// Number of the form; one that is changed gets another.
pub(crate) const FORM: u32 = 1;

/// Spread of the reference above which the machine was not quiet.
const QUIET: f64 = 0.1;
/// Rounds below which nothing can be said about noise.
const FEW: usize = 3;

/// A benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    /// [`FORM`].
    pub(crate) form: u32,
    /// Version of tollgate.
    pub(crate) version: String,
    /// Words of the command line.
    pub(crate) command: Vec<String>,
    /// Where it ran.
    pub(crate) machine: Machine,
    /// Rounds.
    pub(crate) runs: u32,
    /// How long it took.
    pub(crate) seconds: u64,
    /// What was measured.
    pub(crate) cases: Vec<Measured>,
    /// What was not, and why.
    pub(crate) left_out: Vec<String>,
    /// What must not be: events that are missing, cases that failed.
    pub(crate) complaints: Vec<String>,
}

/// A case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Its name.
    pub(crate) name: String,
    /// What it measures.
    pub(crate) about: String,
    /// The public report that it is about.
    pub(crate) seed: String,
    /// Rules, and what tollgate said when it had attached.
    pub(crate) notes: Vec<String>,
    /// What was measured.
    pub(crate) figures: Vec<Quantity>,
}

/// A quantity, in all configurations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantity {
    /// What it is.
    pub(crate) name: String,
    /// In what.
    pub(crate) unit: String,
    /// What is wanted of it.
    pub(crate) better: Better,
    /// The variant that others are divided by.
    pub(crate) reference: String,
    /// What variants must reach.
    pub(crate) goals: Vec<Goal>,
    /// The configurations.
    pub(crate) variants: Vec<Series>,
}

/// A configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    /// Its name.
    pub(crate) name: String,
    /// One value for each round.
    pub(crate) samples: Vec<f64>,
    /// Worked out from them, for programs that read the report; not read back.
    #[serde(skip_deserializing)]
    pub(crate) summary: Option<Summary>,
}

/// What is wanted of a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// A price.
    #[default]
    Less,
    /// A yield.
    More,
}

/// What a variant must reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Goal {
    /// Its name.
    pub(crate) variant: String,
    /// How much.
    pub(crate) bound: Bound,
}

/// A bound on a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// The median, divided by that of the reference, to two decimals, at most this.
    AtMost(f64),
    /// The median, divided by that of the reference, to two decimals, at least this.
    AtLeast(f64),
    /// This and nothing else, in every round.
    Exactly(f64),
    /// That of the reference and nothing else, in every round.
    Equal,
    /// The median itself, at most this.
    Most(f64),
    /// At least this, in every round.
    Least(f64),
}

/// How a configuration compares with the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Comparison {
    /// Median by median.
    pub(crate) ratio: f64,
    /// What the rounds agree on.
    pub(crate) direction: Direction,
}

impl Quantity {
    /// The configuration of this name.
    pub(crate) fn series(&self, name: &str) -> Option<&Series> {
        self.variants.iter().find(|series| series.name == name)
    }

    /// Compares a configuration with the reference; `None` for the reference itself, and without one.
    pub(crate) fn compare(&self, series: &Series) -> Option<Comparison> {
        let reference = self.series(&self.reference)?;
        if series.name == reference.name {
            return None;
        }
        let (own, other) = (
            Summary::of(&series.samples)?,
            Summary::of(&reference.samples)?,
        );
        (other.median != 0.0).then(|| Comparison {
            ratio: own.median / other.median,
            direction: direction(&series.samples, &reference.samples),
        })
    }

    /// The outcome of each goal: the text, and whether it is reached.
    pub(crate) fn outcomes(&self) -> Vec<(String, bool)> {
        self.goals
            .iter()
            .filter_map(|goal| {
                let series = self.series(&goal.variant)?;
                let (found, wanted, reached) = self.judge(series, goal.bound)?;
                let text = format!("{}, {}: {found}, {wanted}", self.name, goal.variant);
                Some((text, reached))
            })
            .collect()
    }

    fn judge(&self, series: &Series, bound: Bound) -> Option<(String, String, bool)> {
        // What is shown is what is judged: two decimals, of which the second is noise already.
        let ratio = || {
            let ratio = self.compare(series)?.ratio;
            Some((ratio * 100.0).round() / 100.0)
        };
        let all = |wanted: f64| {
            let same = |value: &f64| value.total_cmp(&wanted).is_eq();
            series.samples.iter().all(same)
        };
        let of_reference = |ratio: f64| format!("{ratio:.2}x of {}", self.reference);
        Some(match bound {
            Bound::AtMost(most) => {
                let ratio = ratio()?;
                (
                    of_reference(ratio),
                    format!("at most {most}x"),
                    ratio <= most,
                )
            }
            Bound::AtLeast(least) => {
                let ratio = ratio()?;
                (
                    of_reference(ratio),
                    format!("at least {least}x"),
                    ratio >= least,
                )
            }
            Bound::Exactly(wanted) => {
                let least = Summary::of(&series.samples)?.least;
                let found = format!("{least} {}", self.unit);
                (found, format!("exactly {wanted}"), all(wanted))
            }
            Bound::Most(most) => {
                let median = Summary::of(&series.samples)?.median;
                let found = format!("{median:.2} {}", self.unit);
                (found, format!("at most {most}"), median <= most)
            }
            Bound::Least(wanted) => {
                let least = Summary::of(&series.samples)?.least;
                let found = format!("{least:.2} {} or more", self.unit);
                (found, format!("at least {wanted}"), least >= wanted)
            }
            Bound::Equal => {
                let reference = Summary::of(&self.series(&self.reference)?.samples)?.median;
                let own = Summary::of(&series.samples)?.median;
                let wanted = format!("exactly {reference}");
                (format!("{own} {}", self.unit), wanted, all(reference))
            }
        })
    }

    /// What makes the figures doubtful.
    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let Some(reference) = self.series(&self.reference) else {
            return doubts;
        };
        let spread = Summary::of(&reference.samples).map_or(0.0, |summary| summary.spread());
        if spread > QUIET {
            doubts.push(format!(
                "{}: `{}` itself varies by {:.0} %: something else was running",
                self.name,
                self.reference,
                spread * 100.0
            ));
        }
        for series in &self.variants {
            let outlying = outliers(&series.samples);
            if outlying != 0 {
                doubts.push(format!(
                    "{}, {}: {outlying} of {} runs lie far from the others",
                    self.name,
                    series.name,
                    series.samples.len()
                ));
            }
            let unclear = self
                .compare(series)
                .is_some_and(|comparison| comparison.direction == Direction::Unclear);
            if unclear && series.samples.len() >= FEW {
                doubts.push(format!(
                    "{}, {}: above `{}` in some runs and below it in others: no difference is shown",
                    self.name, series.name, self.reference
                ));
            }
        }
        doubts
    }
}

impl Measured {
    /// What makes the figures doubtful.
    pub(crate) fn doubts(&self) -> Vec<String> {
        self.figures.iter().flat_map(Quantity::doubts).collect()
    }
}

impl Report {
    /// Fills in what is worked out from samples.
    pub(crate) fn summarise(&mut self) {
        for quantity in self.cases.iter_mut().flat_map(|case| &mut case.figures) {
            for series in &mut quantity.variants {
                series.summary = Summary::of(&series.samples);
            }
        }
    }

    /// Outcomes of all goals, with the case that they are of.
    pub(crate) fn outcomes(&self) -> Vec<(String, bool)> {
        self.cases
            .iter()
            .flat_map(|case| {
                let named = |(text, reached)| (format!("{}: {text}", case.name), reached);
                case.figures
                    .iter()
                    .flat_map(Quantity::outcomes)
                    .map(named)
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Adds the cases of another report, such as instruction counts of a virtual machine.
    pub(crate) fn add(&mut self, other: Self) {
        for mut case in other.cases {
            let from = format!("measured by {}: {}", other.version, other.machine.line());
            case.notes.insert(0, from);
            self.cases.push(case);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn quantity(bound: Bound) -> Quantity {
        let series = |name: &str, samples: &[f64]| Series {
            name: name.into(),
            samples: samples.into(),
            summary: None,
        };
        Quantity {
            name: "getpid".into(),
            unit: "ns".into(),
            better: Better::Less,
            reference: "off".into(),
            goals: vec![Goal {
                variant: "tollgate".into(),
                bound,
            }],
            variants: vec![
                series("off", &[100.0, 101.0, 99.0]),
                series("tollgate", &[130.0, 131.0, 129.0]),
                series("kernel", &[300.0, 98.0, 310.0]),
            ],
        }
    }

    pub(crate) fn report() -> Report {
        Report {
            form: FORM,
            version: "tollgate 0.1.0".into(),
            command: vec![
                "tollgate".into(),
                "bench".into(),
                "--runs".into(),
                "3".into(),
            ],
            runs: 3,
            cases: vec![Measured {
                name: "syscalls".into(),
                about: "single calls <&>".into(),
                seed: "a report".into(),
                notes: vec!["rules: -a always,exit -S openat".into()],
                figures: vec![quantity(Bound::AtMost(1.4))],
            }],
            left_out: vec!["fio: `fio` is missing".into()],
            ..Report::default()
        }
    }

    #[test]
    fn ratios_are_of_medians_and_rounds_must_agree() {
        let quantity = quantity(Bound::Equal);
        let compare = |name| quantity.compare(quantity.series(name).unwrap());
        assert_eq!(compare("off"), None);
        let tollgate = compare("tollgate").unwrap();
        assert_eq!((tollgate.ratio, tollgate.direction), (1.3, Direction::More));
        assert_eq!(compare("kernel").unwrap().direction, Direction::Unclear);
    }

    #[test]
    fn goals_are_reached_or_missed() {
        for (bound, reached) in [
            (Bound::AtMost(1.3), true),
            (Bound::AtMost(1.29), false),
            (Bound::AtLeast(1.3), true),
            (Bound::AtLeast(1.31), false),
            (Bound::Exactly(130.0), false),
            (Bound::Most(130.0), true),
            (Bound::Most(129.9), false),
            (Bound::Least(129.0), true),
            (Bound::Least(129.5), false),
            (Bound::Equal, false),
        ] {
            let outcomes = quantity(bound).outcomes();
            assert_eq!(outcomes.len(), 1, "{bound:?}");
            assert_eq!(outcomes[0].1, reached, "{bound:?}");
        }
        let mut near = quantity(Bound::AtMost(1.3));
        for (added, reached) in [(0.4, true), (0.6, false)] {
            for series in near
                .variants
                .iter_mut()
                .filter(|series| series.name == "tollgate")
            {
                series.samples = vec![130.0 + added; 3];
            }
            assert_eq!(near.outcomes()[0].1, reached, "{added}");
        }
        let mut same = quantity(Bound::Equal);
        for series in &mut same.variants {
            series.samples = vec![322.0; 2];
        }
        assert!(same.outcomes()[0].1);
    }

    #[test]
    fn noise_is_told() {
        let doubts = quantity(Bound::Equal).doubts();
        assert_eq!(doubts.len(), 2, "{doubts:?}");
        assert!(
            doubts[0].contains("kernel: 1 of 3 runs lie far"),
            "{doubts:?}"
        );
        assert!(doubts[1].contains("kernel") && doubts[1].contains("no difference"));
        let mut noisy = quantity(Bound::Equal);
        noisy.variants[0].samples = vec![100.0, 150.0, 90.0];
        let doubts = noisy.doubts();
        assert!(doubts[0].contains("varies by 60 %"), "{doubts:?}");
    }

    #[test]
    fn a_report_is_read_back_and_added() {
        let mut written = report();
        written.summarise();
        let text = serde_json::to_string(&written).unwrap();
        assert!(text.contains("\"median\":130.0"), "{text}");
        let read: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(read, report());
        let mut both = report();
        both.add(read);
        assert_eq!(both.cases.len(), 2);
        assert!(both.cases[1].notes[0].contains("tollgate 0.1.0"));
    }
}
