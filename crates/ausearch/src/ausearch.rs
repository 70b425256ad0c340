//! `ausearch`: finds events and prints them.

pub(crate) mod options;
pub(crate) mod output;
mod repeatable;
mod sentences;

use std::io::{self, Write};
use std::path::Path;

use logs::escaped::Escaped;

use crate::accounts::Translations;
use crate::checkpoint::{Checkpoint, Decision, FileId, Gate, LastEvent};
use crate::config::Config;
use crate::event::Event;
use crate::events::{AtEnd, Events, Sink, Step};
use crate::fields::{Reader, Wanted};
use crate::input::{self, Found};
use crate::interpret::{Interpreter, message};
use crate::local_time::Clock;
use crate::log_file;
use crate::narrow::Narrowed;
use crate::record_type;
use options::{Format, Options};
use output::Interpreted;
use repeatable::Repeatable;
use sentences::Sentences;

/// Exit status: nothing was found, or the search failed.
const NOTHING: u8 = 1;
/// Exit status: the checkpoint is none.
const BAD_CHECKPOINT: u8 = 10;
/// Exit status: the checkpoint could not be written.
const CHECKPOINT_FAILED: u8 = 11;
/// Exit status: the checkpoint is of another log.
const CHECKPOINT_CORRUPTED: u8 = 12;

/// Searches; returns the exit status.
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
        let seconds = config.timeout_seconds;
        writeln!(err, "NOTE - using built-in end_of_event_timeout: {seconds}")?;
        if options.input.is_none() {
            writeln!(err, "NOTE - using built-in logs: {}", config.log.display())?;
        }
    }
    let checkpoint_path = options.checkpoint.as_deref().map(path);
    let checkpoint = match checkpoint_path.map(Checkpoint::load).transpose() {
        Ok(checkpoint) => checkpoint.flatten(),
        Err(error) => {
            err.write_all(error.as_bytes())?;
            return Ok(BAD_CHECKPOINT);
        }
    };
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
            return Ok(NOTHING);
        }
    };
    let mut search = Search {
        options,
        clock,
        interpreter: Interpreter::new(options.escape, options::host_machine()),
        gate: Gate::new(checkpoint.as_ref(), options.checkpoint_time_only),
        last: LastEvent::default(),
        arguments: [0; 2],
        found: false,
        has_header: false,
        corrupted: false,
        text: Vec::new(),
        messages: Vec::new(),
        out: Repeatable::new(out),
        err: Repeatable::new(err),
    };
    let at_end = if checkpoint_path.is_some() {
        AtEnd::Ended
    } else {
        AtEnd::All
    };
    let timeout_seconds = options.timeout_seconds.unwrap_or(config.timeout_seconds);
    let (start, end) = (options.filter.start, options.filter.end);
    let new_events = || Events::new(timeout_seconds, start, end, at_end);
    let mut events = new_events();
    let mut status = 0;
    let mut checkpoint_failed = false;
    let files = match found {
        Found::Stdin => {
            events.read(input::patient_stdin()?, true, &mut search)?;
            if checkpoint_path.is_some() {
                write!(search.err, "Warning - checkpointing stdin is not supported")?;
            }
            return search.status(u8::from(events.has_errors) * NOTHING);
        }
        Found::File(file) => vec![file],
        Found::Logs(log) => match &checkpoint {
            Some(checkpoint) => {
                let Some(files) = since_checkpoint(&log, checkpoint, options.checkpoint_time_only)
                else {
                    return Ok(BAD_CHECKPOINT);
                };
                files
            }
            None => input::rotated_files(&log, options.filter.start),
        },
    };
    // With a checkpoint, and to debug, every event counts.
    let narrowed = match checkpoint_path.is_none() && !options.debug {
        true => Narrowed::new(&files, &options.filter, timeout_seconds),
        false => None,
    };
    if let Some(mut narrowed) = narrowed {
        if narrowed.read(&mut events, &mut search)? != Step::Unclear {
            return search.status(0);
        }
        search.repeat();
        events = new_events();
    }
    let count = files.len();
    for (index, file) in files.iter().enumerate() {
        status = search.file(file, index + 1 == count, &mut events)?;
        let is_done = options.just_one && search.found || index + 1 == count;
        if is_done && status == 0 && events.has_errors {
            status = NOTHING;
        }
        if status != 0 || is_done {
            if let Some(checkpoint_path) = checkpoint_path
                && (status == 0 || options.input.is_some())
            {
                checkpoint_failed = !search.save(checkpoint_path, file, status)?;
            }
            break;
        }
    }
    if checkpoint_path.is_some() && search.corrupted {
        status = CHECKPOINT_CORRUPTED;
    } else if checkpoint_failed {
        status = CHECKPOINT_FAILED;
    }
    search.status(status)
}

fn path(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// The log files from the one of the checkpoint on; `None` if it is gone. With only the time of the checkpoint, all.
fn since_checkpoint(
    log: &Path,
    checkpoint: &Checkpoint,
    time_only: bool,
) -> Option<Vec<std::path::PathBuf>> {
    let mut files = crate::config::newest_first(log);
    if files.is_empty() && time_only {
        files.push(log.to_owned());
    }
    if !time_only {
        let is_named =
            |file: &std::path::PathBuf| FileId::of(file).is_ok_and(|id| id == checkpoint.file);
        files.truncate(files.iter().position(is_named)? + 1);
    }
    files.reverse();
    Some(files)
}

impl Step {
    const fn status(self) -> u8 {
        match self {
            Self::Corrupted => BAD_CHECKPOINT,
            Self::Next | Self::Stop | Self::Unclear => 0,
        }
    }
}

/// A search.
struct Search<'a> {
    options: &'a Options,
    clock: &'a Clock,
    interpreter: Interpreter,
    gate: Gate,
    /// The last event that was seen, for the checkpoint.
    last: LastEvent,
    /// The first two arguments of the last syscall that was printed.
    arguments: [u64; 2],
    found: bool,
    /// Whether the line above a table was printed.
    has_header: bool,
    corrupted: bool,
    /// Output of one event.
    text: Vec<u8>,
    messages: Vec<u8>,
    out: Repeatable<'a>,
    err: Repeatable<'a>,
}

impl Search<'_> {
    /// Begins again. What was written is not written twice.
    fn repeat(&mut self) {
        self.interpreter = Interpreter::new(self.options.escape, options::host_machine());
        self.arguments = [0; 2];
        self.found = false;
        self.has_header = false;
        self.messages.clear();
        self.out.repeat();
        self.err.repeat();
    }

    fn status(&mut self, status: u8) -> io::Result<u8> {
        if status != 0 {
            return Ok(status);
        }
        if self.found {
            return Ok(0);
        }
        if self.options.format != Format::Raw {
            writeln!(self.err, "<no matches>")?;
        }
        Ok(NOTHING)
    }

    /// Reads a file; returns its status.
    fn file(&mut self, path: &Path, is_last: bool, events: &mut Events) -> io::Result<u8> {
        match log_file::open(path) {
            Ok(file) => Ok(events.read(file, is_last, self)?.status()),
            Err(error) => {
                let path = Escaped(path.as_os_str().as_encoded_bytes());
                let message = error.message;
                writeln!(self.err, "Error opening {path} ({message})")?;
                events.has_errors = true;
                if !error.is_compressed {
                    return Ok(NOTHING);
                }
                Ok(match is_last {
                    true => events.end(self)?.status(),
                    false => 0,
                })
            }
        }
    }

    fn report_corrupted(&mut self, event: &Event) -> io::Result<()> {
        let Some(last) = self.gate.last() else {
            return Ok(());
        };
        let stamp =
            |id: &crate::event::EventId| format!("{}.{:03}:{}", id.seconds, id.millis, id.serial);
        writeln!(
            self.err,
            "Corrupted checkpoint file. Inode match, but newer complete event ({}) found before loaded checkpoint {}",
            stamp(&event.id),
            stamp(&last.id)
        )
    }

    /// Whether an event is one that is looked for. Returns the names that were read for it, if any, and the arguments
    /// of its syscalls.
    #[expect(
        clippy::type_complexity,
        reason = "what the search leaves to the output"
    )]
    fn matches(&mut self, event: &Event) -> Option<(Option<Translations>, Vec<(usize, [u64; 2])>)> {
        let filter = &self.options.filter;
        if !filter.has_stamp(event) {
            return None;
        }
        let mut wanted = filter.wanted();
        if !matches!(self.options.format, Format::Raw | Format::Default) {
            wanted |= Wanted::ARCH;
        }
        let names = wanted
            .contains(Wanted::USER_NAMES)
            .then(|| first_names(event))
            .flatten();
        let mut reader = Reader::new(wanted, &mut self.interpreter.accounts);
        reader.debug = self.options.debug;
        let found = reader.event(event);
        self.messages.append(&mut reader.messages);
        let is_match = found.is_some_and(|found| filter.matches(event, &found));
        let arguments = std::mem::take(&mut reader.arguments);
        is_match.then_some((names, arguments))
    }

    fn print(
        &mut self,
        event: &Event,
        names: Option<Translations>,
        arguments: &[(usize, [u64; 2])],
    ) -> io::Result<()> {
        self.text.clear();
        match self.options.format {
            Format::Raw => output::raw(event, &mut self.text),
            Format::Default => {
                output::with_time(event, self.options.escape, self.clock, &mut self.text);
            }
            Format::Interpreted => {
                let mut printer = Interpreted {
                    interpreter: &mut self.interpreter,
                    clock: self.clock,
                    arguments: self.arguments,
                    messages: &mut self.messages,
                };
                printer.event(event, names, arguments, &mut self.text);
                self.arguments = printer.arguments;
            }
            Format::Csv | Format::Text => {
                let mut printer = Sentences {
                    interpreter: &mut self.interpreter,
                    clock: self.clock,
                    columns: self.options.columns,
                    messages: &mut self.messages,
                    debug: self.options.debug,
                };
                if self.options.format == Format::Text {
                    printer.sentences(event, &mut self.text);
                } else {
                    if !std::mem::replace(&mut self.has_header, true) {
                        self.text
                            .extend_from_slice(Sentences::header(self.options.columns).as_bytes());
                    }
                    printer.rows(event, &mut self.text);
                }
            }
        }
        self.out.write_all(&self.text)?;
        self.report()
    }

    /// Writes the messages of an event.
    fn report(&mut self) -> io::Result<()> {
        self.err.write_all(&self.messages)?;
        self.messages.clear();
        Ok(())
    }

    /// Saves the checkpoint; whether that worked.
    fn save(&mut self, path: &Path, file: &Path, status: u8) -> io::Result<bool> {
        let id = match FileId::of(file) {
            Ok(id) => id,
            Err(error) => {
                let (file, error) = (file.display(), message(&error));
                writeln!(
                    self.err,
                    "Cannot stat audit file for checkpoint details - {file}: {error}"
                )?;
                return Ok(false);
            }
        };
        if status != 0 || self.corrupted {
            return Ok(true);
        }
        let checkpoint = Checkpoint {
            file: id,
            event: self.last.clone(),
        };
        match checkpoint.save(path) {
            Ok(()) => Ok(true),
            Err(error) => {
                self.err.write_all(error.as_bytes())?;
                Ok(false)
            }
        }
    }
}

impl Sink for Search<'_> {
    fn event(&mut self, event: &Event) -> io::Result<Step> {
        let has_checkpoint = self.options.checkpoint.is_some();
        let decision = if has_checkpoint {
            self.gate.decide(event)
        } else {
            Decision::Print
        };
        let matched = self.matches(event);
        self.report()?;
        if let Some((names, arguments)) = matched {
            match decision {
                Decision::Print => {
                    self.found = true;
                    self.print(event, names, &arguments)?;
                }
                Decision::Corrupted => {
                    self.report_corrupted(event)?;
                    self.corrupted = true;
                    return Ok(Step::Corrupted);
                }
                Decision::Skip => {}
            }
            if self.options.just_one {
                return Ok(Step::Stop);
            }
            if self.options.line_buffered {
                self.out.flush()?;
            }
        }
        if has_checkpoint {
            self.last = LastEvent {
                id: event.id.clone(),
                kind: event.kind,
            };
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

/// The names of an event's first record, if it is alone or that of a syscall.
fn first_names(event: &Event) -> Option<Translations> {
    let first = event.records().next()?;
    let is_alone = event.records().len() == 1;
    (is_alone || first.kind == record_type::SYSCALL).then(|| Translations::new(first.names))
}
