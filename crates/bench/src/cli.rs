//! `tollgate bench`: measures what auditing costs on this machine.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use crate::component::{self, Component};
use crate::guard::{self, Ended};
use crate::keeper;
use crate::place;
use crate::report::{FORM, Report, markdown, page, text};
use crate::{Case, Options, State, find, info, listing, measure, workload};

/// Exit status of a user without the rights, as `auditctl` has it.
const NOT_ROOT: u8 = 4;

/// Measures what auditing costs on this machine, next to none and to the kernel's own.
#[derive(Debug, clap::Parser)]
#[command(name = "tollgate-bench", version, max_term_width = 100)]
pub(crate) struct Args {
    /// What to measure [default: all; see --list]
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// What to compare: off, kernel (its own audit with auditd) and tollgate
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "off,kernel,tollgate"
    )]
    against: Vec<String>,
    /// Rules in place of the ten that name nothing that most cases do
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Measurements of each configuration, taken in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// How tollgate is to see syscalls
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = ["auto", "fentry", "tracepoint"])]
    engine: String,
    /// Writes the report with all samples, for programs
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the report as one page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes the report as documentation
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Adds the cases of a report in JSON that was made elsewhere, such as instruction counts
    #[arg(long, value_name = "FILE")]
    add: Vec<PathBuf>,
    /// Measures nothing: shows a report in JSON
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cases", "rules"])]
    show: Option<PathBuf>,
    /// Lists the cases and what they lack here
    #[arg(long)]
    list: bool,
    /// Installs the Debian packages that the cases lack
    #[arg(long)]
    install: bool,
    /// Puts back what a benchmark that was killed has left changed
    #[arg(long)]
    restore: bool,
    /// A missed goal is a failure
    #[arg(long)]
    goals: bool,
    /// Shows in seconds that everything works here; the figures mean nothing
    #[arg(long)]
    brief: bool,
    /// Runs own workloads before all ordinary programs (`SCHED_FIFO`), on a busy machine
    #[arg(long)]
    fifo: bool,
    /// Measures, in that directory; for the first process
    #[arg(long, value_name = "DIR", hide = true)]
    measure: Option<PathBuf>,
    /// Puts things back when the first process is killed; for that process
    #[arg(long, hide = true)]
    keep: bool,
    /// Runs a workload; for the second process
    #[arg(long, hide = true, value_name = "WORD", num_args = 1.., exclusive = true)]
    workload: Vec<String>,
}

/// Measures, or does what is asked instead.
///
/// # Errors
/// What kept it from measuring, or could not be put back.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.workload.is_empty() {
        workload::run(&args.workload)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.list {
        return list();
    }
    if let Some(file) = &args.show {
        return finish(args, read(file)?);
    }
    let mut options = options(args)?;
    if !geteuid().is_root() {
        info("measuring needs root: it loads audit rules and BPF programs, and starts daemons");
        return Ok(ExitCode::from(NOT_ROOT));
    }
    if args.restore {
        guard::restore()?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.keep {
        keeper::keep()?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(work) = &args.measure {
        measure::run(options, work)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.install {
        install(&options)?;
    }
    for line in measure::leave_out(&mut options) {
        info(&format!("left out: {line}"));
    }
    if options.cases.is_empty() {
        bail!("no case can be measured here");
    }
    let words: Vec<OsString> = std::env::args_os()
        .skip(1)
        .filter(|word| word != "--install")
        .collect();
    match guard::run(&options, words)? {
        Ended::Measured(report) => finish(args, *report),
        Ended::Interrupted(signal) => Ok(interrupted(signal)),
        Ended::Failed => Ok(ExitCode::FAILURE),
    }
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let mut cases: Vec<&'static dyn Case> = Vec::new();
    for name in &args.cases {
        let Some(case) = find(name) else {
            let known: Vec<_> = listing().map(Case::name).collect();
            bail!(
                "there is no case `{name}`; these exist: {}",
                known.join(", ")
            );
        };
        if !cases.iter().any(|other| other.name() == case.name()) {
            cases.push(case);
        }
    }
    if cases.is_empty() {
        cases.extend(listing());
    }
    let mut named = vec![State::Off];
    for name in &args.against {
        let state = name.parse();
        named.push(state.map_err(|why| anyhow::anyhow!("--against `{name}`: {why}"))?);
    }
    let mut against = State::NAMED.to_vec();
    against.retain(|state| named.contains(state));
    Ok(Options {
        cases,
        against,
        rules: args.rules.as_deref().map(own_rules).transpose()?,
        runs: args.runs,
        engine: args.engine.clone(),
        brief: args.brief,
        fifo: args.fifo,
    })
}

/// The rules of a file, without its other lines: those set the kernel's audit, and one could lock it.
fn own_rules(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let status = Command::new(place::tollgate()?)
        .arg("check")
        .arg(path)
        .stdout(io::stderr())
        .status()
        .context("cannot run `tollgate check`")?;
    if !status.success() {
        bail!("the rules of `{shown}` are wrong");
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read `{shown}`"))?;
    let rules = only_rules(&text);
    if rules.is_empty() {
        bail!("`{shown}` holds no rule");
    }
    Ok(rules)
}

/// The lines that add a rule.
fn only_rules(text: &str) -> String {
    let adds = |line: &&str| {
        let first = line.split_whitespace().next();
        matches!(first, Some("-a" | "-A" | "-w"))
    };
    let lines = text.lines().filter(adds);
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Status of a program that a signal has ended, as shells tell it.
fn interrupted(signal: Signal) -> ExitCode {
    info("interrupted: everything is put back, and nothing is reported");
    ExitCode::from(u8::try_from(128 + i32::from(signal as u8)).unwrap_or(u8::MAX))
}

fn finish(args: &Args, mut report: Report) -> anyhow::Result<ExitCode> {
    for file in &args.add {
        report.add(read(file)?);
    }
    report.summarise();
    unless_closed(
        io::stdout()
            .lock()
            .write_all(text::render(&report).as_bytes()),
    )
    .context("cannot show the report")?;
    if let Some(path) = &args.json {
        let mut text = serde_json::to_vec_pretty(&report).context("cannot write the report")?;
        text.push(b'\n');
        write(path, &text)?;
    }
    if let Some(path) = &args.html {
        write(path, page::render(&report).as_bytes())?;
    }
    if let Some(path) = &args.markdown {
        write(path, markdown::render(&report).as_bytes())?;
    }
    let missed = args.goals && report.outcomes().iter().any(|(_, reached)| !reached);
    Ok(if missed || !report.complaints.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let shown = path.display();
    let text = fs::read(path).with_context(|| format!("cannot read `{shown}`"))?;
    let report: Report = serde_json::from_slice(&text)
        .with_context(|| format!("`{shown}` is no report of `tollgate bench`"))?;
    if report.form != FORM {
        bail!("`{shown}` has form {}, and this is for {FORM}", report.form);
    }
    Ok(report)
}

fn write(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

fn list() -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    for case in listing() {
        text.extend([format!("{:<9} {}\n", case.name(), case.about())]);
        let missing = measure::lacking(case);
        if !missing.is_empty() {
            let packages = component::packages(&missing).join(", ");
            text.extend([format!("{:<9} lacks {packages}\n", "")]);
        }
    }
    unless_closed(io::stdout().lock().write_all(text.as_bytes()))
        .context("cannot list the cases")?;
    Ok(ExitCode::SUCCESS)
}

fn install(options: &Options) -> anyhow::Result<()> {
    let mut missing: Vec<Component> = options
        .cases
        .iter()
        .flat_map(|case| measure::lacking(*case))
        .collect();
    if options.against.contains(&State::Kernel) {
        missing.extend(measure::lacking_for_kernel());
    }
    let packages = component::packages(&missing);
    if packages.is_empty() {
        info("nothing is missing");
        return Ok(());
    }
    info(&format!("installing {}", packages.join(", ")));
    component::install(&packages)
}

/// A closed pipe is no failure: its reader has seen enough.
fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    #[test]
    fn the_table_of_options_is_sound() {
        Args::command().debug_assert();
        let args = Args::parse_from(["tollgate-bench", "--workload", "calls", "7", "/w"]);
        assert_eq!(args.workload, ["calls", "7", "/w"]);
    }

    #[test]
    fn lines_that_set_the_kernels_audit_are_left_out() {
        let text = "-D\n-b 8192\n-a always,exit -S open\n# -w /no\n  -w /etc -p wa\n-e 2\n";
        assert_eq!(
            only_rules(text),
            "-a always,exit -S open\n  -w /etc -p wa\n"
        );
    }
}
