//! `tollgate ship run`: follows the log, with one thread for each destination.
//!
//! The threads share nothing but the state directory, in which each has a file of its own. This one writes what they do
//! to the file `status`, and waits for signals.

mod backoff;
mod confinement;
mod metrics;
pub(crate) mod progress;
mod refusals;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::auditd::AuditdSink;
use crate::boots::Boots;
use crate::config::{Config, Destination, Kind};
use crate::json_lines::JsonLines;
use crate::kafka::KafkaSink;
use crate::metrics_server::{self, StatusFile};
use crate::otlp::OtlpSink;
use crate::output::{LastTold, info};
use crate::parquet_files::ParquetSink;
use crate::sink::{Sink, StreamSink};
use crate::startup;
use crate::syslog::Syslog;
use crate::transport::{StandardOutput, Tcp, Tls, UnixSocket};
use progress::{MAX_STATUS_BYTES, Progress, STATUS};
use worker::{End, Shared, Worker};

const PROC: &str = "/proc";
const BOOTS: &str = "boots";
/// Most bytes of the file of boots.
const MAX_BOOTS_BYTES: u64 = 64 << 10;
/// How often the status is written, if it changed: destinations change it once a second.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// The same while destinations end.
const END_INTERVAL: Duration = Duration::from_millis(50);
/// How long a destination may take to end in order.
const END: Duration = Duration::from_secs(6);

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Send what FILE says, in TOML
    #[arg(long, value_name = "FILE", default_value = "/etc/tollgate/ship.toml")]
    config: PathBuf,
    /// Keep the positions in the log in DIR
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tollgate-ship")]
    state: PathBuf,
    /// Stop when each destination has the whole log
    #[arg(long)]
    once: bool,
}

/// Sends the log until a signal, or until its end.
///
/// # Errors
/// The configuration has mistakes, or the state cannot be used.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::read(&args.config)?;
    let state = startup::open_state(&args.state)?;
    let known_boots = state.read(BOOTS, MAX_BOOTS_BYTES)?.unwrap_or_default();
    let boots = Boots::read(&known_boots, Path::new(PROC))?;
    let log = match config.log.is_dir() {
        true => config.log.join("audit.log"),
        false => config.log.clone(),
    };
    let metrics = metrics_server::listen(config.metrics.as_ref())?;
    let kinds: Vec<&Kind> = config.destinations.iter().map(|to| &to.kind).collect();
    info(confinement::confine(&log, &args.state, &kinds)?);
    let main = thread::current();
    let stop = startup::watch_signals(move || main.unpark())?;
    let shared = Arc::new(Shared {
        end: if args.once { End::OfLog } else { End::Never },
        stop,
        log,
        host: config.host,
        heartbeat: config.heartbeat,
        boots,
        state,
    });
    let file = StatusFile {
        name: STATUS,
        max_bytes: MAX_STATUS_BYTES,
        metrics: metrics::text,
    };
    metrics_server::start(metrics, &args.state, file)?;
    let mut progress = Progress::new(&shared.log, &shared.host);
    let mut threads = Vec::new();
    for destination in config.destinations {
        let sink = sink(&destination, &shared.host)?;
        let worker = Worker::new(Arc::clone(&shared), destination, sink)?;
        progress.destinations.push(worker.progress());
        let thread = thread::Builder::new()
            .name(format!("tlg-{}", worker.name()))
            .spawn(move || worker.run());
        threads.push(thread.context("cannot start a thread")?);
    }
    wait(&shared, &progress, known_boots, &threads);
    Ok(ExitCode::SUCCESS)
}

/// What a destination is.
fn sink(destination: &Destination, host: &str) -> anyhow::Result<Box<dyn Sink>> {
    let resend = destination.resend;
    Ok(match &destination.kind {
        Kind::JsonOutput => Box::new(StreamSink::new(
            JsonLines,
            StandardOutput::default(),
            resend,
        )),
        Kind::Syslog(address, Some(tls)) => Box::new(StreamSink::new(
            Syslog::default(),
            Tls::new(address.text.clone(), tls.clone()),
            resend,
        )),
        Kind::Syslog(address, None) => Box::new(StreamSink::new(
            Syslog::default(),
            Tcp::new(address.text.clone()),
            resend,
        )),
        Kind::Otlp(endpoint, compression) => {
            Box::new(OtlpSink::new(endpoint.clone(), *compression))
        }
        Kind::Kafka(settings) => Box::new(KafkaSink::new(settings.clone(), host)),
        Kind::Auditd(address, timeout) => Box::new(AuditdSink::new(address.text.clone(), *timeout)),
        Kind::JsonUnix(path) => Box::new(StreamSink::new(
            JsonLines,
            UnixSocket::new(path.clone()),
            resend,
        )),
        Kind::Parquet(settings) => {
            Box::new(ParquetSink::new(&destination.name, host, settings.clone())?)
        }
    })
}

/// Writes the boots and the status until the threads have ended, or a signal came and they take too long. What cannot be
/// written, on a full disk, is tried again: events are sent all the same.
fn wait(shared: &Shared, progress: &Progress, known_boots: String, threads: &[JoinHandle<()>]) {
    let (mut last_boots, mut last) = (known_boots, String::new());
    let mut told = LastTold::default();
    let mut stopped = None;
    loop {
        let is_over = threads.iter().all(JoinHandle::is_finished);
        let write = |name: &str, text: String, last: &mut String| {
            if text != *last {
                shared.state.replace(name, &text)?;
                *last = text;
            }
            anyhow::Ok(())
        };
        let boots = write(BOOTS, shared.boots.text(), &mut last_boots);
        let status = progress.text();
        let status = status.and_then(|text| write(STATUS, text, &mut last));
        match boots.and(status) {
            Ok(()) => told = LastTold::default(),
            Err(error) => {
                let text = format!("{error:#}");
                if told.is_new(&text) {
                    info(text);
                }
            }
        }
        if is_over {
            return;
        }
        if shared.stop.load(Ordering::Relaxed) {
            threads.iter().for_each(|thread| thread.thread().unpark());
            if stopped.get_or_insert_with(Instant::now).elapsed() > END {
                info("a destination takes too long to end: the next run continues where it is");
                return;
            }
        }
        let interval = match stopped {
            Some(_) => END_INTERVAL,
            None => STATUS_INTERVAL,
        };
        thread::park_timeout(interval);
    }
}
