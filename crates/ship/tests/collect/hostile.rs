//! Peers that do what they should not.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use super::*;

/// Whether a well-behaved peer is served at once.
#[track_caller]
fn assert_serves(collector: &Collector, serial: u32) {
    let begun = Instant::now();
    let mut peer = Peer::connect(collector);
    peer.send(0, serial, &line(serial));
    assert_eq!(peer.answer(), (ACKNOWLEDGED, serial, String::new()));
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn what_is_not_of_the_protocol_ends_the_connection_only() {
    let collector = Collector::start("space_left = 0", "");
    let long = "type=".to_owned() + &"x".repeat(9000);
    let mut wrong_version = frame(0, 1, &line(1));
    wrong_version[4] = 9;
    for (serial, bytes) in (1..).zip([
        &b"\x16\x03\x01\x02\0"[..],
        long.as_bytes(),
        &wrong_version,
        &frame(0x77, 1, ""),
        &frame(0, 1, &"x".repeat(65_535)),
        &[&frame(1, 1, "")[..], b"\xfe\0\0\0"].concat(),
    ]) {
        let mut peer = Peer::connect(&collector);
        // It may be closed before all is sent.
        let _sent = peer.0.write_all(bytes);
        let mut rest = Vec::new();
        let _reset = peer.0.read_to_end(&mut rest);
        assert!(rest.len() <= 16);
        assert_serves(&collector, serial);
    }
    wait_until("the status", || {
        collector.status()["refused"]["protocol"] == 6
    });
    assert_eq!(collector.log("web1").lines().count(), 6);
    let errors = fs::read_to_string(collector.path("stderr")).unwrap();
    assert!(
        errors.contains(
            "connection from 127.0.0.1 closed: neither the protocol of audisp-remote with"
        ),
        "{errors}"
    );
}

#[test]
fn refused_records_do_not_hold_the_others() {
    let collector = Collector::start("space_left = 0", "");
    let mut peer = Peer::connect(&collector);
    let two = line(1) + &line(2);
    for (sequence, body) in [
        (1, "no record"),
        (2, &two),
        (3, "type=CWD msg=audit(1.000:1): a\0b"),
    ] {
        peer.send(0, sequence, body);
        let (kind, answered, why) = peer.answer();
        assert_eq!((kind, answered), (REFUSED, sequence), "{why}");
    }
    peer.send(0, 4, &line(4));
    assert_eq!(peer.answer(), (ACKNOWLEDGED, 4, String::new()));
    assert_eq!(collector.log("web1"), line(4));
    wait_until("the status", || collector.host("web1")["refused"] == 3);
}

#[test]
fn peers_that_are_unknown_or_too_many_are_refused() {
    let settings = "space_left = 0\nconnections_per_address = 2\nprivileged_ports = false";
    // This one is at 127.0.0.1, which is nobody.
    let mut collector = Collector::start(settings, "");
    let mut first = Peer::connect(&collector);
    first.send(1, 1, "");
    assert_eq!(first.answer().1, 1);
    let mut second = Peer::connect(&collector);
    second.send(1, 2, "");
    assert_eq!(second.answer().1, 2);
    assert!(Peer::connect(&collector).is_closed());
    // One that ends makes room.
    first.0.shutdown(Shutdown::Both).unwrap();
    wait_until("room for another connection", || {
        let mut peer = Peer::connect(&collector);
        // It may be closed already.
        let _sent = peer.0.write_all(&frame(1, 3, ""));
        !peer.is_closed()
    });
    wait_until("the status", || {
        collector.status()["refused"]["limit"].as_u64() >= Some(1)
    });
    collector.end();
    let text = fs::read_to_string(collector.path("collect.toml")).unwrap();
    let unknown = text.replace("web1 = [\"127.0.0.1\"]", "web1 = [\"127.0.0.2\"]");
    fs::write(collector.path("collect.toml"), &unknown).unwrap();
    collector.run_again();
    assert!(Peer::connect(&collector).is_closed());
    wait_until("the status", || {
        collector.status()["refused"]["unknown"] == 1
    });
    collector.end();
    let ports = text.replace("privileged_ports = false", "privileged_ports = true");
    fs::write(collector.path("collect.toml"), ports).unwrap();
    collector.run_again();
    assert!(Peer::connect(&collector).is_closed());
    wait_until("the status", || collector.status()["refused"]["port"] == 1);
}

#[test]
fn a_peer_that_reads_no_answers_is_not_read() {
    let collector = Collector::start("space_left = 0", "");
    let mut peer = Peer::connect(&collector);
    peer.0.set_nonblocking(true).unwrap();
    let heartbeats = frame(1, 1, "").repeat(4096);
    let mut sent = 0;
    let begun = Instant::now();
    // Until the buffers of both sockets are full.
    let mut stuck_at = Instant::now();
    while stuck_at.elapsed() < Duration::from_millis(300) {
        assert!(
            begun.elapsed() < PATIENCE && sent < 64 << 20,
            "{sent} bytes are taken"
        );
        let at = sent % 16;
        match peer.0.write(&heartbeats[at..]) {
            Ok(count) => {
                sent += count;
                stuck_at = Instant::now();
            }
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    assert_serves(&collector, 1);
    // Reading goes on where it was.
    peer.0.set_nonblocking(false).unwrap();
    let mut answers = vec![0; sent / 16 * 16];
    peer.0.read_exact(&mut answers).unwrap();
    assert!(
        answers
            .chunks(16)
            .all(|answer| answer[..10] == *b"\xfe\0\0\xff\0\0\0\0\0\x40")
    );
}

/// All space is reserved: the peer is told, and an ascii peer, which cannot be told, waits.
#[test]
fn without_room_nothing_is_acknowledged() {
    let mut collector = Collector::start("space_left = 1048576", "");
    let mut ascii = Peer::connect(&collector);
    ascii.0.write_all(line(1).as_bytes()).unwrap();
    let mut peer = Peer::connect(&collector);
    peer.send(0, 7, &line(7));
    let (kind, sequence, why) = peer.answer();
    assert_eq!((kind, sequence), (DISK_FULL, 7));
    assert_eq!(
        why,
        "less than `space_left` is free in the file system of the logs"
    );
    assert!(peer.is_closed());
    wait_until("the status", || {
        collector.host("web1")["error"] == why.as_str()
    });
    assert_eq!(collector.status_text().status.code(), Some(1));
    assert_eq!(collector.status()["connections"], 1);
    assert_eq!(collector.log("web1"), "");
    collector.end();
    assert!(ascii.is_closed());
}
