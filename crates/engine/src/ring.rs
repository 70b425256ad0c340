//! The ring of events, and when its reader sleeps.
//!
//! Events do not wake the reader unless it has said that it sleeps: a wake-up costs the audited task
//! more than the whole event. So a busy machine is drained by a timer, and an idle one not at all.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use libbpf_rs::{AsRawLibbpf as _, RingBuffer, libbpf_sys};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Reader of the ring.
pub struct Ring<'a> {
    buffer: RingBuffer<'a>,
    waiting: NonNull<u32>,
    _engine: PhantomData<&'a ()>,
}

impl std::fmt::Debug for Ring<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Events have come.
    Events,
    /// The time is over; there may be events.
    Time,
    /// The descriptor given by the caller became readable.
    Caller,
}

impl<'a> Ring<'a> {
    pub(crate) const fn new(buffer: RingBuffer<'a>, waiting: NonNull<u32>) -> Self {
        Self {
            buffer,
            waiting,
            _engine: PhantomData,
        }
    }

    /// Hands at most `limit` events to the callback; returns how many.
    ///
    /// # Errors
    /// What the callback or the kernel answered.
    pub fn drain(&self, limit: usize) -> io::Result<usize> {
        let count = self.buffer.consume_raw_n(limit);
        usize::try_from(count).map_err(|_negative| io::Error::from_raw_os_error(-count))
    }

    /// Where in the stream of all events the next one will be put.
    #[must_use]
    pub fn produced(&self) -> u64 {
        self.with_ring(|ring| {
            // SAFETY: the ring belongs to the buffer, which is alive.
            unsafe { libbpf_sys::ring__producer_pos(ring) }
        })
    }

    /// Whether everything was taken that was put in front of a place in the stream.
    #[must_use]
    pub fn has_consumed(&self, place: u64) -> bool {
        let consumed = self.with_ring(|ring| {
            // SAFETY: the ring belongs to the buffer, which is alive.
            unsafe { libbpf_sys::ring__consumer_pos(ring) }
        });
        consumed >= place
    }

    /// Waits for `pause`, without looking at the ring, or until the caller's descriptor is readable.
    ///
    /// # Errors
    /// What `poll(2)` answered.
    pub fn pause(&self, caller: BorrowedFd<'_>, pause: Duration) -> io::Result<Wake> {
        let timeout = PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX);
        wait(&mut [PollFd::new(caller, PollFlags::POLLIN)], timeout)?;
        let ready = wait(
            &mut [PollFd::new(caller, PollFlags::POLLIN)],
            PollTimeout::ZERO,
        )?;
        Ok(if ready == 0 { Wake::Time } else { Wake::Caller })
    }

    /// Sleeps until an event comes, the caller's descriptor is readable, or `longest` is over; without
    /// `longest`, for as long as that takes.
    ///
    /// # Errors
    /// What `poll(2)` answered.
    pub fn sleep(&self, caller: BorrowedFd<'_>, longest: Option<Duration>) -> io::Result<Wake> {
        // SAFETY: the word is 4-byte aligned in the kernel side's mapped data, which lives as long as
        // the engine that this ring borrows from; both sides access it as one word only.
        let waiting = unsafe { AtomicU32::from_ptr(self.waiting.as_ptr()) };
        waiting.store(1, Ordering::Relaxed);
        // The other half of the agreement described in bpf/ring.bpf.h: flag first, then the ring.
        fence(Ordering::SeqCst);
        if self.has_events() {
            waiting.store(0, Ordering::Relaxed);
            return Ok(Wake::Events);
        }
        // SAFETY: libbpf keeps the descriptor open as long as the buffer lives.
        let ring = unsafe { BorrowedFd::borrow_raw(self.buffer.epoll_fd()) };
        let mut both = [
            PollFd::new(ring, PollFlags::POLLIN),
            PollFd::new(caller, PollFlags::POLLIN),
        ];
        // poll(2) counts milliseconds: waking before the time is over would be waking twice.
        let timeout = longest.map_or(PollTimeout::NONE, |longest| {
            let started = longest.saturating_add(Duration::from_nanos(999_999));
            PollTimeout::try_from(started).unwrap_or(PollTimeout::MAX)
        });
        let ready = wait(&mut both, timeout)?;
        waiting.store(0, Ordering::Relaxed);
        let [_, caller] = both;
        Ok(if caller.any().unwrap_or(false) {
            Wake::Caller
        } else if ready == 0 {
            Wake::Time
        } else {
            Wake::Events
        })
    }

    /// Whether anything is in the ring, finished or not.
    fn has_events(&self) -> bool {
        let size = self.with_ring(|ring| {
            // SAFETY: the ring belongs to the buffer, which is alive.
            unsafe { libbpf_sys::ring__avail_data_size(ring) }
        });
        size != 0
    }

    /// Asks libbpf about the ring; 0 when it has none.
    fn with_ring(&self, ask: impl FnOnce(*const libbpf_sys::ring) -> u64) -> u64 {
        // SAFETY: the buffer is alive and has one ring.
        let ring =
            unsafe { libbpf_sys::ring_buffer__ring(self.buffer.as_libbpf_object().as_ptr(), 0) };
        if ring.is_null() { 0 } else { ask(ring) }
    }
}

/// `poll(2)` that a signal does not end.
fn wait(fds: &mut [PollFd<'_>], timeout: PollTimeout) -> io::Result<i32> {
    loop {
        match poll(fds, timeout) {
            Err(nix::errno::Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
}
