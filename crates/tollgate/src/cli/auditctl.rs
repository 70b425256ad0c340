//! `auditctl`, and `tollgate auditctl`: the command line of auditctl(8).
//!
//! [`audit::rule::auditctl`] parses the options and makes the messages. Requests go to the running daemon
//! ([`online`]); with `--offline` they go to a model of the kernel, whose rules are then listed ([`offline`]).

mod batch;
mod file;
mod message;
mod offline;
mod online;
mod status_text;
mod usage;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use audit::ids::Dialect;
use audit::rule::auditctl::{self, CliRequest, Invocation};
use bstr::BString;
use clap::{Arg, ArgAction};
use nix::unistd::geteuid;

use crate::control;
use crate::host::ThisMachine;
use crate::messages;
use offline::Offline;
use online::Online;

/// Message of `auditctl` without root, and its exit status.
const NOT_ROOT: &str = "You must be root to run this program.";
const NOT_ROOT_STATUS: u8 = 4;

/// Examples of the help and the manual page.
pub(super) const EXAMPLES: &str = "\
Examples:
  List the rules of the daemon:
    tollgate auditctl -l
  Print what a rule file would load, without a daemon:
    tollgate auditctl --offline -R /etc/audit/audit.rules";

/// Arguments of `tollgate auditctl`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Options of auditctl(8), after those above
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    pub(crate) words: Vec<OsString>,
}

/// Adds the options that [`own_options`] parses to the command, for help, completions and the manual page.
///
/// clap does not parse them: the command line of `auditctl` must reach [`run`] unchanged.
pub(super) fn describe_options(command: clap::Command) -> clap::Command {
    command
        .arg(
            Arg::new("offline")
                .long("offline")
                .action(ArgAction::SetTrue)
                .help("Print what would be loaded, without a daemon and without root"),
        )
        .arg(
            Arg::new("compat")
                .long("compat")
                .value_name("VERSION")
                .value_parser(["3", "4"])
                .default_value("4")
                .help("Print messages and listings of this major version: 3.0.9 or 4.2.1"),
        )
        .arg(
            Arg::new("control")
                .long("control")
                .value_name("SOCKET")
                .default_value(control::SOCKET)
                .help("Connect to the daemon at SOCKET"),
        )
}

/// Returns the words after the name of the program if that is `auditctl`.
pub(crate) fn called() -> Option<Vec<OsString>> {
    let mut words = env::args_os();
    let program = words.next()?;
    let name = Path::new(&program).file_name()?;
    (name == "auditctl").then(|| words.collect())
}

/// Parses and runs the words as `auditctl` does.
///
/// # Errors
/// When a leading option of tollgate is malformed, or the output cannot be written.
pub(crate) fn run(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let mut words: Vec<Vec<u8>> = words.iter().map(|word| word.clone().into_vec()).collect();
    let own = own_options(&mut words)?;
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let file = match words.as_slice() {
        [b"-R", file] => Some(Path::new(OsStr::from_bytes(file))),
        _ => None,
    };
    let invocation = || auditctl::arguments(&words, own.dialect, &ThisMachine);
    let (errors, status, output) = if own.offline {
        let mut offline = Offline::new(own.dialect);
        let (errors, status) = match file {
            Some(file) => offline.read_file(file),
            None => offline.run(invocation()),
        };
        let mut output = Vec::new();
        offline
            .print(&mut output)
            .context("cannot list the rules")?;
        (errors, status, output)
    } else if !geteuid().is_root() && (file.is_some() || !needs_no_daemon(&invocation())) {
        (vec![NOT_ROOT.into()], NOT_ROOT_STATUS, Vec::new())
    } else {
        let mut online = Online::new(own.dialect, &own.socket);
        let status = match file {
            Some(file) => online.read_file(file),
            None => online.run(invocation()),
        };
        let (errors, output) = online.into_output();
        (errors, status, output)
    };
    let written = print_messages(&errors).and_then(|()| {
        let mut out = io::stdout().lock();
        out.write_all(&output)?;
        out.flush()
    });
    messages::ignore_broken_pipe(written).context("cannot write to standard output")?;
    Ok(ExitCode::from(status))
}

/// The options of tollgate before and after those of `auditctl`.
struct OwnOptions {
    offline: bool,
    dialect: Dialect,
    /// Control socket of the daemon.
    socket: PathBuf,
}

/// Removes `--offline`, `--compat` and `--control` from the front, and `--control` from the end.
fn own_options(words: &mut Vec<Vec<u8>>) -> anyhow::Result<OwnOptions> {
    let mut own = OwnOptions {
        offline: false,
        dialect: Dialect::default(),
        socket: control::SOCKET.into(),
    };
    let mut used = 0;
    while let Some(word) = words.get(used) {
        let version = match word.as_slice() {
            b"--offline" => {
                own.offline = true;
                used += 1;
                continue;
            }
            b"--control" => {
                let path = words.get(used + 1).context("`--control` takes a path")?;
                own.socket = OsStr::from_bytes(path).into();
                used += 2;
                continue;
            }
            b"--compat" => {
                used += 1;
                words.get(used).map_or(&b""[..], Vec::as_slice)
            }
            word => {
                if let Some(path) = word.strip_prefix(b"--control=") {
                    own.socket = OsStr::from_bytes(path).into();
                    used += 1;
                    continue;
                }
                match word.strip_prefix(b"--compat=") {
                    Some(version) => version,
                    None => break,
                }
            }
        };
        own.dialect = match version {
            b"3" => Dialect::V3,
            b"4" => Dialect::V4,
            other => anyhow::bail!(
                "`--compat` takes 3 or 4, not `{}`",
                String::from_utf8_lossy(other)
            ),
        };
        used += 1;
    }
    words.drain(..used.min(words.len()));
    // `--control` may also end the command line: `auditctl --signal resume --control SOCKET`.
    let (path, used) = match words.as_slice() {
        [.., option, path] if option == b"--control" => (path.as_slice(), 2),
        [.., last] => match last.strip_prefix(b"--control=") {
            Some(path) => (path, 1),
            None => return Ok(own),
        },
        [] => return Ok(own),
    };
    own.socket = OsStr::from_bytes(path).into();
    words.truncate(words.len() - used);
    Ok(own)
}

/// Whether all requests work without root and without a daemon.
fn needs_no_daemon(answer: &Invocation) -> bool {
    let mut requests = answer.requests.iter();
    !answer.requests.is_empty()
        && requests.all(|request| matches!(request, CliRequest::Usage | CliRequest::Version))
}

/// Prints messages on standard error, without the program's name.
fn print_messages(messages: &[BString]) -> io::Result<()> {
    let mut err = io::stderr().lock();
    for text in messages {
        err.write_all(text)?;
        err.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
