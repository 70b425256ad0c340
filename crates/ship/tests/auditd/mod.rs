//! `tollgate-ship` with listeners of `auditd`: one of this test, and in `stock` that of Debian.

mod stock;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use super::collect::Collector;
use super::place::{FIRST, Place, event, wait_until};

/// What a listener does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Stores it and answers with this type.
    Store(u32),
    /// Answers that its disk is full.
    Full,
    /// Stores it and does not answer; heartbeats it does.
    Hang,
}

const ACKNOWLEDGE: Mode = Mode::Store(0x4000_0000);
const DISK_LOW: Mode = Mode::Store(0x5000_0001);

/// What a listener has got.
#[derive(Debug)]
struct Got {
    mode: Mode,
    lines: Vec<String>,
    heartbeats: u32,
}

/// A listener of this test.
struct Listener {
    port: u16,
    got: Arc<Mutex<Got>>,
}

impl Listener {
    fn start(mode: Mode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let got = Arc::new(Mutex::new(Got {
            mode,
            lines: Vec::new(),
            heartbeats: 0,
        }));
        let started = Self {
            port: listener.local_addr().unwrap().port(),
            got: Arc::clone(&got),
        };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let got = Arc::clone(&got);
                thread::spawn(move || serve(stream.unwrap(), &got));
            }
        });
        started
    }

    fn set(&self, mode: Mode) {
        self.got.lock().unwrap().mode = mode;
    }

    /// What it has stored.
    fn lines(&self) -> Vec<String> {
        self.got.lock().unwrap().lines.clone()
    }

    fn place(&self, settings: &str) -> Place {
        Place::new(&format!(
            "heartbeat = 1\n[auditd.a]\naddress = \"127.0.0.1:{}\"\nstart = \"begin\"\n{settings}",
            self.port
        ))
    }
}

/// Takes the messages of a connection until its end, or until one is not stored.
fn serve(mut stream: TcpStream, got: &Mutex<Got>) {
    let mut header = [0; 16];
    while stream.read_exact(&mut header).is_ok() {
        assert_eq!(header[..6], [0xfe, 0, 0, 0xff, 0, 0]);
        let is_heartbeat = header[6..10] == 1_u32.to_le_bytes();
        let mut text = vec![0; usize::from(u16::from_le_bytes([header[10], header[11]]))];
        stream.read_exact(&mut text).unwrap();
        let mut got = got.lock().unwrap();
        if got.mode != Mode::Full {
            match is_heartbeat {
                true => got.heartbeats += 1,
                false => got.lines.push(String::from_utf8(text).unwrap()),
            }
        }
        let kind: u32 = match got.mode {
            Mode::Store(kind) => kind,
            Mode::Full => 0x6000_0001,
            Mode::Hang if is_heartbeat => 0x4000_0000,
            Mode::Hang => continue,
        };
        drop(got);
        header[6..10].copy_from_slice(&kind.to_le_bytes());
        header[10..12].fill(0);
        if stream.write_all(&header).is_err() {
            return;
        }
    }
}

/// The lines that a log gives, with the node.
fn sent(log: &str) -> Vec<String> {
    log.lines().map(|line| format!("node=h {line}")).collect()
}

fn destination(place: &Place) -> Value {
    let status: Value = serde_json::from_slice(&place.status(&["--json"]).stdout).unwrap();
    status["destinations"][0].clone()
}

#[test]
fn records_that_are_not_stored_come_again_and_the_reason_is_told() {
    let listener = Listener::start(Mode::Full);
    let place = listener.place("");
    place.append_events(0, 200);
    let run = place.start();
    let expected = format!(
        "auditd at `127.0.0.1:{}`: its disk is full, and nothing is stored until it has room",
        listener.port
    );
    wait_until("the failure in the status", || {
        let text = String::from_utf8(place.status(&[]).stdout).unwrap();
        text.contains(&expected)
    });
    assert!(place.text("stderr").contains(&expected));
    assert_eq!(listener.lines(), [""; 0]);
    listener.set(ACKNOWLEDGE);
    let log = place.text("log/audit.log");
    wait_until("all records", || listener.lines().len() >= 1000);
    assert_eq!(listener.lines(), sent(&log));
    listener.set(DISK_LOW);
    place.append_events(200, 1);
    wait_until("the warning", || {
        place
            .text("stderr")
            .contains("a: the destination warns: its disk has little space")
    });
    wait_until("the confirmation", || {
        destination(&place)["counts"]["sent"] == 201
    });
    assert!(run.end());
    assert_eq!(place.confirmed(), 201);
    assert_eq!(listener.lines().len(), 1005);
}

#[test]
fn what_was_not_answered_is_not_confirmed() {
    let listener = Listener::start(Mode::Hang);
    let place = listener.place("timeout = 1\n");
    place.append_events(0, 10);
    let run = place.start();
    let log = place.text("log/audit.log");
    wait_until("the records", || listener.lines().len() >= 50);
    run.kill();
    assert_eq!(destination(&place)["counts"]["sent"], 0);
    listener.set(ACKNOWLEDGE);
    let before = listener.lines();
    assert_eq!(before[..50], sent(&log));
    let run = place.start();
    wait_until("the records again", || {
        listener.lines().len() >= before.len() + 50
    });
    assert!(run.end());
    assert_eq!(listener.lines()[before.len()..], sent(&log));
    assert_eq!(place.confirmed(), 10);
    // The next run has nothing to send.
    assert!(place.once().status.success());
    assert_eq!(listener.lines().len(), before.len() + 50);
}

#[test]
fn heartbeats_come_without_events_and_gaps_are_records() {
    let listener = Listener::start(ACKNOWLEDGE);
    let place = listener.place("filter = \"key=rare\"\n");
    place.append(&(event(FIRST) + &event(FIRST + 5)));
    let run = place.start();
    let heartbeats = || listener.got.lock().unwrap().heartbeats;
    wait_until("heartbeats", || heartbeats() >= 2);
    assert!(run.end());
    let lines = listener.lines();
    let [gap] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert!(
        gap.starts_with("node=h type=DAEMON_ERR msg=audit("),
        "{gap}"
    );
    let expected = format!(
        ":{}): op=lost-events lost=4 reason=\"absent\" after={FIRST} before={} res=failed",
        FIRST + 4,
        FIRST + 5
    );
    assert!(gap.ends_with(&expected), "{gap}");
}

/// It acknowledges records, and leaves out those that come again.
#[test]
fn tollgate_collect_is_a_listener_too() {
    const EACH: u32 = 300;
    let mut collector = Collector::start("space_left = 0", "");
    let place = Place::new(&format!(
        "[auditd.a]\naddress = \"127.0.0.1:{}\"\nstart = \"begin\"\n",
        collector.port
    ));
    let run = place.start();
    for part in 0..2 {
        place.append_events(part * EACH, EACH);
        let half = format!(":{}): ", FIRST + part * EACH + EACH / 2);
        wait_until("half of the events", || {
            collector.log("web1").contains(&half)
        });
        collector.kill();
        collector.run_again();
    }
    wait_until("the confirmation of all events", || {
        destination(&place)["counts"]["sent"] == 2 * EACH
    });
    assert!(run.end());
    let lines = collector.log("web1");
    assert!(
        lines.lines().eq(sent(&place.text("log/audit.log"))),
        "another log"
    );
}
