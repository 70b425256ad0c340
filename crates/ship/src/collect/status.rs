//! `tollgate collect status`: what each host has sent, and which peers were refused.
//!
//! The status is a file of an unprivileged user: it is bounded, no link is followed, and its texts are escaped.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use logs::escaped::EscapedJson;
use logs::state_directory;
use serde_json::{Value, json};

use super::completeness::Completeness;
use super::progress::{HostProgress, MAX_STATUS_BYTES, Progress, STATUS};
use crate::FAILED;
use crate::output::{self, now_ms, one_line};

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// State directory of the run
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tollgate-collect")]
    state: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the status. The exit status is 1 if the run does not run, a log cannot be written or synced, or
/// changed certificates cannot be used.
///
/// # Errors
/// The directory cannot be read, or has no status.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shown = args.state.display();
    let text = state_directory::read(&args.state, STATUS, MAX_STATUS_BYTES)?;
    let text = text.with_context(|| {
        format!("state directory `{shown}` has no status: no `tollgate collect run` has used it")
    })?;
    let progress =
        Progress::parse(&text).with_context(|| format!("cannot read `{shown}/{STATUS}`"))?;
    let is_alive = state_directory::is_locked(&args.state)?;
    let out = match args.json {
        true => format!("{}\n", EscapedJson(&as_json(&progress, is_alive)?)),
        false => describe(&progress, is_alive),
    };
    output::print(&out).context("cannot write to standard output")?;
    let is_failing = progress.sync_error.is_some()
        || progress.tls_error.is_some()
        || progress.hosts.iter().any(|host| host.error.is_some());
    Ok(match is_alive && !is_failing {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(FAILED),
    })
}

fn as_json(progress: &Progress, is_alive: bool) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(progress)?;
    if let Some(members) = value.as_object_mut() {
        members.remove("version");
        members.insert("alive".to_owned(), json!(is_alive));
    }
    Ok(value)
}

fn describe(progress: &Progress, is_alive: bool) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: &str| {
        // Writing to a string cannot fail.
        let _written = writeln!(out, "{}", one_line(&format!("{name:<12}{text}")).trim_end());
    };
    let run = match is_alive {
        true => "runs",
        false => "does not run: start `tollgate collect run`, or look at its messages",
    };
    line("run", run);
    line("listens", &progress.listen.join(", "));
    line("logs", &progress.directory);
    line("connections", &format!("{}", progress.connections));
    let refused = progress.refused;
    line(
        "refused",
        &format!(
            "{} connections of unknown peers, {} of unprivileged ports, {} over a limit, {} of another protocol, {} without TLS or the certificate of a host",
            refused.unknown, refused.port, refused.limit, refused.protocol, refused.tls
        ),
    );
    if let Some(refusal) = &progress.tls_refusal {
        line("refused", refusal);
    }
    for error in [&progress.sync_error, &progress.tls_error]
        .into_iter()
        .flatten()
    {
        line("error", error);
    }
    for network in &progress.networks {
        line(
            "network",
            &format!(
                "{}: {} of {} hosts",
                network.name, network.hosts, network.max_hosts
            ),
        );
        if let Some(refusal) = &network.refusal {
            line(
                "refused",
                &format!("{} records: {refusal}", network.refused),
            );
        }
    }
    for host in &progress.hosts {
        line("", "");
        line("host", &host.name);
        for (name, text) in describe_host(host, is_alive) {
            line(name, &text);
        }
    }
    out
}

fn describe_host(host: &HostProgress, is_alive: bool) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    // A run that was killed has left its connections.
    let peer = match (&host.address, host.connections) {
        (Some(address), 1..) if is_alive => format!("{address}, connected"),
        (Some(address), _) => format!("{address}, not connected"),
        (None, _) => "none since the run began".to_owned(),
    };
    lines.push(("peer", peer));
    if let Some(error) = &host.error {
        lines.push(("error", error.clone()));
    }
    if let Some(last) = host.last {
        let ago = now_ms().saturating_sub(host.received_ms) / 1000;
        let behind = host.received_ms.saturating_sub(last.time_ms) / 1000;
        let text = format!(
            "serial {}, came {ago} seconds ago, {behind} seconds after its time",
            last.serial
        );
        lines.push(("last record", text));
        lines.push(("records", format!("{}, {} bytes", host.records, host.bytes)));
    }
    if let Some(known) = &host.completeness {
        lines.extend(describe_completeness(known));
    }
    if host.limited_searches > 0 {
        let text = format!(
            "{} for records that came again were cut short: some may be in the log twice",
            host.limited_searches
        );
        lines.push(("searches", text));
    }
    if let Some(refusal) = &host.refusal {
        lines.push(("refused", format!("{} records: {refusal}", host.refused)));
    }
    lines
}

fn describe_completeness(known: &Completeness) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some((boot, serial)) = known.last() {
        lines.push(("serial", format!("{serial} of boot {boot}")));
    }
    let gaps = match (&known.gaps.last, known.is_filtered()) {
        (_, true) => "not known now: a filter of the shipper has left out events".to_owned(),
        (Some(gap), false) => format!(
            "{}, {} serials missing, the last ones after {} and before {} of boot {}",
            known.gaps.count, known.gaps.missing, gap.after, gap.before, gap.boot
        ),
        (None, false) => "none".to_owned(),
    };
    lines.push(("gaps", gaps));
    if let Some(told) = &known.heartbeat {
        let ago = now_ms().saturating_sub(told.received_ms) / 1000;
        let text = format!(
            "{ago} seconds ago; its log has {} gaps, {} serials missing",
            told.gaps, told.missing
        );
        lines.push(("heartbeat", text));
        for (reason, count) in &told.lost {
            lines.push(("lost", format!("{count} {reason}, as its log tells")));
        }
    }
    lines
}
