//! Commands of other threads to `tlg-ring`, which owns the engine and the event stream: replace the plan, write a
//! record, report counters, end.
//!
//! Commands travel on a bounded channel; an eventfd wakes the thread. Senders wait while an earlier command is
//! executed: commands come from people, not from events. If the log is too slow, a command that finds no space in
//! time is refused.

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

/// Commands that may wait; the sender of another one waits up to [`LOG_TIMEOUT`].
const QUEUE_LENGTH: usize = 4;

/// Longest wait for a thread that waits for the log.
pub(crate) const LOG_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a command fails whose thread waits for the log.
pub(crate) const BUSY: &str = "the log is too slow: is the disk busy? repeat the command";
/// Why a command fails after the threads of the pipeline.
const ENDED: &str = "auditing has ended: `journalctl -u tollgate` has the reason; then run `systemctl restart tollgate`";

/// Result of a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplaceOutcome {
    /// Hooks attached from now on.
    pub(crate) attached: AttachedHooks,
}

/// A command to the ring thread.
pub(crate) enum RingCommand {
    /// Replace the plan.
    Replace(Box<ReplaceRequest>),
    /// Lock the BPF objects.
    Lock(Box<LockRequest>),
    /// Write a record into the event stream.
    Record(RecordBody),
    /// Answer when all events so far are in the log.
    Flush(Sender<FlushResult>),
    /// Answer the counters.
    Stats(Sender<RingStats>),
    /// End, and leave pinned objects to the next daemon.
    Leave,
    /// End.
    Stop,
}

/// Text of a record without its stamp.
#[derive(Clone, Debug)]
pub(crate) struct RecordBody {
    pub(crate) kind: MsgType,
    pub(crate) body: Vec<u8>,
}

/// Result of writing the batch.
pub(crate) type FlushResult = Result<(), String>;

/// A new plan, and the channel for the answer.
pub(crate) struct ReplaceRequest {
    pub(crate) plan: Plan,
    /// Takes one answer without blocking.
    pub(crate) answer: Sender<anyhow::Result<ReplaceOutcome>>,
}

/// A lock request, and the channel for the answer.
pub(crate) struct LockRequest {
    /// Lock note for the next daemon.
    pub(crate) snapshot: Vec<u8>,
    /// Files to protect besides the pinned objects.
    pub(crate) files: Vec<PathBuf>,
    /// Takes one answer without blocking.
    pub(crate) answer: Sender<anyhow::Result<LockResult>>,
}

/// Protected files that another process has open for writing, or why root's tools can change locked objects.
pub(crate) type LockResult = Result<Vec<PathBuf>, String>;

/// Sends commands. Clones send to the same thread.
#[derive(Clone, Debug)]
pub(crate) struct RingCommands {
    to: Sender<RingCommand>,
    waker: Arc<EventFd>,
}

/// Requests counters, one request at a time: an unanswered request stays open and is not repeated.
#[derive(Debug)]
pub(crate) struct StatsReader {
    ring_command_channel: RingCommands,
    /// Channel of an open request.
    open: Option<Receiver<RingStats>>,
}

/// Receives commands.
pub(crate) struct RingCommandReceiver {
    from: Receiver<RingCommand>,
    waker: Arc<EventFd>,
}

/// Creates the command channel.
///
/// # Errors
/// The eventfd cannot be created.
pub(crate) fn ring_command_channel() -> anyhow::Result<(RingCommands, RingCommandReceiver)> {
    // Semaphore mode: wakes once per command.
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE;
    let waker = EventFd::from_flags(flags).context("cannot create an eventfd")?;
    let waker = Arc::new(waker);
    let (to, from) = bounded(QUEUE_LENGTH);
    let ring_command_channel = RingCommands {
        to,
        waker: Arc::clone(&waker),
    };
    Ok((ring_command_channel, RingCommandReceiver { from, waker }))
}

impl RingCommands {
    /// Replaces the plan; returns when the new plan is active.
    ///
    /// # Errors
    /// The new plan cannot be applied, and the old plan stays active. Also when the pipeline has ended, or the log is
    /// too slow.
    pub(crate) fn replace(&self, plan: Plan) -> anyhow::Result<ReplaceOutcome> {
        let (answer, answered) = bounded(1);
        self.send(RingCommand::Replace(Box::new(ReplaceRequest {
            plan,
            answer,
        })))?;
        answered.recv().context(ENDED)?
    }

    /// Locks the BPF objects: `snapshot` is the note for the next daemon, `files` are protected too.
    ///
    /// # Errors
    /// The note cannot be stored, the pipeline has ended, or the log is too slow.
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
        answered.recv().context(ENDED)?
    }

    /// Writes a record after all events so far.
    ///
    /// # Errors
    /// The pipeline has ended, or the log is too slow.
    pub(crate) fn record(&self, kind: MsgType, body: Vec<u8>) -> anyhow::Result<()> {
        self.send(RingCommand::Record(RecordBody { kind, body }))
    }

    /// Waits until every event matched so far is in the log.
    ///
    /// # Errors
    /// The events cannot be written in time, or the pipeline has ended.
    pub(crate) fn flush(&self) -> anyhow::Result<()> {
        let (answer, answered) = bounded(1);
        self.send(RingCommand::Flush(answer))?;
        answered
            .recv_timeout(LOG_TIMEOUT)
            .context(BUSY)?
            .map_err(|error| anyhow::anyhow!("cannot write the log: {error}"))
    }

    /// Ends the pipeline; [`crate::pipeline::RunningPipeline::join`] waits for it.
    ///
    /// # Errors
    /// The eventfd cannot be written.
    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        self.end(RingCommand::Stop)
    }

    /// Ends the pipeline and leaves pinned objects to the next daemon.
    ///
    /// # Errors
    /// As [`RingCommands::stop`].
    pub(crate) fn leave_pinned(&self) -> anyhow::Result<()> {
        self.end(RingCommand::Leave)
    }

    fn end(&self, command: RingCommand) -> anyhow::Result<()> {
        match self.to.send(command) {
            Ok(()) => self.wake(),
            // It has already ended.
            Err(_) => Ok(()),
        }
    }

    fn send(&self, command: RingCommand) -> anyhow::Result<()> {
        self.send_within(command, LOG_TIMEOUT)
    }

    fn send_within(&self, command: RingCommand, patience: Duration) -> anyhow::Result<()> {
        match self.to.send_timeout(command, patience) {
            Ok(()) => self.wake(),
            Err(SendTimeoutError::Timeout(_)) => bail!(BUSY),
            Err(SendTimeoutError::Disconnected(_)) => bail!(ENDED),
        }
    }

    fn wake(&self) -> anyhow::Result<()> {
        self.waker.write(1).context("cannot wake the ring thread")?;
        Ok(())
    }
}

impl StatsReader {
    /// Requests over this channel.
    pub(crate) const fn new(ring_command_channel: RingCommands) -> Self {
        Self {
            ring_command_channel,
            open: None,
        }
    }

    /// Returns the counters of the ring thread.
    ///
    /// # Errors
    /// The thread is too busy, or the pipeline has ended.
    pub(crate) fn read(&mut self) -> anyhow::Result<RingStats> {
        if self.open.is_some() {
            // The answer to an old request is out of date.
            self.answer(LOG_TIMEOUT)?;
        }
        self.answer(LOG_TIMEOUT)
    }

    /// Whether the thread answers in time, be it an old request.
    pub(crate) fn is_answered(&mut self, patience: Duration) -> bool {
        self.answer(patience).is_ok()
    }

    /// Waits for the open request, or for a new one.
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
            Err(RecvTimeoutError::Disconnected) => bail!(ENDED),
        }
    }
}

impl RingCommandReceiver {
    /// The next command, if any. The descriptor stays readable while there are more.
    ///
    /// # Errors
    /// The eventfd cannot be read.
    pub(crate) fn next(&self) -> io::Result<Option<RingCommand>> {
        match self.waker.read() {
            Ok(_) | Err(Errno::EAGAIN) => Ok(self.from.try_recv().ok()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for RingCommandReceiver {
    /// Readable when a command may wait.
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

    /// A stalled ring thread takes no commands.
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
            RingCommand::Record(RecordBody {
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
