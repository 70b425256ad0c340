//! `aureport`: lists events of a kind, or ranks what they are about.

mod context;
pub(crate) mod options;
mod rows;
mod titles;
mod totals;

use std::io::{self, Write};
use std::path::Path;

use logs::escaped::Escaped;

use crate::ausearch::options::host_machine;
use crate::config::Config;
use crate::event::Event;
use crate::events::{AtEnd, Events, Sink, Step};
use crate::fields::{FAILED, Found, Reader};
use crate::input::{self, Found as Input};
use crate::interpret::Interpreter;
use crate::local_time::Clock;
use crate::log_file;
use crate::record_type as ty;
use options::{Changes, Options};
use rows::Rows;
use titles::Report;
use totals::{Times, Totals};

/// What a report without events says.
const NOTHING: &[u8] = b"<no events of interest were found>\n\n";

/// Reports; returns the exit status.
///
/// # Errors
/// When the output cannot be written.
pub(crate) fn run(
    options: &Options,
    clock: &Clock,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let config = Config::load();
    err.write_all(config.messages.as_bytes())?;
    if config.is_built_in {
        writeln!(err, "NOTE - using built-in logs: {}", config.log.display())?;
    }
    if !print_title(options, out)? {
        return unimplemented(err);
    }
    let mut messages = Vec::new();
    let request = input::Request {
        path: options.input.as_deref(),
        force_logs: options.force_logs,
    };
    let found = input::find(&request, &config, &mut messages);
    err.write_all(&messages)?;
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            writeln!(err, "stat: {error}")?;
            return Ok(1);
        }
    };
    let timeout_seconds = options.timeout_seconds.unwrap_or(config.timeout_seconds);
    let mut events = Events::new(timeout_seconds, options.start, options.end, AtEnd::All);
    let mut report = Run {
        options,
        clock,
        interpreter: Interpreter::new(options.escape, host_machine()),
        rows: Rows {
            options,
            clock,
            line: 0,
        },
        totals: Totals::default(),
        first: None,
        last: (0, 0),
        found: false,
        text: Vec::new(),
        out,
        err,
    };
    let files = match found {
        Input::Stdin => {
            events.read(input::patient_stdin()?, true, &mut report)?;
            report.file_ends(b"stdin")?;
            Vec::new()
        }
        Input::File(file) => vec![file],
        Input::Logs(log) => input::rotated_files(&log, options.start),
    };
    for (index, file) in files.iter().enumerate() {
        if !report.file(file, index + 1 == files.len(), &mut events)? {
            return Ok(1);
        }
    }
    let times = Times {
        first: events.first_time,
        last: report.last,
    };
    let status = report.finish(times)?;
    Ok(if events.has_errors { 1 } else { status })
}

/// Says that the stock tool does not do this either.
///
/// # Errors
/// When that cannot be written.
pub(crate) fn unimplemented(err: &mut dyn Write) -> io::Result<u8> {
    err.write_all(b"Unimplemented option\n")?;
    Ok(1)
}

/// Prints the headings; whether there are any.
fn print_title(options: &Options, out: &mut dyn Write) -> io::Result<bool> {
    out.write_all(b"\n")?;
    let title = options.report.title();
    let lines = if options.is_summary {
        title.summary
    } else {
        title.detailed
    };
    if options.is_summary {
        match options.result {
            Some(FAILED) => out.write_all(b"Failed ")?,
            Some(_) => out.write_all(b"Success ")?,
            None => {}
        }
    }
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(!lines.is_empty())
}

/// A report being made.
struct Run<'a> {
    options: &'a Options,
    clock: &'a Clock,
    interpreter: Interpreter,
    rows: Rows<'a>,
    totals: Totals,
    /// Time of the first event of this file.
    first: Option<(u64, u32)>,
    /// Time of the last event of this file.
    last: (u64, u32),
    found: bool,
    text: Vec<u8>,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

impl Run<'_> {
    /// Reads a file; whether to go on with the next.
    fn file(&mut self, path: &Path, is_last: bool, events: &mut Events) -> io::Result<bool> {
        use std::os::unix::ffi::OsStrExt as _;
        let file = match log_file::open(path) {
            Ok(file) => file,
            Err(error) => {
                let path = Escaped(path.as_os_str().as_encoded_bytes());
                let message = error.message;
                writeln!(self.err, "Error opening {path} ({message})")?;
                events.has_errors = true;
                if error.is_compressed && is_last {
                    events.end(self)?;
                }
                return Ok(error.is_compressed);
            }
        };
        (self.first, self.last) = (None, (0, 0));
        events.read(file, is_last, self)?;
        self.file_ends(path.as_os_str().as_bytes())?;
        Ok(true)
    }

    /// Prints the time range of a file, if that is the report.
    fn file_ends(&mut self, name: &[u8]) -> io::Result<()> {
        if self.options.report != Report::Time {
            return Ok(());
        }
        self.out.write_all(name)?;
        let at = |(seconds, millis): (u64, u32)| {
            format!(
                "{}.{millis:03}",
                self.clock.date_time(seconds.cast_signed())
            )
        };
        match self.first {
            Some(first) => writeln!(self.out, ": {} - {}", at(first), at(self.last)),
            None => writeln!(self.out, ": no records"),
        }
    }

    fn finish(&mut self, times: Times) -> io::Result<u8> {
        let options = self.options;
        if options.is_summary {
            self.text.clear();
            self.totals.print(
                options,
                &mut self.interpreter,
                self.clock,
                times,
                &mut self.text,
            );
            self.out.write_all(&self.text)?;
        } else if !self.found && options.report != Report::Time {
            self.out.write_all(NOTHING)?;
            return Ok(1);
        }
        Ok(0)
    }

    /// Whether an event counts, by node, result and kind of change.
    fn counts(&self, event: &Event, found: &Found<'_>) -> bool {
        let options = self.options;
        let nodes = &options.nodes;
        let has_node = nodes.is_empty()
            || event
                .id
                .node
                .as_ref()
                .is_some_and(|node| nodes.contains(node));
        has_node
            && options.result.is_none_or(|result| result == found.success)
            && counts_change(options, event.kind)
    }
}

/// Whether a change counts: all, those that add, or those that delete.
fn counts_change(options: &Options, kind: i32) -> bool {
    const ADDED: [i32; 7] = [
        ty::ADD_USER,
        ty::ADD_GROUP,
        1407,
        ty::MAC_MAP_ADD,
        1411,
        1413,
        1416,
    ];
    const DELETED: [i32; 7] = [
        ty::DEL_USER,
        ty::DEL_GROUP,
        1408,
        ty::MAC_MAP_DEL,
        1412,
        1414,
        1417,
    ];
    if kind == ty::CONFIG_CHANGE {
        return !options.no_config;
    }
    match options.changes {
        Changes::All => true,
        Changes::Added => !DELETED.contains(&kind),
        Changes::Deleted => !ADDED.contains(&kind),
    }
}

impl Sink for Run<'_> {
    fn event(&mut self, event: &Event) -> io::Result<Step> {
        if matches!(self.options.report, Report::Time | Report::Summary) {
            let time = (event.id.seconds, event.id.millis);
            self.first.get_or_insert(time);
            self.last = time;
        }
        let mut reader = Reader::new(self.options.wanted, &mut self.interpreter.accounts);
        reader.debug = self.options.debug;
        let found = reader.event(event);
        self.err.write_all(&reader.messages)?;
        let Some(found) = found.filter(|found| self.counts(event, found)) else {
            return Ok(Step::Next);
        };
        if self.options.is_summary {
            self.totals
                .add(event, &found, self.options, &mut self.interpreter);
        } else {
            self.text.clear();
            let listed = self
                .rows
                .event(event, &found, &mut self.interpreter, &mut self.text);
            self.found |= listed;
            self.out.write_all(&self.text)?;
        }
        Ok(Step::Next)
    }

    fn message(&mut self, message: &[u8]) -> io::Result<()> {
        self.err.write_all(message)
    }

    fn pause(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
