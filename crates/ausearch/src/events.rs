//! Reads events from log files.

use std::io::{self, Read};

use logs::stamp::{self, BadStamp};

use crate::event::Event;
use crate::grouping::{Grouping, Origin};
use crate::lines::Lines;
use crate::record_type;

/// Whether reading goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Next,
    Stop,
    /// The log is not the one that was meant.
    Corrupted,
    /// What was skipped may decide about the order of what follows.
    Unclear,
}

/// Seconds, milliseconds and serial of an event.
pub(crate) type StampNumbers = (u64, u32, u64);

/// Which of the events that begin in a part of a log are passed on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Passed<'s> {
    None,
    All,
    /// Those with these stamps, which are in order. No other event decides about them.
    Only(&'s [StampNumbers]),
}

/// Takes events.
pub(crate) trait Sink {
    /// Takes an event.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn event(&mut self, event: &Event) -> io::Result<Step>;

    /// Takes a message for the standard error.
    ///
    /// # Errors
    /// When it cannot be written.
    fn message(&mut self, message: &[u8]) -> io::Result<()>;

    /// Shows what was printed so far: the input pauses.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn pause(&mut self) -> io::Result<()>;
}

/// Which events are complete at the end of the last file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    All,
    /// Those with a record that ends an event; the others may go on in the next search.
    Ended,
}

/// Events of several files, each of which may go on in the next.
#[derive(Debug)]
pub(crate) struct Events {
    grouping: Grouping,
    timeout_seconds: u64,
    /// Records before this time are skipped, if it is not zero.
    start: i64,
    /// Records after this time are skipped, if it is not zero.
    end: i64,
    at_end: AtEnd,
    /// Time of the first record, or of the first that was skipped when there is a start.
    pub(crate) first_time: (u64, u32),
    /// Text was damaged or compressed: events may be missing.
    pub(crate) has_errors: bool,
    /// Text was skipped: see [`Origin::is_tied`].
    is_narrowed: bool,
}

impl Events {
    pub(crate) fn new(timeout_seconds: u64, start: i64, end: i64, at_end: AtEnd) -> Self {
        Self {
            grouping: Grouping::default(),
            timeout_seconds,
            start,
            end,
            at_end,
            first_time: (0, 0),
            has_errors: false,
            is_narrowed: false,
        }
    }

    /// Goes on without the events before, at the start of the log or after text that is skipped.
    pub(crate) fn restart(&mut self, is_start: bool) {
        self.grouping.clear();
        self.is_narrowed = !is_start;
    }

    /// Reads lines, and goes on with other text.
    ///
    /// # Errors
    /// When the sink fails.
    pub(crate) fn read_part(
        &mut self,
        input: impl Read,
        passed: Passed<'_>,
        sink: &mut impl Sink,
    ) -> io::Result<Step> {
        self.grouping.is_unwanted = matches!(passed, Passed::None);
        let mut lines = Lines::new(input);
        loop {
            match lines.next() {
                Ok(Some(line)) => self.add(line, passed, sink)?,
                Ok(None) => break,
                Err(_) => return Ok(Step::Unclear),
            }
            let step = self.drain(sink)?;
            if step != Step::Next {
                return Ok(step);
            }
        }
        Ok(Step::Next)
    }

    /// Passes on all events.
    ///
    /// # Errors
    /// When the sink fails.
    pub(crate) fn finish(&mut self, sink: &mut impl Sink) -> io::Result<Step> {
        self.grouping.complete_all();
        self.drain(sink)
    }

    /// Reads a file. Events that are not complete at its end wait for the next, unless it is the last.
    ///
    /// # Errors
    /// When the sink fails.
    pub(crate) fn read(
        &mut self,
        input: impl Read,
        is_last: bool,
        sink: &mut impl Sink,
    ) -> io::Result<Step> {
        let mut lines = Lines::new(input);
        let mut is_reported = false;
        loop {
            match lines.next() {
                Ok(Some(line)) => self.add(line, Passed::All, sink)?,
                Ok(None) if is_last => return self.end(sink),
                Ok(None) => return self.drain(sink),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    self.grouping.complete_all();
                    let step = self.drain(sink)?;
                    sink.pause()?;
                    if step != Step::Next {
                        return Ok(step);
                    }
                }
                // Damaged or compressed: the input goes on after that, or ends. The stock tools know neither.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    if !std::mem::replace(&mut is_reported, true) {
                        sink.message(format!("Error reading {error}\n").as_bytes())?;
                    }
                    self.has_errors = true;
                    continue;
                }
                // The stock tools end at what they cannot read.
                Err(_) => return Ok(Step::Next),
            }
            let step = self.drain(sink)?;
            if step != Step::Next {
                return Ok(step);
            }
        }
    }

    /// Passes on the events that are complete at the end of the last file.
    ///
    /// # Errors
    /// When the sink fails.
    pub(crate) fn end(&mut self, sink: &mut impl Sink) -> io::Result<Step> {
        match self.at_end {
            AtEnd::All => self.grouping.complete_all(),
            AtEnd::Ended => self.grouping.complete_ended(),
        }
        self.drain(sink)
    }

    fn add(&mut self, line: &[u8], passed: Passed<'_>, sink: &mut impl Sink) -> io::Result<()> {
        let stamp = match stamp::parse(line, self.timeout_seconds) {
            Ok(stamp) => stamp,
            Err(BadStamp::NoRecord) => return Ok(()),
            Err(BadStamp::OutOfRange(_)) if self.grouping.is_unwanted => return Ok(()),
            Err(BadStamp::OutOfRange(numbers)) => {
                return sink.message(&[b"Error extracting time stamp (", numbers, b")\n"].concat());
            }
        };
        if let Passed::Only(stamps) = passed {
            let numbers = (stamp.seconds, stamp.millis, stamp.serial);
            if stamps.binary_search(&numbers).is_err() {
                return Ok(());
            }
        }
        let seconds = stamp.seconds.cast_signed();
        let is_early = self.start != 0 && seconds < self.start;
        let is_late = self.end != 0 && seconds > self.end;
        let is_outside = is_early || is_late;
        if self.first_time.0 == 0 && (is_outside || self.start == 0) {
            self.first_time = (stamp.seconds, stamp.millis);
        }
        if !is_outside {
            let kind = record_type::by_name(stamp.kind);
            self.grouping.add(&stamp, kind, line, self.timeout_seconds);
        }
        Ok(())
    }

    /// Passes on the complete events.
    fn drain(&mut self, sink: &mut impl Sink) -> io::Result<Step> {
        while let Some((event, origin)) = self.grouping.next() {
            let step = match origin {
                Origin {
                    is_unwanted: true, ..
                } => Step::Next,
                Origin { is_tied: true, .. } if self.is_narrowed => Step::Unclear,
                _ => sink.event(&event)?,
            };
            self.grouping.recycle(event);
            if step != Step::Next {
                return Ok(step);
            }
        }
        Ok(Step::Next)
    }
}
