//! The measuring process: runs the cases round by round and writes the report.

use std::env;
use std::fs;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

use super::case::{HeadlineSpec, TEN_RULES};
use super::machine::{Machine, other_daemons};
use super::programs::{AUDITCTL, AUDITD, Program, packages};
use super::report::{CaseReport, FORM, Figure, Goal, Headline, Report, Series};
use super::variant::AuditMode;
use super::variant::Variant;
use super::work_dir::{REPORT, WorkDir};
use super::{Case, Options};
use crate::info;

/// Programs that a case lacks.
pub(crate) fn missing_programs(case: &dyn Case) -> Vec<Program> {
    not_installed(case.programs())
}

/// Programs that the mode `kernel` lacks.
pub(crate) fn missing_for_kernel() -> Vec<Program> {
    not_installed(&[AUDITD, AUDITCTL])
}

fn not_installed(programs: &[Program]) -> Vec<Program> {
    let missing = programs.iter().filter(|program| program.path().is_none());
    missing.copied().collect()
}

/// Removes what cannot be measured here; returns the reasons.
pub(crate) fn skip_unavailable(options: &mut Options) -> Vec<String> {
    let mut skipped = Vec::new();
    let missing = missing_for_kernel();
    if options.against.contains(&AuditMode::Kernel) && !missing.is_empty() {
        options.against.retain(|&mode| mode != AuditMode::Kernel);
        skipped.push(format!(
            "the kernel's own audit: {}",
            describe_missing(&missing)
        ));
    }
    options.cases.retain(|case| {
        let missing = missing_programs(*case);
        let why = if missing.is_empty() {
            case.unavailable()
        } else {
            Some(describe_missing(&missing))
        };
        skipped.extend(why.iter().map(|why| format!("{}: {why}", case.name())));
        why.is_none()
    });
    skipped
}

fn describe_missing(missing: &[Program]) -> String {
    let programs: Vec<String> = missing
        .iter()
        .map(|program| format!("`{}`", program.program))
        .collect();
    format!(
        "{} missing; --install installs {}",
        programs.join(", "),
        packages(missing).join(", ")
    )
}

/// Measures everything.
///
/// # Errors
/// When nothing can be measured. A failed case is part of the report instead.
pub(crate) fn run(mut options: Options, work: &Path) -> anyhow::Result<()> {
    // Only the supervisor restores: without it nothing more may be changed.
    set_pdeathsig(Signal::SIGKILL).context("cannot set the parent death signal")?;
    // Children inherit the signals that the supervisor blocks; daemons need them to stop.
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
        .context("cannot unblock signals")?;
    let began = Instant::now();
    let skipped = skip_unavailable(&mut options);
    let work_dir = WorkDir::create(work, &options)?;
    let mut report = Report {
        form: FORM,
        version: format!("tollgate {}", env!("CARGO_PKG_VERSION")),
        command: command(),
        machine: Machine::detect(work)?,
        runs: options.runs,
        skipped,
        ..Report::default()
    };
    if cfg!(debug_assertions) {
        report
            .skipped
            .push("an optimised build: this is a debug build, its figures mean nothing".into());
    }
    if options.brief {
        report
            .skipped
            .push("the figures: --brief only checks that the cases work here".into());
    }
    for pid in other_daemons().context("cannot find other daemons")? {
        report.skipped.push(format!(
            "an unaudited machine: process {pid} is another tollgate, which adds overhead to `off` too"
        ));
    }
    let progress = Progress::new(&options, work);
    for case in &options.cases {
        match measure(*case, &options, &work_dir, &progress) {
            Ok((measured, failures)) => {
                report.cases.push(measured);
                report.failures.extend(failures);
            }
            Err(error) => report.failures.push(format!("{}: {error:#}", case.name())),
        }
    }
    progress.0.finish_and_clear();
    report.seconds = began.elapsed().as_secs();
    report.summarize();
    let text = serde_json::to_vec_pretty(&report).context("cannot encode the report")?;
    fs::write(work.join(REPORT), text).context("cannot write the report")
}

/// The command line of the user, without `--measure`.
fn command() -> Vec<String> {
    let words = env::args().take_while(|word| word != "--measure").skip(1);
    let name = ["tollgate", "bench"].map(str::to_owned);
    name.into_iter().chain(words).collect()
}

/// Measures all variants in each round. Each round starts with another variant, so that drift, such as the clock
/// rate of a warm CPU, favours none.
fn measure(
    case: &dyn Case,
    options: &Options,
    work_dir: &WorkDir,
    progress: &Progress,
) -> anyhow::Result<(CaseReport, Vec<String>)> {
    let variants = case.variants(options, &work_dir.work);
    let mut measured = empty(case, &variants, options);
    let mut failures = Vec::new();
    let mut startup_lines = Vec::new();
    for run in 0..options.runs {
        progress.round(case, run, options.runs);
        let first = usize::try_from(run).unwrap_or(0) % variants.len().max(1);
        for variant in variants.iter().cycle().skip(first).take(variants.len()) {
            let name = &variant.name;
            progress.variant(case, variant, run, options.runs);
            let sample = case
                .sample(work_dir, variant, options.brief)
                .with_context(|| format!("{name}, run {}", run + 1))?;
            for (figure, value) in sample.values {
                put(&mut measured, figure, name, value);
            }
            for failure in sample.failures {
                failures.push(format!(
                    "{}, {name}, run {}: {failure}",
                    case.name(),
                    run + 1
                ));
            }
            if let Some(line) = sample.startup_line.filter(|_| run == 0) {
                startup_lines.push(format!("{name}: {line}"));
            }
            progress.0.inc(u64::from(case.seconds()));
        }
    }
    measured.notes.extend(startup_lines);
    measured.notes.extend(case.notes());
    Ok((measured, failures))
}

/// The case before the first measurement.
fn empty(case: &dyn Case, variants: &[Variant], options: &Options) -> CaseReport {
    let headline = |headline: &HeadlineSpec| Headline {
        rules: match &options.rules {
            Some(_) if headline.rules.starts_with(TEN_RULES) => "those of --rules".to_owned(),
            _ => headline.rules.to_owned(),
        },
        tollgate: headline.tollgate.to_owned(),
        kernel: headline.kernel.to_owned(),
        in_picture: headline.in_picture,
    };
    let figures = case.figures().iter().map(|figure| Figure {
        name: figure.name.into(),
        unit: figure.unit.into(),
        better: figure.better,
        reference: figure.reference.into(),
        headlines: figure.headlines.iter().map(headline).collect(),
        // The figures of a brief run mean nothing.
        goals: figure
            .goals
            .iter()
            .filter(|_| !options.brief)
            .map(|&(variant, bound)| Goal {
                variant: variant.into(),
                bound,
            })
            .collect(),
        variants: Vec::new(),
    });
    let rules = variants.iter().find(|variant| !variant.rules.is_empty());
    CaseReport {
        name: case.name().into(),
        about: case.about().into(),
        origin: case.origin().into(),
        notes: rules
            .map(|variant| format!("rules of {}:\n{}", variant.name, variant.rules.trim_end()))
            .into_iter()
            .collect(),
        figures: figures.collect(),
    }
}

/// Adds a sample to a variant.
fn put(measured: &mut CaseReport, figure: &str, variant: &str, value: f64) {
    let Some(figure) = measured.figures.iter_mut().find(|one| one.name == figure) else {
        return;
    };
    match figure.variants.iter_mut().find(|one| one.name == variant) {
        Some(series) => series.samples.push(value),
        None => figure.variants.push(Series {
            name: variant.to_owned(),
            samples: vec![value],
            summary: None,
        }),
    }
}

/// The progress bar.
struct Progress(ProgressBar);

impl Progress {
    fn new(options: &Options, work: &Path) -> Self {
        let seconds = options.cases.iter().map(|case| {
            let variants = u64::try_from(case.variants(options, work).len()).unwrap_or(0);
            variants * u64::from(case.seconds()) * u64::from(options.runs)
        });
        let bar = ProgressBar::new(seconds.sum());
        let template = "{elapsed} [{bar:30}] {percent}%, about {eta} left: {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_secs(1));
        Self(bar)
    }

    /// Without a terminal, prints one line per round.
    fn round(&self, case: &dyn Case, run: u32, runs: u32) {
        if !std::io::stderr().is_terminal() {
            info(&format!("{}, run {} of {runs}", case.name(), run + 1));
        }
    }

    fn variant(&self, case: &dyn Case, variant: &Variant, run: u32, runs: u32) {
        self.0.set_message(format!(
            "{}, run {} of {runs}, {}",
            case.name(),
            run + 1,
            variant.name
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::with_name;

    fn options(rules: Option<&str>) -> Options {
        Options {
            cases: Vec::new(),
            against: Vec::new(),
            rules: rules.map(str::to_owned),
            runs: 1,
            engine: "auto".into(),
            eaudit: None,
            brief: false,
            fifo: false,
        }
    }

    #[test]
    fn headlines_say_when_the_ten_rules_were_replaced() {
        let case = with_name("fio")[0];
        let rules = |options: &Options| {
            let report = empty(case, &[], options);
            report.figures[0].headlines[0].rules.clone()
        };
        assert_eq!(rules(&options(None)), "ten rules, none names it");
        assert_eq!(rules(&options(Some("-w /x\n"))), "those of --rules");
    }

    #[test]
    fn brief_runs_have_no_goals_to_miss() {
        let case = with_name("fio")[0];
        let goals = |brief| {
            let options = Options {
                brief,
                ..options(None)
            };
            empty(case, &[], &options).figures[0].goals.len()
        };
        assert_eq!((goals(false), goals(true)), (1, 0));
    }

    #[test]
    fn samples_keep_the_order_of_rounds() {
        let case = with_name("fio")[0];
        let mut measured = empty(case, &[], &options(None));
        for value in [3.0, 1.0, 2.0] {
            put(&mut measured, "reads", "off", value);
        }
        put(&mut measured, "reads", "kernel", 1.0);
        let reads = &measured.figures[0];
        assert_eq!(reads.variants.len(), 2);
        assert_eq!(reads.series("off").unwrap().samples, [3.0, 1.0, 2.0]);
    }

    #[test]
    fn missing_programs_are_named_with_their_packages() {
        let missing = [AUDITD, AUDITCTL];
        let text = describe_missing(&missing);
        assert_eq!(
            text,
            "`auditd`, `auditctl` missing; --install installs auditd"
        );
    }
}
