//! The end of an engine.

use audit::plan::Plan;

use super::Engine;
use super::handover::pin_snapshot;
use crate::attach;
use crate::attach::async_detach::AsyncDetach;
use crate::attach::heartbeat::Heartbeat;
use crate::compile;
use crate::compile::watches::Watches;
use crate::error::EngineError;
use crate::handover::pins::{PinDirectory, PinError};

impl Engine<'_> {
    /// Has no call seen any more, and begins to detach everything. Events already in the ring stay there.
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

    /// Puts a plan in force that names no call, and waits for the programs that go by another one.
    fn install_empty_plan(&mut self) -> Result<(), EngineError> {
        let epoch = self.epoch.next();
        if let Some(pins) = &self.pins {
            pin_snapshot(pins, epoch, &[], &[])?;
        }
        self.clear_half(epoch)?;
        let plan = Plan::default();
        let nothing = compile::compile(&plan, self.selection.next(&plan));
        self.write(epoch, &nothing, &Watches::default())?;
        self.globals
            .switch_epoch(self.epoch, epoch, self.globals.jiffies());
        self.epoch = epoch;
        self.clear_half(epoch.next())
    }
}

/// Programs that are being detached, which the kernel takes some 100 ms for, each. Dropping it waits.
#[derive(Debug)]
pub struct PendingDetach {
    detacher: AsyncDetach,
    pins: Option<PinDirectory>,
}

impl PendingDetach {
    /// Waits until nothing is attached any more; then nothing is pinned either. Until this is called, what
    /// is in the ring can still be read by another daemon.
    ///
    /// # Errors
    /// When a name cannot be taken away.
    pub fn wait(mut self) -> Result<(), PinError> {
        self.detacher.wait_all();
        match self.pins.take() {
            Some(pins) => pins.clear(),
            None => Ok(()),
        }
    }
}
