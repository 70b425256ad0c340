//! What brokers read and answer, for tests: written after the protocol, not after the program.

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::place::FIRST;

/// Reads values.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    /// A number of so many bytes.
    pub(crate) fn number(&mut self, bytes: usize) -> i64 {
        let taken = self.take(bytes);
        let sign = if taken[0] & 0x80 == 0 { 0 } else { -1 };
        taken
            .iter()
            .fold(sign, |number, byte| (number << 8) | i64::from(*byte))
    }

    pub(crate) fn text(&mut self) -> String {
        let length = usize::try_from(self.number(2)).unwrap();
        String::from_utf8(self.take(length).to_vec()).unwrap()
    }

    fn varint(&mut self) -> i64 {
        let mut zigzag = 0;
        for shift in (0..).step_by(7) {
            let byte = self.take(1)[0];
            zigzag |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed()
    }

    fn part(&mut self) -> &'a [u8] {
        let length = usize::try_from(self.varint()).unwrap();
        self.take(length)
    }
}

/// A record of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) key: String,
    pub(crate) ms: i64,
    pub(crate) value: Value,
}

/// A batch that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// Its bytes.
    pub(crate) len: usize,
    /// Number of its compression.
    pub(crate) codec: i64,
    pub(crate) records: Vec<Record>,
}

/// Number of an event from [`FIRST`].
pub(crate) fn number(record: &Record) -> Option<u32> {
    let serial =
        (record.value["kind"] == "event").then(|| record.value["serial"].as_u64().unwrap())?;
    u32::try_from(serial).unwrap().checked_sub(FIRST)
}

/// The topic, the partition and the batch of the body of a Produce request of version 7.
pub(crate) fn produced(body: &[u8]) -> (String, i64, Batch) {
    let mut reader = Reader(body);
    assert_eq!(reader.number(2), -1, "a transaction");
    assert_eq!(reader.number(2), -1, "acks");
    assert!(reader.number(4) > 0, "timeout");
    assert_eq!(reader.number(4), 1, "topics");
    let topic = reader.text();
    assert_eq!(reader.number(4), 1, "partitions");
    let partition = reader.number(4);
    let len = usize::try_from(reader.number(4)).unwrap();
    let bytes = reader.take(len);
    assert!(reader.0.is_empty());
    (topic, partition, batch(bytes))
}

fn batch(bytes: &[u8]) -> Batch {
    let len = bytes.len();
    let mut reader = Reader(bytes);
    reader.number(8);
    let length = usize::try_from(reader.number(4)).unwrap();
    assert_eq!(length, reader.0.len(), "one batch");
    reader.number(4);
    assert_eq!(reader.number(1), 2, "magic");
    let sum = reader.number(4);
    assert_eq!(sum & 0xffff_ffff, i64::from(crc32c(reader.0)));
    let codec = reader.number(2);
    let last = reader.number(4);
    let (first, latest) = (reader.number(8), reader.number(8));
    let producer = (reader.number(8), reader.number(2), reader.number(4));
    assert_eq!(producer, (-1, -1, -1));
    let count = reader.number(4);
    assert_eq!(count, last + 1);
    let mut plain = Vec::new();
    match codec {
        0 => plain.extend_from_slice(reader.0),
        1 => {
            GzDecoder::new(reader.0).read_to_end(&mut plain).unwrap();
        }
        4 => plain = zstd::stream::decode_all(reader.0).unwrap(),
        codec => panic!("codec {codec}"),
    }
    let mut reader = Reader(&plain);
    let records: Vec<Record> = (0..count)
        .map(|offset| record(&mut reader, first, offset))
        .collect();
    assert!(reader.0.is_empty());
    assert_eq!(records.iter().map(|record| record.ms).max(), Some(latest));
    Batch {
        len,
        codec,
        records,
    }
}

fn record(reader: &mut Reader<'_>, first: i64, offset: i64) -> Record {
    let mut record = Reader(reader.part());
    assert_eq!(record.number(1), 0, "attributes");
    let ms = first + record.varint();
    assert_eq!(record.varint(), offset);
    let key = String::from_utf8(record.part().to_vec()).unwrap();
    let value = record.part();
    assert!(!value.ends_with(b"\n"));
    let value = serde_json::from_slice(value).unwrap();
    assert_eq!(record.varint(), 0, "headers");
    assert!(record.0.is_empty());
    Record { key, ms, value }
}

/// Bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = !0_u32;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !sum
}

fn text(text: &str) -> Vec<u8> {
    let length = i16::try_from(text.len()).unwrap();
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}

/// Body of an answer to `ApiVersions`, with requests and their oldest and latest versions.
pub(crate) fn versions(known: &[(i16, i16, i16)]) -> Vec<u8> {
    let count = i32::try_from(known.len()).unwrap();
    let mut body = [&[0; 2][..], &count.to_be_bytes()].concat();
    for (key, oldest, latest) in known {
        body.extend(
            [*key, *oldest, *latest]
                .into_iter()
                .flat_map(i16::to_be_bytes),
        );
    }
    body
}

/// Body of an answer to Metadata of version 4: a topic with so many partitions, all of which broker `leader` leads.
pub(crate) fn metadata(ports: &[u16], topic: &str, error: i16, count: i32, leader: i32) -> Vec<u8> {
    let number = |number: i32| number.to_be_bytes();
    let mut body = number(0).to_vec();
    body.extend(number(i32::try_from(ports.len()).unwrap()));
    for (id, port) in (0..).zip(ports) {
        body.extend(number(id));
        body.extend(text("localhost"));
        body.extend(number((*port).into()));
        // No rack.
        body.extend((-1_i16).to_be_bytes());
    }
    body.extend(text("cluster"));
    body.extend(number(0));
    body.extend(number(1));
    body.extend(error.to_be_bytes());
    body.extend(text(topic));
    body.push(0);
    body.extend(number(count));
    for partition in 0..count {
        body.extend(0_i16.to_be_bytes());
        body.extend([partition, leader].into_iter().flat_map(number));
        for _ in 0..2 {
            body.extend([1, leader].into_iter().flat_map(number));
        }
    }
    body
}

/// Body of an answer to Produce of version 7.
pub(crate) fn answer(topic: &str, partition: i64, error: i16) -> Vec<u8> {
    let partition = i32::try_from(partition).unwrap();
    let mut body = 1_i32.to_be_bytes().to_vec();
    body.extend(text(topic));
    body.extend([1, partition].into_iter().flat_map(i32::to_be_bytes));
    body.extend(error.to_be_bytes());
    body.extend([0_i64, -1, 0].into_iter().flat_map(i64::to_be_bytes));
    body.extend(0_i32.to_be_bytes());
    body
}
