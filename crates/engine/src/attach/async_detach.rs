//! Detaches programs in a background thread.
//!
//! Detaching a program takes the kernel about 100 ms, until no CPU can run it, and programs are detached one
//! after the other: `event_mutex` is held meanwhile for perf events (`perf_trace_destroy()`), `direct_mutex` for
//! programs on functions. Attaching takes the same lock, so the thread pauses meanwhile. A link that is needed
//! again before its turn is taken back from the queue, because the kernel does not attach a program twice.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use crate::attach::{AttachedLink, Links};
use crate::handover::pins::PinDirectory;
use crate::hooks::attach_point::AttachPoint;

/// The queue and its thread, which starts with the first detach.
#[derive(Debug, Default)]
pub(crate) struct AsyncDetach {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Directory with the pins of the links, if any.
    pins: OnceLock<PinDirectory>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Links to detach; bounded by the number of attach points.
#[derive(Default)]
struct Queue {
    waiting: Links,
    /// The attach point being detached now.
    current: Option<AttachPoint>,
    /// No more links will be queued.
    closed: bool,
    /// Programs are being attached.
    paused: bool,
}

/// Keeps the thread from detaching the next link until it is dropped.
#[must_use]
pub(crate) struct Pause(Arc<Shared>);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.lock().paused = false;
        self.0.changed.notify_all();
    }
}

impl AsyncDetach {
    /// Sets the directory whose pins are removed with the links.
    pub(crate) fn set_pins(&self, pins: PinDirectory) {
        // An engine has one directory; a second call changes nothing.
        let _result = self.shared.pins.set(pins);
    }

    /// Queues links for detaching; detaches them at once when no thread can start.
    pub(crate) fn detach(&mut self, links: Links) {
        if links.is_empty() {
            return;
        }
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            self.thread = start(shared).ok();
        }
        if self.thread.is_some() {
            self.shared.lock().waiting.extend(links);
            self.shared.changed.notify_all();
        } else {
            for (attach_point, link) in links {
                self.shared.detach_now(attach_point, link);
            }
        }
    }

    /// Takes a link back that is not detached yet. Returns `None` when it is detached; if it is being detached
    /// now, waits for that first.
    pub(crate) fn cancel(&self, attach_point: AttachPoint) -> Option<AttachedLink> {
        let mut queue = self.shared.lock();
        let link = queue.waiting.remove(&attach_point);
        while link.is_none() && queue.current == Some(attach_point) {
            queue = self.shared.wait(queue);
        }
        link
    }

    /// Whether a link waits to be detached. Waits for one that is being detached now: until then its program runs.
    pub(crate) fn holds(&self, attach_point: AttachPoint) -> bool {
        let mut queue = self.shared.lock();
        while queue.current == Some(attach_point) {
            queue = self.shared.wait(queue);
        }
        queue.waiting.contains_key(&attach_point)
    }

    /// Lets programs be attached without waiting for more than the link being detached now.
    pub(crate) fn pause(&self) -> Pause {
        self.shared.lock().paused = true;
        Pause(Arc::clone(&self.shared))
    }

    /// Takes back all links that are not detached yet.
    pub(crate) fn take_waiting(&self) -> Links {
        std::mem::take(&mut self.shared.lock().waiting)
    }

    /// Waits until all queued links are detached.
    pub(crate) fn wait_all(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic. If it did, its links would be dropped, which detaches them.
            let _result = thread.join();
        }
    }
}

impl Drop for AsyncDetach {
    fn drop(&mut self) {
        self.wait_all();
    }
}

impl Shared {
    /// Locks the queue. Poison is ignored: every critical section leaves the queue consistent.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'q>(&self, queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        let woken = self.changed.wait(queue);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    fn detach_now(&self, attach_point: AttachPoint, link: AttachedLink) {
        if let Some(pins) = self.pins.get() {
            // The next daemon adopts a pin that stays, and detaches it when its plan does not need it.
            let _result = AttachedLink::unpin(pins, attach_point);
        }
        drop(link);
    }

    /// Thread: detaches queued links until the queue is closed and empty.
    fn run(&self) {
        let mut queue = self.lock();
        loop {
            if !queue.paused
                && let Some((attach_point, link)) = queue.waiting.pop_first()
            {
                queue.current = Some(attach_point);
                drop(queue);
                self.detach_now(attach_point, link); // about 100 ms, without the lock
                queue = self.lock();
                queue.current = None;
                self.changed.notify_all();
            } else if queue.closed && queue.waiting.is_empty() {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::hooks::attach_point::AttachTarget;
    use crate::hooks::program::Program;

    /// Until it is detached, a program still records: the same call must not get another one.
    #[test]
    fn link_being_detached_is_awaited() {
        let attach_point = AttachPoint {
            program: Program::SysExitTp,
            target: AttachTarget::Tracepoint(1),
        };
        let detacher = AsyncDetach::default();
        detacher.shared.lock().current = Some(attach_point);
        let shared = Arc::clone(&detacher.shared);
        let thread = thread::spawn(move || {
            thread::park_timeout(Duration::from_millis(20));
            shared.lock().current = None;
            shared.changed.notify_all();
        });
        assert!(!detacher.holds(attach_point));
        assert_eq!(detacher.shared.lock().current, None, "it was not awaited");
        thread.join().unwrap();
    }
}
