//! Takes programs off their places without making anybody wait.
//!
//! The kernel needs some 100 ms to be sure that nobody runs a program that was taken off, one after the
//! other. A thread of its own waits for that. What is wanted again before its turn comes is given back: the
//! kernel refuses a program that is still in its place.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use crate::attach::{Held, Links};
use crate::handover::pins::Pins;
use crate::hooks::attach_point::Spot;

/// The thread that waits, once there was something to take off.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Where they are pinned.
    pins: OnceLock<Pins>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// What is to be taken off: no more than there are spots.
#[derive(Default)]
struct Queue {
    waiting: Links,
    /// What is being taken off now.
    current: Option<Spot>,
    /// Nothing more will come.
    ends: bool,
}

impl Reaper {
    /// Takes the names away, too, that programs have there.
    pub(crate) fn unpin_from(&self, pins: Pins) {
        // It is said once.
        let _said = self.shared.pins.set(pins);
    }

    /// Takes programs off in the background; at once where there can be no thread.
    pub(crate) fn take_off(&mut self, held: Links) {
        if held.is_empty() {
            return;
        }
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            self.thread = start(shared).ok();
        }
        if self.thread.is_some() {
            self.shared.lock().waiting.extend(held);
            self.shared.changed.notify_all();
        } else {
            for (spot, held) in held {
                self.shared.let_go(spot, held);
            }
        }
    }

    /// Gives back what has not been taken off yet. Nothing when it is off: waits until that is so when it is
    /// just being taken off.
    pub(crate) fn take_back(&self, spot: Spot) -> Option<Held> {
        let mut queue = self.shared.lock();
        let held = queue.waiting.remove(&spot);
        while held.is_none() && queue.current == Some(spot) {
            queue = self.shared.wait(queue);
        }
        held
    }

    /// Waits until everything is off.
    pub(crate) fn finish(&mut self) {
        self.shared.lock().ends = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic, and what it held is dropped if it does.
            let _ended = thread.join();
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    /// Nobody who holds the lock can leave the queue in between.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'q>(&self, queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        let woken = self.changed.wait(queue);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    fn let_go(&self, spot: Spot, held: Held) {
        if let Some(pins) = self.pins.get() {
            // A name that stays is found by the next daemon, which does not need it.
            let _unpinned = Held::unpin(pins, spot);
        }
        drop(held);
    }

    /// Takes off what comes, until nothing more will.
    fn work(&self) {
        let mut queue = self.lock();
        loop {
            if let Some((spot, held)) = queue.waiting.pop_first() {
                queue.current = Some(spot);
                drop(queue);
                self.let_go(spot, held); // this is what takes so long
                queue = self.lock();
                queue.current = None;
                self.changed.notify_all();
            } else if queue.ends {
                return;
            } else {
                queue = self.wait(queue);
            }
        }
    }
}

fn start(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name("tlg-detach".to_owned())
        .spawn(move || shared.work())
}
