//! The daemon's log: lines as `auditd.conf` wants them, rotated, flushed, and looked after.
//!
//! All of it runs in the log thread, batch by batch. What an administrator has chosen for a disk that
//! fills, is full or fails is done by [`System`]; what could not be written is counted exactly, and a
//! record says so as soon as one can be written again.

mod daemon_records;
mod disk_actions;
mod flush;
mod log_config;
pub(crate) mod name_cache;
mod reconfigure;
pub(crate) mod rotate;
mod sink_losses;
mod state_report;
mod system;
mod write;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use audit::conf::auditd::{LogFormat, Settings};
use audit::record::{MAX_LINE_BYTES, enrich};
use bstr::ByteSlice as _;
use engine::FileRange;

pub(crate) use daemon_records::{DaemonRecord, SignalSender};
pub(crate) use log_config::{LockedLogSettings, LogConfig};
pub(crate) use system::{LocalSystem, System};

use super::log_file::Log;
use super::log_file::directory::Directory;
use daemon_records::DaemonRecords;
use disk_actions::{Alarms, Fault};
use flush::Flusher;
use name_cache::NameCache;
use rotate::OldLogPolicy;
use sink_losses::SinkLossReporter;
use system::RunId;

use crate::helper::Launcher;
use crate::sinks::plugins::{Dispatcher, Lines};

/// A log that is kept.
pub(crate) struct AuditLog {
    keep: LogConfig,
    /// What becomes of old logs when somebody asks.
    old_logs: OldLogPolicy,
    directory: Directory,
    name: PathBuf,
    /// Closed while nothing is to be written.
    log: Option<Log>,
    /// # Units
    /// Bytes.
    size: u64,
    /// Nothing is written until somebody says that it may be.
    suspended: bool,
    /// The program of `max_log_file_action` that runs: writing goes on when it has ended.
    until_ended: Option<RunId>,
    alarms: Alarms,
    machine: Box<dyn System>,
    names: NameCache,
    own: DaemonRecords,
    flusher: Flusher,
    dispatcher: Dispatcher,
    /// Records since the last flush that `flush` and `freq` ask for.
    unflushed: u32,
    /// # Units
    /// Bytes since the last flush that the page cache asks for.
    cached: u64,
    /// Events lost since a record said so, and why.
    lost: (u64, String),
    left_out: SinkLossReporter,
    /// Lines under way.
    lines: Vec<u8>,
}

/// Who must know of a batch when it is about to be written, and when it is: at any instruction the daemon
/// may be killed.
pub(crate) trait Receipt {
    /// It is about to be written there.
    fn begins(&mut self, span: FileRange);
    /// It is written.
    fn ends(&mut self);
}

/// Nobody must know.
impl Receipt for () {
    fn begins(&mut self, _span: FileRange) {}
    fn ends(&mut self) {}
}

impl Receipt for Option<engine::CommitToken> {
    fn begins(&mut self, span: FileRange) {
        if let Some(receipt) = self {
            receipt.begin(span);
        }
    }

    fn ends(&mut self) {
        if let Some(receipt) = self {
            receipt.end();
        }
    }
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AppendResult {
    /// Events in the log.
    pub(crate) written: u64,
    /// Events that could not be written.
    pub(crate) lost: u64,
    /// Why.
    pub(crate) reason: String,
}

impl AuditLog {
    /// Opens the log, removes old ones that are too many unless all are kept, and starts the plugins.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub(crate) fn open(
        keep: LogConfig,
        old_logs: OldLogPolicy,
        machine: Box<dyn System>,
        launcher: Option<Launcher>,
    ) -> anyhow::Result<Self> {
        let name = keep.path.file_name().map(PathBuf::from).with_context(|| {
            format!("the log must be a file, `{}` is none", keep.path.display())
        })?;
        let mut journal = Self {
            directory: Directory::of(&keep.path)?,
            name,
            log: None,
            size: 0,
            suspended: false,
            until_ended: None,
            alarms: Alarms::default(),
            machine,
            names: NameCache::new(),
            own: DaemonRecords::new(),
            flusher: Flusher::start()?,
            dispatcher: Dispatcher::default(),
            unflushed: 0,
            cached: 0,
            lost: (0, String::new()),
            left_out: SinkLossReporter::default(),
            lines: Vec::new(),
            keep,
            old_logs,
        };
        journal.reopen()?;
        journal.remove_excess();
        journal.permit_old_logs();
        if let Some(conf) = &journal.keep.conf {
            journal.dispatcher = Dispatcher::start(conf, launcher);
            let format = match journal.keep.format() {
                LogFormat::Raw => "raw",
                LogFormat::Enriched => "enriched",
            };
            journal.note(&DaemonRecord::Start(format));
        }
        Ok(journal)
    }

    /// How nice the log thread is to be: as `auditd` is by default, where nothing else is configured.
    pub(crate) fn nice(&self) -> i32 {
        let boost = self.keep.conf.as_ref().map_or_else(
            || Settings::default().priority_boost,
            |conf| conf.priority_boost,
        );
        i32::try_from(boost).map_or(i32::MIN, |boost| -boost)
    }

    /// When [`AuditLog::look`] is due, if it is.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        const PERIOD: Duration = Duration::from_millis(500);
        let waits = self.machine.waits() || self.flusher.is_busy();
        let others = waits.then_some(PERIOD);
        others.into_iter().chain(self.next_telling()).min()
    }

    /// Looks after programs that were run, flushes, and what others have lost.
    pub(crate) fn look(&mut self) {
        self.tell_left_out();
        let flushed = self.flusher.outcome();
        self.flushed(flushed);
        let ended = self.machine.ended();
        if self.until_ended.is_some_and(|run| ended.contains(&run)) {
            self.resume();
        }
    }

    /// Appends a batch of whole events.
    pub(crate) fn append(
        &mut self,
        batch: &[u8],
        events: u64,
        receipt: &mut dyn Receipt,
    ) -> AppendResult {
        self.names.refresh();
        self.tell_left_out();
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        let text = if self.keep.is_plain() {
            batch
        } else {
            for line in batch.lines() {
                self.line(line, &mut lines);
            }
            &lines
        };
        self.dispatch(text, events);
        let appended = if !self.keep.writes() {
            AppendResult {
                written: events,
                ..AppendResult::default()
            }
        } else if self.suspended {
            self.lose(events, "the log is suspended")
        } else {
            self.tell_losses();
            self.write(text, events, receipt)
        };
        self.lines = lines;
        appended
    }

    /// Gives lines to the plugins, and does what is due when one of them is too slow.
    fn dispatch(&mut self, text: &[u8], events: u64) {
        if self.dispatcher.is_idle() {
            return;
        }
        let lines = if self.keep.is_plain() {
            Lines::Raw
        } else {
            Lines::Formatted
        };
        let full = self.dispatcher.give(text, lines, events);
        if !full.is_empty() {
            self.overflow(&full.join(", "));
        }
    }

    /// Appends a record of the daemon's own.
    pub(crate) fn note(&mut self, about: &DaemonRecord<'_>) {
        if self.keep.conf.is_none() {
            return;
        }
        let lines = self.own_lines(about);
        self.dispatch(&lines, 0);
        if self.keep.writes() && !self.suspended {
            self.write(&lines, 0, &mut ());
        }
    }

    fn own_lines(&mut self, about: &DaemonRecord<'_>) -> Vec<u8> {
        let record = self.own.record(about);
        let mut lines = Vec::new();
        self.line(&record, &mut lines);
        lines
    }

    /// Rotates now, as USR1 asks.
    pub(crate) fn rotate_now(&mut self, asker: SignalSender) {
        // Who asks is told each time.
        *self.alarms.of(Fault::Rotate) = false;
        self.rotate(self.old_logs);
        self.note(&DaemonRecord::Rotated(asker));
    }

    /// Goes on writing, as USR2 asks.
    pub(crate) fn resume_now(&mut self, asker: SignalSender) {
        self.resume();
        self.dispatcher.resume();
        self.note(&DaemonRecord::Resumed(asker));
    }

    /// Writes what is left to say, and waits until all is on the disk.
    pub(crate) fn end(&mut self, asker: SignalSender) -> AppendResult {
        self.tell_losses();
        self.wait_for_json();
        self.tell_all_left_out();
        self.note(&DaemonRecord::End(asker));
        self.dispatcher.end();
        self.tell_all_left_out();
        let earlier = self.flusher.end();
        let synced = self.log.as_ref().map_or(Ok(()), Log::sync);
        let reason = match earlier.and(synced) {
            Err(error) => error.to_string(),
            Ok(()) if *self.alarms.of(Fault::Flush) => "the disk has failed the log".to_owned(),
            Ok(()) => String::new(),
        };
        AppendResult {
            reason,
            ..AppendResult::default()
        }
    }

    /// Appends one line with all that it is to have, and no more than readers take as one line.
    ///
    /// # Source
    /// `replace_event_msg` in `src/auditd-event.c`, audit-userspace 3.0.9: the newline is not counted.
    fn line(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let end = out.len() + MAX_LINE_BYTES;
        if let Some(node) = &self.keep.node {
            out.extend_from_slice(b"node=");
            out.extend_from_slice(node);
            out.push(b' ');
        }
        match self.keep.format() {
            LogFormat::Raw => out.extend_from_slice(line),
            LogFormat::Enriched => {
                let room = end.saturating_sub(out.len() + line.len());
                enrich::line(line, room, &mut self.names, out);
            }
        }
        out.truncate(end);
        out.push(b'\n');
    }

    fn lose(&mut self, events: u64, reason: &str) -> AppendResult {
        self.lost.0 += events;
        reason.clone_into(&mut self.lost.1);
        AppendResult {
            written: 0,
            lost: events,
            reason: reason.to_owned(),
        }
    }

    /// Says in the log what is missing from it.
    fn tell_losses(&mut self) {
        if self.lost.0 == 0 || self.keep.conf.is_none() || self.suspended {
            return;
        }
        let (events, reason) = self.lost.clone();
        if self
            .write_about(&DaemonRecord::Lost(events, &reason))
            .is_some()
        {
            self.lost = (0, String::new());
        }
    }

    /// Writes a record about losses; gives its line when it is in the log.
    fn write_about(&mut self, about: &DaemonRecord<'_>) -> Option<Vec<u8>> {
        let lines = self.own_lines(about);
        // The record itself is no event.
        let lost = self.lost.clone();
        let written = self.write(&lines, 1, &mut ()).written;
        self.lost = lost;
        (written != 0).then_some(lines)
    }
}

#[cfg(test)]
mod tests;
