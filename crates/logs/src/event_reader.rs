//! Reads the events of a log in order.

mod cut;
mod following;
mod resume;

use std::path::Path;
use std::time::Instant;

use audit::ids::Serial;
use audit::record::assemble::whole::WholeEventFinder;
use audit::record::assemble::{END_OF_EVENT_TIMEOUT_SECS, EventAssembler, EventRecords};
use audit::record::decode::DecodeError;

use crate::follow::Follow;
use crate::line_buffer::{Line, LineBuffer, len};
use crate::log_file::{LogError, LogFile};
use crate::log_set::LogSet;
use cut::LastText;

/// Reads the events of a log, in the order in which they end.
///
/// Files are read in order, and an event may begin in one file and end in the next. Nothing is allocated per event.
///
/// A caller can go on after [`LogError::Read`]: the next call continues after what cannot be read, with the next part of
/// an archive or the next file.
#[derive(Debug)]
pub struct EventReader {
    files: Vec<OpenFile>,
    /// File that is read.
    at: usize,
    buffer: LineBuffer,
    assembler: EventAssembler,
    whole_events: WholeEventFinder,
    /// The event that the caller has.
    current: Option<EventRecords>,
    /// Lines of the file that were read.
    line_number: u64,
    last_serial: Serial,
    follow: Option<Follow>,
    /// Of the file that is followed.
    last: LastText,
    /// All input was read, and the open events were ended.
    ended: bool,
    /// Files between the last line and the next one may have been removed, and that was not returned.
    is_lost: bool,
    /// When the log that is followed had no more lines.
    waits_since: Option<Instant>,
    /// Only events that begin here are returned.
    window: Option<TextRange>,
    /// What the end of the log may not have whole is left for a reader that continues there.
    leaves_unfinished: bool,
}

/// A position in the files of a reader: number of the file, and offset in it.
type FilePosition = (usize, u64);

/// A range of text whose events are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextRange {
    /// Where reading begins, so that earlier events that are still open are recognised.
    pub(crate) lead: FilePosition,
    /// The first event begins here or later.
    pub(crate) from: FilePosition,
    /// The last event begins before this.
    pub(crate) until: FilePosition,
}

#[derive(Debug)]
struct OpenFile {
    file: LogFile,
    /// Position of its first byte among the bytes of all files.
    base: u64,
    /// Files before it may have been removed before they were read.
    is_after_loss: bool,
}

impl OpenFile {
    const fn new(file: LogFile) -> Self {
        Self {
            file,
            base: 0,
            is_after_loss: false,
        }
    }
}

/// What [`EventReader::next_item`] returns.
#[derive(Debug)]
pub enum Item<'a> {
    /// An event.
    Event(&'a EventRecords),
    /// A line that is not a record, and was skipped.
    Malformed {
        /// File of the line.
        path: &'a Path,
        /// Number of the line among those that were read of the file, from 1.
        line: u64,
        /// The error in the line.
        error: LineError,
    },
    /// Nothing was written for a while to the log that is followed.
    Idle,
    /// The log that is followed was rotated so often that files may have been removed before they were read: what comes
    /// next is after them.
    Lost,
}

/// Error in a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The line is longer than a record can be.
    #[error("the line is too long for a record")]
    TooLong,
    /// The line has no record header.
    #[error(transparent)]
    Decode(DecodeError),
}

/// What to read next.
enum Step {
    Line(Line),
    More,
    NextFile,
    Wait,
    End,
}

/// What [`EventReader::take_whole_event`] did.
enum WholeEventStep {
    /// It took an event.
    Taken,
    /// No event of the window is left.
    PastWindow,
    /// The next line must be read by itself.
    None,
}

impl EventReader {
    /// A reader of all events of a log.
    #[must_use]
    pub fn new(logs: LogSet) -> Self {
        Self::with_timeout(logs, END_OF_EVENT_TIMEOUT_SECS)
    }

    /// A reader that ends an event when a record is `timeout_secs` newer, as `end_of_event_timeout` does.
    #[must_use]
    pub fn with_timeout(logs: LogSet, timeout_secs: u64) -> Self {
        let files = logs.into_files().into_iter();
        Self {
            files: files.map(OpenFile::new).collect(),
            at: 0,
            buffer: LineBuffer::default(),
            assembler: EventAssembler::with_timeout(timeout_secs),
            whole_events: WholeEventFinder::default(),
            current: None,
            line_number: 0,
            last_serial: Serial(0),
            follow: None,
            last: LastText::default(),
            ended: false,
            is_lost: false,
            waits_since: None,
            window: None,
            leaves_unfinished: false,
        }
    }

    /// Continues with the events of a range, and then ends. What is open is dropped.
    pub(crate) fn jump(&mut self, range: TextRange) {
        self.assembler.end_all();
        self.assembler.drain_ended(|_| ());
        self.assembler.forget_time();
        (self.at, _) = range.lead;
        if let Some(open) = self.files.get_mut(self.at) {
            open.base = 0;
        }
        self.buffer.restart(range.lead.1);
        self.ended = false;
        self.window = Some(range);
    }

    /// File of a number.
    pub(crate) fn file_mut(&mut self, number: usize) -> Option<&mut LogFile> {
        self.files.get_mut(number).map(|open| &mut open.file)
    }

    /// Returns the next event, or what else there is to report; `None` at the end of the log. A reader that follows
    /// does not end.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, LogError> {
        self.next_item_where(|_| true)
    }

    /// Returns the next event whose text a function accepts, and maybe some that it does not accept.
    fn next_item_where(
        &mut self,
        accepts: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Item<'_>>, LogError> {
        loop {
            if let Some(event) = self.assembler.next_ended() {
                if !self.is_in_window(event.start()) {
                    self.assembler.recycle(event);
                    continue;
                }
                self.last_serial = event.serial();
                if let Some(previous) = self.current.replace(event) {
                    self.assembler.recycle(previous);
                }
                return Ok(self.current.as_ref().map(Item::Event));
            }
            if std::mem::take(&mut self.is_lost) {
                return Ok(Some(Item::Lost));
            }
            if self.ended {
                return Ok(None);
            }
            match self.take_whole_event(&accepts) {
                WholeEventStep::Taken => continue,
                WholeEventStep::PastWindow => {
                    self.ended = true;
                    return Ok(None);
                }
                WholeEventStep::None => {}
            }
            let error = match self.step()? {
                Step::Line(Line::TooLong) => {
                    self.line_number += 1;
                    LineError::TooLong
                }
                Step::Line(Line::Text { start, end, offset }) => {
                    self.line_number += 1;
                    self.waits_since = None;
                    if self.is_past_window(offset) {
                        self.ended = true;
                        return Ok(None);
                    }
                    let line = self.buffer.text(start, end);
                    let base = self.files.get(self.at).map_or(0, |open| open.base);
                    match self.assembler.take(line, base + offset) {
                        Ok(()) => continue,
                        // A blank line hides nothing.
                        Err(_) if line.is_empty() => continue,
                        Err(error) => LineError::Decode(error),
                    }
                }
                Step::More | Step::NextFile => continue,
                Step::Wait => match self.wait()? {
                    true => continue,
                    false => return Ok(Some(Item::Idle)),
                },
                Step::End => {
                    self.ended = true;
                    self.end_open();
                    continue;
                }
            };
            return Ok(self.malformed(error));
        }
    }

    /// Returns the next event and skips malformed lines; `None` at the end of the log.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub fn next_event(&mut self) -> Result<Option<&EventRecords>, LogError> {
        Ok(match self.advance()? {
            true => self.event(),
            false => None,
        })
    }

    /// Takes the events that are whole in the buffer, up to one whose text `accepts` accepts.
    fn take_whole_event(&mut self, accepts: impl Fn(&[u8]) -> bool) -> WholeEventStep {
        let base = self.files.get(self.at).map_or(0, |open| open.base);
        loop {
            let offset = self.buffer.offset();
            if self.is_past_window(offset) {
                return WholeEventStep::PastWindow;
            }
            let Some(text) = self.buffer.unread() else {
                return WholeEventStep::None;
            };
            let Some(event) = self.whole_events.at_start(text) else {
                return WholeEventStep::None;
            };
            let (text, is_wanted) = (event.text(), accepts(event.text()));
            if is_wanted {
                self.assembler.take_whole(&event, base + offset);
            } else if self
                .assembler
                .pass(event.time(), event.serial(), text.len())
            {
                self.last_serial = event.serial();
            } else {
                return WholeEventStep::None;
            }
            self.line_number += len(event.line_count());
            let bytes = text.len();
            self.buffer.skip_lines(bytes);
            self.waits_since = None;
            if self.assembler.has_ended() {
                return WholeEventStep::Taken;
            }
        }
    }

    /// Goes to the next event; returns false at the end of the log.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub(crate) fn advance(&mut self) -> Result<bool, LogError> {
        self.advance_where(|_| true)
    }

    /// Goes to the next event, and skips most of those whose text a function does not accept; returns false at the end
    /// of the log.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub(crate) fn advance_where(
        &mut self,
        accepts: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, LogError> {
        loop {
            match self.next_item_where(&accepts)? {
                None => return Ok(false),
                Some(Item::Event(_)) => return Ok(true),
                Some(Item::Malformed { .. } | Item::Idle | Item::Lost) => {}
            }
        }
    }

    /// The last event that was returned.
    pub(crate) const fn event(&self) -> Option<&EventRecords> {
        self.current.as_ref()
    }

    /// Whether text that was read has not been returned: the next call waits for nothing, unless that is a part of a line
    /// or of an event at the end of a log that is followed.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        self.buffer.has_unread() || self.assembler.has_ended()
    }

    /// Path of the file that is read.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.files.get(self.at).map(|open| open.file.path())
    }

    /// Number of the file in which a position is. Files that the reader has not come to have no positions yet.
    fn file_of(&self, position: u64) -> usize {
        let mut read = self.files.iter().take(self.at + 1);
        read.rposition(|open| open.base <= position).unwrap_or(0)
    }

    /// Position of an offset in a file, if the reader has come to the file.
    fn position(&self, (file, offset): FilePosition) -> Option<u64> {
        let open = self.files.get(file).filter(|_| file <= self.at)?;
        Some(open.base.saturating_add(offset))
    }

    /// Whether the event that begins at a position is to be returned.
    fn is_in_window(&self, start: u64) -> bool {
        self.window.is_none_or(|window| {
            self.position(window.from).is_some_and(|from| start >= from)
                && self
                    .position(window.until)
                    .is_none_or(|until| start < until)
        })
    }

    /// Whether the window has ended before `offset` of the file, and no event of it is open.
    fn is_past_window(&self, offset: u64) -> bool {
        self.window.is_some_and(|TextRange { until, .. }| {
            (self.at, offset) >= until
                && self.position(until).is_some_and(|until| {
                    self.assembler.first_open().is_none_or(|open| open >= until)
                })
        })
    }

    fn malformed(&self, error: LineError) -> Option<Item<'_>> {
        let (path, line) = (self.path()?, self.line_number);
        Some(Item::Malformed { path, line, error })
    }

    fn step(&mut self) -> Result<Step, LogError> {
        if let Some(line) = self.buffer.next_line() {
            return Ok(Step::Line(line));
        }
        let offset = self.buffer.read_offset();
        let is_last = self.at + 1 >= self.files.len();
        let Some(open) = self.files.get_mut(self.at) else {
            return Ok(Step::End);
        };
        match self.buffer.fill(|room| open.file.read_at(room, offset)) {
            // What was read may have been cut off before, or while, more was read.
            Ok(_) if self.follow.is_some() && !self.last.is_in(&mut open.file, offset)? => {
                self.go_on_at_cut()?;
                return Ok(Step::More);
            }
            Ok(0) => {}
            Ok(count) => {
                if self.follow.is_some() {
                    self.last
                        .add(&mut open.file, self.buffer.last_read(count))?;
                }
                return Ok(Step::More);
            }
            Err(error) => {
                self.skip_unreadable(offset);
                return Err(error);
            }
        }
        if is_last && self.follow.is_some() {
            // The last line may be written in two parts, unless another file has taken the log's name. What was written
            // between the read and the rotation comes before the line is taken for whole.
            return Ok(match self.add_newer_files()? {
                true => Step::More,
                false => Step::Wait,
            });
        }
        if is_last && self.leaves_unfinished {
            return Ok(Step::End);
        }
        if let Some(line) = self.buffer.last_line() {
            return Ok(Step::Line(line));
        }
        Ok(self.next_file())
    }

    /// Goes to the text after what cannot be read at an offset of this file, or tries again if no other can follow it.
    fn skip_unreadable(&mut self, offset: u64) {
        let open = self.files.get(self.at);
        if let Some(next) = open.and_then(|open| open.file.after_unreadable(offset)) {
            self.buffer.restart(next);
            return;
        }
        self.buffer.restart(offset);
        let is_last = matches!(self.next_file(), Step::End);
        if is_last && self.follow.is_none() {
            self.ended = true;
            self.assembler.end_all();
        }
    }

    fn next_file(&mut self) -> Step {
        let Some(open) = self.files.get(self.at) else {
            return Step::End;
        };
        let base = open.base + self.buffer.offset();
        let Some(next) = self.files.get_mut(self.at + 1) else {
            return Step::End;
        };
        next.base = base;
        if next.is_after_loss {
            // What goes on after it is not the rest of an event.
            self.assembler.end_all();
            self.is_lost = true;
        }
        self.at += 1;
        self.buffer.restart(0);
        self.last.clear();
        self.line_number = 0;
        if self.follow.is_some() {
            self.close_read_files();
        }
        Step::NextFile
    }
}

#[cfg(test)]
mod tests;
