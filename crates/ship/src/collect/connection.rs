//! The connection of a peer.
//!
//! ```text
//! socket --> decode --> check --> lines of one host --> its log --> answers --> socket
//! ```
//!
//! Bytes are read while all answers could be sent: a peer that does not read its answers is not read either. Memory is
//! bounded by one read and a frame that is not complete. [`requests`] has those of HTTP.

mod end;
mod requests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bstr::BStr;

use super::body_memory::{BodyMemory, Reservation};
use super::frame::{Answer, Format, MAX_SYSLOG_BYTES, Message, decode};
use super::hosts::{Hosts, Lines, Refusal, WriteError, describe};
use super::peers::Writes;
use super::progress::LastRecord;
use super::repeated::Repeated;
use super::shipped::{Kind, ShippedMessage};
use super::stream::PeerStream;
use super::{syslog, tls};
use crate::output::now_ms;
pub(super) use end::End;

/// Bytes of one read.
pub(super) const READ_BYTES: usize = 64 << 10;

/// What the event loop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// For bytes.
    Readable,
    /// For room to send answers.
    Writable,
    /// For the disk; bytes stay where they are.
    Disk,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: PeerStream,
    pub(super) address: IpAddr,
    /// `None` until the certificate of the peer is known.
    writes: Option<Arc<Writes>>,
    format: Option<Format>,
    /// Bytes that were read and not taken.
    rest: Vec<u8>,
    /// Answers that were not sent.
    answers: Vec<u8>,
    is_waiting_for_disk: bool,
    memory: BodyMemory,
    /// Memory for a request that is not complete.
    body: Option<Reservation>,
    /// Since when no more is taken, because the last answer was given; what comes is dropped.
    last_answer_at: Option<Instant>,
    repeated: Repeated,
    /// When a message came last, or the connection.
    message_at: Instant,
    /// Since when a frame is not complete, or an answer not sent.
    stuck_since: Option<Instant>,
    /// Host of the last line, for `status`.
    host: Option<String>,
}

impl Connection {
    /// A connection that was accepted. The certificate of the peer says what it writes if `writes` does not.
    pub(super) fn new(
        stream: PeerStream,
        address: IpAddr,
        writes: Option<Writes>,
        memory: BodyMemory,
    ) -> Self {
        Self {
            stream,
            address,
            writes: writes.map(Arc::new),
            format: None,
            rest: Vec::new(),
            answers: Vec::new(),
            is_waiting_for_disk: false,
            memory,
            body: None,
            last_answer_at: None,
            repeated: Repeated::Unknown,
            message_at: Instant::now(),
            stuck_since: None,
            host: None,
        }
    }

    /// What it waits for.
    pub(super) fn waits(&self) -> Waits {
        match (self.is_waiting_for_disk, self.has_unsent()) {
            (true, _) => Waits::Disk,
            (false, false) => Waits::Readable,
            (false, true) => Waits::Writable,
        }
    }

    fn has_unsent(&self) -> bool {
        !self.answers.is_empty() || self.stream.wants_write()
    }

    /// What the peer may write; `None` until it is known who it is.
    pub(super) fn writes(&self) -> Option<&Writes> {
        self.writes.as_deref()
    }

    /// Whether it is not known yet who the peer is.
    pub(super) fn is_unknown(&self) -> bool {
        self.writes.is_none()
    }

    /// Sends answers if there are some, else reads once and takes what is complete. `buffer` has room for [`READ_BYTES`].
    ///
    /// # Errors
    /// The connection ends.
    pub(super) fn serve(&mut self, buffer: &mut [u8], hosts: &mut Hosts) -> Result<(), End> {
        if self.has_unsent() {
            return self.send();
        }
        let before = self.rest.len();
        let read = self.stream.read(buffer, &mut self.rest);
        let has_come = self.rest.len() > before;
        if self.writes.is_none() && (read.is_ok() || has_come) && !self.stream.is_handshaking() {
            let names = tls::names(self.stream.certificates());
            let writes = hosts.peers.find_certificate(self.address, &names)?;
            self.writes = Some(Arc::new(writes));
        }
        if !has_come {
            return match read? {
                true => self.send(),
                false if self.stream.has_begun() => Err(End::TlsRefused),
                false => Err(End::Peer),
            };
        }
        if self.last_answer_at.is_some() {
            self.rest.clear();
            return Ok(());
        }
        // What came before an error is whole.
        self.take(hosts)?;
        read?;
        Ok(())
    }

    /// Tries again to write lines for which the disk had no room.
    ///
    /// # Errors
    /// The connection ends.
    pub(super) fn resume(&mut self, hosts: &mut Hosts) -> Result<(), End> {
        self.is_waiting_for_disk = false;
        self.take(hosts)
    }

    /// Closes it; a peer of the managed format is told if the listener ends, and goes on later.
    pub(super) fn close(mut self, end: &End, hosts: &mut Hosts) {
        if matches!(end, End::Listener) && self.format == Some(Format::Managed) {
            Answer::Ending.encode(0, "", &mut self.answers);
        }
        if self.has_unfinished_line(end) {
            self.refused(&Refusal::Unfinished, hosts);
        }
        self.enter(None, hosts);
        // Answers say what is stored, and not the end of the connection.
        let has_answers = matches!(self.format, Some(Format::Managed | Format::Http));
        if end.is_told() || has_answers {
            // A peer that does not read gets no more.
            let _is_sent = self.stream.end(&mut self.answers);
        } else {
            self.stream.reset();
        }
    }

    /// Takes the complete messages that were read.
    fn take(&mut self, hosts: &mut Hosts) -> Result<(), End> {
        let bytes = std::mem::take(&mut self.rest);
        let mut batch = Batch::default();
        let mut at = 0;
        let result: Result<(), End> = loop {
            let (message, length) =
                match decode(bytes.get(at..).unwrap_or_default(), &mut self.format) {
                    Ok(Some(found)) => found,
                    Ok(None) if self.format == Some(Format::Http) => {
                        return self.take_requests(bytes, hosts);
                    }
                    Ok(None) => break self.write(&mut batch, at, hosts).map_err(End::from),
                    Err(error) => {
                        let written = self.write(&mut batch, at, hosts);
                        break written.map_err(End::from).and_then(|()| Err(error.into()));
                    }
                };
            self.message_at = Instant::now();
            let taken: Result<(), End> = match message {
                Message::Heartbeat { sequence } => {
                    hosts.heard(self.writes(), self.host.as_deref());
                    batch.answers.push((sequence, None));
                    Ok(())
                }
                Message::Line { sequence, line } => self
                    .line(&mut batch, at, sequence, line, hosts)
                    .map_err(End::from),
                Message::Syslog(message) => self.syslog(&mut batch, at, message, hosts),
            };
            if let Err(end) = taken {
                break Err(end);
            }
            at += length;
        };
        let kept = match &result {
            // Such a peer sends nothing again.
            Err(End::Write(_)) if self.format == Some(Format::Ascii) => {
                self.is_waiting_for_disk = true;
                batch.start
            }
            _ => at,
        };
        self.keep(bytes, kept);
        match result {
            Err(End::Write(_)) if self.is_waiting_for_disk => Ok(()),
            Err(end) => Err(end),
            Ok(()) => self.send(),
        }
    }

    /// Keeps what was read behind an offset.
    fn keep(&mut self, mut bytes: Vec<u8>, from: usize) {
        bytes.drain(..from.min(bytes.len()));
        // Most connections wait for most of their time.
        if bytes.len() < bytes.capacity() / 4 {
            bytes.shrink_to_fit();
        }
        self.rest = bytes;
    }

    /// Adds a line, at an offset of what was read, to a batch, which is written before if it is of another host.
    fn line(
        &mut self,
        batch: &mut Batch,
        at: usize,
        sequence: Option<u32>,
        line: &[u8],
        hosts: &mut Hosts,
    ) -> Result<(), WriteError> {
        // It is known before a message is taken.
        let Some(writes) = self.writes.clone() else {
            return Ok(());
        };
        let checked = match hosts.check(&writes, line, None) {
            Ok(checked) => checked,
            Err(refusal) => {
                self.refused(&refusal, hosts);
                batch
                    .answers
                    .extend(sequence.map(|sequence| (sequence, Some(refusal))));
                return Ok(());
            }
        };
        self.turn_to(checked.host, batch, at, hosts)?;
        batch
            .answers
            .extend(sequence.map(|sequence| (sequence, None)));
        // Peers of the ascii format send nothing again.
        let find = || hosts.recent(checked.host);
        if sequence.is_some() && self.repeated.is_in_log(line, find) {
            batch.lines.repeated += 1;
            return Ok(());
        }
        batch.lines.push(line, checked.last);
        batch.first = batch.first.or(sequence);
        Ok(())
    }

    /// Adds a message of syslog in the same way. The peer takes it for stored if the connection goes on.
    ///
    /// # Errors
    /// The connection ends: what came before cannot be written, or was and the host of the message is refused.
    fn syslog(
        &mut self,
        batch: &mut Batch,
        at: usize,
        message: &[u8],
        hosts: &mut Hosts,
    ) -> Result<(), End> {
        let Some(message) = syslog::parse(message) else {
            self.refused(&Refusal::NoSyslog, hosts);
            return Ok(());
        };
        match self.shipped(batch, at, &message, hosts)? {
            Some(refusal) if refusal.is_of_host() => {
                self.write(batch, at, hosts)?;
                Err(End::Host(refusal))
            }
            _ => Ok(()),
        }
    }

    /// Adds a message in the same way. Returns why it is refused, if it is.
    fn shipped(
        &mut self,
        batch: &mut Batch,
        at: usize,
        message: &ShippedMessage<'_>,
        hosts: &mut Hosts,
    ) -> Result<Option<Refusal>, WriteError> {
        // It is known before a message is taken.
        let Some(writes) = self.writes.clone() else {
            return Ok(None);
        };
        let named = message.host.map(BStr::new);
        let checked = match message.kind {
            Kind::Record => hosts
                .check(&writes, message.text, named)
                .map(|record| (record.host, record.last)),
            Kind::Gap | Kind::Heartbeat if message.text.len() > MAX_SYSLOG_BYTES => {
                Err(Refusal::TooLong)
            }
            Kind::Gap | Kind::Heartbeat => hosts
                .name_of(&writes, named)
                .map(|host| (host, LastRecord::default())),
        };
        let (host, last) = match checked {
            Ok(checked) => checked,
            Err(refusal) => {
                self.refused(&refusal, hosts);
                return Ok(Some(refusal));
            }
        };
        self.turn_to(host, batch, at, hosts)?;
        let known = &mut batch.lines.completeness;
        let known = known.get_or_insert_with(|| hosts.completeness(host));
        match message.kind {
            Kind::Gap => known.gap(message.boot, message.text),
            Kind::Heartbeat => known.heartbeat(message.text, now_ms()),
            Kind::Record => {
                let is_in_log = self.repeated.is_in_log(message.text, || hosts.recent(host));
                match (is_in_log, message.number) {
                    (true, Some(number)) => known.repeated(message.boot, number),
                    (false, Some(number)) => known.record(message.boot, number),
                    (_, None) => {}
                }
                match is_in_log {
                    true => batch.lines.repeated += 1,
                    false => batch.lines.push(message.text, last),
                }
            }
        }
        Ok(None)
    }

    /// Makes a host that of the batch; lines of another one are written before.
    fn turn_to(
        &mut self,
        host: &str,
        batch: &mut Batch,
        at: usize,
        hosts: &mut Hosts,
    ) -> Result<(), WriteError> {
        if batch.lines.host != host {
            self.write(batch, at, hosts)?;
            host.clone_into(&mut batch.lines.host);
            if self.host.as_deref() != Some(host) {
                if self.host.is_some() {
                    // What came again was of the other host.
                    self.repeated = Repeated::Over;
                }
                self.enter(Some(host), hosts);
            }
        }
        Ok(())
    }

    /// Writes a batch, which ends at an offset of what was read, and answers.
    fn write(
        &mut self,
        batch: &mut Batch,
        end: usize,
        hosts: &mut Hosts,
    ) -> Result<(), WriteError> {
        if let Err(error) = hosts.write(&batch.lines) {
            let answer = match error.is_full() {
                true => Answer::DiskFull,
                false => Answer::DiskError,
            };
            if let Some(sequence) = batch.first {
                answer.encode(sequence, &describe(&error), &mut self.answers);
            }
            return Err(error);
        }
        for (sequence, refusal) in batch.answers.drain(..) {
            match refusal {
                None => Answer::Acknowledged.encode(sequence, "", &mut self.answers),
                Some(why) => Answer::Refused.encode(sequence, &why.to_string(), &mut self.answers),
            }
        }
        batch.lines.clear();
        batch.first = None;
        batch.start = end;
        Ok(())
    }

    /// Sends what the socket takes of the answers, and notes whether the peer has to do something.
    fn send(&mut self) -> Result<(), End> {
        self.stream.write(&mut self.answers)?;
        let is_stuck = self.has_unsent() || !self.rest.is_empty();
        self.stuck_since = match is_stuck {
            // A new frame has a time of its own.
            true => self
                .stuck_since
                .filter(|since| *since >= self.message_at)
                .or_else(|| Some(Instant::now())),
            false => None,
        };
        if self.last_answer_at.is_some() && !self.has_unsent() {
            self.stream.end(&mut self.answers)?;
        }
        Ok(())
    }

    /// Counts a refused line for the host that the peer wrote last, or is; for its network if the host is refused.
    fn refused(&self, refusal: &Refusal, hosts: &mut Hosts) {
        let (network, member) = match self.writes.as_deref() {
            Some(Writes::Host(host)) => (None, Some(host)),
            Some(Writes::Member(network, host)) => (Some(*network), Some(host)),
            Some(Writes::Node(network)) => (Some(*network), None),
            // Nothing is taken of it.
            None => return,
        };
        let host = self.host.as_ref().or(member);
        let progress = host.and_then(|host| hosts.progress(host));
        match (progress, network) {
            (Some(progress), None) => progress.count_refused(refusal),
            (Some(progress), Some(_)) if !refusal.is_of_host() => progress.count_refused(refusal),
            (_, Some(network)) => hosts.refused_in(network, refusal),
            (None, None) => {}
        }
    }

    /// Counts the connection for another host, or for none.
    fn enter(&mut self, host: Option<&str>, hosts: &mut Hosts) {
        if let Some(progress) = self.host.as_deref().and_then(|host| hosts.progress(host)) {
            progress.connections = progress.connections.saturating_sub(1);
        }
        self.host = host.map(str::to_owned);
        if let Some(progress) = host.and_then(|host| hosts.progress(host)) {
            progress.connections += 1;
            progress.address = Some(self.address.to_string());
        }
    }
}

/// Lines that are written at once.
#[derive(Debug, Default)]
struct Batch {
    lines: Lines,
    /// Where they begin in what was read.
    start: usize,
    /// Sequence of the first line.
    first: Option<u32>,
    /// Sequences in order, with the reasons of refusals.
    answers: Vec<(u32, Option<Refusal>)>,
}

#[cfg(test)]
mod tests;
