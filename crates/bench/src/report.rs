//! The report: the format of `--json`, and what is computed from it.
//!
//! The file keeps all samples, in the order of the rounds; medians, ratios and warnings are computed when a
//! report is shown. `cargo xtask vm` writes its instruction counts in the same format.

pub(crate) mod chart;
mod goal;
pub(crate) mod html;
pub(crate) mod markdown;
pub(crate) mod picture;
mod table;
pub(crate) mod terminal;

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::statistics::{Direction, Summary, direction, outliers};

pub(crate) use goal::{Bound, Goal, GoalResult};

/// Version of the format.
pub(crate) const FORM: u32 = 2;

/// Spread of the reference above which the machine counts as noisy.
const NOISY_SPREAD: f64 = 0.1;
/// Fewer rounds say nothing about noise.
const MIN_RUNS: usize = 3;

/// A benchmark run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    /// [`FORM`].
    pub(crate) form: u32,
    /// Version of tollgate.
    pub(crate) version: String,
    /// The command line.
    pub(crate) command: Vec<String>,
    /// Where it ran.
    pub(crate) machine: Machine,
    /// Number of rounds.
    pub(crate) runs: u32,
    /// Duration in seconds.
    pub(crate) seconds: u64,
    /// Results.
    pub(crate) cases: Vec<CaseReport>,
    /// Cases that were skipped, and other reservations.
    pub(crate) skipped: Vec<String>,
    /// Missing events and failed cases.
    pub(crate) failures: Vec<String>,
}

/// Results of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseReport {
    /// Name on the command line.
    pub(crate) name: String,
    /// What the case measures.
    pub(crate) about: String,
    /// The public report that the case reproduces.
    pub(crate) origin: String,
    /// Rules, and the startup lines of tollgate.
    pub(crate) notes: Vec<String>,
    /// Results.
    pub(crate) figures: Vec<Figure>,
}

/// A quantity in all configurations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Its name.
    pub(crate) name: String,
    /// Its unit.
    pub(crate) unit: String,
    /// Whether more or less is better.
    pub(crate) better: Better,
    /// The variant that the others are divided by.
    pub(crate) reference: String,
    /// Rows of the summary; none for details.
    #[serde(default)]
    pub(crate) headlines: Vec<Headline>,
    /// Bounds.
    pub(crate) goals: Vec<Goal>,
    /// One series for each configuration.
    pub(crate) variants: Vec<Series>,
}

/// A row of the summary: which variants stand for tollgate and the kernel, and under which rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Headline {
    /// The rules, and whether they name the call.
    pub(crate) rules: String,
    /// The variant in the column `tollgate`.
    pub(crate) tollgate: String,
    /// The variant in the column `kernel`.
    pub(crate) kernel: String,
    /// Whether the row is also in the picture.
    #[serde(default)]
    pub(crate) in_picture: bool,
}

/// The samples of a variant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    /// Name of the variant.
    pub(crate) name: String,
    /// One value per round.
    pub(crate) samples: Vec<f64>,
    /// Computed from the samples, for other programs; ignored when a report is read.
    #[serde(skip_deserializing)]
    pub(crate) summary: Option<Summary>,
}

/// Which direction is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// Costs.
    #[default]
    Less,
    /// Throughput.
    More,
}

/// A variant compared with the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Comparison {
    /// Median divided by median.
    pub(crate) ratio: f64,
    /// Whether the rounds agree.
    pub(crate) direction: Direction,
}

impl Series {
    /// Median, minimum and maximum.
    pub(crate) fn summarize(&self) -> Option<Summary> {
        Summary::of(&self.samples)
    }
}

impl Figure {
    /// The variant of this name.
    pub(crate) fn series(&self, name: &str) -> Option<&Series> {
        self.variants.iter().find(|series| series.name == name)
    }

    /// Compares a variant with the reference; `None` for the reference itself and without one.
    pub(crate) fn compare(&self, series: &Series) -> Option<Comparison> {
        let reference = self.series(&self.reference)?;
        if series.name == reference.name {
            return None;
        }
        let (own, other) = (series.summarize()?, reference.summarize()?);
        (other.median != 0.0).then(|| Comparison {
            ratio: own.median / other.median,
            direction: direction(&series.samples, &reference.samples),
        })
    }

    /// What makes the figures doubtful.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let Some(reference) = self.series(&self.reference) else {
            return warnings;
        };
        let spread = reference
            .summarize()
            .map_or(0.0, |summary| summary.spread());
        if spread > NOISY_SPREAD {
            warnings.push(format!(
                "{}: `{}` itself varies by {:.0} %: the machine was not idle",
                self.name,
                self.reference,
                spread * 100.0
            ));
        }
        for series in &self.variants {
            let outlying = outliers(&series.samples);
            if outlying != 0 {
                warnings.push(format!(
                    "{}, {}: {outlying} of {} runs are outliers",
                    self.name,
                    series.name,
                    series.samples.len()
                ));
            }
            let unclear = self
                .compare(series)
                .is_some_and(|comparison| comparison.direction == Direction::Unclear);
            if unclear && series.samples.len() >= MIN_RUNS {
                warnings.push(format!(
                    "{}, {}: above `{}` in some runs and below it in others: no significant difference",
                    self.name, series.name, self.reference
                ));
            }
        }
        warnings
    }
}

impl CaseReport {
    /// What makes the figures doubtful.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.figures.iter().flat_map(Figure::warnings).collect()
    }
}

impl Report {
    /// Computes the summary of each series.
    pub(crate) fn summarize(&mut self) {
        for figure in self.cases.iter_mut().flat_map(|case| &mut case.figures) {
            for series in &mut figure.variants {
                series.summary = series.summarize();
            }
        }
    }

    /// Whether a variant of this name was measured.
    fn measured(&self, name: &str) -> bool {
        let mut figures = self.cases.iter().flat_map(|case| &case.figures);
        figures.any(|figure| figure.series(name).is_some())
    }

    /// Evaluates all goals.
    pub(crate) fn goal_results(&self) -> Vec<GoalResult> {
        let of_case = |case: &CaseReport| {
            let figures = case.figures.iter().flat_map(Figure::goal_results);
            let named = figures.map(|result| GoalResult {
                text: format!("{}: {}", case.name, result.text),
                ..result
            });
            named.collect::<Vec<_>>()
        };
        self.cases.iter().flat_map(of_case).collect()
    }

    /// Appends the cases of another report, such as instruction counts of a virtual machine.
    pub(crate) fn add(&mut self, other: Self) {
        for mut case in other.cases {
            let from = format!(
                "measured by {}: {}",
                other.version,
                other.machine.describe()
            );
            case.notes.insert(0, from);
            self.cases.push(case);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn figure(bound: Bound) -> Figure {
        let series = |name: &str, samples: &[f64]| Series {
            name: name.into(),
            samples: samples.into(),
            summary: None,
        };
        Figure {
            name: "getpid".into(),
            unit: "ns".into(),
            better: Better::Less,
            reference: "off".into(),
            headlines: vec![Headline {
                rules: "ten rules, none names it".into(),
                tollgate: "tollgate".into(),
                kernel: "kernel".into(),
                in_picture: true,
            }],
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
            cases: vec![CaseReport {
                name: "syscalls".into(),
                about: "single calls <&>".into(),
                origin: "a report".into(),
                notes: vec!["rules: -a always,exit -S openat".into()],
                figures: vec![figure(Bound::RatioAtMost(1.4))],
            }],
            skipped: vec!["fio: `fio` is missing".into()],
            ..Report::default()
        }
    }

    #[test]
    fn ratios_are_of_medians_and_rounds_must_agree() {
        let figure = figure(Bound::EqualsReference);
        let compare = |name| figure.compare(figure.series(name).unwrap());
        assert_eq!(compare("off"), None);
        let tollgate = compare("tollgate").unwrap();
        assert_eq!((tollgate.ratio, tollgate.direction), (1.3, Direction::More));
        assert_eq!(compare("kernel").unwrap().direction, Direction::Unclear);
    }

    #[test]
    fn noise_is_reported() {
        let warnings = figure(Bound::EqualsReference).warnings();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings[0].contains("kernel: 1 of 3 runs are outliers"),
            "{warnings:?}"
        );
        assert!(
            warnings[1].contains("kernel") && warnings[1].contains("no significant difference")
        );
        let mut noisy = figure(Bound::EqualsReference);
        noisy.variants[0].samples = vec![100.0, 150.0, 90.0];
        let warnings = noisy.warnings();
        assert!(warnings[0].contains("varies by 60 %"), "{warnings:?}");
    }

    #[test]
    fn report_parses_back_and_its_cases_are_appended() {
        let mut written = report();
        written.summarize();
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
