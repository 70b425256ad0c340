//! `tollgate convert`: converts logs to JSON, one line per event.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use audit::record::assemble::{EventAssembler, EventRecords};
use audit::record::decode::DecodeError;

use crate::config::JsonSchema;
use crate::control;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::messages::{self, Exit, info, warn};
use crate::sinks::json::records;

/// Longest line that is read; a longer one is not a record.
const LINE_BYTES: u64 = 64 << 10;
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
    /// Logs, oldest first; `-` is standard input [default: -]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write objects of this schema
    #[arg(long, value_name = "NAME", default_value = "records")]
    schema: JsonSchema,
    /// Before reading a log, ask the daemon at SOCKET to write pending events
    #[arg(long, value_name = "SOCKET", default_value = control::SOCKET)]
    control: PathBuf,
}

/// Converts the files. The exit status is 1 if a line is not a record.
///
/// # Errors
/// When a file cannot be read, or the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut converter = Converter {
        out: io::BufWriter::new(io::stdout().lock()),
        info,
        schema: args.schema,
        errors: 0,
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
            let mut input = io::stdin().lock();
            refuse_compressed(None, input.fill_buf().unwrap_or_default())?;
            converter.file(Path::new("standard input"), input, &mut assembler)?
        } else {
            let file =
                File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?;
            let mut file = BufReader::new(file);
            refuse_compressed(Some(path), file.fill_buf().unwrap_or_default())?;
            converter.file(path, file, &mut assembler)?
        };
        if done == Output::Closed {
            return Ok(Exit::Success.into());
        }
    }
    converter.rest(assembler)?;
    if converter.errors > PRINTED_ERRORS {
        info(&format!("{} errors in total", converter.errors));
    }
    Ok(match converter.errors {
        0 => Exit::Success,
        _ => Exit::Failure,
    }
    .into())
}

/// Refuses a compressed log, or standard input, by its first bytes.
fn refuse_compressed(path: Option<&Path>, start: &[u8]) -> anyhow::Result<()> {
    const FORMATS: [(&[u8], &str, &str); 4] = [
        (b"\x1f\x8b", "gzip", "zcat"),
        (b"\xfd7zXZ\0", "xz", "xzcat"),
        (b"BZh", "bzip2", "bzcat"),
        (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    ];
    let found = FORMATS.iter().find(|(magic, ..)| start.starts_with(magic));
    match (found, path.map(Path::display)) {
        (None, _) => Ok(()),
        (Some((_, name, program)), Some(path)) => {
            bail!("`{path}` is compressed with {name}: run `{program} {path} | tollgate convert`")
        }
        (Some((_, name, program)), None) => {
            bail!(
                "standard input is compressed with {name}: run `{program} | tollgate convert` on it"
            )
        }
    }
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
        Ok(_) => "invalid reply".to_owned(),
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
}

impl<W: Write, S: FnMut(&str)> Converter<W, S> {
    fn file(
        &mut self,
        path: &Path,
        mut input: impl BufRead,
        assembler: &mut EventAssembler,
    ) -> anyhow::Result<Output> {
        let mut line = Vec::new();
        let mut number = 0_u64;
        loop {
            line.clear();
            let read = io::Read::take(&mut input, LINE_BYTES)
                .read_until(b'\n', &mut line)
                .with_context(|| format!("cannot read {}", path.display()))?;
            if read == 0 {
                return Ok(Output::Open);
            }
            number += 1;
            let mut written = Ok(());
            let result = assembler.take(&line, |event| {
                if written.is_ok() {
                    written = self.event(&event);
                }
            });
            if let Err(error) = result {
                self.report_error(&format!("{}:{number}: {error}", path.display()));
            }
            if check_output(written)? == Output::Closed {
                return Ok(Output::Closed);
            }
        }
    }

    /// Writes the events that are complete at the end of the logs.
    fn rest(&mut self, assembler: EventAssembler) -> anyhow::Result<()> {
        let mut written = Ok(());
        assembler.finish(|event| {
            if written.is_ok() {
                written = self.event(&event);
            }
        });
        let written = written.and_then(|()| self.out.flush());
        check_output(written).map(|_| ())
    }

    fn event(&mut self, event: &EventRecords) -> io::Result<()> {
        let mut errors: Vec<DecodeError> = Vec::new();
        let object = records::object(event, |error| errors.push(error));
        let serial = object.get("serial").cloned().unwrap_or_default();
        for error in errors {
            self.report_error(&format!("event {serial}: {error}"));
        }
        writeln!(self.out, "{}", self.schema.event(object))
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
        (objects.collect(), converter.errors)
    }

    #[test]
    fn compressed_logs_are_named() {
        let path = Path::new("/var/log/audit/audit.log.1.gz");
        let refused = |start: &[u8]| {
            refuse_compressed(Some(path), start)
                .unwrap_err()
                .to_string()
        };
        let text = refused(b"\x1f\x8b\x08\x00");
        assert!(
            text.contains("gzip: run `zcat /var/log/audit/audit.log.1.gz | tollgate convert`"),
            "{text}"
        );
        assert!(refused(b"\xfd7zXZ\0\0").contains("`xzcat "));
        let piped = refuse_compressed(None, b"\x1f\x8b\x08").unwrap_err();
        assert!(piped.to_string().contains("`zcat | tollgate"), "{piped}");
        for text in [&b""[..], b"type=SYSCALL", b"\x1f"] {
            refuse_compressed(Some(path), text).unwrap();
        }
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
    fn endless_line_is_an_error_and_uses_bounded_memory() {
        let endless = vec![b'a'; 1 << 20];
        let (events, errors) = converted(&endless);
        assert_eq!((events.len(), errors), (0, 16));
    }
}
