//! Records to the listener of a stock `auditd` (`tcp_listen_port`), in the managed format of `audisp-remote`.
//!
//! [`message`] is what a frame becomes, [`answer`] what the listener says to it. Each message has a sequence, which its
//! answer repeats. The stock program waits for each answer; here, up to [`MAX_WINDOW`] messages wait for theirs, since the
//! listener reads, writes and answers in order. It drops answers for which its socket has no room: after one that did not
//! come, fewer messages wait.
//!
//! Frames are confirmed when all messages of a batch are answered. Heartbeats are those of the protocol, and keep the
//! connection.
//!
//! # Source
//! audit-userspace 3.0.9 and 4.2.1: `src/auditd-listen.c`, `src/auditd-event.c`.

mod answer;
mod message;

use std::io::{self, Read as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};

use crate::frame::{Frame, Record};
use crate::managed_frame::{self, FrameHeader, HEARTBEAT, MESSAGE};
use crate::sink::{Refusal, Sink};
use crate::transport::{DeadlineStream, not_connected};
use answer::AnswerError;
use message::{Extent, MAX_MESSAGE_BYTES};

/// Most messages that wait for their answers, and about as many are sent at once. Answers have 16 bytes each, for which the
/// buffers of sockets have room.
const MAX_WINDOW: usize = 1024;
/// Bytes that are sent at once.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes of one read.
const READ_BYTES: usize = 4 << 10;

/// A listener.
pub(crate) struct AuditdSink {
    /// `HOST:PORT`.
    address: String,
    /// Longest wait for an answer.
    timeout: Duration,
    stream: Option<DeadlineStream>,
    /// Messages that were not sent.
    batch: Vec<u8>,
    /// Where each message ends in the batch.
    ends: Vec<usize>,
    /// A message that is being made.
    message: Vec<u8>,
    /// Sequence of the first message of the batch.
    first: u32,
    /// Bytes of answers that were read and not taken.
    answers: Vec<u8>,
    /// Messages that may wait for their answers.
    window: usize,
    /// Frames that were put, and those that are confirmed.
    frames: u64,
    confirmed: u64,
    refusal: Option<Refusal>,
}

impl AuditdSink {
    pub(crate) const fn new(address: String, timeout: Duration) -> Self {
        Self {
            address,
            timeout,
            stream: None,
            batch: Vec::new(),
            ends: Vec::new(),
            message: Vec::new(),
            first: 0,
            answers: Vec::new(),
            window: MAX_WINDOW,
            frames: 0,
            confirmed: 0,
            refusal: None,
        }
    }

    /// Adds the message that was made.
    fn push(&mut self, kind: u32) {
        let sequence = self.sequence(self.ends.len());
        managed_frame::append(kind, sequence, &self.message, &mut self.batch);
        self.ends.push(self.batch.len());
    }

    /// Sequence of a message of the batch.
    fn sequence(&self, number: usize) -> u32 {
        self.first
            .wrapping_add(u32::try_from(number).unwrap_or(u32::MAX))
    }

    /// Sends the batch, and waits for all answers.
    ///
    /// # Errors
    /// The listener is gone, or does not store a record.
    fn send(&mut self) -> Result<(), AnswerError> {
        let count = self.ends.len();
        let (mut sent, mut answered) = (0, 0);
        while answered < count {
            if sent - answered <= self.window / 2 {
                let next = count.min(answered + self.window);
                self.write(sent, next)?;
                sent = next;
            }
            if let Some(warning) = self.answer(self.sequence(answered))? {
                self.warn(warning);
            }
            answered += 1;
        }
        self.first = self.sequence(count);
        Ok(())
    }

    /// Sends messages of the batch, from a number up to another.
    fn write(&mut self, from: usize, to: usize) -> Result<(), AnswerError> {
        let end = |count: usize| match count.checked_sub(1) {
            Some(last) => self.ends.get(last).copied().unwrap_or_default(),
            None => 0,
        };
        let bytes = self.batch.get(end(from)..end(to)).unwrap_or_default();
        let stream = self.stream.as_mut().ok_or_else(not_connected)?;
        stream.set_deadline(Instant::now() + self.timeout);
        stream
            .write_all(bytes)
            .map_err(|error| of(error, self.timeout))
    }

    /// Waits for the answer to a message; returns what it warns of.
    fn answer(&mut self, expected: u32) -> Result<Option<String>, AnswerError> {
        let stream = self.stream.as_mut().ok_or_else(not_connected)?;
        stream.set_deadline(Instant::now() + self.timeout);
        loop {
            if let Some(header) = FrameHeader::decode(&self.answers)?
                && let Some(body) = header.body(&self.answers)
            {
                let meaning = answer::meaning(header.kind, header.sequence, expected, body);
                self.answers.drain(..header.frame_bytes());
                return meaning;
            }
            let mut buffer = [0; READ_BYTES];
            let read = match stream.read(&mut buffer) {
                Ok(0) => return Err(AnswerError::Closed),
                Ok(read) => read,
                Err(error) => return Err(of(error, self.timeout)),
            };
            self.answers
                .extend_from_slice(buffer.get(..read).unwrap_or_default());
        }
    }

    fn warn(&mut self, warning: String) {
        let refusal = self.refusal.get_or_insert_default();
        if refusal.cut == 0 {
            refusal.reason = warning;
        }
    }

    /// Gives the connection up, and says what has failed where.
    fn failed(&mut self, error: AnswerError) -> anyhow::Error {
        self.stream = None;
        anyhow!(error).context(format!("auditd at `{}`", self.address))
    }
}

/// What has failed in a call of the socket.
fn of(error: io::Error, timeout: Duration) -> AnswerError {
    match error.kind() {
        io::ErrorKind::TimedOut => AnswerError::Late(timeout),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => AnswerError::Closed,
        _ => error.into(),
    }
}

impl Sink for AuditdSink {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.disconnect();
        self.stream = Some(DeadlineStream::connect(&self.address, None, self.timeout)?);
        Ok(())
    }

    fn put(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        match frame.record {
            Record::Event(event) => {
                let lines = event.text().split(|&byte| byte == b'\n');
                for line in lines.filter(|line| !line.is_empty()) {
                    match message::record(frame.host, line, &mut self.message) {
                        Extent::Left => continue,
                        Extent::Whole => {}
                        Extent::Cut => {
                            let refusal = self.refusal.get_or_insert_default();
                            refusal.cut += 1;
                            refusal.reason = format!(
                                "a record of event {} has {} bytes, and auditd takes {MAX_MESSAGE_BYTES}, with the node",
                                event.serial().0,
                                line.len()
                            );
                        }
                    }
                    self.push(MESSAGE);
                }
            }
            Record::Gap(gap) => {
                message::gap(frame.host, gap, &mut self.message).context("cannot write a gap")?;
                self.push(MESSAGE);
            }
            Record::Heartbeat(_) => {
                self.message.clear();
                self.push(HEARTBEAT);
            }
        }
        self.frames += 1;
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= self.window || self.batch.len() >= BATCH_BYTES
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        if let Err(error) = self.send() {
            if error.is_lost_answer() {
                self.window = (self.window / 2).max(1);
            }
            return Err(self.failed(error));
        }
        if !self.ends.is_empty() {
            self.window = MAX_WINDOW.min(self.window + 1);
        }
        self.batch.clear();
        self.ends.clear();
        self.confirmed = self.frames;
        Ok(())
    }

    fn confirmed(&mut self) -> anyhow::Result<u64> {
        // All messages are answered: what comes is the end.
        if self.stream.as_mut().is_some_and(DeadlineStream::is_stale) {
            let error = match self.answer(self.first) {
                Ok(_) => AnswerError::Unasked,
                Err(error) => error,
            };
            return Err(self.failed(error));
        }
        Ok(self.confirmed)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.flush()?;
        self.stream = None;
        Ok(())
    }

    fn disconnect(&mut self) {
        self.stream = None;
        // A destination that is away holds no memory.
        self.batch = Vec::new();
        self.ends = Vec::new();
        self.message = Vec::new();
        self.answers = Vec::new();
        self.refusal = None;
        (self.first, self.frames, self.confirmed) = (1, 0, 0);
    }

    fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }
}

#[cfg(test)]
mod tests;
