//! `tollgate search`: finds events in logs.

mod output;
mod time;
mod tree;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use audit::record::assemble::EventRecords;
use clap::Parser as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use logs::accounts::Accounts;
use logs::candidates::{Candidates, Progress};
use logs::escaped::Escaped;
use logs::event_reader::{EventReader, Item};
use logs::expression::{Expression, field, parse};
use logs::index::Condition;
use logs::log_file::is_archive_name;
use logs::log_set::LogSet;

use crate::logs_arg::Logs;
use crate::{ERROR, info, mistake};
use output::{Form, Output};
use time::TimeRange;

/// Exit statuses, as of `grep`: something was found, or nothing.
const FOUND: u8 = 0;
const NOT_FOUND: u8 = 1;

/// Examples of the help and the manual page: the questions that an investigator asks.
const EXAMPLES: &str = "\
Examples:
  Who changed the password file?
    tollgate search 'path=/etc/passwd and success=yes'
  What did a user do as root since this morning?
    tollgate search 'auid=alice and euid=0' --since today
  Which programs ran from a directory that everybody can write?
    tollgate search 'syscall=execve and exe~/tmp/' --top exe
  What was denied, and to whom?
    tollgate search 'exit=EACCES or exit=EPERM' --top auid
  Where did connections go?
    tollgate search 'syscall=connect and not addr=127.0.0.1' --top addr
  Who failed to log in, and from where?
    tollgate search 'type=USER_LOGIN and success=no' --top addr
  What touched a directory in the hour of the incident?
    tollgate search dir=/srv/www --since '2026-11-24 03:00' --until '2026-11-24 04:00'
  Where did this process come from, and what did it do?
    tollgate search --tree 4321
  How many events has each key?
    tollgate search type=SYSCALL --top key
  Show new events of a rule as they happen:
    tollgate search key=identity --follow";

/// Find events in the audit log
///
/// EXPRESSION joins tests of fields with `and`, `or`, `not` and parentheses. It may be several words.
/// A test is FIELD=VALUE, FIELD!=VALUE, FIELD~TEXT (contains), FIELD!~TEXT, or compares numbers with <, <=, > or >=.
/// Users, groups, syscalls, errors and record types are written by name or number.
/// The exit status is 0 if an event was found, 1 if not, and 2 after an error.
/// A file that cannot be read is reported, and the others are searched.
#[derive(Debug, clap::Parser)]
#[command(name = "tollgate-search", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Events to find [default: all]
    #[arg(value_name = "EXPRESSION")]
    words: Vec<String>,
    /// Search FILE or its directory with rotated predecessors and archives; `-` is standard input
    /// [default: /var/log/audit/audit.log]
    ///
    /// Given several times, the files are read in this order, without predecessors. An archive is searched alone.
    /// Standard input may be compressed with zstd.
    #[arg(long, value_name = "FILE")]
    log: Vec<PathBuf>,
    /// Ignore events before TIME, in UTC
    ///
    /// TIME is an age such as 90s, 10m, 2h or 3d, a date such as 2026-11-24, a date with a time such as
    /// '2026-11-24 10:30:00', a time of today such as 10:30, `today`, `yesterday`, or seconds since the epoch
    /// as @1700000000. A date with a time may end in an offset, such as 2026-11-24T10:30:00+02:00.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Ignore events at or after TIME
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<String>,
    /// Show the ancestors of a process and what it and its descendants did
    ///
    /// N is a process id, or the serial of an event of the process. Process ids are used again: limit the time with
    /// --since. With --json and --raw, the ancestors are left out.
    #[arg(long, value_name = "N", conflicts_with_all = ["follow", "count", "top", "words"])]
    tree: Option<u32>,
    /// Print events as JSON objects, one on a line
    #[arg(long, conflicts_with_all = ["raw", "count", "top"])]
    json: bool,
    /// Print the records as they are in the log, for ausearch and aureport
    #[arg(long, conflicts_with_all = ["count", "top"])]
    raw: bool,
    /// Wait for new events; an archive has none
    #[arg(long, conflicts_with_all = ["count", "top", "until"])]
    follow: bool,
    /// Print only the number of events
    #[arg(long)]
    count: bool,
    /// Print the most frequent values of FIELD
    #[arg(long, value_name = "FIELD", conflicts_with = "count")]
    top: Option<String>,
    /// Print at most N values with --top
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        requires = "top",
        allow_hyphen_values = true
    )]
    limit: usize,
    /// Show numbers instead of names
    #[arg(long)]
    numeric: bool,
    /// Color the output
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "always", "never"])]
    color: String,
    /// List the fields of expressions
    #[arg(long, exclusive = true)]
    fields: bool,
}

/// Prints the events that match.
///
/// # Errors
/// When a log cannot be read, the output cannot be written, or an argument is invalid.
pub(crate) fn run(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let args = Args::parse_from(words);
    let logs = Logs::new("tollgate-search", args.log.clone());
    let found = match search(&args, &logs) {
        Ok(found) => found,
        // The reader of the output has seen enough.
        Err(error) if is_closed_pipe(&error) => true,
        Err(error) => return Err(error),
    };
    let status = if found { FOUND } else { NOT_FOUND };
    Ok(ExitCode::from(if logs.have_errors() {
        ERROR
    } else {
        status
    }))
}

fn search(args: &Args, logs: &Logs) -> anyhow::Result<bool> {
    if args.fields {
        return output::print_fields(field::names()).map(|()| true);
    }
    let accounts = Accounts::read().unwrap_or_default();
    let text = args.words.join(" ");
    let expression = parse::parse(&text, &accounts)
        .map_err(|mistake| anyhow::anyhow!(mistake::draw("expression", &text, &mistake)))?;
    let range = TimeRange::parse(args.since.as_deref(), args.until.as_deref())?;
    let form = match (args.json, args.raw) {
        (true, _) => Form::Json,
        (_, true) => Form::Raw,
        _ => Form::Columns(args.numeric),
    };
    let mut output = Output::new(form, &args.color, accounts.clone());
    if let Some(number) = args.tree {
        return tree::print(number, &range, logs, &mut output);
    }
    let query = Query { expression, range };
    if args.follow {
        follow(args, &query, logs, &mut output)?;
        return Ok(true);
    }
    let mut count = 0_u64;
    let mut top = match &args.top {
        Some(name) => Some(output::Top::new(name, args.numeric, accounts)?),
        None => None,
    };
    query.for_each(logs, |event| {
        count += 1;
        match &mut top {
            Some(top) => top.add(event),
            None if args.count => {}
            None => output.event(event)?,
        }
        Ok(())
    })?;
    match top {
        Some(top) => output.top(&top, args.limit)?,
        None if args.count => output.line(&count.to_string())?,
        None => {}
    }
    output.end()?;
    if count == 0 {
        if query.range.is_future()? {
            info("tollgate-search: --since is later than now");
        }
        for name in query.expression.unknown_accounts() {
            info(&format!(
                "tollgate-search: no user or group of this machine is called `{name}`: only records that contain the \
                 name were compared; write the number for others"
            ));
        }
    }
    Ok(count > 0)
}

/// What is searched.
pub(crate) struct Query {
    pub(crate) expression: Expression,
    pub(crate) range: TimeRange,
}

impl Query {
    /// Passes each matching event to `found`, oldest first. Files that cannot be read are reported.
    ///
    /// # Errors
    /// There is no log, and errors of `found`.
    pub(crate) fn for_each(
        &self,
        logs: &Logs,
        mut found: impl FnMut(&EventRecords) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let condition = Condition::All(vec![self.range.condition(), self.expression.condition()]);
        let pattern = self.expression.text_pattern();
        let filter = |text: &[u8]| pattern.may_match(text);
        let mut bar = Bar::new();
        let building = |progress| bar.show("indexing", progress);
        let mut candidates = Candidates::new(logs.open()?, &condition, Box::new(filter), building)?;
        loop {
            match candidates.next_event() {
                Ok(Some(event)) if self.matches(event) => bar.hidden(|| found(event))?,
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => bar.hidden(|| logs.report(&error)),
            }
            bar.show("searching", candidates.progress());
        }
        bar.end();
        Ok(())
    }

    fn matches(&self, event: &EventRecords) -> bool {
        self.range.contains(event.time()) && self.expression.matches(event)
    }
}

fn follow(args: &Args, query: &Query, logs: &Logs, output: &mut Output) -> anyhow::Result<()> {
    let Some(path) = logs.single() else {
        bail!("--follow reads one file, and not standard input: name one with --log");
    };
    let path = if path.is_dir() {
        path.join("audit.log")
    } else {
        path.to_owned()
    };
    let opened = follow_from(&path, logs)?;
    if args.since.is_some() {
        query.for_each(logs, |event| output.event(event))?;
    }
    let mut reader = EventReader::new(opened)
        .follow(&path)
        .with_context(|| format!("cannot follow log `{}`", path.display()))?;
    reader.skip_to_end()?;
    output.end()?;
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Event(event) if query.matches(event) => {
                output.event(event)?;
                output.end()?;
            }
            Item::Event(_) | Item::Malformed { .. } | Item::Idle | Item::Lost => {}
        }
    }
    Ok(())
}

/// Opens the log that is followed.
///
/// # Errors
/// It cannot be read, or does not grow.
fn follow_from(path: &Path, logs: &Logs) -> anyhow::Result<LogSet> {
    let refuse_archive = |is_archive| match is_archive {
        true => bail!(
            "--follow: `{}` is compressed and does not grow; search it without --follow, or follow the log itself",
            Escaped(path.as_os_str().as_encoded_bytes())
        ),
        false => Ok(()),
    };
    refuse_archive(is_archive_name(path))?;
    let opened = logs
        .entries()?
        .readable_with(path, |error| logs.report(&error))?;
    let mut files = opened.as_files().iter();
    refuse_archive(files.any(|file| file.path() == path && file.is_archive()))?;
    Ok(opened)
}

/// Whether an error is that of a closed pipe.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// A progress bar that appears after a second.
pub(crate) struct Bar {
    started: Instant,
    bar: Option<ProgressBar>,
    /// Steps since the clock was read.
    steps: u32,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            bar: None,
            steps: 0,
        }
    }

    /// Shows how much is done.
    pub(crate) fn show(&mut self, doing: &'static str, progress: Progress) {
        const PATIENCE: Duration = Duration::from_secs(1);
        self.steps += 1;
        if !self.steps.is_multiple_of(64) && self.bar.is_none() && doing != "indexing" {
            return;
        }
        if self.bar.is_none() && self.started.elapsed() >= PATIENCE {
            let bar = ProgressBar::with_draw_target(
                Some(progress.all_bytes),
                ProgressDrawTarget::stderr_with_hz(5),
            );
            let template = "{msg} {wide_bar} {bytes}/{total_bytes} {eta}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_message(doing);
            bar.set_position(progress.done_bytes);
        }
    }

    /// Hides the bar while something is printed.
    fn hidden<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
