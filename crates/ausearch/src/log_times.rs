//! Which files of a log may have records from a time on.
//!
//! Rotated files are in order, but their times need not be: the clock may have been set back, and two files may share a
//! second. A file is left out only if no record in it is late enough.

use std::path::{Path, PathBuf};

use bstr::ByteSlice as _;
use logs::index::store::{Extent, Indexes};
use logs::log_file::LogFile;
use logs::stamp;

use crate::ctext;
use crate::lines::Lines;
use crate::log_file;
use crate::part_reader::PartReader;

/// Smallest file of which an index pays.
const MIN_INDEXED_BYTES: u64 = 8 << 20;

/// Number of the oldest of some log files, the newest first, that is read for records from `start` on, in seconds; 0 is
/// all time.
///
/// # Source
/// The stock tools of 4.2.1 read the files that begin after `start`, and the newest other. So is it here, lest the times that
/// `aureport` shows differ; but a file that has records from `start` on is always read.
pub(crate) fn oldest_needed(files: &[PathBuf], start: i64) -> usize {
    let last = files.len().saturating_sub(1);
    if start == 0 {
        return last;
    }
    let by_first_line = match files.iter().rposition(|file| first_time(file) > start) {
        Some(number) if number < last => number + 1,
        _ => return last,
    };
    let mut indexes = Indexes::default();
    (by_first_line + 1..=last)
        .rev()
        .find(|&number| {
            let file = files.get(number);
            file.is_some_and(|file| may_have_records_from(file, start, &mut indexes))
        })
        .unwrap_or(by_first_line)
}

/// Seconds in the stamp of a file's first line; 0 if there is none.
fn first_time(path: &Path) -> i64 {
    let line = log_file::open(path).ok().and_then(|file| {
        let mut lines = Lines::new(file);
        lines.next().ok()?.map(<[u8]>::to_vec)
    });
    let line = line.unwrap_or_default();
    let stamp = line
        .find("audit(")
        .and_then(|at| line.get(at + "audit(".len()..));
    stamp.map_or(0, |stamp| ctext::signed(stamp, 10).0)
}

/// Whether a record in a file may have a second from `start` on: so it is if the file cannot be read.
fn may_have_records_from(path: &Path, start: i64, indexes: &mut Indexes) -> bool {
    let greatest = LogFile::open(path)
        .ok()
        .and_then(|mut file| greatest_in_file(&mut file, indexes));
    greatest.is_none_or(|greatest| i64::try_from(greatest).is_ok_and(|greatest| greatest >= start))
}

/// The greatest second of the records in a file; `None` if that is not known.
fn greatest_in_file(file: &mut LogFile, indexes: &mut Indexes) -> Option<u64> {
    let size = file.size().ok()??;
    if size < MIN_INDEXED_BYTES {
        return greatest_second(file, 0, size);
    }
    let index = indexes.open(file, Extent::Whole, |_| ()).ok()?;
    let unindexed = greatest_second(file, index.end(), size)?;
    index.blocks().try_fold(unindexed, |greatest, block| {
        (!block.marks.is_irregular).then_some(greatest.max(*block.seconds.end()))
    })
}

/// The greatest second of the records in a part of a file; `None` if it cannot be read.
pub(crate) fn greatest_second(file: &mut LogFile, at: u64, end: u64) -> Option<u64> {
    let mut lines = Lines::new(PartReader { file, at, end });
    let mut greatest = 0;
    while let Some(line) = lines.next().ok()? {
        if let Ok(stamp) = stamp::parse(line, 0) {
            greatest = stamp.seconds.max(greatest);
        }
    }
    Some(greatest)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::{newest_first, rotated};

    /// Log files of lines with these seconds, the newest first.
    fn log_of(directory: &Path, files: &[&[u64]]) -> Vec<PathBuf> {
        let log = directory.join("audit.log");
        for (number, seconds) in files.iter().enumerate() {
            let lines: String = seconds
                .iter()
                .map(|seconds| format!("type=USER msg=audit({seconds}.000:1): x\n"))
                .collect();
            fs::write(rotated(&log, number), lines).unwrap();
        }
        newest_first(&log)
    }

    #[test]
    fn files_before_the_start_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let files = log_of(directory.path(), &[&[300], &[200], &[100]]);
        for (start, oldest) in [(0, 2), (50, 2), (150, 2), (250, 1), (350, 2)] {
            assert_eq!(oldest_needed(&files, start), oldest, "{start}");
        }
    }

    #[test]
    fn file_with_records_of_the_first_second_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let files = log_of(
            directory.path(),
            &[&[300], &[200], &[200], &[100, 200], &[100]],
        );
        assert_eq!(oldest_needed(&files, 200), 3);
    }

    #[test]
    fn file_from_before_the_clock_was_set_back_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let files = log_of(directory.path(), &[&[300], &[100], &[90, 500], &[90]]);
        assert_eq!(oldest_needed(&files, 250), 2);
    }

    #[test]
    fn large_files_are_skipped_by_their_index() {
        let directory = tempfile::tempdir().unwrap();
        let count = usize::try_from(MIN_INDEXED_BYTES).unwrap() / 20;
        let long = |last| {
            let mut seconds = vec![100; count];
            seconds.push(last);
            seconds
        };
        for (last, oldest) in [(100, 1), (300, 2)] {
            let files = log_of(directory.path(), &[&[400], &[200], &long(last)]);
            assert_eq!(oldest_needed(&files, 300), oldest, "{last}");
        }
    }
}
