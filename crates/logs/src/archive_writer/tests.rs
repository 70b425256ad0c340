//! Archives are written and read back, whole and damaged.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;
use crate::candidates::Candidates;
use crate::cursor::FileId;
use crate::event_values::Column;
use crate::index::Condition;
use crate::log_file::{LogError, LogFile};
use crate::log_set::LogSet;

/// Events of a log with several blocks.
fn text(events: u32) -> Vec<u8> {
    let mut text = Vec::new();
    for number in 0..events {
        let stamp = format!(
            "msg=audit({}.{:03}:{number})",
            1_700_000_000 + number / 100,
            number % 1000
        );
        writeln!(
            text,
            "type=SYSCALL {stamp}: arch=c000003e syscall=257 success=yes exit=3 items=1 pid={} auid=1000 uid=0 \
             comm=\"cat\" exe=\"/usr/bin/cat\" key=\"k{}\"\ntype=PATH {stamp}: item=0 name=\"/srv/{number}\"\n\
             type=EOE {stamp}: ",
            number % 300,
            number % 7,
        )
        .unwrap();
    }
    text
}

struct Place {
    directory: tempfile::TempDir,
    text: Vec<u8>,
}

impl Place {
    /// A log that is rotated once, and its archive.
    fn new(events: u32) -> Self {
        let place = Self {
            directory: tempfile::tempdir().unwrap(),
            text: text(events),
        };
        fs::write(place.old(), &place.text).unwrap();
        place.compress().unwrap();
        place
    }

    fn old(&self) -> PathBuf {
        self.directory.path().join("audit.log.1")
    }

    fn archive(&self) -> PathBuf {
        self.directory.path().join("audit.log.000001.zst")
    }

    fn compress(&self) -> Result<(), ArchiveError> {
        let out = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.archive())
            .unwrap();
        let mut log = LogFile::open(&self.old()).unwrap();
        let written = write(&mut log, &out, &|| false)?;
        assert_eq!(written.text_len, len(self.text.len()));
        assert_eq!(written.archive_len, out.metadata().unwrap().len());
        Ok(())
    }

    fn found(&self, condition: &Condition<'_>) -> Vec<u8> {
        let logs = LogSet::rotated(self.directory.path()).unwrap();
        let mut candidates = Candidates::new(logs, condition, Box::new(|_| true), |_| ()).unwrap();
        let mut text = Vec::new();
        while let Some(event) = candidates.next_event().unwrap() {
            text.extend_from_slice(event.text());
        }
        text
    }
}

fn read(log: &mut LogFile) -> Result<Vec<u8>, LogError> {
    let mut text = Vec::new();
    let mut room = vec![0; 100_000];
    loop {
        match log.read_at(&mut room, len(text.len()))? {
            0 => return Ok(text),
            count => text.extend_from_slice(&room[..count]),
        }
    }
}

#[test]
fn archive_has_the_text_and_its_index() {
    let place = Place::new(3000);
    fs::remove_file(place.old()).unwrap();
    let mut log = LogFile::open(&place.archive()).unwrap();
    assert_eq!(read(&mut log).unwrap(), place.text);
    // Any offset, and past the end.
    let mut room = [0; 10];
    for offset in [0, 1, 65_535, 65_536, 70_001, place.text.len() - 1] {
        let count = log.read_at(&mut room, len(offset)).unwrap();
        assert!(count > 0);
        assert_eq!(room.get(..count), place.text.get(offset..offset + count));
    }
    assert_eq!(log.read_at(&mut room, len(place.text.len())).unwrap(), 0);
    let blocks = store::embedded(&log).unwrap().blocks().count();
    assert!(blocks > 5, "{blocks} blocks");
    let one = place.found(&Condition::Value(Column::FileName, b"2999".to_vec()));
    assert!(one.len() < 150_000, "{} bytes are candidates", one.len());
    assert!(place.text.ends_with(one.split_at(one.len() - 300).1));
    // Nothing is written beside an archive.
    assert_eq!(fs::read_dir(place.directory.path()).unwrap().count(), 1);
}

#[test]
fn zstd_decompresses_an_archive() {
    let place = Place::new(1000);
    let output = Command::new("zstd")
        .args(["-dc", "--"])
        .arg(place.archive())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, place.text);
}

#[test]
fn text_and_its_archive_are_read_once_and_have_one_identity() {
    let place = Place::new(100);
    let names = |path: &Path| -> Vec<PathBuf> {
        let set = LogSet::rotated(path).unwrap();
        set.as_files()
            .iter()
            .map(|file| file.path().to_owned())
            .collect()
    };
    let current = place.directory.path().join("audit.log");
    fs::write(&current, "").unwrap();
    assert_eq!(
        names(place.directory.path()),
        [place.old(), current.clone()]
    );
    let id = LogFile::open(&place.old()).unwrap().id();
    assert_eq!(LogFile::open(&place.archive()).unwrap().id(), id);
    fs::remove_file(place.old()).unwrap();
    assert_eq!(names(place.directory.path()), [place.archive(), current]);
    assert_eq!(place.found(&Condition::Any), place.text);
}

#[test]
fn other_text_is_another_archive_although_it_has_the_inode_number() {
    let place = Place::new(100);
    let old = LogFile::open(&place.old()).unwrap().id().unwrap();
    let other = FileId {
        created_ns: old.created_ns + 1,
        ..old
    };
    assert_ne!(old, other);
    assert_ne!(
        old.created_ns, 0,
        "this file system does not tell when a file was created"
    );
}

#[test]
fn empty_text_text_without_newline_and_long_lines_are_archived() {
    for text in [
        Vec::new(),
        b"type=SYSCALL msg=audit(1.000:1): pid=1".to_vec(),
        vec![b'x'; 9 << 20],
        [vec![b'x'; 5 << 20], text(1000)].concat(),
    ] {
        let place = Place {
            directory: tempfile::tempdir().unwrap(),
            text,
        };
        fs::write(place.old(), &place.text).unwrap();
        place.compress().unwrap();
        let mut log = LogFile::open(&place.archive()).unwrap();
        assert_eq!(log.size().unwrap(), Some(len(place.text.len())));
        assert!(read(&mut log).unwrap() == place.text);
    }
}

#[test]
fn archiving_can_be_stopped() {
    let place = Place::new(10);
    let out = tempfile::tempfile().unwrap();
    let mut log = LogFile::open(&place.old()).unwrap();
    let stopped = write(&mut log, &out, &|| true).unwrap_err();
    assert!(matches!(stopped, ArchiveError::Stopped));
}

/// Each byte of an archive is changed in turn: the text is the same, or there is an error.
#[test]
fn damaged_archives_have_the_same_text_or_an_error() {
    let place = Place::new(20);
    let good = fs::read(place.archive()).unwrap();
    let damaged = place.directory.path().join("damaged.zst");
    let mut errors = 0;
    let mut without_index = 0;
    for at in 0..good.len() {
        let mut bytes = good.clone();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << (at % 8);
        }
        fs::write(&damaged, &bytes).unwrap();
        let read = LogFile::open(&damaged).and_then(|mut log| {
            without_index += u32::from(store::embedded(&log).is_none());
            read(&mut log)
        });
        match read {
            Ok(text) => assert!(text == place.text, "other text after a change of byte {at}"),
            Err(_) => errors += 1,
        }
    }
    assert!(errors > good.len() / 10, "{errors} errors");
    assert!(without_index > 0);
    for end in 0..good.len() {
        fs::write(&damaged, &good[..end]).unwrap();
        if let Ok(mut log) = LogFile::open(&damaged) {
            assert!(end == 0 || read(&mut log).is_err(), "cut at {end}");
        }
    }
}

#[test]
fn seek_tables_that_lie_are_refused() {
    let place = Place::new(10);
    let good = fs::read(place.archive()).unwrap();
    let lies: [(usize, &[u8], &str); 4] = [
        (9, &u32::MAX.to_le_bytes(), "too many entries"),
        (9, &1000_u32.to_le_bytes(), "longer than the file"),
        (5, &[4], "unknown flag"),
        (21, &u32::MAX.to_le_bytes(), "a frame is too long"),
    ];
    for (from_end, bytes, expected) in lies {
        let mut lie = good.clone();
        let at = lie.len() - from_end;
        lie[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(place.archive(), &lie).unwrap();
        let error = LogFile::open(&place.archive()).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains(expected), "{cause}");
    }
}

#[test]
fn zstd_without_a_seek_table_is_refused_with_advice() {
    let place = Place::new(10);
    let compressed = zstd::bulk::compress(&place.text, 1).unwrap();
    let foreign = place.directory.path().join("log.zst");
    fs::write(&foreign, &compressed).unwrap();
    let error = LogFile::open(&foreign).unwrap_err().to_string();
    assert!(
        error.contains("without a seek table: pipe the output of `zstdcat "),
        "{error}"
    );
    // One of ours was cut off.
    fs::write(place.archive(), compressed).unwrap();
    let error = LogFile::open(&place.archive()).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("the archive is damaged: its end"), "{cause}");
}

/// Any bytes in an archive: it has text that was archived, or there is an error, soon and in little memory.
#[test]
fn fuzz_archive() {
    let good = fs::read(Place::new(40).archive()).unwrap();
    let words = ["\u{0}", "TLGARC01"];
    inputs::fuzz::fuzz("fuzz_archive", &[good], &words, 60, |bytes| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("damaged.zst");
        fs::write(&path, bytes).unwrap();
        let Ok(mut log) = LogFile::open(&path) else {
            return;
        };
        let size = log.size().unwrap().unwrap();
        let index = store::embedded(&log).unwrap_or_default();
        assert!(index.blocks().all(|block| block.end <= size));
        if let Ok(read) = read(&mut log) {
            // Whole frames, each of which is the text.
            let text = text(40);
            assert!(read.chunks(text.len()).all(|chunk| *chunk == *text));
        }
    });
}

/// Archives of a text file whose number was given to another file, on a file system that does not tell the time of
/// creation, are not taken for each other.
#[test]
fn only_an_archive_with_the_text_is_a_copy() {
    let place = Place::new(100);
    let mut archive = LogFile::open(&place.archive()).unwrap();
    let mut log = LogFile::open(&place.old()).unwrap();
    assert!(archive.is_archive_of(&mut log).unwrap());
    assert!(have_same_text(&mut archive, &mut log, &|| false).unwrap());
    // The same file and length, other text.
    let mut other = place.text.clone();
    let end = other.len() - 3;
    other[end] ^= 1;
    fs::write(place.old(), &other).unwrap();
    assert!(!archive.is_archive_of(&mut log).unwrap());
    let middle = other.len() / 2;
    other[end] ^= 1;
    other[middle] ^= 1;
    fs::write(place.old(), &other).unwrap();
    assert!(!have_same_text(&mut archive, &mut log, &|| false).unwrap());
}

/// A seek table that leaves out the text of a frame.
#[test]
fn hidden_text_is_found() {
    let place = Place::new(3000);
    let good = fs::read(place.archive()).unwrap();
    let frames = seek_table::read(&File::open(place.archive()).unwrap())
        .unwrap()
        .unwrap();
    let table = good.len() - (frames.len() + 1) * 8 - 9;
    assert!(frames.len() > 3);
    for number in 0..frames.len() - 1 {
        let mut hidden = good.clone();
        let at = table + number * 8 + 8 + 4;
        hidden[at..at + 4].fill(0);
        fs::write(place.archive(), &hidden).unwrap();
        let error = LogFile::open(&place.archive()).map(|_| number).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(
            cause.contains("has text, but not in the seek table"),
            "{cause}"
        );
    }
}

/// Who can write an archive could hide events by its index.
#[test]
fn index_in_an_archive_that_others_can_write_is_not_used() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new(100);
    let has_index = || store::embedded(&LogFile::open(&place.archive()).unwrap()).is_some();
    assert!(has_index());
    fs::set_permissions(place.archive(), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!has_index());
}

/// An index file whose first segments are those of other text, as a log that was cut by hand has it.
#[test]
fn index_of_other_text_is_not_put_into_the_archive() {
    let place = Place::new(0);
    let whole = text(40_000);
    fs::write(place.old(), &whole).unwrap();
    let open = || LogFile::open(&place.old()).unwrap();
    let index = store::Indexes::with_blocks(64 << 10)
        .open(&mut open(), store::Extent::Whole, |_| ())
        .unwrap();
    let segments: Vec<u64> = index
        .segments()
        .map(|blocks| blocks.last().unwrap().end)
        .collect();
    assert!(segments.len() > 2, "{segments:?}");
    assert_eq!(store::existing(&mut open()).unwrap().end(), index.end());
    // Other text at the end of the first segment, and nowhere else.
    let at = usize::try_from(segments[0]).unwrap();
    let mut other = whole;
    let line = other[..at - 1]
        .iter()
        .rposition(|&byte| byte == b'\n')
        .unwrap();
    other[line + 1..at - 1].fill(b'x');
    fs::write(place.old(), &other).unwrap();
    assert_eq!(store::existing(&mut open()).unwrap().end(), 0);
}

#[test]
fn indexing_stops_when_asked() {
    let place = Place::new(0);
    fs::write(place.old(), text(100_000)).unwrap();
    let mut log = LogFile::open(&place.old()).unwrap();
    let out = tempfile::tempfile().unwrap();
    let asked = std::cell::Cell::new(0);
    let stops = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    let stopped = write(&mut log, &out, &stops);
    assert!(matches!(stopped, Err(ArchiveError::Stopped)));
    // Before anything is written: the text is longer than what was indexed.
    assert_eq!(out.metadata().unwrap().len(), 0);
}

#[test]
fn archive_is_not_written_beyond_the_room() {
    let place = Place::new(30_000);
    let whole = fs::metadata(place.archive()).unwrap().len();
    let mut log = LogFile::open(&place.old()).unwrap();
    for room in [0, whole / 2, whole - 1, whole] {
        let out = tempfile::tempfile().unwrap();
        let has_room = |bytes: u64| out.metadata().unwrap().len() + bytes <= room;
        let written = write_with_room(&mut log, &out, &|| false, &has_room);
        assert!(out.metadata().unwrap().len() <= room);
        match written {
            Ok(written) => assert_eq!((written.archive_len, room), (whole, whole)),
            Err(error) => assert!(room < whole && matches!(error, ArchiveError::NoRoom)),
        }
    }
}
