//! The requests that are sent, and what is read of their answers. Each has one version, the oldest that has what is needed,
//! so that there is one form of it: brokers from 2.1 (2018) to 4.3 have all of them.
//!
//! # Source
//! Apache Kafka 4.3, "Protocol messages".

use super::wire::{Malformed, Put as _, Reader};

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Api {
    pub(super) name: &'static str,
    pub(super) key: i16,
    pub(super) version: i16,
}

pub(super) const API_VERSIONS: Api = Api {
    name: "ApiVersions",
    key: 18,
    version: 0,
};
/// Version 4 does not create topics.
pub(super) const METADATA: Api = Api {
    name: "Metadata",
    key: 3,
    version: 4,
};
/// Version 7 takes zstd.
pub(super) const PRODUCE: Api = Api {
    name: "Produce",
    key: 0,
    version: 7,
};
pub(super) const SASL_HANDSHAKE: Api = Api {
    name: "SaslHandshake",
    key: 17,
    version: 1,
};
pub(super) const SASL_AUTHENTICATE: Api = Api {
    name: "SaslAuthenticate",
    key: 36,
    version: 0,
};

/// The name that the broker's logs, metrics and quotas have for this program.
const CLIENT: &str = "tollgate-ship";
/// The leader answers after all replicas in sync have the records.
const ALL_REPLICAS: i16 = -1;

/// A request with its length in front.
///
/// # Errors
/// It has more than 2 GiB.
pub(super) fn request(
    api: Api,
    number: i32,
    body: &[u8],
) -> Result<Vec<u8>, std::num::TryFromIntError> {
    let mut head = Vec::new();
    head.put_i16(api.key);
    head.put_i16(api.version);
    head.put_i32(number);
    head.put_text(CLIENT);
    let mut request = Vec::with_capacity(head.len() + body.len() + 4);
    request.put_i32(i32::try_from(head.len() + body.len())?);
    request.extend_from_slice(&head);
    request.extend_from_slice(body);
    Ok(request)
}

/// Requests that a broker knows, each with its oldest and latest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiVersions {
    pub(super) error: i16,
    versions: Vec<(i16, i16, i16)>,
}

impl ApiVersions {
    /// # Errors
    /// The answer is none, as for all of these.
    pub(super) fn read(answer: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(answer);
        let error = reader.i16()?;
        let versions = reader.list(|reader| Ok((reader.i16()?, reader.i16()?, reader.i16()?)))?;
        Ok(Self { error, versions })
    }

    /// Whether the broker takes a request.
    pub(super) fn has(&self, api: Api) -> bool {
        let mut versions = self.versions.iter();
        versions.any(|&(key, oldest, latest)| {
            key == api.key && (oldest..=latest).contains(&api.version)
        })
    }
}

/// Who leads the partitions of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    /// Numbers, hosts and ports.
    pub(super) brokers: Vec<(i32, String, i32)>,
    /// Error of the topic.
    pub(super) error: i16,
    pub(super) partitions: Vec<PartitionMetadata>,
}

/// Who leads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartitionMetadata {
    pub(super) error: i16,
    pub(super) partition: i32,
    /// Number of a broker.
    pub(super) leader: i32,
}

impl Metadata {
    /// Body of the request about a topic.
    pub(super) fn request(topic: &str) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_i32(1);
        body.put_text(topic);
        // The topic is not created: the broker would choose its partitions and replicas.
        body.put_i8(0);
        body
    }

    pub(super) fn read(answer: &[u8], topic: &str) -> Result<Self, Malformed> {
        let mut reader = Reader(answer);
        let _throttled = reader.i32()?;
        let brokers = reader.list(|reader| {
            let broker = (reader.i32()?, reader.text()?, reader.i32()?);
            let _rack = reader.text()?;
            Ok(broker)
        })?;
        let _cluster = reader.text()?;
        let _controller = reader.i32()?;
        let topics = reader.list(|reader| {
            let (error, name) = (reader.i16()?, reader.text()?);
            let _is_internal = reader.bool()?;
            let partitions = reader.list(|reader| {
                let partition = PartitionMetadata {
                    error: reader.i16()?,
                    partition: reader.i32()?,
                    leader: reader.i32()?,
                };
                let _replicas = reader.list(Reader::i32)?;
                let _in_sync = reader.list(Reader::i32)?;
                Ok(partition)
            })?;
            Ok((error, name, partitions))
        })?;
        let mut topics = topics.into_iter();
        let (error, _, partitions) = topics.find(|(_, name, _)| name == topic).ok_or(Malformed)?;
        Ok(Self {
            brokers,
            error,
            partitions,
        })
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Produced {
    pub(super) error: i16,
    /// Milliseconds in which the broker takes no other request.
    pub(super) throttled_ms: i32,
}

impl Produced {
    /// Body of the request that sends a batch; the leader waits so long for the other replicas.
    pub(super) fn request(topic: &str, partition: i32, timeout_ms: i32, batch: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(batch.len() + topic.len() + 32);
        // No transaction.
        body.put_i16(-1);
        body.put_i16(ALL_REPLICAS);
        body.put_i32(timeout_ms);
        body.put_i32(1);
        body.put_text(topic);
        body.put_i32(1);
        body.put_i32(partition);
        body.put_bytes(batch);
        body
    }

    pub(super) fn read(answer: &[u8], topic: &str, partition: i32) -> Result<Self, Malformed> {
        let mut reader = Reader(answer);
        let topics = reader.list(|reader| {
            let name = reader.text()?;
            let partitions = reader.list(|reader| {
                let found = (reader.i32()?, reader.i16()?);
                let _offset = reader.i64()?;
                let _append_time = reader.i64()?;
                let _first_offset = reader.i64()?;
                Ok(found)
            })?;
            Ok((name, partitions))
        })?;
        let throttled_ms = reader.i32()?;
        let mut partitions = topics
            .iter()
            .filter(|(name, _)| name == topic)
            .flat_map(|(_, partitions)| partitions);
        let (_, error) = partitions
            .find(|(number, _)| *number == partition)
            .ok_or(Malformed)?;
        Ok(Self {
            error: *error,
            throttled_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use inputs::fuzz::fuzz;

    use super::*;

    #[test]
    fn requests_have_the_bytes_of_the_documentation() {
        assert_eq!(
            request(METADATA, 7, &Metadata::request("audit")).unwrap(),
            b"\0\0\0\x23\0\x03\0\x04\0\0\0\x07\0\x0dtollgate-ship\0\0\0\x01\0\x05audit\0"
        );
        assert_eq!(
            Produced::request("a", 3, 1000, b"batch"),
            b"\xff\xff\xff\xff\0\0\x03\xe8\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\x03\0\0\0\x05batch"
        );
    }

    #[test]
    fn versions_are_read() {
        let versions =
            ApiVersions::read(b"\0\0\0\0\0\x02\0\0\0\x03\0\x0d\0\x03\0\x05\0\x09").unwrap();
        assert_eq!(versions.error, 0);
        assert!(versions.has(PRODUCE) && !versions.has(METADATA));
        assert!(!versions.has(SASL_HANDSHAKE));
    }

    const METADATA_ANSWER: &[u8] = b"\0\0\0\0\0\0\0\x01\0\0\0\x05\0\x01h\0\0\x23\x84\xff\xff\0\x01c\0\0\0\x05\
        \0\0\0\x01\0\0\0\x05audit\0\0\0\0\x01\0\x09\0\0\0\x02\0\0\0\x05\0\0\0\x01\0\0\0\x05\0\0\0\0";
    const PRODUCED_ANSWER: &[u8] =
        b"\0\0\0\x01\0\x05audit\0\0\0\x01\0\0\0\x02\0\x06\0\0\0\0\0\0\0\x01\
        \xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\x09";

    #[test]
    fn leaders_are_read() {
        let metadata = Metadata::read(METADATA_ANSWER, "audit").unwrap();
        let partition = PartitionMetadata {
            error: 9,
            partition: 2,
            leader: 5,
        };
        let expected = Metadata {
            brokers: vec![(5, "h".to_owned(), 9092)],
            error: 0,
            partitions: vec![partition],
        };
        assert_eq!(metadata, expected);
        assert_eq!(Metadata::read(METADATA_ANSWER, "other"), Err(Malformed));
    }

    #[test]
    fn errors_of_batches_are_read() {
        let expected = Produced {
            error: 6,
            throttled_ms: 9,
        };
        assert_eq!(Produced::read(PRODUCED_ANSWER, "audit", 2), Ok(expected));
        assert_eq!(Produced::read(PRODUCED_ANSWER, "audit", 3), Err(Malformed));
    }

    /// Whatever a broker answers is read or refused.
    #[test]
    fn fuzz_ship_kafka_answers() {
        fuzz(
            "fuzz_ship_kafka_answers",
            &[METADATA_ANSWER, PRODUCED_ANSWER].map(<[u8]>::to_vec),
            &["\0\0\0\u{1}", "\u{7f}", "audit"],
            2000,
            |answer| {
                let _metadata = Metadata::read(answer, "audit");
                let _produced = Produced::read(answer, "audit", 2);
                let _versions = ApiVersions::read(answer);
            },
        );
    }
}
