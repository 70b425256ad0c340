//! `auditctl`, and `tollgate auditctl`: the command line that scripts know.
//!
//! How options are read, and what is said of them, is the business of [`audit::rule::auditctl`].
//! With `--offline` the requests go to a model of the kernel, and the listing of what would be
//! loaded is printed; there is no other way yet.

mod offline;
mod usage;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use audit::rule::Dialect;
use audit::rule::auditctl::{self, Answer, Request};
use bstr::BString;

use super::report;
use crate::host::ThisMachine;
use offline::Offline;

/// Arguments of `tollgate auditctl`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// `--offline` and `--compat 3|4`, then what auditctl(8) takes
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
    let borrowed: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let mut offline = Offline::new(own.dialect);
    let (said, status) = match borrowed.as_slice() {
        [b"-R", file] if own.offline => {
            offline.read_file(Path::new(std::ffi::OsStr::from_bytes(file)))
        }
        words => {
            let answer = auditctl::arguments(words, own.dialect, &ThisMachine);
            anyhow::ensure!(
                own.offline || needs_nobody(&answer),
                "the daemon cannot be asked yet: with `--offline` as the first argument the rest \
                 is read and listed without it"
            );
            offline.obey(answer)
        }
    };
    let written = say(&said).and_then(|()| offline.print(&mut io::stdout().lock()));
    report::unless_closed(written).context("cannot write to standard output")?;
    Ok(ExitCode::from(status))
}

/// What stands before the words that `auditctl` knows.
struct Own {
    offline: bool,
    dialect: Dialect,
}

/// Takes `--offline` and `--compat` off the front.
fn own_options(words: &mut Vec<Vec<u8>>) -> anyhow::Result<Own> {
    let mut own = Own {
        offline: false,
        dialect: Dialect::default(),
    };
    let mut used = 0;
    while let Some(word) = words.get(used) {
        let version = match word.as_slice() {
            b"--offline" => {
                own.offline = true;
                used += 1;
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
            b"3" => Dialect::Three,
            b"4" => Dialect::Four,
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

/// Whether all that is asked for, if anything, can be answered without a daemon.
fn needs_nobody(answer: &Answer) -> bool {
    answer
        .requests
        .iter()
        .all(|request| matches!(request, Request::Usage | Request::Version))
}

/// Messages go to standard error, as they are.
fn say(said: &[BString]) -> io::Result<()> {
    let mut err = io::stderr().lock();
    for text in said {
        err.write_all(text)?;
        err.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
