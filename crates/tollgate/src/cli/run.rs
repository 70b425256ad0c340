//! `tollgate run`: audits one command and all that it starts, without root.
//!
//! The command keeps its standard streams, its signals and its exit status. What tollgate has to say goes
//! to standard error, and records to where `--log` says.

mod account;
mod signals;
mod why;

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use anyhow::{Context as _, Result};
use audit::event::Event;
use audit::plan::Plan;
use audit::plan::exclude_list::ExcludeList;
use audit::record::encode;
use nix::errno::Errno;
use trace::{
    Backend, CommandSpec, CommandStatus, Observer, ResultCapture, RunError, RunSummary,
    exit_by_signal,
};

use self::account::Account;
use crate::messages::{self, info};
use crate::rule_files::{self, RuleFile, RuleFiles};
use crate::sinks::Accounts;
use crate::sinks::console::{Console, Interpret};
use crate::sinks::json;
use crate::sinks::log_file::Log;
use crate::sinks::queue::SinkQueue;

/// The rules of a command that none are given for.
const FIRST_RULES: &str = include_str!("../../../../examples/first.rules");

/// Arguments of `tollgate run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rule file; may be given several times, read in this order [default: a first set, built in]
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// Log file, appended to; `-` is standard output
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Writes the log as JSON, an event on a line; without --log to standard output
    #[arg(long)]
    json: bool,
    /// Shows events on standard error; so it does when there is no log either
    #[arg(long)]
    print: bool,
    /// Shows names of users, groups, errors and flags in place of numbers
    #[arg(long)]
    interpret: bool,
    /// Leaves the results of calls out of the records, unless a rule asks for them: cheaper by far
    #[arg(long)]
    no_result: bool,
    /// Loads what can be loaded when some rules cannot be honoured
    #[arg(long)]
    partial: bool,
    /// Command to run, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// What `run` ends with when the command was not run, as `env(1)` and shells have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotRun {
    /// tollgate could not do its part.
    Ours = 125,
    /// The command is there and cannot be executed.
    NotExecutable = 126,
    /// There is no such command.
    NotFound = 127,
}

impl From<NotRun> for ExitCode {
    fn from(not_run: NotRun) -> Self {
        match not_run {
            NotRun::Ours => Self::from(125),
            NotRun::NotExecutable => Self::from(126),
            NotRun::NotFound => Self::from(127),
        }
    }
}

/// Runs a command and audits it; ends as the command ends.
pub(crate) fn run(args: &Args) -> ExitCode {
    let outcome = match try_run(args) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(not_run)) => return not_run.into(),
        Err(error) => {
            let _failure = messages::print_error(&error);
            return NotRun::Ours.into();
        }
    };
    match outcome.status {
        CommandStatus::Exited(code) => ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        CommandStatus::Signaled(signal) => {
            exit_by_signal(signal);
            // A signal that does not end us is told as shells do.
            ExitCode::from(u8::try_from(128 + i32::from(signal as u8)).unwrap_or(u8::MAX))
        }
        CommandStatus::ExecFailed(errno) => not_started(args, errno).into(),
    }
}

fn try_run(args: &Args) -> Result<Result<RunSummary, NotRun>> {
    let Some(mut plan) =
        rule_files::compile_plan(loaded(args)?, args.partial, rule_files::NOTHING_ATTACHED)?
    else {
        return Ok(Err(NotRun::Ours));
    };
    if !plan.task_slots.is_empty() {
        info(
            "rules of the task list are about tasks of the whole machine: they have no effect here",
        );
    }
    if !plan.uring_ops.is_empty() {
        info("operations of io_uring are not seen here: rules of the io_uring list have no effect");
    }
    if plan.filesystem_list.conditions().next().is_some() {
        info(
            "on which file system a name is, is not looked at here: rules of the filesystem list have no effect",
        );
    }
    plan.retain_exit_list();
    let program = match find(args) {
        Ok(program) => program,
        Err(errno) => return Ok(Err(not_started(args, errno))),
    };
    let results = if args.no_result {
        ResultCapture::IfTested
    } else {
        ResultCapture::Always
    };
    let backend = Backend::select(&plan, results);
    let sinks = Sinks::open(args)?;
    let signal_mask = signals::block().context("cannot block signals")?;
    let command = CommandSpec {
        program,
        args: strings(&args.command)?,
        signal_mask,
    };
    // One thread until here: the child is made as a copy of it.
    let started = match command.spawn(&plan, backend) {
        Ok(started) => started,
        Err(error) => return refuse(error).map(Err),
    };
    let mut running = sinks.start(plan.exclude_list.clone())?;
    signals::forward(started.child())?;
    if running.view.is_some() {
        info(&ready(&plan, backend));
    }
    let followed = started.supervise(&plan, results, &mut running);
    let account = running.finish();
    let outcome = followed.context("the command is not audited any more, and was ended")?;
    account.tell(outcome.stats);
    Ok(Ok(outcome))
}

fn loaded(args: &Args) -> Result<RuleFiles> {
    if !args.rules.is_empty() {
        return rule_files::read(&args.rules);
    }
    let name = PathBuf::from("<the rules built in>");
    let built_in = RuleFile::parse(name, FIRST_RULES.as_bytes().to_vec());
    Ok(RuleFiles {
        files: vec![built_in],
    })
}

/// Says why the command cannot be audited here.
fn refuse(error: RunError) -> Result<NotRun> {
    let advice = why::advice(&error);
    let error = anyhow::Error::from(error);
    info(&match advice {
        Some(advice) => format!("{error:#}: {advice}"),
        None => format!("{error:#}"),
    });
    Ok(NotRun::Ours)
}

fn not_started(args: &Args, errno: Errno) -> NotRun {
    let name = args.command.first().map(|name| name.to_string_lossy());
    info(&format!(
        "cannot run `{}`: {}",
        name.unwrap_or_default(),
        errno.desc()
    ));
    if errno == Errno::ENOENT {
        NotRun::NotFound
    } else {
        NotRun::NotExecutable
    }
}

/// The file that a shell would run for the command.
fn find(args: &Args) -> Result<CString, Errno> {
    let name = args.command.first().ok_or(Errno::ENOENT)?;
    let string = |path: &OsStr| CString::new(path.as_bytes()).map_err(|_nul| Errno::ENOENT);
    if name.as_bytes().contains(&b'/') {
        return string(name);
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = Errno::ENOENT;
    for directory in env::split_paths(&path) {
        let file = Path::new(&directory).join(name);
        match fs::metadata(&file) {
            Ok(about) if about.is_file() && about.permissions().mode() & 0o111 != 0 => {
                return string(file.as_os_str());
            }
            Ok(about) if about.is_file() => refused = Errno::EACCES,
            _ => {}
        }
    }
    Err(refused)
}

fn strings(words: &[OsString]) -> Result<Vec<CString>> {
    words
        .iter()
        .map(|word| CString::new(word.as_bytes()))
        .collect::<Result<_, _>>()
        .context("an argument holds a NUL byte")
}

fn ready(plan: &Plan, backend: Backend) -> String {
    let how = match backend {
        Backend::Ptrace => "with results",
        Backend::Notify => "without results",
    };
    format!(
        "auditing {} calls for {} rules in one command, engine seccomp, {how}",
        plan.syscalls.len(),
        plan.rules.len()
    )
}

/// Where events go, before any thread runs.
struct Sinks {
    log: Option<Destination>,
    json: bool,
    view: Option<Interpret>,
}

enum Destination {
    Stdout,
    File(Log),
}

impl Sinks {
    fn open(args: &Args) -> Result<Self> {
        let log = match args.log.as_deref() {
            Some(path) if path == Path::new("-") => Some(Destination::Stdout),
            Some(path) => Some(Destination::File(Log::open(path)?)),
            None if args.json => Some(Destination::Stdout),
            None => None,
        };
        let view = if args.print || log.is_none() {
            Some(if args.interpret {
                Interpret::Names(Accounts::read().context("cannot read the names of users")?)
            } else {
                Interpret::Raw
            })
        } else {
            None
        };
        Ok(Self {
            log,
            json: args.json,
            view,
        })
    }

    fn start(self, exclude: ExcludeList) -> Result<RunningPipeline> {
        let log = match self.log {
            None => None,
            Some(Destination::Stdout) => Some(SinkQueue::start("tlg-log", |text: &[u8]| {
                let mut out = io::stdout().lock();
                out.write_all(text)?;
                out.flush()
            })?),
            Some(Destination::File(mut log)) => {
                Some(SinkQueue::start("tlg-log", move |text: &[u8]| {
                    log.append(text).map_err(|partly| partly.error)
                })?)
            }
        };
        let view = match self.view {
            None => None,
            Some(interpret) => {
                let mut screen = AutoStream::new(io::stderr(), ColorChoice::Auto);
                let outlet = SinkQueue::start("tlg-print", move |text: &[u8]| {
                    messages::ignore_broken_pipe(screen.write_all(text))
                })?;
                let terminal = Console::new(interpret, Box::new(outlet.writer()));
                Some((outlet, terminal))
            }
        };
        Ok(RunningPipeline {
            log,
            json: self.json,
            exclude,
            view,
        })
    }
}

/// Where events go while the command runs.
struct RunningPipeline {
    log: Option<SinkQueue>,
    json: bool,
    /// Which records are not written; events as JSON have no records.
    exclude: ExcludeList,
    view: Option<(SinkQueue, Console)>,
}

impl RunningPipeline {
    fn finish(self) -> Account {
        Account {
            log: self.log.map(SinkQueue::finish),
            view: self.view.map(|(outlet, _)| outlet.finish()),
        }
    }
}

impl Observer for RunningPipeline {
    fn on_event(&mut self, event: &Event<'_>) {
        if let Some(log) = &self.log {
            log.append(|text| {
                if self.json {
                    json::event(event, text);
                } else {
                    let start = text.len();
                    encode::event(event, text);
                    self.exclude.remove_excluded(&event.task, text, start);
                }
            });
        }
        if let Some((_, terminal)) = &mut self.view {
            // The outlet takes or counts.
            let _taken = terminal.event(event);
        }
    }

    fn on_warning(&mut self, text: &str) {
        info(text);
    }
}
