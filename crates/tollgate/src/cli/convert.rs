//! `tollgate convert`: converts logs to JSON, one line per event.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use audit::record::assemble::EventRecords;
use audit::record::decode::DecodeError;
use logs::escaped::EscapedJson;
use logs::event_reader::{EventReader, Item};
use logs::log_file::LogError;
use logs::log_set::{LogEntries, LogSet};

use crate::config::JsonSchema;
use crate::control;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::messages::{self, Exit, info, warn};
use crate::sinks::json::records;

/// Number of errors that are printed; further ones are counted.
const PRINTED_ERRORS: u64 = 10;

/// Examples of the help and the manual page.
pub(super) const EXAMPLES: &str = "\
Examples:
  Convert the log and its predecessor:
    tollgate convert /var/log/audit/audit.log.1 /var/log/audit/audit.log
  Convert what ausearch finds:
    ausearch --raw -k exec | tollgate convert --schema ecs";

/// Arguments of `tollgate convert`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Logs and archives, oldest first; `-` is standard input [default: -]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write objects of this schema
    #[arg(long, value_name = "NAME", default_value = "records")]
    schema: JsonSchema,
    /// Before reading a log, ask the daemon at SOCKET to write pending events
    #[arg(long, value_name = "SOCKET", default_value = control::SOCKET)]
    control: PathBuf,
}

/// Converts the files. The exit status is 1 if a line is not a record, or a file cannot be read.
///
/// # Errors
/// When the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut converter = Converter {
        out: io::BufWriter::new(io::stdout().lock()),
        info,
        schema: args.schema,
        errors: 0,
        unreadable: BTreeSet::new(),
    };
    let input = [PathBuf::from("-")];
    let files = if args.files.is_empty() {
        &input[..]
    } else {
        flush(&args.control);
        &args.files
    };
    let logs = LogEntries::files(files).readable(|error| converter.report_unreadable(&error));
    if converter.logs(logs)? == Output::Closed {
        return Ok(Exit::Success.into());
    }
    if converter.errors > PRINTED_ERRORS {
        info(&format!("{} errors in total", converter.errors));
    }
    Ok(match (converter.errors, converter.unreadable.is_empty()) {
        (0, true) => Exit::Success,
        _ => Exit::Failure,
    }
    .into())
}

/// Asks the daemon, if one answers, to write pending events: its log may be converted.
fn flush(control: &Path) {
    // Without a daemon, or without permission, logs are read as they are.
    let Ok(mut client) = Client::connect(control) else {
        return;
    };
    let why = match client.ask(Request::Flush) {
        Ok(Answer::Done) => return,
        Ok(Answer::Refused(refusal)) => refusal.reason,
        Ok(_) => control::INVALID_REPLY.to_owned(),
        Err(error) => format!("{error:#}"),
    };
    warn(&format!(
        "the newest events of the daemon may be missing in its log: {why}"
    ));
}

/// Whether the pipe of the output is still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Open,
    Closed,
}

struct Converter<W: Write, S: FnMut(&str)> {
    out: W,
    info: S,
    schema: JsonSchema,
    /// Number of lines and fields that are malformed.
    errors: u64,
    /// Files that were reported because they cannot be read.
    unreadable: BTreeSet<Option<PathBuf>>,
}

impl<W: Write, S: FnMut(&str)> Converter<W, S> {
    fn logs(&mut self, logs: LogSet) -> anyhow::Result<Output> {
        let mut reader = EventReader::new(logs);
        loop {
            let item = match reader.next_item() {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(error) => {
                    self.report_unreadable(&error);
                    continue;
                }
            };
            let written = match item {
                Item::Event(event) => self.event(event),
                Item::Malformed { path, line, error } => {
                    self.report_error(&format!("{}:{line}: {error}", path.display()));
                    Ok(())
                }
                Item::Idle | Item::Lost => Ok(()),
            };
            if check_output(written)? == Output::Closed {
                return Ok(Output::Closed);
            }
        }
        check_output(self.out.flush())
    }

    fn event(&mut self, event: &EventRecords) -> io::Result<()> {
        let mut errors: Vec<DecodeError> = Vec::new();
        let object = records::object(event, |error| errors.push(error));
        let serial = object.get("serial").cloned().unwrap_or_default();
        for error in errors {
            self.report_error(&format!("event {serial}: {error}"));
        }
        writeln!(self.out, "{}", EscapedJson(&self.schema.event(object)))
    }

    /// Reports a file that cannot be read, once; what else can be read is converted.
    fn report_unreadable(&mut self, error: &LogError) {
        if self.unreadable.insert(error.path().map(Path::to_owned)) {
            (self.info)(&error.report());
        }
    }

    fn report_error(&mut self, what: &str) {
        self.errors += 1;
        if self.errors <= PRINTED_ERRORS {
            (self.info)(&messages::escape_control(what));
        }
    }
}

/// A closed pipe ends the conversion without an error.
fn check_output(written: io::Result<()>) -> anyhow::Result<Output> {
    match written {
        Ok(()) => Ok(Output::Open),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Output::Closed),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn converted(input: &[u8]) -> (Vec<Value>, u64) {
        let mut converter = Converter {
            out: Vec::new(),
            info: |_: &str| (),
            schema: JsonSchema::Records,
            errors: 0,
            unreadable: BTreeSet::new(),
        };
        let input = Box::new(io::Cursor::new(input.to_vec()));
        let logs = LogSet::stream(Path::new("x"), input);
        assert_eq!(converter.logs(logs).unwrap(), Output::Open);
        let lines = converter.out.split(|&byte| byte == b'\n');
        let objects = lines
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap());
        (objects.collect(), converter.errors)
    }

    #[test]
    fn each_event_is_a_line_and_errors_are_counted() {
        let (events, errors) = converted(
            b"type=SYSCALL msg=audit(1.000:1): syscall=1\n\
              what is this\n\
              type=CWD msg=audit(1.000:1): cwd=\"/\"\n\
              type=DAEMON_START msg=audit(1.000:2): op=start\n",
        );
        assert_eq!(errors, 1);
        let serials: Vec<_> = events.iter().map(|event| &event["serial"]).collect();
        assert_eq!(serials, [2, 1]);
        assert_eq!(events[1]["cwd"], "/");
    }

    #[test]
    fn file_that_cannot_be_read_is_reported_and_the_others_are_converted() {
        let place = tempfile::tempdir().unwrap();
        let bad = place.path().join("audit.log.000001.zst");
        std::fs::write(&bad, "no archive").unwrap();
        let log = place.path().join("audit.log");
        std::fs::write(&log, "type=DAEMON_START msg=audit(1.000:2): op=start\n").unwrap();
        let mut messages = Vec::new();
        let mut converter = Converter {
            out: Vec::new(),
            info: |message: &str| messages.push(message.to_owned()),
            schema: JsonSchema::Records,
            errors: 0,
            unreadable: BTreeSet::new(),
        };
        let logs = LogEntries::files(&[&bad, &log]);
        let logs = logs.readable(|error| converter.report_unreadable(&error));
        assert_eq!(converter.logs(logs).unwrap(), Output::Open);
        assert!(converter.out.starts_with(b"{"));
        assert_eq!(converter.unreadable.len(), 1);
        assert_eq!(messages.len(), 1);
        assert!(
            messages[0].contains("000001.zst`: it is no archive"),
            "{messages:?}"
        );
    }

    #[test]
    fn endless_line_is_an_error_and_uses_bounded_memory() {
        let endless = vec![b'a'; 1 << 20];
        let (events, errors) = converted(&endless);
        assert_eq!((events.len(), errors), (0, 1));
    }
}
