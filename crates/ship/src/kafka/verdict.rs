//! What an error of a broker means for the records of a request.
//!
//! | error | records |
//! | --- | --- |
//! | none | taken |
//! | too large, or a record that the topic does not take | refused: some of them may be taken without the others |
//! | any other | not taken: they are sent again to whom the cluster then names, nothing is dropped |
//!
//! # Source
//! Apache Kafka 4.3, `Errors.java`.

use anyhow::anyhow;

use crate::halves::{Rejected, Verdict};

/// No error.
const NONE: i16 = 0;
/// Errors by their numbers, with their names and what is to be done.
const ERRORS: [(i16, &str, &str); 29] = [
    (
        2,
        "CORRUPT_MESSAGE",
        "the batch was damaged on the way; it is sent again",
    ),
    (
        3,
        "UNKNOWN_TOPIC_OR_PARTITION",
        "create the topic, or write the right `topic`; this program creates none",
    ),
    (
        5,
        "LEADER_NOT_AVAILABLE",
        "no replica leads the partition now; it is tried again",
    ),
    (
        6,
        "NOT_LEADER_OR_FOLLOWER",
        "the leader has moved; the cluster is asked again",
    ),
    (
        7,
        "REQUEST_TIMED_OUT",
        "not all replicas in sync had the records within three quarters of `timeout`; they are sent again",
    ),
    (
        8,
        "BROKER_NOT_AVAILABLE",
        "the broker starts or ends; it is tried again",
    ),
    (
        9,
        "REPLICA_NOT_AVAILABLE",
        "the replica is not ready; it is tried again",
    ),
    (
        10,
        "MESSAGE_TOO_LARGE",
        "`max.message.bytes` of the topic is too small",
    ),
    (
        13,
        "NETWORK_EXCEPTION",
        "the broker has lost another one; it is tried again",
    ),
    (17, "INVALID_TOPIC_EXCEPTION", "write the right `topic`"),
    (
        18,
        "RECORD_LIST_TOO_LARGE",
        "`segment.bytes` of the topic is too small",
    ),
    (
        19,
        "NOT_ENOUGH_REPLICAS",
        "fewer replicas are in sync than `min.insync.replicas` of the topic wants; it is tried again",
    ),
    (
        20,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "fewer replicas have the records than `min.insync.replicas` of the topic wants; they are sent again",
    ),
    (
        29,
        "TOPIC_AUTHORIZATION_FAILED",
        "permit Describe and Write on the topic to the user or certificate of this machine",
    ),
    (
        31,
        "CLUSTER_AUTHORIZATION_FAILED",
        "permit it to the user or certificate of this machine",
    ),
    (
        32,
        "INVALID_TIMESTAMP",
        "the time of an event is further from now than `message.timestamp.before.max.ms` or `.after.max.ms` of the topic permits",
    ),
    (
        33,
        "UNSUPPORTED_SASL_MECHANISM",
        "write a `mechanism` that the listener has",
    ),
    (
        34,
        "ILLEGAL_SASL_STATE",
        "remove the table `sasl`, or name a listener that has SASL",
    ),
    (35, "UNSUPPORTED_VERSION", "a broker of Kafka 2.1 is needed"),
    (
        42,
        "INVALID_REQUEST",
        "it may be no broker of Kafka 2.1 or newer; it is tried again",
    ),
    (
        43,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "the topic has the format of an old version (`message.format.version`)",
    ),
    (
        44,
        "POLICY_VIOLATION",
        "look at the policies of the cluster",
    ),
    (
        56,
        "KAFKA_STORAGE_ERROR",
        "look at the disk of the broker; it is tried again",
    ),
    (
        58,
        "SASL_AUTHENTICATION_FAILED",
        "look at `user` and `password_file` of the table `sasl`",
    ),
    (
        74,
        "FENCED_LEADER_EPOCH",
        "the leader has moved; the cluster is asked again",
    ),
    (
        75,
        "UNKNOWN_LEADER_EPOCH",
        "the leader has moved; the cluster is asked again",
    ),
    (
        76,
        "UNSUPPORTED_COMPRESSION_TYPE",
        "write another `compression`",
    ),
    (
        87,
        "INVALID_RECORD",
        "the topic does not take the record; look at its settings and at the log of the broker",
    ),
    (89, "THROTTLING_QUOTA_EXCEEDED", "it is tried again"),
];

/// The verdict of an answer to a batch; `who` is the broker and the partition.
///
/// # Errors
/// The records are not taken now.
pub(super) fn of(code: i16, who: &str) -> anyhow::Result<Verdict> {
    let is_too_large = match code {
        NONE => return Ok(Verdict::Taken(Rejected::default())),
        10 | 18 => true,
        32 | 87 => false,
        _ => return Err(failure(code, who)),
    };
    Ok(Verdict::Refused {
        told: failure(code, who).to_string(),
        is_too_large,
    })
}

/// Checks that there is no error.
///
/// # Errors
/// There is.
pub(super) fn check(code: i16, who: &str) -> anyhow::Result<()> {
    match code {
        NONE => Ok(()),
        _ => Err(failure(code, who)),
    }
}

fn failure(code: i16, who: &str) -> anyhow::Error {
    let known = ERRORS.iter().find(|(known, ..)| *known == code);
    let (_, name, advice) = known.copied().unwrap_or((
        code,
        "an error",
        "the documentation of Kafka lists them; nothing is dropped, and it is tried again",
    ));
    anyhow!("{who} answers {name} ({code}): {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_take_refuse_or_fail() {
        assert!(matches!(of(0, "b"), Ok(Verdict::Taken(rejected)) if rejected.records == 0));
        for (code, is_large, expected) in [
            (
                10,
                true,
                "b answers MESSAGE_TOO_LARGE (10): `max.message.bytes`",
            ),
            (18, true, "b answers RECORD_LIST_TOO_LARGE (18): "),
            (32, false, "b answers INVALID_TIMESTAMP (32): "),
            (87, false, "b answers INVALID_RECORD (87): "),
        ] {
            let Ok(Verdict::Refused { told, is_too_large }) = of(code, "b") else {
                panic!("{code}");
            };
            assert!(told.starts_with(expected), "{told}");
            assert_eq!(is_too_large, is_large);
        }
    }

    #[test]
    fn failures_have_name_and_advice() {
        for (code, name, advice) in [
            (3, "UNKNOWN_TOPIC_OR_PARTITION", "create the topic"),
            (6, "NOT_LEADER_OR_FOLLOWER", "is asked again"),
            (7, "REQUEST_TIMED_OUT", "sent again"),
            (19, "NOT_ENOUGH_REPLICAS", "tried again"),
            (29, "TOPIC_AUTHORIZATION_FAILED", "permit"),
            (58, "SASL_AUTHENTICATION_FAILED", "`password_file`"),
            (-1, "an error", "nothing is dropped"),
            (i16::MAX, "an error", "nothing is dropped"),
        ] {
            let told = of(code, "b").unwrap_err().to_string();
            assert!(
                told.starts_with(&format!("b answers {name} ({code}): ")),
                "{told}"
            );
            assert!(told.contains(advice), "{told}");
            check(code, "b").unwrap_err();
        }
        check(0, "b").unwrap();
    }
}
