//! The audit log: lines in the format of `auditd.conf`, rotation, flushing and disk actions.
//!
//! All of it runs in the log thread, batch by batch. Actions on low space or failures go through [`System`]. Events
//! that cannot be written are counted exactly, and a record reports them as soon as writing works again.

mod archiver;
mod archives;
mod daemon_records;
mod disk_actions;
mod flush;
mod free_space;
mod indexer;
mod log_config;
mod log_options;
mod losses;
mod make_room;
pub(crate) mod name_cache;
mod put_off;
mod reconfigure;
mod reopen;
pub(crate) mod rotate;
mod sink_loss_reporter;
mod state_report;
mod suspension;
mod system;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use audit::conf::auditd::{LogFormat, Settings};
use audit::record::{MAX_LINE_BYTES, enrich};
use bstr::ByteSlice as _;
use engine::FileRange;

pub(crate) use daemon_records::{DaemonRecord, SignalSender};
pub(crate) use log_config::{LockedLogSettings, LogConfig};
pub(crate) use log_options::LogOptions;
use system::{LocalSystem, System};

use super::log_file::Log;
use super::log_file::log_directory::LogDirectory;
use super::log_file::log_lock::{LogLock, UnreportedLosses};
use archiver::{Archiver, Machine};
use daemon_records::DaemonRecords;
use disk_actions::{Alarms, Fault};
use flush::Flusher;
use indexer::Indexer;
use name_cache::NameCache;
use put_off::PutOff;
use rotate::OldLogPolicy;
use sink_loss_reporter::SinkLossReporter;
pub(crate) use suspension::Suspension;
use system::RunId;

use crate::helper::HelperClient;
use crate::messages::warn;
use crate::sinks::plugins::{Dispatcher, LineFormat};

const MEBIBYTE: u64 = 1 << 20;

/// An open log with its settings.
pub(crate) struct AuditLog {
    config: LogConfig,
    /// Retention of old logs when a signal rotates the log.
    old_log_policy: OldLogPolicy,
    directory: LogDirectory,
    name: PathBuf,
    /// `None` if nothing is written.
    lock: Option<LogLock>,
    /// `None` while logging is suspended or has failed.
    log: Option<Log>,
    /// # Units
    /// Bytes.
    size: u64,
    /// Set while nothing is written until somebody resumes.
    suspension: Option<Suspension>,
    /// Set while writes fail and no action has suspended the log.
    failure: Option<Suspension>,
    /// Set while syncs fail.
    sync_failure: Option<Suspension>,
    /// Running program of `max_log_file_action`: logging resumes when it ends.
    until_ended: Option<RunId>,
    alarms: Alarms,
    system: Box<dyn System>,
    names: NameCache,
    daemon_records: DaemonRecords,
    flusher: Flusher,
    options: LogOptions,
    put_off: Arc<PutOff>,
    /// `None` if the log is not indexed.
    indexer: Option<Indexer>,
    /// `None` if old logs are not compressed.
    archiver: Option<Archiver>,
    /// Whether batches wait to be written.
    is_busy: Box<dyn Fn() -> bool + Send>,
    /// Old logs that have an archive too: 0 or 1.
    archived_twice: u32,
    /// Number of the last archive of this daemon; none is used twice.
    last_archive: u32,
    dispatcher: Dispatcher,
    /// Records since the last flush of `flush` and `freq`.
    unflushed: u32,
    /// # Units
    /// Bytes since the last flush for the page cache.
    cached: u64,
    /// Lost events that the log does not report yet.
    lost: UnreportedLosses,
    sink_losses: SinkLossReporter,
    /// Buffer of formatted lines.
    lines: Vec<u8>,
}

/// Notified before and after each write to the file, because the daemon may be killed at any instruction.
pub(crate) trait WriteObserver {
    /// A write to this range of the file begins.
    fn write_begins(&mut self, span: FileRange);
    /// The write is complete.
    fn write_ends(&mut self);
    /// Nothing of the write is in the file; another may begin.
    fn write_fails(&mut self);
}

/// No observer.
impl WriteObserver for () {
    fn write_begins(&mut self, _span: FileRange) {}
    fn write_ends(&mut self) {}
    fn write_fails(&mut self) {}
}

impl WriteObserver for Option<engine::CommitToken> {
    fn write_begins(&mut self, span: FileRange) {
        if let Some(observer) = self {
            observer.begin(span);
        }
    }

    fn write_ends(&mut self) {
        if let Some(observer) = self {
            observer.end();
        }
    }

    fn write_fails(&mut self) {
        if let Some(observer) = self {
            observer.cancel();
        }
    }
}

/// Outcome of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AppendResult {
    /// Events written to the log.
    pub(crate) written: u64,
    /// Events that could not be written.
    pub(crate) lost: u64,
    /// The reason.
    pub(crate) reason: String,
}

impl AuditLog {
    /// Opens the log, removes excess old logs unless all are kept, and starts the plugins.
    ///
    /// # Errors
    /// As [`Log::open`].
    fn open(
        config: LogConfig,
        old_log_policy: OldLogPolicy,
        system: Box<dyn System>,
        helper: Option<HelperClient>,
    ) -> anyhow::Result<Self> {
        let name = config
            .path
            .file_name()
            .map(PathBuf::from)
            .with_context(|| {
                format!("the log path `{}` has no file name", config.path.display())
            })?;
        let mut audit_log = Self {
            directory: LogDirectory::of(&config.path)?,
            name,
            lock: None,
            log: None,
            size: 0,
            suspension: None,
            failure: None,
            sync_failure: None,
            until_ended: None,
            alarms: Alarms::default(),
            system,
            names: NameCache::new(),
            daemon_records: DaemonRecords::new(),
            flusher: Flusher::start()?,
            options: LogOptions::default(),
            put_off: Arc::default(),
            indexer: None,
            archiver: None,
            is_busy: Box::new(|| false),
            archived_twice: 0,
            last_archive: 0,
            dispatcher: Dispatcher::default(),
            unflushed: 0,
            cached: 0,
            lost: UnreportedLosses::default(),
            sink_losses: SinkLossReporter::default(),
            lines: Vec::new(),
            config,
            old_log_policy,
        };
        let lock = audit_log.config.lock()?;
        if let Some(lock) = &lock {
            audit_log.lost = lock.unreported().clone();
        } else if audit_log.config.writes() {
            let path = audit_log.config.path.display();
            warn(&format!(
                "log `{path}` is not locked against another daemon before there is room: no space left"
            ));
        }
        audit_log.lock = lock;
        audit_log.reopen()?;
        if audit_log.config.writes() {
            // A file that the daemon did not make stays; it is reported when it is in the way.
            let _foreign = archiver::remove_unfinished(&audit_log.directory, &audit_log.name);
            audit_log.archived_twice = rotate::archived_twice(&audit_log.config.path);
        }
        audit_log.remove_excess();
        audit_log.set_group_of_old_logs();
        if let Some(conf) = &audit_log.config.conf {
            audit_log.dispatcher = Dispatcher::start(conf, helper);
            let format = match audit_log.config.format() {
                LogFormat::Raw => "raw",
                LogFormat::Enriched => "enriched",
            };
            audit_log.write_daemon_record(&DaemonRecord::Start(format));
        }
        audit_log.report_losses();
        Ok(audit_log)
    }

    /// Opens the log on this machine.
    ///
    /// # Errors
    /// As [`AuditLog::open`], or a thread cannot be started.
    pub(crate) fn start(
        config: LogConfig,
        old_log_policy: OldLogPolicy,
        helper: Option<HelperClient>,
        options: LogOptions,
    ) -> anyhow::Result<Self> {
        let system = Box::new(LocalSystem::new(helper.clone()));
        Self::open(config, old_log_policy, system, helper)?.with_options(options, Machine::local())
    }

    /// Sets what tells whether batches wait to be written: then the log is indexed later.
    pub(crate) fn set_busy(&mut self, is_busy: impl Fn() -> bool + Send + 'static) {
        self.is_busy = Box::new(is_busy);
    }

    /// Puts off indexing and compressing, which would cost events.
    pub(crate) fn put_off_work(&self) {
        self.put_off.begin();
    }

    /// Nice value of the log thread: auditd's default unless configured.
    pub(crate) fn nice(&self) -> i32 {
        let priority_boost = self.config.conf.as_ref().map_or_else(
            || Settings::default().priority_boost,
            |conf| conf.priority_boost,
        );
        i32::try_from(priority_boost).map_or(i32::MIN, |priority_boost| -priority_boost)
    }

    /// Time until [`AuditLog::poll`] is due.
    pub(crate) fn next_poll(&self) -> Option<Duration> {
        const PERIOD: Duration = Duration::from_millis(500);
        let is_busy = self.system.has_running_program() || self.flusher.is_busy();
        let poll = is_busy.then_some(PERIOD);
        let index = self.indexer.as_ref().and_then(Indexer::next_step);
        let others = self.next_report().into_iter().chain(index);
        poll.into_iter().chain(others).min()
    }

    /// Polls started programs, flushes, losses of other sinks, and text without index.
    pub(crate) fn poll(&mut self) {
        if let Some(indexer) = &mut self.indexer {
            indexer.read_back(&self.is_busy);
        }
        self.report_sink_losses();
        let flushed = self.flusher.outcome();
        self.flushed(flushed);
        let ended = self.system.take_ended_programs();
        if self.until_ended.is_some_and(|run| ended.contains(&run)) {
            self.resume();
        }
    }

    /// Appends a batch of whole events.
    pub(crate) fn append(
        &mut self,
        batch: &[u8],
        events: u64,
        observer: &mut dyn WriteObserver,
    ) -> AppendResult {
        self.names.refresh();
        self.report_sink_losses();
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        let text = if self.config.is_plain() {
            batch
        } else {
            for line in batch.lines() {
                self.line(line, &mut lines);
            }
            &lines
        };
        self.dispatch(text, events);
        let appended = if !self.config.writes() {
            AppendResult {
                written: events,
                ..AppendResult::default()
            }
        } else if self.is_suspended() {
            self.count_lost(events, "the log is suspended")
        } else {
            self.report_losses();
            self.write(text, events, observer)
        };
        self.lines = lines;
        appended
    }

    /// Dispatches lines to the plugins, and applies `overflow_action` if a queue is full.
    fn dispatch(&mut self, text: &[u8], events: u64) {
        if self.dispatcher.is_idle() {
            return;
        }
        let lines = if self.config.is_plain() {
            LineFormat::Raw
        } else {
            LineFormat::Formatted
        };
        let full = self.dispatcher.push(text, lines, events);
        if !full.is_empty() {
            self.overflow(&full.join(", "));
        }
    }

    /// Appends a record of the daemon itself.
    pub(crate) fn write_daemon_record(&mut self, about: &DaemonRecord<'_>) {
        if self.config.conf.is_none() {
            return;
        }
        let lines = self.format_daemon_record(about);
        self.dispatch(&lines, 0);
        if self.config.writes() && !self.is_suspended() {
            self.write(&lines, 0, &mut ());
        }
    }

    fn format_daemon_record(&mut self, about: &DaemonRecord<'_>) -> Vec<u8> {
        let record = self.daemon_records.record(about);
        let mut lines = Vec::new();
        self.line(&record, &mut lines);
        lines
    }

    /// Rotates on SIGUSR1.
    pub(crate) fn rotate_on_signal(&mut self, sender: SignalSender) {
        // An explicit request is answered each time.
        *self.alarms.of(Fault::Rotate) = false;
        self.rotate(self.old_log_policy);
        self.write_daemon_record(&DaemonRecord::Rotated(sender));
    }

    /// Resumes on SIGUSR2.
    pub(crate) fn resume_on_signal(&mut self, sender: SignalSender) {
        self.resume();
        // A log that is suspended again is not resumed.
        if !self.is_suspended() {
            self.check_size();
            self.check_free_space();
        }
        self.dispatcher.resume();
        self.write_daemon_record(&DaemonRecord::Resumed(sender));
        self.report_losses();
    }

    /// Writes the last records, and waits until everything is on disk.
    pub(crate) fn end(&mut self, sender: SignalSender) -> AppendResult {
        self.report_losses();
        self.wait_for_json();
        self.report_all_sink_losses();
        self.write_daemon_record(&DaemonRecord::End(sender));
        self.dispatcher.end();
        self.report_all_sink_losses();
        if let Some(indexer) = &mut self.indexer {
            indexer.closed();
        }
        if let Some(archiver) = &mut self.archiver {
            archiver.end();
        }
        let earlier = self.flusher.end();
        if let Some(log) = &mut self.log {
            log.free_reserved();
        }
        let synced = self.log.as_ref().map_or(Ok(()), Log::sync);
        let reason = match earlier.and(synced) {
            Err(error) => error.to_string(),
            Ok(()) if *self.alarms.of(Fault::Flush) => "a flush of the log failed".to_owned(),
            Ok(()) => String::new(),
        };
        AppendResult {
            reason,
            ..AppendResult::default()
        }
    }

    /// Appends one line with its node and tail, limited to the length that readers accept.
    ///
    /// # Source
    /// `replace_event_msg` in `src/auditd-event.c`, audit-userspace 3.0.9: the newline is not counted.
    fn line(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let end = out.len() + MAX_LINE_BYTES;
        if let Some(node) = &self.config.node {
            out.extend_from_slice(b"node=");
            out.extend_from_slice(node);
            out.push(b' ');
        }
        match self.config.format() {
            LogFormat::Raw => out.extend_from_slice(line),
            LogFormat::Enriched => {
                let free_space = end.saturating_sub(out.len() + line.len());
                enrich::line(line, free_space, &mut self.names, out);
            }
        }
        out.truncate(end);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests;
