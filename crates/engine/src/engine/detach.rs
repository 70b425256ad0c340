//! Detaching everything when an engine ends.

use audit::plan::Plan;

use super::Engine;
use super::handover::pin_plan_snapshot;
use crate::attach;
use crate::attach::async_detach::AsyncDetach;
use crate::attach::heartbeat::Heartbeat;
use crate::compile;
use crate::compile::watches::Watches;
use crate::error::EngineError;
use crate::handover::pins::{PinDirectory, PinError};

impl Engine<'_> {
    /// Stops recording and starts to detach everything. Events stay in the ring.
    pub fn detach(&mut self) -> PendingDetach {
        self.avc = None;
        self.guard_links.clear();
        let emptied = self.install_empty_plan().is_ok();
        let mut links = std::mem::take(&mut self.links);
        self.detached_misses += attach::recursion_misses(&links);
        links.extend(self.heartbeat.take().map(Heartbeat::into_link));
        self.detacher.detach(links);
        let mut detaching = PendingDetach {
            detacher: std::mem::take(&mut self.detacher),
            pins: self.pins.take(),
        };
        if !emptied {
            detaching.detacher.wait_all();
        }
        detaching
    }

    /// Activates a plan without rules and waits until no program uses another plan.
    fn install_empty_plan(&mut self) -> Result<(), EngineError> {
        let epoch = self.epoch.next();
        if let Some(pins) = &self.pins {
            pin_plan_snapshot(pins, epoch, &[], &[])?;
        }
        self.clear_half(epoch)?;
        let plan = Plan::default();
        let nothing = compile::compile(&plan, self.selection.for_replacement(&plan));
        self.write(epoch, &nothing, &Watches::default())?;
        self.globals
            .switch_epoch(self.epoch, epoch, self.globals.jiffies());
        self.epoch = epoch;
        self.clear_half(epoch.next())
    }
}

/// Programs being detached in the background, which takes the kernel about 100 ms each. Dropping it waits.
#[derive(Debug)]
pub struct PendingDetach {
    detacher: AsyncDetach,
    pins: Option<PinDirectory>,
}

impl PendingDetach {
    /// Waits until everything is detached, then removes all pins. Until then another daemon can adopt the ring
    /// with its events.
    ///
    /// # Errors
    /// [`PinError`] when a pin cannot be removed.
    pub fn wait(mut self) -> Result<(), PinError> {
        self.detacher.wait_all();
        match self.pins.take() {
            Some(pins) => pins.clear(),
            None => Ok(()),
        }
    }
}
