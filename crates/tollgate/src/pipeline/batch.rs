//! A batch: text of whole events for the log.

use audit::event::{Event, Timestamp};
use audit::ids::Serial;
use crossbeam_channel::Sender;
use engine::CommitToken;

use super::ring_commands::FlushResult;
use super::rule_stats::PlanRule;
use crate::sinks::json::JsonRecords;
use crate::sinks::viewers::ViewerFeed;

/// Text of whole events.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) text: Vec<u8>,
    /// Origin of each event, in order.
    pub(crate) origins: Vec<EventOrigin>,
    /// Stamp of the last event if it is a kernel record: more records may follow.
    message: Option<(Timestamp, Serial)>,
    /// The same events for the JSON log, if there is one.
    pub(crate) json: Option<JsonRecords>,
    /// The same events for viewers, if there are any.
    pub(crate) live: Option<JsonRecords>,
    /// Notified when the batch is written.
    pub(crate) on_written: Option<Sender<FlushResult>>,
    /// Releases ring space when the batch is written.
    pub(crate) commit_token: Option<CommitToken>,
    /// Events arrive faster than they are read from the ring.
    pub(crate) ring_is_filling: bool,
}

/// Origin of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventOrigin {
    /// From the ring, matched by this rule.
    Ring(PlanRule),
    /// From the kernel's audit or the daemon.
    Message,
}

impl Batch {
    /// Creates an empty batch, with or without a copy for the JSON log.
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json: json.then(JsonRecords::default),
            ..Self::default()
        }
    }

    /// From now on collects events for viewers, if there are any.
    pub(crate) fn serve_viewers(&mut self, viewers: &ViewerFeed) {
        if self.live.is_none() && viewers.is_watched() {
            self.live = Some(viewers.buffer());
        }
    }

    /// Appends a record line. It belongs to the previous event if the stamp is the same.
    pub(crate) fn message(&mut self, line: &[u8], stamp: (Timestamp, Serial)) {
        let begins = self.message.replace(stamp) != Some(stamp);
        if begins {
            self.origins.push(EventOrigin::Message);
        }
        self.text.extend_from_slice(line);
        if let Some(json) = &mut self.json {
            json.message(line, begins);
        }
        if let Some(live) = &mut self.live {
            live.message(line, begins);
        }
    }

    /// Counts a ring event whose lines were appended from `start` on.
    pub(crate) fn event(&mut self, event: &Event<'_>, rule: PlanRule, start: usize) {
        self.message = None;
        self.origins.push(EventOrigin::Ring(rule));
        let text = self.text.get(start..).unwrap_or_default();
        if let Some(json) = &mut self.json {
            json.event(event, text);
        }
        // All records of the event can be excluded.
        if let Some(live) = &mut self.live
            && !text.is_empty()
        {
            live.event_for_viewers(event, text);
        }
    }

    /// Counts a ring event whose lines were appended, and that only the log gets.
    pub(crate) fn repeated_event(&mut self, rule: PlanRule) {
        self.message = None;
        self.origins.push(EventOrigin::Ring(rule));
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.origins.clear();
        self.message = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::viewers;

    #[test]
    fn nothing_is_collected_without_viewers() {
        let (_viewers, feed, thread) = viewers::start().unwrap();
        let mut batch = Batch::new(false);
        batch.serve_viewers(&feed);
        let stamp = (Timestamp { sec: 1, milli: 0 }, Serial(1));
        batch.message(b"type=X msg=audit(1.000:1): \n", stamp);
        assert!(batch.live.is_none() && !batch.text.is_empty());
        thread.finish().unwrap();
    }
}
