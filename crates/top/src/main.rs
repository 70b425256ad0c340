//! `tollgate-top`: shows what a running daemon records, and at what cost.
//!
//! ```text
//! control socket --- status ---> poller --+
//!                --- records --> stream --+--> model ---> view ---> terminal
//!                                  keys ------> ui -------^
//! ```
//!
//! It is a program of its own because the daemon, which root runs, must not link a terminal library. It reads the
//! control socket only. The threads of [`poller`] and [`stream`] wait for the daemon; the screen never does.

#![forbid(unsafe_code)]

mod batch;
mod cli;
mod control;
mod event;
mod model;
mod number;
mod poller;
mod screen;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod ui;
mod users;
mod view;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match cli::run(&cli::Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error is no reason to fail otherwise.
            let _closed = writeln!(io::stderr(), "tollgate-top: {error:#}");
            ExitCode::FAILURE
        }
    }
}
