//! `tollgate detect run`: follows the log and prints alerts.
//!
//! Alerts are written before the cursor behind their events is saved, so that a run that is killed evaluates no event
//! zero times: the next one repeats the last alerts, with the same ids.

mod alerts;
mod confinement;
mod failures;
pub(crate) mod progress;
mod saver;
pub(crate) mod state;
mod syslog;
mod throttle;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use logs::accounts::Accounts;
use logs::escaped::Escaped;
use logs::event_reader::{EventReader, Item};
use logs::log_file::LogError;
use logs::log_set::LogEntries;
use nix::sys::signal::{SigSet, Signal};

use crate::check::problem_line;
use crate::mapping::{Mapping, ProcessTable};
use crate::on_alert::OnAlert;
use crate::output::info;
use crate::placeholder_file::PlaceholderArgs;
use crate::rule_files::RuleFiles;
use crate::sigma::Level;
use crate::silence::{Asked, Silences};
use alerts::Alerts;
use failures::Failures;
use progress::Progress;
use saver::{Saver, Snapshot};
use state::{Position, State};
use syslog::Syslog;
use throttle::{Limits, Throttle};

/// How often the cursor is saved while events come, and the file of silences looked at.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// How often a summary of the rate limit is printed, and the cursor saved, while it leaves alerts out.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(10);
/// Processes that began before the log.
const PROC: &str = "/proc";

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files of rules, or directories with files `*.yml` and `*.yaml`
    #[arg(value_name = "RULES", required = true)]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    placeholders: PlaceholderArgs,
    /// Follow LOG
    #[arg(long, value_name = "LOG", default_value = "/var/log/audit/audit.log")]
    log: PathBuf,
    /// Leave out the alerts that FILE silences, in TOML; it is read when it appears or changes, and on SIGHUP
    #[arg(long, value_name = "FILE")]
    silences: Option<PathBuf>,
    /// Keep the position in the log in DIR
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tollgate-detect")]
    state: PathBuf,
    /// Begin at the start of the log if there is no position, not at its end
    #[arg(long)]
    from_start: bool,
    /// Stop at the end of the log
    #[arg(long)]
    once: bool,
    /// Print alerts as text, OCSF 1.8 or ECS
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Send alerts of LEVEL and above, or all, to the syslog socket too
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true,
          default_missing_value = "informational", value_parser = levels())]
    syslog: Option<Level>,
    /// Socket of the syslog daemon
    #[arg(
        long,
        value_name = "SOCKET",
        default_value = "/dev/log",
        requires = "syslog"
    )]
    syslog_socket: PathBuf,
    /// Start PROGRAM for each alert that is printed, with the alert on standard input
    #[arg(long, value_name = "PROGRAM")]
    on_alert: Option<PathBuf>,
    /// Start it for alerts of LEVEL and above
    #[arg(long, value_name = "LEVEL", default_value = "high", value_parser = levels(), requires = "on_alert")]
    on_alert_level: Level,
    /// Leave out alerts below LEVEL
    #[arg(long, value_name = "LEVEL", default_value = "medium", value_parser = levels())]
    level: Level,
    /// Count events of one rule, user and program within SECONDS as one alert
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    window: u64,
    /// Print at most N alerts in a minute, the first of each rule and user, and a summary of the others
    #[arg(long, value_name = "N", default_value_t = 60)]
    rate: usize,
}

/// Levels by their names.
fn levels() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(Level::ALL.map(Level::name)).map(|name| {
        let known = Level::ALL.into_iter().find(|level| level.name() == name);
        known.unwrap_or(Level::Medium)
    })
}

/// Form of alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Some lines for people
    Text,
    /// Detection Findings of OCSF 1.8, one on a line
    Ocsf,
    /// Documents of the Elastic Common Schema, one on a line
    Ecs,
}

/// Follows the log until a signal, or until its end.
///
/// # Errors
/// No rule can be loaded, the log cannot be read, or the state or an alert cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut rules = RuleFiles::load(&args.rules, &args.placeholders.read()?);
    report(&rules)?;
    let silences = args.silences.as_deref().map(Silences::read).transpose()?;
    let mut state = State::open(&args.state)?;
    let log = match args.log.is_dir() {
        true => args.log.join("audit.log"),
        false => args.log.clone(),
    };
    let position = state.restore(&mut rules.correlations)?;
    let mut reader = reader(args, &log, position)?;
    let mut processes = ProcessTable::default();
    let mut mapping = {
        processes.seed(Path::new(PROC));
        Mapping::new(Accounts::read().unwrap_or_default(), processes)
    };
    mapping.look_up_in(Path::new(PROC));
    // The helper must not be confined.
    let on_alert = args.on_alert.as_deref();
    let on_alert = on_alert
        .map(|program| OnAlert::start(program, args.on_alert_level))
        .transpose()?;
    let confined =
        confinement::confine(&log, args.silences.as_deref(), &args.state, Path::new(PROC))?;
    info(confined);
    let signals = watch_signals()?;
    let mut alerts = Alerts {
        progress: Progress::new(&log, &rules),
        silences,
        rules,
        mapping,
        least: args.level,
        format: args.format,
        syslog: args
            .syslog
            .map(|least| Syslog::new(&args.syslog_socket, least)),
        on_alert,
        throttle: Throttle::new(Limits {
            window_secs: args.window,
            per_minute: args.rate,
        }),
        last_secs: 0,
        found: Vec::new(),
        correlated: Vec::new(),
        show: Vec::new(),
    };
    let mut log_failures = Failures::default();
    let mut state_failures = Failures::default();
    alerts.tell_about_silences();
    let mut saver = Saver::start(state)?;
    saver.save(snapshot(&saver, &mut reader, &mut alerts));
    let (mut saved, mut looked) = (Instant::now(), Instant::now());
    let mut save_time = Duration::ZERO;
    while !signals.stop.load(Ordering::Relaxed) {
        let mut is_idle = false;
        match reader.next_item() {
            Ok(Some(Item::Event(event))) => {
                alerts.take(event)?;
                log_failures.end();
            }
            Ok(Some(Item::Malformed { path, line, error })) => {
                let path = Escaped(path.as_os_str().as_encoded_bytes());
                info(format_args!("{path}:{line}: {error}"));
            }
            Ok(Some(Item::Idle)) => {
                is_idle = true;
                log_failures.end();
            }
            Ok(Some(Item::Lost)) => {
                info("the log was rotated faster than it was read: events may be missing");
            }
            Ok(None) => break,
            Err(error) => {
                log_failures.note(Err(error.into()));
                if !args.once {
                    log_failures.wait()?;
                }
            }
        }
        if is_idle {
            alerts.expire()?;
        }
        let interval = match alerts.throttle.has_left_out() {
            true => SUMMARY_INTERVAL,
            false => SAVE_INTERVAL,
        };
        if looked.elapsed() >= SAVE_INTERVAL {
            alerts.reread_silences(match signals.reread.swap(false, Ordering::Relaxed) {
                true => Asked::Yes,
                false => Asked::No,
            });
            alerts.flush();
            looked = Instant::now();
        }
        if let Some(result) = saver.result() {
            state_failures.note(result);
        }
        // Windows of many groups are large: copying them must not take most of the time.
        if saved.elapsed() >= interval.max(save_time * 10) && saver.is_idle() {
            if alerts.is_live() {
                alerts.expire()?;
            }
            alerts.summarise()?;
            // Alerts are worth more than a position: what is evaluated again has the same ids.
            let begun = Instant::now();
            saver.save(snapshot(&saver, &mut reader, &mut alerts));
            saved = Instant::now();
            save_time = begun.elapsed();
        }
    }
    alerts.end()?;
    if let Some(on_alert) = &mut alerts.on_alert {
        on_alert.end();
    }
    if reader.has_unfinished() {
        info("the log ends within an event or line: the next run continues before it");
    }
    state_failures.note(saver.wait());
    saver.save(snapshot(&saver, &mut reader, &mut alerts));
    saver.wait()?;
    Ok(ExitCode::SUCCESS)
}

/// Tells what cannot be loaded.
///
/// # Errors
/// No rule can be loaded.
fn report(rules: &RuleFiles) -> anyhow::Result<()> {
    rules.mistakes().map(problem_line).for_each(info);
    let loaded = rules.places.len();
    let foreign = rules.problems.len() - rules.mistakes().count();
    if loaded == 0 {
        bail!("no rule can be loaded: `tollgate detect check RULES` tells why");
    }
    info(format_args!(
        "{loaded} rules; {} cannot be loaded, {foreign} are for other log sources",
        rules.mistakes().count()
    ));
    Ok(())
}

/// Opens the log where the last run ended.
///
/// # Errors
/// The log cannot be read or followed.
fn reader(args: &Args, log: &Path, position: Position) -> anyhow::Result<EventReader> {
    let open = || LogEntries::rotated(log)?.readable_with(log, info);
    let mut at_end = false;
    let reader = match position {
        Position::None => {
            at_end = !args.from_start && !args.once;
            EventReader::new(open()?)
        }
        Position::Unknown => EventReader::new(open()?),
        Position::At(cursor) => match EventReader::at_cursor(open()?, &cursor) {
            Err(LogError::CursorLost) => {
                info(
                    "the log no longer has the position of the last run: events may be missing; \
                     continuing with the oldest that it has",
                );
                EventReader::new(open()?)
            }
            reader => reader?,
        },
    };
    if args.once {
        return Ok(reader.leave_unfinished());
    }
    let mut reader = reader
        .follow(log)
        .with_context(|| format!("cannot follow log `{}`", log.display()))?;
    if at_end {
        reader.skip_to_end()?;
    }
    Ok(reader)
}

/// The position, with what correlation rules remember if it is new, and what led to it.
fn snapshot(saver: &Saver, reader: &mut EventReader, alerts: &mut Alerts) -> Snapshot {
    let cursor = reader.cursor();
    let correlations = &alerts.rules.correlations;
    let has_windows = !correlations.rules().is_empty() && !saver.has(cursor);
    let windows = cursor.filter(|_| has_windows);
    let windows = windows.map(|cursor| correlations.save(cursor.to_string()));
    alerts.note_counts();
    Snapshot {
        cursor,
        windows,
        status: alerts.progress.text(cursor),
    }
}

/// What signals ask for.
#[derive(Debug, Default)]
struct Signals {
    /// SIGTERM or SIGINT came.
    stop: AtomicBool,
    /// SIGHUP came.
    reread: AtomicBool,
}

/// Returns what becomes true when signals come. The reader wakes up for it within two seconds.
fn watch_signals() -> anyhow::Result<Arc<Signals>> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block().context("cannot block signals")?;
    let signals = Arc::new(Signals::default());
    let told = Arc::clone(&signals);
    thread::Builder::new()
        .name("tlg-signals".to_owned())
        .spawn(move || {
            while let Ok(signal) = set.wait() {
                match signal {
                    Signal::SIGHUP => told.reread.store(true, Ordering::Relaxed),
                    _ => told.stop.store(true, Ordering::Relaxed),
                }
            }
        })
        .context("cannot start a thread")?;
    Ok(signals)
}

/// Time of this machine.
fn now_secs() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
