//! The second process: runs the cases, round by round, and leaves a report in the directory.

use std::env;
use std::fs;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

use super::component::{AUDITCTL, AUDITD, Component, packages};
use super::machine::{Machine, other_daemons};
use super::place::{Place, REPORT};
use super::report::{FORM, Goal, Measured, Quantity, Report, Series};
use super::state::State;
use super::variant::Variant;
use super::{Case, Options};
use crate::info;

/// What is missing for a case as a whole.
pub(crate) fn lacking(case: &dyn Case) -> Vec<Component> {
    absent(case.components())
}

/// What is missing to compare with the kernel's audit.
pub(crate) fn lacking_for_kernel() -> Vec<Component> {
    absent(&[AUDITD, AUDITCTL])
}

fn absent(components: &[Component]) -> Vec<Component> {
    let missing = components
        .iter()
        .filter(|component| component.path().is_none());
    missing.copied().collect()
}

/// Takes out what cannot be measured here; says what and why.
pub(crate) fn leave_out(options: &mut Options) -> Vec<String> {
    let mut left_out = Vec::new();
    let missing = lacking_for_kernel();
    if options.against.contains(&State::Kernel) && !missing.is_empty() {
        options.against.retain(|&state| state != State::Kernel);
        left_out.push(format!("the kernel's own audit: {}", named(&missing)));
    }
    options.cases.retain(|case| {
        let missing = lacking(*case);
        let why = if missing.is_empty() {
            case.forbidden()
        } else {
            Some(named(&missing))
        };
        left_out.extend(why.iter().map(|why| format!("{}: {why}", case.name())));
        why.is_none()
    });
    left_out
}

fn named(missing: &[Component]) -> String {
    let programs: Vec<String> = missing
        .iter()
        .map(|component| format!("`{}`", component.program))
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
/// When nothing can be measured; a case that fails is part of the report.
pub(crate) fn run(mut options: Options, work: &Path) -> anyhow::Result<()> {
    // Whoever started this puts things back: without it, nothing more may be changed.
    set_pdeathsig(Signal::SIGKILL).context("cannot ask to end with the first process")?;
    // The first process waits for signals with all of them blocked, which children inherit: daemons that
    // are started from here must be able to end.
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
        .context("cannot let signals through")?;
    let began = Instant::now();
    let left_out = leave_out(&mut options);
    let place = Place::make(work, &options.engine, options.fifo)?;
    let mut report = Report {
        form: FORM,
        version: format!("tollgate {}", env!("CARGO_PKG_VERSION")),
        command: command(),
        machine: Machine::of(work)?,
        runs: options.runs,
        left_out,
        ..Report::default()
    };
    if cfg!(debug_assertions) {
        report.left_out.push(
            "an optimised build: this one is for debugging, its figures are those of nothing"
                .into(),
        );
    }
    if options.brief {
        report
            .left_out
            .push("the figures: --brief shows that the cases work here, and no more".into());
    }
    for pid in other_daemons().context("cannot look for other daemons")? {
        report.left_out.push(format!(
            "a machine without audit: process {pid} is another tollgate, which `off` pays for as well"
        ));
    }
    let progress = Progress::new(&options, work);
    for case in &options.cases {
        match measure(*case, &options, &place, &progress) {
            Ok((measured, complaints)) => {
                report.cases.push(measured);
                report.complaints.extend(complaints);
            }
            Err(error) => report
                .complaints
                .push(format!("{}: {error:#}", case.name())),
        }
    }
    progress.0.finish_and_clear();
    report.seconds = began.elapsed().as_secs();
    report.summarise();
    let text = serde_json::to_vec_pretty(&report).context("cannot write the report down")?;
    fs::write(work.join(REPORT), text).context("cannot write the report")
}

/// The command line, without what the first process has added.
fn command() -> Vec<String> {
    let words = env::args().take_while(|word| word != "--measure").skip(1);
    let name = ["tollgate", "bench"].map(str::to_owned);
    name.into_iter().chain(words).collect()
}

/// Measures a case: all its variants in each round. Each round starts with another one, so that what
/// drifts, such as the clock rate of a warm CPU, favours none.
fn measure(
    case: &dyn Case,
    options: &Options,
    place: &Place,
    progress: &Progress,
) -> anyhow::Result<(Measured, Vec<String>)> {
    let variants = case.variants(options, &place.work);
    let mut measured = empty(case, &variants);
    let mut complaints = Vec::new();
    let mut said = Vec::new();
    for run in 0..options.runs {
        progress.round(case, run, options.runs);
        let first = usize::try_from(run).unwrap_or(0) % variants.len().max(1);
        for variant in variants.iter().cycle().skip(first).take(variants.len()) {
            let name = &variant.name;
            progress.variant(case, variant, run, options.runs);
            let sample = case
                .sample(place, variant, options.brief)
                .with_context(|| format!("{name}, run {}", run + 1))?;
            for (figure, value) in sample.values {
                put(&mut measured, figure, name, value);
            }
            for complaint in sample.complaints {
                complaints.push(format!(
                    "{}, {name}, run {}: {complaint}",
                    case.name(),
                    run + 1
                ));
            }
            if let Some(line) = sample.said.filter(|_| run == 0) {
                said.push(format!("{name}: {line}"));
            }
            progress.0.inc(u64::from(case.seconds()));
        }
    }
    measured.notes.extend(said);
    Ok((measured, complaints))
}

/// The case before anything is measured.
fn empty(case: &dyn Case, variants: &[Variant]) -> Measured {
    let figures = case.figures().iter().map(|figure| Quantity {
        name: figure.name.into(),
        unit: figure.unit.into(),
        better: figure.better,
        reference: figure.reference.into(),
        goals: figure
            .goals
            .iter()
            .map(|&(variant, bound)| Goal {
                variant: variant.into(),
                bound,
            })
            .collect(),
        variants: Vec::new(),
    });
    let rules = variants.iter().find(|variant| !variant.rules.is_empty());
    Measured {
        name: case.name().into(),
        about: case.about().into(),
        seed: case.seed().into(),
        notes: rules
            .map(|variant| format!("rules of {}:\n{}", variant.name, variant.rules.trim_end()))
            .into_iter()
            .collect(),
        figures: figures.collect(),
    }
}

/// Adds a value to the samples of a variant.
fn put(measured: &mut Measured, figure: &str, variant: &str, value: f64) {
    let Some(quantity) = measured.figures.iter_mut().find(|one| one.name == figure) else {
        return;
    };
    match quantity.variants.iter_mut().find(|one| one.name == variant) {
        Some(series) => series.samples.push(value),
        None => quantity.variants.push(Series {
            name: variant.to_owned(),
            samples: vec![value],
            summary: None,
        }),
    }
}

/// What is measured, and how long it will take.
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

    /// Where there is no terminal, a line for each round of a case is enough.
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
    use crate::find;

    #[test]
    fn samples_stand_in_the_order_of_the_rounds() {
        let case = find("fio").unwrap();
        let mut measured = empty(case, &[]);
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
        let text = named(&missing);
        assert_eq!(
            text,
            "`auditd`, `auditctl` missing; --install installs auditd"
        );
    }
}
