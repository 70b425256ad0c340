//! Requests of HTTP on connections.

use std::io::Read as _;
use std::net::Shutdown;

use bstr::ByteSlice as _;

use super::super::super::host_log::tests::settings;
use super::super::end::{FRAME_TIME, LINGER};
use super::*;
use crate::http::read_answer;
use crate::otlp::tests::request_of;

fn event(serial: u32) -> String {
    let line = |kind: &str| format!("type={kind} msg=audit(1700000000.123:{serial}): a=1");
    format!("{}\n{}", line("CWD"), line("PATH"))
}

fn request(body: &[u8]) -> Vec<u8> {
    let len = body.len();
    let mut request = format!(
        "POST /v1/logs HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-protobuf\r\nContent-Length: {len}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

fn events(serials: &[u32]) -> Vec<u8> {
    let events: Vec<String> = serials.iter().map(|serial| event(*serial)).collect();
    let bodies: Vec<&str> = events.iter().map(String::as_str).collect();
    request(&request_of("other", "b-1", &bodies))
}

/// Sends bytes, and serves the connection until it has read them.
fn send_and_serve(
    peer: &mut TcpStream,
    bytes: &[u8],
    connection: &mut Connection,
    hosts: &mut Hosts,
) {
    let mut buffer = vec![0; READ_BYTES];
    for part in bytes.chunks(16 << 10) {
        peer.write_all(part).unwrap();
        while connection.stream.tcp.peek(&mut buffer).unwrap() < part.len() {
            std::thread::yield_now();
        }
        connection.serve(&mut buffer, hosts).unwrap();
        if !connection.answers.is_empty() {
            connection.serve(&mut buffer, hosts).unwrap();
        }
    }
}

fn log(place: &tempfile::TempDir) -> String {
    std::fs::read_to_string(place.path().join("web1/audit.log")).unwrap_or_default()
}

fn lines(serials: &[u32]) -> String {
    serials.iter().map(|serial| event(*serial) + "\n").collect()
}

#[test]
fn requests_are_answered_in_order_when_their_records_are_written() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = hosts(place.path());
    let (mut connection, mut peer) = pair();
    let first = events(&[0x8000_0001, 0x8000_0002]);
    // In parts of a byte.
    for (at, byte) in first.iter().enumerate() {
        assert_eq!(log(&place), "", "{at}");
        send_and_serve(&mut peer, &[*byte], &mut connection, &mut hosts);
    }
    assert_eq!(log(&place), lines(&[0x8000_0001, 0x8000_0002]));
    let taken = read_answer(&mut peer);
    assert_eq!((taken.status, taken.body.len()), (200, 0));
    // Another one, and the start of a third one.
    let next = events(&[0x8000_0003, 0x8000_0005]);
    send_and_serve(&mut peer, &next, &mut connection, &mut hosts);
    assert_eq!(read_answer(&mut peer).status, 200);
    send_and_serve(&mut peer, &first[..9], &mut connection, &mut hosts);
    let serials = [0x8000_0001, 0x8000_0002, 0x8000_0003, 0x8000_0005];
    assert_eq!(log(&place), lines(&serials));
    // A part of a request has its time.
    let late = Instant::now() + FRAME_TIME + Duration::from_secs(1);
    assert!(matches!(
        connection.check_time(late, IDLE),
        Err(End::Idle(FRAME_TIME))
    ));
    // The next connection repeats the last two, and goes on.
    let (mut connection, mut peer) = pair();
    send_and_serve(
        &mut peer,
        &events(&[0x8000_0003, 0x8000_0005, 0x8000_0006]),
        &mut connection,
        &mut hosts,
    );
    assert_eq!(read_answer(&mut peer).status, 200);
    assert_eq!(log(&place), lines(&[&serials[..], &[0x8000_0006]].concat()));
    let progress = hosts.progress("web1").unwrap();
    assert_eq!((progress.records, progress.repeated), (10, 4));
    let known = progress.completeness.clone().unwrap();
    assert_eq!(known.last(), Some(("b-1", 0x8000_0006)));
}

#[test]
fn a_request_that_does_not_wait_for_its_turn_is_not_taken() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = hosts(place.path());
    let (mut connection, mut peer) = pair();
    let two = [events(&[1]), events(&[2])].concat();
    send_and_serve(&mut peer, &two, &mut connection, &mut hosts);
    assert_eq!(read_answer(&mut peer).status, 200);
    assert_eq!(log(&place), lines(&[1]));
    let mut rest = Vec::new();
    assert_eq!(peer.read_to_end(&mut rest).unwrap(), 0);
}

#[test]
fn requests_that_are_not_taken_write_nothing_and_end_the_connection() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = hosts(place.path());
    let good = events(&[1]);
    let text = String::from_utf8_lossy(&good).into_owned();
    let cut = request(&request_of("a", "b", &[&event(1)])[..40]);
    for (status, bytes) in [
        (400, cut),
        (400, text.replace("Host: a\r\n", "").into_bytes()),
        (
            400,
            text.replace("Host: a", "Content-Encoding: gzip\r\nHost: a")
                .into_bytes(),
        ),
        (404, text.replace("/v1/logs", "/v1/metrics").into_bytes()),
        (405, text.replace("POST", "PUT").into_bytes()),
        (
            411,
            text.replace("Host: a", "Host: a\r\nTransfer-Encoding: chunked")
                .into_bytes(),
        ),
        (413, request(&vec![0; (4 << 20) + 1])),
        (415, text.replace("x-protobuf", "json").into_bytes()),
        (431, vec![b'P'; 9000]),
        (505, text.replace("HTTP/1.1", "HTTP/1.0").into_bytes()),
    ] {
        let (mut connection, mut peer) = pair();
        // What follows is not taken.
        send_and_serve(
            &mut peer,
            &[&bytes[..], &good].concat(),
            &mut connection,
            &mut hosts,
        );
        let refused = read_answer(&mut peer);
        assert_eq!((refused.status, refused.body.is_empty()), (status, false));
        // The peer sees the end, and what it still sends is dropped for a time.
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
        send_and_serve(&mut peer, &good, &mut connection, &mut hosts);
        assert_eq!(connection.rest.len() + connection.answers.len(), 0);
        connection.check_time(Instant::now(), IDLE).unwrap();
        let late = Instant::now() + LINGER + Duration::from_secs(1);
        assert!(matches!(connection.check_time(late, IDLE), Err(End::Peer)));
    }
    assert_eq!(log(&place), "");
    let progress = hosts.progress("web1").unwrap();
    assert_eq!(progress.refused, 10);
    assert_eq!(
        progress.refusal.as_deref(),
        Some("request refused: not HTTP/1.1")
    );
}

#[test]
fn records_that_are_none_are_rejected_and_the_others_written() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = hosts(place.path());
    let (mut connection, mut peer) = pair();
    let bodies = [&event(1), "no record", &event(2), "", "type=A\0"];
    send_and_serve(
        &mut peer,
        &request(&request_of("a", "b", &bodies)),
        &mut connection,
        &mut hosts,
    );
    let taken = read_answer(&mut peer);
    let rejected = crate::otlp::partial_success(3, "a byte that ends a line is in the record");
    assert_eq!((taken.status, taken.body), (200, rejected));
    assert_eq!(log(&place), lines(&[1, 2]));
    assert_eq!(hosts.progress("web1").unwrap().refused, 3);
    // Of very many the first ones are looked at, whether lines or records have them.
    let bodies = vec![""; 1001];
    for bodies in [&["\n".repeat(3 << 20).as_str()][..], &bodies] {
        let (mut connection, mut peer) = pair();
        let before = hosts.progress("web1").unwrap().refused;
        let request = request(&request_of("a", "b", bodies));
        send_and_serve(&mut peer, &request, &mut connection, &mut hosts);
        assert_eq!(read_answer(&mut peer).status, 400);
        assert_eq!(hosts.progress("web1").unwrap().refused, before + 1002);
    }
}

#[test]
fn without_room_or_memory_peers_come_later() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = hosts(place.path());
    let memory = BodyMemory::new();
    let (mut connection, mut peer) = pair_with(&memory);
    hosts.reserve(u64::MAX);
    send_and_serve(&mut peer, &events(&[1]), &mut connection, &mut hosts);
    let refused = read_answer(&mut peer);
    assert_eq!(
        (refused.status, refused.retry_after),
        (503, Some(Duration::from_secs(5)))
    );
    assert_eq!(log(&place), "");
    hosts.reserve(0);
    // Requests that are not complete have memory for 16 at most.
    let head = request(&vec![0; 4 << 20])[..200].to_vec();
    let mut waiting = Vec::new();
    loop {
        let (mut connection, mut peer) = pair_with(&memory);
        send_and_serve(&mut peer, &head, &mut connection, &mut hosts);
        if connection.last_answer_at.is_some() {
            let refused = read_answer(&mut peer);
            assert_eq!(
                (refused.status, refused.retry_after),
                (503, Some(Duration::from_secs(1)))
            );
            break;
        }
        waiting.push((connection, peer));
    }
    assert_eq!(waiting.len(), 16);
    // Small ones are taken, and one that ends makes room.
    let (mut connection, mut peer) = pair_with(&memory);
    send_and_serve(&mut peer, &events(&[1]), &mut connection, &mut hosts);
    assert_eq!(read_answer(&mut peer).status, 200);
    waiting.pop();
    send_and_serve(&mut peer, &head, &mut connection, &mut hosts);
    assert!(connection.last_answer_at.is_none());
}

#[test]
fn peers_that_wait_for_the_status_100_get_it_once() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = hosts(place.path());
    let (mut connection, mut peer) = pair();
    let whole = events(&[1]);
    let line = "Expect: 100-continue\r\n";
    let (start, rest) = whole.split_at(whole.find("Host").unwrap());
    let whole = [start, line.as_bytes(), rest].concat();
    let (head, body) = whole.split_at(whole.find("\r\n\r\n").unwrap() + 4);
    send_and_serve(&mut peer, head, &mut connection, &mut hosts);
    let mut interim = [0; 25];
    peer.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    let (first, rest) = body.split_at(3);
    send_and_serve(&mut peer, first, &mut connection, &mut hosts);
    send_and_serve(&mut peer, rest, &mut connection, &mut hosts);
    assert_eq!(read_answer(&mut peer).status, 200);
    peer.shutdown(Shutdown::Write).unwrap();
    let end = connection.serve(&mut vec![0; READ_BYTES], &mut hosts);
    assert!(matches!(end, Err(End::Peer)), "{end:?}");
}

#[test]
fn hosts_that_may_not_write_are_told() {
    let place = tempfile::tempdir().unwrap();
    let config =
        Config::parse("[networks.a]\nprefixes = [\"127.0.0.1\"]\nhost = \"node\"\nmax_hosts = 1\n")
            .unwrap();
    let mut hosts = Hosts::open(place.path(), settings(1 << 20), config.peers).unwrap();
    for (host, status) in [("web1", 200), ("web2", 403), ("../x", 403), ("web1", 200)] {
        let (mut connection, mut peer) = pair();
        connection.writes = Some(Arc::new(Writes::Node(0)));
        let request = request(&request_of(host, "b", &[&event(1), &event(2)]));
        send_and_serve(&mut peer, &request, &mut connection, &mut hosts);
        assert_eq!(read_answer(&mut peer).status, status, "{host}");
    }
    assert_eq!(log(&place), lines(&[1, 2]));
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
}
