//! Fuzz tests: what the index and the filter leave is what a scan of all text finds, for any text, and with any index
//! file beside it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use audit::record::assemble::EventAssembler;
use bstr::ByteSlice as _;
use inputs::fuzz::{files, fuzz};

use super::*;
use crate::event_values::{Column, values};

const WORDS: &[&str] = &[
    "type=SYSCALL",
    "type=PATH",
    "type=CWD",
    "type=EOE",
    "type=PROCTITLE",
    "node=a",
    "msg=audit(1000.000:1):",
    "msg=audit(1001.000:1):",
    "msg=audit(4000.000:7):",
    "name=\"/etc/shadow\"",
    "cwd=\"/\"",
    "key=6101",
    "\n",
    "\x1d",
    "\0",
    "\n\n",
    "\ntype=EOE msg=audit(1000.000:1): \n",
];

/// Text of an event, and its values.
type ScannedEvent = (Vec<u8>, Vec<(Column, Vec<u8>)>);

/// Text of the events of a log in files, line by line, oldest first, with the values of each.
fn scan(texts: &[&[u8]]) -> Vec<ScannedEvent> {
    let mut assembler = EventAssembler::default();
    let mut found = Vec::new();
    let mut keep = |event: &EventRecords| {
        let mut all = Vec::new();
        values(event, |column, value| all.push((column, value.to_vec())));
        found.push((event.text().to_vec(), all));
    };
    let lines = texts.iter().flat_map(|text| text.lines_with_terminator());
    for (position, line) in (0_u64..).zip(lines) {
        let is_short = line.strip_suffix(b"\n").unwrap_or(line).len() <= 64 << 10;
        if is_short {
            let _malformed = assembler.take(line, position);
        }
        assembler.drain_ended(&mut keep);
    }
    assembler.end_all();
    assembler.drain_ended(&mut keep);
    found
}

/// Text of the events in which a column has a value, by the index and the filter.
fn indexed(paths: &[PathBuf], column: Column, value: &[u8]) -> Vec<Vec<u8>> {
    let condition = Condition::Value(column, value.to_vec());
    // Short words without an escape are in the text as they are.
    let word = (column == Column::Pid && value.len() > 1).then(|| value.to_vec());
    let filter: TextFilter<'_> =
        Box::new(|text| word.as_ref().is_none_or(|word| text.contains_str(word)));
    let logs = LogSet::files(paths).unwrap();
    let mut candidates = Candidates::new(logs, &condition, filter, |_| ()).unwrap();
    let mut found = Vec::new();
    while let Some(event) = candidates.next_event().unwrap() {
        let mut has = false;
        values(event, |of, other| has |= of == column && other == value);
        if has {
            found.push(event.text().to_vec());
        }
    }
    found.sort_unstable();
    found
}

/// Asserts that the index finds what a scan finds: for some values of the log, and for one that it lacks.
fn assert_finds_what_a_scan_finds(paths: &[PathBuf], events: &[ScannedEvent], questions: usize) {
    let mut by_value: BTreeMap<(Column, &[u8]), Vec<&[u8]>> = BTreeMap::new();
    for (text, values) in events {
        for (column, value) in values {
            let texts = by_value.entry((*column, value)).or_default();
            if texts.last() != Some(&text.as_slice()) {
                texts.push(text);
            }
        }
    }
    by_value.insert((Column::Path, b"/absent"), Vec::new());
    let step = by_value.len().div_ceil(questions);
    for ((column, value), mut expected) in by_value.into_iter().step_by(step) {
        expected.sort_unstable();
        expected.dedup();
        let mut found = indexed(paths, column, value);
        found.dedup();
        assert_eq!(found, expected, "{column:?}={}", value.as_bstr());
    }
}

/// Any text, several times and in two files: the index of whole events is that of lines, and finds what a scan finds.
#[test]
fn fuzz_log() {
    fuzz("fuzz_log", &files("fuzz/log"), WORDS, 60, |bytes| {
        // Blocks are of 64 KiB in tests.
        let copies = (150 << 10) / bytes.len().max(1);
        let text = bytes.repeat(copies.clamp(1, 100));
        let (first, second) = text.split_at(text.len() / 3 * 2);
        let directory = tempfile::tempdir().unwrap();
        let paths = ["audit.log.1", "audit.log"].map(|name| directory.path().join(name));
        fs::write(&paths[0], first).unwrap();
        fs::write(&paths[1], second).unwrap();
        crate::index::tests::assert_whole_events_are_indexed_as_lines(&text);
        assert_finds_what_a_scan_finds(&paths, &scan(&[first, second]), 5);
    });
}

/// A log with an index file.
struct IndexedLog {
    directory: tempfile::TempDir,
    events: Vec<ScannedEvent>,
}

impl IndexedLog {
    /// The log of all runs.
    fn get() -> &'static Self {
        static LOG: OnceLock<IndexedLog> = OnceLock::new();
        LOG.get_or_init(|| {
            let directory = tempfile::tempdir().unwrap();
            let text: Vec<u8> = files("fuzz/log").concat().repeat(20);
            fs::write(directory.path().join("audit.log"), &text).unwrap();
            let events = scan(&[&text]);
            Self { directory, events }
        })
    }

    fn paths(&self) -> [PathBuf; 2] {
        // Of two files none grows: the whole log is indexed.
        let other = self.directory.path().join("other");
        fs::write(&other, "").unwrap();
        [self.directory.path().join("audit.log"), other]
    }

    /// The index file of the log.
    fn index_file(&self) -> PathBuf {
        let directory = self.directory.path().join(".tollgate-index");
        let largest = |path: &PathBuf| fs::metadata(path).unwrap().len();
        let entries = fs::read_dir(directory).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.max_by_key(largest).unwrap()
    }
}

/// Any bytes as the index file of a log: they are refused, or answers are those of a scan.
#[test]
fn fuzz_index_file() {
    let log = IndexedLog::get();
    assert_finds_what_a_scan_finds(&log.paths(), &log.events, 5);
    let whole = fs::read(log.index_file()).unwrap();
    assert!(whole.len() < 16 << 10, "the mutations keep 16 KiB");
    let corpus = [whole.clone(), whole[..48].to_vec(), Vec::new()];
    INDEX_FILE.set(log.index_file()).unwrap();
    fuzz(
        "fuzz_index_file",
        &corpus,
        &["TLGSEG04", "TLGIDX01"],
        60,
        |bytes| {
            let log = IndexedLog::get();
            let path: &Path = INDEX_FILE.get().unwrap();
            fs::write(path, bytes).unwrap();
            assert_finds_what_a_scan_finds(&log.paths(), &log.events, 3);
        },
    );
}

static INDEX_FILE: OnceLock<PathBuf> = OnceLock::new();

/// An event of more than 1 MiB is ended for its size. A search that begins within it has the same parts of it.
#[test]
fn parts_of_a_long_event_do_not_depend_on_the_index() {
    let line = |kind: &str, serial: u32, rest: &str| {
        format!("type={kind} msg=audit(1700000001.000:{serial}): {rest}\n")
    };
    let argument = line("EXECVE", 1, &format!("a0={}", "4".repeat(7000)));
    let mut text = line("SYSCALL", 1, "pid=40");
    text += &argument.repeat(40);
    text += &line("SYSCALL", 2, "pid=50");
    text += &argument.repeat(300);
    text += &line("SYSCALL", 1, "pid=60");
    text += &argument.repeat(100);
    text += &line("SYSCALL", 1, "pid=70");
    text += &line("EOE", 1, "");
    text += &line("EOE", 2, "");
    for serial in 3..3000 {
        text += &line("USER_CMD", serial, &format!("pid=1 x={}", "z".repeat(900)));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    fs::write(&path, &text).unwrap();
    let events = scan(&[text.as_bytes()]);
    for pid in ["40", "50", "60", "70"] {
        let value = (Column::Pid, pid.as_bytes().to_vec());
        let mut found = indexed(std::slice::from_ref(&path), value.0, &value.1);
        let has = |event: &&ScannedEvent| event.1.contains(&value);
        let mut expected: Vec<Vec<u8>> = events
            .iter()
            .filter(has)
            .map(|(text, _)| text.clone())
            .collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert!(!expected.is_empty() && found == expected, "{pid}");
    }
}
