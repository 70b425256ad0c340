//! Reports of lost events, with what the ring thread has counted.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use engine::{Engine, OwnerLoss};

use super::{RingStats, RingThread};
use crate::pipeline::encoder::Encoder;

impl RingThread {
    /// Reports losses. Returns the time until the next report, if there is more to report.
    pub(super) fn report_losses(
        &self,
        engine: &Engine<'_>,
        state: &RefCell<Encoder>,
        now: Instant,
    ) -> anyhow::Result<Option<Duration>> {
        let mut state = state.borrow_mut();
        let mut counted = state.current_stats();
        counted.stats = engine.program_stats();
        if state.loss_reporter.is_due(&counted, now) {
            let owners = engine.owner_losses().read();
            counted.stats = engine.program_stats();
            self.record_losses(engine, &mut state, &counted, &owners, now)?;
            return Ok(Some(Duration::ZERO));
        }
        Ok(state.loss_reporter.next_report(&counted, now))
    }

    /// Adds records of new losses to the batch. `owners` were read before `counted`.
    pub(super) fn record_losses(
        &self,
        engine: &Engine<'_>,
        state: &mut Encoder,
        counted: &RingStats,
        owners: &[OwnerLoss],
        now: Instant,
    ) -> anyhow::Result<()> {
        let report = state
            .loss_reporter
            .report(counted, owners, &self.limits, now);
        for (index, events) in report.by_owner {
            engine.owner_losses().add_reported(index, events);
        }
        if !report.records.is_empty() {
            state.record_all(&report.records, engine.read_clock()?);
        }
        Ok(())
    }
}
