//! Rotation: `audit.log` becomes `audit.log.1`, that `audit.log.2`, and so on.
//!
//! With archives, `num_logs` counts the log, old logs and archives. An archive keeps its name: `audit.log.000001.zst` is
//! the oldest, and is removed before any old log.
//!
//! # Source
//! `rotate_logs`, `shift_logs` and `check_excess_logs` in `src/auditd-event.c`, audit-userspace 4.2.1.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use logs::log_file::LogFile;
use logs::log_set;

use crate::sinks::log_file::log_directory::LogDirectory;

/// Upper limit of old logs; more than any disk holds.
const MOST: u32 = 1 << 20;

/// Retention of old logs when a signal rotates the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OldLogPolicy {
    /// As configured: the oldest is removed.
    AsConfigured,
    /// All are kept: a locked log cannot be rotated away.
    AllKept,
}

/// Name of old log `number`.
fn old(name: &Path, number: u32) -> PathBuf {
    let mut text = OsString::from(name);
    text.push(format!(".{number}"));
    text.into()
}

/// Renames the log and keeps `num_logs` files in all: the oldest is replaced. Returns the names of archives that were
/// removed.
///
/// # Errors
/// The log cannot be renamed. Older logs may have moved by one; while the first name is free, a retry moves none.
pub(crate) fn rotate(
    directory: &LogDirectory,
    name: &Path,
    num_logs: u32,
) -> io::Result<Vec<PathBuf>> {
    // The log has already been renamed, and the new one could not be created.
    if !directory.has(name) {
        return Ok(Vec::new());
    }
    let free = first_free(directory, name, num_logs);
    let last = free.unwrap_or(num_logs - 1);
    let removed = remove_archives(directory, name, num_logs - 1 - last)?;
    shift_up_to(directory, name, last)?;
    Ok(removed)
}

/// The first number below `num_logs` that no old log has.
fn first_free(directory: &LogDirectory, name: &Path, num_logs: u32) -> Option<u32> {
    (1..num_logs).find(|&number| !directory.has(&old(name, number)))
}

/// Renames the log and old logs, so that the greatest number is `last`.
fn shift_up_to(directory: &LogDirectory, name: &Path, last: u32) -> io::Result<()> {
    for number in (2..=last).rev() {
        directory.rename(&old(name, number - 1), &old(name, number))?;
    }
    directory.rename(name, &old(name, 1)).map(|_moved| ())
}

/// As [`rotate`], but keeps every file.
///
/// # Errors
/// As [`rotate`].
pub(crate) fn shift(directory: &LogDirectory, name: &Path) -> io::Result<()> {
    if !directory.has(name) {
        return Ok(());
    }
    let last = first_free(directory, name, MOST).unwrap_or(MOST);
    shift_up_to(directory, name, last)
}

/// Removes logs beyond `num_logs`; returns their names.
///
/// # Errors
/// The kernel's error.
pub(crate) fn remove_excess(
    directory: &LogDirectory,
    name: &Path,
    num_logs: u32,
) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for number in num_logs.. {
        let name = old(name, number);
        if !directory.remove(&name)? {
            break;
        }
        removed.push(name);
    }
    let old_logs = first_free(directory, name, num_logs).unwrap_or(num_logs) - 1;
    removed.extend(remove_archives(directory, name, num_logs - 1 - old_logs)?);
    Ok(removed)
}

/// Number of old logs that the newest archive has the text of, 0 or 1: the daemon ended before it removed the old log.
/// Files that cannot be read are none.
pub(crate) fn archived_twice(log: &Path) -> u32 {
    let newest = log_set::archive_paths(log).ok();
    let newest = newest.and_then(|paths| log_set::open_no_link(paths.first()?).ok());
    let (Some(mut archive), Ok(old_logs)) = (newest, log_set::old_logs(log)) else {
        return 0;
    };
    let is_twice = |mut log: LogFile| archive.is_archive_of(&mut log).is_ok_and(|is| is);
    u32::from(old_logs.files.into_iter().any(is_twice))
}

/// The archives, oldest first.
fn archives(directory: &LogDirectory, name: &Path) -> io::Result<BTreeMap<u32, PathBuf>> {
    let of_log = |found: OsString| {
        let number = log_set::archive_number(name.as_os_str(), &found)?;
        Some((number, found.into()))
    };
    Ok(directory.names()?.into_iter().filter_map(of_log).collect())
}

/// Removes the oldest archives, so that at most `most` are left; returns their names.
fn remove_archives(directory: &LogDirectory, name: &Path, most: u32) -> io::Result<Vec<PathBuf>> {
    let archives = archives(directory, name)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let excess = archives.len().saturating_sub(most);
    let mut removed = Vec::new();
    for archive in archives.into_values().take(excess) {
        directory.remove(&archive)?;
        removed.push(archive);
    }
    Ok(removed)
}

/// Gives the complete archive `temporary` a name that makes it the newest. Returns its number, which is greater than
/// `before` unless the archives are renumbered.
///
/// # Errors
/// The kernel's error, or there is no number for it.
pub(super) fn name_archive(
    directory: &LogDirectory,
    name: &Path,
    temporary: &Path,
    group: u32,
    before: u32,
) -> io::Result<u32> {
    let present = archives(directory, name)?.into_keys().next_back();
    let mut last = present.unwrap_or(0).max(before);
    if last >= log_set::LAST_ARCHIVE {
        last = renumber_archives(directory, name)?;
    }
    let number = last + 1;
    if number > log_set::LAST_ARCHIVE {
        return Err(io::Error::other("no number is free for the archive"));
    }
    let archive = PathBuf::from(log_set::archive_name(name.as_os_str(), number));
    directory.set_group_of_old_log(temporary, group)?;
    if directory.has(&archive) || !directory.rename(temporary, &archive)? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    Ok(number)
}

/// Numbers the archives from 1, in their order; returns the last number. If the daemon ends meanwhile, they still have
/// their order.
fn renumber_archives(directory: &LogDirectory, name: &Path) -> io::Result<u32> {
    let mut last = 0;
    for (number, archive) in archives(directory, name)? {
        last += 1;
        // Each number is at least the count of those up to it, and those below are renamed already.
        let target = PathBuf::from(log_set::archive_name(name.as_os_str(), last.min(number)));
        if target != archive {
            directory.rename(&archive, &target)?;
        }
    }
    Ok(last)
}

/// Removes the old log that is this file, whatever its number is now.
///
/// # Errors
/// The kernel's error.
pub(super) fn remove_old_log(
    directory: &LogDirectory,
    name: &Path,
    file: (u64, u64),
) -> io::Result<()> {
    for found in directory.names()? {
        let found = PathBuf::from(found);
        let is_old = log_set::old_log_number(name.as_os_str(), found.as_os_str()).is_some();
        if is_old && directory.identity(&found) == Some(file) {
            directory.remove(&found)?;
        }
    }
    Ok(())
}

/// Gives old logs to a group.
///
/// # Errors
/// The kernel's error.
pub(crate) fn set_group(directory: &LogDirectory, name: &Path, group: u32) -> io::Result<()> {
    for number in 1..MOST {
        if !directory.set_group_of_old_log(&old(name, number), group)? {
            break;
        }
    }
    for archive in archives(directory, name)?.values() {
        directory.set_group_of_old_log(archive, group)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let text = fs::read_to_string(entry.path()).unwrap();
                format!("{}={text}", entry.file_name().display())
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn rotation_replaces_the_oldest_log() {
        let place = tempfile::tempdir().unwrap();
        let (directory, name) = (
            LogDirectory::of(&place.path().join("a")).unwrap(),
            Path::new("a"),
        );
        for round in 1..=4 {
            fs::write(place.path().join("a"), round.to_string()).unwrap();
            rotate(&directory, name, 3).unwrap();
        }
        assert_eq!(names(place.path()), ["a.1=4", "a.2=3"]);
    }

    #[test]
    fn logs_after_a_free_name_are_not_renamed() {
        let place = tempfile::tempdir().unwrap();
        let (directory, name) = (
            LogDirectory::of(&place.path().join("a")).unwrap(),
            Path::new("a"),
        );
        for (name, text) in [("a", "1"), ("a.2", "2"), ("a.3", "3")] {
            fs::write(place.path().join(name), text).unwrap();
        }
        for _ in 0..2 {
            rotate(&directory, name, 4).unwrap();
            // Nor does anything when there is no log to make room for.
            assert_eq!(names(place.path()), ["a.1=1", "a.2=2", "a.3=3"]);
        }
    }

    #[test]
    fn no_number_of_an_archive_is_used_twice() {
        let place = tempfile::tempdir().unwrap();
        let (directory, name) = (
            LogDirectory::of(&place.path().join("a")).unwrap(),
            Path::new("a"),
        );
        fs::write(place.path().join("new"), "x").unwrap();
        let number = name_archive(&directory, name, Path::new("new"), 0, 7).unwrap();
        assert_eq!(number, 8);
        assert_eq!(names(place.path()), ["a.000008.zst=x"]);
    }

    #[test]
    fn shift_removes_no_log() {
        let place = tempfile::tempdir().unwrap();
        let (directory, name) = (
            LogDirectory::of(&place.path().join("a")).unwrap(),
            Path::new("a"),
        );
        for round in 1..=4 {
            fs::write(place.path().join("a"), round.to_string()).unwrap();
            shift(&directory, name).unwrap();
        }
        assert_eq!(names(place.path()), ["a.1=4", "a.2=3", "a.3=2", "a.4=1"]);
        let removed = remove_excess(&directory, name, 2).unwrap();
        assert_eq!(removed, ["a.2", "a.3", "a.4"].map(PathBuf::from));
        assert_eq!(names(place.path()), ["a.1=4"]);
    }

    /// Names have six digits: a greater number would hide the archive.
    #[test]
    fn archives_are_numbered_again_after_the_last_number() {
        let place = tempfile::tempdir().unwrap();
        let (directory, name) = (
            LogDirectory::of(&place.path().join("a")).unwrap(),
            Path::new("a"),
        );
        for (name, text) in [
            ("a.000002.zst", "1"),
            ("a.000007.zst", "2"),
            ("a.999999.zst", "3"),
            ("new", "4"),
        ] {
            fs::write(place.path().join(name), text).unwrap();
        }
        name_archive(&directory, name, Path::new("new"), 0, 0).unwrap();
        let expected = [
            "a.000001.zst=1",
            "a.000002.zst=2",
            "a.000003.zst=3",
            "a.000004.zst=4",
        ];
        assert_eq!(names(place.path()), expected);
    }
}
