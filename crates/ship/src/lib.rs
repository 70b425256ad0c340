//! Two programs for a fleet: `tollgate-ship` sends the events of an audit log to collectors, at least once, and tells what
//! is missing; `tollgate-collect` takes the logs of many hosts. The other modules than [`collect`](mod@collect) are of the
//! first one, or of both.
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

mod auditd;
mod boots;
mod cli;
mod collect;
mod config;
mod config_file;
mod frame;
mod halves;
mod http;
mod json_lines;
mod kafka;
mod managed_frame;
mod metrics_server;
mod otlp;
mod output;
mod parquet_files;
mod position;
mod record_buffer;
mod run;
mod s3;
mod secret_file;
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

/// Runs `tollgate-ship`; the first word is its name. Returns its exit status: 1 if `status` finds a failure, 2 after an
/// error.
pub fn ship(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    output::set_program("tollgate-ship");
    exit_code(cli::run(words))
}

/// Runs `tollgate-collect` in the same way.
pub fn collect(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    output::set_program("tollgate-collect");
    exit_code(collect::run(words))
}

fn exit_code(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        output::info(format_args!("{error:#}"));
        ExitCode::from(ERROR)
    })
}
