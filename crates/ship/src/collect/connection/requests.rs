//! Requests of HTTP on a connection, one after another.
//!
//! A request is answered when its records are in the log, or are there already. After any other answer than 200, and if
//! more bytes follow a request, the connection ends: what comes again on the next one is found in the log.

use std::time::Instant;

use super::super::frame::MAX_SYSLOG_BYTES;
use super::super::hosts::{Hosts, Refusal, WriteError, describe};
use super::super::otlp::{self, MAX_REFUSED, OtlpError, PROTOBUF, Packing};
use super::{Batch, Connection, End};
use crate::http::{Reply, RequestHead};
use crate::otlp::{LogRecord, partial_success, read_records, status};

/// Bytes of lines that are written at once.
const MAX_LINES: usize = 256 << 10;

/// What became of the records of a request.
#[derive(Debug, Default)]
struct Outcome {
    /// Lines that are refused.
    refused: u32,
    /// Records that are refused for ever, and why the last one is.
    rejected: u64,
    reason: String,
    /// Why a host is refused.
    host: Option<String>,
}

impl Connection {
    /// Takes the complete requests of what was read.
    pub(super) fn take_requests(&mut self, bytes: Vec<u8>, hosts: &mut Hosts) -> Result<(), End> {
        let mut at = 0;
        while self.last_answer_at.is_none() {
            let rest = bytes.get(at..).unwrap_or_default();
            match self.next_request(rest) {
                Ok(None) => break,
                Ok(Some((head, len, packing))) => {
                    self.message_at = Instant::now();
                    self.body = None;
                    let body = rest.get(head.len..len).unwrap_or_default();
                    match self.request(body, packing, hosts) {
                        // One at a time: many small requests with large records would hold up other peers.
                        Ok(outcome) => {
                            self.accept(head.keeps_connection && rest.len() == len, &outcome);
                        }
                        Err(error) => self.refuse(&error, hosts),
                    }
                    at += len;
                }
                Err(error) => self.refuse(&error, hosts),
            }
        }
        match self.last_answer_at {
            None => self.keep(bytes, at),
            // Nothing that follows is taken.
            Some(_) => self.body = None,
        }
        self.send()
    }

    /// The head of the next request, the bytes of all of it, and how its body is packed; `None` if more are needed, for which
    /// memory is reserved.
    fn next_request(
        &mut self,
        bytes: &[u8],
    ) -> Result<Option<(RequestHead, usize, Packing)>, OtlpError> {
        let Some(head) = RequestHead::parse(bytes)? else {
            return Ok(None);
        };
        let (body, packing) = otlp::check(&head)?;
        let len = head.len + body;
        if bytes.len() >= len {
            return Ok(Some((head, len, packing)));
        }
        // What is smaller than a message of syslog costs no more than one.
        if self.body.is_none() {
            let more = len.saturating_sub(MAX_SYSLOG_BYTES);
            self.body = Some(self.memory.reserve(more).ok_or(OtlpError::Busy)?);
            if head.expects_continue && bytes.len() == head.len {
                self.answers.extend_from_slice(Reply::CONTINUE);
            }
        }
        Ok(None)
    }

    /// Writes the records of a request.
    fn request(
        &mut self,
        body: &[u8],
        packing: Packing,
        hosts: &mut Hosts,
    ) -> Result<Outcome, OtlpError> {
        let body = otlp::unpack(body, packing)?;
        // Nothing is written of what is not whole.
        read_records(&body, |_| ()).map_err(OtlpError::Protobuf)?;
        let mut batch = Batch::default();
        let mut outcome = Outcome::default();
        let mut written = Ok(());
        read_records(&body, |record| {
            if written.is_ok() && outcome.refused <= MAX_REFUSED {
                written = self.record(&mut batch, &record, &mut outcome, hosts);
            }
        })
        .map_err(OtlpError::Protobuf)?;
        written
            .and_then(|()| self.write(&mut batch, 0, hosts))
            .map_err(|error| OtlpError::Write(describe(&error)))?;
        match outcome.host.take() {
            Some(host) => Err(OtlpError::Host(host)),
            None if outcome.refused > MAX_REFUSED => Err(OtlpError::Refused(outcome.reason)),
            None => Ok(outcome),
        }
    }

    fn record(
        &mut self,
        batch: &mut Batch,
        record: &LogRecord<'_>,
        outcome: &mut Outcome,
        hosts: &mut Hosts,
    ) -> Result<(), WriteError> {
        let mut refusal = None;
        match record.body {
            Some(text) => {
                for message in otlp::messages(record, text) {
                    if let Some(refused) = self.shipped(batch, 0, &message, hosts)? {
                        refusal = Some(refused);
                        outcome.refused += 1;
                        if outcome.refused > MAX_REFUSED {
                            break;
                        }
                    }
                }
            }
            None => {
                self.refused(&Refusal::NoText, hosts);
                refusal = Some(Refusal::NoText);
                outcome.refused += 1;
            }
        }
        match refusal {
            Some(refusal) if refusal.is_of_host() => outcome.host = Some(refusal.to_string()),
            Some(refusal) => {
                outcome.rejected += 1;
                outcome.reason = refusal.to_string();
            }
            None => {}
        }
        match batch.lines.text.len() < MAX_LINES {
            true => Ok(()),
            false => self.write(batch, 0, hosts),
        }
    }

    fn accept(&mut self, keeps_connection: bool, outcome: &Outcome) {
        let body = match outcome.rejected {
            0 => Vec::new(),
            rejected => partial_success(rejected, &outcome.reason),
        };
        self.reply(&Reply {
            status: 200,
            keeps_connection,
            retry_after: None,
            content_type: PROTOBUF,
            body: &body,
        });
    }

    /// Answers that a request is not taken. What is not the fault of the peer is not counted.
    fn refuse(&mut self, error: &OtlpError, hosts: &mut Hosts) {
        let text = error.to_string();
        self.reply(&Reply {
            status: error.status(),
            keeps_connection: false,
            retry_after: error.retry_after(),
            content_type: PROTOBUF,
            body: &status(&text),
        });
        match error {
            // Both are told of the host.
            OtlpError::Host(_) | OtlpError::Write(_) => {}
            _ => self.refused(&Refusal::Request(text), hosts),
        }
    }

    fn reply(&mut self, reply: &Reply<'_>) {
        reply.encode(&mut self.answers);
        if !reply.keeps_connection {
            self.last_answer_at = Some(Instant::now());
        }
    }
}
