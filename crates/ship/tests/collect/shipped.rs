//! `tollgate-ship` as the peer, by syslog and OTLP.

use super::super::place::{FIRST, Place};
use super::*;

fn syslog(collector: &Collector) -> Place {
    Place::new(&format!(
        "heartbeat = 1\n[syslog.c]\naddress = \"127.0.0.1:{}\"\nstart = \"begin\"\nresend = 3\n",
        collector.port
    ))
}

fn otlp(collector: &Collector, compression: &str) -> Place {
    Place::new(&format!(
        "heartbeat = 1\n[otlp.c]\nurl = \"http://127.0.0.1:{}/v1/logs\"\nstart = \"begin\"\ncompression = \"{compression}\"\n",
        collector.port
    ))
}

/// The shipper is killed and its log rotated: what comes again is left out.
#[test]
fn events_that_the_shipper_sends_again_are_in_the_log_once() {
    kill_shipper(syslog);
}

#[test]
fn events_that_the_shipper_sends_again_by_otlp_are_in_the_log_once() {
    kill_shipper(|collector| otlp(collector, "gzip"));
}

fn kill_shipper(place: impl Fn(&Collector) -> Place) {
    const EACH: u32 = 300;
    let collector = Collector::start("space_left = 0", "");
    let place = place(&collector);
    let mut all = String::new();
    let mut run = place.start();
    for part in 0..3 {
        place.append_events(part * EACH, EACH);
        all += &fs::read_to_string(place.log()).unwrap();
        let half = format!(":{}): ", FIRST + part * EACH + EACH / 2);
        wait_until("some events", || collector.log("web1").contains(&half));
        run.kill();
        place.rotate(5);
        run = place.start();
    }
    wait_until("all events", || collector.log("web1").len() >= all.len());
    assert!(collector.log("web1") == all, "another log");
    wait_until("events that came again", || {
        collector.host("web1")["repeated"].as_u64() > Some(0)
    });
    // A gap in the log of the host is told by the shipper, and none of the network.
    place.append_events(3 * EACH + 7, 1);
    wait_until("a heartbeat after the gap", || {
        collector.host("web1")["completeness"]["heartbeat"]["missing"] == 7
    });
    let known = &collector.host("web1")["completeness"];
    assert_eq!(known["gaps"]["count"], 0, "{known}");
    assert_eq!(known["boots"][0]["serial"], FIRST + 3 * EACH + 7);
    assert!(run.end());
}

/// The listener is killed, and ended: nothing is missing, and nothing twice.
#[test]
fn every_event_of_the_shipper_arrives_over_kills_of_the_listener() {
    kill_listener(syslog);
}

#[test]
fn every_event_of_the_shipper_arrives_by_otlp_over_kills_of_the_listener() {
    kill_listener(|collector| otlp(collector, "none"));
}

fn kill_listener(place: impl Fn(&Collector) -> Place) {
    const EACH: u32 = 300;
    let mut collector = Collector::start("space_left = 0", "");
    let place = place(&collector);
    let run = place.start();
    for part in 0..2 {
        place.append_events(part * EACH, EACH);
        let half = format!(":{}): ", FIRST + part * EACH + EACH / 2);
        wait_until("some events", || collector.log("web1").contains(&half));
        match part {
            0 => collector.kill(),
            _ => collector.end(),
        }
        collector.run_again();
    }
    let all = fs::read_to_string(place.log()).unwrap();
    let last = format!(":{}): ", FIRST + 2 * EACH - 1);
    wait_until("all events", || collector.log("web1").contains(&last));
    wait_until("a heartbeat", || {
        !collector.host("web1")["completeness"]["heartbeat"].is_null()
    });
    assert!(run.end());
    assert!(collector.log("web1") == all, "another log");
    assert_eq!(collector.host("web1")["completeness"]["gaps"]["count"], 0);
}

fn message(kind: &str, data: &str, text: &str) -> String {
    let message = format!(
        "<86>1 2026-10-02T00:13:22.050Z other tollgate - {kind} [audit@32473 boot=\"b-1\"{data}] {text}"
    );
    format!("{} {message}", message.len())
}

fn record(serial: u32) -> String {
    let data = format!(" serial=\"{serial}\" n=\"1\" of=\"1\"");
    message("CWD", &data, line(serial).trim_end())
}

#[test]
fn serials_that_do_not_come_are_shown_over_restarts() {
    let mut collector = Collector::start("space_left = 0", "");
    let send = |collector: &Collector, serials: &[u32]| {
        let messages = serials.iter().map(|serial| record(FIRST + serial));
        let mut bytes: String = messages.collect();
        bytes += &message(
            "HEARTBEAT",
            "",
            "{\"events\":9,\"sent\":9,\"lost\":{\"events: ring-full\":3}}",
        );
        // The claimed name of the host is not that of the log.
        Peer::connect(collector)
            .0
            .write_all(bytes.as_bytes())
            .unwrap();
    };
    let gaps = |collector: &Collector| collector.host("web1")["completeness"]["gaps"].clone();
    send(&collector, &[1, 2, 5]);
    wait_until("the gap", || gaps(&collector)["missing"] == 2);
    assert_eq!(collector.status()["is_ended"], false);
    let text = String::from_utf8(collector.status_text().stdout).unwrap();
    let expected = format!(
        "gaps        1, 2 serials missing, the last ones after {} and before {} of boot b-1\n",
        FIRST + 2,
        FIRST + 5
    );
    assert!(text.contains(&expected), "{text}");
    assert!(
        text.contains("lost        3 events: ring-full, as its log tells\n"),
        "{text}"
    );
    collector.end();
    assert_eq!(collector.status()["is_ended"], true);
    collector.run_again();
    // It listens before it writes its status.
    wait_until("the status", || collector.status()["is_ended"] == false);
    send(&collector, &[2, 5, 6, 9]);
    wait_until("the other gap", || gaps(&collector)["missing"] == 4);
    assert_eq!(gaps(&collector)["count"], 2);
    assert_eq!(collector.host("web1")["repeated"], 2);
    let lines: String = [1, 2, 5, 6, 9]
        .iter()
        .map(|serial| line(FIRST + serial))
        .collect();
    assert_eq!(collector.log("web1"), lines);
    assert!(!collector.path("logs/other").exists());
    // What is no record of an audit log is refused, and the others are taken.
    let bytes = message("-", "", "no record") + "7 no good" + &record(FIRST + 10);
    Peer::connect(&collector)
        .0
        .write_all(bytes.as_bytes())
        .unwrap();
    wait_until("refusals", || collector.host("web1")["refused"] == 2);
    wait_until("the next record", || {
        collector.log("web1").ends_with(&line(FIRST + 10))
    });
}

/// A listener that takes nothing for a time loses nothing, and tells why.
#[test]
fn the_shipper_waits_while_the_listener_has_no_room() {
    let mut collector = Collector::start("space_left = 1048576", "");
    let place = otlp(&collector, "gzip");
    place.append_events(0, 10);
    let run = place.start();
    wait_until("the answer", || {
        place
            .text("stderr")
            .contains("answers 503: less than `space_left` is free")
    });
    assert_eq!(collector.log("web1"), "");
    collector.end();
    let config = collector.path("collect.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("1048576", "0")).unwrap();
    collector.run_again();
    let all = fs::read_to_string(place.log()).unwrap();
    wait_until("all events", || collector.log("web1") == all);
    assert!(run.end());
}

/// Without answers, an end in order would confirm what was sent.
#[test]
fn the_shipper_by_syslog_confirms_nothing_that_the_listener_cannot_write() {
    let collector = Collector::start("space_left = 1048576", "");
    let place = syslog(&collector);
    place.append_events(0, 10);
    let errors = fs::File::create(place.path("stderr")).unwrap();
    let run = place.command(&["--once"]).stderr(errors).spawn();
    let run = Run(run.unwrap());
    wait_until("an error", || place.error("c").is_some());
    run.kill();
    let status = String::from_utf8(place.status(&[]).stdout).unwrap();
    assert!(status.contains(" 0 sent"), "{status}");
    let mut peer = Peer::connect(&collector);
    peer.0.write_all(record(FIRST).as_bytes()).unwrap();
    let error = peer.0.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(collector.log("web1"), "");
}
