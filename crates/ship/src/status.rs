//! `tollgate ship status`: what each destination has got, and how far it is behind the log.
//!
//! The files of the directory are those of an unprivileged user: they are bounded, no link is followed, and their texts
//! are escaped.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use logs::escaped::EscapedJson;
use logs::state_directory;
use serde_json::{Value, json};

use crate::FAILED;
use crate::output::{self, now_ms, one_line};
use crate::run::progress::{
    ConnectionState, DestinationProgress, MAX_STATUS_BYTES, Progress, STATUS,
};

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// State directory of the run
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tollgate-ship")]
    state: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the status. The exit status is 1 if the run does not run, or a destination fails.
///
/// # Errors
/// The directory cannot be read, or has no status.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shown = args.state.display();
    let text = state_directory::read(&args.state, STATUS, MAX_STATUS_BYTES)?;
    let text = text.with_context(|| {
        format!("state directory `{shown}` has no status: no `tollgate ship run` has used it")
    })?;
    let progress =
        Progress::parse(&text).with_context(|| format!("cannot read `{shown}/{STATUS}`"))?;
    let is_alive = state_directory::is_locked(&args.state)?;
    let mut out = String::new();
    match args.json {
        true => out = format!("{}\n", EscapedJson(&as_json(&progress, is_alive))),
        false => print(&progress, is_alive, &mut out),
    }
    output::print(&out).context("cannot write to standard output")?;
    let is_failing = |destination: &DestinationProgress| destination.error.is_some();
    Ok(
        match is_alive && !progress.destinations.iter().any(is_failing) {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(FAILED),
        },
    )
}

fn print(progress: &Progress<DestinationProgress>, is_alive: bool, out: &mut String) {
    let mut line = |name: &str, text: &str| {
        // Writing to a string cannot fail.
        let _written = writeln!(out, "{}", one_line(&format!("{name:<12}{text}")).trim_end());
    };
    let run = match is_alive {
        true => "runs",
        false => "does not run: start `tollgate ship run`, or look at its messages",
    };
    line("run", run);
    line("log", &progress.log);
    line("host", &progress.host);
    for destination in &progress.destinations {
        let position = &destination.position;
        let counts = &position.counts;
        line("", "");
        line(
            "destination",
            &format!("{}: {}", destination.name, destination.description),
        );
        // A run that was killed has left its state.
        let state = match is_alive {
            true => destination.state,
            false => ConnectionState::Ended,
        };
        line("state", state.name());
        if let Some(error) = &destination.error {
            line(
                "error",
                &format!("{error} ({} failures)", destination.failures),
            );
        }
        let (serial, kernel_serial) = position.serials();
        let serial = serial.max(kernel_serial);
        if let Some(serial) = serial {
            let ago = now_ms().saturating_sub(position.time.ms) / 1000;
            line("position", &format!("serial {serial}, {ago} seconds ago"));
        }
        match destination.behind(&progress.log) {
            Ok(bytes) => line("behind", &format!("{bytes} bytes of log")),
            Err(error) => line("behind", &format!("not known: {error:#}")),
        }
        line(
            "events",
            &format!(
                "{} read and {} sent, all confirmed; {} sent since",
                counts.events, counts.sent, destination.unconfirmed
            ),
        );
        if counts.gaps > 0 {
            line(
                "gaps",
                &format!("{}, {} serials missing", counts.gaps, counts.missing),
            );
        }
        if counts.rejected > 0 {
            line(
                "rejected",
                &format!("{} records, by the destination", counts.rejected),
            );
        }
        if counts.cut > 0 {
            line(
                "cut",
                &format!("{} records, too long for the destination", counts.cut),
            );
        }
        if counts.malformed > 0 {
            line("malformed", &format!("{} lines", counts.malformed));
        }
        for (reason, count) in &counts.lost {
            line("lost", &format!("{count} {reason}, as the log tells"));
        }
    }
}

fn as_json(progress: &Progress<DestinationProgress>, is_alive: bool) -> Value {
    let destination = |destination: &DestinationProgress| {
        let position = &destination.position;
        let (serial, kernel_serial) = position.serials();
        json!({
            "name": destination.name,
            "description": destination.description,
            "state": destination.state,
            "error": destination.error,
            "failures": destination.failures,
            "boot": position.boot,
            "serial": serial,
            "kernel_serial": kernel_serial,
            "time_ms": position.time.ms,
            "behind_bytes": destination.behind(&progress.log).ok(),
            "unconfirmed": destination.unconfirmed,
            "counts": position.counts,
        })
    };
    let destinations = progress.destinations.iter().map(destination);
    json!({
        "alive": is_alive,
        "started_ms": progress.started_ms,
        "log": progress.log,
        "host": progress.host,
        "destinations": destinations.collect::<Vec<_>>(),
    })
}
