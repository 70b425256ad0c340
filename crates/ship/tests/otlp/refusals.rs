//! Collectors that do not take what they get.

use std::thread;
use std::time::Duration;

use serde_json::json;

use super::messages::partial_success;
use super::server::{Reply, Server, answer, number};
use super::{place, status, wait_for_all, wait_for_status};
use crate::place::wait_until;

#[test]
fn busy_collector_is_left_alone_for_the_time_that_it_wants() {
    let mut number = 0;
    let server = Server::new(move |_| {
        number += 1;
        match number {
            2 => Reply::status(
                503,
                "Retry-After: 2\r\nContent-Type: text/plain\r\n",
                b"queue is\x1b full",
            ),
            3 => Reply::status(429, "", b""),
            _ => Reply::Take,
        }
    });
    let place = place(&server, "");
    place.append_events(0, 10);
    let run = place.start();
    wait_for_status(&place, "an error", |status| status["state"] == "waiting");
    let output = place.status(&[]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains(
            "answers 503: queue is  full: it wants no request for 2 seconds (1 failures)"
        ),
        "{text}"
    );
    wait_for_all(&server, 10, &place);
    let requests = server.requests();
    assert!(requests[2].at - requests[1].at >= Duration::from_secs(2));
    wait_for_status(&place, "no error", |status| status["error"].is_null());
    assert!(run.end());
    assert!(place.text("stderr").contains("answers 429"));
}

/// A collector that takes some requests and then is busy again makes progress.
#[test]
fn requests_that_were_taken_before_a_failure_are_not_sent_again() {
    let mut number = 0;
    let server = Server::new(move |_| {
        number += 1;
        match number % 3 {
            0 => Reply::status(429, "", b""),
            _ => Reply::Take,
        }
    });
    let place = place(&server, "");
    place.append_events(0, 3000);
    let run = place.start();
    wait_for_all(&server, 3000, &place);
    place.wait_sent(3000);
    assert!(server.events().values().all(|times| *times == 1));
    run.kill();
}

#[test]
fn rejected_records_are_counted_told_and_not_sent_again() {
    let body = partial_success(3, "too\nold");
    let partial = answer(200, "Content-Type: application/x-protobuf\r\n", &body);
    let server = Server::new(
        move |request| match request.records.iter().find_map(number) {
            Some(0) => Reply::TakeAndSend(partial.clone()),
            _ => Reply::Take,
        },
    );
    let place = place(&server, "");
    place.append_events(0, 10);
    let run = place.start();
    wait_for_status(&place, "a refusal", |status| {
        status["counts"]["rejected"] == 3
    });
    place.append_events(10, 10);
    wait_for_all(&server, 20, &place);
    place.wait_sent(20);
    let found = status(&place);
    assert_eq!(
        (&found["state"], &found["unconfirmed"]),
        (&json!("connected"), &json!(0))
    );
    let text = "the destination rejects records, which are not sent again: too old";
    assert_eq!(found["error"], text);
    let output = place.status(&[]);
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.contains("rejected    3 records, by the destination"),
        "{shown}"
    );
    assert!(run.end());
    assert!(place.text("stderr").contains(&format!(" c: {text}")));
    assert!(server.events().values().all(|times| *times == 1));
    let last = server.taken().pop().unwrap();
    assert_eq!(last["attributes"]["audit.rejected"], 3);
}

/// Whatever number a collector tells, no more records are rejected than were sent.
#[test]
fn collector_rejects_no_more_than_it_got() {
    let body = partial_success(i64::MAX, "all");
    let all = answer(200, "Content-Type: application/x-protobuf\r\n", &body);
    let server = Server::new(move |_| Reply::TakeAndSend(all.clone()));
    let place = place(&server, "");
    let run = place.start();
    for number in 0..4 {
        place.append_events(number, 1);
        wait_for_all(&server, number + 1, &place);
    }
    assert!(run.end());
    let sent = server.taken().len();
    let events = server.events().len();
    assert_eq!((events, server.events().values().sum()), (4, 4));
    let rejected = status(&place)["counts"]["rejected"].as_u64().unwrap();
    assert!(
        rejected >= 4 && rejected <= sent.try_into().unwrap(),
        "{rejected}"
    );
}

#[test]
fn requests_that_are_too_large_are_halved() {
    const LIMIT: usize = 20_000;
    let server = Server::new(|request| match request.len > LIMIT {
        // Before the rest of the body is read, as servers do.
        true => Reply::status(413, "Connection: close\r\n", b""),
        false => Reply::Take,
    });
    let place = place(&server, "");
    place.append_events(0, 300);
    // Alone, this one is too large.
    let large = format!(
        "type=USER_CMD msg=audit(1700000000.000:7): pid=1 cmd={}\n",
        "41".repeat(LIMIT)
    );
    place.append(&large);
    place.append_events(300, 300);
    let run = place.start();
    wait_for_all(&server, 600, &place);
    place.wait_sent(601);
    let found = status(&place);
    assert_eq!(found["counts"]["rejected"], 1);
    let error = found["error"].as_str().unwrap();
    assert!(
        error.contains("not sent again: `http://127.0.0.1:"),
        "{error}"
    );
    assert!(error.ends_with("/v1/logs` answers 413"), "{error}");
    assert!(server.events().values().all(|times| *times == 1));
    let before = server.requests().len();
    // What comes later is not tried as one again.
    place.append_events(600, 400);
    wait_for_all(&server, 1000, &place);
    let requests = server.requests();
    assert!(
        requests[before..]
            .iter()
            .all(|request| request.len <= LIMIT)
    );
    assert!(run.end());
}

/// The OpenTelemetry Collector answers 400 to a request that is larger than `max_request_body_size`.
#[test]
fn requests_that_are_refused_for_their_size_are_no_larger_later() {
    const LIMIT: usize = 50_000;
    let server = Server::new(|request| match request.len > LIMIT {
        true => Reply::status(400, "", b""),
        false => Reply::Take,
    });
    let place = place(&server, "");
    place.append_events(0, 2000);
    assert!(place.once().status.success());
    assert_eq!(server.numbers(), (0..2000).collect());
    let requests = server.requests();
    let refused = requests.iter().filter(|request| request.len > LIMIT);
    // Of the first batch only: 1 MiB in parts of 32 KiB.
    assert!(refused.count() < 32);
    assert_eq!(status(&place)["counts"]["rejected"], 0);
}

#[test]
fn record_that_is_refused_does_not_hold_the_others() {
    let refuse = |request: &super::server::Request| {
        let mut numbers = request.records.iter().filter_map(number);
        match numbers.any(|number| number == 77 || number == 78) {
            true => Reply::status(400, "Content-Type: text/plain\r\n", b"no such tenant"),
            false => Reply::Take,
        }
    };
    let server = Server::new(refuse);
    let place = place(&server, "");
    place.append_events(0, 200);
    let run = place.start();
    wait_until("the others", || server.numbers().len() == 198);
    place.wait_sent(200);
    let found = status(&place);
    assert_eq!(found["counts"]["rejected"], 2);
    assert!(
        found["error"]
            .as_str()
            .unwrap()
            .ends_with(" answers 400: no such tenant")
    );
    // It makes no later request smaller.
    let before = server.requests().len();
    place.append_events(200, 400);
    wait_until("later events", || server.numbers().len() == 598);
    assert!(server.requests().len() - before < 20);
    place.wait_sent(600);
    assert!(run.end());
    assert_eq!(place.confirmed(), 600);
}

/// A collector that refuses everything is a failure: the log is not passed over.
#[test]
fn collector_that_refuses_everything_gets_everything_when_it_is_mended() {
    let refuse_all = || Reply::status(400, "", b"");
    let server = Server::new(move |_| refuse_all());
    let place = place(&server, "");
    place.append_events(0, 500);
    let run = place.start();
    wait_for_status(&place, "an error", |status| status["state"] == "waiting");
    assert!(
        status(&place)["error"]
            .as_str()
            .unwrap()
            .ends_with(" answers 400")
    );
    thread::park_timeout(Duration::from_millis(300));
    server.plan(|_| Reply::Take);
    wait_for_all(&server, 500, &place);
    place.wait_sent(500);
    assert_eq!(status(&place)["counts"]["rejected"], 0);
    // One that takes heartbeats and no event is a failure, too.
    server.plan(move |request| {
        match request
            .records
            .iter()
            .any(|record| number(record).is_some())
        {
            true => refuse_all(),
            false => Reply::Take,
        }
    });
    place.append_events(500, 500);
    wait_for_status(&place, "an error", |status| {
        let error = status["error"].as_str();
        error.is_some_and(|error| error.contains("no more are left out"))
    });
    server.plan(|_| Reply::Take);
    wait_for_all(&server, 1000, &place);
    place.wait_sent(1000);
    assert_eq!(status(&place)["counts"]["rejected"], 0);
    assert!(run.end());
    assert_eq!(place.confirmed(), 1000);
}
