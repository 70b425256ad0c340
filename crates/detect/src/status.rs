//! `tollgate detect status`: what the run that uses a state directory has done, and how far it is behind the log.
//!
//! The files of the directory are those of an unprivileged user: they are bounded, no link is followed, and their texts
//! are escaped. The log is the one that the caller names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use logs::cursor::Cursor;
use logs::escaped::EscapedJson;
use logs::event_reader::{EventReader, Item};
use logs::log_set::LogSet;
use serde_json::{Value, json};

use crate::FAILED;
use crate::output::{Output, table};
use crate::run::progress::{Progress, RuleProgress, absolute};
use crate::run::state;
use crate::sigma::{Level, one_line};

/// Most events behind the position that are counted.
const MAX_LAG_EVENTS: u64 = 1_000_000;

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// State directory of the run
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tollgate-detect")]
    state: PathBuf,
    /// Compare the position with LOG
    #[arg(long, value_name = "LOG", default_value = "/var/log/audit/audit.log")]
    log: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How far a run is behind the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lag {
    /// Events that were not evaluated; at most [`MAX_LAG_EVENTS`].
    events: u64,
    /// From the last event that was evaluated to the last one of the log.
    ms: u64,
}

/// Prints the status. The exit status is 1 if the run does not run.
///
/// # Errors
/// The directory cannot be read, or has no status.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shown = args.state.display();
    let text = state::status(&args.state)?.with_context(|| {
        format!("state directory `{shown}` has no status: no `tollgate detect run` has used it")
    })?;
    let progress =
        Progress::parse(&text).with_context(|| format!("cannot read `{shown}/status`"))?;
    let is_alive = progress.is_alive();
    let lag = lag(&progress, &args.log);
    let mut out = Output::new();
    match args.json {
        true => out.line(EscapedJson(&as_json(
            &progress,
            is_alive,
            lag.as_ref().ok(),
        )))?,
        false => print(&progress, is_alive, &lag, &mut out)?,
    }
    out.end()?;
    Ok(match is_alive {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(FAILED),
    })
}

/// How far a run is behind a log.
///
/// # Errors
/// Why that is not known.
fn lag(progress: &Progress, log: &Path) -> anyhow::Result<Lag> {
    let log = match log.is_dir() {
        true => log.join("audit.log"),
        false => log.to_owned(),
    };
    let own = one_line(&progress.log);
    anyhow::ensure!(
        progress.log == absolute(&log),
        "the run follows `{own}`: name it with --log"
    );
    let cursor = progress
        .cursor
        .as_deref()
        .context("the run has no position yet")?;
    let cursor: Cursor = cursor.parse()?;
    let mut reader = EventReader::at_cursor(LogSet::rotated(&log)?, &cursor)?;
    let last = progress.last_event;
    let mut since_ms = last.map(|(ms, _)| ms);
    let mut lag = Lag::default();
    while lag.events < MAX_LAG_EVENTS {
        match reader.next_item()? {
            Some(Item::Event(event)) => {
                let time = event.time();
                let ms = time
                    .sec
                    .saturating_mul(1000)
                    .saturating_add(time.milli.into());
                // The last event that was evaluated may come once more.
                if last != Some((ms, event.serial().0)) {
                    lag.events += 1;
                    lag.ms = ms.saturating_sub(*since_ms.get_or_insert(ms));
                }
            }
            Some(Item::Malformed { .. }) => {}
            None | Some(Item::Idle | Item::Lost) => break,
        }
    }
    Ok(lag)
}

/// Numbers of events, of alerts, and of events that were silenced.
const fn counts(rule: &RuleProgress) -> [u64; 3] {
    [rule.events, rule.alerts, rule.silenced]
}

/// The same by level.
fn by_level(progress: &Progress) -> BTreeMap<Level, [u64; 3]> {
    let mut levels: BTreeMap<Level, [u64; 3]> = BTreeMap::new();
    for rule in progress.by_rule.values() {
        let mut known = Level::ALL.into_iter();
        if let Some(level) = known.find(|level| level.name() == rule.level) {
            let sums = levels.entry(level).or_default();
            for (sum, count) in sums.iter_mut().zip(counts(rule)) {
                *sum = sum.saturating_add(count);
            }
        }
    }
    levels
}

fn print(
    progress: &Progress,
    is_alive: bool,
    lag: &anyhow::Result<Lag>,
    out: &mut Output,
) -> anyhow::Result<()> {
    let state = match is_alive {
        true => format!("runs, process {}", progress.pid),
        false => "does not run: start `tollgate detect run`, or look at its messages".to_owned(),
    };
    out.line(format_args!("run        {state}"))?;
    out.line(format_args!("since      {}", time(progress.started_ms)))?;
    out.line(format_args!("log        {}", one_line(&progress.log)))?;
    let position = match progress.last_event {
        Some((ms, serial)) => format!("{}, serial {serial}", time(ms)),
        None => "no event yet".to_owned(),
    };
    out.line(format_args!("position   {position}"))?;
    match lag {
        Ok(Lag { events, ms }) => {
            let least = if *events == MAX_LAG_EVENTS {
                "at least "
            } else {
                ""
            };
            let (seconds, ms) = (ms / 1000, ms % 1000);
            out.line(format_args!(
                "lag        {least}{events} events, {seconds}.{ms:03} seconds"
            ))?;
        }
        Err(error) => out.line(format_args!(
            "lag        not known: {}",
            one_line(&format!("{error:#}"))
        ))?,
    }
    let rules = progress.rules;
    out.line(format_args!(
        "rules      {} loaded, {} cannot be loaded, {} for other log sources",
        rules.loaded, rules.refused, rules.other_log_sources
    ))?;
    out.line(format_args!("events     {}", progress.events))?;
    out.line(format_args!(
        "left out   {} by the rate limit",
        progress.left_out
    ))?;
    out.line(format_args!("silences   {} apply", progress.silences))?;
    let correlations = progress.correlations;
    if correlations.rules > 0 {
        out.line(format_args!(
            "windows    {} groups of {} correlation rules; {} forgotten, {} events too late",
            correlations.groups, correlations.rules, correlations.forgotten, correlations.late
        ))?;
    }
    let outputs = progress.outputs;
    if outputs.syslog_sent + outputs.syslog_lost > 0 {
        out.line(format_args!(
            "syslog     {} sent, {} lost",
            outputs.syslog_sent, outputs.syslog_lost
        ))?;
    }
    if outputs.programs_started + outputs.programs_failed + outputs.programs_left_out > 0 {
        out.line(format_args!(
            "on alert   {} programs started, {} failed, {} alerts left out",
            outputs.programs_started, outputs.programs_failed, outputs.programs_left_out
        ))?;
    }
    let row = |name: &str, counts: [u64; 3]| -> Vec<String> {
        let counts = counts.iter().map(u64::to_string);
        std::iter::once(name.to_owned()).chain(counts).collect()
    };
    let header = |name: &str| {
        [name, "events", "alerts", "silenced"]
            .map(str::to_owned)
            .to_vec()
    };
    let mut rows = vec![header("level")];
    let levels = by_level(progress);
    rows.extend(
        levels
            .iter()
            .rev()
            .map(|(level, counts)| row(level.name(), *counts)),
    );
    let mut rules: Vec<_> = progress.by_rule.values().collect();
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.events));
    rows.push(header("rule"));
    rows.extend(
        rules
            .iter()
            .map(|rule| row(&one_line(&rule.title), counts(rule))),
    );
    for line in table(&rows) {
        out.line(line)?;
    }
    Ok(())
}

/// Time as RFC 3339 writes it.
fn time(ms: u64) -> String {
    let time = i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    match time {
        Some(time) => time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string(),
        None => format!("@{ms}ms"),
    }
}

fn as_json(progress: &Progress, is_alive: bool, lag: Option<&Lag>) -> Value {
    let levels = by_level(progress);
    let levels = levels.iter().map(|(level, [events, alerts, silenced])| {
        let counts = json!({ "events": events, "alerts": alerts, "silenced": silenced });
        (level.name().to_owned(), counts)
    });
    json!({
        "alive": is_alive,
        "pid": progress.pid,
        "since": time(progress.started_ms),
        "log": progress.log,
        "cursor": progress.cursor,
        "last_event": progress.last_event.map(|(ms, serial)| json!({ "time": time(ms), "serial": serial })),
        "lag": lag.map(|lag| json!({
            "events": lag.events,
            "is_least": lag.events == MAX_LAG_EVENTS,
            "milliseconds": lag.ms,
        })),
        "rules": progress.rules,
        "events": progress.events,
        "left_out_by_rate": progress.left_out,
        "silences": progress.silences,
        "correlations": progress.correlations,
        "outputs": progress.outputs,
        "by_level": levels.collect::<serde_json::Map<_, _>>(),
        "by_rule": progress.by_rule,
    })
}
