//! `tollgate convert`: logs to JSON, one object for each event on a line of its own.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use audit::record::assemble::{EventAssembler, EventRecords};
use audit::record::decode::DecodeError;

use crate::config::JsonSchema;
use crate::control;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::messages::{self, Exit, info, warn};
use crate::sinks::json::records;

/// Longest line that is read; what is longer is no record.
const LINE_BYTES: u64 = 64 << 10;
/// Mistakes that are shown; the others are counted.
const SHOWN: u64 = 10;

/// Arguments of `tollgate convert`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Logs, the oldest first, as `ausearch` takes them; standard input without any, or for `-`
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// In whose words the objects are: those of the records, of the Elastic Common Schema, or of the Open
    /// Cybersecurity Schema Framework
    #[arg(
        long,
        value_name = "NAME",
        default_value = "records",
        hide_possible_values = true
    )]
    schema: JsonSchema,
    /// Where a daemon may listen that is to write what it has seen before its log is read
    #[arg(long, value_name = "SOCKET", default_value = control::SOCKET)]
    control: PathBuf,
}

/// Runs the command. The status is 1 when some lines were no records.
///
/// # Errors
/// A file that cannot be read, or an output that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut converter = Converter {
        out: io::BufWriter::new(io::stdout().lock()),
        info,
        schema: args.schema,
        wrong: 0,
    };
    let mut assembler = EventAssembler::default();
    let input = [PathBuf::from("-")];
    let files = if args.files.is_empty() {
        &input[..]
    } else {
        flush(&args.control);
        &args.files
    };
    for path in files {
        let done = if path.as_os_str() == "-" {
            converter.file(
                Path::new("standard input"),
                io::stdin().lock(),
                &mut assembler,
            )?
        } else {
            let file =
                File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            converter.file(path, BufReader::new(file), &mut assembler)?
        };
        if done == Reader::Gone {
            return Ok(Exit::Success.into());
        }
    }
    converter.rest(assembler)?;
    if converter.wrong > SHOWN {
        info(&format!("{} mistakes in all", converter.wrong));
    }
    Ok(match converter.wrong {
        0 => Exit::Success,
        _ => Exit::Failure,
    }
    .into())
}

/// Has the daemon write what it has seen, if there is one that answers: its log may be what is read.
fn flush(control: &Path) {
    // Without a daemon, or for somebody who may not ask it, logs are read as they are.
    let Ok(mut client) = Client::connect(control) else {
        return;
    };
    let why = match client.ask(Request::Flush) {
        Ok(Answer::Done) => return,
        Ok(Answer::Refused(refusal)) => refusal.reason,
        Ok(_) => "it answers what was not asked".to_owned(),
        Err(error) => format!("{error:#}"),
    };
    warn(&format!(
        "the last events of the daemon may not be in its log yet: {why}"
    ));
}

/// Whether somebody still reads the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    There,
    Gone,
}

struct Converter<W: Write, S: FnMut(&str)> {
    out: W,
    info: S,
    schema: JsonSchema,
    /// Lines, and fields of lines, that could not be read.
    wrong: u64,
}

impl<W: Write, S: FnMut(&str)> Converter<W, S> {
    fn file(
        &mut self,
        path: &Path,
        mut input: impl BufRead,
        assembler: &mut EventAssembler,
    ) -> anyhow::Result<Reader> {
        let mut line = Vec::new();
        let mut number = 0_u64;
        loop {
            line.clear();
            let read = io::Read::take(&mut input, LINE_BYTES)
                .read_until(b'\n', &mut line)
                .with_context(|| format!("cannot read {}", path.display()))?;
            if read == 0 {
                return Ok(Reader::There);
            }
            number += 1;
            let mut written = Ok(());
            let taken = assembler.take(&line, |event| {
                if written.is_ok() {
                    written = self.event(&event);
                }
            });
            if let Err(error) = taken {
                self.mistake(&format!("{}:{number}: {error}", path.display()));
            }
            if heard(written)? == Reader::Gone {
                return Ok(Reader::Gone);
            }
        }
    }

    /// Writes the events that the end of the logs has ended.
    fn rest(&mut self, assembler: EventAssembler) -> anyhow::Result<()> {
        let mut written = Ok(());
        assembler.finish(|event| {
            if written.is_ok() {
                written = self.event(&event);
            }
        });
        let written = written.and_then(|()| self.out.flush());
        heard(written).map(|_reader| ())
    }

    fn event(&mut self, event: &EventRecords) -> io::Result<()> {
        let mut wrong: Vec<DecodeError> = Vec::new();
        let object = records::object(event, |error| wrong.push(error));
        let serial = object.get("serial").cloned().unwrap_or_default();
        for error in wrong {
            self.mistake(&format!("event {serial}: {error}"));
        }
        writeln!(self.out, "{}", self.schema.event(object))
    }

    fn mistake(&mut self, what: &str) {
        self.wrong += 1;
        if self.wrong <= SHOWN {
            (self.info)(&messages::escape_control(what));
        }
    }
}

/// A closed pipe is not a failure, but the end of the work.
fn heard(written: io::Result<()>) -> anyhow::Result<Reader> {
    match written {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
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
            wrong: 0,
        };
        let mut assembler = EventAssembler::default();
        converter
            .file(Path::new("x"), input, &mut assembler)
            .unwrap();
        converter.rest(assembler).unwrap();
        let lines = converter.out.split(|&byte| byte == b'\n');
        let objects = lines
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap());
        (objects.collect(), converter.wrong)
    }

    #[test]
    fn each_event_is_a_line_and_mistakes_are_counted() {
        let (events, wrong) = converted(
            b"type=SYSCALL msg=audit(1.000:1): syscall=1\n\
              what is this\n\
              type=CWD msg=audit(1.000:1): cwd=\"/\"\n\
              type=DAEMON_START msg=audit(1.000:2): op=start\n",
        );
        assert_eq!(wrong, 1);
        let serials: Vec<_> = events.iter().map(|event| &event["serial"]).collect();
        assert_eq!(serials, [2, 1]);
        assert_eq!(events[1]["cwd"], "/");
    }

    #[test]
    fn a_line_without_end_is_a_mistake_and_no_memory() {
        let endless = vec![b'a'; 1 << 20];
        let (events, wrong) = converted(&endless);
        assert_eq!((events.len(), wrong), (0, 16));
    }
}
