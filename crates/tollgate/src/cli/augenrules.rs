//! `tollgate augenrules`: merges the rule files of a directory into one.
//!
//! [`audit::rule::augenrules`] merges the text; this module reads and writes the files. The messages are
//! those of `augenrules`. With `--load` the running daemon then reads its rule files again.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use audit::ids::Dialect;
use audit::rule::augenrules;

use crate::cli::status;
use crate::config;
use crate::control;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::messages::{self, Exit, info};
use crate::state_file;

/// Examples of the help and the manual page.
pub(super) const EXAMPLES: &str = "\
Examples:
  Check whether /etc/audit/audit.rules is up to date:
    tollgate augenrules --check
  Merge the rule files, and load them into the running daemon:
    tollgate augenrules --load";

/// Arguments of `tollgate augenrules`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only report whether the merged file would change
    #[arg(long)]
    check: bool,
    /// Have the running daemon load its rule files, also if the merged file does not change
    ///
    /// The daemon reads auditd.conf(5), the plugins and all rule files of its configuration again, as on SIGHUP. The
    /// exit status is 0 if they are in force, and 1 if one of them is refused: then the old rules stay in force.
    #[arg(long, conflicts_with = "check")]
    load: bool,
    /// Connect to the daemon at SOCKET
    #[arg(long, value_name = "SOCKET", default_value = control::SOCKET)]
    control: PathBuf,
    /// Merge the files of DIRECTORY whose names end in `.rules`
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/audit/rules.d")]
    rules: PathBuf,
    /// Write the merged rules to FILE; the previous version is kept as FILE.prev
    #[arg(long, value_name = "FILE", default_value = "/etc/audit/audit.rules")]
    output: PathBuf,
    /// Merge as augenrules of this major version does
    #[arg(long, value_name = "VERSION", default_value = "4", value_parser = ["3", "4"])]
    compat: String,
}

/// The result of a merge.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    NoDirectory,
    NoChange,
    WouldChange,
    Updated,
}

/// Merges the files, writes the result if it differs from the output file, and has it loaded with `--load`.
///
/// # Errors
/// When a file cannot be read or written, or the rules are not in force.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let rules = args.rules.display();
    let (message, exit) = match merge(args)? {
        Outcome::NoDirectory => (format!("No rules directory - {rules}"), Exit::Failure),
        Outcome::NoChange => ("No change".to_owned(), Exit::Success),
        Outcome::WouldChange => (
            "Rules have changed and should be updated".to_owned(),
            Exit::Success,
        ),
        Outcome::Updated => (String::new(), Exit::Success),
    };
    if !message.is_empty() {
        print(&message)?;
    }
    if !args.load {
        return Ok(exit.into());
    }
    // Without a rules directory the rule files are written by hand.
    load(&args.control)?;
    Ok(Exit::Success.into())
}

/// Has the daemon read its rule files again.
fn load(control: &Path) -> anyhow::Result<()> {
    let mut client =
        Client::connect(control).map_err(|error| status::connect_error(control, error, "root"))?;
    match client.ask(Request::Reload)? {
        Answer::Done => {
            info("the rules are in force");
            Ok(())
        }
        Answer::Refused(refusal) => bail!(
            "the rules are refused, the old ones stay in force: {}; check rule files with `tollgate check`, \
             configuration files with `tollgate config check`",
            refusal.reason
        ),
        _ => bail!(control::INVALID_REPLY),
    }
}

fn print(message: &str) -> anyhow::Result<()> {
    let written = writeln!(io::stdout().lock(), "augenrules: {message}");
    messages::ignore_broken_pipe(written).context("cannot write to standard output")
}

fn merge(args: &Args) -> anyhow::Result<Outcome> {
    if !args.rules.is_dir() {
        return Ok(Outcome::NoDirectory);
    }
    let dialect = match args.compat.as_str() {
        "3" => Dialect::V3,
        _ => Dialect::V4,
    };
    let files = read(&args.rules)?;
    let directory = args.rules.as_os_str().as_bytes();
    let merged = augenrules::merge(directory, files.iter().map(Vec::as_slice), dialect);
    let shown = args.output.display();
    let before = match fs::read(&args.output) {
        Ok(before) => Some(before),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read `{shown}`")),
    };
    if before.as_ref() == Some(&merged) {
        return Ok(Outcome::NoChange);
    }
    if args.check {
        return Ok(Outcome::WouldChange);
    }
    write(&args.output, before.as_deref(), &merged)
        .with_context(|| format!("cannot write `{shown}`"))?;
    Ok(Outcome::Updated)
}

/// Reads the rule files of a directory, in the order in which they are merged.
fn read(directory: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let read = |path: &PathBuf| {
        fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))
    };
    config::rule_sources(directory)?.iter().map(read).collect()
}

/// Replaces the file and keeps the previous version.
fn write(path: &Path, before: Option<&[u8]>, merged: &[u8]) -> io::Result<()> {
    const MODE: u32 = 0o640;
    if let Some(before) = before {
        let mut previous = path.as_os_str().to_owned();
        previous.push(".prev");
        state_file::replace(previous.as_ref(), MODE, before)?;
    }
    state_file::replace(path, MODE, merged)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn args(directory: &Path, check: bool) -> Args {
        Args {
            check,
            load: false,
            control: control::SOCKET.into(),
            rules: directory.join("rules.d"),
            output: directory.join("audit.rules"),
            compat: "4".to_owned(),
        }
    }

    #[test]
    fn files_are_merged_when_they_change() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let go = |check| merge(&args(directory.path(), check)).unwrap();
        assert_eq!(go(false), Outcome::NoDirectory);
        fs::create_dir(at("rules.d")).unwrap();
        for (name, text) in [
            ("10-b.rules", "-w /b -p w\n-e 2\n"),
            ("9-a.rules", "# a\n-D\n-w /a -p w\n"),
            (".hidden.rules", "-i\n"),
            ("README", "-c\n"),
        ] {
            fs::write(at("rules.d").join(name), text).unwrap();
        }
        assert_eq!(go(true), Outcome::WouldChange);
        assert!(!at("audit.rules").exists());
        assert_eq!(go(false), Outcome::Updated);
        let text = fs::read_to_string(at("audit.rules")).unwrap();
        let rest = text.split_once('\n').unwrap().1;
        assert_eq!(rest, "-D\n\n\n-w /a -p w\n-w /b -p w\n-e 2\n");
        let mode = fs::metadata(at("audit.rules"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(go(false), Outcome::NoChange);
        assert!(!at("audit.rules.prev").exists() && !at("audit.rules.new").exists());

        fs::write(at("rules.d/11-c.rules"), "-i\n").unwrap();
        assert_eq!(go(false), Outcome::Updated);
        assert_eq!(fs::read_to_string(at("audit.rules.prev")).unwrap(), text);
    }
}
