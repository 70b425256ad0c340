//! The thread of a destination: reads the log, sends what the filter accepts, and saves what was confirmed.
//!
//! After a failure the thread forgets what was not confirmed, closes the log, and later continues at the saved position:
//! a destination that is away holds neither memory nor files that were rotated away.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use logs::escaped::Escaped;
use logs::event_reader::{EventReader, Item};
use logs::log_file::LogError;
use logs::log_set::{LogEntries, LogSet};
use logs::state_directory::StateDirectory;

use super::backoff::Backoff;
use super::progress::{ConnectionState, DestinationProgress, SharedProgress};
use super::refusals::Refusals;
use crate::boots::Boots;
use crate::config::{Destination, Kind, Start};
use crate::frame::{Frame, Heartbeat, Record, Time};
use crate::output::{LastTold, info, now_ms, one_line};
use crate::position::Position;
use crate::sink::{Later, Sink};
use crate::unconfirmed::Unconfirmed;

/// How often the position is saved while it changes, and the destination asked what it has confirmed.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// A connection that lived so long is no reason to wait longer after it.
const LIVED: Duration = Duration::from_secs(10);
/// How often a log that cannot be read is tried before it is opened again.
const MOST_LOG_ERRORS: u32 = 60;
/// Most bytes of a position.
const MAX_POSITION_BYTES: u64 = 64 << 10;
/// Lines that are no records and are named; others are counted.
const MOST_NAMED: u64 = 10;

/// When a thread ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Never,
    /// When the destination has the whole log.
    OfLog,
}

/// What all threads have.
pub(super) struct Shared {
    pub(super) end: End,
    /// A signal came.
    pub(super) stop: Arc<AtomicBool>,
    pub(super) log: PathBuf,
    pub(super) host: String,
    pub(super) heartbeat: Duration,
    pub(super) boots: Boots,
    pub(super) state: StateDirectory,
}

/// The thread of a destination.
pub(super) struct Worker {
    shared: Arc<Shared>,
    destination: Destination,
    sink: Box<dyn Sink>,
    /// What is confirmed.
    confirmed: Position,
    /// The confirmed position that is not saved yet.
    is_unsaved: bool,
    /// Why it cannot be saved.
    save_error: LastTold,
    backoff: Backoff,
    refusals: Refusals,
    progress: SharedProgress,
}

/// What was sent on a connection.
struct Session {
    reader: EventReader,
    /// What was read.
    position: Position,
    /// Frames that were put.
    frames: u64,
    /// Positions that are not confirmed.
    waiting: Unconfirmed<Waiting>,
    begun: Instant,
    next_heartbeat: Instant,
    looked: Instant,
    log_errors: u32,
}

/// A position that is confirmed when the frames are.
struct Waiting {
    frames: u64,
    position: Position,
}

/// What a step of a session leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Continue,
    End,
}

impl Worker {
    /// The thread of a destination, at its saved position. A damaged one is told.
    ///
    /// # Errors
    /// The file of the position cannot be read.
    pub(super) fn new(
        shared: Arc<Shared>,
        mut destination: Destination,
        sink: Box<dyn Sink>,
    ) -> anyhow::Result<Self> {
        let file = file_name(&destination.name);
        let saved = shared.state.read(&file, MAX_POSITION_BYTES)?;
        let confirmed = saved.map(|text| Position::parse(&text)).transpose();
        let confirmed = confirmed.unwrap_or_else(|error| {
            let path = shared.state.path_of(&file);
            let error = one_line(&format!("{error:#}"));
            info(format_args!(
                "`{}` is damaged: {error}: continuing with the oldest event of the log; events come again with the same serials",
                path.display()
            ));
            destination.start = Start::Begin;
            None
        });
        let confirmed = confirmed.unwrap_or_else(Position::new);
        let progress = DestinationProgress {
            name: destination.name.clone(),
            description: destination.kind.description(),
            state: ConnectionState::Connecting,
            error: None,
            failures: 0,
            position: confirmed.clone(),
            unconfirmed: 0,
        };
        Ok(Self {
            shared,
            destination,
            sink,
            confirmed,
            is_unsaved: false,
            save_error: LastTold::default(),
            backoff: Backoff::default(),
            refusals: Refusals::default(),
            progress: Arc::new(Mutex::new(progress)),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.destination.name
    }

    pub(super) fn progress(&self) -> SharedProgress {
        Arc::clone(&self.progress)
    }

    /// Sends until a signal, or the end.
    pub(super) fn run(mut self) {
        let mut told = LastTold::default();
        let mut reason = None;
        while !self.is_stopped() {
            let begun = Instant::now();
            let result = self.session();
            self.sink.disconnect();
            self.save();
            let Err(error) = result else {
                break;
            };
            if self.is_closed_output(&error) {
                let text = "the standard output was closed";
                self.tell(text);
                reason = Some(text.to_owned());
                break;
            }
            if begun.elapsed() > LIVED {
                self.backoff.end();
            }
            let wait = self.backoff.fail(asked_wait(&error));
            let text = one_line(&format!("{error:#}"));
            if told.is_new(&text) {
                self.tell(&text);
            }
            self.note(ConnectionState::Waiting, Some(text), 0);
            let begun = Instant::now();
            while !self.is_stopped() && begun.elapsed() < wait {
                thread::park_timeout(wait.saturating_sub(begun.elapsed()));
            }
        }
        self.note(ConnectionState::Ended, reason, 0);
    }

    /// Sends on one connection, until the end or a failure.
    fn session(&mut self) -> anyhow::Result<()> {
        self.note_state(ConnectionState::Connecting);
        let mut position = self.confirmed.clone();
        if position.cursor()?.is_none() {
            // Where the first run begins does not depend on the destination.
            self.reader(&mut position)?;
        }
        self.sink.connect()?;
        let reader = self.reader(&mut position)?;
        let now = Instant::now();
        self.note(ConnectionState::Connected, self.refusals.error(now), 0);
        let mut session = Session {
            reader,
            position,
            frames: 0,
            waiting: Unconfirmed::new(),
            begun: now,
            next_heartbeat: now,
            looked: now,
            log_errors: 0,
        };
        let result = self.follow(&mut session);
        if result.is_err() {
            // What was confirmed before is not sent again. A destination that is gone does not tell.
            let _gone = self.take_confirmed(&mut session);
        }
        result
    }

    /// Sends what comes in the log, until the end or a failure.
    fn follow(&mut self, session: &mut Session) -> anyhow::Result<()> {
        self.look(session)?;
        while !self.is_stopped() {
            if self.step(session)? == Next::End {
                break;
            }
            if session.looked.elapsed() >= SAVE_INTERVAL {
                self.look(session)?;
            }
        }
        self.end(session)
    }

    /// Reads what comes next in the log, and sends it.
    fn step(&mut self, session: &mut Session) -> anyhow::Result<Next> {
        let item = match session.reader.next_item() {
            Ok(item) => item,
            Err(error) => {
                self.log_failed(session, error)?;
                return Ok(Next::Continue);
            }
        };
        session.log_errors = 0;
        match item {
            Some(Item::Event(event)) => {
                let gap = session.position.take(event, &self.shared.boots);
                let frame = |record| Frame {
                    host: &self.shared.host,
                    boot: &session.position.boot,
                    record,
                };
                if let Some(gap) = &gap {
                    self.sink.put(&frame(Record::Gap(gap)))?;
                    session.frames += 1;
                }
                if self.destination.filter.matches(event) {
                    self.sink.put(&frame(Record::Event(event)))?;
                    session.frames += 1;
                    session.position.counts.sent += 1;
                }
            }
            Some(Item::Malformed { path, line, error }) => {
                session.position.counts.malformed += 1;
                if session.position.counts.malformed <= MOST_NAMED {
                    let path = Escaped(path.as_os_str().as_encoded_bytes()).to_string();
                    let error = error.to_string();
                    self.tell(&format!("{path}:{line}: {error}"));
                }
            }
            Some(Item::Idle) => {}
            Some(Item::Lost) => {
                session.position.lose();
                self.tell("the log was rotated faster than it was sent: events may be missing");
            }
            None => return Ok(Next::End),
        }
        // What follows may take a while to come.
        if self.sink.is_full() || !session.reader.has_unread() {
            self.flush(session)?;
        }
        Ok(Next::Continue)
    }

    /// Sends what was put, and remembers the position until it is confirmed.
    fn flush(&mut self, session: &mut Session) -> anyhow::Result<()> {
        self.sink.flush()?;
        if let Some(refusal) = self.sink.take_refusal() {
            session.position.counts.rejected += refusal.records;
            session.position.counts.cut += refusal.cut;
            if let Some(text) = self.refusals.take(&refusal, Instant::now()) {
                self.tell(&text);
            }
        }
        if let Some(cursor) = session.reader.cursor() {
            session.position.set_cursor(cursor);
        }
        session.waiting.push(Waiting {
            frames: session.frames,
            position: session.position.clone(),
        });
        if self.sink.is_checkpoint() {
            self.take_confirmed(session)?;
            self.save();
        }
        Ok(())
    }

    /// Sends a heartbeat if it is time, asks what is confirmed, and saves that.
    fn look(&mut self, session: &mut Session) -> anyhow::Result<()> {
        session.looked = Instant::now();
        if session.looked >= session.next_heartbeat {
            session.next_heartbeat = session.looked + self.shared.heartbeat;
            self.heartbeat(session)?;
        }
        self.flush(session)?;
        self.take_confirmed(session)?;
        self.save();
        let unconfirmed = session.position.counts.sent - self.confirmed.counts.sent;
        let error = self.refusals.error(session.looked);
        self.note(ConnectionState::Connected, error, unconfirmed);
        Ok(())
    }

    /// Asks what is confirmed. A destination that confirms heartbeats, and no event, does not work.
    fn take_confirmed(&mut self, session: &mut Session) -> anyhow::Result<()> {
        let confirmed = self.sink.confirmed()?;
        let is_over = |waiting: &Waiting| waiting.frames <= confirmed;
        let mut works = session.begun.elapsed() > LIVED;
        while let Some(waiting) = session.waiting.pop_if(is_over) {
            if self.confirmed != waiting.position {
                self.confirmed = waiting.position;
                self.is_unsaved = true;
                works = true;
            }
        }
        if works {
            self.backoff.end();
        }
        Ok(())
    }

    fn heartbeat(&mut self, session: &mut Session) -> anyhow::Result<()> {
        let position = &session.position;
        let (serial, kernel_serial) = position.serials();
        let time = Time { ms: now_ms() };
        let heartbeat = Heartbeat {
            time,
            serial,
            kernel_serial,
            counts: position.counts.clone(),
            version: env!("CARGO_PKG_VERSION"),
        };
        let boot = match position.boot.as_str() {
            "" => self.shared.boots.at(time.ms),
            boot => boot,
        };
        self.sink.put(&Frame {
            host: &self.shared.host,
            boot,
            record: Record::Heartbeat(&heartbeat),
        })?;
        session.frames += 1;
        Ok(())
    }

    /// Ends a session in order: what the destination has taken, the next run does not send.
    fn end(&mut self, session: &mut Session) -> anyhow::Result<()> {
        self.heartbeat(session)?;
        self.flush(session)?;
        self.sink.finish()?;
        self.confirmed = session.position.clone();
        self.is_unsaved = true;
        Ok(())
    }

    /// Opens the log at the position. Without one, the first run begins as the configuration says.
    fn reader(&mut self, position: &mut Position) -> anyhow::Result<EventReader> {
        let log = &self.shared.log;
        let cursor = position.cursor()?;
        let reader = match cursor {
            None => EventReader::new(self.open_log()?),
            Some(cursor) => match EventReader::at_cursor(self.open_log()?, &cursor) {
                Err(LogError::CursorLost) => {
                    self.tell(
                        "the log no longer has the position: events are missing; continuing with the oldest that it has",
                    );
                    position.lose();
                    EventReader::new(self.open_log()?)
                }
                reader => reader?,
            },
        };
        let mut reader = match self.shared.end {
            End::OfLog => reader.leave_unfinished(),
            End::Never => reader
                .follow(log)
                .with_context(|| format!("cannot follow log `{}`", log.display()))?,
        };
        if cursor.is_none() && self.destination.start == Start::End {
            reader.skip_to_end()?;
        }
        if let Some(cursor) = reader
            .cursor()
            .filter(|_| position.cursor().is_ok_and(|at| at.is_none()))
        {
            // A run that is killed before its first event must not skip it.
            position.set_cursor(cursor);
            self.confirmed = position.clone();
            self.is_unsaved = true;
            self.save();
        }
        Ok(reader)
    }

    fn open_log(&self) -> Result<LogSet, LogError> {
        let log = &self.shared.log;
        LogEntries::rotated(log)?.readable_with(log, |error| self.tell(&error.report()))
    }

    /// The log cannot be read: the reader goes on after it, or the log is opened again.
    fn log_failed(&self, session: &mut Session, error: LogError) -> anyhow::Result<()> {
        if session.log_errors == 0 {
            self.tell(&error.report());
        }
        session.log_errors += 1;
        if session.log_errors >= MOST_LOG_ERRORS || self.shared.end == End::OfLog {
            return Err(error).context("cannot read the log");
        }
        thread::park_timeout(Duration::from_secs(1));
        Ok(())
    }

    /// Writes the confirmed position, if it is new. One that cannot be written is tried again.
    fn save(&mut self) {
        if !self.is_unsaved {
            return;
        }
        let file = file_name(&self.destination.name);
        let saved = self.confirmed.text();
        let saved = saved.and_then(|text| Ok(self.shared.state.replace(&file, &text)?));
        let Err(error) = saved else {
            (self.is_unsaved, self.save_error) = (false, LastTold::default());
            return;
        };
        let text = format!("{error:#}");
        if self.save_error.is_new(&text) {
            self.tell(&text);
        }
    }

    fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Whether the standard output has no reader any more: it cannot be opened again.
    fn is_closed_output(&self, error: &anyhow::Error) -> bool {
        let is_closed = |cause: &(dyn std::error::Error + 'static)| {
            let cause = cause.downcast_ref::<io::Error>();
            cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
        };
        self.destination.kind == Kind::JsonOutput && error.chain().any(is_closed)
    }

    fn note(&self, state: ConnectionState, error: Option<String>, unconfirmed: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.state = state;
        progress.error = error;
        progress.failures = self.backoff.failures();
        progress.position.clone_from(&self.confirmed);
        progress.unconfirmed = unconfirmed;
    }

    /// The error stays until it is known whether it is over.
    fn note_state(&self, state: ConnectionState) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.state = state;
    }

    fn tell(&self, text: &str) {
        info(format_args!("{}: {text}", self.destination.name));
    }
}

/// How long a destination has asked to be left alone.
fn asked_wait(error: &anyhow::Error) -> Duration {
    let mut causes = error.chain();
    let later = causes.find_map(|cause| cause.downcast_ref::<Later>());
    later.map_or(Duration::ZERO, |later| later.after)
}

/// Name of the file of a destination.
pub(super) fn file_name(destination: &str) -> String {
    format!("{destination}.position")
}
