//! Batches on their way to the file and to the disk: what of them is in it when a write ends early, and what
//! `flush` and `freq` promise.

use std::io;

use audit::conf::auditd::{Action, Flush, MaxLogFileAction};
use bstr::ByteSlice as _;
use engine::FileRange;

use super::disk_actions::Fault;
use super::{AppendResult, AuditLog, WriteObserver, flush};
use crate::sinks::log_file::{AppendError, Log};

/// Lines that were not written whole.
struct WriteFailure {
    /// Where the first of them begins that is not in the log.
    at: usize,
    /// Whole events before it.
    whole: u64,
    /// Why.
    error: io::Error,
}

impl WriteFailure {
    const fn nothing(error: io::Error) -> Self {
        Self {
            at: 0,
            whole: 0,
            error,
        }
    }
}

impl AuditLog {
    /// Writes lines, and does what is due then. Where room is made by rotating, what had none is written to the
    /// next log.
    pub(super) fn write(
        &mut self,
        lines: &[u8],
        events: u64,
        observer: &mut dyn WriteObserver,
    ) -> AppendResult {
        let (mut left, mut written) = (lines, 0);
        let mut rotations = self.rotations_for_room();
        loop {
            let Err(WriteFailure { at, whole, error }) = self.write_once(left, observer) else {
                return AppendResult {
                    written: events,
                    ..AppendResult::default()
                };
            };
            written = events.min(written + whole);
            left = left.get(at..).unwrap_or_default();
            let is_full = error.kind() == io::ErrorKind::StorageFull;
            if !is_full || self.log.is_none() || rotations == 0 {
                let mut appended = self.count_lost(events - written, &error.to_string());
                appended.written = written;
                return appended;
            }
            rotations -= 1;
            self.flusher.wait();
        }
    }

    /// How many rotations may make room on a full disk: as many as there may be logs.
    fn rotations_for_room(&self) -> u32 {
        let conf = self.config.conf.as_ref();
        let conf = conf.filter(|conf| {
            conf.disk_full_action == Action::Rotate
                && conf.max_log_file_action != MaxLogFileAction::KeepLogs
                && conf.num_logs > 1
        });
        conf.map_or(0, |conf| conf.num_logs)
    }

    /// Writes lines to the log that is open.
    fn write_once(
        &mut self,
        lines: &[u8],
        observer: &mut dyn WriteObserver,
    ) -> Result<(), WriteFailure> {
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
        observer.write_begins(span);
        match log.append(lines) {
            Ok(()) => {
                // Before anything else is done to the log: it may get another name now.
                observer.write_ends();
                *self.alarms.of(Fault::Write) = false;
                self.size += u64::try_from(lines.len()).unwrap_or_default();
                self.flush(lines);
                self.check_size();
                self.check_free_space();
                Ok(())
            }
            Err(partly) => Err(self.written_partly(lines, span, partly)),
        }
    }

    /// Takes back what is no whole event, and does what is due.
    fn written_partly(
        &mut self,
        lines: &[u8],
        span: FileRange,
        partly: AppendError,
    ) -> WriteFailure {
        let AppendError { written, error } = partly;
        let (at, whole) = whole_events(lines.get(..written).unwrap_or(lines));
        let kept = u64::try_from(at).unwrap_or_default();
        if let Some(log) = &mut self.log
            && let Err(error) = log.truncate(span.offset + kept)
        {
            self.alarm(&format!("the log has a torn end: {error}"));
        }
        self.size += kept;
        self.disk_failed(Fault::Write, &error);
        WriteFailure { at, whole, error }
    }

    /// Brings to the disk what the policy promises, and what the page cache is not to hold.
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

    /// Does what is due after flushes: whether one has ended well, or what one has answered.
    pub(super) fn flushed(&mut self, flushed: io::Result<bool>) {
        match flushed {
            Ok(true) => *self.alarms.of(Fault::Flush) = false,
            Ok(false) => {}
            Err(error) => self.disk_failed(Fault::Flush, &error),
        }
    }

    /// How the policy wants these lines and those before them flushed now.
    fn due(&mut self, lines: &[u8]) -> Flush {
        let Some(conf) = &self.config.conf else {
            return Flush::None;
        };
        if !matches!(conf.flush, Flush::Incremental | Flush::IncrementalAsync) {
            return Flush::None;
        }
        let records = lines.iter().filter(|&&byte| byte == b'\n').count();
        self.unflushed = self
            .unflushed
            .saturating_add(u32::try_from(records).unwrap_or(u32::MAX));
        if self.unflushed < conf.freq {
            return Flush::None;
        }
        self.unflushed = 0;
        conf.flush
    }

    /// Closes the log; what is not on the disk yet is brought there, as the policy says.
    pub(super) fn close(&mut self) -> Option<Log> {
        let log = self.log.take()?;
        (self.unflushed, self.cached) = (0, 0);
        let has_running = self
            .config
            .conf
            .as_ref()
            .is_some_and(|conf| conf.flush == Flush::Incremental);
        let flushed = if has_running {
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

/// Bytes of the events that are whole in a part of a batch, and how many those are. The last event in
/// it may go on behind it, so that it counts as broken.
pub(super) fn whole_events(lines: &[u8]) -> (usize, u64) {
    let (mut at, mut start) = (0, 0);
    let (mut events, mut stamp) = (0, None);
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        let of_line = line.find(b"audit(").and_then(|at| {
            let rest = line.get(at..).unwrap_or_default();
            // A stamp that is torn may be that of the line before.
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
