//! The cases: what is measured, in which configurations, with which programs.

mod burst;
mod delay;
mod fio;
mod idle;
mod loader;
mod pressure;
mod redis;
mod rules;
mod run;
mod sysbench;
mod syscalls;
mod uring;

use std::fmt::Debug;
use std::path::Path;

use super::Options;
use super::component::Component;
use super::place::Place;
use super::report::{Better, Bound};
use super::state::{self, Spent, State};
use super::variant::Variant;

/// A quantity that a case measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    /// What it is.
    pub(crate) name: &'static str,
    /// In what.
    pub(crate) unit: &'static str,
    /// What is wanted of it.
    pub(crate) better: Better,
    /// The variant that others are divided by.
    pub(crate) reference: &'static str,
    /// What variants must reach, next to the reference.
    pub(crate) goals: &'static [(&'static str, Bound)],
}

impl Figure {
    const fn less(name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            unit,
            better: Better::Less,
            reference: "off",
            goals: &[],
        }
    }

    const fn more(name: &'static str, unit: &'static str) -> Self {
        Self {
            better: Better::More,
            ..Self::less(name, unit)
        }
    }

    const fn beside(self, reference: &'static str) -> Self {
        Self { reference, ..self }
    }

    const fn goals(self, goals: &'static [(&'static str, Bound)]) -> Self {
        Self { goals, ..self }
    }
}

/// One measurement of one variant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// Values, by the name of the figure.
    pub(crate) values: Vec<(&'static str, f64)>,
    /// What must not be: events that are missing.
    pub(crate) complaints: Vec<String>,
    /// The line in which tollgate says what it does.
    pub(crate) said: Option<String>,
}

/// Something to measure.
pub(crate) trait Case: Debug + Sync {
    /// The word for it on the command line.
    fn name(&self) -> &'static str;
    /// What it measures, in one line.
    fn about(&self) -> &'static str;
    /// The public report that it is about.
    fn seed(&self) -> &'static str;
    /// Programs that it needs, beside those of the states.
    fn components(&self) -> &'static [Component] {
        &[]
    }
    /// Why the kernel does not let it run here.
    fn forbidden(&self) -> Option<String> {
        None
    }
    /// What it measures.
    fn figures(&self) -> &'static [Figure];
    /// The configurations that are measured in turn, with their rules for that directory.
    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant>;
    /// About how long one measurement takes: for the bar that says how much is left.
    fn seconds(&self) -> u32;
    /// Measures once.
    ///
    /// # Errors
    /// What kept it from being measured.
    fn sample(&self, place: &Place, variant: &Variant, brief: bool) -> anyhow::Result<Sample>;
}

/// In the order in which they run.
const CASES: [&dyn Case; 12] = [
    &syscalls::Syscalls,
    &fio::Fio,
    &uring::Uring,
    &sysbench::Sysbench,
    &redis::Redis,
    &loader::Loader,
    &delay::Delay,
    &pressure::Pressure,
    &idle::Idle,
    &rules::Rules,
    &burst::Burst,
    &run::Run,
];

/// All cases.
pub(crate) fn listing() -> impl Iterator<Item = &'static dyn Case> {
    CASES.into_iter()
}

/// The case of this name.
pub(crate) fn find(name: &str) -> Option<&'static dyn Case> {
    listing().find(|case| case.name() == name)
}

/// The named states, in which calls are measured that rules do not keep.
fn plain(options: &Options, work: &Path) -> Vec<Variant> {
    let rules = unkept_rules(options, work);
    options
        .against
        .iter()
        .map(|&state| Variant::plain(state, if state == State::Off { "" } else { &rules }))
        .collect()
}

/// Rules that keep none of what most workloads do: the ten, or the user's.
fn unkept_rules(options: &Options, work: &Path) -> String {
    options
        .rules
        .clone()
        .unwrap_or_else(|| Place::ten_rules(work))
}

/// Bytes, as people read them.
fn mib(bytes: u64) -> f64 {
    let kib = u32::try_from(bytes / 1024).unwrap_or(u32::MAX);
    f64::from(kib) / 1024.0
}

/// Does something in the state of a variant.
fn in_state<T>(
    place: &Place,
    variant: &Variant,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Spent)> {
    let entered = state::enter(place, variant)?;
    let done = work()?;
    Ok((done, entered.leave()?))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use audit::ids::Arch;
    use audit::rule::{Command, Host, Severity, parse_file};

    use super::*;

    /// A machine without users.
    struct NoNames;

    impl Host for NoNames {
        fn uid(&self, _name: &[u8]) -> Option<u32> {
            None
        }

        fn gid(&self, _name: &[u8]) -> Option<u32> {
            None
        }

        fn is_directory(&self, _path: &[u8]) -> bool {
            false
        }

        fn native(&self) -> Arch {
            Arch::X86_64
        }
    }

    fn options() -> Options {
        Options {
            cases: listing().collect(),
            against: vec![State::Off, State::Tollgate, State::Kernel],
            rules: None,
            runs: 3,
            engine: "auto".into(),
            brief: false,
            fifo: false,
        }
    }

    #[test]
    fn each_case_is_found_by_its_name() {
        for case in listing() {
            assert_eq!(find(case.name()).unwrap().name(), case.name());
        }
        assert!(find("frobnicate").is_none());
    }

    #[test]
    fn references_and_goals_name_variants() {
        for case in listing() {
            let names: HashSet<String> = case
                .variants(&options(), Path::new("/w"))
                .into_iter()
                .map(|variant| variant.name)
                .collect();
            for figure in case.figures() {
                let place = format!("{}, {}", case.name(), figure.name);
                assert!(names.contains(figure.reference), "{place}");
                for (variant, _) in figure.goals {
                    assert!(names.contains(*variant), "{place}: {variant}");
                }
            }
        }
    }

    #[test]
    fn without_the_kernel_its_audit_is_never_enabled() {
        let options = Options {
            against: vec![State::Off, State::Tollgate],
            ..options()
        };
        for case in listing() {
            for variant in case.variants(&options, Path::new("/w")) {
                let state = variant.state;
                assert!(matches!(state, State::Off | State::Tollgate), "{variant:?}");
            }
        }
    }

    #[test]
    fn rules_of_cases_are_rules() {
        for case in listing() {
            for variant in case.variants(&options(), Path::new("/w")) {
                let (lines, mut diagnostics) = parse_file(variant.rules.as_bytes(), &NoNames);
                diagnostics.retain(|finding| finding.severity == Severity::Error);
                assert_eq!(diagnostics, [], "{}", variant.name);
                let rules = lines
                    .iter()
                    .filter(|line| matches!(line.command, Command::Add { .. }))
                    .count();
                assert_eq!(rules, variant.rules.lines().count(), "{}", variant.name);
            }
        }
    }
}
