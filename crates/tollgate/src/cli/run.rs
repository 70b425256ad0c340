//! `tollgate run`: audits one command and its children without root.
//!
//! The command keeps its standard streams, signals and exit status. Messages of tollgate go to standard
//! error, records to the file of `--log`.

mod advice;
mod signals;
mod summary;

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
use audit::ids::NativeArch;
use audit::plan::Plan;
use audit::plan::exclude_list::ExcludeList;
use audit::record::encode;
use nix::errno::Errno;
use trace::{
    Backend, CommandSpec, CommandStatus, Observer, ResultCapture, RunError, RunSummary,
    exit_by_signal,
};

use self::summary::SinkCounters;
use crate::messages::{self, info};
use crate::rule_files::{self, RuleFile, RuleFiles};
use crate::sinks::json;
use crate::sinks::log_file::Log;
use crate::sinks::queue::SinkQueue;
use logs::accounts::Accounts;
use logs::console::{Console, Interpret};

/// Default of `--rules`.
const FIRST_RULES: &str = match NativeArch::BUILD {
    NativeArch::X86_64 => include_str!("../../../../examples/first.rules"),
    NativeArch::Aarch64 => include_str!("../../../../examples/first-aarch64.rules"),
};

/// Examples of the help and the manual page.
pub(super) const EXAMPLES: &str = "\
Examples:
  Print what a build does, with names of users and flags:
    tollgate run --interpret -- make
  Write a log for ausearch:
    tollgate run --rules my.rules --log my.log -- ./install.sh";

/// Arguments of `tollgate run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Read rules from FILE; may be repeated [default: built-in rules]
    ///
    /// The built-in rules are those of examples/first.rules: programs, changes below /etc, deletes, renames,
    /// changes of mode and owner, denied opens.
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// Append records to FILE; `-` is standard output
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write events as JSON lines instead of records, to standard output without --log
    #[arg(long)]
    json: bool,
    /// Print events on standard error; the default without --log and --json
    #[arg(long)]
    print: bool,
    /// Print names of users, groups, errors and flags instead of numbers
    #[arg(long)]
    interpret: bool,
    /// Do not record results of syscalls, which is faster
    ///
    /// Records lack `success` and `exit`. Syscalls of rules that test `exit` or `success` still have them.
    #[arg(long)]
    no_result: bool,
    /// Load the other rules if some are not supported
    #[arg(long)]
    partial: bool,
    /// Command to run, with its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// Exit status of `run` if the command was not run, as of `env(1)` and shells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotRun {
    /// tollgate failed.
    Ours = 125,
    /// The command exists and cannot be executed.
    NotExecutable = 126,
    /// The command does not exist.
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

/// Runs and audits a command. Exits as the command does.
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
            // The signal did not end this process: exit as shells do.
            ExitCode::from(u8::try_from(128 + i32::from(signal as u8)).unwrap_or(u8::MAX))
        }
        CommandStatus::ExecFailed(errno) => not_started(args, errno).into(),
    }
}

fn try_run(args: &Args) -> Result<Result<RunSummary, NotRun>> {
    let Some(mut plan) = rule_files::compile_plan(
        read_rules(args)?,
        args.partial,
        rule_files::NOTHING_ATTACHED,
    )?
    else {
        return Ok(Err(NotRun::Ours));
    };
    if !plan.task_slots.is_empty() {
        info("rules of the list `task` have no effect in `tollgate run`");
    }
    if !plan.uring_ops.is_empty() {
        info("rules of the list `io_uring` have no effect in `tollgate run`");
    }
    if plan.filesystem_list.conditions().next().is_some() {
        info("rules of the list `filesystem` have no effect in `tollgate run`");
    }
    plan.retain_exit_list();
    let program = match find_program(args) {
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
    // The process has one thread until here, because the child is forked from it.
    let started = match command.spawn(&plan, backend) {
        Ok(started) => started,
        Err(error) => return report_run_error(error).map(Err),
    };
    let mut running = sinks.start(plan.exclude_list.clone())?;
    signals::forward(started.child())?;
    if running.view.is_some() {
        info(&ready(&plan, backend));
    }
    let followed = started.supervise(&plan, results, &mut running);
    let counters = running.finish();
    let outcome = followed.context("auditing failed, and the command was killed")?;
    counters.report(outcome.stats);
    Ok(Ok(outcome))
}

fn read_rules(args: &Args) -> Result<RuleFiles> {
    if !args.rules.is_empty() {
        return rule_files::read(&args.rules);
    }
    let name = PathBuf::from("<built-in rules>");
    let built_in = RuleFile::parse(name, FIRST_RULES.as_bytes().to_vec());
    Ok(RuleFiles {
        files: vec![built_in],
    })
}

/// Prints why the command cannot be audited here.
fn report_run_error(error: RunError) -> Result<NotRun> {
    let advice = advice::advice(&error);
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

/// Finds the executable in `PATH`, as a shell does.
fn find_program(args: &Args) -> Result<CString, Errno> {
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
        .context("an argument contains a NUL byte")
}

fn ready(plan: &Plan, backend: Backend) -> String {
    let how = match backend {
        Backend::Ptrace => "with results",
        Backend::Notify => "without results",
    };
    format!(
        "auditing {} for {} in one command, engine seccomp, {how}",
        messages::count(plan.syscalls.len(), "syscall"),
        messages::count(plan.rules.len(), "rule")
    )
}

/// Destinations of events, before their threads start.
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
                Interpret::Names(
                    Accounts::read().context("cannot read /etc/passwd and /etc/group")?,
                )
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

    fn start(self, exclude: ExcludeList) -> Result<RunningSinks> {
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
                let queue = SinkQueue::start("tlg-print", move |text: &[u8]| {
                    messages::ignore_broken_pipe(screen.write_all(text))
                })?;
                let console = Console::new(interpret, Box::new(queue.writer()));
                Some((queue, console))
            }
        };
        Ok(RunningSinks {
            log,
            json: self.json,
            exclude,
            view,
        })
    }
}

/// Destinations of events while the command runs.
struct RunningSinks {
    log: Option<SinkQueue>,
    json: bool,
    /// Records that are not written; does not apply to JSON.
    exclude: ExcludeList,
    view: Option<(SinkQueue, Console)>,
}

impl RunningSinks {
    fn finish(self) -> SinkCounters {
        SinkCounters {
            log: self.log.map(SinkQueue::finish),
            view: self.view.map(|(queue, _)| queue.finish()),
        }
    }
}

impl Observer for RunningSinks {
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
        if let Some((_, console)) = &mut self.view {
            // The queue counts what it does not accept.
            let _taken = console.event(event);
        }
    }

    fn on_warning(&mut self, text: &str) {
        info(text);
    }
}
