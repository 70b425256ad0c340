//! Tests: what the index and the filter leave is what a scan of all text finds.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use bstr::ByteSlice as _;

use super::*;
use crate::event_values::{Column, values};

/// Writes events with a pseudo-random interleaving: some have no last record, some span much text.
fn text(seed: u64, events: u32) -> String {
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let mut text = String::new();
    let mut later: Vec<(u32, String)> = Vec::new();
    for number in 0..events {
        let stamp = format!("msg=audit({}.000:{number}): ", 1000 + number / 400);
        let (pid, key) = (random(500), random(5));
        writeln!(
            text,
            "type=SYSCALL {stamp}syscall=1 pid={pid} key=\"k{key}\""
        )
        .unwrap();
        let path = format!("type=PATH {stamp}item=0 name=\"/f{}\"\n", random(2000));
        let end = format!("type=PROCTITLE {stamp}proctitle=\"{}\"\n", "x".repeat(200));
        match random(20) {
            0 => text += &path,
            1 => later.push((number + 300, path + &end)),
            _ => text += &(path + &end),
        }
        while let Some(at) = later.iter().position(|(at, _)| *at <= number) {
            text += &later.remove(at).1;
        }
    }
    text
}

fn has(event: &EventRecords, column: Column, wanted: &str) -> bool {
    let mut found = false;
    values(event, |of, value| {
        found |= of == column && value == wanted.as_bytes();
    });
    found
}

/// Serials of the events with a key and a path, by the index.
fn indexed(directory: &Path, key: &str, path: &str) -> Vec<u32> {
    let value = |column, text: &str| Condition::Value(column, text.into());
    let condition = Condition::All(vec![value(Column::Key, key), value(Column::Path, path)]);
    let needle = format!("\"{path}\"");
    let filter: TextFilter<'_> = Box::new(move |text| text.contains_str(&needle));
    let logs = LogSet::rotated(directory).unwrap();
    let mut candidates = Candidates::new(logs, &condition, filter, |_| ()).unwrap();
    let mut serials = Vec::new();
    while let Some(event) = candidates.next_event().unwrap() {
        if has(event, Column::Key, key) && has(event, Column::Path, path) {
            serials.push(event.serial().0);
        }
    }
    serials
}

/// Serial, key and paths of all events, by a scan.
fn scanned(directory: &Path) -> Vec<(u32, Vec<u8>, Vec<Vec<u8>>)> {
    let mut reader = EventReader::new(LogSet::rotated(directory).unwrap());
    let mut events = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        let (mut key, mut paths) = (Vec::new(), Vec::new());
        values(event, |column, value| match column {
            Column::Key => key = value.to_vec(),
            Column::Path => paths.push(value.to_vec()),
            _ => {}
        });
        events.push((event.serial().0, key, paths));
    }
    events
}

#[test]
fn indexed_search_finds_what_a_scan_finds() {
    for seed in 0..2 {
        let place = tempfile::tempdir().unwrap();
        let text = text(seed, 2500);
        // Cut anywhere: in an event, and in a line.
        let cuts = [0, text.len() / 3, text.len() / 3 * 2 - 7, text.len()];
        for (cut, name) in cuts
            .windows(2)
            .zip(["audit.log.2", "audit.log.1", "audit.log"])
        {
            fs::write(place.path().join(name), &text.as_bytes()[cut[0]..cut[1]]).unwrap();
        }
        let events = scanned(place.path());
        let mut found = 0;
        for number in (0..2000).step_by(97) {
            let (key, path) = (format!("k{}", number % 5), format!("/f{number}"));
            let mut indexed = indexed(place.path(), &key, &path);
            let matching = events.iter().filter(|(_, keys, paths)| {
                keys == key.as_bytes() && paths.contains(&path.clone().into_bytes())
            });
            let mut scanned: Vec<u32> = matching.map(|(serial, ..)| *serial).collect();
            indexed.sort_unstable();
            scanned.sort_unstable();
            assert_eq!(indexed, scanned, "seed {seed} {key} {path}");
            found += scanned.len();
        }
        assert!(found > 1, "{found}");
    }
}
