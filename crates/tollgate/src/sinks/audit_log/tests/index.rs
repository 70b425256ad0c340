//! The index of a log that grows.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use logs::index::store;
use logs::log_file::LogFile;

use super::archive::rotating;
use super::*;

/// Events that end with their last record, of a bit more than a mebibyte.
fn events(number: u32) -> Vec<u8> {
    let of = |serial: u32| {
        let (stamp, exe) = (format!("audit({number}.000:{serial}):"), "x".repeat(1040));
        format!("type=SYSCALL msg={stamp} pid={serial} exe=\"/{exe}\"\ntype=EOE msg={stamp} \n")
    };
    let all: String = (number * 1000..(number + 1) * 1000).map(of).collect();
    all.into_bytes()
}

impl TestLog {
    fn write(&mut self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            self.log.append(&events(number), 1000, &mut ());
        }
    }

    /// Writes single events, so that text is read back `steps` times.
    fn read_back(&mut self, steps: u32) {
        for _ in 0..steps {
            std::thread::park_timeout(Duration::from_millis(110));
            self.log.append(EVENT, 1, &mut ());
        }
    }

    /// A log that is indexed, of at most 999 MiB.
    fn indexed() -> Self {
        Self::indexed_on(Machine::local())
    }

    /// The same, and whether batches wait to be written.
    fn indexed_unless_busy() -> (Self, Arc<AtomicBool>) {
        let mut test = Self::indexed();
        let busy = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&busy);
        test.log.set_busy(move || asked.load(Ordering::Relaxed));
        (test, busy)
    }

    fn indexed_on(machine: Machine) -> Self {
        Self::new(Settings {
            max_log_file: 999,
            ..rotating(5)
        })
        .start_indexer(machine)
    }

    fn start_indexer(self, machine: Machine) -> Self {
        let index = LogOptions {
            index: true,
            compress: false,
        };
        self.with_options(index, machine)
    }

    /// Length of the log whose index is written.
    fn end_of_index(&self, name: &str) -> u64 {
        let mut log = LogFile::open(&self.path(name)).unwrap();
        store::existing(&mut log).unwrap().end()
    }

    fn len(&self, name: &str) -> u64 {
        fs::metadata(self.path(name)).unwrap().len()
    }

    /// Rotates the log, and compares its index with that of the same text in a new log.
    #[track_caller]
    fn assert_whole_index(&mut self) {
        self.log.rotate_on_signal(SignalSender::this());
        let old = self.path("audit.log.1");
        let place = tempfile::tempdir().unwrap();
        let copy = place.path().join("audit.log");
        fs::copy(&old, &copy).unwrap();
        let mut file = LogFile::open(&copy).unwrap();
        store::open(&mut file, store::Extent::Whole, |_| ()).unwrap();
        assert!(index_of(&old) == index_of(&copy));
    }
}

/// Bytes of the index beside a log, without the part that names the log.
fn index_of(log: &Path) -> Option<Vec<u8>> {
    let about = fs::metadata(log).unwrap();
    let name = format!("{:x}-{}.idx", about.dev(), about.ino());
    let bytes = fs::read(log.parent()?.join(".tollgate-index").join(name)).ok()?;
    Some(bytes.get(48..)?.to_vec())
}

#[test]
fn log_is_indexed_as_it_grows_and_when_it_is_rotated() {
    let mut test = TestLog::indexed();
    test.write(0..80);
    assert!(test.end_of_index("audit.log") > 60 * MEBIBYTE);
    test.write(80..90);
    test.assert_whole_index();
    test.write(90..94);
    assert_eq!(test.end_of_index("audit.log"), 0);
    // What was indexed is written when the daemon ends.
    test.log.end(SignalSender::this());
    assert!(test.end_of_index("audit.log") > 2 * MEBIBYTE);
    test = test.reopen().start_indexer(Machine::local());
    test.write(94..97);
    test.log.rotate_on_signal(SignalSender::this());
    assert_eq!(test.end_of_index("audit.log.1"), test.len("audit.log.1"));
}

#[test]
fn what_was_left_out_of_the_index_is_read_back() {
    let (mut test, busy) = TestLog::indexed_unless_busy();
    test.write(0..3);
    busy.store(true, Ordering::Relaxed);
    test.write(3..8);
    busy.store(false, Ordering::Relaxed);
    test.read_back(7);
    test.assert_whole_index();
}

/// A search finds the index complete after a burst, and not locked for ever by a daemon that waits for more.
#[test]
fn text_is_read_back_although_nothing_is_written() {
    let (mut test, busy) = TestLog::indexed_unless_busy();
    test.write(0..1);
    busy.store(true, Ordering::Relaxed);
    test.write(1..5);
    test.log.poll();
    busy.store(false, Ordering::Relaxed);
    let mut steps = 0;
    while let Some(time) = test.log.next_poll() {
        std::thread::park_timeout(time);
        test.log.poll();
        steps += 1;
    }
    assert!(steps >= 4, "{steps}");
    test.assert_whole_index();
}

#[test]
fn log_that_is_too_far_ahead_is_left_to_the_first_search() {
    let mut test = TestLog::indexed();
    test.write(0..4);
    for number in 4..80 {
        test.log.put_off_work();
        test.write(number..number + 1);
    }
    let indexed = test.end_of_index("audit.log");
    assert!((3 * MEBIBYTE..5 * MEBIBYTE).contains(&indexed), "{indexed}");
    // Others may extend the index now.
    let mut log = LogFile::open(&test.path("audit.log")).unwrap();
    let index = store::open(&mut log, store::Extent::FullSegments, |_| ()).unwrap();
    let searched = test.end_of_index("audit.log");
    assert!(searched == index.end() && searched > 60 * MEBIBYTE);
    // While work is put off, a rotated log is left to the first search too.
    test.log.rotate_on_signal(SignalSender::this());
    assert_eq!(test.end_of_index("audit.log.1"), searched);
}

#[test]
fn index_that_a_search_has_completed_is_extended() {
    let mut test = TestLog::indexed();
    test.log.put_off_work();
    test.write(0..80);
    let mut log = LogFile::open(&test.path("audit.log")).unwrap();
    let index = store::open(&mut log, store::Extent::FullSegments, |_| ()).unwrap();
    std::thread::park_timeout(Duration::from_millis(1100));
    test.read_back(3);
    test.log.end(SignalSender::this());
    assert!(test.end_of_index("audit.log") > index.end());
}

#[test]
fn index_of_a_log_that_was_cut_is_built_again() {
    for (before, left, after) in [(0..3, 10_000, 3..6), (0..4, 2 * MEBIBYTE, 4..5)] {
        let mut test = TestLog::indexed();
        test.write(before);
        let log = File::options().write(true).open(test.path("audit.log"));
        log.unwrap().set_len(left).unwrap();
        test.write(after);
        test.read_back(5);
        test.assert_whole_index();
    }
}

#[test]
fn log_that_cannot_be_read_is_reported_once() {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&warnings);
    let machine = Machine {
        warn: Arc::new(move |text| heard.lock().unwrap().push(text.to_owned())),
        ..Machine::local()
    };
    let mut test = TestLog::indexed_on(machine);
    // A name that is taken by a link is not followed.
    let (path, moved) = (test.path("audit.log"), test.path("moved"));
    fs::rename(&path, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &path).unwrap();
    // It is tried again after 24 MiB.
    test.write(0..30);
    let warnings = warnings.lock().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("cannot index the log"), "{warnings:?}");
}
