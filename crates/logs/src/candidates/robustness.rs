//! Tests: logs that are cut off, rotated and written by several writers while they are searched, and wrong indexes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;
use crate::event_values::{Column, values};

/// Text of one event of about 400 bytes.
fn event(serial: u32, key: &str) -> String {
    let stamp = format!("msg=audit({}.000:{serial}): ", 1000 + serial / 100);
    let mut text = String::new();
    writeln!(text, "type=SYSCALL {stamp}syscall=1 pid=7 key=\"{key}\"").unwrap();
    writeln!(
        text,
        "type=PATH {stamp}item=0 name=\"/{}\"",
        "x".repeat(200)
    )
    .unwrap();
    writeln!(text, "type=PROCTITLE {stamp}proctitle=\"x\"").unwrap();
    text
}

/// Events whose serials are the multiples of 1000 have the key `rare`.
fn events(serials: std::ops::Range<u32>) -> String {
    let key = |serial: u32| match serial.is_multiple_of(1000) {
        true => "rare",
        false => "other",
    };
    serials
        .map(|serial| event(serial, key(serial)))
        .collect::<Vec<_>>()
        .concat()
}

/// A search for a key.
fn candidates(log: &Path, key: &'static str) -> Result<Candidates<'static>, LogError> {
    let condition = Condition::Value(Column::Key, key.into());
    let logs = LogSet::rotated(log)?;
    Candidates::new(logs, &condition, Box::new(|_| true), |_| ())
}

/// Serials of the events with a key that remain, and how often each was found.
fn rest(
    candidates: &mut Candidates<'_>,
    key: &str,
    found: &mut BTreeMap<u32, u32>,
) -> Result<(), LogError> {
    while let Some(event) = candidates.next_event()? {
        let mut has_key = false;
        values(event, |column, value| {
            has_key |= column == Column::Key && value == key.as_bytes();
        });
        if has_key {
            *found.entry(event.serial().0).or_default() += 1;
        }
    }
    Ok(())
}

/// Serials of the events with the key `rare`.
fn search(log: &Path) -> Result<Vec<u32>, LogError> {
    let mut found = BTreeMap::new();
    rest(&mut candidates(log, "rare")?, "rare", &mut found)?;
    assert!(found.values().all(|&times| times == 1), "{found:?}");
    Ok(found.into_keys().collect())
}

fn rare(serials: std::ops::Range<u32>) -> Vec<u32> {
    serials
        .filter(|serial| serial.is_multiple_of(1000))
        .collect()
}

struct Place {
    directory: tempfile::TempDir,
    log: PathBuf,
}

impl Place {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        fs::write(&log, text).unwrap();
        Self { directory, log }
    }

    fn old(&self, number: u32) -> PathBuf {
        self.directory.path().join(format!("audit.log.{number}"))
    }

    fn append(&self, text: &[u8]) {
        let mut log = OpenOptions::new().append(true).open(&self.log).unwrap();
        log.write_all(text).unwrap();
    }

    /// The index of the log.
    fn index(&self) -> PathBuf {
        let inode = fs::metadata(&self.log).unwrap().ino();
        let directory = self.directory.path().join(".tollgate-index");
        let mut entries = fs::read_dir(directory).unwrap();
        let is_of_log = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            name.ends_with(&format!("-{inode}.idx"))
        };
        entries
            .find_map(|entry| Some(entry.unwrap().path()).filter(is_of_log))
            .unwrap()
    }

    fn cut(&self, len: u64) {
        let log = OpenOptions::new().write(true).open(&self.log).unwrap();
        log.set_len(len).unwrap();
    }
}

#[test]
fn log_cut_between_searches_is_searched_as_it_is() {
    // The first full segment has 4 MiB in tests.
    let text = events(1..30_001);
    let place = Place::new(&text);
    assert_eq!(search(&place.log).unwrap(), rare(1..30_001));
    assert!(fs::metadata(place.index()).unwrap().len() > 48);
    // The index has more text than the log.
    let half = events(1..10_001).len();
    place.cut(half as u64);
    assert_eq!(search(&place.log).unwrap(), rare(1..10_001));
}

#[test]
fn log_cut_and_grown_again_is_searched_as_it_is() {
    for kept in [10_000, 25_000] {
        let place = Place::new(&events(1..30_001));
        assert_eq!(search(&place.log).unwrap(), rare(1..30_001));
        // The text after the cut is other text of the same size: the first 4 KiB and the size tell nothing.
        place.cut(events(1..kept + 1).len() as u64);
        let other = events(1_000_000..1_030_000 - kept + 500);
        place.append(other.as_bytes());
        let expected = [rare(1..kept + 1), rare(1_000_000..1_030_000 - kept + 500)].concat();
        assert_eq!(search(&place.log).unwrap(), expected, "{kept}");
        // And with the index that was mended.
        assert_eq!(search(&place.log).unwrap(), expected, "{kept}");
    }
}

#[test]
fn log_cut_during_a_search_is_an_error() {
    for (kept, grown) in [(0, false), (9_000, false), (29_999, false), (9_000, true)] {
        let place = Place::new(&events(1..30_001));
        let mut candidates = candidates(&place.log, "other").unwrap();
        let first = candidates.next_event().unwrap().unwrap();
        assert_eq!(first.serial().0, 1);
        place.cut(events(1..kept + 1).len() as u64);
        if grown {
            place.append(events(1_000_000..1_040_000).as_bytes());
        }
        let mut found = BTreeMap::new();
        let error = rest(&mut candidates, "other", &mut found).unwrap_err();
        assert!(matches!(&error, LogError::Cut { path } if *path == place.log));
        assert!(error.to_string().contains("became shorter"), "{error}");
        assert!(found.values().all(|&times| times == 1), "{kept}");
    }
}

/// Every event that was there before the search began is found once, in order, however often the log is rotated.
#[test]
fn log_rotated_during_searches_loses_no_event() {
    const FILES: u32 = 120;
    const PER_FILE: u32 = 5;
    let place = Place::new(&event(1, "rare"));
    let (written, done) = (AtomicU32::new(1), AtomicBool::new(false));
    let searches = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut serial = 2;
            for files in 0..FILES {
                for number in (1..=files).rev() {
                    fs::rename(place.old(number), place.old(number + 1)).unwrap();
                }
                fs::rename(&place.log, place.old(1)).unwrap();
                let texts: Vec<String> = (0..PER_FILE)
                    .map(|number| event(serial + number, "rare"))
                    .collect();
                fs::write(&place.log, texts.concat()).unwrap();
                serial += PER_FILE;
                written.store(serial - 1, Ordering::SeqCst);
                // Bursts of rotations: each begins when a search has ended, and so runs during the next one.
                let before = searches.load(Ordering::SeqCst);
                while files % 3 == 2 && !done.load(Ordering::SeqCst) {
                    if searches.load(Ordering::SeqCst) != before {
                        break;
                    }
                    std::thread::yield_now();
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            let before = written.load(Ordering::SeqCst);
            let mut candidates = candidates(&place.log, "rare").unwrap();
            let mut serials = Vec::new();
            while let Some(event) = candidates.next_event().unwrap() {
                serials.push(event.serial().0);
            }
            let last = *serials.last().unwrap();
            let wrong = (1..)
                .zip(&serials)
                .find(|(number, serial)| number != *serial);
            if wrong.is_some() || last < before {
                done.store(true, Ordering::SeqCst);
            }
            assert_eq!(wrong, None, "of {last} events");
            assert!(last >= before, "{last} {before}");
            searches.fetch_add(1, Ordering::SeqCst);
        }
    });
}

/// Two writers whose lines are interleaved in parts: the index hides nothing that a scan finds, while the log grows.
#[test]
fn partial_lines_of_two_writers_are_searched_as_a_scan_reads_them() {
    let texts = [events(1..12_001), events(500_000..512_000)];
    let place = Place::new("");
    let (mut at, mut step) = ([0, 0], 0_usize);
    while texts.iter().zip(at).any(|(text, at)| at < text.len()) {
        // Mostly whole lines, as of writers whose writes are seldom cut.
        let writer = step % 2;
        let text = texts[writer].as_bytes();
        let rest = &text[at[writer]..];
        let size = match step % 7 {
            3 => 100 + step % 400,
            _ => rest
                .iter()
                .enumerate()
                .filter(|&(_, &byte)| byte == b'\n')
                .nth(200)
                .map_or(rest.len(), |(end, _)| end + 1),
        };
        let part = &rest[..size.min(rest.len())];
        place.append(part);
        at[writer] += part.len();
        step += 1;
        if step.is_multiple_of(40) || at == texts.each_ref().map(String::len) {
            let mut reader = EventReader::new(LogSet::rotated(&place.log).unwrap());
            let mut scanned = BTreeMap::new();
            while let Some(event) = reader.next_event().unwrap() {
                let mut is_rare = false;
                values(event, |column, value| {
                    is_rare |= column == Column::Key && value == b"rare";
                });
                if is_rare {
                    *scanned.entry(event.serial().0).or_default() += 1;
                }
            }
            let mut found = BTreeMap::new();
            let mut candidates = candidates(&place.log, "rare").unwrap();
            rest_of(&mut candidates, &mut found);
            assert_eq!(found, scanned, "step {step}");
        }
    }
    let len = fs::metadata(place.index()).unwrap().len();
    assert!(len > 48, "the index has no segment");
}

fn rest_of(candidates: &mut Candidates<'_>, found: &mut BTreeMap<u32, u32>) {
    rest(candidates, "rare", found).unwrap();
}

#[test]
fn index_of_another_log_is_not_used() {
    let other = Place::new(&events(1_000_001..1_030_001));
    assert_eq!(search(&other.log).unwrap(), rare(1_000_001..1_030_001));
    let place = Place::new(&events(1..30_001));
    assert_eq!(search(&place.log).unwrap(), rare(1..30_001));
    let own = fs::read(place.index()).unwrap();
    // In place of the own index.
    let foreign = fs::read(other.index()).unwrap();
    fs::write(place.index(), &foreign).unwrap();
    assert_eq!(search(&place.log).unwrap(), rare(1..30_001));
    assert_eq!(fs::read(place.index()).unwrap(), own, "built again");
    // With the segments of the other log behind the own header.
    fs::write(place.index(), [&own[..48], &foreign[48..]].concat()).unwrap();
    assert_eq!(search(&place.log).unwrap(), rare(1..30_001));
    // A new file with the name and the inode of the old one.
    let inode = fs::metadata(&place.log).unwrap().ino();
    fs::write(&place.log, events(2_000_001..2_030_001)).unwrap();
    assert_eq!(fs::metadata(&place.log).unwrap().ino(), inode);
    assert_eq!(search(&place.log).unwrap(), rare(2_000_001..2_030_001));
}

/// An index that another process cuts or damages while the search reads it.
#[test]
fn index_torn_during_a_search_hides_nothing() {
    let place = Place::new(&events(1..30_001));
    search(&place.log).unwrap();
    let whole = fs::read(place.index()).unwrap();
    for part in 0..8 {
        fs::write(place.index(), &whole).unwrap();
        let index = File::options().write(true).open(place.index()).unwrap();
        let at = whole.len() * part / 8;
        match part % 2 {
            0 => index.set_len(at as u64).unwrap(),
            _ => index.write_all_at(&[0xff; 64], at as u64).unwrap(),
        }
        assert_eq!(search(&place.log).unwrap(), rare(1..30_001), "{part}");
    }
}
