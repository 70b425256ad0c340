//! Detaching everything when an engine ends.

use std::convert::Infallible;
use std::fmt;
use std::os::fd::AsFd as _;

use audit::plan::Plan;

use super::Engine;
use super::handover::pin_plan_snapshot;
use crate::attach::async_detach::AsyncDetach;
use crate::attach::heartbeat::Heartbeat;
use crate::attach::{self, Links};
use crate::compile;
use crate::compile::watches::Watches;
use crate::epoch::Epoch;
use crate::error::EngineError;
use crate::handover::pins::{PinDirectory, PinError};
use crate::hooks::syscall_set::SyscallSet;
use crate::sys::kernel_hold::KernelHold;

impl Engine<'_> {
    /// Stops recording and starts to detach everything. Events stay in the ring.
    pub fn detach(&mut self) -> PendingDetach {
        self.avc = None;
        self.guard_links.clear();
        let emptied = self.install_empty_plan().is_ok();
        let mut links = std::mem::take(&mut self.links);
        self.detached_misses += attach::recursion_misses(&links);
        let pinned = if emptied && self.pins.is_some() {
            links.extend(self.detacher.take_waiting());
            std::mem::take(&mut links)
        } else {
            Links::default()
        };
        links.extend(self.heartbeat.take().map(Heartbeat::into_link));
        self.detacher.detach(links);
        let mut detaching = PendingDetach {
            detacher: std::mem::take(&mut self.detacher),
            pinned,
            pins: self.pins.take(),
        };
        if !emptied {
            detaching.detacher.wait_all();
        }
        detaching
    }

    /// Leaves the pinned engine to the next daemon, with the links that wait to be detached: that daemon adopts
    /// them and detaches what its rules do not need.
    pub fn leave(self) {
        if self.pins.is_some() {
            drop(self.detacher.take_waiting());
        }
    }

    /// Activates a plan without rules and waits until no program uses another plan.
    fn install_empty_plan(&mut self) -> Result<(), EngineError> {
        let epoch = self.prepare_empty_plan()?;
        self.globals
            .switch_epoch(self.epoch, epoch, self.globals.jiffies());
        self.epoch = epoch;
        self.clear_half(epoch.next())
    }

    /// Writes a plan without rules into the half that is not active. Returns its epoch.
    pub(super) fn prepare_empty_plan(&mut self) -> Result<Epoch, EngineError> {
        let epoch = self.epoch.next();
        if let Some(pins) = &self.pins {
            pin_plan_snapshot(pins, epoch, &[], &[])?;
        }
        self.clear_half(epoch)?;
        self.write_empty_plan(epoch)?;
        Ok(epoch)
    }

    /// Writes a plan without rules into the half of an epoch, which must be empty and not active.
    pub(super) fn write_empty_plan(&mut self, epoch: Epoch) -> Result<(), EngineError> {
        let plan = Plan::default();
        let Ok(selection) = self.selection.for_replacement(
            &plan,
            |_hook| Ok::<bool, Infallible>(false),
            &SyscallSet::default(),
        );
        let nothing = compile::compile(&plan, selection);
        self.write(epoch, &nothing, &Watches::default())
    }
}

/// Programs that run an empty plan and are being detached, which takes the kernel about 100 ms each. Dropping it
/// waits for those that are not pinned.
pub struct PendingDetach {
    detacher: AsyncDetach,
    /// Pinned links. The kernel detaches them when their pins are removed, without a waiting process.
    pinned: Links,
    pins: Option<PinDirectory>,
}

impl fmt::Debug for PendingDetach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingDetach")
            .field("pinned", &self.pinned.len())
            .finish_non_exhaustive()
    }
}

impl PendingDetach {
    /// How many hooks the kernel goes on detaching after [`Self::wait`].
    #[must_use]
    pub fn left_to_kernel(&self) -> usize {
        self.pinned.len()
    }

    /// Waits until everything that is not pinned is detached, then removes all pins. Until then another daemon
    /// can adopt the ring with its events.
    ///
    /// The kernel releases pinned links in a worker, because a process that exits could not be ended while it detaches
    /// hundreds. Where it refuses `io_uring`, that works since Linux 6.10 (`bpf_link_put()` in `kernel/bpf/syscall.c`).
    ///
    /// # Errors
    /// [`PinError`] when a pin cannot be removed.
    pub fn wait(mut self) -> Result<(), PinError> {
        self.detacher.wait_all();
        let links: Vec<_> = self.pinned.values().map(|it| it.link.as_fd()).collect();
        let held = KernelHold::of(&links);
        drop(links);
        drop(std::mem::take(&mut self.pinned));
        let cleared = match self.pins.take() {
            Some(pins) => pins.clear(),
            None => Ok(()),
        };
        drop(held);
        cleared
    }
}
