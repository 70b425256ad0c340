//! `tollgate explain`: shows the syscalls, hooks and cost of rules.
//!
//! [`engine::explain`] makes the explanation; [`text`] and [`json`] render it.

mod json;
mod text;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use audit::plan::Plan;
use audit::plan::rule_list::RuleList;
use audit::rule::{Diagnostic, RuleLine, Severity};
use engine::{EngineKind, Explanation, KernelFeatures, explain};

use super::this_machine::ThisMachineEngine;
use crate::config;
use crate::config::tollgate_toml::EngineChoice;
use crate::host::{self, Planner};
use crate::rule_files;

/// Examples of the help and the manual page.
pub(super) const EXAMPLES: &str = "\
Examples:
  Show the cost of the rules of this machine on another engine:
    tollgate explain --engine fentry /etc/audit/audit.rules
    tollgate explain --engine tracepoint /etc/audit/audit.rules";

/// Arguments of `tollgate explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rule files in the format of `auditctl -R` [default: those of this machine]
    ///
    /// They are read in this order; `-` is standard input. Without FILE, the files are those of `tollgate check`.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show the hooks and cost of this engine
    ///
    /// `auto` is the engine that the daemon would take for these rules on this machine. Only root can find it out: the
    /// programs are loaded, but not attached. For other users `auto` is `tracepoint`.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    engine: EngineChoice,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A plan and its explanation.
#[derive(Debug)]
struct Explained {
    /// The rule files; rules refer to them by index.
    files: Vec<PathBuf>,
    plan: Plan,
    explanation: Explanation,
    /// Rules that the kernel refuses when they are loaded, with the index of the file.
    findings: Vec<(usize, Diagnostic)>,
    /// Number of lines with errors.
    errors: usize,
    /// Which engine the daemon would take, if that was asked.
    this_machine: Option<ThisMachineEngine>,
}

/// Prints the explanation. The exit status is 1 if lines have errors: their rules are missing.
///
/// # Errors
/// When a file cannot be read, or the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let files = config::named_or_installed_rule_files(&args.files, "explain")?;
    let loaded = rule_files::read_also_stdin(&files)?;
    let files = loaded
        .files
        .into_iter()
        .map(|file| (file.source.path, file.lines, file.source.diagnostics));
    // If the features of the kernel cannot be read, the cost is that of an old kernel.
    let probe = host::kernel_probe();
    let kernel = probe
        .as_ref()
        .map_or(KernelFeatures::V5_15, |probe| probe.kernel);
    let mut explained = Explained::new(files, EngineKind::Tracepoint, kernel);
    let this_machine = if explained.errors == 0 {
        ThisMachineEngine::find(&probe, &explained.plan, EngineChoice::Auto, false)
    } else {
        ThisMachineEngine::Unknown(
            "the daemon does not start with these files: lines have errors".to_owned(),
        )
    };
    let engine = match args.engine {
        EngineChoice::Fentry => EngineKind::Fentry,
        EngineChoice::Lsm => EngineKind::Lsm,
        EngineChoice::Tracepoint => EngineKind::Tracepoint,
        EngineChoice::Auto => this_machine.engine().unwrap_or(EngineKind::Tracepoint),
    };
    let kernel = probe.map_or(kernel, |probe| probe.features(engine));
    explained.explanation = explain(&explained.plan, engine, kernel);
    explained.this_machine = Some(this_machine);
    let output = if args.json {
        json::render(&explained)?
    } else {
        text::render(&explained)
    };
    match io::stdout().lock().write_all(output.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("cannot write to standard output")?,
    }
    Ok(if explained.errors == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Explained {
    /// Applies the lines of all files in order, then compiles and explains the remaining rules.
    fn new(
        files: impl IntoIterator<Item = (PathBuf, Vec<RuleLine>, Vec<Diagnostic>)>,
        engine: EngineKind,
        kernel: KernelFeatures,
    ) -> Self {
        let (mut paths, mut list) = (Vec::new(), RuleList::default());
        let (mut findings, mut errors) = (Vec::new(), 0);
        for (source, (path, lines, diagnostics)) in files.into_iter().enumerate() {
            paths.push(path);
            errors += diagnostics
                .iter()
                .filter(|diagnostic| diagnostic.severity == Severity::Error)
                .count();
            findings.extend(
                list.load(source, lines)
                    .into_iter()
                    .map(|found| (source, found)),
            );
        }
        let plan = Planner::for_this_machine(Vec::new()).plan(list.into_rules());
        let explanation = explain(&plan, engine, kernel);
        Self {
            files: paths,
            plan,
            explanation,
            findings,
            errors,
            this_machine: None,
        }
    }

    /// Returns the name of a file as given by the user.
    fn file(&self, source: usize) -> String {
        self.files
            .get(source)
            .map_or_else(String::new, |path| path.display().to_string())
    }
}

#[cfg(test)]
mod public;
#[cfg(test)]
mod tests;
