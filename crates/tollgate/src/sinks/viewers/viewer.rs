//! One viewer: its filter, its queue and its socket.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::facts::EventFacts;
use super::filter::EventFilter;
use super::sampler::Sampler;
use super::{NewViewer, is_retryable};

/// Limit of waiting text; further events are lost to this viewer.
pub(super) const QUEUE_BYTES: usize = 1 << 20;
/// Time between two notices about skipped events.
const NOTICE_INTERVAL: Duration = Duration::from_millis(250);

/// A viewer.
#[derive(Debug)]
pub(super) struct Viewer {
    stream: UnixStream,
    pub(super) pid: i32,
    pub(super) is_root: bool,
    filter: EventFilter,
    sampler: Option<Sampler>,
    output: Vec<u8>,
    /// Bytes of the output that are already written.
    written: usize,
    /// Events that the viewer wanted, and has not been told about.
    lost: u64,
    skipped: u64,
    /// When the last notice was queued.
    noticed: Instant,
    now: Instant,
    /// Since when the socket is full.
    blocked: Option<Instant>,
}

impl Viewer {
    /// Admits a viewer.
    pub(super) fn new(new: NewViewer) -> Self {
        let now = Instant::now();
        Self {
            stream: new.stream,
            pid: new.pid,
            is_root: new.is_root,
            filter: new.filter,
            sampler: new.sample.map(|sample| Sampler::new(sample, now)),
            output: new.welcome,
            written: 0,
            lost: 0,
            skipped: 0,
            noticed: now,
            now,
            blocked: None,
        }
    }

    /// Whether it wants every event, so that facts need not be read.
    pub(super) fn wants_all(&self) -> bool {
        self.filter.is_empty()
    }

    /// Begins a buffer of events, after `missed` events that no viewer got.
    pub(super) fn begin(&mut self, missed: u64, now: Instant) {
        self.now = now;
        self.lost += missed;
        if let Some(sampler) = &mut self.sampler {
            sampler.advance(now);
        }
    }

    /// Whether to queue an event. `facts` are those of the event, if any viewer has a filter.
    pub(super) fn takes(&mut self, facts: Option<&EventFacts<'_>>) -> bool {
        let is_wanted = facts.is_none_or(|facts| self.wants_all() || self.filter.matches(facts));
        let is_skipped = is_wanted
            && self
                .sampler
                .as_mut()
                .is_some_and(|sampler| !sampler.takes());
        self.skipped += u64::from(is_skipped);
        is_wanted && !is_skipped
    }

    /// Queues an event if there is room.
    pub(super) fn queue(&mut self, event: &[u8]) {
        if self.waiting() + event.len() > QUEUE_BYTES {
            self.lost += 1;
            return;
        }
        if self.lost != 0 {
            self.notice();
        }
        self.output.extend_from_slice(event);
    }

    /// Writes what the socket takes.
    ///
    /// # Errors
    /// The viewer has gone.
    pub(super) fn write(&mut self) -> io::Result<()> {
        self.write_queue()?;
        let is_due = self.lost != 0
            || self.skipped != 0 && self.now.duration_since(self.noticed) >= NOTICE_INTERVAL;
        if is_due && self.waiting() < QUEUE_BYTES {
            self.notice();
            self.write_queue()?;
        }
        Ok(())
    }

    fn write_queue(&mut self) -> io::Result<()> {
        while let Some(rest) = self
            .output
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            match self.stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count;
                    self.blocked = None;
                }
                Err(error) if is_retryable(&error) => {
                    self.blocked.get_or_insert_with(Instant::now);
                    if self.has_gone() {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.output.drain(..self.written);
        self.written = 0;
        if self.output.is_empty() && self.has_gone() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }

    /// Queues a notice about the events that this viewer lacks.
    fn notice(&mut self) {
        let Self { lost, skipped, .. } = *self;
        // Writing to a vector cannot fail.
        let _ok = writeln!(
            self.output,
            "{{\"missed\":{{\"lost\":{lost},\"skipped\":{skipped}}}}}"
        );
        (self.lost, self.skipped, self.noticed) = (0, 0, self.now);
    }

    /// Text that waits for the socket.
    const fn waiting(&self) -> usize {
        self.output.len() - self.written
    }

    /// How long the viewer has read nothing although there is something to read.
    pub(super) fn blocked_time(&self) -> Duration {
        self.blocked.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// What to wait for: room in the socket if something waits, and the end of the connection.
    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        let events = if self.waiting() == 0 {
            PollFlags::empty()
        } else {
            PollFlags::POLLOUT
        };
        PollFd::new(self.stream.as_fd(), events)
    }

    /// Whether the viewer has closed its end. Half a connection stays: what a viewer sends is never read.
    pub(super) fn has_gone(&self) -> bool {
        let mut state = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        let ready = poll(&mut state, PollTimeout::ZERO);
        ready.is_ok_and(|ready| ready != 0)
    }
}
