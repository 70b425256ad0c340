//! `tollgate-ship run` with a collector of OTLP.

mod failures;
mod messages;
mod records;
mod refusals;
mod server;

use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::place::{Place, wait_until};
use server::{Reply, Server, answer};

/// A destination `c` with the settings of a test.
fn configuration(server: &Server, settings: &str) -> String {
    let port = server.port;
    format!("[otlp.c]\nurl = \"http://127.0.0.1:{port}/v1/logs\"\nstart = \"begin\"\n{settings}")
}

fn place(server: &Server, settings: &str) -> Place {
    Place::new(&configuration(server, settings))
}

/// What the status says about the destination.
fn status(place: &Place) -> Value {
    let output = place.status(&["--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    found["destinations"][0].clone()
}

/// Waits until the status of the destination is as wanted.
#[track_caller]
fn wait_for_status(place: &Place, what: &str, mut is_wanted: impl FnMut(&Value) -> bool) {
    wait_until(what, || {
        thread::park_timeout(Duration::from_millis(50));
        is_wanted(&status(place))
    });
}

#[track_caller]
fn wait_for_all(server: &Server, count: u32, place: &Place) {
    wait_until("all events", || {
        thread::park_timeout(Duration::from_millis(50));
        server.numbers() == (0..count).collect()
    });
    assert_eq!(place.text("stderr").matches("panicked").count(), 0);
}

#[test]
fn requests_are_bounded_and_can_be_plain() {
    const COUNT: u32 = 3000;
    let server = Server::new(|_| Reply::Take);
    let place = place(&server, "compression = \"none\"\n");
    place.append_events(0, COUNT);
    assert!(place.once().status.success());
    assert_eq!(server.numbers(), (0..COUNT).collect());
    let requests = server.requests();
    assert!(requests.len() < 20, "{}", requests.len());
    for request in &requests {
        // A record more than the bound.
        assert!(request.len < (1 << 20) + (8 << 10), "{}", request.len);
        assert!(
            !request
                .head
                .iter()
                .any(|line| line.starts_with("Content-Encoding"))
        );
    }
    assert!(server.events().values().all(|times| *times == 1));
}

#[test]
fn every_serial_arrives_over_kills_of_both_sides_and_rotations() {
    const COUNT: u32 = 6_000;
    let mut number = 0;
    let server = Server::new(move |_| {
        number += 1;
        match number % 11 {
            3 => Reply::status(503, "Retry-After: 0\r\n", b""),
            // Slow.
            5 => {
                thread::park_timeout(Duration::from_millis(100));
                Reply::Take
            }
            7 => Reply::TakeAndDie,
            9 => Reply::TakeAndClose,
            _ => Reply::Take,
        }
    });
    let place = place(&server, "");
    let mut run = place.start();
    for batch in 0..20 {
        place.append_events(batch * COUNT / 20, COUNT / 20);
        thread::park_timeout(Duration::from_millis(60));
        match batch {
            3 | 7 | 11 | 15 => place.rotate(10),
            5 | 13 => {
                server.kill();
                thread::park_timeout(Duration::from_millis(100));
                server.restart();
            }
            2 | 8 | 14 | 17 => {
                run.kill();
                run = place.start();
            }
            _ => {}
        }
    }
    wait_for_all(&server, COUNT, &place);
    place.wait_sent(COUNT);
    server.plan(|_| Reply::Take);
    assert!(run.end(), "{}", place.text("stderr"));
    assert!(
        server
            .taken()
            .iter()
            .all(|record| record["name"] != "audit.gap")
    );
    // An end in order leaves nothing to be sent again.
    assert_eq!(place.confirmed(), COUNT);
}

/// Collectors close connections that are idle.
#[test]
fn connection_that_was_closed_meanwhile_is_no_failure() {
    let server = Server::new(|_| Reply::TakeAndClose);
    let place = place(&server, "");
    let run = place.start();
    for batch in 0..10 {
        place.append_events(batch * 5, 5);
        wait_until("some events", || {
            server.numbers().len() >= usize::try_from(batch * 5 + 5).unwrap()
        });
        assert_eq!(status(&place)["error"], Value::Null);
    }
    assert!(run.end());
    assert!(
        !place.text("stderr").contains(" c: "),
        "{}",
        place.text("stderr")
    );
    assert!(server.events().values().all(|times| *times == 1));
}

/// Answers in chunks, with an answer before them, keep the connection.
#[test]
fn answers_in_chunks_are_read() {
    let chunks = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\
        Content-Type: application/x-protobuf\r\n\r\n2;x=y\r\n\x0a\x02\r\n2\r\n\x08\x00\r\n0\r\nx: y\r\n\r\n";
    let server = Server::new(|_| Reply::TakeAndSend(chunks.to_vec()));
    let place = place(&server, "");
    place.append_events(0, 2000);
    let output = place.once();
    assert!(output.status.success());
    assert_eq!(server.numbers(), (0..2000).collect());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!errors.contains(" c: "), "{errors}");
    let whole = answer(
        200,
        "Content-Type: application/json; charset=utf-8\r\n",
        b"{\"partialSuccess\":{}}",
    );
    server.plan(move |_| Reply::TakeAndSend(whole.clone()));
    place.append_events(2000, 10);
    assert!(place.once().status.success());
    assert_eq!(server.numbers().len(), 2010);
}
