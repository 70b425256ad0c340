//! Loss counters of plugins by reason, including plugins that have ended, and the part already reported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::plugin_queue::{Loss, QueueState};

/// Events by reason.
type ByReason = [u64; Loss::ALL.len()];

/// Counters of all plugins, by file name.
#[derive(Debug, Default)]
pub(crate) struct PluginLosses(Mutex<BTreeMap<String, Account>>);

/// Unreported lost events of one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginLoss {
    /// File name of the plugin.
    pub(crate) plugin: String,
    pub(crate) loss: Loss,
    pub(crate) events: u64,
}

/// Counters of one file's plugins: an old one may still be stopping while the new one runs.
#[derive(Debug, Default)]
struct Account {
    queues: Vec<Arc<QueueState>>,
    /// Counts of plugins that have ended.
    before: ByReason,
    reported: ByReason,
}

impl PluginLosses {
    /// Adds a plugin.
    pub(super) fn add(&self, plugin: &str, queue: Arc<QueueState>) {
        let mut accounts = self.accounts();
        let account = accounts.entry(plugin.to_owned()).or_default();
        account.settle();
        account.queues.push(queue);
    }

    /// Lost events by plugin.
    pub(crate) fn lost(&self) -> BTreeMap<String, u64> {
        let accounts = self.accounts();
        let lost =
            |(plugin, account): (&String, &Account)| (plugin.clone(), account.lost().iter().sum());
        accounts.iter().map(lost).collect()
    }

    /// Losses not reported yet.
    pub(crate) fn unreported(&self) -> Vec<PluginLoss> {
        let mut unreported = Vec::new();
        for (plugin, account) in &*self.accounts() {
            let counts = account.lost().into_iter().zip(account.reported);
            for (loss, (lost, reported)) in Loss::ALL.into_iter().zip(counts) {
                if lost > reported {
                    unreported.push(PluginLoss {
                        plugin: plugin.clone(),
                        loss,
                        events: lost - reported,
                    });
                }
            }
        }
        unreported
    }

    /// Marks a loss as reported.
    pub(crate) fn reported(&self, missed: &PluginLoss) {
        if let Some(account) = self.accounts().get_mut(&missed.plugin) {
            for (of, reported) in Loss::ALL.into_iter().zip(&mut account.reported) {
                if of == missed.loss {
                    *reported += missed.events;
                }
            }
        }
    }

    /// Whether queued events may still be lost.
    pub(crate) fn is_busy(&self) -> bool {
        let accounts = self.accounts();
        let mut queues = accounts.values().flat_map(|account| &account.queues);
        queues.any(|queue| queue.is_busy())
    }

    fn accounts(&self) -> MutexGuard<'_, BTreeMap<String, Account>> {
        // The counters are valid even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    fn lost(&self) -> ByReason {
        self.queues
            .iter()
            .fold(self.before, |sum, queue| add(sum, queue.lost()))
    }

    /// Drops plugins that have ended.
    fn settle(&mut self) {
        let before = &mut self.before;
        self.queues.retain_mut(|queue| {
            let ended = Arc::get_mut(queue).map(|queue| queue.lost());
            if let Some(lost) = ended {
                *before = add(*before, lost);
            }
            ended.is_none()
        });
    }
}

fn add(mut sum: ByReason, counts: ByReason) -> ByReason {
    for (sum, count) in sum.iter_mut().zip(counts) {
        *sum += count;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_losses_are_reported_once_even_after_its_end() {
        let losses = PluginLosses::default();
        let missed = |loss, events| PluginLoss {
            plugin: "a.conf".to_owned(),
            loss,
            events,
        };
        let first = Arc::<QueueState>::default();
        losses.add("a.conf", Arc::clone(&first));
        first.count_lost(Loss::QueueFull, 2);
        first.count_lost(Loss::NotRunning, 3);
        let reported = losses.unreported();
        assert_eq!(
            reported,
            [missed(Loss::QueueFull, 2), missed(Loss::NotRunning, 3)]
        );
        losses.reported(&reported[0]);
        first.count_lost(Loss::QueueFull, 4);
        drop(first);
        let second = Arc::<QueueState>::default();
        losses.add("a.conf", Arc::clone(&second));
        assert_eq!(losses.accounts()["a.conf"].queues.len(), 1);
        second.count_lost(Loss::NotRunning, 1);
        assert_eq!(
            losses.unreported(),
            [missed(Loss::QueueFull, 4), missed(Loss::NotRunning, 4)]
        );
        losses
            .unreported()
            .iter()
            .for_each(|missed| losses.reported(missed));
        assert!(losses.unreported().is_empty());
        assert_eq!(losses.lost()["a.conf"], 10);
    }
}
