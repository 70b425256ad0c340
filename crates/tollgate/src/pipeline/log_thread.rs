//! The log thread `tlg-log`: writes batches, and executes commands of the main thread between them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use crossbeam_channel::{Receiver, SendTimeoutError, Sender, after, bounded, never, select};

use super::batch::{Batch, Origin};
use super::rule_stats::PlanRule;
use super::summary::Unwritten;
use crate::sinks::audit_log::{AppendResult, AuditLog, LogConfig, SignalSender};
use crate::sinks::plugins::PluginLosses;
use crate::sinks::queue::SinkQueue;

/// Longest time that the log thread may take to tell its state, or to have room for an order.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Orders to the log thread that wait to be carried out; who gives one more waits, those that may be refused for
/// [`PATIENCE`] at most.
const WAITING: usize = 4;

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
pub(crate) struct LogCommands(Sender<LogCommand>);

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
}

/// Both ends of the orders to the log thread.
pub(crate) fn log_orders() -> (LogCommands, Receiver<LogCommand>) {
    let (to, from) = bounded(WAITING);
    (LogCommands(to), from)
}

impl LogCommands {
    /// Has the log locked; says how it is kept.
    ///
    /// # Errors
    /// When the log thread is too busy to say: then it is not locked.
    pub(crate) fn lock(&self) -> anyhow::Result<Box<LogConfig>> {
        let (to, from) = bounded(1);
        self.tell(LogCommand::Lock(to));
        let log = from.recv_timeout(PATIENCE);
        if log.is_err() {
            self.unlock();
        }
        log.context("the log thread is busy")
    }

    /// What was to be locked is not.
    pub(crate) fn unlock(&self) {
        self.tell(LogCommand::Unlock);
    }

    /// Gives an order, unless there is no room for one in time; whether there was, also when nobody needs it.
    pub(crate) fn offer(&self, order: LogCommand, patience: Duration) -> bool {
        let refused = self.0.send_timeout(order, patience);
        !matches!(refused, Err(SendTimeoutError::Timeout(_)))
    }

    pub(crate) fn tell(&self, order: LogCommand) {
        // A log thread that has ended needs no orders.
        let _ended = self.0.send(order);
    }
}

/// The log thread.
pub(super) struct LogThread {
    pub(super) log: AuditLog,
    pub(super) json: Option<Arc<SinkQueue>>,
    pub(super) counts: Arc<LogCounters>,
    pub(super) orders: Receiver<LogCommand>,
    pub(super) ended_by: SignalSender,
    pub(super) unwritten: Unwritten,
}

impl LogThread {
    pub(super) fn run(mut self, full: &Receiver<Batch>, empty: &Sender<Batch>) -> Unwritten {
        engine::set_nice(self.log.nice());
        loop {
            let tick = self.log.next_look().map_or_else(never, after);
            select! {
                recv(full) -> batch => match batch {
                    Ok(batch) => self.write(batch, empty),
                    Err(_ended) => break,
                },
                recv(self.orders) -> order => match order {
                    Ok(order) => self.obey(order),
                    // Who gave orders has gone; events may still come.
                    Err(_gone) => self.orders = never(),
                },
                recv(tick) -> _now => self.log.look(),
            }
        }
        for order in self.orders.try_iter() {
            if let LogCommand::End(asker) = order {
                self.ended_by = asker;
            }
        }
        let ended = self.log.end(self.ended_by);
        self.count(&ended, &[]);
        self.unwritten
    }

    fn write(&mut self, mut batch: Batch, empty: &Sender<Batch>) {
        let events = u64::try_from(batch.origins.len()).unwrap_or(u64::MAX);
        let mut receipt = batch.receipt.take();
        let appended = if batch.text.is_empty() {
            AppendResult::default()
        } else {
            self.log.append(&batch.text, events, &mut receipt)
        };
        // What could not be written is lost, and counted.
        if let Some(receipt) = &mut receipt {
            receipt.end();
        }
        self.count(&appended, &batch.origins);
        if let Some(then) = batch.then.take() {
            let written = match appended.lost {
                0 => Ok(()),
                _ => Err(appended.reason),
            };
            // Whoever asked may have gone away.
            let _gone = then.send(written);
        }
        batch.clear();
        // The ring thread makes a new one when none has come back.
        let _full = empty.try_send(batch);
    }

    /// Counts what became of events from these origins: the last ones are those that were lost.
    fn count(&mut self, appended: &AppendResult, origins: &[Origin]) {
        let written = usize::try_from(appended.written).unwrap_or(usize::MAX);
        let (written, lost) = origins.split_at(written.min(origins.len()));
        let counts = &*self.counts;
        for (origins, events, messages) in [
            (written, &counts.events, &counts.messages),
            (lost, &counts.unwritten, &counts.unwritten_messages),
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
            && let Ok(mut rules) = counts.unwritten_rules.lock()
        {
            for origin in lost {
                if let Origin::Ring(rule) = origin {
                    *rules.entry(*rule).or_default() += 1;
                }
            }
        }
        self.unwritten.events = counts.unwritten.load(Ordering::Relaxed);
        if !appended.reason.is_empty() {
            self.unwritten.reason.clone_from(&appended.reason);
        }
    }

    fn obey(&mut self, order: LogCommand) {
        match order {
            LogCommand::Rotate(asker) => {
                self.log.rotate_now(asker);
                if let Some(json) = &self.json {
                    json.rotate(self.log.old_logs());
                }
            }
            LogCommand::Resume(asker) => self.log.resume_now(asker),
            // Who has asked may have lost patience.
            LogCommand::Configure(keep, asker, to) => {
                let changed = self.log.configure(keep.map(|keep| *keep), asker);
                engine::set_nice(self.log.nice());
                let _impatient = to.try_send(changed);
            }
            LogCommand::Lock(to) => drop(to.try_send(Box::new(self.log.lock()))),
            LogCommand::Unlock => self.log.unlock(),
            LogCommand::Report(to) => drop(to.try_send(self.log.report())),
            LogCommand::End(asker) => self.ended_by = asker,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As when the log stalls: nobody takes orders.
    #[test]
    fn who_finds_no_room_does_not_wait_for_ever() {
        let (orders, taken) = log_orders();
        let offer = || {
            orders.offer(
                LogCommand::Rotate(SignalSender::this()),
                Duration::from_millis(1),
            )
        };
        for _ in 0..WAITING {
            assert!(offer());
        }
        assert!(!offer());
        assert_eq!(taken.len(), WAITING);
        drop(taken);
        assert!(offer(), "nobody is busy");
    }
}
