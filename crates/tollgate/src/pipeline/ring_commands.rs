//! What other threads ask of `tlg-ring`, which owns the engine and the stream: other rules, a record, what
//! it has counted, or the end.
//!
//! Orders travel on a bounded channel; an eventfd wakes the thread, which may be asleep. Whoever orders
//! waits while an earlier order is carried out: orders come from people, not from events. Where the log does not
//! keep up, an order that finds no room in time is not given.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use audit::ids::MsgType;
use audit::plan::Plan;
use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};
use engine::AttachedHooks;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::pipeline::ring_thread::RingStats;

/// Orders that wait to be carried out; who gives one more waits, for [`LOG_TIMEOUT`] at most.
const QUEUE_LENGTH: usize = 4;

/// How long to wait for what only waits for the log.
pub(crate) const LOG_TIMEOUT: Duration = Duration::from_secs(10);

const BUSY: &str = "the log does not keep up";

/// What a replacement has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplaceOutcome {
    /// What is attached from now on.
    pub(crate) attached: AttachedHooks,
}

/// What is ordered.
pub(crate) enum RingCommand {
    /// To audit by another plan.
    Replace(Box<ReplaceRequest>),
    /// To lock what audits.
    Lock(Box<LockRequest>),
    /// To write a record of its own into the stream of events.
    Record(Record),
    /// To tell when all events so far are in the log.
    Flush(Sender<FlushResult>),
    /// To tell what it has counted so far.
    Stats(Sender<RingStats>),
    /// To end, and leave what audits to the next daemon where that can be.
    Leave,
    /// To end.
    Stop,
}

/// The text of a record without its stamp.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) kind: MsgType,
    pub(crate) body: Vec<u8>,
}

/// What became of the text that was passed on with it.
pub(crate) type FlushResult = Result<(), String>;

/// Another plan, and who waits for it.
pub(crate) struct ReplaceRequest {
    pub(crate) plan: Plan,
    /// Takes one answer without waiting.
    pub(crate) answer: Sender<anyhow::Result<ReplaceOutcome>>,
}

/// What is locked, and who waits for it.
pub(crate) struct LockRequest {
    /// For daemons that come after this one.
    pub(crate) snapshot: Vec<u8>,
    /// What is written beside what is pinned.
    pub(crate) files: Vec<PathBuf>,
    /// Takes one answer without waiting.
    pub(crate) answer: Sender<anyhow::Result<LockResult>>,
}

/// Whether what is locked is kept from root's own tools, or why not.
pub(crate) type LockResult = Result<(), String>;

/// Gives orders. Clones give orders to the same thread.
#[derive(Clone, Debug)]
pub(crate) struct RingCommands {
    to: Sender<RingCommand>,
    waker: Arc<EventFd>,
}

/// Asks for accounts, one at a time: an order that is not carried out in time stays, and there is no second one
/// beside it.
#[derive(Debug)]
pub(crate) struct StatsReader {
    ring_command_channel: RingCommands,
    /// Where the answer comes to a question that was given up.
    open: Option<Receiver<RingStats>>,
}

/// Takes orders.
pub(crate) struct RingCommandReceiver {
    from: Receiver<RingCommand>,
    waker: Arc<EventFd>,
}

/// Both ends.
///
/// # Errors
/// When the kernel has no eventfd to give.
pub(crate) fn ring_command_channel() -> anyhow::Result<(RingCommands, RingCommandReceiver)> {
    // A semaphore: it wakes once for each order.
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE;
    let waker = EventFd::from_flags(flags).context("cannot make an eventfd")?;
    let waker = Arc::new(waker);
    let (to, from) = bounded(QUEUE_LENGTH);
    let ring_command_channel = RingCommands {
        to,
        waker: Arc::clone(&waker),
    };
    Ok((ring_command_channel, RingCommandReceiver { from, waker }))
}

impl RingCommands {
    /// Has events chosen by another plan from now on; returns when that is so.
    ///
    /// # Errors
    /// What kept the new plan from being put in force: the old one is in force then, whole. Also when
    /// the pipeline has ended, or takes no order because the log does not keep up.
    pub(crate) fn replace(&self, plan: Plan) -> anyhow::Result<ReplaceOutcome> {
        let (answer, answered) = bounded(1);
        self.send(RingCommand::Replace(Box::new(ReplaceRequest {
            plan,
            answer,
        })))?;
        answered.recv().context("auditing has ended")?
    }

    /// Has what audits locked: `snapshot` is for daemons that come after this one, the files are to be guarded.
    ///
    /// # Errors
    /// When it cannot be noted, or the pipeline has ended, or takes no order because the log does not keep up.
    pub(crate) fn lock(
        &self,
        snapshot: Vec<u8>,
        files: Vec<PathBuf>,
    ) -> anyhow::Result<LockResult> {
        let (answer, answered) = bounded(1);
        self.send(RingCommand::Lock(Box::new(LockRequest {
            snapshot,
            files,
            answer,
        })))?;
        answered.recv().context("auditing has ended")?
    }

    /// Has a record written after all events so far.
    ///
    /// # Errors
    /// When the pipeline has ended, or takes no order because the log does not keep up.
    pub(crate) fn record(&self, kind: MsgType, body: Vec<u8>) -> anyhow::Result<()> {
        self.send(RingCommand::Record(Record { kind, body }))
    }

    /// Returns when every event matched so far is in the log.
    ///
    /// # Errors
    /// When they could not be written, when that takes too long, or when the pipeline has ended.
    pub(crate) fn flush(&self) -> anyhow::Result<()> {
        let (answer, answered) = bounded(1);
        self.send(RingCommand::Flush(answer))?;
        answered
            .recv_timeout(LOG_TIMEOUT)
            .context(BUSY)?
            .map_err(|error| anyhow::anyhow!("the log cannot be written to: {error}"))
    }

    /// Has the pipeline end; [`crate::pipeline::RunningPipeline::join`] waits for it.
    ///
    /// # Errors
    /// When the eventfd cannot be written to.
    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        self.end(RingCommand::Stop)
    }

    /// Has the pipeline end, and what audits go on where it is pinned.
    ///
    /// # Errors
    /// As [`RingCommands::stop`].
    pub(crate) fn leave(&self) -> anyhow::Result<()> {
        self.end(RingCommand::Leave)
    }

    fn end(&self, order: RingCommand) -> anyhow::Result<()> {
        match self.to.send(order) {
            Ok(()) => self.wake(),
            // It has ended by itself.
            Err(_) => Ok(()),
        }
    }

    fn send(&self, order: RingCommand) -> anyhow::Result<()> {
        self.send_within(order, LOG_TIMEOUT)
    }

    fn send_within(&self, order: RingCommand, patience: Duration) -> anyhow::Result<()> {
        match self.to.send_timeout(order, patience) {
            Ok(()) => self.wake(),
            Err(SendTimeoutError::Timeout(_)) => bail!(BUSY),
            Err(SendTimeoutError::Disconnected(_)) => bail!("auditing has ended"),
        }
    }

    fn wake(&self) -> anyhow::Result<()> {
        self.waker
            .write(1)
            .context("cannot wake the thread of the ring")?;
        Ok(())
    }
}

impl StatsReader {
    /// Asks by these orders.
    pub(crate) const fn new(ring_command_channel: RingCommands) -> Self {
        Self {
            ring_command_channel,
            open: None,
        }
    }

    /// What the ring thread has counted so far.
    ///
    /// # Errors
    /// When it is too busy to say, or the pipeline has ended.
    pub(crate) fn read(&mut self) -> anyhow::Result<RingStats> {
        if self.open.is_some() {
            // What was counted for a question of long ago is no answer to this one.
            self.answer(LOG_TIMEOUT)?;
        }
        self.answer(LOG_TIMEOUT)
    }

    /// Whether it answers within such a time, be it what was asked before.
    pub(crate) fn is_answered(&mut self, patience: Duration) -> bool {
        self.answer(patience).is_ok()
    }

    /// The answer to the question that is open, or to a new one.
    fn answer(&mut self, patience: Duration) -> anyhow::Result<RingStats> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let (answer, open) = bounded(1);
                self.ring_command_channel
                    .send_within(RingCommand::Stats(answer), patience)?;
                open
            }
        };
        match open.recv_timeout(patience) {
            Ok(drained) => Ok(drained),
            Err(RecvTimeoutError::Timeout) => {
                self.open = Some(open);
                bail!(BUSY)
            }
            Err(RecvTimeoutError::Disconnected) => bail!("auditing has ended"),
        }
    }
}

impl RingCommandReceiver {
    /// The next order, if there is one. The descriptor stays readable while there are more.
    ///
    /// # Errors
    /// When the eventfd cannot be read.
    pub(crate) fn next(&self) -> io::Result<Option<RingCommand>> {
        match self.waker.read() {
            Ok(_) | Err(Errno::EAGAIN) => Ok(self.from.try_recv().ok()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for RingCommandReceiver {
    /// Readable when there may be an order.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn commands_are_answered_in_order() {
        let (ring_command_channel, taken) = ring_command_channel().unwrap();
        let asking = thread::spawn(move || {
            let refused = ring_command_channel.replace(Plan::default()).unwrap_err();
            ring_command_channel.stop().unwrap();
            refused.to_string()
        });
        let mut waker = [nix::poll::PollFd::new(
            taken.as_fd(),
            nix::poll::PollFlags::POLLIN,
        )];
        nix::poll::poll(&mut waker, nix::poll::PollTimeout::NONE).unwrap();
        let Some(RingCommand::Replace(replace)) = taken.next().unwrap() else {
            panic!("no plan came");
        };
        replace
            .answer
            .send(Err(anyhow::anyhow!("not these")))
            .unwrap();
        nix::poll::poll(&mut waker, nix::poll::PollTimeout::NONE).unwrap();
        assert!(matches!(taken.next().unwrap(), Some(RingCommand::Stop)));
        assert!(taken.next().unwrap().is_none());
        assert_eq!(asking.join().unwrap(), "not these");
    }

    /// As when the log stalls: nobody takes orders.
    #[test]
    fn stats_request_times_out_and_is_not_repeated() {
        const SHORT: Duration = Duration::from_millis(1);
        let (ring_command_channel, taken) = ring_command_channel().unwrap();
        let mut accounts = StatsReader::new(ring_command_channel.clone());
        for _ in 0..=QUEUE_LENGTH {
            assert!(!accounts.is_answered(SHORT));
        }
        let Some(RingCommand::Stats(answer)) = taken.next().unwrap() else {
            panic!("nothing was asked");
        };
        assert!(taken.next().unwrap().is_none(), "it was asked twice");
        answer.send(RingStats::default()).unwrap();
        assert!(accounts.is_answered(SHORT), "the answer is lost");
        let record = || {
            RingCommand::Record(Record {
                kind: MsgType::USER,
                body: Vec::new(),
            })
        };
        for _ in 0..QUEUE_LENGTH {
            ring_command_channel.send_within(record(), SHORT).unwrap();
        }
        let full = ring_command_channel
            .send_within(record(), SHORT)
            .unwrap_err();
        assert_eq!(full.to_string(), BUSY);
        assert!(!accounts.is_answered(SHORT));
        for _ in 0..QUEUE_LENGTH {
            assert!(matches!(
                taken.next().unwrap(),
                Some(RingCommand::Record(_))
            ));
        }
        assert!(taken.next().unwrap().is_none(), "what was refused is given");
    }

    #[test]
    fn commands_fail_when_the_ring_thread_has_ended() {
        let (ring_command_channel, taken) = ring_command_channel().unwrap();
        drop(taken);
        ring_command_channel.replace(Plan::default()).unwrap_err();
        ring_command_channel.stop().unwrap();
    }
}
