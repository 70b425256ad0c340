//! The log thread `tlg-log`: writes batches, and executes commands of the main thread between them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use crossbeam_channel::{Receiver, SendTimeoutError, Sender, after, bounded, never, select};

use super::batch::{Batch, EventOrigin};
use super::rule_stats::PlanRule;
use super::summary::UnwrittenEvents;
use crate::pipeline::ring_commands::BUSY;
use crate::sinks::audit_log::{AppendResult, AuditLog, LogConfig, SignalSender, Suspension};
use crate::sinks::plugins::PluginLosses;
use crate::sinks::queue::SinkQueue;

/// Longest wait for an answer of the log thread, or for space in its command queue.
pub(crate) const LOG_THREAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Commands that may wait. The sender of another one waits, at most [`LOG_THREAD_TIMEOUT`] for commands that may be
/// refused.
const QUEUE_LENGTH: usize = 4;

/// Batches that wait when the log thread has no time to index the log.
const BUSY_BATCHES: usize = 4;

/// A command to the log thread.
#[derive(Debug)]
pub(crate) enum LogCommand {
    /// Rotate the log.
    Rotate(SignalSender),
    /// Resume logging.
    Resume(SignalSender),
    /// Apply new settings, `None` if they are invalid, and answer whether they are active.
    Configure(Option<Box<LogConfig>>, SignalSender, Sender<bool>),
    /// Keep old logs, and lock the settings; answers the settings.
    Lock(Sender<Box<LogConfig>>),
    /// Undo `Lock`.
    Unlock,
    /// Answer the state for `auditd.state`.
    Report(Sender<String>),
    /// The daemon ends, for this sender.
    End(SignalSender),
}

/// Sends commands, which are executed in order.
#[derive(Clone, Debug)]
pub(crate) struct LogCommandSender(Sender<LogCommand>);

/// Counters of the log thread, for other threads.
#[derive(Debug, Default)]
pub(crate) struct LogCounters {
    /// Events in the log.
    pub(crate) events: AtomicU64,
    /// Events that could not be written.
    pub(crate) unwritten: AtomicU64,
    /// Kernel records in the log.
    pub(crate) messages: AtomicU64,
    /// Kernel records that could not be written.
    pub(crate) unwritten_messages: AtomicU64,
    /// Events lost by plugins.
    pub(crate) plugins: Arc<PluginLosses>,
    /// Unwritten events per rule, until `tlg-ring` collects them. Not locked while all writes succeed.
    pub(crate) unwritten_rules: Mutex<BTreeMap<PlanRule, u64>>,
    /// Why the log is suspended. Locked by the log thread only while it is, and when that ends.
    pub(crate) suspension: Mutex<Option<Suspension>>,
}

/// Creates the command channel.
pub(crate) fn log_command_channel() -> (LogCommandSender, Receiver<LogCommand>) {
    let (to, from) = bounded(QUEUE_LENGTH);
    (LogCommandSender(to), from)
}

impl LogCommandSender {
    /// Locks the log and returns its settings.
    ///
    /// # Errors
    /// The log thread is too busy. The log is not locked.
    pub(crate) fn lock(&self) -> anyhow::Result<Box<LogConfig>> {
        let (to, from) = bounded(1);
        self.send(LogCommand::Lock(to));
        let log = from.recv_timeout(LOG_THREAD_TIMEOUT);
        if log.is_err() {
            self.unlock();
        }
        log.context(BUSY)
    }

    /// Undoes [`LogCommandSender::lock`].
    pub(crate) fn unlock(&self) {
        self.send(LogCommand::Unlock);
    }

    /// Sends a command, unless the queue stays full. Returns false only in that case.
    pub(crate) fn send_within(&self, command: LogCommand, patience: Duration) -> bool {
        let refused = self.0.send_timeout(command, patience);
        !matches!(refused, Err(SendTimeoutError::Timeout(_)))
    }

    pub(crate) fn send(&self, command: LogCommand) {
        // A log thread that has ended needs no commands.
        let _ended = self.0.send(command);
    }
}

/// The log thread.
pub(super) struct LogThread {
    pub(super) log: AuditLog,
    pub(super) json: Option<Arc<SinkQueue>>,
    pub(super) counters: Arc<LogCounters>,
    pub(super) commands: Receiver<LogCommand>,
    pub(super) ended_by: SignalSender,
    pub(super) unwritten: UnwrittenEvents,
    /// Whether [`LogCounters::suspension`] is set.
    pub(super) shows_suspension: bool,
}

impl LogThread {
    pub(super) fn run(mut self, full: &Receiver<Batch>, empty: &Sender<Batch>) -> UnwrittenEvents {
        engine::set_nice(self.log.nice());
        self.show_suspension();
        let requests = self.log.archiver_requests();
        let waiting = full.clone();
        self.log.set_busy(move || waiting.len() >= BUSY_BATCHES);
        loop {
            let tick = self.log.next_poll().map_or_else(never, after);
            select! {
                recv(full) -> batch => match batch {
                    Ok(batch) => self.write(batch, empty),
                    Err(_ended) => break,
                },
                recv(self.commands) -> command => match command {
                    Ok(command) => self.handle(command),
                    // The main thread has ended; events may still arrive.
                    Err(_gone) => self.commands = never(),
                },
                recv(requests) -> request => if let Ok(request) = request {
                    self.log.answer_archiver(&request);
                },
                recv(tick) -> _now => self.log.poll(),
            }
            self.show_suspension();
        }
        for command in self.commands.try_iter() {
            if let LogCommand::End(sender) = command {
                self.ended_by = sender;
            }
        }
        let ended = self.log.end(self.ended_by);
        self.count(&ended, &[]);
        self.unwritten
    }

    fn write(&mut self, mut batch: Batch, empty: &Sender<Batch>) {
        let events = u64::try_from(batch.origins.len()).unwrap_or(u64::MAX);
        let mut commit_token = batch.commit_token.take();
        if batch.ring_is_filling {
            self.log.put_off_work();
        }
        let appended = if batch.text.is_empty() {
            AppendResult::default()
        } else {
            self.log.append(&batch.text, events, &mut commit_token)
        };
        // Events that could not be written are lost and counted.
        if let Some(commit_token) = &mut commit_token {
            commit_token.end();
        }
        self.count(&appended, &batch.origins);
        self.show_suspension();
        if let Some(on_written) = batch.on_written.take() {
            let written = match appended.lost {
                0 => Ok(()),
                _ => Err(appended.reason),
            };
            // The waiter may have gone away.
            let _gone = on_written.send(written);
        }
        batch.clear();
        // The ring thread allocates a batch if none has come back.
        let _full = empty.try_send(batch);
    }

    /// Counts written and lost events by origin: the last ones are the lost ones.
    fn count(&mut self, appended: &AppendResult, origins: &[EventOrigin]) {
        let written = usize::try_from(appended.written).unwrap_or(usize::MAX);
        let (written, lost) = origins.split_at(written.min(origins.len()));
        let counters = &*self.counters;
        for (origins, events, messages) in [
            (written, &counters.events, &counters.messages),
            (lost, &counters.unwritten, &counters.unwritten_messages),
        ] {
            let of_messages = |origin: &&EventOrigin| **origin == EventOrigin::Message;
            let count = origins.iter().filter(of_messages).count();
            let add = |to: &AtomicU64, count: usize| {
                to.fetch_add(u64::try_from(count).unwrap_or_default(), Ordering::Relaxed);
            };
            add(messages, count);
            add(events, origins.len() - count);
        }
        if !lost.is_empty()
            && let Ok(mut rules) = counters.unwritten_rules.lock()
        {
            for origin in lost {
                if let EventOrigin::Ring(rule) = origin {
                    *rules.entry(*rule).or_default() += 1;
                }
            }
        }
        self.unwritten.events = counters.unwritten.load(Ordering::Relaxed);
        if !appended.reason.is_empty() {
            self.unwritten.reason.clone_from(&appended.reason);
        }
    }

    /// Shows others whether the log is suspended, if it is or was.
    fn show_suspension(&mut self) {
        let suspension = self.log.suspension();
        let is_suspended = suspension.is_some();
        if (is_suspended || self.shows_suspension)
            && let Ok(mut shown) = self.counters.suspension.lock()
        {
            *shown = suspension.cloned();
        }
        self.shows_suspension = is_suspended;
    }

    fn handle(&mut self, command: LogCommand) {
        match command {
            LogCommand::Rotate(sender) => {
                self.log.rotate_on_signal(sender);
                if let Some(json) = &self.json {
                    json.rotate(self.log.old_log_policy());
                }
            }
            LogCommand::Resume(sender) => self.log.resume_on_signal(sender),
            // The requester may have timed out.
            LogCommand::Configure(keep, sender, to) => {
                let changed = self.log.configure(keep.map(|keep| *keep), sender);
                engine::set_nice(self.log.nice());
                self.show_suspension();
                let _impatient = to.try_send(changed);
            }
            LogCommand::Lock(to) => drop(to.try_send(Box::new(self.log.lock()))),
            LogCommand::Unlock => self.log.unlock(),
            LogCommand::Report(to) => drop(to.try_send(self.log.report())),
            LogCommand::End(sender) => self.ended_by = sender,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stalled log thread takes no commands.
    #[test]
    fn command_times_out_when_the_queue_is_full() {
        let (commands, taken) = log_command_channel();
        let send_within = || {
            commands.send_within(
                LogCommand::Rotate(SignalSender::this()),
                Duration::from_millis(1),
            )
        };
        for _ in 0..QUEUE_LENGTH {
            assert!(send_within());
        }
        assert!(!send_within());
        assert_eq!(taken.len(), QUEUE_LENGTH);
        drop(taken);
        assert!(send_within(), "nobody is busy");
    }
}
