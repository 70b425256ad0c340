//! `tollgate-ship run` with Parquet files, which the reader of the crate `parquet` reads back.

mod bucket;
mod damage;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::parquet::file::reader::{FileReader as _, SerializedFileReader};

use super::place::{FIRST, Place, event, wait_until};

pub(crate) const PARQUET: &str =
    "[parquet.arc]\ndirectory = \"DIR/out\"\nstart = \"begin\"\nrows = 500\nseconds = 1\n";

/// A row, without the columns that are null.
pub(crate) type Row = BTreeMap<String, String>;

pub(crate) fn place(config: &str) -> Place {
    let place = Place::new(config);
    fs::create_dir(place.path("out")).unwrap();
    place
}

/// All files below a directory, with those that readers do not see.
pub(crate) fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Files that a reader of the directory sees.
fn visible(directory: &Path) -> Vec<PathBuf> {
    let mut files = files_below(directory);
    files.retain(|path| path.extension().is_some_and(|name| name == "parquet"));
    files
}

fn is_temporary(file: &Path) -> bool {
    file.extension().is_some_and(|name| name == "tmp")
}

/// Rows of a file.
fn rows(file: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(file).unwrap());
    let reader = reader.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let rows = reader.get_row_iter(None).unwrap();
    let rows: Vec<Row> = rows
        .map(|row| {
            let row = row.unwrap();
            let columns = row.get_column_iter();
            let columns = columns.map(|(name, value)| (name.clone(), value.to_string()));
            columns.filter(|(_, value)| value != "null").collect()
        })
        .collect();
    let told = reader.metadata().file_metadata().num_rows();
    assert_eq!(i64::try_from(rows.len()).unwrap(), told);
    // The name ends with the number of events.
    let name = file.file_stem().unwrap().to_str().unwrap();
    let (_, count) = name.rsplit_once('-').unwrap();
    let events = rows.iter().filter(|row| row["kind"] == "\"event\"").count();
    assert_eq!(count, events.to_string(), "{name}");
    rows
}

/// How often each event is in the files, by its number from [`FIRST`], and the gaps.
pub(crate) fn received(place: &Place) -> (BTreeMap<u32, u32>, Vec<Row>) {
    let (mut events, mut gaps) = (BTreeMap::new(), Vec::new());
    for row in visible(&place.path("out"))
        .iter()
        .flat_map(|file| rows(file))
    {
        match &*row["kind"] {
            "\"event\"" => {
                let serial: u32 = row["serial"].parse().unwrap();
                *events.entry(serial - FIRST).or_default() += 1;
            }
            "\"gap\"" => gaps.push(row),
            _ => assert_eq!(row["kind"], "\"heartbeat\""),
        }
    }
    (events, gaps)
}

#[track_caller]
fn assert_columns(row: &Row, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(
            row.get(*name).map(String::as_str),
            Some(*value),
            "{name}: {row:?}"
        );
    }
}

#[test]
fn rows_have_the_columns_of_their_records() {
    let place = place(PARQUET);
    let stamp = "msg=audit(1700000000.042:";
    place.append(&format!(
        "type=SYSCALL {stamp}7): arch=c000003e syscall=42 success=no exit=-115 a0=3 a1=1 a2=10 a3=0 items=0 ppid=1 \
         pid=42 auid=4294967295 uid=33 tty=(none) ses=3 comm=61C3A4 exe=\"/bin/a\" subj=unconfined key=610162\x1d\
         ARCH=x86_64\n\
         type=SOCKADDR {stamp}7): saddr=020001BB01020304000000000000000A\n\
         type=PATH {stamp}7): item=0 name=(null) inode=5 nametype=NORMAL cap_fp=0\n\
         type=PROCTITLE {stamp}7): proctitle=2E00FF\n\
         type=USER_LOGIN {stamp}8): pid=7 uid=0 auid=1000 ses=2 msg='op=login acct=\"ro ot\" exe=\"/usr/sbin/sshd\" \
         hostname=? addr=10.0.0.1 terminal=sshd res=failed'\n\
         type=DAEMON_ERR {stamp}9): op=lost-events lost=3 reason=\"ring-full\" res=failed\n"
    ));
    assert!(place.once().status.success());
    let file = "out/date=2023-11-14/host=h/arc-unknown-1700000000042.7-1700000000042.9-3.parquet";
    let old = rows(&place.path(file));
    let [call, login, error] = &old[..] else {
        panic!("{old:?}")
    };
    assert_columns(
        call,
        &[
            ("host", "\"h\""),
            ("boot", "\"\""),
            ("time", "2023-11-14 22:13:20.042000 +00:00"),
            ("serial", "7"),
            ("type", "\"SYSCALL\""),
            ("arch", "\"c000003e\""),
            ("syscall", "\"connect\""),
            ("number", "42"),
            ("success", "false"),
            ("exit", "-115"),
            ("a2", "\"10\""),
            ("auid", "4294967295"),
            ("uid", "33"),
            ("tty", "\"\""),
            ("comm", "\"a\u{e4}\""),
            ("exe", "\"/bin/a\""),
            ("key", "[\"a\", \"b\"]"),
            ("saddr_fam", "2"),
            ("saddr_address", "\"1.2.3.4\""),
            ("saddr_port", "443"),
            ("proctitle", "\".\0\u{fffd}\""),
        ],
    );
    assert!(
        call["path"].contains("name: null, nametype: \"NORMAL\", inode: 5"),
        "{call:?}"
    );
    assert!(call["records"].contains("ARCH=x86_64"), "{call:?}");
    assert_columns(
        login,
        &[
            ("type", "\"USER_LOGIN\""),
            ("pid", "7"),
            ("auid", "1000"),
            ("op", "\"login\""),
            ("acct", "\"ro ot\""),
            ("exe", "\"/usr/sbin/sshd\""),
            ("addr", "\"10.0.0.1\""),
            ("terminal", "\"sshd\""),
            ("res", "\"failed\""),
        ],
    );
    for absent in ["hostname", "success", "syscall", "key"] {
        assert_eq!(login.get(absent), None, "{absent}");
    }
    assert_columns(
        error,
        &[("type", "\"DAEMON_ERR\""), ("op", "\"lost-events\"")],
    );
}

#[test]
fn gaps_and_heartbeats_have_columns_of_their_own() {
    let place = place(PARQUET);
    place.append(&(event(FIRST) + &event(FIRST + 4)));
    place.append(
        "type=DAEMON_ERR msg=audit(1700000000.000:7): op=lost-events lost=3 reason=\"ring-full\" res=failed\n",
    );
    assert!(place.once().status.success());
    let files = visible(&place.path("out"));
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let name = files[1].display().to_string();
    assert!(
        name.contains(&format!("/host=h/arc-{}-", boot.trim_end())),
        "{name}"
    );
    let new = rows(&files[1]);
    let kinds: Vec<&str> = new
        .iter()
        .map(|row| row["kind"].trim_matches('"'))
        .collect();
    assert_eq!(kinds, ["heartbeat", "event", "gap", "event", "heartbeat"]);
    let (first, before) = (FIRST.to_string(), (FIRST + 4).to_string());
    assert_columns(
        &new[1],
        &[
            ("serial", &first),
            ("argv", "[\"id\"]"),
            ("cwd", "\"/root\""),
        ],
    );

    assert_columns(
        &new[2],
        &[
            ("reason", "\"absent\""),
            ("after", &first),
            ("before", &before),
            ("missing", "3"),
        ],
    );
    assert_columns(
        &new[4],
        &[
            ("serial", &before),
            ("kernel_serial", "7"),
            ("events", "3"),
            ("sent", "3"),
            ("gaps", "1"),
            ("missing", "3"),
            ("lost", "{\"events: ring-full\" -> 3}"),
        ],
    );
}

#[test]
fn files_are_complete_after_a_number_of_events_or_a_time() {
    let place = place(PARQUET);
    place.append_events(0, 1200);
    let run = place.start();
    wait_until("two files of 500 events", || {
        received(&place).0.len() >= 1000
    });
    // The rest is soon in a third one, though nothing more is written.
    wait_until("all events", || received(&place).0.len() == 1200);
    assert!(run.end());
    let files = visible(&place.path("out"));
    let full = files
        .iter()
        .filter(|file| file.to_str().unwrap().ends_with("-500.parquet"));
    assert!(full.count() >= 2, "{files:?}");
    assert!(received(&place).0.values().all(|count| *count == 1));
    assert_eq!(place.confirmed(), 1200);
}

/// A reader that looks at all times sees complete files only.
#[test]
fn every_serial_is_in_a_file_over_kills_and_rotations() {
    const COUNT: u32 = 6_000;
    let place = Arc::new(place(PARQUET));
    let is_over = Arc::new(AtomicBool::new(false));
    let reader = {
        let (place, is_over) = (Arc::clone(&place), Arc::clone(&is_over));
        thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                for file in visible(&place.path("out")) {
                    if !seen.contains(&file) {
                        rows(&file);
                        seen.insert(file);
                    }
                }
                thread::park_timeout(Duration::from_millis(1));
            }
            seen.len()
        })
    };
    let mut run = place.start();
    for batch in 0..20 {
        place.append_events(batch * COUNT / 20, COUNT / 20);
        if batch % 5 == 4 {
            place.rotate(10);
        }
        // From before the first file of a run to after its second, and while it writes one, if that is seen.
        let moment = Duration::from_millis(u64::from(batch * 37 % 11) * 30);
        let begun = Instant::now();
        let is_writing = || {
            files_below(&place.path("out"))
                .iter()
                .any(|file| is_temporary(file))
        };
        while begun.elapsed() < moment && !(batch % 2 == 0 && is_writing()) {
            thread::park_timeout(Duration::from_millis(1));
        }
        run.kill();
        run = place.start();
    }
    run.kill();
    assert!(place.once().status.success());
    is_over.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0);
    let (events, gaps) = received(&place);
    assert!(
        events.keys().copied().eq(0..COUNT),
        "{}",
        place.text("stderr")
    );
    assert!(gaps.is_empty(), "{gaps:?}");
    let left: Vec<PathBuf> = files_below(&place.path("out"));
    assert_eq!(left, visible(&place.path("out")));
}
