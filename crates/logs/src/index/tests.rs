//! Tests of building, storing and asking an index.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::store::{Extent, open};
use super::*;

/// Text of `events` events; each has a distinct process and file.
fn text(events: u32) -> String {
    let mut text = String::new();
    for number in 0..events {
        let (sec, serial) = (1000 + number / 100, number + 1);
        let stamp = format!("msg=audit({sec}.000:{serial}): ");
        let exe = format!("/usr/bin/program{}", number / 500);
        write!(
            text,
            "type=SYSCALL {stamp}arch=c000003e syscall=257 success=yes exit=3 a0=1 a1=2 a2=3 a3=4 items=1 ppid=1 \
             pid={} auid=1000 uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=pts0 ses=1 comm=\"x\" \
             exe=\"{exe}\" key=\"k{}\"\n\
             type=CWD {stamp}cwd=\"/tmp\"\n\
             type=PATH {stamp}item=0 name=\"file{number}\" inode=1 dev=08:01 mode=0100644 ouid=0 ogid=0 rdev=00:00\n\
             type=PROCTITLE {stamp}proctitle=\"x\"\n",
            number + 10,
            number % 3,
        )
        .unwrap();
    }
    text
}

struct Log {
    directory: tempfile::TempDir,
    path: PathBuf,
}

impl Log {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log.1");
        fs::write(&path, text).unwrap();
        Self { directory, path }
    }

    fn open(&self) -> (LogIndex, u32) {
        let mut built = 0;
        let mut file = LogFile::open(&self.path).unwrap();
        let index = open(&mut file, Extent::Whole, |_| built += 1).unwrap();
        (index, built)
    }

    fn index_file(&self) -> PathBuf {
        let directory = self.directory.path().join(".tollgate-index");
        let mut entries = fs::read_dir(directory).unwrap();
        entries.next().unwrap().unwrap().path()
    }
}

fn starts(index: &LogIndex, condition: &Condition<'_>) -> BTreeSet<u64> {
    let found = index.candidates(condition);
    found.into_iter().map(|block| block.start).collect()
}

/// Asserts that the index finds the block of every event, and few others.
fn assert_finds(index: &LogIndex, text: &str) {
    let (wrong, exe) = assert_finds_all(index, text);
    assert!(wrong < 20, "{wrong}");
    assert!(exe < index.blocks().count());
}

/// Asserts that the index finds the block of every event. Returns how many others it finds.
fn assert_finds_all(index: &LogIndex, text: &str) -> (usize, usize) {
    let blocks: Vec<&Block> = index.blocks().collect();
    assert_eq!(blocks.first().unwrap().start, 0);
    assert_eq!(blocks.last().unwrap().end, text.len() as u64);
    let mut wrong = 0;
    for number in (0..2000).step_by(97) {
        let at = text.find(&format!("pid={} ", number + 10)).unwrap() as u64;
        let block = blocks.iter().find(|block| block.end > at).unwrap();
        let value = |column, text: String| Condition::Value(column, text.into_bytes());
        for condition in [
            value(Column::Pid, (number + 10).to_string()),
            value(Column::Path, format!("/tmp/file{number}")),
            value(Column::FileName, format!("file{number}")),
            value(Column::Exe, format!("/usr/bin/program{}", number / 500)),
            Condition::Serial(number + 1),
            Condition::TimeMs(u64::from(1000 + number / 100) * 1000..=u64::MAX),
            Condition::All(vec![
                value(Column::Key, format!("k{}", number % 3)),
                Condition::AnyOf(vec![value(Column::Directory, "/tmp".into())]),
            ]),
        ] {
            assert!(
                starts(index, &condition).contains(&block.start),
                "{condition:?}"
            );
        }
        let pid = value(Column::Pid, (number + 10).to_string());
        wrong += starts(index, &pid).len() - 1;
    }
    let exe = Condition::Matching(Column::Exe, Box::new(|exe| exe.ends_with(b"program3")));
    (wrong, starts(index, &exe).len())
}

#[test]
fn index_finds_the_block_of_each_event_and_is_small() {
    let text = text(2000);
    let log = Log::new(&text);
    let (index, built) = log.open();
    assert_eq!(built, 1);
    let none = Condition::Value(Column::Key, b"other".to_vec());
    assert_eq!(starts(&index, &none).len(), 0);
    assert_finds(&index, &text);
    let size = fs::metadata(log.index_file()).unwrap().len();
    // In tests blocks are 16 times smaller, and so are their segments, whose dictionaries weigh more.
    assert!(size * 50 < text.len() as u64, "{size} of {}", text.len());
    let (index, built) = log.open();
    assert_eq!(built, 0);
    assert_finds(&index, &text);
}

#[test]
fn damaged_torn_and_foreign_index_files_are_rebuilt() {
    let text = text(2000);
    let log = Log::new(&text);
    log.open();
    let whole = fs::read(log.index_file()).unwrap();
    for at in (0..whole.len()).step_by(whole.len() / 16) {
        fs::write(log.index_file(), &whole[..at]).unwrap();
        assert_finds(&log.open().0, &text);
        assert_eq!(fs::read(log.index_file()).unwrap(), whole, "cut at {at}");
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(log.index_file(), &damaged).unwrap();
        assert_finds_all(&log.open().0, &text);
        fs::write(log.index_file(), &whole).unwrap();
    }
    // The index of other text under the same inode.
    let other =
        self::text(2100).replace("type=SYSCALL msg=audit(1000", "type=SYSCALL msg=audit(0999");
    fs::write(&log.path, &other).unwrap();
    let (index, built) = log.open();
    assert_eq!((index.end(), built), (other.len() as u64, 1));
}

#[test]
fn index_that_others_could_have_written_is_not_used() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let text = text(1000);
    let log = Log::new(&text);
    log.open();
    let file = log.index_file();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let (index, built) = log.open();
    assert_eq!((index.end(), built), (text.len() as u64, 1));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(log.open().1, 0);
    let victim = log.directory.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    fs::remove_file(&file).unwrap();
    symlink(&victim, &file).unwrap();
    assert_eq!(log.open().0.end(), text.len() as u64);
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn index_grows_with_the_log_and_forgets_removed_logs() {
    let text = text(11_000);
    let log = Log::new("");
    fs::write(&log.path, &text.as_bytes()[..text.len() - 1000]).unwrap();
    let mut file = LogFile::open(&log.path).unwrap();
    let index = open(&mut file, Extent::FullSegments, |_| ()).unwrap();
    let full = index.end();
    assert!(full > 4 << 20 && full < text.len() as u64, "{full}");
    fs::write(&log.path, &text).unwrap();
    let (index, built) = log.open();
    assert_eq!((index.end(), built), (text.len() as u64, 1));
    fs::remove_file(&log.path).unwrap();
    let next = log.directory.path().join("audit.log.2");
    fs::write(&next, "type=CWD msg=audit(1.000:1): cwd=\"/\"\n".repeat(10)).unwrap();
    open(&mut LogFile::open(&next).unwrap(), Extent::Whole, |_| ()).unwrap();
    assert_eq!(names(log.index_file().parent().unwrap()), 1);
}

fn names(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn interleaved_events_belong_to_the_block_where_they_begin() {
    let mut lines = String::from("type=SYSCALL msg=audit(1000.000:900000): pid=1 key=\"first\"\n");
    for number in 0..3000 {
        writeln!(
            lines,
            "type=SYSCALL msg=audit(1001.000:{number}): pid=2 key=\"other\""
        )
        .unwrap();
        writeln!(
            lines,
            "type=PROCTITLE msg=audit(1001.000:{number}): proctitle=\"x\""
        )
        .unwrap();
    }
    lines += "type=PATH msg=audit(1000.000:900000): item=0 name=\"/last\"\n";
    let log = Log::new(&lines);
    let (index, _) = log.open();
    let both = Condition::All(vec![
        Condition::Value(Column::Key, b"first".to_vec()),
        Condition::Value(Column::Path, b"/last".to_vec()),
    ]);
    assert_eq!(starts(&index, &both), BTreeSet::from([0]));
    let second = index.blocks().nth(1).unwrap();
    assert_eq!(second.lead, 0);
}

/// A path of thousands of directories costs little, and is found by each of them.
#[test]
fn deep_directories_are_found() {
    let path = "/a".repeat(2000);
    let log = Log::new(&format!(
        "type=PATH msg=audit(1000.000:7): item=0 name=\"{path}\"\n"
    ));
    let (index, _) = log.open();
    for levels in [1, 200, 256, 257, 1000, 1999] {
        let directory = Condition::Value(Column::Directory, path.as_bytes()[..2 * levels].to_vec());
        assert_eq!(starts(&index, &directory), BTreeSet::from([0]), "{levels}");
    }
    let longest = Condition::Matching(Column::Directory, Box::new(|path| path.len() > 3000));
    assert_eq!(starts(&index, &longest), BTreeSet::from([0]));
    let other = Condition::Value(Column::Directory, b"/b".repeat(1000));
    assert_eq!(starts(&index, &other), BTreeSet::new());
}

/// Any bytes are a segment or refused, and its columns are read without a panic.
#[test]
fn fuzz_index() {
    let log = Log::new(&text(1000));
    log.open();
    let file = fs::read(log.index_file()).unwrap();
    let segment = file[48..].to_vec();
    inputs::fuzz::fuzz("fuzz_index", &[segment], &["TLGSEG03"], 500, |bytes| {
        // A forger can fix the checksums, so what they protect must hold without them.
        let bytes = segment::with_valid_checksums(bytes);
        let Some(header) = Header::parse(&bytes) else {
            return;
        };
        let blocks = header.blocks.len();
        let source = Source::Memory(bytes);
        let index = LogIndex {
            segments: vec![Segment { header, source }],
        };
        for column in [Column::Key, Column::Pid, Column::Path, Column::Exe] {
            let value = Condition::Value(column, b"x".to_vec());
            assert!(index.candidates(&value).len() <= blocks);
            let matching = Condition::Matching(column, Box::new(<[u8]>::is_empty));
            assert!(index.candidates(&matching).len() <= blocks);
        }
    });
}
