//! `tollgate-bench`: measures the overhead of auditing, by tollgate and by the kernel, against none.
//!
//! It runs as four kinds of process. The first, [`supervisor`], saves what is about to be changed, starts the
//! others, and puts everything back when the measuring one ends, however it ends. A [`restorer`] does that when
//! the first is killed. The third, [`measure`], runs the cases round by round and writes a [`report`]. The
//! fourth kind is the workloads: this program again or somebody else's, started anew for each measurement,
//! because a task keeps for life the audit context that it was or was not given when it was made.
//!
//! Method, commands and figures are in `docs/bench.md`.

#![forbid(unsafe_code)]

mod audit_log;
mod audit_mode;
mod case;
mod cli;
mod daemon;
mod machine;
mod measure;
mod observer;
mod processes;
mod programs;
mod report;
mod restorer;
mod saved_state;
mod statistics;
mod supervisor;
mod variant;
mod work_dir;
mod workload;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use audit_mode::AuditMode;
use case::{Case, all, find};

/// What is measured, how often and against what.
#[derive(Clone, Debug)]
struct Options {
    /// In the order of the listing.
    cases: Vec<&'static dyn Case>,
    /// [`AuditMode::Off`] is among them: it is what the others are divided by.
    against: Vec<AuditMode>,
    /// Rules that take the place of the ten, in cases that measure what calls pay which no rule names.
    rules: Option<String>,
    /// Measurements of each configuration.
    runs: u32,
    /// What `--engine` of the daemon is given.
    engine: String,
    /// As little work as shows that a case works here; its figures mean nothing.
    brief: bool,
    /// Workloads of our own run before all ordinary programs.
    fifo: bool,
}

fn main() -> ExitCode {
    match cli::run(&cli::Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            info(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a line on standard error. A closed pipe is ignored: it must not stop the restoration.
fn info(line: &str) {
    let _closed = writeln!(io::stderr(), "tollgate-bench: {line}");
}
