//! `tollgate-bench`: measures the overhead of auditing by tollgate and by the kernel.
//!
//! Four kinds of process take part. The [`supervisor`] saves the state that will change, starts the others, and
//! restores the state when the measuring process ends, however it ends. The [`restorer`] does so if the
//! supervisor is killed. The measuring process, [`measure`], runs the cases round by round and writes a
//! [`report`]. Each workload is a new process, because a task keeps its audit context, or the lack of one, for
//! life.
//!
//! `docs/bench.md` has the method.

#![forbid(unsafe_code)]

mod audit_log;
mod auditor;
mod case;
mod cli;
mod daemon;
mod eaudit;
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
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;

use case::{Case, PEERS, all, is_peer, standard, with_name};
use variant::AuditMode;

/// What to measure, how often, and in which modes.
#[derive(Clone, Debug)]
struct Options {
    /// Those that were named, or the standard ones.
    cases: Vec<&'static dyn Case>,
    /// Always contains [`AuditMode::Off`], the reference.
    against: Vec<AuditMode>,
    /// Rules that replace the ten rules.
    rules: Option<String>,
    /// Number of rounds.
    runs: u32,
    /// `--engine` of the daemon.
    engine: String,
    /// Directory of eAudit, which is measured too.
    eaudit: Option<PathBuf>,
    /// Do as little work as possible; the figures mean nothing.
    brief: bool,
    /// Run the workloads of this program under `SCHED_FIFO`.
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

/// Prints a line on standard error. A closed pipe is ignored: restoring must go on.
fn info(line: &str) {
    let _closed = writeln!(io::stderr(), "tollgate-bench: {line}");
}
