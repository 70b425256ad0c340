//! Logs as the end-to-end tests read them: malformed lines fail the test.

use std::path::Path;

use bstr::ByteSlice as _;
use support::event;
pub(crate) use support::event::{Event, Record};

/// Parses a log; lines of one serial that are not adjacent are several events.
#[track_caller]
pub(crate) fn events(log: &[u8]) -> Vec<Event> {
    assert!(
        log.is_empty() || log.ends_with(b"\n"),
        "the last line of the log is incomplete"
    );
    let events = event::parse(log).unwrap();
    for record in events.iter().flat_map(|event| &event.records) {
        record.check_fields().unwrap();
    }
    events
}

/// As [`events`], without records of rule and setting changes.
#[track_caller]
pub(crate) fn without_changes(log: &[u8]) -> Vec<Event> {
    let mut events = events(log);
    events.retain(|event| !event.is_config_change());
    events
}

/// Fails if a serial of a syscall or of a change of rules is missing or repeated.
#[track_caller]
pub(crate) fn expect_dense(log: &[u8]) {
    let lines = log.lines_with_terminator().filter(|line| {
        line.starts_with(b"type=SYSCALL ") || line.starts_with(b"type=CONFIG_CHANGE ")
    });
    let heads: Vec<&[u8]> = lines.collect();
    event::expect_dense(&event::parse(&heads.concat()).unwrap()).unwrap();
}

/// Fails unless the log has this many PATH records with the name of a file.
#[track_caller]
pub(crate) fn expect_opens(log: &[u8], file: &Path, made: usize) {
    assert_eq!(opens(log, file), made, "opens in the log");
}

/// Number of opens of the file in the log.
pub(crate) fn opens(log: &[u8], file: &Path) -> usize {
    let name = format!(" name=\"{}\" ", file.display());
    log.find_iter(&name).count()
}

/// The output of `ausearch`; empty if it finds nothing.
#[track_caller]
pub(crate) fn ausearch(log: &Path, options: &[&str]) -> Vec<u8> {
    event::ausearch_text(log, options).unwrap()
}

/// Events that `ausearch` finds by a key, by serial.
#[track_caller]
pub(crate) fn with_key(log: &Path, key: &str) -> Vec<Event> {
    let mut found = events(&ausearch(log, &["--raw", "-k", key]));
    found.sort_by_key(|event| event.serial);
    found
}
