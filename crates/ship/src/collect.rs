//! `tollgate-collect`: takes the audit logs of many hosts from stock `audisp-remote`, or from `tollgate-ship` by syslog
//! or OTLP, and writes a log for each.
//!
//! ```text
//! peers --> event loop: allow-list, limits, frames --> logs of hosts     one thread
//!                                                         |
//!                                    each second: fdatasync, status      another one
//!                                                            |
//!                                  Prometheus <-- metrics, if configured  a third one
//! ```
//!
//! A record is acknowledged when it was written to the log of its host, so a kill of this program loses none; a crash of
//! the machine loses what was not synced. Peers are not trusted: [`peers`], [`tls`] and [`hosts`] say whose log a peer
//! writes,
//! [`frame`], [`otlp`] and [`connection`] bound what it may send, [`listener`] bounds how many there are.

mod body_memory;
mod completeness;
mod config;
mod confinement;
mod connection;
mod frame;
mod host_log;
mod hosts;
mod listener;
mod metrics;
mod otlp;
mod peers;
mod prefix;
mod progress;
mod refusal_messages;
mod repeated;
mod search_budget;
mod serial_ranges;
mod shipped;
mod status;
mod stream;
mod sync;
mod syslog;
mod tls;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser as _;
use logs::state_directory::StateDirectory;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::metrics_server::{self, StatusFile};
use crate::output::{info, now_ms};
use crate::startup;
use config::Config;
use hosts::Hosts;
use listener::Listener;
use progress::{MAX_STATUS_BYTES, Progress, STATUS};
use sync::Syncer;
use tls::{TlsAcceptor, TlsSettings};

/// Examples of the help and the manual page.
const EXAMPLES: &str = "\
Examples:
  Take logs as the configuration says, until a signal
    tollgate collect run --config collect.toml --state state
  Which hosts have sent what, and which are silent?
    tollgate collect status
  Search the log of a host
    tollgate search --log /var/log/tollgate-collect/web1/audit.log key=exec";

/// Take the audit logs of many hosts from audisp-remote or tollgate-ship, and write a log for each
#[derive(Debug, clap::Parser)]
#[command(name = "tollgate-collect", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Listen, and write what hosts send
    Run(RunArgs),
    /// Show what each host has sent, and which peers were refused
    Status(status::Args),
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Take what FILE says, in TOML
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/tollgate/collect.toml"
    )]
    config: PathBuf,
    /// Keep the status in DIR
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tollgate-collect")]
    state: PathBuf,
}

/// Runs a command.
///
/// # Errors
/// As of the command.
pub(crate) fn run(words: impl IntoIterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    match Args::parse_from(words).command {
        Command::Run(args) => collect(&args),
        Command::Status(args) => status::run(&args),
    }
}

/// Listens until a signal.
///
/// # Errors
/// The configuration has mistakes, or a socket or directory cannot be used.
fn collect(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let config = Config::read(&args.config)?;
    let state = startup::open_state(&args.state)?;
    let mut hosts = Hosts::open(&config.directory, config.logs, config.peers)?;
    restore(&mut hosts, &state)?;
    let with_tls = config.tls.as_ref().map_or(&[][..], |tls| &tls.listen);
    let sockets = listener::bind(&config.listen, with_tls)?;
    let metrics = metrics_server::listen(config.metrics.as_ref())?;
    confinement::allow_open_files(&config.limits)?;
    confinement::drop_capabilities()?;
    let files = config.tls.iter().flat_map(TlsSettings::files);
    info(confinement::confine(hosts.path(), &args.state, files)?);
    let tls = config.tls.map(TlsAcceptor::open).transpose()?;
    let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
    let wake = Arc::new(wake.context("cannot make an eventfd")?);
    let waker = Arc::clone(&wake);
    let stop = startup::watch_signals(move || {
        // A full counter wakes, too.
        let _is_counted = waker.write(1);
    })?;
    let file = StatusFile {
        name: STATUS,
        max_bytes: MAX_STATUS_BYTES,
        metrics: metrics::text,
    };
    metrics_server::start(metrics, &args.state, file)?;
    let mut listen = Vec::new();
    for socket in &sockets {
        let address = socket.listener.local_addr()?;
        listen.push(match socket.has_tls {
            true => format!("{address} with TLS"),
            false => address.to_string(),
        });
    }
    info(format_args!("listens at {}", listen.join(", ")));
    let mut progress = Progress::new(now_ms(), listen, hosts.path().display().to_string());
    progress.hosts = hosts.all_progress();
    progress.networks = hosts.networks().to_vec();
    // From the first record on, the run before is not the last one that has ended in order.
    if let Err(error) = state.replace(STATUS, &progress.text()) {
        info(format_args!("{:#}", anyhow::Error::from(error)));
    }
    let syncer = Syncer::start(state)?;
    Listener::new(sockets, tls, hosts, config.limits, syncer, progress)?.run(&wake, &stop)?;
    Ok(ExitCode::SUCCESS)
}

/// Goes on from what the last run knew of the hosts.
///
/// # Errors
/// Its status cannot be read.
fn restore(hosts: &mut Hosts, state: &StateDirectory) -> anyhow::Result<()> {
    let Some(text) = state.read(STATUS, MAX_STATUS_BYTES)? else {
        return Ok(());
    };
    match Progress::parse(&text) {
        Ok(progress) => hosts.restore(progress.into_known_hosts()),
        Err(error) => info(format_args!(
            "the status of the last run is not used: {error:#}"
        )),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn manual_page_is_current() {
        let page = manual::Page::new("tollgate-collect", Args::command());
        page.check().unwrap();
    }
}
