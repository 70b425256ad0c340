//! Log records of OpenTelemetry to a collector, by HTTP (OTLP/HTTP with protobuf).
//!
//! [`record`] and [`event`] are what a frame becomes, [`batch`] what a request has, [`verdict`] what an answer means;
//! [`receiver`] is the side of the collector.
//!
//! Frames are confirmed when the collector has answered that it has them. Records that it refuses (400, 413) are sent
//! again in halves, so that it takes the others; one that it refuses alone is rejected, as those are which it names
//! itself. A collector that takes no event between refusals refuses everything: that is a failure, and nothing more is
//! passed over.
//!
//! # Source
//! OTLP specification 1.5, "OTLP/HTTP".

mod attributes;
mod batch;
mod event;
mod protobuf;
mod receiver;
mod record;
mod verdict;

use std::io;
use std::ops::Range;

use anyhow::anyhow;
use flate2::Compression as Level;
use flate2::write::GzEncoder;
use serde::Deserialize;

use crate::frame::{Frame, Record, Time};
use crate::http::{Endpoint, HttpClient};
use crate::output::now_ms;
use crate::sink::{Refusal, Sink};
use batch::Batch;
#[cfg(test)]
pub(crate) use receiver::tests;
pub(crate) use receiver::{LogRecord, partial_success, read_records, status};
pub(crate) use record::{EVENT, GAP, HEARTBEAT};
use verdict::{Rejected, Verdict};

/// Bytes of records that are sent at once.
const BATCH_BYTES: usize = 1 << 20;
/// Records that are sent at once.
const BATCH_RECORDS: usize = 4096;
/// Records that may be refused alone without an event between them that is taken.
const MOST_REFUSED: u32 = 64;

/// How requests are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compression {
    Gzip,
    None,
}

/// A collector.
pub(crate) struct OtlpSink {
    client: HttpClient,
    compression: Compression,
    batch: Batch,
    /// A record that is encoded.
    record: Vec<u8>,
    /// Bytes that the collector takes at once.
    limit: usize,
    confirmed: u64,
    /// The collector has taken something on this connection.
    has_taken: bool,
    /// Records of former batches that were refused alone since an event was taken.
    refused: u32,
    refusal: Option<Refusal>,
}

impl OtlpSink {
    pub(crate) fn new(endpoint: Endpoint, compression: Compression) -> Self {
        Self {
            client: HttpClient::new(endpoint),
            compression,
            batch: Batch::default(),
            record: Vec::new(),
            limit: BATCH_BYTES,
            confirmed: 0,
            has_taken: false,
            refused: 0,
            refusal: None,
        }
    }

    /// Sends the batch; in halves, if it is refused.
    ///
    /// # Errors
    /// The collector does not take it now.
    fn send(&mut self) -> anyhow::Result<()> {
        let all = 0..self.batch.len();
        let mut left = vec![all];
        // Refused alone since an event of the batch was taken.
        let mut refused = 0;
        let mut last = String::new();
        // Bytes of the parts into which a request was divided last; no limit if a record was refused, whatever its parts.
        let mut parts = Some(self.limit);
        while let Some(records) = left.pop() {
            match self.post(records.clone())? {
                Verdict::Taken(mut rejected) => {
                    // A number of the collector is not trusted: it cannot reject more than it got.
                    rejected.records = rejected.records.min(u64::try_from(records.len())?);
                    self.has_taken = true;
                    if self.batch.has_events(&records) {
                        (self.refused, refused) = (0, 0);
                    }
                    self.note(rejected);
                }
                Verdict::Refused { is_too_large, .. } if records.len() > 1 => {
                    let half = self.batch.bytes_of(&records) / 2;
                    parts = parts.map(|_| half);
                    if is_too_large {
                        self.limit = self.limit.min(half);
                    }
                    let middle = records.start + records.len() / 2;
                    left.push(middle..records.end);
                    left.push(records.start..middle);
                }
                Verdict::Refused { told, .. } if !self.has_taken => return Err(anyhow!(told)),
                Verdict::Refused { told, .. } => {
                    refused += 1;
                    parts = None;
                    self.note(Rejected {
                        records: 1,
                        message: told.clone(),
                    });
                    last = told;
                    if refused > MOST_REFUSED {
                        break;
                    }
                }
            }
        }
        if self.refused + refused > MOST_REFUSED {
            return Err(anyhow!(
                "{last}: it has refused {MOST_REFUSED} events one after another; no more are left out"
            ));
        }
        if let Some(parts) = parts {
            // Some collectors answer 400 to what is too large.
            self.limit = self.limit.min(parts);
        }
        self.refused += refused;
        Ok(())
    }

    fn post(&mut self, records: Range<usize>) -> anyhow::Result<Verdict> {
        let body = self.body(records)?;
        let about = match self.compression {
            Compression::Gzip => {
                "Content-Type: application/x-protobuf\r\nContent-Encoding: gzip\r\n"
            }
            Compression::None => "Content-Type: application/x-protobuf\r\n",
        };
        let answer = self.client.post(about, &body)?;
        verdict::of(&answer, &self.client.shown())
    }

    fn body(&self, records: Range<usize>) -> io::Result<Vec<u8>> {
        match self.compression {
            Compression::None => {
                let mut body = Vec::with_capacity(self.batch.bytes_of(&records) + 1024);
                self.batch.write(records, &mut body)?;
                Ok(body)
            }
            Compression::Gzip => {
                let mut gzip = GzEncoder::new(Vec::new(), Level::fast());
                self.batch.write(records, &mut gzip)?;
                gzip.finish()
            }
        }
    }

    /// Remembers what the collector has rejected, for the worker.
    fn note(&mut self, rejected: Rejected) {
        if rejected == Rejected::default() {
            return;
        }
        let refusal = self.refusal.get_or_insert_default();
        refusal.records += rejected.records;
        refusal.reason = match rejected.message {
            reason if reason.is_empty() => "it does not tell why".to_owned(),
            reason => reason,
        };
    }
}

impl Sink for OtlpSink {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.disconnect();
        self.client.connect()
    }

    fn put(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        self.record.clear();
        record::append(frame, Time { ms: now_ms() }, &mut self.record)?;
        let is_event = matches!(frame.record, Record::Event(_));
        self.batch
            .push(frame.host, frame.boot, is_event, &self.record);
        Ok(())
    }

    fn is_full(&self) -> bool {
        let records = self.batch.len();
        records >= BATCH_RECORDS || self.batch.bytes_of(&(0..records)) >= self.limit
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let records = self.batch.len();
        if records > 0 {
            self.send()?;
            self.confirmed += u64::try_from(records)?;
            self.batch.clear();
        }
        Ok(())
    }

    fn confirmed(&mut self) -> anyhow::Result<u64> {
        Ok(self.confirmed)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.flush()?;
        self.client.disconnect();
        Ok(())
    }

    fn disconnect(&mut self) {
        self.client.disconnect();
        // A destination that is away holds no memory.
        self.batch = Batch::default();
        self.record = Vec::new();
        self.limit = BATCH_BYTES;
        self.confirmed = 0;
        self.has_taken = false;
        self.refusal = None;
    }

    fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }
}
