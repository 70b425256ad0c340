//! Writes batches to the log file and flushes them: partial writes, and the guarantees of `flush` and `freq`.

use std::io;

use audit::conf::auditd::Flush;
use bstr::ByteSlice as _;
use engine::FileRange;

use super::disk_actions::Fault;
use super::{AppendResult, AuditLog, Suspension, WriteObserver, flush};
use crate::sinks::log_file::{AppendError, Log};

/// Lines that were not written completely.
struct WriteFailure {
    /// Whole events that are in the log.
    whole: u64,
    /// The error.
    error: io::Error,
    /// There is room now that was missing.
    has_room: bool,
}

impl WriteFailure {
    const fn nothing(error: io::Error) -> Self {
        Self {
            whole: 0,
            error,
            has_room: false,
        }
    }
}

impl AuditLog {
    /// Writes lines and performs due actions. If an action makes room, all of them are written again.
    pub(super) fn write(
        &mut self,
        lines: &[u8],
        events: u64,
        observer: &mut dyn WriteObserver,
    ) -> AppendResult {
        while let Err(failure) = self.write_once(lines, observer) {
            if !failure.has_room {
                let written = events.min(failure.whole);
                let mut appended = self.count_lost(events - written, &failure.error.to_string());
                appended.written = written;
                return appended;
            }
        }
        AppendResult {
            written: events,
            ..AppendResult::default()
        }
    }

    /// Writes lines to the open log.
    fn write_once(
        &mut self,
        lines: &[u8],
        observer: &mut dyn WriteObserver,
    ) -> Result<(), WriteFailure> {
        self.replace_deleted_log();
        let Some(log) = &mut self.log else {
            return Err(WriteFailure::nothing(io::Error::other("the log is closed")));
        };
        let span = match log.span(lines.len()) {
            Ok(span) => span,
            Err(error) => {
                self.disk_failed(Fault::Write, &error);
                return Err(WriteFailure::nothing(error));
            }
        };
        log.reserve(span);
        observer.write_begins(span);
        match log.append(lines) {
            Ok(()) => {
                // Before any other action on the log: it may be renamed now.
                observer.write_ends();
                *self.alarms.of(Fault::Write) = false;
                self.failure = None;
                self.size = span.offset + span.bytes;
                self.flush(lines);
                if let (Some(indexer), Some(log)) = (&mut self.indexer, &self.log) {
                    let path = &self.config.path;
                    indexer.written(path, log, lines, span.offset, &self.is_busy);
                }
                self.check_size();
                self.check_free_space();
                self.lock_if_unlocked();
                Ok(())
            }
            Err(partly) => Err(self.written_partly(lines, span, partly, observer)),
        }
    }

    /// Truncates an incomplete event, and performs due actions.
    fn written_partly(
        &mut self,
        lines: &[u8],
        span: FileRange,
        partly: AppendError,
        observer: &mut dyn WriteObserver,
    ) -> WriteFailure {
        let AppendError { written, error } = partly;
        let (at, whole) = whole_events(lines.get(..written).unwrap_or(lines));
        let kept = u64::try_from(at).unwrap_or_default();
        self.truncate(span.offset + kept);
        let has_room = self.disk_failed(Fault::Write, &error);
        if has_room {
            // All of it is written again: the next daemon could not know that a part of it was.
            self.truncate(span.offset);
            observer.write_fails();
            return WriteFailure {
                has_room,
                ..WriteFailure::nothing(error)
            };
        }
        WriteFailure {
            whole,
            error,
            has_room,
        }
    }

    fn truncate(&mut self, size: u64) {
        if let Some(log) = &mut self.log
            && let Err(error) = log.truncate(size)
        {
            self.alarm(&format!(
                "cannot truncate an incomplete event at the end of the log: {error}"
            ));
        }
        self.size = size;
    }

    /// Flushes as the policy requires, and as the page cache limit requires.
    fn flush(&mut self, lines: &[u8]) {
        let policy = self.due(lines);
        self.cached += u64::try_from(lines.len()).unwrap_or_default();
        let is_long = self.cached >= flush::STEP;
        if is_long {
            self.cached = 0;
        }
        let Some(log) = &self.log else {
            return;
        };
        let mut flushed = Ok(false);
        if policy == Flush::Incremental {
            flushed = log.sync().map(|()| true);
        }
        if is_long || policy == Flush::IncrementalAsync {
            let asked = log.try_clone().map(|file| self.flusher.flush(file));
            flushed = flushed.and_then(|done| asked.map(|()| done));
        }
        let earlier = self.flusher.outcome();
        self.flushed(flushed.and_then(|done| earlier.map(|earlier| done || earlier)));
    }

    /// Performs due actions after a flush.
    pub(super) fn flushed(&mut self, flushed: io::Result<bool>) {
        match flushed {
            Ok(true) => {
                *self.alarms.of(Fault::Flush) = false;
                self.sync_failure = None;
            }
            Ok(false) => {}
            Err(error) => {
                let events = self.lost.events;
                self.sync_failure.get_or_insert_with(|| {
                    let text = format!("{error}: what is written since then may never be on disk");
                    Suspension::begin("sync", &text, events)
                });
                self.disk_failed(Fault::Flush, &error);
            }
        }
    }

    /// Flush required by the policy for these lines.
    fn due(&mut self, lines: &[u8]) -> Flush {
        let Some(conf) = &self.config.conf else {
            return Flush::None;
        };
        if !matches!(conf.flush, Flush::Incremental | Flush::IncrementalAsync) {
            return Flush::None;
        }
        // Counting ends where it is decided: a batch may have thousands of records.
        let left = conf.freq.saturating_sub(self.unflushed);
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let records = lines.lines_with_terminator().take(most).count();
        self.unflushed += u32::try_from(records).unwrap_or(left);
        if self.unflushed < conf.freq {
            return Flush::None;
        }
        self.unflushed = 0;
        conf.flush
    }

    /// Closes the log and flushes it as the policy requires.
    pub(super) fn close(&mut self) -> Option<Log> {
        let mut log = self.log.take()?;
        log.free_reserved();
        if let Some(indexer) = &mut self.indexer {
            indexer.closed();
        }
        (self.unflushed, self.cached) = (0, 0);
        let is_synchronous = self
            .config
            .conf
            .as_ref()
            .is_some_and(|conf| conf.flush == Flush::Incremental);
        let flushed = if is_synchronous {
            log.sync().map(|()| true)
        } else {
            log.try_clone().map(|file| {
                self.flusher.flush_closed(file);
                false
            })
        };
        self.flushed(flushed);
        Some(log)
    }
}

/// Length and number of whole events in a part of a batch. The last event counts as incomplete because more records
/// may follow.
pub(super) fn whole_events(lines: &[u8]) -> (usize, u64) {
    let (mut at, mut start) = (0, 0);
    let (mut events, mut stamp) = (0, None);
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        let of_line = line.find(b"audit(").and_then(|at| {
            let rest = line.get(at..).unwrap_or_default();
            // A truncated stamp may be that of the previous line.
            rest.get(..rest.find_byte(b')')?)
        });
        if of_line.is_some() && of_line != stamp {
            if stamp.is_some() {
                events += 1;
            }
            (start, stamp) = (at, of_line);
        }
        at += line.len();
    }
    (start, events)
}
