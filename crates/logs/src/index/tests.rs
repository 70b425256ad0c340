//! Tests of building, storing and asking an index.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use bstr::ByteSlice as _;

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
        // The text begins behind different bytes of `/tmp`; without a slash all blocks may have it.
        let path = format!("/tmp/file{number}");
        let part = path.get(number as usize % 6..).unwrap();
        let part = Condition::contains(Column::Path, part.as_bytes());
        assert!(starts(index, &part).contains(&block.start), "{part:?}");
        if number >= 1000 && number % 6 < 5 {
            wrong += starts(index, &part).len() - 1;
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

/// Bytes of the segments of a text; with `whole_events`, as `feed` adds it, and otherwise line by line, and each value
/// as if it were new.
fn segments(text: &[u8], whole_events: bool) -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    fs::write(&path, text).unwrap();
    let mut file = LogFile::open(&path).unwrap();
    let mut built = Vec::new();
    if whole_events {
        let mut index = LogIndex::default();
        let keep = |bytes: &[u8], _: &TextEnd| built.push(bytes.to_vec());
        index.extend(&mut file, BLOCK_BYTES, false, keep).unwrap();
        return built;
    }
    let (mut start, mut lead) = (0, 0);
    loop {
        let mut lines = LineBuffer::default();
        lines.restart(lead);
        let mut builder = Builder::new(start, lead, BLOCK_BYTES);
        let is_complete = loop {
            match lines.next_line() {
                Some(Line::TooLong) => builder.too_long(),
                Some(Line::Text { start, end, offset }) => {
                    builder.forget_seen();
                    if builder.line(lines.text(start, end), offset) {
                        break true;
                    }
                }
                None => {
                    let offset = lines.read_offset();
                    if lines.fill(|room| file.read_at(room, offset)).unwrap() == 0 {
                        break false;
                    }
                }
            }
        };
        let Some(bytes) = builder.finish(lines.offset()) else {
            return built;
        };
        let header = Header::parse(&bytes).unwrap();
        (start, lead) = (header.blocks.last().unwrap().end, header.next_lead);
        built.push(bytes);
        if !is_complete && start >= lines.offset() {
            return built;
        }
    }
}

/// A random log of `events` events, many of which repeat: interleaved, cut, enriched, with nodes, with lines that are
/// no records or too long, and with stamps of several lengths.
pub(crate) fn random_text(seed: u64, events: u32) -> Vec<u8> {
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut text = Vec::new();
    let mut later: Vec<String> = Vec::new();
    for number in 0..events {
        let serial = match random(30) {
            0 => number / 2,
            1 => 4_000_000_000 + number,
            _ => number,
        };
        let node = if random(9) == 0 { "node=web " } else { "" };
        let zero = if random(50) == 0 { "0" } else { "" };
        let stamp = format!(
            "msg=audit({zero}{}.{:03}:{serial}):",
            999 + number / 700,
            number % 3
        );
        let name = match random(4) {
            0 => format!("\"../x/{}\"", 100 + random(800)),
            1 => "2F62".to_owned(),
            _ => format!("\"/usr/lib/{}\"", random(12)),
        };
        let enriched = ["", "\x1dUID=\"root\" AUID=\"alice\"", "\x1dUID=\"bob\""];
        let mut lines = vec![
            format!(
                "{node}type=SYSCALL {stamp} arch=c000003e syscall=257 success=yes exit={} a0=1 a1=2 a2=3 a3=4 items=1 \
                 ppid=1 pid={} auid={} uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=pts0 ses=1 \
                 comm=\"c{}\" exe=\"/bin/c\" key=\"k\"{}\n",
                random(2),
                random(3),
                // Now and then the record is not in the kernel's form.
                if random(200) == 0 { "-1" } else { "4294967295" },
                random(2),
                enriched[usize::try_from(random(3)).unwrap()]
            ),
            format!("{node}type=CWD {stamp} cwd=\"/home/{}\"\n", random(2)),
            format!("{node}type=PATH {stamp} item=0 name={name} nametype=NORMAL\n"),
            format!("{node}type=PROCTITLE {stamp} proctitle=\"x\"\n"),
            format!("{node}type=EOE {stamp} \n"),
        ];
        match random(40) {
            0 => lines.insert(2, "no record\n".into()),
            1 => lines.truncate(3),
            2 => later.append(&mut lines.split_off(1)),
            3 => lines.insert(
                1,
                format!("type=CWD {stamp} cwd=\"{}\"\n", "x".repeat(70_000)),
            ),
            4 => {
                lines = vec![format!(
                    "{node}type=USER_LOGIN {stamp} msg='op=login acct=\"b\" res=success'\n"
                )];
            }
            5 => {
                lines.remove(3);
            }
            6 => lines[2] = format!("type=AVC {stamp} avc: denied {{ read }} path={name}\n"),
            7 => lines.push(format!("{node}type=EOE {stamp} \0\r\n")),
            _ => {}
        }
        for line in lines {
            text.extend_from_slice(line.as_bytes());
            if random(60) == 0 && !later.is_empty() {
                let at = usize::try_from(random(u64::try_from(later.len()).unwrap())).unwrap();
                text.extend_from_slice(later.remove(at).as_bytes());
            }
        }
    }
    if random(2) == 0 {
        text.pop();
    }
    text
}

#[test]
fn whole_and_repeated_events_give_the_index_of_their_lines() {
    for seed in 0..12 {
        // The last ones fill more than a segment: 64 blocks of 64 KiB in tests.
        let text = random_text(seed, if seed < 10 { 3000 } else { 20_000 });
        let count = assert_whole_events_are_indexed_as_lines(&text);
        assert!(seed < 10 || count > 1, "{}", text.len());
    }
}

/// Asserts that the index is the same if whole and repeated events are added at once. Returns how many segments it
/// has.
pub(crate) fn assert_whole_events_are_indexed_as_lines(text: &[u8]) -> usize {
    let (whole, lines) = (segments(text, true), segments(text, false));
    assert!(whole == lines, "{}", text.as_bstr());
    whole.len()
}

/// Nobody can hide an event behind one that differs in one byte: each has its values in the index.
#[test]
fn events_that_differ_in_one_byte_are_indexed() {
    let event = |serial: u32, name: &str| {
        let stamp = format!("msg=audit(1000.000:{serial}):");
        format!(
            "type=PATH {stamp} item=0 name=\"{name}\"\ntype=PROCTITLE {stamp} proctitle=\"x\"\n"
        )
    };
    let mut text = String::new();
    for serial in 0..400 {
        text += &event(serial, if serial == 390 { "/etc/b" } else { "/etc/a" });
    }
    let log = Log::new(&text);
    let (index, _) = log.open();
    let other = Condition::Value(Column::Path, b"/etc/b".to_vec());
    let block = index.candidates(&other);
    assert_eq!(block.len(), 1);
    assert_eq!(index.blocks().last().unwrap().serial.end(), &399);
}

/// Any bytes are a segment or refused, and its columns are read without a panic.
#[test]
fn fuzz_index() {
    let log = Log::new(&text(1000));
    log.open();
    let file = fs::read(log.index_file()).unwrap();
    let segment = file[48..].to_vec();
    inputs::fuzz::fuzz("fuzz_index", &[segment], &["TLGSEG04"], 500, |bytes| {
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
