//! `tollgate config`: checks configuration files and summarizes their effect.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use audit::conf::auditd::{OverflowAction, Settings};
use audit::conf::plugin::{Plugin, PluginProgram};
use audit::rule::{Diagnostic, Severity};
use bstr::{BString, ByteSlice as _};
use nix::unistd::Group;

use crate::config::{self, ConfigFile, TollgateToml, plugins, tollgate_toml};
use crate::host;
use crate::messages::SourceText;
use crate::messages::{self, Exit};
use crate::rule_files::keys;

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
    /// A file named *.toml is checked as tollgate.toml(5), a file in a directory plugins.d as auditd-plugins(5), any
    /// other as auditd.conf(5). Without FILE, the command checks /etc/audit/auditd.conf, the files of its
    /// `plugin_dir`, and /etc/tollgate/tollgate.toml.
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
        let file = if path.extension().is_some_and(|end| end == "toml") {
            let mut read = config::read_tollgate_toml(path)?;
            let findings = [
                missing_files(&read),
                unused_keys(&read),
                absent_group(&read),
            ]
            .concat();
            read.file.diagnostics.extend(findings);
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
        errors += file.count(Severity::Error);
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

/// Finds files that the settings name and that do not exist: the daemon would not start.
fn missing_files(read: &ConfigFile<TollgateToml>) -> Vec<Diagnostic> {
    let TollgateToml {
        rules, auditd_conf, ..
    } = &read.settings;
    let rules = rules.iter().flatten().map(|path| ("rules", path));
    let conf = auditd_conf.iter().map(|path| ("auditd_conf", path));
    rules
        .chain(conf)
        .filter(|(_, path)| !config::exists(path))
        .map(|(setting, path)| tollgate_toml::missing_file_finding(&read.file.bytes, setting, path))
        .collect()
}

/// Finds keys of `[on_loss] deny` that no rule has, in the rule files that the daemon would read.
fn unused_keys(read: &ConfigFile<TollgateToml>) -> Vec<Diagnostic> {
    let settings = &read.settings;
    let deny: Vec<BString> = settings
        .on_loss
        .deny
        .iter()
        .cloned()
        .map(BString::from)
        .collect();
    if deny.is_empty() {
        return Vec::new();
    }
    let files = settings.rules.clone().unwrap_or_else(|| {
        let installed = PathBuf::from(config::AUDIT_RULES);
        Some(installed)
            .filter(|path| config::exists(path))
            .into_iter()
            .collect()
    });
    // Errors in rule files are those of `tollgate check`.
    let unused = keys::unused_in(&deny, &files).unwrap_or_default();
    let finding = |key: &BString| {
        let (message, key) = (keys::unused_key(key), key.to_string());
        tollgate_toml::denied_key_finding(&read.file.bytes, &key, message)
    };
    unused.into_iter().map(finding).collect()
}

/// Finds a group that may watch and that does not exist: the daemon starts without it.
fn absent_group(read: &ConfigFile<TollgateToml>) -> Vec<Diagnostic> {
    let Some(name) = &read.settings.watch_group else {
        return Vec::new();
    };
    match Group::from_name(name) {
        Ok(None) => vec![tollgate_toml::ineffective_value_finding(
            &read.file.bytes,
            "watch_group",
            name,
            host::absent_watch_group(name),
            &host::watch_group_advice(name),
        )],
        Ok(Some(_)) | Err(_) => Vec::new(),
    }
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
    fn missing_files_are_found_where_they_are_named() {
        let text = "auditd_conf = \"/missing/auditd.conf\"\nrules = [\"/proc/version\", \"/missing/a.rules\"]\n";
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tollgate.toml");
        std::fs::write(&path, text).unwrap();
        let found = missing_files(&config::read_tollgate_toml(&path).unwrap());
        let places: Vec<_> = found
            .iter()
            .map(|found| (found.line, found.column, found.message.as_str()))
            .collect();
        assert_eq!(
            places,
            [
                (2, 27, "rule file `/missing/a.rules` does not exist"),
                (1, 15, "`/missing/auditd.conf` does not exist"),
            ]
        );
    }

    #[test]
    fn absent_group_is_a_warning_at_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tollgate.toml");
        for (group, expected) in [("root", 0), ("no-such-group", 1)] {
            std::fs::write(&path, format!("watch_group = \"{group}\"\n")).unwrap();
            let found = absent_group(&config::read_tollgate_toml(&path).unwrap());
            assert_eq!(found.len(), expected, "{group}");
            for finding in found {
                assert_eq!(
                    (finding.severity, finding.line, finding.column),
                    (Severity::Warning, 1, 15)
                );
            }
        }
    }

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
}
