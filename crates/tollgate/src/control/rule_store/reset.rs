//! Counters that a request sets to 0.

use audit::ids::MsgType;

use super::{PipelineControl, RuleStore};
use crate::control::change_records::{self, Requester};
use crate::control::protocol::Answer;

impl RuleStore {
    /// Lost events are counted from now on.
    pub(super) fn reset_lost(
        &mut self,
        author: &Requester,
        pipeline: &mut dyn PipelineControl,
    ) -> anyhow::Result<Answer> {
        let status = self.status(pipeline)?;
        let lost = status.settings.lost;
        self.lost_at_reset += lost;
        let body = change_records::setting(author, "lost", 0, lost);
        self.record(vec![(MsgType::CONFIG_CHANGE, body)], pipeline)?;
        Ok(Answer::Was(lost))
    }

    /// The counter is always 0: no task waits for the backlog.
    pub(super) fn reset_backlog_wait(
        &self,
        author: &Requester,
        pipeline: &mut dyn PipelineControl,
    ) -> anyhow::Result<Answer> {
        let body = change_records::setting(author, "backlog_wait_time_actual", 0, 0);
        self.record(vec![(MsgType::CONFIG_CHANGE, body)], pipeline)?;
        Ok(Answer::Was(0))
    }
}
