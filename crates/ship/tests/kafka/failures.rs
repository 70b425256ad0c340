//! Brokers that do not answer, or are none.

use std::fs;

use super::broker::{Cluster, Reply};
use super::{configuration, place, wait_for_all};
use crate::certificates::{self, server_config};
use crate::place::{Place, wait_until};

/// Starts a run, and waits until it has told an error with a text.
#[track_caller]
fn failure(place: &Place, expected: &str) {
    fs::write(place.path("stderr"), "").unwrap();
    let run = place.start();
    wait_until(expected, || {
        let Some(line) = place.error("k") else {
            return false;
        };
        assert!(line.contains(expected), "{expected}: {line}");
        true
    });
    run.kill();
}

/// An answer with the length and the number of the request in front: the first batch is the third request.
fn framed(body: &[u8]) -> Reply {
    let length = i32::try_from(body.len() + 4).unwrap();
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(3_i32.to_be_bytes());
    bytes.extend_from_slice(body);
    Reply::Send(bytes)
}

#[test]
fn answers_that_are_none_are_told_and_nothing_is_lost() {
    let cluster = Cluster::new(|_| Reply::Hang);
    let place = place(&cluster, "timeout = 1\n");
    place.append_events(0, 300);
    for (reply, expected) in [
        (Reply::Hang, "has not answered Produce for 1 seconds"),
        (
            Reply::Send(b"\0\0\0\x09abc".into()),
            "has not answered Produce for 1 seconds",
        ),
        (
            Reply::Send(b"HTTP/1.1 400 Bad Request\r\n\r\n".into()),
            "not as a broker of Kafka",
        ),
        (
            Reply::Send(b"\xff\xff\xff\xff".into()),
            "not as a broker of Kafka",
        ),
        (
            Reply::Send(b"\0\0\0\x04\x7f\0\0\0".into()),
            "it is no broker of Kafka",
        ),
        (framed(b""), "its answer is none of Kafka"),
        (framed(&[0x7f; 40]), "its answer is none of Kafka"),
        (
            framed(&super::messages::answer("other", 0, 0)),
            "its answer is none of Kafka",
        ),
        (
            Reply::TakeAndDie,
            "has closed the connection without an answer to Produce",
        ),
        (
            Reply::Error(7),
            "answers REQUEST_TIMED_OUT (7): not all replicas",
        ),
        (Reply::Error(19), "answers NOT_ENOUGH_REPLICAS (19): "),
        (
            Reply::Error(29),
            "answers TOPIC_AUTHORIZATION_FAILED (29): permit Describe and Write",
        ),
        (
            Reply::Error(76),
            "answers UNSUPPORTED_COMPRESSION_TYPE (76): write another `compression`",
        ),
        (Reply::Error(1234), "answers an error (1234): "),
    ] {
        cluster.plan(move |_| reply.clone());
        failure(&place, expected);
    }
    cluster.plan(|_| Reply::Take);
    cluster.fail_topic(3);
    failure(
        &place,
        "for topic `audit`, answers UNKNOWN_TOPIC_OR_PARTITION (3): create the topic",
    );
    cluster.fail_topic(0);
    cluster.lead(-1);
    failure(&place, "of topic `audit`, names no leader");
    cluster.lead(0);
    cluster.know(&[(0, 3, 6), (3, 0, 13), (18, 0, 4)]);
    failure(
        &place,
        "does not know version 7 of Produce: it is older than Kafka 2.1",
    );
    cluster.know(&[(0, 0, 13), (3, 0, 13)]);
    // A broker behind another address, which Landlock does not permit.
    cluster.announce(&[9, cluster.ports[1]]);
    failure(
        &place,
        "`localhost:9`, and no address in `brokers` has that port",
    );
    cluster.announce(&cluster.ports);
    assert!(cluster.events().is_empty());
    place.configure(&configuration(&cluster, ""));
    assert!(place.once().status.success());
    wait_for_all(&cluster, 300);
    assert_eq!(place.confirmed(), 300);
}

#[test]
fn broker_that_is_away_is_passed_over_and_all_are_told() {
    let cluster = Cluster::new(|_| Reply::Take);
    let port = cluster.ports[0];
    let place = Place::new(&format!(
        "[kafka.k]\nbrokers = [\"localhost:1\", \"localhost:{port}\"]\ntopic = \"audit\"\nstart = \"begin\"\n"
    ));
    place.append_events(0, 10);
    assert!(place.once().status.success());
    assert_eq!(cluster.numbers().len(), 10);
    cluster.kill();
    failure(
        &place,
        &format!(
            "cannot connect to `localhost:1`: Connection refused (os error 111); cannot connect to `localhost:{port}`"
        ),
    );
}

#[test]
fn brokers_certificates_and_passwords_that_are_wrong_are_told() {
    const CA: &str = "ca = \"DIR/certificates/ca.pem\"\n";
    let identity = "certificate = \"DIR/certificates/h.pem\"\nkey = \"DIR/certificates/h.key\"\n";
    let place = certificates::place();
    place.append_events(0, 10);
    let start = |certificate| {
        Cluster::start(
            Some(server_config(&place, certificate)),
            Some("\0ship\0s3cret"),
            |_| Reply::Take,
        )
    };
    let (cluster, expired) = (start("server"), start("expired"));
    fs::write(place.path("password"), "s3cret\n").unwrap();
    fs::write(place.path("wrong"), "s3cret2\n").unwrap();
    let sasl = "[kafka.k.sasl]\nmechanism = \"PLAIN\"\nuser = \"ship\"\npassword_file = \"DIR/password\"\n";
    let good = format!("[kafka.k.tls]\n{CA}{identity}{sasl}");
    for (cluster, settings, expected) in [
        (
            &expired,
            good.clone(),
            "invalid peer certificate: certificate expired",
        ),
        (
            &cluster,
            good.replace("ca.pem", "other-ca.pem"),
            "invalid peer certificate: UnknownIssuer",
        ),
        (&cluster, good.replace(identity, ""), "ertificate"),
        (
            &cluster,
            good.replace("h.pem", "absent.pem"),
            "cannot read certificates `",
        ),
        (
            &cluster,
            good.replace("DIR/password", "DIR/wrong"),
            "answers SASL_AUTHENTICATION_FAILED (58): look at `user`",
        ),
        (
            &cluster,
            good.replace("DIR/password", "DIR/absent"),
            "the password of table `sasl` cannot be read",
        ),
        (
            &cluster,
            good.replace("PLAIN", "SCRAM-SHA-512"),
            "does not take `SCRAM-SHA-512`, but PLAIN: change `mechanism`",
        ),
        (
            &cluster,
            good.replace(sasl, ""),
            "it ends, or its listener wants a table `tls`, `sasl`",
        ),
    ] {
        place.configure(&configuration(cluster, &settings));
        failure(&place, expected);
        assert!(!place.text("stderr").contains("s3cret"));
    }
    assert_eq!((cluster.batches().len(), expired.batches().len()), (0, 0));
    // What was refused is sent when the settings are right.
    place.configure(&configuration(&cluster, &good));
    assert!(place.once().status.success());
    assert_eq!(cluster.numbers().len(), 10);
}
