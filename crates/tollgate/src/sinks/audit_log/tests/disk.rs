//! Failing disks.

use std::io;

use audit::conf::auditd::Flush;
use nix::errno::Errno;

use super::super::disk_actions::Fault;
use super::*;

#[test]
fn failed_rotation_leaves_the_log_writable() {
    let settings = Settings {
        num_logs: 2,
        max_log_file_action: MaxLogFileAction::Rotate,
        ..settings()
    };
    let mut test = TestLog::new(settings);
    let old = test.directory.path().join("audit.log.1");
    fs::create_dir(&old).unwrap();
    test.log.rotate_on_signal(SignalSender::this());
    let actions = test.actions.take();
    assert!(
        actions[0].contains("cannot rename `audit.log` to `audit.log.1`: Is a directory"),
        "{actions:?}"
    );
    let about = fs::metadata(test.directory.path().join("audit.log")).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    assert_eq!(test.log.append(EVENT, 1, &mut ()).written, 1);
    fs::remove_dir(&old).unwrap();
    test.log.rotate_on_signal(SignalSender::this());
    assert_eq!(test.events("audit.log.1").len(), 2);
}

impl TestLog {
    /// The last write did not fit. Returns whether there is room now, and what was told.
    fn disk_is_full(&mut self) -> (bool, String) {
        let full = io::ErrorKind::StorageFull.into();
        let has_room = self.log.disk_failed(Fault::Write, &full);
        (has_room, self.actions.take().join("; "))
    }
}

#[test]
fn full_disk_removes_the_oldest_file_and_keeps_the_log() {
    let mut test = TestLog::new(Settings {
        num_logs: 9,
        disk_full_action: Action::Rotate,
        ..settings()
    });
    for name in ["000003.zst", "000007.zst", "1", "2"] {
        fs::write(test.path(&format!("audit.log.{name}")), "").unwrap();
    }
    // What is no file is no log.
    fs::create_dir(test.path("audit.log.000001.zst")).unwrap();
    fs::create_dir(test.path("audit.log.4")).unwrap();
    test.log.append(EVENT, 1, &mut ());
    for name in ["000003.zst", "000007.zst", "2", "1"] {
        let name = format!("audit.log.{name}");
        let (has_room, told) = test.disk_is_full();
        assert!(has_room && !test.names().contains(&name));
        let expected = format!("; removed the oldest file, `{name}`");
        assert!(told.starts_with("Alert: no space left for log `") && told.ends_with(&expected));
    }
    let (has_room, told) = test.disk_is_full();
    assert!(!has_room && told.ends_with("; there is no old log to remove: make room"));
    assert_eq!(test.disk_is_full(), (false, String::new()));
    let left = ["audit.log", "audit.log.000001.zst", "audit.log.4"];
    assert_eq!(test.names(), left);
    assert_eq!(test.events("audit.log").len(), 2);
    // The newest old log has the last events if no new one can be created.
    fs::write(test.path("audit.log.1"), "").unwrap();
    test.log.log = None;
    assert!(!test.disk_is_full().0);
    assert!(test.names().contains(&"audit.log.1".to_owned()));
}

/// What is open keeps its space: removing it gives no room, and then the next file would go.
#[test]
fn file_that_a_program_reads_is_not_removed_for_room() {
    let mut test = TestLog::new(Settings {
        num_logs: 9,
        disk_full_action: Action::Rotate,
        ..settings()
    });
    let files = ["1", "2"].map(|number| test.path(&format!("audit.log.{number}")));
    let readers = files.clone().map(|path| {
        fs::write(&path, "").unwrap();
        fs::File::open(&path).unwrap()
    });
    let (has_room, told) = test.disk_is_full();
    assert!(
        !has_room && told.contains("; a program reads `audit.log.2`, "),
        "{told}"
    );
    let [newer, older] = readers;
    drop(newer);
    let (has_room, told) = test.disk_is_full();
    assert!(has_room && told.ends_with("removed the oldest file, `audit.log.1`"));
    drop(older);
    assert!(test.disk_is_full().0);
    assert!(!files.iter().any(|file| file.exists()));
}

#[test]
fn full_disk_removes_no_log_that_is_kept() {
    for (num_logs, max_log_file_action) in [
        (5, MaxLogFileAction::KeepLogs),
        (1, MaxLogFileAction::Rotate),
    ] {
        let mut test = TestLog::new(Settings {
            num_logs,
            max_log_file_action,
            disk_full_action: Action::Rotate,
            ..settings()
        });
        fs::write(test.path("audit.log.000001.zst"), "").unwrap();
        test.log.append(&EVENT.repeat(600), 1, &mut ());
        let names = test.names();
        assert!(!test.disk_is_full().0);
        assert_eq!(test.names(), names);
    }
}

/// Rotation would end with empty logs if others fill the disk.
#[test]
fn low_space_removes_old_logs_one_at_a_time() {
    let mut test = TestLog::new(Settings {
        num_logs: 5,
        max_log_file: 9,
        space_left: SpaceLimit::Mebibytes(u64::MAX >> 20),
        space_left_action: Action::Rotate,
        ..settings()
    });
    // The first record of the daemon was written.
    let told = test.actions.take();
    assert!(told[0].contains("low on disk space") && told[0].ends_with("make room"));
    for name in ["1", "2"] {
        fs::write(test.path(&format!("audit.log.{name}")), "").unwrap();
    }
    for left in [2, 1, 1] {
        test.log.append(&EVENT.repeat(600), 1, &mut ());
        assert_eq!(test.names().len(), left);
    }
    let told = test.actions.take();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].ends_with("removed the oldest file, `audit.log.2`"));
    assert!(told[1].ends_with("removed the oldest file, `audit.log.1`"));
    assert!(told[2].ends_with("there is no old log to remove: make room"));
    assert_eq!(test.events("audit.log").len(), 3600);
}

#[test]
fn disk_error_is_reported_once_until_it_ends() {
    let mut test = TestLog::new(settings());
    let fails = "disk error detected = yes\n";
    for _ in 0..2 {
        for _ in 0..3 {
            let error = io::Error::from(Errno::EIO);
            test.log.disk_failed(Fault::Write, &error);
        }
        assert_eq!(test.actions.take().len(), 1);
        assert!(test.log.report().contains(fails));
        test.log.append(EVENT, 1, &mut ());
        assert!(!test.log.report().contains(fails));
    }
    // A successful write does not end the fault of another operation.
    let error = io::Error::from(Errno::EIO);
    test.log.disk_failed(Fault::Flush, &error);
    test.log.append(EVENT, 1, &mut ());
    assert!(test.log.report().contains(fails));
}

#[test]
fn failed_reopen_runs_disk_error_action() {
    let settings = Settings {
        num_logs: 2,
        disk_error_action: Action::Halt,
        ..settings()
    };
    let mut test = TestLog::new(settings);
    let log = test.directory.path().join("audit.log");
    fs::rename(&log, test.directory.path().join("moved")).unwrap();
    fs::create_dir(&log).unwrap();
    test.log.suspend("disk_error_action", "test");
    for _ in 0..2 {
        test.log.resume_on_signal(SignalSender::this());
        let actions = test.actions.take();
        assert!(actions[0].contains("cannot resume logging"), "{actions:?}");
        assert_eq!(actions.last().unwrap(), "go Halt");
        assert!(test.log.report().contains("disk error detected = yes"));
        assert_eq!(test.log.append(EVENT, 1, &mut ()).lost, 1);
    }
    fs::remove_dir(&log).unwrap();
    test.log.resume_on_signal(SignalSender::this());
    assert_eq!(test.log.append(EVENT, 1, &mut ()).written, 1);
    assert!(test.log.report().contains("disk error detected = no"));

    // The new log, after the old one was renamed.
    fs::remove_dir_all(test.directory.path()).unwrap();
    test.log.rotate_on_signal(SignalSender::this());
    let actions = test.actions.take();
    assert!(actions[0].contains("after rotating"), "{actions:?}");
    assert_eq!(actions.last().unwrap(), "go Halt");
}

/// A file that cannot be flushed.
fn pipe() -> fs::File {
    std::os::fd::OwnedFd::from(io::pipe().unwrap().1).into()
}

#[test]
fn failed_flush_runs_disk_error_action() {
    let settings = Settings {
        disk_error_action: Action::Halt,
        ..settings()
    };
    let mut test = TestLog::new(settings);
    assert_eq!(test.log.next_poll(), None);
    test.log.flusher.flush(pipe());
    assert!(test.log.next_poll().is_some());
    while !test.actions.take().contains(&"go Halt".to_owned()) {
        test.log.poll();
    }
    assert_eq!(test.log.next_poll(), None);
    test.log.flusher.flush(pipe());
    assert_ne!(test.log.end(SignalSender::this()).reason, "");
}

#[test]
fn closed_log_is_flushed() {
    for flush in [Flush::IncrementalAsync, Flush::Incremental, Flush::None] {
        let mut test = TestLog::new(Settings {
            flush,
            freq: 50,
            num_logs: 3,
            ..settings()
        });
        test.log.append(EVENT, 1, &mut ());
        assert!(!test.log.flusher.is_busy());
        test.log.rotate(OldLogPolicy::AsConfigured);
        // The flush of the old log; only one policy waits for it.
        let waits = flush == Flush::Incremental;
        assert_eq!(test.log.flusher.is_busy(), !waits, "{flush:?}");
        assert_eq!(test.log.unflushed, 0);
    }
}

#[test]
fn suspended_log_has_a_reason_and_a_count() {
    let settings = Settings {
        disk_full_action: Action::Suspend,
        disk_error_action: Action::Suspend,
        ..settings()
    };
    let mut test = TestLog::new(settings);
    assert_eq!(test.log.suspension(), None);
    test.log
        .disk_failed(Fault::Write, &io::ErrorKind::StorageFull.into());
    test.log
        .disk_failed(Fault::Write, &io::Error::from(Errno::EIO));
    test.log.append(EVENT, 3, &mut ());
    test.log.append(EVENT, 2, &mut ());
    let suspension = test.log.suspension().unwrap();
    assert_eq!(suspension.setting, "disk_full_action");
    let reason = &suspension.reason;
    assert!(reason.starts_with("no space left for log `/"), "{reason}");
    assert!(reason.ends_with("/audit.log`: free space unknown") || reason.ends_with(" KiB free"));
    assert_eq!(suspension.events, 5);
    test.log.resume_on_signal(SignalSender::this());
    assert_eq!(test.log.suspension(), None);
}

/// Without an action, failed writes are shown until one succeeds, which also reports them.
#[test]
fn failing_log_has_a_reason_until_a_write_succeeds() {
    let mut test = TestLog::new(settings());
    let _lost = test.log.count_lost(3, "no space left");
    let _lost = test.log.count_lost(2, "no space left");
    let failure = test.log.suspension().unwrap();
    assert_eq!((failure.setting, failure.events), ("write", 5));
    assert!(!test.log.is_suspended());
    test.log.append(EVENT, 1, &mut ());
    assert_eq!(test.log.suspension(), None);
    assert!(
        test.text("audit.log").contains("op=lost-events lost=5"),
        "{}",
        test.text("audit.log")
    );
}

#[test]
fn deleted_log_is_replaced() {
    let mut test = TestLog::new(settings());
    test.log.append(EVENT, 1, &mut ());
    fs::remove_file(&test.log.config.path).unwrap();
    test.log.append(EVENT, 1, &mut ());
    test.log.append(EVENT, 1, &mut ());
    assert_eq!(test.text("audit.log").into_bytes(), EVENT.repeat(2));
    let alarms = test.actions.take();
    assert_eq!(alarms.len(), 1, "{alarms:?}");
    assert!(
        alarms[0].contains("was deleted while it was open"),
        "{alarms:?}"
    );
}

#[test]
fn failed_sync_is_shown_until_one_succeeds() {
    let mut test = TestLog::new(Settings {
        disk_error_action: Action::Syslog,
        ..settings()
    });
    test.log.flushed(Err(Errno::EROFS.into()));
    test.log.append(EVENT, 1, &mut ());
    let failure = test.log.suspension().unwrap();
    assert_eq!((failure.setting, failure.events), ("sync", 0));
    assert!(!test.log.is_suspended());
    test.log.flushed(Ok(true));
    assert_eq!(test.log.suspension(), None);
}
