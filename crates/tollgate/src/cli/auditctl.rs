//! `auditctl`, and `tollgate auditctl`: the command line that scripts know.
//!
//! How options are read, and what is said of them, is the business of [`audit::rule::auditctl`].
//! The requests go to the running daemon ([`online`]); with `--offline` they go to a model of the kernel,
//! and the listing of what would be loaded is printed ([`offline`]).

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
use audit::rule::auditctl::{self, Invocation, Request};
use bstr::BString;
use nix::unistd::geteuid;

use crate::control;
use crate::host::ThisMachine;
use crate::messages;
use offline::Offline;
use online::Online;

/// What `auditctl` says to all but root, and its status.
const NOT_ROOT: &str = "You must be root to run this program.";
const NOT_ROOT_STATUS: u8 = 4;

/// Arguments of `tollgate auditctl`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// `--offline`, `--compat 3|4` and `--control SOCKET`, then what auditctl(8) takes
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    pub(crate) words: Vec<OsString>,
}

/// The words after the program's name, when it was called `auditctl`.
pub(crate) fn called() -> Option<Vec<OsString>> {
    let mut words = env::args_os();
    let program = words.next()?;
    let name = Path::new(&program).file_name()?;
    (name == "auditctl").then(|| words.collect())
}

/// Reads the words as `auditctl` does and obeys them.
///
/// # Errors
/// A leading option of our own that is wrong, or an output that cannot be written.
pub(crate) fn run(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let mut words: Vec<Vec<u8>> = words.iter().map(|word| word.clone().into_vec()).collect();
    let own = own_options(&mut words)?;
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let file = match words.as_slice() {
        [b"-R", file] => Some(Path::new(OsStr::from_bytes(file))),
        _ => None,
    };
    let read = || auditctl::arguments(&words, own.dialect, &ThisMachine);
    let (said, status, shown) = if own.offline {
        let mut offline = Offline::new(own.dialect);
        let (said, status) = match file {
            Some(file) => offline.read_file(file),
            None => offline.obey(read()),
        };
        let mut shown = Vec::new();
        offline.print(&mut shown).context("cannot list the rules")?;
        (said, status, shown)
    } else if !geteuid().is_root() && (file.is_some() || !needs_nobody(&read())) {
        (vec![NOT_ROOT.into()], NOT_ROOT_STATUS, Vec::new())
    } else {
        let mut online = Online::new(own.dialect, &own.socket);
        let status = match file {
            Some(file) => online.read_file(file),
            None => online.obey(read()),
        };
        let (said, shown) = online.into_output();
        (said, status, shown)
    };
    let written = info(&said).and_then(|()| {
        let mut out = io::stdout().lock();
        out.write_all(&shown)?;
        out.flush()
    });
    messages::ignore_broken_pipe(written).context("cannot write to standard output")?;
    Ok(ExitCode::from(status))
}

/// What stands before the words that `auditctl` knows.
struct Own {
    offline: bool,
    dialect: Dialect,
    /// Where the daemon listens.
    socket: PathBuf,
}

/// Takes `--offline`, `--compat` and `--control` off the front.
fn own_options(words: &mut Vec<Vec<u8>>) -> anyhow::Result<Own> {
    let mut own = Own {
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
            word => match word.strip_prefix(b"--compat=") {
                Some(version) => version,
                None => break,
            },
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
    Ok(own)
}

/// Whether all that is asked for can be answered by anybody, without a daemon.
fn needs_nobody(answer: &Invocation) -> bool {
    let mut requests = answer.requests.iter();
    !answer.requests.is_empty()
        && requests.all(|request| matches!(request, Request::Usage | Request::Version))
}

/// Messages go to standard error, as they are.
fn info(said: &[BString]) -> io::Result<()> {
    let mut err = io::stderr().lock();
    for text in said {
        err.write_all(text)?;
        err.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
