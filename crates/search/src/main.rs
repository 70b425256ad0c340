//! `tollgate-search`: finds events in audit logs.
//!
//! It needs no privileges but the right to read the logs. [`expression`] is the language, [`search`] the command.

#![forbid(unsafe_code)]

mod expression;
mod mistake;
mod search;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Exit status of an error, as of `grep`.
const ERROR: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    search::run(&words).unwrap_or_else(|error| {
        info(&format!("{error:#}"));
        ExitCode::from(ERROR)
    })
}

/// Prints a line on standard error. A closed pipe is ignored.
fn info(line: &str) {
    let _closed = writeln!(io::stderr(), "tollgate-search: {line}");
}
