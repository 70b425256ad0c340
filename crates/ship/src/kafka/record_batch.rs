//! A batch of records, as it is sent and as the broker stores it.
//!
//! ```text
//! 0        8        12       16      17    21           23          27        35        43
//! | offset | length | leader | magic | CRC | attributes | last      | least   | latest  | producer: 8, 2 and 4 bytes
//!                     epoch              |               offset      time      time
//!                                        +-- of all that follows
//! 57      61
//! | count | records, which the attributes may say are compressed
//! ```
//!
//! Numbers in records have variable length: length, attributes (a byte), time and offset less those of the batch, the key,
//! the value, and no headers.
//!
//! # Source
//! Apache Kafka 4.3, "Message format", "Record Batch" and "Record".

use std::io::{self, Write as _};
use std::ops::Range;

use flate2::Compression as Level;
use flate2::write::GzEncoder;
use serde::Deserialize;

use super::checksum::crc32c;
use super::wire::Put as _;
use crate::frame::Time;
use crate::record_buffer::RecordBuffer;

/// The version of the format.
const MAGIC: i8 = 2;
/// A number that the broker sets, or that belongs to a producer with transactions.
const NONE: i64 = -1;
/// The level at which zstd is as fast as the encoder of events.
const ZSTD_LEVEL: i32 = 1;

/// How records are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Codec {
    None,
    Gzip,
    Zstd,
}

/// Encodes batches; memory is kept for the next one.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    records: Vec<u8>,
    record: Vec<u8>,
}

impl Encoder {
    /// The batch of some records, each with its time, which all have one key.
    ///
    /// # Errors
    /// They cannot be compressed, or are more than 2 GiB.
    pub(super) fn encode(
        &mut self,
        all: &RecordBuffer<Time>,
        records: Range<usize>,
        key: &[u8],
        codec: Codec,
    ) -> io::Result<Vec<u8>> {
        let marks = all.marks(&records);
        let times = || marks.iter().map(|mark| millis(mark.about));
        let first = times().next().unwrap_or(0);
        let latest = times().max().unwrap_or(0);
        self.records.clear();
        for ((number, offset), time) in records.clone().zip(0..).zip(times()) {
            let value = all.bytes_of(&(number..number + 1));
            self.append(offset, time - first, key, value);
        }
        let mut batch = Vec::with_capacity(self.records.len() / 4 + 64);
        batch.put_i16(attributes(codec));
        let count = i32::try_from(records.len()).map_err(io::Error::other)?;
        batch.put_i32(count - 1);
        batch.put_i64(first);
        batch.put_i64(latest);
        // Producer, its epoch, and the sequence.
        batch.put_i64(NONE);
        batch.put_i16(-1);
        batch.put_i32(-1);
        batch.put_i32(count);
        let batch = self.compress(codec, batch)?;
        let mut whole = Vec::with_capacity(batch.len() + 21);
        // Offset.
        whole.put_i64(0);
        let length = i32::try_from(batch.len() + 9).map_err(io::Error::other)?;
        whole.put_i32(length);
        // Epoch of the leader.
        whole.put_i32(-1);
        whole.put_i8(MAGIC);
        whole.extend_from_slice(&crc32c(&batch).to_be_bytes());
        whole.extend_from_slice(&batch);
        Ok(whole)
    }

    /// Appends a record.
    fn append(&mut self, offset: i64, time: i64, key: &[u8], value: &[u8]) {
        let record = &mut self.record;
        record.clear();
        // Attributes.
        record.put_i8(0);
        record.put_varint(time);
        record.put_varint(offset);
        for part in [key, value] {
            record.put_varint(i64::try_from(part.len()).unwrap_or(NONE));
            record.extend_from_slice(part);
        }
        // Headers.
        record.put_varint(0);
        self.records
            .put_varint(i64::try_from(record.len()).unwrap_or(NONE));
        self.records.extend_from_slice(record);
    }

    /// Appends the records to what is before them.
    fn compress(&self, codec: Codec, mut to: Vec<u8>) -> io::Result<Vec<u8>> {
        match codec {
            Codec::None => {
                to.extend_from_slice(&self.records);
                Ok(to)
            }
            Codec::Gzip => {
                let mut gzip = GzEncoder::new(to, Level::fast());
                gzip.write_all(&self.records)?;
                gzip.finish()
            }
            Codec::Zstd => {
                to.extend(zstd::bulk::compress(&self.records, ZSTD_LEVEL)?);
                Ok(to)
            }
        }
    }
}

/// The codec is in the lowest bits.
const fn attributes(codec: Codec) -> i16 {
    match codec {
        Codec::None => 0,
        Codec::Gzip => 1,
        Codec::Zstd => 4,
    }
}

fn millis(time: Time) -> i64 {
    i64::try_from(time.ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn buffer(values: &[(&str, u64)]) -> RecordBuffer<Time> {
        let mut buffer = RecordBuffer::new();
        for (value, ms) in values {
            buffer.bytes_mut().extend_from_slice(value.as_bytes());
            buffer.end_record(true, Time { ms: *ms });
        }
        buffer
    }

    fn encode(records: Range<usize>, codec: Codec) -> Vec<u8> {
        let all = buffer(&[("zero", 9), ("one", 100), ("two", 99)]);
        Encoder::default()
            .encode(&all, records, b"h", codec)
            .unwrap()
    }

    /// Records of the second and third value.
    const RECORDS: &[u8] = b"\x14\0\0\0\x02h\x06one\0\x14\0\x01\x02\x02h\x06two\0";

    #[test]
    fn batch_has_the_bytes_of_the_documentation() {
        let batch = encode(1..3, Codec::None);
        let (head, rest) = batch.split_at(17);
        assert_eq!(
            head, b"\0\0\0\0\0\0\0\0\0\0\0\x47\xff\xff\xff\xff\x02",
            "{batch:x?}"
        );
        let (sum, rest) = rest.split_at(4);
        assert_eq!(sum, crc32c(rest).to_be_bytes());
        assert_eq!(
            rest,
            [
                &b"\0\0\0\0\0\x01\0\0\0\0\0\0\0\x64\0\0\0\0\0\0\0\x64\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\x02"[..],
                RECORDS
            ]
            .concat()
        );
    }

    #[test]
    fn records_are_compressed() {
        let batch = encode(1..3, Codec::Gzip);
        assert_eq!(batch[21..23], [0, 1]);
        let mut plain = Vec::new();
        GzDecoder::new(&batch[61..])
            .read_to_end(&mut plain)
            .unwrap();
        assert_eq!(plain, RECORDS);
        let batch = encode(1..3, Codec::Zstd);
        assert_eq!(batch[21..23], [0, 4]);
        assert_eq!(zstd::bulk::decompress(&batch[61..], 1000).unwrap(), RECORDS);
    }
}
