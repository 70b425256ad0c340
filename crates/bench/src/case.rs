//! The cases: what is measured, in which variants, with which programs.

mod burst;
mod delay;
mod fio;
mod idle;
mod loader;
mod peers;
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
use super::auditor::{self, AuditCost};
use super::programs::Program;
use super::report::{Better, Bound};
use super::variant::{AuditMode, Variant};
use super::work_dir::WorkDir;

/// A quantity that a case measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FigureSpec {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its unit.
    pub(crate) unit: &'static str,
    /// Whether more or less is better.
    pub(crate) better: Better,
    /// The variant that the others are divided by.
    pub(crate) reference: &'static str,
    /// Rows of the summary.
    pub(crate) headlines: &'static [HeadlineSpec],
    /// Bounds that variants must reach.
    pub(crate) goals: &'static [(&'static str, Bound)],
}

/// A row of the summary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadlineSpec {
    /// The rules, and whether they name the call.
    pub(crate) rules: &'static str,
    /// The variant in the column `tollgate`.
    pub(crate) tollgate: &'static str,
    /// The variant in the column `kernel`.
    pub(crate) kernel: &'static str,
    /// Whether the row is also in the picture.
    pub(crate) in_picture: bool,
}

impl FigureSpec {
    const fn less(name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            unit,
            better: Better::Less,
            reference: "off",
            headlines: &[],
            goals: &[],
        }
    }

    const fn more(name: &'static str, unit: &'static str) -> Self {
        Self {
            better: Better::More,
            ..Self::less(name, unit)
        }
    }

    const fn relative_to(self, reference: &'static str) -> Self {
        Self { reference, ..self }
    }

    const fn headlines(self, headlines: &'static [HeadlineSpec]) -> Self {
        Self { headlines, ..self }
    }

    const fn goals(self, goals: &'static [(&'static str, Bound)]) -> Self {
        Self { goals, ..self }
    }
}

impl HeadlineSpec {
    const fn new(rules: &'static str) -> Self {
        Self::of(rules, "tollgate", "kernel")
    }

    const fn of(rules: &'static str, tollgate: &'static str, kernel: &'static str) -> Self {
        Self {
            rules,
            tollgate,
            kernel,
            in_picture: false,
        }
    }

    const fn in_picture(self) -> Self {
        Self {
            in_picture: true,
            ..self
        }
    }
}

/// Stands for the workloads of eAudit on the command line.
pub(crate) const PEERS: &str = "peers";
/// Prefix of headlines about [`WorkDir::ten_rules`], which `--rules` replaces.
pub(crate) const TEN_RULES: &str = "ten rules";
/// Calls that none of the ten rules names.
const NOT_NAMED: &[HeadlineSpec] = &[HeadlineSpec::new("ten rules, none names it")];
const NOT_NAMED_PICTURED: &[HeadlineSpec] =
    &[HeadlineSpec::new("ten rules, none names it").in_picture()];
/// Calls that one rule records.
const RECORDED: &[HeadlineSpec] = &[HeadlineSpec::new("one rule records every call")];

/// One sample of one variant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// Values by figure name.
    pub(crate) values: Vec<(&'static str, f64)>,
    /// Missing events.
    pub(crate) failures: Vec<String>,
    /// The startup line of tollgate.
    pub(crate) startup_line: Option<String>,
}

/// A case.
pub(crate) trait Case: Debug + Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;
    /// What it measures, on one line.
    fn about(&self) -> &'static str;
    /// The public report that it reproduces.
    fn origin(&self) -> &'static str;
    /// Programs that it needs.
    fn programs(&self) -> &'static [Program] {
        &[]
    }
    /// Why the kernel does not allow it here.
    fn unavailable(&self) -> Option<String> {
        None
    }
    /// What a reader of its figures must know about this machine.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// The figures it measures.
    fn figures(&self) -> &'static [FigureSpec];
    /// The variants, with rules for this work directory.
    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant>;
    /// Estimated duration of a sample, for the progress bar.
    fn seconds(&self) -> u32;
    /// Takes one sample.
    ///
    /// # Errors
    /// Why it failed.
    fn sample(&self, work_dir: &WorkDir, variant: &Variant, brief: bool) -> anyhow::Result<Sample>;
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

/// The cases that run if none is named: all but those of [`PEERS`], which take minutes.
pub(crate) fn standard() -> impl Iterator<Item = &'static dyn Case> {
    CASES.into_iter()
}

/// The cases of the group [`PEERS`].
fn peers() -> impl Iterator<Item = &'static dyn Case> {
    peers::CASES.iter().map(|peer| {
        let case: &dyn Case = peer;
        case
    })
}

/// Whether a case belongs to the group [`PEERS`].
pub(crate) fn is_peer(case: &dyn Case) -> bool {
    peers().any(|peer| peer.name() == case.name())
}

/// All cases.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn Case> {
    standard().chain(peers())
}

/// The case of this name, or those of this group; none if the name is unknown.
pub(crate) fn with_name(name: &str) -> Vec<&'static dyn Case> {
    if name == PEERS {
        return peers().collect();
    }
    all().filter(|case| case.name() == name).collect()
}

/// The selected modes, with rules that match nothing.
fn unmatched_variants(options: &Options, work: &Path) -> Vec<Variant> {
    let rules = unmatched_rules(options, work);
    options
        .against
        .iter()
        .map(|&mode| Variant::plain(mode, if mode == AuditMode::Off { "" } else { &rules }))
        .collect()
}

/// Rules that match nothing most workloads do: the ten rules or those of `--rules`.
fn unmatched_rules(options: &Options, work: &Path) -> String {
    options
        .rules
        .clone()
        .unwrap_or_else(|| WorkDir::ten_rules(work))
}

/// Converts bytes to MiB.
fn mib(bytes: u64) -> f64 {
    let kib = u32::try_from(bytes / 1024).unwrap_or(u32::MAX);
    f64::from(kib) / 1024.0
}

/// Runs something while the variant audits.
fn with_audit<T>(
    work_dir: &WorkDir,
    variant: &Variant,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, AuditCost)> {
    let active = auditor::start(work_dir, variant)?;
    let done = work()?;
    Ok((done, active.stop()?))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use audit::rule::{Command, Severity, parse_file};
    use inputs::host::TestHost;

    use super::*;

    fn options() -> Options {
        Options {
            cases: all().collect(),
            against: vec![AuditMode::Off, AuditMode::Tollgate, AuditMode::Kernel],
            rules: None,
            runs: 3,
            engine: "auto".into(),
            eaudit: Some("/eaudit".into()),
            brief: false,
            fifo: false,
        }
    }

    #[test]
    fn each_case_is_found_by_its_name() {
        for case in all() {
            assert_eq!(with_name(case.name()).len(), 1, "{}", case.name());
        }
        assert!(with_name("frobnicate").is_empty());
        assert_eq!(with_name(PEERS).len(), 10);
        assert!(standard().all(|case| !case.name().starts_with("find")));
    }

    #[test]
    fn references_and_goals_name_variants() {
        for case in all() {
            let names: HashSet<String> = case
                .variants(&options(), Path::new("/w"))
                .into_iter()
                .map(|variant| variant.name)
                .collect();
            for parse_value in case.figures() {
                let work_dir = format!("{}, {}", case.name(), parse_value.name);
                assert!(names.contains(parse_value.reference), "{work_dir}");
                for (variant, _) in parse_value.goals {
                    assert!(names.contains(*variant), "{work_dir}: {variant}");
                }
            }
        }
    }

    #[test]
    fn without_the_kernel_its_audit_is_never_enabled() {
        let options = Options {
            against: vec![AuditMode::Off, AuditMode::Tollgate],
            ..options()
        };
        for case in all() {
            for variant in case.variants(&options, Path::new("/w")) {
                let mode = variant.mode;
                assert!(
                    matches!(
                        mode,
                        AuditMode::Off | AuditMode::Tollgate | AuditMode::Eaudit
                    ),
                    "{variant:?}"
                );
            }
        }
    }

    #[test]
    fn rules_of_cases_are_rules() {
        for case in all() {
            for variant in case.variants(&options(), Path::new("/w")) {
                let (lines, mut diagnostics) = parse_file(variant.rules.as_bytes(), &TestHost);
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
