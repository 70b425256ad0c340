//! The end of an engine.

use audit::plan::Plan;

use super::Engine;
use super::handover::pin_note;
use crate::attach;
use crate::attach::async_detach::Reaper;
use crate::attach::heartbeat::Heartbeat;
use crate::compile;
use crate::compile::watches::Watches;
use crate::error::EngineError;
use crate::handover::pins::{PinError, Pins};

impl Engine<'_> {
    /// Has no call seen any more, and begins to detach everything. Events already in the ring stay there.
    pub fn detach(&mut self) -> Detaching {
        self.avc = None;
        self.guards.clear();
        let silent = self.silence().is_ok();
        let mut links = std::mem::take(&mut self.links);
        self.skipped_stubs += attach::skipped(&links);
        links.extend(self.heartbeat.take().map(Heartbeat::into_link));
        self.reaper.take_off(links);
        let mut detaching = Detaching {
            reaper: std::mem::take(&mut self.reaper),
            pins: self.pins.take(),
        };
        if !silent {
            detaching.reaper.finish();
        }
        detaching
    }

    /// Puts a plan in force that names no call, and waits for the programs that go by another one.
    fn silence(&mut self) -> Result<(), EngineError> {
        let epoch = self.epoch.next();
        if let Some(pins) = &self.pins {
            pin_note(pins, epoch, &[], &[])?;
        }
        self.make_room(epoch)?;
        let plan = Plan::default();
        let nothing = compile::lower(&plan, self.sides.next(&plan));
        self.write(epoch, &nothing, &Watches::default())?;
        self.data.switch(self.epoch, epoch, self.data.jiffies());
        self.epoch = epoch;
        self.make_room(epoch.next())
    }
}

/// Programs that are being detached, which the kernel takes some 100 ms for, each. Dropping it waits.
#[derive(Debug)]
pub struct Detaching {
    reaper: Reaper,
    pins: Option<Pins>,
}

impl Detaching {
    /// Waits until nothing is attached any more; then nothing is pinned either. Until this is called, what
    /// is in the ring can still be read by another daemon.
    ///
    /// # Errors
    /// When a name cannot be taken away.
    pub fn finish(mut self) -> Result<(), PinError> {
        self.reaper.finish();
        match self.pins.take() {
            Some(pins) => pins.clear(),
            None => Ok(()),
        }
    }
}
