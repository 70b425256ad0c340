//! What plugins and the JSON log did not get, told in the log: at most once a second, and at the end.
//!
//! The failure mode has no part in it: the log has these events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::AuditLog;
use super::daemon_records::DaemonRecord;
use crate::sinks::plugins::{PluginLoss, PluginLosses};
use crate::sinks::queue::{QueueStats, SinkStats};

/// Between two tellings: one tells all that was lost meanwhile.
const PERIOD: Duration = Duration::from_secs(1);
/// How long the JSON log may take for what waits at the end.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was told so far.
#[derive(Debug, Default)]
pub(super) struct SinkLossReporter {
    json: Option<QueueStats>,
    reported_json: u64,
    last: Option<Instant>,
}

impl SinkLossReporter {
    /// What the JSON log lacks that was not told, and why.
    fn unreported_json(&self) -> Option<(u64, String)> {
        let SinkStats {
            unwritten, reason, ..
        } = self.json.as_ref()?.read();
        let unreported = unwritten.saturating_sub(self.reported_json);
        (unreported != 0).then_some((unreported, reason))
    }
}

impl AuditLog {
    /// Tells of this JSON log too.
    pub(crate) fn watch_json(&mut self, json: QueueStats) {
        self.sink_losses.json = Some(json);
    }

    /// What plugins did not get, for others to look at.
    pub(crate) fn plugins(&self) -> Arc<PluginLosses> {
        self.dispatcher.losses()
    }

    /// Waits until it is known what the JSON log will lack of what it was given.
    pub(super) fn wait_for_json(&self) {
        if let Some(json) = &self.sink_losses.json {
            json.settle(Instant::now() + PATIENCE);
        }
    }

    /// Time until it is to be looked whether something was lost, if something may be.
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

    /// Tells what was lost since that was told, unless that is less than a second ago.
    pub(super) fn report_sink_losses(&mut self) {
        let last = self.sink_losses.last;
        if last.is_none_or(|last| last.elapsed() >= PERIOD) {
            self.report_all_sink_losses();
        }
    }

    /// Tells all that was lost since that was told.
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

    /// Writes a record, and gives it to the plugins; whether it is in the log, if there is one.
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
