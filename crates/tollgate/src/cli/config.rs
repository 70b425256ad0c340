//! `tollgate config`: what is wrong with configuration files, and what they come to.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use audit::conf::auditd::{OverflowAction, Settings};
use audit::conf::plugin::{Plugin, Program};
use audit::rule::Severity;
use bstr::ByteSlice as _;

use crate::config::{self, plugins};
use crate::messages::SourceText;
use crate::messages::{self, Exit};

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
    /// auditd.conf; without any, auditd.conf, the plugins of its `plugin_dir`, and tollgate.toml, where they
    /// are installed
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
        installed()
    } else {
        check.files.clone()
    };
    let mut wrong = 0;
    for path in &files {
        let file = if path.extension().is_some_and(|end| end == "toml") {
            let read = config::read_tollgate_toml(path)?;
            said(&read.file, "")?;
            read.file
        } else if is_of_plugin(path) {
            let read = plugins::read(path)?;
            said(&read.file, &plugin(&read.settings))?;
            read.file
        } else {
            let read = config::read_auditd(path)?;
            said(&read.file, &log(&read.settings))?;
            read.file
        };
        wrong += file.count(Severity::Error);
    }
    if files.is_empty() {
        let none = format!(
            "neither {} nor {} exists: the daemon has its defaults\n",
            config::AUDITD_CONF,
            config::TOLLGATE_TOML
        );
        written(none.as_bytes())?;
    }
    Ok(match wrong {
        0 => Exit::Success.into(),
        _ => Exit::Failure.into(),
    })
}

/// The files that the daemon reads when it is told of no others.
fn installed() -> Vec<PathBuf> {
    let auditd = PathBuf::from(config::AUDITD_CONF);
    let mut files = Vec::new();
    let mut settings = Settings::default();
    if config::exists(&auditd) {
        if let Ok(read) = config::read_auditd(&auditd) {
            settings = read.settings;
        }
        files.push(auditd);
    }
    files.extend(plugins::files(&settings));
    files.extend(Some(PathBuf::from(config::TOLLGATE_TOML)).filter(|path| config::exists(path)));
    files
}

/// Whether a file is in a directory of plugins: by its usual name, or as the installed `auditd.conf` says.
fn is_of_plugin(path: &Path) -> bool {
    path.parent()
        .is_some_and(|parent| parent.ends_with("plugins.d"))
        || installed_plugin_dir().is_some_and(|directory| path.parent() == Some(&directory))
}

fn installed_plugin_dir() -> Option<PathBuf> {
    let read = config::read_auditd(config::AUDITD_CONF.as_ref()).ok()?;
    Some(read.settings.plugin_dir.to_path().ok()?.to_owned())
}

/// What of an `auditd.conf` has no effect, and how it has plugins fed.
fn log(settings: &Settings) -> String {
    let Settings {
        q_depth,
        overflow_action,
        max_restarts,
        plugin_dir,
        ignored,
        ..
    } = settings;
    let mut text = String::new();
    if !ignored.is_empty() {
        text.push_str("; without effect: ");
        text.push_str(&ignored.join(", "));
    }
    let overflow = match overflow_action {
        OverflowAction::Ignore => "ignore",
        OverflowAction::Syslog => "syslog",
        OverflowAction::Suspend => "suspend",
        OverflowAction::Single => "single",
        OverflowAction::Halt => "halt",
    };
    text + &format!(
        "; plugins: q_depth {q_depth}, overflow_action {overflow}, max_restarts {max_restarts}, \
         plugin_dir {plugin_dir}"
    )
}

/// Whether a plugin is fed, and what it is.
fn plugin(settings: &Plugin) -> String {
    let active = if settings.active {
        "active"
    } else {
        "not active"
    };
    match &settings.program {
        Program::File(path) if path.is_empty() => format!("; {active}"),
        Program::File(path) => format!("; {active}, runs {path}"),
        Program::Socket => format!("; {active}, a socket of the daemon"),
    }
}

/// Says what is wrong with a file, or that nothing is, and what it comes to.
fn said(file: &SourceText, comes_to: &str) -> anyhow::Result<()> {
    let findings = messages::write_findings(file, &mut anstream::stdout().lock());
    messages::ignore_broken_pipe(findings).context("cannot write to standard output")?;
    let text = summary(&file.path, file) + &messages::escape_control(comes_to) + "\n";
    written(text.as_bytes())
}

fn summary(path: &Path, file: &SourceText) -> String {
    let [errors, warnings] =
        [Severity::Error, Severity::Warning].map(|severity| file.count(severity));
    format!("{}: {errors} errors, {warnings} warnings", path.display())
}

fn written(text: &[u8]) -> anyhow::Result<()> {
    messages::ignore_broken_pipe(io::stdout().lock().write_all(text))
        .context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_feeds_plugins_is_listed() {
        let settings = Settings {
            ignored: vec!["disp_qos"],
            ..Settings::default()
        };
        assert_eq!(
            log(&settings),
            "; without effect: disp_qos; plugins: q_depth 2000, overflow_action syslog, \
             max_restarts 10, plugin_dir /etc/audit/plugins.d"
        );
        let mut fed = Plugin::default();
        assert_eq!(plugin(&fed), "; not active");
        fed.active = true;
        fed.program = Program::File("/sbin/x".into());
        assert_eq!(plugin(&fed), "; active, runs /sbin/x");
        fed.program = Program::Socket;
        assert_eq!(plugin(&fed), "; active, a socket of the daemon");
        assert!(is_of_plugin(Path::new("/x/plugins.d/a.conf")));
    }
}
