//! Viewers of every kind, with the thread but without a daemon.

use std::io::{BufRead as _, BufReader, Read as _};

use super::*;

/// Patience of a test.
const SOON: Duration = Duration::from_secs(20);

struct Feed {
    viewers: Viewers,
    feed: ViewerFeed,
    thread: ViewerThread,
    serial: u32,
}

impl Feed {
    fn start() -> Self {
        let (viewers, feed, thread) = start().unwrap();
        Self {
            viewers,
            feed,
            thread,
            serial: 0,
        }
    }

    /// Connects a viewer and returns it when it is admitted or refused, with what it was told.
    fn connect(
        &self,
        filter: EventFilter,
        sample: Option<u32>,
        is_root: bool,
    ) -> (BufReader<UnixStream>, String) {
        let (stream, other) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        other.set_read_timeout(Some(SOON)).unwrap();
        self.viewers.add(NewViewer {
            stream,
            pid: 7,
            is_root,
            filter,
            sample,
            welcome: b"welcome\n".to_vec(),
            refusal: |reason| format!("{reason}\n").into_bytes(),
        });
        let mut reader = BufReader::new(other);
        let mut answer = String::new();
        reader.read_line(&mut answer).unwrap();
        (reader, answer.trim_end().to_owned())
    }

    fn watch(&self, filter: EventFilter, sample: Option<u32>) -> BufReader<UnixStream> {
        let (reader, answer) = self.connect(filter, sample, true);
        assert_eq!(answer, "welcome");
        reader
    }

    /// Passes on events with these keys.
    fn events(&mut self, keys: &[&str]) {
        let mut records = self.feed.buffer();
        assert!(records.text.is_empty());
        for key in keys {
            self.serial += 1;
            let line = format!(
                "type=SYSCALL msg=audit(1.000:{0}): syscall=1 success=yes uid=0 key=\"{key}\"\n\
                 type=PROCTITLE msg=audit(1.000:{0}): proctitle=\"x\"\n",
                self.serial
            );
            records.message(line.as_bytes(), true);
        }
        self.feed.pass(records);
    }

    /// Waits until the thread has taken all buffers.
    fn settle(&self) {
        let until = Instant::now() + SOON;
        while !self.feed.full.is_empty() {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
    }
}

fn key(key: &str) -> EventFilter {
    EventFilter {
        keys: vec![key.into()],
        ..EventFilter::default()
    }
}

/// Serials of the events up to the end of the connection, and the lost and skipped events.
fn read_to_end(reader: &mut BufReader<UnixStream>) -> (Vec<u32>, [u64; 2]) {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let (mut serials, mut missed) = (Vec::new(), [0; 2]);
    for line in text.lines() {
        if line.starts_with('{') {
            let notice: serde_json::Value = serde_json::from_str(line).unwrap();
            for (count, name) in missed.iter_mut().zip(["lost", "skipped"]) {
                *count += notice["missed"][name].as_u64().unwrap();
            }
        } else if line.starts_with("type=EOE ") {
            let stamp = line.split_once("1.000:").unwrap().1;
            serials.push(stamp.trim_end_matches("): ").parse().unwrap());
        }
    }
    (serials, missed)
}

#[test]
fn viewer_gets_the_records_of_wanted_events() {
    let mut feed = Feed::start();
    assert!(!feed.feed.is_watched());
    let mut all = feed.watch(EventFilter::default(), None);
    let mut some = feed.watch(key("b"), None);
    assert!(feed.feed.is_watched());
    feed.events(&["a", "b"]);
    feed.events(&["b"]);
    let mut line = String::new();
    for expected in [
        "type=SYSCALL ",
        "type=PROCTITLE ",
        "type=EOE msg=audit(1.000:1): \n",
    ] {
        line.clear();
        all.read_line(&mut line).unwrap();
        assert!(line.starts_with(expected), "{line}");
    }
    feed.thread.finish().unwrap();
    assert_eq!(read_to_end(&mut all), (vec![2, 3], [0, 0]));
    assert_eq!(read_to_end(&mut some), (vec![2, 3], [0, 0]));
}

#[test]
fn slow_viewer_loses_its_own_events_and_is_told_how_many() {
    let mut feed = Feed::start();
    let mut slow = feed.watch(key("many"), None);
    let mut other = feed.watch(key("few"), None);
    let keys = ["many"; 500];
    for _ in 0..60 {
        feed.events(&keys);
        feed.settle();
    }
    feed.events(&["few"]);
    let mut line = String::new();
    other.read_line(&mut line).unwrap();
    assert!(line.contains("key=\"few\""), "{line}");
    // It reads what waits, and is told what is missing.
    let (mut events, mut lost) = (0, 0);
    while events + lost < 60 * 500 {
        line.clear();
        slow.read_line(&mut line).unwrap();
        if line.starts_with('{') {
            let notice: serde_json::Value = serde_json::from_str(&line).unwrap();
            lost += notice["missed"]["lost"].as_u64().unwrap();
        }
        events += u64::from(line.starts_with("type=EOE "));
    }
    assert_eq!(events + lost, 60 * 500);
    assert!(lost > 0);
    // From then on it loses nothing.
    feed.events(&["many"]);
    feed.thread.finish().unwrap();
    assert_eq!(read_to_end(&mut slow), (vec![feed.serial], [0, 0]));
    assert_eq!(read_to_end(&mut other).1, [0, 0]);
}

#[test]
fn sampled_viewer_is_told_what_it_skipped() {
    let mut feed = Feed::start();
    let mut sampled = feed.watch(EventFilter::default(), Some(4));
    feed.events(&["a"; 50]);
    feed.settle();
    let until = Instant::now() + SOON;
    // The notice comes with the events after the interval.
    let briefly = Some(Duration::from_millis(10));
    sampled.get_ref().set_read_timeout(briefly).unwrap();
    let (mut line, mut notice) = (Vec::new(), String::new());
    while notice.is_empty() {
        assert!(Instant::now() < until);
        feed.events(&["b"]);
        feed.settle();
        let read = sampled.read_until(b'\n', &mut line);
        if read.is_ok() {
            if line.starts_with(b"{") {
                notice = String::from_utf8(line.clone()).unwrap();
            }
            line.clear();
        }
    }
    let notice: serde_json::Value = serde_json::from_str(&notice).unwrap();
    assert_eq!(notice["missed"]["lost"], 0);
    assert!(
        notice["missed"]["skipped"].as_u64().unwrap() >= 48,
        "{notice}"
    );
    feed.thread.finish().unwrap();
}

#[test]
fn number_of_viewers_is_limited_and_places_are_freed() {
    let feed = Feed::start();
    let mut connected: Vec<_> = (0..MAX_VIEWERS_OF_OTHERS)
        .map(|_| feed.connect(EventFilter::default(), None, false).0)
        .collect();
    let (_, refusal) = feed.connect(EventFilter::default(), None, false);
    assert!(
        refusal.starts_with("6 viewers that are not root's watch already, the maximum: end one of the processes 7, 7"),
        "{refusal}"
    );
    connected.extend(
        (MAX_VIEWERS_OF_OTHERS..MAX_VIEWERS).map(|_| feed.watch(EventFilter::default(), None)),
    );
    let (_, refusal) = feed.connect(EventFilter::default(), None, true);
    assert!(refusal.starts_with("8 viewers watch already"), "{refusal}");
    connected.pop();
    connected.push(feed.watch(EventFilter::default(), None));
    drop(connected);
    // The end of the last viewer is noticed without an event.
    let until = Instant::now() + SOON;
    while feed.feed.is_watched() {
        assert!(Instant::now() < until);
        thread::yield_now();
    }
    feed.thread.finish().unwrap();
}

#[test]
fn events_that_the_thread_cannot_take_are_told_to_all() {
    let (viewers, _feed, thread) = start().unwrap();
    thread.finish().unwrap();
    let (full, taken) = bounded(2);
    let (_to, empty) = bounded(1);
    let feed = ViewerFeed {
        shared: viewers.shared,
        full,
        empty,
    };
    let pass = |events: u64, bytes: usize| {
        let mut records = JsonRecords::default();
        for _ in 0..events {
            records.message(b"x\n", true);
        }
        records.text.resize(bytes, b'x');
        feed.pass(records);
        feed.shared.missed.load(Ordering::Relaxed)
    };
    assert_eq!(pass(2, 1000), 0);
    assert_eq!(pass(3, MAX_BYTES), 3, "too many bytes");
    assert_eq!(pass(4, MAX_BYTES - 1000), 3);
    taken.recv().unwrap();
    feed.shared.bytes.store(0, Ordering::Relaxed);
    assert_eq!(pass(5, 10), 3);
    assert_eq!(pass(6, 10), 9, "too many buffers");
    assert_eq!(feed.shared.bytes.load(Ordering::Relaxed), 10);
}

#[test]
fn text_is_split_by_stamps() {
    let text = b"type=A msg=audit(1.000:1): x\ntype=B msg=audit(1.000:1): y\ntype=A msg=audit(1.001:1): z\nrest";
    let found: Vec<&[u8]> = events(text).collect();
    assert_eq!(
        found,
        [
            &b"type=A msg=audit(1.000:1): x\ntype=B msg=audit(1.000:1): y\n"[..],
            b"type=A msg=audit(1.001:1): z\n",
            b"rest"
        ]
    );
    assert_eq!(events(b"").count(), 0);
}
