//! Metrics of both programs, as Prometheus asks for them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::{fs, io};

use super::collect::{Collector, Peer, free_port};
use super::place::{Place, wait_until};

/// The answer to a request for metrics.
fn ask<S: Read + Write>(connect: impl Fn() -> io::Result<S>) -> io::Result<String> {
    let mut stream = connect()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Waits until the metrics have all these lines.
#[track_caller]
fn wait_for<S: Read + Write>(connect: impl Fn() -> io::Result<S>, lines: &[&str]) {
    let mut last = String::new();
    wait_until("metrics", || {
        last = ask(&connect).unwrap_or_else(|error| error.to_string());
        let has = |line: &&str| last.lines().any(|found| found == *line);
        last.starts_with("HTTP/1.1 200 OK\r\n") && lines.iter().all(has)
    });
}

/// Metrics that an example names are there.
fn has_names_of_example(text: &str, prefix: &str) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet-alerts.yml");
    let example = fs::read_to_string(example).unwrap();
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let names = example.split(|letter| !is_name(letter));
    let names: Vec<&str> = names.filter(|name| name.starts_with(prefix)).collect();
    assert!(names.len() > 3, "{names:?}");
    for name in names {
        assert!(text.contains(&format!("# TYPE {name} ")), "{name}: {text}");
    }
}

#[test]
fn shipper_serves_what_its_status_tells() {
    let place = Place::new(
        "metrics = \"DIR/metrics\"\n[json.out]\nto = \"stdout\"\nstart = \"begin\"\nresend = 1\n",
    );
    place.append_events(1, 3);
    let run = place.start();
    let connect = || UnixStream::connect(place.path("metrics"));
    wait_for(
        connect,
        &[
            "tollgate_ship_connected{destination=\"out\"} 1",
            "tollgate_ship_events_sent_total{destination=\"out\"} 3",
            "tollgate_ship_behind_bytes{destination=\"out\"} 0",
        ],
    );
    has_names_of_example(&ask(connect).unwrap(), "tollgate_ship_");
    assert!(run.end());
}

#[test]
fn listener_serves_what_its_status_tells() {
    let port = free_port();
    let collector = Collector::start(
        &format!("space_left = 0\nmetrics = \"127.0.0.1:{port}\"\n"),
        "",
    );
    let mut peer = Peer::connect(&collector);
    peer.send(0, 1, "type=USER msg=audit(1700000000.000:1): x=1\n");
    let connect = || TcpStream::connect(("127.0.0.1", port));
    wait_for(
        connect,
        &[
            "tollgate_collect_host_records_total{host=\"web1\"} 1",
            "tollgate_collect_host_record_seconds{host=\"web1\"} 1700000000",
            "tollgate_collect_host_failing{host=\"web1\"} 0",
        ],
    );
    has_names_of_example(&ask(connect).unwrap(), "tollgate_collect_");
}
