//! Log records of OpenTelemetry to a collector, by HTTP (OTLP/HTTP with protobuf).
//!
//! [`record`] and [`event`] are what a frame becomes, [`batch`] what a request has, [`verdict`] what an answer means;
//! [`receiver`] is the side of the collector.
//!
//! Frames are confirmed when the collector has answered that it has them. Records that it refuses (400, 413) are sent
//! again in halves ([`crate::halves`]); one that it refuses alone is rejected, as those are which it names itself.
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

use flate2::Compression as Level;
use flate2::write::GzEncoder;
use serde::Deserialize;

use crate::frame::{Frame, Record, Time};
use crate::halves::{Halves, Verdict};
use crate::http::{Endpoint, HttpClient};
use crate::output::now_ms;
use crate::sink::{Refusal, Sink};
use batch::Batch;
#[cfg(test)]
pub(crate) use receiver::tests;
pub(crate) use receiver::{LogRecord, partial_success, read_records, status};
pub(crate) use record::{EVENT, GAP, HEARTBEAT};

/// Bytes of records that are sent at once.
const BATCH_BYTES: usize = 1 << 20;
/// Records that are sent at once.
const BATCH_RECORDS: usize = 4096;

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
    halves: Halves,
    confirmed: u64,
}

impl OtlpSink {
    pub(crate) const fn new(endpoint: Endpoint, compression: Compression) -> Self {
        Self {
            client: HttpClient::new(endpoint),
            compression,
            batch: Batch::new(),
            record: Vec::new(),
            halves: Halves::new(BATCH_BYTES),
            confirmed: 0,
        }
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
        let records = self.batch.records();
        let count = records.len();
        count >= BATCH_RECORDS || records.bytes_of(&(0..count)).len() >= self.halves.limit()
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let records = self.batch.records().len();
        if records > 0 {
            let Self { client, batch, .. } = self;
            let compression = self.compression;
            self.halves.send(batch.records(), |records| {
                post(client, compression, batch, records)
            })?;
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
        self.batch = Batch::new();
        self.record = Vec::new();
        self.halves.disconnect();
        self.confirmed = 0;
    }

    fn take_refusal(&mut self) -> Option<Refusal> {
        self.halves.take_refusal()
    }
}

/// Sends records of a batch.
///
/// # Errors
/// The collector does not take them now.
fn post(
    client: &mut HttpClient,
    compression: Compression,
    batch: &Batch,
    records: Range<usize>,
) -> anyhow::Result<Verdict> {
    let body = body(compression, batch, records)?;
    let about = match compression {
        Compression::Gzip => "Content-Type: application/x-protobuf\r\nContent-Encoding: gzip\r\n",
        Compression::None => "Content-Type: application/x-protobuf\r\n",
    };
    let answer = client.post(about, &body)?;
    verdict::of(&answer, &client.shown())
}

fn body(compression: Compression, batch: &Batch, records: Range<usize>) -> io::Result<Vec<u8>> {
    match compression {
        Compression::None => {
            let bytes = batch.records().bytes_of(&records).len();
            let mut body = Vec::with_capacity(bytes + 1024);
            batch.write(records, &mut body)?;
            Ok(body)
        }
        Compression::Gzip => {
            let mut gzip = GzEncoder::new(Vec::new(), Level::fast());
            batch.write(records, &mut gzip)?;
            gzip.finish()
        }
    }
}
