//! Tests of the destination with listeners that answer as a test wants.

use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::thread::{self, JoinHandle};

use audit::record::assemble::{EventAssembler, EventRecords};

use super::*;
use crate::frame::{Counts, Gap, Heartbeat, Reason, Time};
use crate::managed_frame::{ACKNOWLEDGED, DISK_FULL, ENDING, HEADER_BYTES};

/// Longest wait for an answer that does not come.
const SHORT: Duration = Duration::from_millis(200);
/// The same for those that come.
const LONG: Duration = Duration::from_secs(20);

struct Listener(TcpListener);

/// The connection of a destination, as its listener sees it.
struct Peer(TcpStream);

/// A message: type, sequence and text.
type Message = (u32, u32, String);

impl Listener {
    fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn sink(&self, timeout: Duration) -> AuditdSink {
        AuditdSink::new(self.0.local_addr().unwrap().to_string(), timeout)
    }

    fn accept(&self) -> Peer {
        Peer(self.0.accept().unwrap().0)
    }
}

impl Peer {
    fn message(&mut self) -> Option<Message> {
        let mut bytes = vec![0; HEADER_BYTES];
        self.0.read_exact(&mut bytes).ok()?;
        let header = FrameHeader::decode(&bytes).unwrap().unwrap();
        bytes.resize(header.frame_bytes(), 0);
        self.0.read_exact(&mut bytes[HEADER_BYTES..]).unwrap();
        let text = String::from_utf8(bytes.split_off(HEADER_BYTES)).unwrap();
        Some((header.kind, header.sequence, text))
    }

    /// Whether it could be sent.
    fn send(&mut self, kind: u32, sequence: u32, text: &str) -> bool {
        let mut frame = Vec::new();
        managed_frame::append(kind, sequence, text.as_bytes(), &mut frame);
        self.0.write_all(&frame).is_ok()
    }

    /// Acknowledges all messages until the connection ends, and returns them.
    fn acknowledge(mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(message) = self.message() {
            self.send(ACKNOWLEDGED, message.1, "");
            messages.push(message);
        }
        messages
    }
}

/// Connects to a listener that acknowledges all messages, and returns them when the connection ends.
fn connect(sink: &mut AuditdSink, listener: &Listener) -> JoinHandle<Vec<Message>> {
    sink.connect().unwrap();
    let peer = listener.accept();
    thread::spawn(move || peer.acknowledge())
}

fn event(serial: u32) -> EventRecords {
    let mut assembler = EventAssembler::default();
    for kind in ["SYSCALL", "CWD", "EOE"] {
        let line = format!("type={kind} msg=audit(1700000000.000:{serial}): a=1");
        assembler.take(line.as_bytes(), 0).unwrap();
    }
    assembler.end_all();
    assembler.next_ended().unwrap()
}

fn put(sink: &mut AuditdSink, record: Record<'_>) {
    let frame = Frame {
        host: "h",
        boot: "b",
        record,
    };
    sink.put(&frame).unwrap();
}

fn put_events(sink: &mut AuditdSink, serials: Range<u32>) {
    for serial in serials {
        put(sink, Record::Event(&event(serial)));
    }
}

fn heartbeat() -> Heartbeat {
    Heartbeat {
        time: Time::default(),
        serial: None,
        kernel_serial: None,
        counts: Counts::default(),
        version: "",
    }
}

#[track_caller]
fn fails(result: anyhow::Result<impl std::fmt::Debug>, expected: &str) {
    let error = format!("{:#}", result.unwrap_err());
    assert!(
        error.starts_with("auditd at `127.0.0.1:") && error.contains(expected),
        "{error}"
    );
}

#[test]
fn frames_are_messages_in_order_and_confirmed_when_all_are_answered() {
    let listener = Listener::new();
    let mut sink = listener.sink(LONG);
    let peer = connect(&mut sink, &listener);
    put(&mut sink, Record::Heartbeat(&heartbeat()));
    put_events(&mut sink, 7..8);
    assert_eq!(sink.confirmed().unwrap(), 0);
    sink.flush().unwrap();
    assert_eq!(sink.confirmed().unwrap(), 2);
    put(
        &mut sink,
        Record::Gap(&Gap {
            reason: Reason::Absent,
            time: Time { ms: 1 },
            after: 7,
            before: 10,
            missing: Some(2),
        }),
    );
    sink.finish().unwrap();
    assert_eq!(sink.confirmed().unwrap(), 3);
    let record = |kind| format!("node=h type={kind} msg=audit(1700000000.000:7): a=1");
    let gap = "node=h type=DAEMON_ERR msg=audit(0.001:9): op=lost-events lost=2 reason=\"absent\" after=7 before=10 \
               res=failed";
    assert_eq!(
        peer.join().unwrap(),
        [
            (HEARTBEAT, 1, String::new()),
            (MESSAGE, 2, record("SYSCALL")),
            (MESSAGE, 3, record("CWD")),
            (MESSAGE, 4, gap.to_owned()),
        ]
    );
    // Sequences and frames begin anew on the next connection.
    let peer = connect(&mut sink, &listener);
    assert_eq!(sink.confirmed().unwrap(), 0);
    put_events(&mut sink, 8..9);
    sink.finish().unwrap();
    assert_eq!(peer.join().unwrap()[0].1, 1);
}

/// More messages than may wait are sent while answers come.
#[test]
fn large_batches_are_answered_on_the_way() {
    let listener = Listener::new();
    let mut sink = listener.sink(LONG);
    let peer = connect(&mut sink, &listener);
    let events = u32::try_from(3 * MAX_WINDOW).unwrap();
    put_events(&mut sink, 0..events);
    assert!(sink.is_full());
    sink.finish().unwrap();
    assert_eq!(sink.confirmed().unwrap(), u64::from(events));
    let messages = peer.join().unwrap();
    let sequences = messages.iter().map(|(_, sequence, _)| *sequence);
    assert!(sequences.eq(1..=2 * events));
}

#[test]
fn records_that_are_not_stored_are_not_confirmed() {
    for (kind, text, expected) in [
        (
            DISK_FULL,
            "disk full",
            "its disk is full, and nothing is stored until it has room: disk full",
        ),
        (0x6000_0002, "", "it cannot write its log"),
        (
            0x6000_0003,
            "no node",
            "it refuses a record, which is sent again: no node",
        ),
        (ENDING, "", "it ends"),
        (MESSAGE, "", "type 0x0"),
    ] {
        let listener = Listener::new();
        let mut sink = listener.sink(LONG);
        sink.connect().unwrap();
        let mut peer = listener.accept();
        let told = text.to_owned();
        let peer = thread::spawn(move || {
            // The first batch, and the first record of the second one.
            for _ in 0..3 {
                let (_, sequence, _) = peer.message().unwrap();
                peer.send(ACKNOWLEDGED, sequence, "");
            }
            let (_, sequence, _) = peer.message().unwrap();
            peer.send(kind, sequence, &told);
            peer
        });
        put_events(&mut sink, 0..1);
        sink.flush().unwrap();
        put_events(&mut sink, 1..3);
        fails(sink.flush(), expected);
        // What was confirmed before stays so.
        assert_eq!(sink.confirmed().unwrap(), 1);
        drop(peer.join().unwrap());
    }
}

/// Between batches, too.
#[test]
fn the_end_of_a_listener_is_noticed() {
    for (ending, expected) in [
        (Some(ENDING), "it ends"),
        (
            Some(ACKNOWLEDGED),
            "it answers a message that it was not sent",
        ),
        (None, "it has closed the connection"),
    ] {
        let listener = Listener::new();
        let mut sink = listener.sink(LONG);
        sink.connect().unwrap();
        let mut peer = listener.accept();
        assert_eq!(sink.confirmed().unwrap(), 0);
        if let Some(kind) = ending {
            peer.send(kind, 1, "");
        }
        drop(peer);
        let begun = Instant::now();
        let error = loop {
            match sink.confirmed() {
                Ok(_) => assert!(begun.elapsed() < LONG),
                Err(error) => break error,
            }
            thread::yield_now();
        };
        fails(Err::<(), _>(error), expected);
        assert_eq!(sink.confirmed().unwrap(), 0);
    }
}

#[test]
fn answers_that_are_none_are_errors() {
    let huge = b"\xfe\0\0\xff\0\0\0\0\0\x40\xff\xff\x01\0\0\0";
    let version = b"\xfe\0\0\xff\x01\0\0\0\0\x40\0\0\x01\0\0\0";
    for (bytes, expected) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            "without the magic number of audisp-remote: it is no auditd",
        ),
        (huge, "it sends a message of more than 8970 bytes"),
        (version, "it sends version 1 of the protocol"),
        // A part of an answer, and nothing.
        (&huge[..9], "it has not answered for 0 seconds"),
        (b"", "it has not answered for 0 seconds"),
    ] {
        let listener = Listener::new();
        let mut sink = listener.sink(SHORT);
        sink.connect().unwrap();
        let mut peer = listener.accept();
        peer.0.write_all(bytes).unwrap();
        put_events(&mut sink, 0..1);
        fails(sink.flush(), expected);
        assert_eq!(sink.confirmed().unwrap(), 0);
    }
}

/// One that answers by and by is not given up, and warnings confirm.
#[test]
fn warnings_confirm_and_are_told() {
    let listener = Listener::new();
    let mut sink = listener.sink(LONG);
    sink.connect().unwrap();
    let mut peer = listener.accept();
    let peer = thread::spawn(move || {
        while let Some((_, sequence, _)) = peer.message() {
            peer.send(0x5000_0001, sequence, "low");
        }
    });
    put_events(&mut sink, 0..2);
    sink.flush().unwrap();
    assert_eq!(sink.confirmed().unwrap(), 2);
    let refusal = sink.take_refusal().unwrap();
    assert_eq!((refusal.records, refusal.cut), (0, 0));
    assert_eq!(refusal.reason, "its disk has little space: low");
    assert_eq!(sink.take_refusal(), None);
    // A record that is too long is sent, and counted.
    let mut assembler = EventAssembler::default();
    let line = format!("type=USER msg=audit(1.000:9): {} b=2", "a=1 ".repeat(3000));
    assembler.take(line.as_bytes(), 0).unwrap();
    assembler.end_all();
    put(&mut sink, Record::Event(&assembler.next_ended().unwrap()));
    sink.finish().unwrap();
    let refusal = sink.take_refusal().unwrap();
    assert_eq!((refusal.records, refusal.cut), (0, 1));
    assert!(
        refusal
            .reason
            .starts_with("a record of event 9 has 12034 bytes, and auditd takes 8953"),
        "{}",
        refusal.reason
    );
    peer.join().unwrap();
}

/// A listener whose socket has no room drops answers: in the end, it gets one message after the other.
#[test]
fn fewer_messages_wait_after_an_answer_was_lost() {
    let listener = Listener::new();
    let mut sink = listener.sink(SHORT / 10);
    let mut windows = Vec::new();
    while windows.last() != Some(&1) {
        sink.connect().unwrap();
        let _hangs = listener.accept();
        put_events(&mut sink, 0..2);
        fails(sink.flush(), "it has not answered for 0 seconds");
        windows.push(sink.window);
    }
    assert_eq!(windows, [512, 256, 128, 64, 32, 16, 8, 4, 2, 1]);
    sink.timeout = LONG;
    sink.connect().unwrap();
    let mut peer = listener.accept();
    let peer = thread::spawn(move || {
        while let Some((_, sequence, _)) = peer.message() {
            peer.0.set_nonblocking(true).unwrap();
            let next = peer.0.peek(&mut [0]).map_err(|error| error.kind());
            assert_eq!(next, Err(io::ErrorKind::WouldBlock));
            peer.0.set_nonblocking(false).unwrap();
            peer.send(ACKNOWLEDGED, sequence, "");
        }
    });
    put_events(&mut sink, 0..3);
    sink.finish().unwrap();
    assert_eq!((sink.confirmed().unwrap(), sink.window), (3, 2));
    peer.join().unwrap();
}
