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
    told_of_json: u64,
    last: Option<Instant>,
}

impl SinkLossReporter {
    /// What the JSON log lacks that was not told, and why.
    fn of_json(&self) -> Option<(u64, String)> {
        let SinkStats {
            unwritten, reason, ..
        } = self.json.as_ref()?.read();
        let untold = unwritten.saturating_sub(self.told_of_json);
        (untold != 0).then_some((untold, reason))
    }
}

impl AuditLog {
    /// Tells of this JSON log too.
    pub(crate) fn tell_of(&mut self, json: QueueStats) {
        self.left_out.json = Some(json);
    }

    /// What plugins did not get, for others to look at.
    pub(crate) fn plugins(&self) -> Arc<PluginLosses> {
        self.dispatcher.tally()
    }

    /// Waits until it is known what the JSON log will lack of what it was given.
    pub(super) fn wait_for_json(&self) {
        if let Some(json) = &self.left_out.json {
            json.settle(Instant::now() + PATIENCE);
        }
    }

    /// Time until it is to be looked whether something was lost, if something may be.
    pub(super) fn next_telling(&self) -> Option<Duration> {
        let SinkLossReporter { json, last, .. } = &self.left_out;
        let tally = self.plugins();
        if self.suspended {
            None
        } else if !tally.untold().is_empty() || self.left_out.of_json().is_some() {
            let due = last.map(|last| last + PERIOD);
            Some(due.map_or(Duration::ZERO, |due| {
                due.saturating_duration_since(Instant::now())
            }))
        } else {
            let busy = tally.is_busy() || json.as_ref().is_some_and(QueueStats::is_busy);
            busy.then_some(PERIOD)
        }
    }

    /// Tells what was lost since that was told, unless that is less than a second ago.
    pub(super) fn tell_left_out(&mut self) {
        let last = self.left_out.last;
        if last.is_none_or(|last| last.elapsed() >= PERIOD) {
            self.tell_all_left_out();
        }
    }

    /// Tells all that was lost since that was told.
    pub(super) fn tell_all_left_out(&mut self) {
        let tally = self.plugins();
        let (missed, of_json) = (tally.untold(), self.left_out.of_json());
        if self.suspended || (missed.is_empty() && of_json.is_none()) {
            return;
        }
        self.left_out.last = Some(Instant::now());
        if let Some((events, reason)) = of_json
            && self.tell(&DaemonRecord::LostToJson(events, &reason))
        {
            self.left_out.told_of_json += events;
        }
        for missed in missed {
            let PluginLoss {
                plugin,
                loss,
                events,
            } = &missed;
            if self.tell(&DaemonRecord::LostToPlugin(plugin, *events, loss.reason())) {
                tally.told(&missed);
            }
        }
    }

    /// Writes a record, and gives it to the plugins; whether it is in the log, if there is one.
    fn tell(&mut self, about: &DaemonRecord<'_>) -> bool {
        let lines = if self.keep.writes() {
            self.write_about(about)
        } else {
            Some(self.own_lines(about))
        };
        if let Some(lines) = &lines {
            self.dispatch(lines, 0);
        }
        lines.is_some()
    }
}
