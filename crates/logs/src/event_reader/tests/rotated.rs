//! Tests of a log that is rotated, emptied or replaced: no file is skipped, and no other one kept.

use super::*;

/// The daemon writes, renames the log and creates another one between a read and the look at the name.
#[test]
fn reader_that_follows_reads_a_log_that_was_rotated_behind_its_last_read() {
    let logs = Logs::new();
    append(&logs.log, &event(1));
    let mut reader = EventReader::new(logs.set()).follow(&logs.log).unwrap();
    let (log, old) = (logs.log.clone(), logs.old(1));
    reader.follow.as_mut().unwrap().before_look = Some(Box::new(move || {
        append(&log, &event(2));
        fs::rename(&log, old).unwrap();
        append(&log, &event(3));
    }));
    let found: Vec<u32> = followed(&mut reader).iter().map(|found| found.0).collect();
    assert_eq!(found, [1, 2, 3]);
}

/// A daemon that needs room cannot remove a log that a reader has open.
#[test]
fn reader_that_follows_opens_only_what_it_still_has_to_read() {
    let logs = Logs::new();
    for serial in 1..4 {
        append(&logs.log, &event(serial));
        logs.rotate();
    }
    append(&logs.log, &event(4));
    let mut reader = EventReader::new(logs.set());
    assert_eq!(serials(&mut reader), [2, 3, 4]);
    let cursor = reader.cursor().unwrap();
    let reader = EventReader::at_cursor(logs.set(), &cursor).unwrap();
    let mut reader = reader.follow(&logs.log).unwrap();
    assert_eq!((reader.files.len(), reader.at), (1, 0));
    assert_eq!(followed(&mut reader), []);
    let mut reader = EventReader::new(logs.set()).follow(&logs.log).unwrap();
    assert_eq!(reader.files.len(), 3);
    reader.skip_to_end().unwrap();
    assert_eq!((reader.files.len(), reader.at), (1, 0));
    // What was closed is known.
    logs.rotate();
    append(&logs.log, &event(5));
    assert_eq!(followed(&mut reader), [(5, 2)]);
}

#[test]
fn reader_that_follows_needs_no_old_log_that_cannot_be_opened() {
    let logs = Logs::new();
    append(&logs.log, &event(1));
    let mut reader = EventReader::new(logs.set()).follow(&logs.log).unwrap();
    fs::create_dir(logs.old(4)).unwrap();
    logs.rotate();
    append(&logs.log, &event(2));
    assert_eq!(followed(&mut reader), [(1, 2), (2, 2)]);
    // Without the log itself, nothing can follow.
    logs.rotate();
    fs::create_dir(&logs.log).unwrap();
    let error = reader.next_event().unwrap_err();
    assert_eq!(error.path(), Some(&*logs.log));
}

/// A daemon that keeps one old log, and a reader that does not look for a while.
#[test]
fn reader_that_follows_tells_that_files_may_be_missing() {
    let logs = Logs::new();
    append(&logs.log, &event(1));
    let mut reader = EventReader::new(logs.set()).follow(&logs.log).unwrap();
    assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 1);
    append(&logs.log, &(event(2) + &record(3, "a=1")));
    for serial in [4, 5] {
        fs::rename(&logs.log, logs.old(1)).unwrap();
        append(&logs.log, &event(serial));
    }
    let lost = (u32::MAX, 0);
    assert_eq!(
        followed(&mut reader),
        [(2, 2), (3, 1), lost, (4, 2), (5, 2)]
    );
    fs::rename(&logs.log, logs.old(1)).unwrap();
    append(&logs.log, &event(6));
    assert_eq!(followed(&mut reader), [(6, 2)]);
}

#[test]
fn cursor_in_a_log_that_was_emptied_is_lost() {
    let logs = Logs::new();
    // In the second log, an event ends where the first one did.
    for then in [event(1000) + &event(1001), event(2) + &event(3)] {
        fs::write(&logs.log, event(1)).unwrap();
        let mut reader = EventReader::new(logs.set());
        assert_eq!(serials(&mut reader), [1]);
        let cursor = reader.cursor().unwrap();
        fs::File::create(&logs.log).unwrap();
        append(&logs.log, &then);
        let lost = EventReader::at_cursor(logs.set(), &cursor).unwrap_err();
        assert!(matches!(lost, LogError::CursorLost), "{then}");
    }
}

#[test]
fn cursor_of_an_older_version_continues_at_a_line() {
    let logs = Logs::new();
    append(&logs.log, &(event(1) + &event(2)));
    let mut reader = EventReader::new(logs.set());
    assert_eq!(reader.next_event().unwrap().unwrap().serial().0, 1);
    let mut cursor = reader.cursor().unwrap();
    cursor.before = None;
    let mut rest = EventReader::at_cursor(logs.set(), &cursor).unwrap();
    assert_eq!(serials(&mut rest), [2]);
    cursor.offset -= 1;
    let lost = EventReader::at_cursor(logs.set(), &cursor).unwrap_err();
    assert!(matches!(lost, LogError::CursorLost));
}
