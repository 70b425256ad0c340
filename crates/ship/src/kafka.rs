//! JSON lines to a topic of Kafka.
//!
//! [`messages`] are the requests, [`record_batch`] what a batch has, [`cluster`] finds the broker, [`connection`] talks to
//! it, [`verdict`] is what its errors mean.
//!
//! All records of this host have its name as their key, and are in one partition, in order: one broker, its leader, gets
//! one request after another. Frames are confirmed when it has answered that all replicas in sync have them. Any failure,
//! also that another broker leads now, ends the connection; the next one asks the cluster again. Batches that are refused
//! are sent in halves ([`crate::halves`]).
//!
//! # Source
//! Apache Kafka 4.3, "Kafka protocol guide".

mod checksum;
mod cluster;
mod connection;
mod messages;
mod partition;
mod record_batch;
mod sasl;
mod verdict;
mod wire;

use std::ops::Range;
use std::time::Duration;

use crate::frame::{Frame, Record, Time};
use crate::halves::{Halves, Verdict};
use crate::json_lines::JsonLines;
use crate::record_buffer::RecordBuffer;
use crate::sink::{Encode as _, Refusal, Sink};
use crate::transport::{TlsSettings, not_connected};
use cluster::{Cluster, Leader};
use messages::{PRODUCE, Produced};
pub(crate) use record_batch::Codec;
use record_batch::Encoder;
pub(crate) use sasl::{Mechanism, SaslSettings};

/// Bytes of records that are sent at once: less than brokers take without a setting, also if they are not compressed and
/// the last event is long.
const BATCH_BYTES: usize = 768 << 10;

/// Which topic of which cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KafkaSettings {
    /// `HOST:PORT` of brokers that tell the others.
    pub(crate) brokers: Vec<String>,
    pub(crate) topic: String,
    pub(crate) codec: Codec,
    /// Longest time from a request to its answer.
    pub(crate) timeout: Duration,
    /// The name in the certificate of a broker is that of its address.
    pub(crate) tls: Option<TlsSettings>,
    pub(crate) sasl: Option<SaslSettings>,
}

/// A topic.
pub(crate) struct KafkaSink {
    cluster: Cluster,
    /// The key of all records.
    host: String,
    leader: Option<Leader>,
    /// Records as JSON, with their times.
    records: RecordBuffer<Time>,
    encoder: Encoder,
    halves: Halves,
    confirmed: u64,
}

impl KafkaSink {
    pub(crate) fn new(settings: KafkaSettings, host: &str) -> Self {
        Self {
            cluster: Cluster::new(settings),
            host: host.to_owned(),
            leader: None,
            records: RecordBuffer::new(),
            encoder: Encoder::default(),
            halves: Halves::new(BATCH_BYTES),
            confirmed: 0,
        }
    }

    /// Finds the leader, if there is no connection to it any more: brokers close those that are idle.
    fn find_leader(&mut self) -> anyhow::Result<()> {
        let is_stale = |leader: &mut Leader| leader.connection.is_stale();
        if self.leader.as_mut().is_none_or(is_stale) {
            self.leader = Some(self.cluster.leader(self.host.as_bytes())?);
        }
        Ok(())
    }
}

/// Sends a batch of some records, and returns what the leader makes of them.
///
/// # Errors
/// It does not take them now.
fn produce(leader: &mut Leader, settings: &KafkaSettings, batch: &[u8]) -> anyhow::Result<Verdict> {
    let (topic, partition) = (&settings.topic, leader.partition);
    let connection = &mut leader.connection;
    // The leader should give up first, and say why.
    let timeout_ms = i32::try_from(settings.timeout.as_millis() * 3 / 4)?;
    let body = Produced::request(topic, partition, timeout_ms, batch);
    let answer = connection.exchange(PRODUCE, &body)?;
    let produced = connection.parsed(Produced::read(&answer, topic, partition))?;
    let throttled_ms = u64::try_from(produced.throttled_ms).unwrap_or(0);
    connection.is_quiet_for(Duration::from_millis(throttled_ms));
    let address = connection.address();
    let who = format!("`{address}`, for partition {partition} of topic `{topic}`,");
    verdict::of(produced.error, &who)
}

impl Sink for KafkaSink {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.disconnect();
        self.find_leader()
    }

    fn put(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        let bytes = self.records.bytes_mut();
        JsonLines.encode(frame, bytes)?;
        // A record needs no end of a line.
        bytes.pop();
        let (is_event, time) = match frame.record {
            Record::Event(event) => (true, Time::of(event.time())),
            Record::Gap(gap) => (false, gap.time),
            Record::Heartbeat(heartbeat) => (false, heartbeat.time),
        };
        self.records.end_record(is_event, time);
        Ok(())
    }

    fn is_full(&self) -> bool {
        let all = 0..self.records.len();
        self.records.bytes_of(&all).len() >= self.halves.limit()
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        if self.records.len() == 0 {
            return Ok(());
        }
        self.find_leader()?;
        let Self {
            cluster: Cluster { settings, .. },
            leader,
            records,
            encoder,
            ..
        } = self;
        let leader = leader.as_mut().ok_or_else(not_connected)?;
        let key = self.host.as_bytes();
        self.halves.send(records, |range: Range<usize>| {
            let batch = encoder.encode(records, range, key, settings.codec)?;
            produce(leader, settings, &batch)
        })?;
        self.confirmed += u64::try_from(self.records.len())?;
        self.records.clear();
        Ok(())
    }

    fn confirmed(&mut self) -> anyhow::Result<u64> {
        Ok(self.confirmed)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.flush()?;
        self.leader = None;
        Ok(())
    }

    fn disconnect(&mut self) {
        self.leader = None;
        // A destination that is away holds no memory.
        self.records = RecordBuffer::new();
        self.encoder = Encoder::default();
        self.halves.disconnect();
        self.confirmed = 0;
    }

    fn take_refusal(&mut self) -> Option<Refusal> {
        self.halves.take_refusal()
    }
}
