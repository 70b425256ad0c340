//! `tollgate-ship run` with Debian's rsyslog as its peer.

mod tls;

use std::fs;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::place::{FIRST, Place, wait_until};
use super::rsyslog::{Rsyslog, whole_events};

fn configuration(port: u16, resend: u32) -> String {
    format!("[syslog.siem]\naddress = \"localhost:{port}\"\nstart = \"begin\"\nresend = {resend}\n")
}

#[test]
fn records_arrive_as_they_are_in_the_log() {
    let place = Place::new("");
    let rsyslog = Rsyslog::start(&place.path("state"), "", "");
    place.configure(&configuration(rsyslog.port, 0));
    place.append_events(0, 3);
    place.append("type=USER_LOGIN msg=audit(1700000000.123:77): pid=1 uid=0 msg='op=login acct=\"root\" res=success'\x1dUID=\"root\"\n");
    let output = place.once();
    assert!(output.status.success(), "{output:?}");
    wait_until("heartbeats", || {
        rsyslog.received().matches(" HEARTBEAT ").count() == 2
    });
    let received = rsyslog.received();
    let log = fs::read_to_string(place.log()).unwrap();
    let messages = received
        .lines()
        .filter_map(|line| line.split_once("\"] type="));
    let records: String = messages
        .map(|(_, record)| format!("type={record}\n"))
        .collect();
    assert_eq!(records, log);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let start = format!(
        " h SYSCALL [audit@32473 boot=\"{}\" serial=\"{FIRST}\" n=\"1\" of=\"5\"] ",
        boot.trim_end()
    );
    assert!(received.contains(&start), "{received}");
    assert!(received.contains("2023-11-14T22:13:20.123"), "{received}");
}

#[test]
fn every_serial_arrives_over_kills_of_both_sides_and_rotations() {
    let place = Place::new("");
    fs::create_dir(place.path("rsyslog")).unwrap();
    let mut rsyslog = Rsyslog::start(&place.path("rsyslog"), "", "");
    // Longer than rsyslog hangs below.
    place.configure(&configuration(rsyslog.port, 8));
    let mut run = place.start();
    let mut sent = 0;
    for batch in 0..20 {
        // Its kernel takes what it does not read any more, if it is not much.
        let hangs = matches!(batch, 2 | 13);
        if hangs {
            rsyslog.signal(Signal::SIGSTOP);
        }
        let count = if hangs { 40 } else { 400 };
        place.append_events(sent, count);
        sent += count;
        thread::park_timeout(Duration::from_millis(if hangs { 3500 } else { 150 }));
        match batch {
            _ if hangs => rsyslog.restart(Signal::SIGKILL),
            9 => rsyslog.restart(Signal::SIGKILL),
            6 => rsyslog.restart(Signal::SIGTERM),
            // Slow.
            11 => {
                rsyslog.signal(Signal::SIGSTOP);
                thread::park_timeout(Duration::from_millis(500));
                rsyslog.signal(Signal::SIGCONT);
            }
            4 | 8 | 12 | 16 => place.rotate(10),
            5 | 7 | 10 | 14 => {
                run.kill();
                run = place.start();
            }
            _ => {}
        }
    }
    wait_until("all events", || {
        thread::park_timeout(Duration::from_millis(200));
        whole_events(&rsyslog.received()).into_keys().eq(0..sent)
    });
    place.wait_sent(sent);
    assert!(run.end(), "{}", place.text("stderr"));
    assert!(!rsyslog.received().contains(" GAP "));
    // An end in order leaves nothing to be sent again.
    assert_eq!(place.confirmed(), sent);
}
