//! A batch: the text of whole events on its way to the log.

use audit::event::{Event, Timestamp};
use audit::ids::Serial;
use crossbeam_channel::Sender;
use engine::CommitToken;

use super::ring_commands::FlushResult;
use super::rule_stats::PlanRule;
use crate::sinks::json::JsonRecords;

/// Text of whole events.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) text: Vec<u8>,
    /// Where each of the events comes from, in their order.
    pub(crate) origins: Vec<Origin>,
    /// Stamp of the last one, if it is a message: another record may follow.
    message: Option<(Timestamp, Serial)>,
    /// The same for the JSON log, when there is one.
    pub(crate) json: Option<JsonRecords>,
    /// Who is told when it is written.
    pub(crate) on_written: Option<Sender<FlushResult>>,
    /// Gives room in the ring back when it is written.
    pub(crate) commit_token: Option<CommitToken>,
}

/// Where the text of an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From the ring, chosen by this rule.
    Ring(PlanRule),
    /// From the kernel's audit, or from the daemon.
    Message,
}

impl Batch {
    /// An empty one; copied for the JSON log, or not.
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json: json.then(JsonRecords::default),
            ..Self::default()
        }
    }

    /// Appends a line of a message: one of the event before, if it has the same stamp.
    pub(crate) fn message(&mut self, line: &[u8], stamp: (Timestamp, Serial)) {
        let begins = self.message.replace(stamp) != Some(stamp);
        if begins {
            self.origins.push(Origin::Message);
        }
        self.text.extend_from_slice(line);
        if let Some(json) = &mut self.json {
            json.message(line, begins);
        }
    }

    /// Counts an event from the ring, of which the lines were appended: they begin at `start`.
    pub(crate) fn event(&mut self, event: &Event<'_>, rule: PlanRule, start: usize) {
        self.message = None;
        self.origins.push(Origin::Ring(rule));
        if let Some(json) = &mut self.json {
            json.event(event, self.text.get(start..).unwrap_or_default());
        }
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.origins.clear();
        self.message = None;
    }
}
