//! Tests of reading, rotation, cursors and following.

mod rotated;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use bstr::ByteSlice as _;
use nix::unistd::{Uid, setfsuid};

use super::*;
use crate::cursor::Cursor;
use crate::index::tests::random_text;
use crate::line_buffer::MAX_LINE;

fn record(serial: u32, text: &str) -> String {
    format!("type=SYSCALL msg=audit(1.000:{serial}): {text}\n")
}

fn end(serial: u32) -> String {
    format!("type=PROCTITLE msg=audit(1.000:{serial}): proctitle=\"x\"\n")
}

fn event(serial: u32) -> String {
    record(serial, "a=1") + &end(serial)
}

fn append(path: &Path, text: &str) {
    let mut options = OpenOptions::new();
    let mut file = options.append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn serials(reader: &mut EventReader) -> Vec<u32> {
    let mut serials = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        serials.push(event.serial().0);
    }
    serials
}

/// A directory with a log.
struct Logs {
    _directory: tempfile::TempDir,
    log: PathBuf,
}

impl Logs {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        Self {
            _directory: directory,
            log,
        }
    }

    fn old(&self, number: u32) -> PathBuf {
        self.log.with_extension(format!("log.{number}"))
    }

    fn rotate(&self) {
        if self.old(1).exists() {
            fs::rename(self.old(1), self.old(2)).unwrap();
        }
        fs::rename(&self.log, self.old(1)).unwrap();
    }

    fn set(&self) -> LogSet {
        LogSet::rotated(&self.log).unwrap()
    }
}

#[test]
fn events_span_files_and_lines_without_records_are_reported() {
    let logs = Logs::new();
    append(
        &logs.old(1),
        &(event(1) + "what is this\n\n" + &record(2, "a=1")),
    );
    append(&logs.log, &(end(2) + &record(3, "a=1")));
    let mut reader = EventReader::new(logs.set());
    let mut found = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        found.push(match item {
            Item::Event(event) => format!("{} {}", event.serial().0, event.records().count()),
            Item::Malformed { line, error, .. } => format!("line {line}: {error}"),
            Item::Idle | Item::Lost => "none".to_owned(),
        });
    }
    assert_eq!(
        found,
        ["1 2", "line 3: column 1: expected `type=`", "2 2", "3 1"]
    );
}

#[test]
fn cursor_continues_after_the_returned_events_over_rotation() {
    let logs = Logs::new();
    append(&logs.log, &(event(1) + &event(2) + &record(3, "a=1")));
    let mut reader = EventReader::new(logs.set());
    assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 1);
    let first = reader.cursor().unwrap();
    assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 2);
    let second = reader.cursor().unwrap();
    logs.rotate();
    append(&logs.log, &(end(3) + &event(4)));
    for (cursor, expected) in [(first, vec![2, 3, 4]), (second, vec![3, 4])] {
        let cursor: Cursor = cursor.to_string().parse().unwrap();
        let mut reader = EventReader::at_cursor(logs.set(), &cursor).unwrap();
        assert_eq!(serials(&mut reader), expected);
    }
    // Some file systems have another device number after each mount.
    let mut remounted = second;
    remounted.file.device += 1;
    let mut reader = EventReader::at_cursor(logs.set(), &remounted).unwrap();
    assert_eq!(serials(&mut reader), [3, 4]);
    fs::remove_file(logs.old(1)).unwrap();
    let lost = EventReader::at_cursor(logs.set(), &first).unwrap_err();
    assert!(matches!(lost, LogError::CursorLost));
}

#[test]
fn what_is_unfinished_is_left_for_the_next_reader() {
    let logs = Logs::new();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap().as_secs();
    let recent = |text: &str| format!("type=SYSCALL msg=audit({now}.000:7): {text}");
    append(&logs.log, &(record(1, "a=1") + &recent("a=2\n")));
    let read = |reader: EventReader| {
        let mut reader = reader.leave_unfinished();
        let found = serials(&mut reader);
        (found, reader.cursor().unwrap(), reader.has_unfinished())
    };
    let begin = u64::try_from(record(1, "a=1").len()).unwrap();
    let (found, cursor, is_left) = read(EventReader::new(logs.set()));
    assert_eq!((found, cursor.offset, is_left), (vec![1], begin, true));
    // A line without its end, and the events that may go on there.
    append(&logs.log, &(record(2, "a=1") + "type=CWD msg=audit(1.0"));
    let (found, cursor, _) = read(EventReader::at_cursor(logs.set(), &cursor).unwrap());
    assert_eq!((found, cursor.offset), (vec![], begin));
    append(
        &logs.log,
        &("00:2): cwd=\"/\"\n".to_owned()
            + &end(2)
            + &recent("a=3\n").replace("SYSCALL", "PROCTITLE")),
    );
    let (found, _, is_left) = read(EventReader::at_cursor(logs.set(), &cursor).unwrap());
    assert_eq!((found, is_left), (vec![2, 7], false));
}

#[test]
fn cursor_is_in_the_file_that_is_read() {
    let logs = Logs::new();
    append(&logs.log, &(event(1) + &event(2)));
    logs.rotate();
    append(&logs.log, &event(3));
    let mut reader = EventReader::new(logs.set());
    assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 1);
    let cursor = reader.cursor().unwrap();
    assert_eq!(cursor.offset, u64::try_from(event(1).len()).unwrap());
    let mut rest = EventReader::at_cursor(logs.set(), &cursor).unwrap();
    assert_eq!(serials(&mut rest), [2, 3]);
}

#[test]
fn cursor_at_an_open_event_is_its_first_line() {
    let logs = Logs::new();
    append(&logs.log, &(record(1, "a=1") + &event(2) + &end(1)));
    let mut reader = EventReader::new(logs.set());
    assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 2);
    assert_eq!(reader.cursor().unwrap().offset, 0);
}

#[test]
fn reader_that_follows_survives_rotation_and_partial_lines() {
    let logs = Logs::new();
    append(&logs.log, &event(1));
    let mut reader = EventReader::new(logs.set()).follow(&logs.log).unwrap();
    let mut next = || reader.next_event().unwrap().unwrap().serial().0;
    assert_eq!(next(), 1);
    let text = event(2);
    let (head, tail) = text.split_at(text.len() - 5);
    append(&logs.log, head);
    let log = logs.log.clone();
    let tail = tail.to_owned();
    let writer = std::thread::spawn(move || append(&log, &tail));
    assert_eq!(next(), 2);
    writer.join().unwrap();
    // Two rotations while the reader does not look.
    append(&logs.log, &event(3));
    logs.rotate();
    append(&logs.log, &event(4));
    logs.rotate();
    append(&logs.log, &event(5));
    assert_eq!([next(), next(), next()], [3, 4, 5]);
}

#[test]
fn reader_that_follows_ends_open_events_when_nothing_is_written() {
    let logs = Logs::new();
    append(&logs.log, &record(1, "a=1"));
    let reader = EventReader::new(logs.set()).follow(&logs.log);
    let mut reader = reader.unwrap();
    assert!(matches!(reader.next_item().unwrap(), Some(Item::Idle)));
    assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 1);
}

/// Who continues at the cursor misses no event that has ended and was not returned.
#[test]
fn cursor_is_before_events_that_were_not_returned() {
    let logs = Logs::new();
    append(&logs.log, &(record(1, "a=1") + &record(2, "a=1")));
    let rest = |cursor: &Cursor| serials(&mut EventReader::at_cursor(logs.set(), cursor).unwrap());
    let reader = EventReader::new(logs.set()).follow(&logs.log);
    let mut reader = reader.unwrap();
    assert!(matches!(reader.next_item().unwrap(), Some(Item::Idle)));
    assert_eq!(rest(&reader.cursor().unwrap()), [1, 2]);
    assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 1);
    assert_eq!(rest(&reader.cursor().unwrap()), [2]);
    assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 2);
    assert_eq!(rest(&reader.cursor().unwrap()), [0; 0]);
}

#[test]
fn reader_that_follows_is_idle_while_other_files_are_written() {
    let logs = Logs::new();
    append(&logs.log, &record(1, "a=1"));
    let begun = Instant::now();
    let mut reader = EventReader::new(logs.set()).follow(&logs.log).unwrap();
    let other = logs.log.with_file_name("other");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        // Without an end of its own, the reader would never be idle.
        while stopped.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
            append(&other, "x");
        }
    });
    assert!(matches!(reader.next_item().unwrap(), Some(Item::Idle)));
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 1);
    drop(stop);
    writer.join().unwrap();
}

#[test]
fn reader_that_follows_is_not_idle_while_events_are_written() {
    let logs = Logs::new();
    append(&logs.log, &event(1));
    let mut reader = EventReader::new(logs.set()).follow(&logs.log).unwrap();
    let log = logs.log;
    let writer = std::thread::spawn(move || {
        for serial in 2..10 {
            std::thread::park_timeout(Duration::from_millis(500));
            append(&log, &event(serial));
        }
    });
    for _ in 1..10 {
        assert!(matches!(reader.next_item().unwrap(), Some(Item::Event(_))));
    }
    writer.join().unwrap();
}

#[test]
fn skipping_to_the_end_returns_only_newer_events() {
    let logs = Logs::new();
    append(&logs.log, &event(1));
    let mut reader = EventReader::new(logs.set()).follow(&logs.log).unwrap();
    reader.skip_to_end().unwrap();
    append(&logs.log, &event(2));
    assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 2);
}

#[test]
fn stream_is_read_once() {
    let text = event(1) + &event(2);
    let stream = Box::new(std::io::Cursor::new(text.into_bytes()));
    let mut reader = EventReader::new(LogSet::stream(Path::new("x"), stream));
    assert_eq!(serials(&mut reader), [1, 2]);
    assert_eq!(reader.cursor(), None);
}

/// Events that are taken whole, also while others are open, are those of the lines.
#[test]
fn events_are_those_of_the_assembler() {
    for seed in 0..6 {
        let text = random_text(seed, 3000);
        let mut assembler = EventAssembler::default();
        let mut expected = Vec::new();
        let mut offset = 0;
        for line in text.lines_with_terminator() {
            let record = line.strip_suffix(b"\n").unwrap_or(line);
            if record.len() <= MAX_LINE {
                let _malformed = assembler.take(record, offset);
                expected.extend(std::iter::from_fn(|| assembler.next_ended()));
            }
            offset += len(line.len());
        }
        assembler.end_all();
        expected.extend(std::iter::from_fn(|| assembler.next_ended()));
        let logs = Logs::new();
        fs::write(&logs.log, &text).unwrap();
        let is_odd = |text: &[u8]| text.len() % 2 == 1;
        for accepts in [|_: &[u8]| true, is_odd] {
            let set = LogSet::rotated(&logs.log).unwrap();
            let mut reader = EventReader::new(set);
            let mut found = Vec::new();
            while reader.advance_where(accepts).unwrap() {
                found.extend(reader.event().cloned());
            }
            found.retain(|event| accepts(event.text()));
            let expected = expected.iter().filter(|event| accepts(event.text()));
            assert!(found.iter().eq(expected), "seed {seed}");
        }
    }
}

#[test]
fn reader_goes_on_with_the_next_file_after_an_error() {
    struct Broken;

    impl std::io::Read for Broken {
        fn read(&mut self, _room: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("broken"))
        }
    }

    fn broken() -> LogFile {
        let text = std::io::Cursor::new(event(1) + "type=SYSCALL msg=aud");
        let stream = std::io::Read::chain(text, Broken);
        LogFile::stream(Path::new("broken"), Box::new(stream))
    }

    let logs = Logs::new();
    append(&logs.log, &(event(2) + &event(3)));
    let mut reader = EventReader::new(LogSet::of_files(vec![
        broken(),
        LogFile::open(&logs.log).unwrap(),
        broken(),
    ]));
    let mut read = Vec::new();
    for _ in 0..20 {
        match reader.next_event() {
            Ok(Some(event)) => read.push(Some(event.serial().0)),
            Ok(None) => break,
            Err(error) => {
                assert!(error.report().contains("broken"));
                read.push(None);
            }
        }
    }
    assert_eq!(read, [Some(1), None, Some(2), Some(3), Some(1), None]);
    assert!(reader.next_event().unwrap().is_none());
}

/// A full disk gets no room from a removed log that a reader has open.
#[test]
fn reader_that_follows_closes_read_files() {
    let logs = Logs::new();
    append(&logs.log, &record(1, "a=1"));
    let mut reader = EventReader::new(logs.set()).follow(&logs.log).unwrap();
    for serial in 2..6 {
        append(&logs.log, &event(serial));
        assert_eq!(reader.next_event().unwrap().unwrap().serial().0, serial);
        logs.rotate();
    }
    // The first event began in the first file.
    append(&logs.log, &(event(6) + &end(1) + &event(7)));
    let mut next = || reader.next_event().unwrap().unwrap().serial().0;
    assert_eq!([next(), next(), next()], [6, 1, 7]);
    assert_eq!((reader.files.len(), reader.at), (5, 4));
    logs.rotate();
    append(&logs.log, &event(8));
    assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 8);
    assert_eq!((reader.files.len(), reader.at), (1, 0));
}

/// Daemons create a log for root alone, and then give it to its group.
#[test]
fn reader_that_follows_waits_for_access_to_a_new_log() {
    let logs = Logs::new();
    let set_mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(logs.log.parent().unwrap(), 0o755);
    append(&logs.log, &event(1));
    let set = logs.set();
    let (log, old) = (logs.log.clone(), logs.old(1));
    std::thread::scope(|scope| {
        let follower = scope.spawn(move || {
            // Root could read it.
            let _root = setfsuid(Uid::from_raw(65534));
            let mut reader = EventReader::new(set).follow(&log).unwrap();
            let mut next = || reader.next_event().unwrap().unwrap().serial().0;
            [next(), next()]
        });
        fs::rename(&logs.log, old).unwrap();
        append(&logs.log, "");
        set_mode(&logs.log, 0o000);
        std::thread::park_timeout(Duration::from_millis(200));
        set_mode(&logs.log, 0o644);
        append(&logs.log, &event(2));
        assert_eq!(follower.join().unwrap(), [1, 2]);
    });
    // Without access to what is in it, nobody waits.
    set_mode(&logs.log, 0o000);
    let refused = std::thread::spawn(move || {
        let _root = setfsuid(Uid::from_raw(65534));
        LogSet::rotated(&logs.log).unwrap_err()
    });
    let refused = refused.join().unwrap();
    assert!(matches!(refused, LogError::Open { cause, .. }
        if cause.kind() == std::io::ErrorKind::PermissionDenied));
}

/// Serials of the events of a reader that follows, and how many records each has, until nothing is written.
fn followed(reader: &mut EventReader) -> Vec<(u32, usize)> {
    let mut found = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            Item::Event(event) => found.push((event.serial().0, event.records().count())),
            Item::Malformed { .. } => found.push((0, 0)),
            Item::Lost => found.push((u32::MAX, 0)),
            Item::Idle => break,
        }
    }
    found
}

fn cut(log: &Path, size: usize) {
    let file = OpenOptions::new().write(true).open(log).unwrap();
    file.set_len(size.try_into().unwrap()).unwrap();
}

/// A daemon cuts off what did not fit, and goes on.
#[test]
fn reader_that_follows_goes_on_where_an_event_was_cut_off() {
    for partial in [
        record(2, "a=1"),
        record(2, &"x".repeat(9000)),
        record(2, "a=1") + &"x".repeat(9000),
    ] {
        for after in [event(4), event(4).repeat(2000) + &event(5)] {
            let logs = Logs::new();
            append(&logs.log, &(event(1) + &partial));
            let mut reader = EventReader::new(logs.set()).follow(&logs.log).unwrap();
            // The rest is in the buffer.
            assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 1);
            cut(&logs.log, event(1).len());
            append(&logs.log, &after);
            let found = followed(&mut reader);
            assert!(found.iter().all(|&(serial, _)| serial >= 4), "{found:?}");
            let records: usize = found.iter().map(|&(_, records)| records).sum();
            assert_eq!(records, after.lines().count());
        }
    }
}

#[test]
fn reader_that_follows_reads_a_log_that_was_emptied() {
    let logs = Logs::new();
    let earlier: String = (1..100).map(event).collect();
    append(&logs.log, &earlier);
    let mut reader = EventReader::new(logs.set()).follow(&logs.log).unwrap();
    assert_eq!(followed(&mut reader).len(), 99);
    cut(&logs.log, 0);
    append(&logs.log, &(event(101) + &event(102)));
    assert_eq!(followed(&mut reader), [(101, 2), (102, 2)]);
}
