//! `tollgate`: check rules, explain their price, and audit this machine with them.

#![forbid(unsafe_code)]

mod cli;
mod daemon;
mod host;
mod sink;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => cli::report::failure(&error),
    }
}
