//! Takes programs off their places without making anybody wait.
//!
//! The kernel needs some 100 ms to be sure that nobody runs a program that was taken off, one after the
//! other. A thread of its own waits for that.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use crate::attach::Held;

/// The thread that waits, once there was something to take off.
#[derive(Debug, Default)]
pub(crate) struct Reaper(Option<Thread>);

#[derive(Debug)]
struct Thread {
    to: Sender<Held>,
    handle: JoinHandle<()>,
}

impl Reaper {
    /// Takes programs off in the background; at once where there can be no thread. What is taken off is
    /// bounded by what was attached.
    pub(crate) fn take_off(&mut self, held: impl IntoIterator<Item = Held>) {
        let mut held = held.into_iter().peekable();
        if held.peek().is_none() {
            return;
        }
        if self.0.is_none() {
            self.0 = Thread::start().ok();
        }
        for held in held {
            if let Some(thread) = &self.0 {
                // A thread that is gone gives it back, and it is dropped here.
                let _back = thread.to.send(held);
            }
        }
    }

    /// Waits until everything is off.
    pub(crate) fn finish(&mut self) {
        if let Some(thread) = self.0.take() {
            drop(thread.to);
            // It does nothing that could panic, and what it held is dropped if it does.
            let _ended = thread.handle.join();
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Thread {
    fn start() -> io::Result<Self> {
        let (to, from) = channel::<Held>();
        let handle = thread::Builder::new()
            .name("tlg-detach".to_owned())
            .spawn(move || from.into_iter().for_each(drop))?;
        Ok(Self { to, handle })
    }
}
