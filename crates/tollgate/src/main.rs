//! `tollgate`: checks rules, shows their cost, and audits this machine with them.
//!
//! Invoked as `auditctl`, it behaves like auditctl.

#![forbid(unsafe_code)]

mod cli;
mod config;
mod control;
mod daemon;
mod helper;
mod host;
mod json_bytes;
mod messages;
mod metrics;
mod pipeline;
mod private_directory;
mod rule_files;
mod sinks;
mod state_file;
mod unix_time;

use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match cli::auditctl::called() {
        Some(words) => cli::auditctl::run(&words),
        None => cli::run(cli::parse()),
    };
    match done {
        Ok(code) => code,
        Err(error) => messages::print_error(&error),
    }
}
