//! Takes programs off their places without making anybody wait.
//!
//! The kernel needs some 100 ms to be sure that nobody runs a program that was taken off, one after the
//! other. A thread of its own waits for that. What is wanted again before its turn comes is given back: the
//! kernel refuses a program that is still in its place.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use crate::attach::{AttachedLink, Links};
use crate::handover::pins::PinDirectory;
use crate::hooks::attach_point::AttachPoint;

/// The thread that waits, once there was something to take off.
#[derive(Debug, Default)]
pub(crate) struct AsyncDetach {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Where they are pinned.
    pins: OnceLock<PinDirectory>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// What is to be taken off: no more than there are attach points.
#[derive(Default)]
struct Queue {
    waiting: Links,
    /// What is being taken off now.
    current: Option<AttachPoint>,
    /// Nothing more will come.
    closed: bool,
}

impl AsyncDetach {
    /// Takes the names away, too, that programs have there.
    pub(crate) fn set_pins(&self, pins: PinDirectory) {
        // It is said once.
        let _said = self.shared.pins.set(pins);
    }

    /// Takes programs off in the background; at once where there can be no thread.
    pub(crate) fn detach(&mut self, link: Links) {
        if link.is_empty() {
            return;
        }
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            self.thread = start(shared).ok();
        }
        if self.thread.is_some() {
            self.shared.lock().waiting.extend(link);
            self.shared.changed.notify_all();
        } else {
            for (attach_point, link) in link {
                self.shared.detach_now(attach_point, link);
            }
        }
    }

    /// Gives back what has not been taken off yet. Nothing when it is off: waits until that is so when it is
    /// just being taken off.
    pub(crate) fn cancel(&self, attach_point: AttachPoint) -> Option<AttachedLink> {
        let mut queue = self.shared.lock();
        let link = queue.waiting.remove(&attach_point);
        while link.is_none() && queue.current == Some(attach_point) {
            queue = self.shared.wait(queue);
        }
        link
    }

    /// Waits until everything is off.
    pub(crate) fn wait_all(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic, and what it link is dropped if it does.
            let _ended = thread.join();
        }
    }
}

impl Drop for AsyncDetach {
    fn drop(&mut self) {
        self.wait_all();
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

    fn detach_now(&self, attach_point: AttachPoint, link: AttachedLink) {
        if let Some(pins) = self.pins.get() {
            // A name that stays is found by the next daemon, which does not need it.
            let _unpinned = AttachedLink::unpin(pins, attach_point);
        }
        drop(link);
    }

    /// Takes off what comes, until nothing more will.
    fn run(&self) {
        let mut queue = self.lock();
        loop {
            if let Some((attach_point, link)) = queue.waiting.pop_first() {
                queue.current = Some(attach_point);
                drop(queue);
                self.detach_now(attach_point, link); // this is what takes so long
                queue = self.lock();
                queue.current = None;
                self.changed.notify_all();
            } else if queue.closed {
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
        .spawn(move || shared.run())
}
