//! What the archiver does when files, the disk or people are in its way.

use std::io;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::free_space::FreeSpace;
use super::archive::{PATIENCE, expected, rotating};
use super::*;

/// A machine whose disk and journal the test has.
#[derive(Clone)]
struct TestMachine {
    fails_to_sync: Arc<AtomicBool>,
    free_space: Arc<Mutex<FreeSpace>>,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl TestMachine {
    fn new() -> Self {
        let free_space = FreeSpace {
            available: 900 * MEBIBYTE,
            total: 1000 * MEBIBYTE,
        };
        Self {
            fails_to_sync: Arc::default(),
            free_space: Arc::new(Mutex::new(free_space)),
            warnings: Arc::default(),
        }
    }

    /// The machine, on which old logs are tried again after this time.
    fn with_retry(&self, retry_after: Duration) -> Machine {
        let Self {
            fails_to_sync,
            free_space,
            warnings,
        } = self.clone();
        Machine {
            sync: Arc::new(move |_| match fails_to_sync.load(Ordering::Relaxed) {
                true => Err(io::Error::other("the disk is broken")),
                false => Ok(()),
            }),
            free_space: Arc::new(move |_| Ok(*free_space.lock().unwrap())),
            warn: Arc::new(move |text| warnings.lock().unwrap().push(text.to_owned())),
            retry_after,
        }
    }

    fn set_free(&self, available: u64) {
        self.free_space.lock().unwrap().available = available;
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap().clone()
    }

    fn await_warnings(&self, count: usize) -> Vec<String> {
        wait_for(|| self.warnings().len() >= count);
        self.warnings()
    }
}

#[track_caller]
fn wait_for(mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited too long");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

const SOON: Duration = Duration::from_millis(20);
const NEVER: Duration = Duration::from_hours(1);
/// While events arrive faster than they are read, nothing is compressed.
#[test]
fn archiver_waits_while_work_is_put_off() {
    let mut test = TestLog::new(rotating(5));
    test = test.start_archiver_on(TestMachine::new().with_retry(NEVER));
    for number in 0..3 {
        test.log.put_off_work();
        test.append(number..number + 1);
    }
    test.log.put_off_work();
    assert!(
        test.log
            .archiver_requests()
            .recv_timeout(10 * SOON)
            .is_err()
    );
    let archive = |number| format!("audit.log.00000{number}.zst");
    test.await_names(&["audit.log", &archive(1), &archive(2), &archive(3)]);
    assert!(test.all_events() == expected(0..3));
}

#[test]
fn archive_waits_until_there_is_room_for_it() {
    let mut test = TestLog::new(Settings {
        space_left: SpaceLimit::Mebibytes(2),
        admin_space_left: SpaceLimit::Mebibytes(1),
        ..rotating(5)
    });
    test.append(0..2);
    let machine = TestMachine::new();
    machine.set_free(6 * MEBIBYTE);
    test = test.start_archiver_on(machine.with_retry(SOON));
    let warnings = machine.await_warnings(1);
    assert!(warnings[0].contains("make room"), "{warnings:?}");
    // Several times, and reported once.
    std::thread::park_timeout(10 * SOON);
    assert_eq!(machine.warnings().len(), 1);
    // Between two tries.
    test.await_names(&["audit.log", "audit.log.1", "audit.log.2"]);
    machine.set_free(7 * MEBIBYTE);
    test.await_names(&["audit.log", "audit.log.000001.zst", "audit.log.000002.zst"]);
    assert!(test.all_events() == expected(0..2));
}

/// As when old logs are removed for room: each leaves enough for one archive.
#[test]
fn lack_of_room_is_reported_once_although_archives_are_written_between() {
    let mut test = TestLog::new(rotating(9));
    test.append(0..3);
    let archives = [1, 2].map(|number| test.path(&format!("audit.log.00000{number}.zst")));
    let present = archives.clone();
    let test_machine = TestMachine::new();
    let machine = Machine {
        free_space: Arc::new(move |_| {
            let is_full = present.iter().any(|archive| archive.exists());
            let available = if is_full { 0 } else { 900 * MEBIBYTE };
            Ok(FreeSpace {
                available,
                total: 1000 * MEBIBYTE,
            })
        }),
        ..test_machine.with_retry(SOON)
    };
    test = test.start_archiver_on(machine);
    for (archive, old_logs) in archives.iter().zip([2, 1]) {
        let name = archive.file_name().unwrap().to_str().unwrap();
        let old_logs = ["audit.log.1", "audit.log.2"].into_iter().take(old_logs);
        let expected: Vec<&str> = ["audit.log", name].into_iter().chain(old_logs).collect();
        test.await_names(&expected);
        std::thread::park_timeout(5 * SOON);
        fs::remove_file(archive).unwrap();
    }
    test.await_names(&["audit.log", "audit.log.000003.zst"]);
    let warnings = test_machine.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

/// As after a daemon that was killed between its steps: nothing tells that the archive reached the disk.
#[test]
fn archive_that_is_not_on_disk_replaces_no_log() {
    let mut test = TestLog::new(rotating(5));
    test.append(0..1);
    let machine = TestMachine::new();
    test = test.start_archiver_on(machine.with_retry(SOON));
    let requests = test.log.archiver_requests();
    let request = requests.recv_timeout(PATIENCE).unwrap();
    machine.fails_to_sync.store(true, Ordering::Relaxed);
    test.log.answer_archiver(&request);
    let both = ["audit.log", "audit.log.000001.zst", "audit.log.1"];
    machine.await_warnings(2);
    assert!(requests.recv_timeout(10 * SOON).is_err());
    assert_eq!(test.names(), both);
    let warnings = machine.warnings();
    let subjects = ["cannot sync the directory", "cannot sync the archive"];
    for (warning, subject) in warnings.iter().zip(subjects) {
        assert!(warning.contains(subject), "{warnings:?}");
    }
    machine.fails_to_sync.store(false, Ordering::Relaxed);
    test.await_names(&["audit.log", "audit.log.000001.zst"]);
}

/// The old log and its archive are one file for `num_logs`.
#[test]
fn pair_that_a_killed_daemon_left_counts_once() {
    let mut test = TestLog::new(rotating(4));
    test.append(0..2);
    test = test.start_archiver_on(TestMachine::new().with_retry(NEVER));
    test.await_names(&["audit.log", "audit.log.000001.zst", "audit.log.000002.zst"]);
    test.append(2..3);
    let requests = test.log.archiver_requests();
    let request = requests.recv_timeout(PATIENCE).unwrap();
    test.log.answer_archiver(&request);
    let names = [
        "audit.log",
        "audit.log.000001.zst",
        "audit.log.000002.zst",
        "audit.log.000003.zst",
        "audit.log.1",
    ];
    assert_eq!(test.names(), names);
    test.log.end(SignalSender::this());
    let mut next = test.reopen();
    assert_eq!(next.names(), names);
    // Without an archiver too: the oldest is removed for the new one, and no other.
    next.append(3..4);
    assert!(next.all_events() == expected(1..4), "{:?}", next.names());
    next.append(4..5);
    assert!(next.all_events() == expected(2..5), "{:?}", next.names());
}

#[test]
fn bad_old_log_stops_no_other() {
    let mut test = TestLog::new(rotating(9));
    test.append(0..1);
    fs::create_dir(test.path("audit.log.2")).unwrap();
    let pipe = test.path("audit.log.3");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
    fs::write(test.path("audit.log.4"), b"\x1f\x8b\x08\x00").unwrap();
    let machine = TestMachine::new();
    test = test.start_archiver_on(machine.with_retry(SOON));
    let left = ["audit.log.2", "audit.log.3", "audit.log.4"];
    let names = ["audit.log", "audit.log.000001.zst"];
    test.await_names(&[&names[..], &left].concat());
    machine.await_warnings(3);
    std::thread::park_timeout(10 * SOON);
    let warnings = machine.warnings();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    for name in left {
        assert!(warnings.iter().any(|text| text.contains(name)));
    }
    // What can be read later is tried again.
    let text = fs::read(test.path("audit.log.000001.zst")).unwrap();
    fs::remove_dir(test.path("audit.log.2")).unwrap();
    fs::remove_file(pipe).unwrap();
    fs::write(test.path("audit.log.4"), "type=EOE msg=audit(1.000:1): \n").unwrap();
    let archives = ["audit.log.000001.zst", "audit.log.000002.zst"];
    test.await_names(&["audit.log", archives[0], archives[1]]);
    assert_eq!(fs::read(test.path(archives[0])).unwrap(), text);
}

#[test]
fn unfinished_archives_are_removed_when_nothing_writes_them() {
    let mut test = TestLog::new(rotating(5));
    let begun = b"\x28\xb5\x2f\xfd and more";
    let other = tempfile::tempdir().unwrap();
    let (unfinished, moved) = (
        test.path("audit.log.archive"),
        other.path().join("audit.log.archive"),
    );
    for content in [&begun[..], b"", &[0; 100]] {
        fs::write(&unfinished, content).unwrap();
        test = test.reopen();
        assert!(!unfinished.exists());
    }
    // Neither is what somebody else has put there.
    let text = "type=EOE msg=audit(1.000:1): \n";
    fs::write(&unfinished, text).unwrap();
    test = test.reopen();
    assert_eq!(fs::read_to_string(&unfinished).unwrap(), text);
    fs::remove_file(&unfinished).unwrap();
    let target = test.path("target");
    fs::write(&target, begun).unwrap();
    symlink(&target, &unfinished).unwrap();
    test = test.reopen();
    assert!(unfinished.is_symlink() && target.exists());
    fs::remove_file(&unfinished).unwrap();
    // After `log_file` has changed.
    fs::write(&unfinished, begun).unwrap();
    fs::write(&moved, begun).unwrap();
    let configure = |test: &mut TestLog, path: &Path| {
        let config = LogConfig::configured(rotating(5), Some(path.to_owned())).unwrap();
        test.log.configure(Some(config), SignalSender::this())
    };
    let path = test.path("audit.log");
    assert!(configure(&mut test, &path));
    assert!(unfinished.exists(), "it may be written now");
    assert!(configure(&mut test, &other.path().join("audit.log")));
    assert!(!unfinished.exists() && !moved.exists());
}

/// What is in the way of an archive, and is none, stays.
#[test]
fn file_with_the_name_of_an_unfinished_archive_stays() {
    let mut test = TestLog::new(rotating(5));
    test.append(0..1);
    let text = "type=EOE msg=audit(1.000:1): \n";
    fs::write(test.path("audit.log.archive"), text).unwrap();
    let machine = TestMachine::new();
    test = test.start_archiver_on(machine.with_retry(SOON));
    let warnings = machine.await_warnings(1);
    assert!(warnings[0].contains("audit.log.archive"), "{warnings:?}");
    assert_eq!(test.text("audit.log.archive"), text);
    fs::remove_file(test.path("audit.log.archive")).unwrap();
    test.await_names(&["audit.log", "audit.log.000001.zst"]);
}

/// As in a burst that rotates logs faster than they are compressed.
#[test]
fn old_log_that_was_removed_meanwhile_gets_no_archive() {
    let mut test = TestLog::new(rotating(2));
    test.append(0..1);
    let (release, held) = crossbeam_channel::bounded::<()>(0);
    let machine = Machine {
        // The last step before the archive gets its name.
        sync: Arc::new(move |_| {
            let _released = held.recv();
            Ok(())
        }),
        ..TestMachine::new().with_retry(NEVER)
    };
    test = test.start_archiver_on(machine);
    wait_for(|| test.path("audit.log.archive").exists());
    test.append(1..2);
    test.actions.take();
    drop(release);
    test.await_names(&["audit.log", "audit.log.000001.zst"]);
    assert_eq!(test.actions.take(), [""; 0]);
    assert!(test.all_events() == expected(1..2));
}

#[test]
fn archives_beyond_a_smaller_num_logs_are_named() {
    let mut test = TestLog::new(rotating(5));
    test.append(0..4);
    test = test.start_archiver_on(TestMachine::new().with_retry(NEVER));
    let names: Vec<String> = (1..=4)
        .map(|number| format!("audit.log.{number:06}.zst"))
        .collect();
    let mut all = vec!["audit.log"];
    all.extend(names.iter().map(String::as_str));
    test.await_names(&all);
    test.actions.take();
    let config = LogConfig::configured(rotating(2), Some(test.path("audit.log"))).unwrap();
    assert!(test.log.configure(Some(config), SignalSender::this()));
    assert_eq!(
        test.actions.take(),
        [
            "Notice: removed 3 logs beyond num_logs: audit.log.000001.zst, audit.log.000002.zst, audit.log.000003.zst"
        ]
    );
}

#[test]
fn compress_without_effect_is_reported() {
    for (num_logs, action, expected) in [
        (1, MaxLogFileAction::Rotate, Some("num_logs is 1")),
        (0, MaxLogFileAction::Ignore, Some("num_logs is 0")),
        (
            5,
            MaxLogFileAction::Ignore,
            Some("max_log_file_action is not ROTATE"),
        ),
        (5, MaxLogFileAction::Rotate, None),
        (0, MaxLogFileAction::KeepLogs, None),
    ] {
        let mut test = TestLog::new(Settings {
            max_log_file_action: action,
            ..rotating(num_logs)
        });
        test = test.start_archiver_on(TestMachine::new().with_retry(NEVER));
        let actions = test.actions.take();
        match expected {
            Some(expected) => assert!(actions[0].contains(expected), "{actions:?}"),
            None => assert_eq!(actions, [""; 0]),
        }
        test.log.end(SignalSender::this());
    }
}
