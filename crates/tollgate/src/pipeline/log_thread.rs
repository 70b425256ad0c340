//! The log thread `tlg-log`: writes batches, and executes commands of the main thread between them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use crossbeam_channel::{Receiver, SendTimeoutError, Sender, after, bounded, never, select};

use super::batch::{Batch, Origin};
use super::rule_stats::PlanRule;
use super::summary::UnwrittenEvents;
use crate::sinks::audit_log::{AppendResult, AuditLog, LogConfig, SignalSender, Suspension};
use crate::sinks::plugins::PluginLosses;
use crate::sinks::queue::SinkQueue;

/// Longest time that the log thread may take to tell its state, or to have room for an order.
pub(crate) const LOG_THREAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Orders to the log thread that wait to be carried out; who gives one more waits, those that may be refused for
/// [`LOG_THREAD_TIMEOUT`] at most.
const QUEUE_LENGTH: usize = 4;

/// What the log thread is told.
#[derive(Debug)]
pub(crate) enum LogCommand {
    /// Start a new log.
    Rotate(SignalSender),
    /// Go on writing.
    Resume(SignalSender),
    /// Take on other settings, `None` when they are wrong, and say whether they are in force.
    Configure(Option<Box<LogConfig>>, SignalSender, Sender<bool>),
    /// Keep old logs, and the settings that say what becomes of them; say how the log is kept.
    Lock(Sender<Box<LogConfig>>),
    /// What was to be locked is not.
    Unlock,
    /// Tell the state.
    Report(Sender<String>),
    /// The end is near, and who wants it.
    End(SignalSender),
}

/// Gives orders to the log thread, which carries them out one after the other.
#[derive(Clone, Debug)]
pub(crate) struct LogCommandSender(Sender<LogCommand>);

/// What the log thread has counted so far, for others to look at.
#[derive(Debug, Default)]
pub(crate) struct LogCounters {
    /// Events in the log.
    pub(crate) events: AtomicU64,
    /// Events that could not be written.
    pub(crate) unwritten: AtomicU64,
    /// Messages in the log.
    pub(crate) messages: AtomicU64,
    /// Messages that could not be written.
    pub(crate) unwritten_messages: AtomicU64,
    /// What plugins did not get.
    pub(crate) plugins: Arc<PluginLosses>,
    /// Events that could not be written of each rule, until `tlg-ring` takes them. Nobody touches it while
    /// all can be written.
    pub(crate) unwritten_rules: Mutex<BTreeMap<PlanRule, u64>>,
    /// Why the log is suspended. Locked by the log thread only while it is, and when that ends.
    pub(crate) suspension: Mutex<Option<Suspension>>,
}

/// Both ends of the orders to the log thread.
pub(crate) fn log_command_channel() -> (LogCommandSender, Receiver<LogCommand>) {
    let (to, from) = bounded(QUEUE_LENGTH);
    (LogCommandSender(to), from)
}

impl LogCommandSender {
    /// Has the log locked; says how it is kept.
    ///
    /// # Errors
    /// When the log thread is too busy to say: then it is not locked.
    pub(crate) fn lock(&self) -> anyhow::Result<Box<LogConfig>> {
        let (to, from) = bounded(1);
        self.send(LogCommand::Lock(to));
        let log = from.recv_timeout(LOG_THREAD_TIMEOUT);
        if log.is_err() {
            self.unlock();
        }
        log.context("the log thread is busy")
    }

    /// What was to be locked is not.
    pub(crate) fn unlock(&self) {
        self.send(LogCommand::Unlock);
    }

    /// Gives an order, unless there is no room for one in time; whether there was, also when nobody needs it.
    pub(crate) fn send_within(&self, command: LogCommand, patience: Duration) -> bool {
        let refused = self.0.send_timeout(command, patience);
        !matches!(refused, Err(SendTimeoutError::Timeout(_)))
    }

    pub(crate) fn send(&self, command: LogCommand) {
        // A log thread that has ended needs no orders.
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
        loop {
            let tick = self.log.next_poll().map_or_else(never, after);
            select! {
                recv(full) -> batch => match batch {
                    Ok(batch) => self.write(batch, empty),
                    Err(_ended) => break,
                },
                recv(self.commands) -> command => match command {
                    Ok(command) => self.handle(command),
                    // Who gave orders has gone; events may still come.
                    Err(_gone) => self.commands = never(),
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
        let appended = if batch.text.is_empty() {
            AppendResult::default()
        } else {
            self.log.append(&batch.text, events, &mut commit_token)
        };
        // What could not be written is lost, and counted.
        if let Some(commit_token) = &mut commit_token {
            commit_token.end();
        }
        self.count(&appended, &batch.origins);
        if let Some(on_written) = batch.on_written.take() {
            let written = match appended.lost {
                0 => Ok(()),
                _ => Err(appended.reason),
            };
            // Whoever asked may have gone away.
            let _gone = on_written.send(written);
        }
        batch.clear();
        // The ring thread makes a new one when none has come back.
        let _full = empty.try_send(batch);
    }

    /// Counts what became of events from these origins: the last ones are those that were lost.
    fn count(&mut self, appended: &AppendResult, origins: &[Origin]) {
        let written = usize::try_from(appended.written).unwrap_or(usize::MAX);
        let (written, lost) = origins.split_at(written.min(origins.len()));
        let counters = &*self.counters;
        for (origins, events, messages) in [
            (written, &counters.events, &counters.messages),
            (lost, &counters.unwritten, &counters.unwritten_messages),
        ] {
            let of_messages = |origin: &&Origin| **origin == Origin::Message;
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
                if let Origin::Ring(rule) = origin {
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
            // Who has asked may have lost patience.
            LogCommand::Configure(keep, sender, to) => {
                let changed = self.log.configure(keep.map(|keep| *keep), sender);
                engine::set_nice(self.log.nice());
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

    /// As when the log stalls: nobody takes orders.
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
