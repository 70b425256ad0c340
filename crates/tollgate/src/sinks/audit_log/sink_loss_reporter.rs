//! Reports events that plugins and the JSON log lost: in the audit log, at most once per second, and at the end.
//!
//! The failure mode does not apply: the audit log has these events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::AuditLog;
use super::daemon_records::DaemonRecord;
use crate::sinks::plugins::{PluginLoss, PluginLosses};
use crate::sinks::queue::{QueueStats, SinkStats};

/// Shortest time between two reports.
const PERIOD: Duration = Duration::from_secs(1);
/// Time for the JSON log to drain at the end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Losses reported so far.
#[derive(Debug, Default)]
pub(super) struct SinkLossReporter {
    json: Option<QueueStats>,
    reported_json: u64,
    last: Option<Instant>,
}

impl SinkLossReporter {
    /// Unreported losses of the JSON log, and the reason.
    fn unreported_json(&self) -> Option<(u64, String)> {
        let SinkStats {
            unwritten, reason, ..
        } = self.json.as_ref()?.read();
        let unreported = unwritten.saturating_sub(self.reported_json);
        (unreported != 0).then_some((unreported, reason))
    }
}

impl AuditLog {
    /// Also reports losses of this JSON log.
    pub(crate) fn watch_json(&mut self, json: QueueStats) {
        self.sink_losses.json = Some(json);
    }

    /// Loss counters of plugins.
    pub(crate) fn plugins(&self) -> Arc<PluginLosses> {
        self.dispatcher.losses()
    }

    /// Waits until the outcome of all events queued for the JSON log is known.
    pub(super) fn wait_for_json(&self) {
        if let Some(json) = &self.sink_losses.json {
            json.settle(Instant::now() + PATIENCE);
        }
    }

    /// Time until the next check, if losses are possible.
    pub(super) fn next_report(&self) -> Option<Duration> {
        let SinkLossReporter { json, last, .. } = &self.sink_losses;
        let losses = self.plugins();
        if self.is_suspended() {
            None
        } else if !losses.unreported().is_empty() || self.sink_losses.unreported_json().is_some() {
            let due = last.map(|last| last + PERIOD);
            Some(due.map_or(Duration::ZERO, |due| {
                due.saturating_duration_since(Instant::now())
            }))
        } else {
            let busy = losses.is_busy() || json.as_ref().is_some_and(QueueStats::is_busy);
            busy.then_some(PERIOD)
        }
    }

    /// Reports new losses, at most once per second.
    pub(super) fn report_sink_losses(&mut self) {
        let last = self.sink_losses.last;
        if last.is_none_or(|last| last.elapsed() >= PERIOD) {
            self.report_all_sink_losses();
        }
    }

    /// Reports all new losses.
    pub(super) fn report_all_sink_losses(&mut self) {
        let losses = self.plugins();
        let (missed, unreported_json) = (losses.unreported(), self.sink_losses.unreported_json());
        if self.is_suspended() || (missed.is_empty() && unreported_json.is_none()) {
            return;
        }
        self.sink_losses.last = Some(Instant::now());
        if let Some((events, reason)) = unreported_json
            && self.record_sink_loss(&DaemonRecord::LostToJson(events, &reason))
        {
            self.sink_losses.reported_json += events;
        }
        for missed in missed {
            let PluginLoss {
                plugin,
                loss,
                events,
            } = &missed;
            if self.record_sink_loss(&DaemonRecord::LostToPlugin(plugin, *events, loss.reason())) {
                losses.reported(&missed);
            }
        }
    }

    /// Writes a record and dispatches it to plugins. Returns whether it is in the log, if there is one.
    fn record_sink_loss(&mut self, about: &DaemonRecord<'_>) -> bool {
        let lines = if self.config.writes() {
            self.write_daemon_record_line(about)
        } else {
            Some(self.format_daemon_record(about))
        };
        if let Some(lines) = &lines {
            self.dispatch(lines, 0);
        }
        lines.is_some()
    }
}
