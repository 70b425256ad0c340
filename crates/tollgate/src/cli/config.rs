//! `tollgate config`: what is wrong with configuration files, and what they come to.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use audit::conf::auditd::Settings;
use audit::rule::Severity;

use super::report::{self, Exit};
use super::rules::SourceFile;
use crate::{config, dispatch};

/// Arguments of `tollgate config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Reads configuration files and says what is wrong with them.
    Check(Check),
}

/// Arguments of `tollgate config check`.
#[derive(Debug, clap::Args)]
struct Check {
    /// Files to read: `*.toml` as tollgate's own, those in `plugins.d` as plugins, all others as
    /// auditd.conf; without any, auditd.conf and tollgate.toml where they are installed
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Runs the command. The status is 1 when something is wrong.
///
/// # Errors
/// A file that cannot be read, or an output that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Command::Check(check) = &args.command;
    let files = if check.files.is_empty() {
        [config::AUDITD_CONF, config::NATIVE]
            .map(PathBuf::from)
            .into_iter()
            .filter(|path| config::exists(path))
            .collect()
    } else {
        check.files.clone()
    };
    let mut wrong = 0;
    for path in &files {
        let file = if path.extension().is_some_and(|end| end == "toml") {
            let read = config::read_native(path)?;
            said(&read.file, None)?;
            read.file
        } else if path
            .parent()
            .is_some_and(|parent| parent.ends_with("plugins.d"))
        {
            let read = dispatch::read(path)?;
            said(&read.file, None)?;
            read.file
        } else {
            let read = config::read_auditd(path)?;
            said(&read.file, Some(&read.settings))?;
            read.file
        };
        wrong += file.count(Severity::Error);
    }
    if files.is_empty() {
        let none = format!(
            "neither {} nor {} exists: the daemon has its defaults\n",
            config::AUDITD_CONF,
            config::NATIVE
        );
        written(none.as_bytes())?;
    }
    Ok(match wrong {
        0 => Exit::Success.into(),
        _ => Exit::Failure.into(),
    })
}

/// Says what is wrong with a file, or that nothing is, and what has no effect.
fn said(file: &SourceFile, settings: Option<&Settings>) -> anyhow::Result<()> {
    let findings = report::findings(file, &mut anstream::stdout().lock());
    report::unless_closed(findings).context("cannot write to standard output")?;
    let mut text = summary(&file.path, file);
    if let Some(settings) = settings.filter(|settings| !settings.idle.is_empty()) {
        text.push_str("; without effect: ");
        text.push_str(&settings.idle.join(", "));
    }
    text.push('\n');
    written(text.as_bytes())
}

fn summary(path: &Path, file: &SourceFile) -> String {
    let [errors, warnings] =
        [Severity::Error, Severity::Warning].map(|severity| file.count(severity));
    format!("{}: {errors} errors, {warnings} warnings", path.display())
}

fn written(text: &[u8]) -> anyhow::Result<()> {
    report::unless_closed(io::stdout().lock().write_all(text))
        .context("cannot write to standard output")
}
