//! `tollgate-ship`: sends the events of an audit log to the collectors of a fleet, at least once, and tells what is
//! missing.
//!
//! ```text
//! log --> reader --> filter --> encoder --> transport     one thread, cursor and filter for each destination
//!           ^                                   |
//!           +---- position: saved when the destination has confirmed
//! ```
//!
//! The log is the spool: memory holds what is on its way, and nothing of a destination that is away. [`run::worker`] is
//! the loop, [`sink`] what a destination is, [`position`] what is saved.

#![forbid(unsafe_code)]

mod boots;
mod cli;
mod config;
mod config_file;
mod frame;
mod http;
mod json_lines;
mod otlp;
mod output;
mod parquet_files;
mod position;
mod run;
mod sink;
mod socket_address;
mod startup;
mod status;
mod syslog;
mod transport;
mod unconfirmed;

use std::ffi::OsString;
use std::process::ExitCode;

/// Exit status if the run of `status` does not run, or a destination fails.
const FAILED: u8 = 1;
/// Exit status of an error.
const ERROR: u8 = 2;

/// Runs the program; the first word is its name. Returns its exit status: 1 if `status` finds a failure, 2 after an
/// error.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    output::set_program("tollgate-ship");
    cli::run(words).unwrap_or_else(|error| {
        output::info(format_args!("{error:#}"));
        ExitCode::from(ERROR)
    })
}
