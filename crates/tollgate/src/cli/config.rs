//! `tollgate config`: checks configuration files and summarizes their effect.
//!
//! [`machine_findings`] compares what `tollgate.toml` names with this machine.

mod machine_findings;

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use audit::conf::auditd::{OverflowAction, Settings};
use audit::conf::plugin::{Plugin, PluginProgram};
use audit::rule::Severity;
use bstr::ByteSlice as _;

use crate::config::{self, plugins};
use crate::messages::SourceText;
use crate::messages::{self, Exit};

/// Examples of the help and the manual page.
const EXAMPLES: &str = "\
Examples:
  Check the installed configuration:
    tollgate config check
  Check a new version before it is installed:
    tollgate config check ./auditd.conf ./tollgate.toml";

/// Arguments of `tollgate config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check configuration files
    #[command(after_help = EXAMPLES)]
    Check(Check),
}

/// Arguments of `tollgate config check`.
#[derive(Debug, clap::Args)]
struct Check {
    /// Configuration files [default: the installed ones]
    ///
    /// A file named *.toml or tollgate.toml* is checked as tollgate.toml(5), a file in a directory plugins.d as
    /// auditd-plugins(5), any other as auditd.conf(5). Without FILE, the command checks /etc/audit/auditd.conf, the
    /// files of its `plugin_dir`, and /etc/tollgate/tollgate.toml. As root, it also finds out whether an engine starts.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Checks the files. The exit status is 1 if a file has errors.
///
/// # Errors
/// When a file cannot be read, or the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Command::Check(check) = &args.command;
    let files = if check.files.is_empty() {
        installed_files()
    } else {
        check.files.clone()
    };
    let mut errors = 0;
    for path in &files {
        errors += check_file(path).unwrap_or_else(|error| {
            // The other files are checked too.
            messages::print_error(&error);
            1
        });
    }
    if files.is_empty() {
        let message = format!(
            "neither {} nor {} exists: the daemon uses its defaults\n",
            config::AUDITD_CONF,
            config::TOLLGATE_TOML
        );
        write_stdout(message.as_bytes())?;
    }
    Ok(match errors {
        0 => Exit::Success.into(),
        _ => Exit::Failure.into(),
    })
}

/// Checks a file, prints what was found, and returns the number of errors.
///
/// # Errors
/// When the file cannot be read, or the output cannot be written.
fn check_file(path: &Path) -> anyhow::Result<usize> {
    let file = if is_tollgate_toml(path) {
        let mut read = config::read_tollgate_toml(path)?;
        let findings = machine_findings::find(&read);
        read.file.diagnostics.extend(findings);
        read.file.diagnostics.sort_by_key(|found| found.span.start);
        print(&read.file, "")?;
        read.file
    } else if is_plugin_file(path) {
        let read = plugins::read(path)?;
        print(&read.file, &plugin_summary(&read.settings))?;
        read.file
    } else {
        let read = config::read_auditd(path)?;
        print(&read.file, &auditd_summary(&read.settings))?;
        read.file
    };
    Ok(file.count(Severity::Error))
}

/// Returns the files that the daemon reads by default.
fn installed_files() -> Vec<PathBuf> {
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

/// Whether a file is a `tollgate.toml`, or a new or old version of it, such as `tollgate.toml.new`.
fn is_tollgate_toml(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_encoded_bytes);
    name.is_some_and(|name| name.ends_with(b".toml") || name.starts_with(b"tollgate.toml"))
}

/// Whether a file is in a plugin directory: `plugins.d`, or `plugin_dir` of the installed `auditd.conf`.
fn is_plugin_file(path: &Path) -> bool {
    path.parent()
        .is_some_and(|parent| parent.ends_with("plugins.d"))
        || installed_plugin_dir().is_some_and(|directory| path.parent() == Some(&directory))
}

fn installed_plugin_dir() -> Option<PathBuf> {
    let read = config::read_auditd(config::AUDITD_CONF.as_ref()).ok()?;
    Some(read.settings.plugin_dir.to_path().ok()?.to_owned())
}

/// Summarizes an `auditd.conf`: settings without effect, and the settings of plugins.
fn auditd_summary(settings: &Settings) -> String {
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

/// Summarizes the configuration of a plugin.
fn plugin_summary(settings: &Plugin) -> String {
    let active = if settings.active {
        "active"
    } else {
        "not active"
    };
    match &settings.program {
        PluginProgram::File(path) if path.is_empty() => format!("; {active}"),
        PluginProgram::File(path) => format!("; {active}, runs {path}"),
        PluginProgram::Socket => format!("; {active}, a socket of the daemon"),
    }
}

/// Prints the findings in a file, their number, and a summary of the settings.
fn print(file: &SourceText, settings: &str) -> anyhow::Result<()> {
    let findings = messages::write_findings(file, &mut anstream::stdout().lock());
    messages::ignore_broken_pipe(findings).context("cannot write to standard output")?;
    let text = counts(&file.path, file) + &messages::escape_control(settings) + "\n";
    write_stdout(text.as_bytes())
}

fn counts(path: &Path, file: &SourceText) -> String {
    let [errors, warnings] =
        [Severity::Error, Severity::Warning].map(|severity| file.count(severity));
    format!(
        "{}: {}, {}",
        path.display(),
        messages::count(errors, "error"),
        messages::count(warnings, "warning")
    )
}

fn write_stdout(text: &[u8]) -> anyhow::Result<()> {
    messages::ignore_broken_pipe(io::stdout().lock().write_all(text))
        .context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_settings_are_summarized() {
        let settings = Settings {
            ignored: vec!["disp_qos"],
            ..Settings::default()
        };
        assert_eq!(
            auditd_summary(&settings),
            "; without effect: disp_qos; plugins: q_depth 2000, overflow_action syslog, \
             max_restarts 10, plugin_dir /etc/audit/plugins.d"
        );
        let mut fed = Plugin::default();
        assert_eq!(plugin_summary(&fed), "; not active");
        fed.active = true;
        fed.program = PluginProgram::File("/sbin/x".into());
        assert_eq!(plugin_summary(&fed), "; active, runs /sbin/x");
        fed.program = PluginProgram::Socket;
        assert_eq!(plugin_summary(&fed), "; active, a socket of the daemon");
        assert!(is_plugin_file(Path::new("/x/plugins.d/a.conf")));
    }

    #[test]
    fn versions_of_tollgate_toml_are_recognized() {
        for name in ["tollgate.toml", "a.toml", "tollgate.toml.new"] {
            assert!(is_tollgate_toml(&Path::new("/x").join(name)), "{name}");
        }
        assert!(!is_tollgate_toml(Path::new("/x/auditd.conf")));
    }
}
