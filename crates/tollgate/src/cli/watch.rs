//! `tollgate watch`: prints the events of the running daemon as they occur.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::ColorChoice;
use anyhow::{Context as _, bail};
use audit::record::assemble::{EventAssembler, EventRecords};
use logs::accounts::Accounts;
use logs::console::{Console, Interpret};
use logs::escaped::EscapedJson;
use nix::unistd::User;

use crate::cli::status::{VIEWERS, connect_error};
use crate::config::JsonSchema;
use crate::control;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::control::watch::{Notice, WatchRequest, WatchedResult};
use crate::json_bytes::JsonBytes;
use crate::messages::{self, warn};
use crate::sinks::json::records;

/// Examples of the help and the manual page.
pub(super) const EXAMPLES: &str = "\
Examples:
  Show failed calls that the rules with the key shadow record:
    tollgate watch --key shadow --result failure
  Show what alice runs as root, as JSON:
    tollgate watch --user alice --program sudo --json";

/// Longest line of the daemon: a record has less than 9 KiB.
const LINE_BYTES: u64 = 64 << 10;

/// Arguments of `tollgate watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show events with this key; may be repeated
    #[arg(short, long, value_name = "KEY")]
    key: Vec<String>,
    /// Show events of this login, real or effective user, a name or number; may be repeated
    #[arg(short, long, value_name = "USER")]
    user: Vec<String>,
    /// Show events of this program, a path or the name of its file; may be repeated
    #[arg(short, long, value_name = "PROGRAM")]
    program: Vec<String>,
    /// Show events with this result
    #[arg(short, long, value_name = "RESULT")]
    result: Option<WatchedResult>,
    /// Stop after N events
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print one JSON object per event, on one line
    ///
    /// The object has the form of the JSON log. A line {"missed":{"lost":N,"skipped":0}} tells that N events are
    /// missing there, because they were not read in time.
    #[arg(long)]
    json: bool,
    /// With --json, write objects of this schema
    #[arg(
        long,
        value_name = "NAME",
        default_value = "records",
        requires = "json"
    )]
    schema: JsonSchema,
    /// Print numbers instead of names of users, groups, errors and flags
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Connect to the daemon at SOCKET
    #[arg(long, value_name = "SOCKET", default_value = control::SOCKET)]
    control: PathBuf,
}

/// Prints events until the daemon ends, or the output is closed.
///
/// # Errors
/// When no daemon listens, it refuses, or it ends the connection.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut stream = connect(args)?;
    let mut printer = Printer::new(args)?;
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut event = Vec::new();
    while left != 0 {
        event.clear();
        match next(&mut stream, &mut event).context("cannot read from the daemon")? {
            Next::Event => {
                printer.event(&event)?;
                left -= 1;
            }
            Next::Notice(Notice::Missed { lost, .. }) => printer.lost(lost)?,
            Next::End => bail!("the daemon has ended the connection"),
        }
        // What has arrived is printed together.
        if stream.buffer().is_empty() || left == 0 {
            printer.flush()?;
        }
        if printer.is_closed {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The number of a user.
fn uid(user: &str) -> anyhow::Result<u32> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    let found = User::from_name(user).with_context(|| format!("cannot look up user `{user}`"))?;
    let found = found.with_context(|| format!("there is no user `{user}`"))?;
    Ok(found.uid.as_raw())
}

/// Connects and starts to watch.
fn connect(args: &Args) -> anyhow::Result<BufReader<UnixStream>> {
    let bytes = |list: &[String]| -> Vec<JsonBytes> {
        let values = list.iter();
        values
            .map(|value| JsonBytes::new(value.as_bytes()))
            .collect()
    };
    let users: anyhow::Result<Vec<u32>> = args.user.iter().map(|user| uid(user)).collect();
    let request = WatchRequest {
        keys: bytes(&args.key),
        users: users?,
        programs: bytes(&args.program),
        result: args.result,
        sample: None,
    };
    let mut client = Client::connect(&args.control)
        .map_err(|error| connect_error(&args.control, error, VIEWERS))?;
    if !args.key.is_empty() {
        warn_of_unused_keys(&args.key, &args.control);
    }
    match client.ask(Request::Watch(request))? {
        Answer::Watching => client.into_stream().context("cannot set the connection up"),
        Answer::Refused(refusal) => bail!("the daemon refused the request: {}", refusal.reason),
        _ => bail!(control::INVALID_REPLY),
    }
}

/// Warns of keys that no loaded rule has: one may be mistyped.
fn warn_of_unused_keys(keys: &[String], control: &Path) {
    let asked = Client::connect(control)
        .ok()
        .and_then(|mut client| client.ask(Request::RuleCosts).ok());
    // Without an answer nothing is known.
    let Some(Answer::RuleCosts(costs)) = asked else {
        return;
    };
    let has = |key: &String| {
        let mut keys = costs.rules.iter().flat_map(|rule| &rule.keys);
        keys.any(|other| *other == JsonBytes::new(key.as_bytes()))
    };
    let unused: BTreeSet<&String> = keys.iter().filter(|key| !has(key)).collect();
    for key in unused.into_iter().filter(|_| costs.omitted == 0) {
        let key = messages::escape_control(key);
        warn(&format!(
            "no loaded rule has the key `{key}`: `tollgate auditctl -l` lists the rules"
        ));
    }
}

enum Next {
    /// An event, without its EOE record.
    Event,
    Notice(Notice),
    /// The daemon has closed the connection.
    End,
}

/// Reads the lines of the next event, or a notice.
fn next(stream: &mut BufReader<UnixStream>, event: &mut Vec<u8>) -> io::Result<Next> {
    loop {
        let start = event.len();
        io::Read::take(&mut *stream, LINE_BYTES).read_until(b'\n', event)?;
        let line = event.get(start..).unwrap_or_default();
        if !line.ends_with(b"\n") {
            return Ok(Next::End);
        }
        if line.starts_with(b"{") {
            return Ok(Next::Notice(serde_json::from_slice(line)?));
        }
        if line.starts_with(b"type=EOE ") {
            event.truncate(start);
            return Ok(Next::Event);
        }
    }
}

/// Prints events on standard output.
struct Printer {
    form: Form,
    /// Whether the reader of standard output has gone.
    is_closed: bool,
}

enum Form {
    Text(Console),
    Json(io::BufWriter<io::Stdout>, JsonSchema),
}

impl Printer {
    fn new(args: &Args) -> anyhow::Result<Self> {
        let form = if args.json {
            Form::Json(io::BufWriter::new(io::stdout()), args.schema)
        } else if args.raw {
            Form::Text(Console::stdout(Interpret::Raw, ColorChoice::Auto))
        } else {
            let names = Accounts::read().context("cannot read /etc/passwd and /etc/group")?;
            Form::Text(Console::stdout(Interpret::Names(names), ColorChoice::Auto))
        };
        Ok(Self {
            form,
            is_closed: false,
        })
    }

    fn event(&mut self, lines: &[u8]) -> anyhow::Result<()> {
        let mut assembler = EventAssembler::default();
        let mut written = Ok(());
        let mut print = |event: &EventRecords| {
            if written.is_ok() {
                written = match &mut self.form {
                    Form::Text(console) => console.records(event),
                    Form::Json(out, schema) => {
                        let object = records::object(event, |_error| ());
                        writeln!(out, "{}", EscapedJson(&schema.event(object)))
                    }
                };
            }
        };
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            // A line that is not a record is left out.
            let _malformed = assembler.take(line, 0);
        }
        assembler.end_all();
        assembler.drain_ended(&mut print);
        self.check(written)
    }

    /// Tells that events are missing here.
    fn lost(&mut self, lost: u64) -> anyhow::Result<()> {
        match &mut self.form {
            Form::Text(_) => {
                warn(&format!(
                    "events that are missing here, because they were not read in time: {lost}"
                ));
                Ok(())
            }
            Form::Json(out, _) => {
                let notice = Notice::Missed { lost, skipped: 0 };
                let line = serde_json::to_string(&notice).context("cannot encode JSON")?;
                let written = writeln!(out, "{line}");
                self.check(written)
            }
        }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        match &mut self.form {
            Form::Text(_) => Ok(()),
            Form::Json(out, _) => {
                let flushed = out.flush();
                self.check(flushed)
            }
        }
    }

    fn check(&mut self, written: io::Result<()>) -> anyhow::Result<()> {
        self.is_closed |=
            matches!(&written, Err(error) if error.kind() == io::ErrorKind::BrokenPipe);
        messages::ignore_broken_pipe(written).context("cannot write to standard output")
    }
}
