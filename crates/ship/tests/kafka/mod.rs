//! `tollgate-ship run` with brokers of Kafka.

mod broker;
mod failures;
mod messages;

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::place::{Place, wait_until};
use broker::{Cluster, Reply};
use messages::number;

/// A destination `k` with the settings of a test.
fn configuration(cluster: &Cluster, settings: &str) -> String {
    let [one, other] = cluster.ports;
    format!(
        "[kafka.k]\nbrokers = [\"localhost:{one}\", \"localhost:{other}\"]\ntopic = \"audit\"\nstart = \"begin\"\n{settings}"
    )
}

fn place(cluster: &Cluster, settings: &str) -> Place {
    Place::new(&configuration(cluster, settings))
}

/// What the status says about the destination.
fn status(place: &Place) -> Value {
    let output = place.status(&["--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    found["destinations"][0].clone()
}

#[track_caller]
fn wait_for_all(cluster: &Cluster, count: u32) {
    wait_until("all events", || {
        thread::park_timeout(Duration::from_millis(20));
        cluster.numbers() == (0..count).collect()
    });
}

/// Numbers of the events that were taken, in order.
fn order(cluster: &Cluster) -> Vec<u32> {
    cluster.taken().iter().filter_map(number).collect()
}

#[test]
fn records_are_json_lines_with_host_time_and_order() {
    const COUNT: u32 = 1500;
    for (setting, codec) in [
        ("", 4),
        ("compression = \"zstd\"\n", 4),
        ("compression = \"gzip\"\n", 1),
        ("compression = \"none\"\n", 0),
    ] {
        let cluster = Cluster::new(|_| Reply::Take);
        let place = place(&cluster, setting);
        place.append_events(0, COUNT);
        let output = place.once();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(order(&cluster), (0..COUNT).collect::<Vec<u32>>());
        for record in cluster.taken() {
            let value = &record.value;
            assert_eq!((record.key.as_str(), &value["host"]), ("h", &json!("h")));
            let (seconds, millis) = value["time"].as_str().unwrap().split_once('.').unwrap();
            assert_eq!(record.ms.to_string(), format!("{seconds}{millis}"));
        }
        let taken = cluster.taken();
        assert_eq!(taken[0].value["kind"], "heartbeat");
        assert_eq!(taken[taken.len() - 1].value["sent"], COUNT);
        for batch in cluster.batches() {
            assert_eq!(batch.codec, codec);
            // 768 KiB of JSON and a record, with what is around each.
            assert!(batch.len < 800 << 10);
        }
        assert_eq!(place.confirmed(), COUNT);
    }
}

#[test]
fn every_serial_arrives_over_kills_of_both_sides_and_moves_of_the_leader() {
    const COUNT: u32 = 4_000;
    let mut number = 0;
    let cluster = Cluster::new(move |_| {
        number += 1;
        match number % 13 {
            // Not enough replicas.
            3 => Reply::Error(19),
            // Slow.
            5 => {
                thread::park_timeout(Duration::from_millis(100));
                Reply::Take
            }
            7 => Reply::TakeAndDie,
            9 => Reply::Move,
            11 => Reply::TakeAndClose,
            _ => Reply::Take,
        }
    });
    let place = place(&cluster, "");
    let mut run = place.start();
    for batch in 0..16 {
        place.append_events(batch * COUNT / 16, COUNT / 16);
        thread::park_timeout(Duration::from_millis(60));
        match batch {
            3 | 11 => place.rotate(10),
            5 | 13 => {
                cluster.kill();
                thread::park_timeout(Duration::from_millis(100));
                cluster.restart();
            }
            2 | 8 | 14 => {
                run.kill();
                run = place.start();
            }
            _ => {}
        }
    }
    cluster.plan(|_| Reply::Take);
    wait_for_all(&cluster, COUNT);
    place.wait_sent(COUNT);
    assert!(run.end(), "{}", place.text("stderr"));
    let taken = cluster.taken();
    assert!(taken.iter().all(|record| record.value["kind"] != "gap"));
    // What came first of each event is in order: a batch that comes again begins with events that came before.
    let mut next = 0;
    for number in order(&cluster) {
        assert!(number <= next, "{number} before {next}");
        next = next.max(number + 1);
    }
    assert_eq!(place.confirmed(), COUNT);
}

#[test]
fn leader_that_has_moved_is_found() {
    let mut has_moved = false;
    let cluster = Cluster::new(move |batch| {
        let has_events = batch.records.iter().any(|record| number(record).is_some());
        match has_events && !has_moved {
            true => {
                has_moved = true;
                Reply::Move
            }
            false => Reply::Take,
        }
    });
    let place = place(&cluster, "");
    place.append_events(0, 50);
    let run = place.start();
    wait_for_all(&cluster, 50);
    place.wait_sent(50);
    assert_eq!(status(&place)["error"], Value::Null);
    assert!(run.end());
    let told = place.error("k").unwrap();
    let expected = "of topic `audit`, answers NOT_LEADER_OR_FOLLOWER (6): the leader has moved";
    assert!(told.contains(expected), "{told}");
    assert!(cluster.events().values().all(|times| *times == 1));
}

/// Brokers close connections that are idle.
#[test]
fn connection_that_was_closed_meanwhile_is_no_failure() {
    let cluster = Cluster::new(|_| Reply::TakeAndClose);
    let place = place(&cluster, "");
    let run = place.start();
    for batch in 0..5 {
        place.append_events(batch * 5, 5);
        wait_until("some events", || {
            cluster.numbers().len() >= usize::try_from(batch * 5 + 5).unwrap()
        });
        assert_eq!(status(&place)["error"], Value::Null);
    }
    assert!(run.end());
    assert_eq!(place.error("k"), None);
    assert!(cluster.events().values().all(|times| *times == 1));
    assert!(cluster.connections() > 5);
}

#[test]
fn batches_that_are_too_large_are_halved_and_a_record_is_rejected() {
    const LIMIT: usize = 20_000;
    let cluster = Cluster::new(|batch| match batch.len > LIMIT {
        true => Reply::Error(10),
        false => Reply::Take,
    });
    let place = place(&cluster, "compression = \"none\"\n");
    place.append_events(0, 150);
    // Alone, this one is too large.
    place.append(&format!(
        "type=USER_CMD msg=audit(1700000000.000:7): pid=1 cmd={}\n",
        "41".repeat(LIMIT)
    ));
    place.append_events(150, 150);
    let run = place.start();
    wait_for_all(&cluster, 300);
    place.wait_sent(301);
    let found = status(&place);
    assert_eq!(found["counts"]["rejected"], 1);
    assert_eq!(
        (&found["state"], &found["unconfirmed"]),
        (&json!("connected"), &json!(0))
    );
    let error = found["error"].as_str().unwrap();
    assert!(
        error.starts_with("the destination rejects records"),
        "{error}"
    );
    let advice = "MESSAGE_TOO_LARGE (10): `max.message.bytes` of the topic is too small";
    assert!(error.ends_with(advice), "{error}");
    let shown = String::from_utf8(place.status(&[]).stdout).unwrap();
    assert!(
        shown.contains("rejected    1 records, by the destination"),
        "{shown}"
    );
    assert!(cluster.events().values().all(|times| *times == 1));
    let before = cluster.batches().len();
    // What comes later is not tried as one again: the limit is known but for a record and what is around each.
    place.append_events(300, 200);
    wait_for_all(&cluster, 500);
    let batches = cluster.batches();
    let refused = batches[before..].iter().filter(|batch| batch.len > LIMIT);
    assert!(refused.count() <= 1);
    assert!(run.end());
    assert_eq!(place.confirmed(), 501);
}
