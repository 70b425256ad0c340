//! The options of `aureport`.

use bstr::ByteSlice as _;

use super::titles::{Report, Title};
use crate::command_line::{self, OptionSpec, Words};
use crate::escape::Escape;
use crate::fields::{FAILED, SUCCEEDED, Success, Wanted};
use crate::local_time::Clock;
use crate::time_range::Bound;

/// Which changes of accounts and labels count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Changes {
    #[default]
    All,
    Added,
    Deleted,
}

/// A command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) report: Report,
    /// Ranked totals instead of a line for each event.
    pub(crate) is_summary: bool,
    pub(crate) interpret: bool,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) nodes: Vec<Vec<u8>>,
    /// Only events with this result.
    pub(crate) result: Option<Success>,
    pub(crate) changes: Changes,
    /// Changes of the audit configuration do not count.
    pub(crate) no_config: bool,
    pub(crate) escape: Escape,
    pub(crate) input: Option<Vec<u8>>,
    pub(crate) force_logs: bool,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) debug: bool,
    /// The fields that the report needs.
    pub(crate) wanted: Wanted,
}

/// What a command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    Report(Box<Options>),
    Help,
    Version,
}

/// Why a command line is none.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A mistake, which is followed by the help.
    Mistake(String),
    /// What the stock tool does not do either.
    Unimplemented,
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self::Mistake(message)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Report(Report),
    Add,
    Debug,
    Delete,
    Escape,
    Timeout,
    Failed,
    Help,
    Interpret,
    Input,
    InputLogs,
    NoConfig,
    Node,
    Success,
    Summary,
    End,
    Start,
    Version,
}

const fn option(
    id: Id,
    names: &'static [&'static str],
    value: &'static str,
    help: &'static str,
) -> OptionSpec<Id> {
    OptionSpec {
        id,
        names,
        value,
        help,
    }
}

/// Every option.
pub(crate) const OPTIONS: &[OptionSpec<Id>] = &[
    option(
        Id::Report(Report::Avc),
        &["-a", "--avc"],
        "",
        "Report access vector checks",
    ),
    option(
        Id::Add,
        &["--add"],
        "",
        "Count only what was added (configuration)",
    ),
    option(
        Id::Report(Report::Auth),
        &["-au", "--auth"],
        "",
        "Report authentications",
    ),
    option(Id::Report(Report::Comm), &["--comm"], "", "Report commands"),
    option(
        Id::Report(Report::Config),
        &["-c", "--config"],
        "",
        "Report changes of configuration",
    ),
    option(
        Id::Report(Report::Crypto),
        &["-cr", "--crypto"],
        "",
        "Report cryptography",
    ),
    option(
        Id::Debug,
        &["--debug"],
        "",
        "Report malformed events to the standard error",
    ),
    option(
        Id::Delete,
        &["--delete"],
        "",
        "Count only what was deleted (configuration)",
    ),
    option(
        Id::Report(Report::Event),
        &["-e", "--event"],
        "",
        "Report events",
    ),
    option(
        Id::Escape,
        &["--escape"],
        "mode",
        "What to escape in values: raw, tty, shell or shell_quote",
    ),
    option(
        Id::Timeout,
        &["--eoe-timeout"],
        "seconds",
        "Time after which an event is complete",
    ),
    option(
        Id::Report(Report::File),
        &["-f", "--file"],
        "",
        "Report files",
    ),
    option(Id::Failed, &["--failed"], "", "Count only what failed"),
    option(
        Id::Report(Report::Host),
        &["-h", "--host"],
        "",
        "Report hosts",
    ),
    option(Id::Help, &["--help"], "", "Print this help"),
    option(
        Id::Interpret,
        &["-i", "--interpret"],
        "",
        "Print names instead of numbers",
    ),
    option(
        Id::Input,
        &["-if", "--input"],
        "path",
        "Read this file or archive, or the logs and archives in this directory",
    ),
    option(
        Id::InputLogs,
        &["--input-logs"],
        "",
        "Read the logs even if the standard input is a pipe",
    ),
    option(
        Id::Report(Report::Integrity),
        &["--integrity"],
        "",
        "Report integrity events",
    ),
    option(
        Id::Report(Report::Key),
        &["-k", "--key"],
        "",
        "Report rule keys",
    ),
    option(
        Id::Report(Report::Login),
        &["-l", "--login"],
        "",
        "Report logins",
    ),
    option(
        Id::Report(Report::Accounts),
        &["-m", "--mods"],
        "",
        "Report changes of accounts",
    ),
    option(
        Id::Report(Report::Mac),
        &["-ma", "--mac"],
        "",
        "Report mandatory access control",
    ),
    option(
        Id::Report(Report::Anomaly),
        &["-n", "--anomaly"],
        "",
        "Report anomalies",
    ),
    option(
        Id::NoConfig,
        &["-nc", "--no-config"],
        "",
        "Leave out changes of the audit configuration",
    ),
    option(
        Id::Node,
        &["--node"],
        "name",
        "Count only events from this node; may be repeated",
    ),
    option(
        Id::Report(Report::Pid),
        &["-p", "--pid"],
        "",
        "Report processes",
    ),
    option(
        Id::Report(Report::Response),
        &["-r", "--response"],
        "",
        "Report responses to anomalies",
    ),
    option(
        Id::Report(Report::Syscall),
        &["-s", "--syscall"],
        "",
        "Report syscalls",
    ),
    option(Id::Success, &["--success"], "", "Count only what succeeded"),
    option(
        Id::Summary,
        &["--summary"],
        "",
        "Rank what the report is about, without its events",
    ),
    option(
        Id::Report(Report::Time),
        &["-t", "--log"],
        "",
        "Report the time range of each log",
    ),
    option(
        Id::End,
        &["-te", "--end"],
        "date time",
        "Count events until this time",
    ),
    option(
        Id::Report(Report::Terminal),
        &["-tm", "--terminal"],
        "",
        "Report terminals",
    ),
    option(
        Id::Start,
        &["-ts", "--start"],
        "date time",
        "Count events from this time on",
    ),
    option(Id::Report(Report::Tty), &["--tty"], "", "Report keystrokes"),
    option(
        Id::Report(Report::User),
        &["-u", "--user"],
        "",
        "Report users",
    ),
    option(Id::Version, &["-v", "--version"], "", "Print the version"),
    option(
        Id::Report(Report::Virt),
        &["--virt"],
        "",
        "Report virtual machines",
    ),
    option(
        Id::Report(Report::Executable),
        &["-x", "--executable"],
        "",
        "Report executables",
    ),
];

/// Reads a command line.
///
/// # Errors
/// The refusal, as the stock tool words it.
pub(crate) fn parse(words: &mut Words, clock: &Clock) -> Result<Request, Refusal> {
    let mut options = Options {
        report: Report::Summary,
        is_summary: false,
        interpret: false,
        start: 0,
        end: 0,
        nodes: Vec::new(),
        result: None,
        changes: Changes::All,
        no_config: false,
        escape: Escape::default(),
        input: None,
        force_logs: false,
        timeout_seconds: None,
        debug: false,
        wanted: Wanted::PID | Wanted::SUCCESS,
    };
    let mut report = None;
    while let Some(word) = words.next() {
        let spec = OPTIONS
            .iter()
            .find(|option| option.names.iter().any(|name| name.as_bytes() == word));
        let Some(spec) = spec else {
            return Err(format!("{} is an unsupported option\n", word.to_str_lossy()).into());
        };
        match spec.id {
            Id::Help => return Ok(Request::Help),
            Id::Version => return Ok(Request::Version),
            Id::Report(chosen) => {
                if report.replace(chosen).is_some() {
                    return Err("Error - only one report can be specified".to_owned().into());
                }
                // A word would choose one of the report's objects.
                if chosen.title().takes_word && words.peek().is_some() {
                    return Err(Refusal::Unimplemented);
                }
            }
            id => set(&mut options, id, &word, words, clock)?,
        }
    }
    options.is_summary |= report.is_none();
    options.report = report.unwrap_or(Report::Summary);
    options.wanted |= options.report.title().wanted;
    if options.interpret {
        options.wanted |= Wanted::ARCH;
    }
    Ok(Request::Report(Box::new(options)))
}

fn set(
    options: &mut Options,
    id: Id,
    name: &[u8],
    words: &mut Words,
    clock: &Clock,
) -> Result<(), String> {
    const PATH_MAX: usize = 4096;
    match id {
        Id::Add => options.changes = Changes::Added,
        Id::Delete => options.changes = Changes::Deleted,
        Id::Debug => options.debug = true,
        Id::Failed => options.result = Some(FAILED),
        Id::Success => options.result = Some(SUCCEEDED),
        Id::InputLogs => options.force_logs = true,
        Id::NoConfig => options.no_config = true,
        Id::Summary => options.is_summary = true,
        Id::Interpret => {
            options.interpret = true;
            words.no_value(&name.to_str_lossy())?;
        }
        Id::Start => options.start = words.time(name, Bound::Start, clock)?,
        Id::End => options.end = words.time(name, Bound::End, clock)?,
        Id::Node => options.nodes.push(words.value(name)?),
        Id::Timeout => options.timeout_seconds = Some(command_line::timeout(&words.value(name)?)?),
        Id::Escape => {
            let value = words.value(name)?;
            let mode = Escape::by_name(&value);
            options.escape =
                mode.ok_or_else(|| format!("Unknown option ({})\n", value.to_str_lossy()))?;
        }
        Id::Input => {
            let value = words.value(name)?;
            if value.len() >= PATH_MAX - 32 {
                return Err(format!("File name is too long {}\n", value.to_str_lossy()));
            }
            options.input = Some(value);
        }
        Id::Report(_) | Id::Help | Id::Version => {}
    }
    Ok(())
}

impl Report {
    /// The report's headings and needs.
    pub(crate) fn title(self) -> &'static Title {
        super::titles::of(self)
    }
}
