//! `tollgate-detect`: runs Sigma rules on audit logs.
//!
//! [`sigma`] is what the program knows of rules. It needs no privileges but the right to read the log.

#![forbid(unsafe_code)]

mod alert;
mod bounded_file;
mod cases;
mod check;
mod cli;
mod explain;
pub mod mapping;
mod on_alert;
mod output;
mod placeholder_file;
pub mod rule_files;
mod run;
pub mod sigma;
mod silence;
mod status;
mod test;

use std::ffi::OsString;
use std::process::ExitCode;

/// Exit status if rules or cases are not as they should be.
const FAILED: u8 = 1;
/// Exit status of an error.
const ERROR: u8 = 2;

/// Runs the program; the first word is its name. Returns its exit status: 1 if rules cannot be loaded or
/// cases failed, 2 after an error.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::run(words).unwrap_or_else(|error| {
        output::info(format_args!("{error:#}"));
        ExitCode::from(ERROR)
    })
}
