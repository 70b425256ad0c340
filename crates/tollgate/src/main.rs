//! `tollgate`: check rules, explain their price, and audit this machine with them.
//!
//! Called `auditctl`, it is that command.

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
mod rule_files;
mod sinks;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let done = match cli::auditctl::called() {
        Some(words) => cli::auditctl::run(&words),
        None => cli::run(cli::Cli::parse()),
    };
    match done {
        Ok(code) => code,
        Err(error) => messages::print_error(&error),
    }
}
