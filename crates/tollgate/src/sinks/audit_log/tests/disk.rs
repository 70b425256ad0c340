//! A disk that does not do what it is asked.

use std::io;

use audit::conf::auditd::Flush;
use nix::errno::Errno;

use super::super::disk_actions::Fault;
use super::*;

#[test]
fn a_rotation_that_fails_leaves_the_log_open_to_writers() {
    let settings = Settings {
        num_logs: 2,
        max_log_file_action: MaxLogFileAction::Rotate,
        ..settings()
    };
    let mut place = Place::new(settings);
    let old = place.directory.path().join("audit.log.1");
    fs::create_dir(&old).unwrap();
    place.journal.rotate_now(SignalSender::this());
    let told = place.noted.taken();
    assert!(told[0].contains("cannot rotate the log"), "{told:?}");
    let about = fs::metadata(place.directory.path().join("audit.log")).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    assert_eq!(place.journal.append(EVENT, 1, &mut ()).written, 1);
    fs::remove_dir(&old).unwrap();
    place.journal.rotate_now(SignalSender::this());
    assert_eq!(place.events("audit.log.1").len(), 2);
}

#[test]
fn a_full_disk_is_rotated_until_the_oldest_log_goes() {
    let settings = Settings {
        num_logs: 3,
        disk_full_action: Action::Rotate,
        ..settings()
    };
    let mut place = Place::new(settings);
    place.journal.append(EVENT, 1, &mut ());
    for round in 0..3 {
        let gone = !place
            .names()
            .iter()
            .any(|name| !place.events(name).is_empty());
        assert!(!gone, "{round}");
        place
            .journal
            .disk_failed(Fault::Write, &io::ErrorKind::StorageFull.into());
    }
    assert_eq!(place.names(), ["audit.log", "audit.log.1", "audit.log.2"]);
    let left = place
        .names()
        .iter()
        .any(|name| !place.events(name).is_empty());
    assert!(!left, "the oldest log is still there");
}

#[test]
fn a_disk_that_fails_is_told_of_once_until_it_does_not() {
    let mut place = Place::new(settings());
    let fails = "disk error detected = yes\n";
    for _ in 0..2 {
        for _ in 0..3 {
            let error = io::Error::from(Errno::EIO);
            place.journal.disk_failed(Fault::Write, &error);
        }
        assert_eq!(place.noted.taken().len(), 1);
        assert!(place.journal.report().contains(fails));
        place.journal.append(EVENT, 1, &mut ());
        assert!(!place.journal.report().contains(fails));
    }
    // That something is written does not end what another call has told.
    let error = io::Error::from(Errno::EIO);
    place.journal.disk_failed(Fault::Flush, &error);
    place.journal.append(EVENT, 1, &mut ());
    assert!(place.journal.report().contains(fails));
}

#[test]
fn a_log_that_cannot_be_opened_again_is_acted_upon() {
    let settings = Settings {
        num_logs: 2,
        disk_error_action: Action::Halt,
        ..settings()
    };
    let mut place = Place::new(settings);
    let log = place.directory.path().join("audit.log");
    fs::rename(&log, place.directory.path().join("moved")).unwrap();
    fs::create_dir(&log).unwrap();
    place.journal.suspend();
    for _ in 0..2 {
        place.journal.resume_now(SignalSender::this());
        let told = place.noted.taken();
        assert!(told[0].contains("cannot resume logging"), "{told:?}");
        assert_eq!(told.last().unwrap(), "go Halt");
        assert!(place.journal.report().contains("disk error detected = yes"));
        assert_eq!(place.journal.append(EVENT, 1, &mut ()).lost, 1);
    }
    fs::remove_dir(&log).unwrap();
    place.journal.resume_now(SignalSender::this());
    assert_eq!(place.journal.append(EVENT, 1, &mut ()).written, 1);
    assert!(place.journal.report().contains("disk error detected = no"));

    // The new log, after the old one has its new name.
    fs::remove_dir_all(place.directory.path()).unwrap();
    place.journal.rotate_now(SignalSender::this());
    let told = place.noted.taken();
    assert!(told[0].contains("after rotating"), "{told:?}");
    assert_eq!(told.last().unwrap(), "go Halt");
}

/// A file that cannot be brought to a disk.
fn pipe() -> fs::File {
    std::os::fd::OwnedFd::from(io::pipe().unwrap().1).into()
}

#[test]
fn a_flush_that_fails_is_acted_upon_without_another_write() {
    let settings = Settings {
        disk_error_action: Action::Halt,
        ..settings()
    };
    let mut place = Place::new(settings);
    assert_eq!(place.journal.next_look(), None);
    place.journal.flusher.flush(pipe());
    assert!(place.journal.next_look().is_some());
    while !place.noted.taken().contains(&"go Halt".to_owned()) {
        place.journal.look();
    }
    assert_eq!(place.journal.next_look(), None);
    place.journal.flusher.flush(pipe());
    assert_ne!(place.journal.end(SignalSender::this()).reason, "");
}

#[test]
fn a_log_that_is_closed_is_brought_to_the_disk() {
    for flush in [Flush::IncrementalAsync, Flush::Incremental, Flush::None] {
        let mut place = Place::new(Settings {
            flush,
            freq: 50,
            num_logs: 3,
            ..settings()
        });
        place.journal.append(EVENT, 1, &mut ());
        assert!(!place.journal.flusher.is_busy());
        place.journal.rotate(OldLogPolicy::AsConfigured);
        // That of the old log, however it is flushed; one policy waits for it.
        let waits = flush == Flush::Incremental;
        assert_eq!(place.journal.flusher.is_busy(), !waits, "{flush:?}");
        assert_eq!(place.journal.unflushed, 0);
    }
}
