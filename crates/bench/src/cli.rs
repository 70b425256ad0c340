//! The command line of `tollgate-bench`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use crate::programs::{self, Program};
use crate::report::{FORM, Report, html, markdown, picture, terminal};
use crate::supervisor::{self, Outcome};
use crate::{
    AuditMode, Case, Options, PEERS, all, eaudit, info, is_peer, measure, restorer, saved_state,
    standard, with_name, work_dir, workload,
};

/// The machine whose syscalls the rules of the cases name.
const MACHINE: &str = "x86_64";

/// Exit status without root, as of `auditctl`.
const NOT_ROOT: u8 = 4;

/// Examples of the help and the manual page.
const EXAMPLES: &str = "\
Examples:
  Compare tollgate with no auditing, and leave the kernel's audit alone:
    tollgate bench --against tollgate syscalls loader
  Run the workloads of eAudit, and eAudit itself beside tollgate:
    tollgate bench --eaudit /usr/src/eaudit peers
  Write the report to a directory:
    tollgate bench --out /tmp/report";

/// Measure the overhead of auditing on this machine
#[derive(Debug, clap::Parser)]
#[command(name = "tollgate-bench", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Cases to run, or `peers` for those of eAudit [default: all but those of `peers`; see --list]
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// Compare these modes: off, kernel (with auditd), tollgate
    ///
    /// The mode off is always included. Without kernel, the kernel's audit is never enabled.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "off,kernel,tollgate"
    )]
    against: Vec<String>,
    /// Load the rules of FILE instead of the ten rules
    ///
    /// Lines that configure the kernel's audit are ignored.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Measure each configuration N times
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Use this engine of tollgate
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = ["auto", "fentry", "tracepoint"])]
    engine: String,
    /// Measure eAudit, which was built in DIR, beside the others
    ///
    /// Only the cases of `peers` do so.
    /// eAudit needs Python with BCC; its programs see all calls of this machine while it runs.
    #[arg(long, value_name = "DIR")]
    eaudit: Option<PathBuf>,
    /// Write the report with all samples as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as an HTML page with charts of all samples
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the report as report.md and overhead.svg in DIR
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Append the cases of another JSON report
    ///
    /// For example, `make vm` writes instruction counts to target/vm/counts-6.12.json.
    #[arg(long, value_name = "FILE")]
    add: Vec<PathBuf>,
    /// Measure nothing; render this JSON report
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cases", "rules"])]
    render: Option<PathBuf>,
    /// List the cases and the Debian packages they lack
    #[arg(long)]
    list: bool,
    /// Install these packages first, with apt-get
    ///
    /// No service is started.
    #[arg(long)]
    install: bool,
    /// Restore what a killed benchmark left changed
    ///
    /// The restorer process or the next benchmark normally does this.
    #[arg(long)]
    restore: bool,
    /// Fail if a goal is missed
    #[arg(long)]
    goals: bool,
    /// Only check that each case works; the figures mean nothing
    #[arg(long)]
    brief: bool,
    /// Run the workloads of this program under `SCHED_FIFO`, for a busy machine
    #[arg(long)]
    fifo: bool,
    /// Run the cases in DIR (measuring process)
    #[arg(long, value_name = "DIR", hide = true)]
    measure: Option<PathBuf>,
    /// Restore when standard input ends (restorer process)
    #[arg(long, hide = true)]
    restorer: bool,
    /// Run a workload (workload process)
    #[arg(long, hide = true, value_name = "WORD", num_args = 1.., exclusive = true)]
    workload: Vec<String>,
}

/// Runs the benchmark, or what an option asks for instead.
///
/// # Errors
/// Why nothing could be measured, or what could not be restored.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.workload.is_empty() {
        workload::run(&args.workload)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.list {
        return list();
    }
    if let Some(file) = &args.render {
        return finish(args, read(file)?);
    }
    let machine = std::env::consts::ARCH;
    ensure!(
        machine == MACHINE,
        "the benchmarks name syscalls that {machine} does not have; run them on {MACHINE}"
    );
    let mut options = options(args)?;
    if !geteuid().is_root() {
        info("measuring needs root: it loads audit rules and BPF programs, and starts daemons");
        return Ok(ExitCode::from(NOT_ROOT));
    }
    if args.restore {
        saved_state::restore_leftovers()?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.restorer {
        restorer::run()?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(work) = &args.measure {
        measure::run(options, work)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.install {
        install(&options)?;
    }
    for line in measure::skip_unavailable(&mut options) {
        info(&format!("skipped: {line}"));
    }
    if options.cases.is_empty() {
        bail!("no case can run here");
    }
    let words: Vec<OsString> = std::env::args_os()
        .skip(1)
        .filter(|word| word != "--install")
        .collect();
    match supervisor::run(&options, words)? {
        Outcome::Finished(report) => finish(args, *report),
        Outcome::Interrupted(signal) => Ok(interrupted(signal)),
        Outcome::Failed => Ok(ExitCode::FAILURE),
    }
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let mut cases: Vec<&'static dyn Case> = Vec::new();
    for name in &args.cases {
        let named = with_name(name);
        if named.is_empty() {
            let known: Vec<_> = all().map(Case::name).collect();
            let known = known.join(", ");
            bail!("unknown case `{name}`; cases are: {known}; `{PEERS}` stands for the last ten");
        }
        for case in named {
            if !cases.iter().any(|other| other.name() == case.name()) {
                cases.push(case);
            }
        }
    }
    if cases.is_empty() {
        cases.extend(standard());
    }
    let eaudit = args.eaudit.as_deref().map(eaudit::find).transpose()?;
    if eaudit.is_some() && !cases.iter().any(|case| is_peer(*case)) {
        bail!("--eaudit: none of these cases measures eAudit; add `{PEERS}`");
    }
    let mut selected = vec![AuditMode::Off];
    for name in &args.against {
        let mode = name.parse();
        selected.push(mode.map_err(|why| anyhow::anyhow!("--against `{name}`: {why}"))?);
    }
    let mut against = AuditMode::SELECTABLE.to_vec();
    against.retain(|mode| selected.contains(mode));
    Ok(Options {
        cases,
        against,
        rules: args.rules.as_deref().map(read_rules).transpose()?,
        runs: args.runs,
        engine: args.engine.clone(),
        eaudit,
        brief: args.brief,
        fifo: args.fifo,
    })
}

/// Reads the rules of a file without its other lines, which set the kernel's audit: `-e 2` would lock it.
fn read_rules(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let status = Command::new(work_dir::tollgate()?)
        .arg("check")
        .arg(path)
        .stdout(io::stderr())
        .status()
        .context("cannot run `tollgate check`")?;
    if !status.success() {
        bail!("`{shown}` has errors");
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read `{shown}`"))?;
    let rules = filter_rules(&text);
    if rules.is_empty() {
        bail!("`{shown}` contains no rule");
    }
    Ok(rules)
}

/// Returns the lines that add a rule.
fn filter_rules(text: &str) -> String {
    let adds_rule = |line: &&str| {
        let first = line.split_whitespace().next();
        matches!(first, Some("-a" | "-A" | "-w"))
    };
    let lines = text.lines().filter(adds_rule);
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the exit status that shells use for a program ended by a signal.
fn interrupted(signal: Signal) -> ExitCode {
    info("interrupted: everything is restored; there is no report");
    ExitCode::from(u8::try_from(128 + i32::from(signal as u8)).unwrap_or(u8::MAX))
}

/// Prints the report and writes the files that options ask for.
fn finish(args: &Args, mut report: Report) -> anyhow::Result<ExitCode> {
    for file in &args.add {
        report.add(read(file)?);
    }
    report.summarize();
    print(&terminal::render(&report)).context("cannot print the report")?;
    if let Some(path) = &args.json {
        let mut text = serde_json::to_vec_pretty(&report).context("cannot encode the report")?;
        text.push(b'\n');
        write(path, &text)?;
    }
    if let Some(path) = &args.html {
        write(path, html::render(&report).as_bytes())?;
    }
    if let Some(directory) = &args.out {
        write(
            &directory.join(markdown::FILE),
            markdown::render(&report).as_bytes(),
        )?;
        write(
            &directory.join(picture::FILE),
            picture::render(&report).as_bytes(),
        )?;
    }
    let missed = args.goals && report.goal_results().iter().any(|goal| !goal.reached);
    Ok(if missed || !report.failures.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let shown = path.display();
    let text = fs::read(path).with_context(|| format!("cannot read `{shown}`"))?;
    let report: Report = serde_json::from_slice(&text)
        .with_context(|| format!("`{shown}` is not a report of `tollgate bench`"))?;
    if report.form != FORM {
        bail!(
            "`{shown}` has format {}; this version reads {FORM}",
            report.form
        );
    }
    Ok(report)
}

fn write(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// Prints to standard output; a closed pipe is not an error.
fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

fn list() -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    for case in all() {
        if is_peer(case) && !text.contains(PEERS) {
            text.extend([format!("\nCases of eAudit, which `{PEERS}` stands for:\n")]);
        }
        text.extend([format!("{:<10} {}\n", case.name(), case.about())]);
        let missing = measure::missing_programs(case);
        if !missing.is_empty() {
            let packages = programs::packages(&missing).join(", ");
            text.extend([format!("{:<10} needs {packages}\n", "")]);
        }
    }
    print(&text).context("cannot list the cases")?;
    Ok(ExitCode::SUCCESS)
}

fn install(options: &Options) -> anyhow::Result<()> {
    let mut missing: Vec<Program> = options
        .cases
        .iter()
        .flat_map(|case| measure::missing_programs(*case))
        .collect();
    if options.against.contains(&AuditMode::Kernel) {
        missing.extend(measure::missing_for_kernel());
    }
    let packages = programs::packages(&missing);
    if packages.is_empty() {
        info("no package is missing");
        return Ok(());
    }
    info(&format!("installing {}", packages.join(", ")));
    programs::install(&packages)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    #[test]
    fn options_are_consistent() {
        Args::command().debug_assert();
        let args = Args::parse_from(["tollgate-bench", "--workload", "calls", "7", "/w"]);
        assert_eq!(args.workload, ["calls", "7", "/w"]);
    }

    /// `make golden` writes the page.
    #[test]
    fn manual_page_is_fresh() {
        let mut command = Args::command();
        command.build();
        for line in manual::example_lines(&command) {
            let words = line.split_whitespace().skip(1);
            let parsed = Args::try_parse_from(words);
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
        let page = manual::Page::new("tollgate-bench", command);
        assert_eq!(page.check(), Ok(()));
    }

    #[test]
    fn only_rules_are_taken_from_a_file() {
        let text = "-D\n-b 8192\n-a always,exit -S open\n# -w /no\n  -w /etc -p wa\n-e 2\n";
        assert_eq!(
            filter_rules(text),
            "-a always,exit -S open\n  -w /etc -p wa\n"
        );
    }

    /// `tollgate-bench --render docs/bench/report.json --out docs/bench` renders the files again.
    #[test]
    fn committed_report_is_fresh() {
        let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench"));
        let report = read(&directory.join("report.json")).unwrap();
        for (file, text) in [
            (markdown::FILE, markdown::render(&report)),
            (picture::FILE, picture::render(&report)),
        ] {
            let committed = fs::read_to_string(directory.join(file)).unwrap();
            assert!(committed == text, "docs/bench/{file} is stale");
        }
    }
}
