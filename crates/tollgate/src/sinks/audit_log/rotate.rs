//! Rotation: `audit.log` becomes `audit.log.1`, that `audit.log.2`, and so on.
//!
//! With archives, `num_logs` counts the log, old logs and archives. An archive keeps its name: `audit.log.000001.zst` is
//! the oldest, and is removed before any old log.
//!
//! # Source
//! `rotate_logs`, `shift_logs` and `check_excess_logs` in `src/auditd-event.c`, audit-userspace 4.2.1.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
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

/// Old logs and archives that were removed.
#[derive(Debug, Default)]
pub(crate) struct Removal {
    /// Their names.
    pub(crate) removed: Vec<PathBuf>,
    /// Why the first of those that are still there could not be removed.
    pub(crate) failed: Option<io::Error>,
}

impl Removal {
    /// Removes a file.
    fn remove(&mut self, directory: &LogDirectory, name: PathBuf) {
        match directory.remove(&name) {
            Ok(true) => self.removed.push(name),
            Ok(false) => {}
            Err(error) => {
                let failed = || with_text(&error, &format!("`{}`", name.display()));
                self.failed.get_or_insert_with(failed);
            }
        }
    }
}

/// The error of an operation that `text` names.
fn with_text(error: &io::Error, text: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{text}: {error}"))
}

/// Renames the log and keeps `num_logs` files in all: the oldest is replaced. Returns the archives that were removed.
///
/// # Errors
/// The log cannot be renamed. Older logs may have moved by one; while the first name is free, a retry moves none.
pub(crate) fn rotate(directory: &LogDirectory, name: &Path, num_logs: u32) -> io::Result<Removal> {
    // The log has already been renamed, and the new one could not be created.
    if !directory.has(name) {
        return Ok(Removal::default());
    }
    let free = first_free(directory, name, num_logs);
    let last = free.unwrap_or(num_logs - 1);
    let mut removal = Removal::default();
    remove_archives(directory, name, num_logs - 1 - last, &mut removal)?;
    shift_up_to(directory, name, last)?;
    Ok(removal)
}

/// The first number below `num_logs` that no old log has.
fn first_free(directory: &LogDirectory, name: &Path, num_logs: u32) -> Option<u32> {
    (1..num_logs).find(|&number| !directory.has(&old(name, number)))
}

/// Renames the log and old logs, so that the greatest number is `last`.
fn shift_up_to(directory: &LogDirectory, name: &Path, last: u32) -> io::Result<()> {
    let rename = |from: &Path, to: &Path| {
        let renamed = directory.rename(from, to).map(|_moved| ());
        let names = || format!("cannot rename `{}` to `{}`", from.display(), to.display());
        renamed.map_err(|error| with_text(&error, &names()))
    };
    for number in (2..=last).rev() {
        rename(&old(name, number - 1), &old(name, number))?;
    }
    rename(name, &old(name, 1))
}

/// Gives the log its name back, if it has none: no new one could be created. Returns whether it has one now.
///
/// # Errors
/// It cannot be renamed.
pub(super) fn undo(directory: &LogDirectory, name: &Path) -> io::Result<bool> {
    Ok(directory.has(name) || directory.rename(&old(name, 1), name)?)
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

/// Removes logs beyond `num_logs`. What is not a file stays.
///
/// # Errors
/// The names in the directory cannot be read.
pub(crate) fn remove_excess(
    directory: &LogDirectory,
    name: &Path,
    num_logs: u32,
) -> io::Result<Removal> {
    let mut removal = Removal::default();
    for number in num_logs.. {
        let name = old(name, number);
        if !directory.has(&name) {
            break;
        }
        if directory.has_file(&name) {
            removal.remove(directory, name);
        }
    }
    let old_logs = first_free(directory, name, num_logs).unwrap_or(num_logs) - 1;
    remove_archives(directory, name, num_logs - 1 - old_logs, &mut removal)?;
    Ok(removal)
}

/// The archives and old logs, oldest first.
///
/// # Errors
/// The names in the directory cannot be read.
pub(super) fn old_files(directory: &LogDirectory, name: &Path) -> io::Result<Vec<PathBuf>> {
    let old_logs = numbered(directory, |found| {
        log_set::old_log_number(name.as_os_str(), found)
    })?;
    let old_logs = old_logs.into_values().rev();
    let old_logs = old_logs.filter(|name| directory.has_file(name));
    let archives = archive_files(directory, name)?;
    Ok(archives.into_iter().chain(old_logs).collect())
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

/// Names to which `number_of` gives a number, in the order of the numbers.
fn numbered(
    directory: &LogDirectory,
    number_of: impl Fn(&OsStr) -> Option<u32>,
) -> io::Result<BTreeMap<u32, PathBuf>> {
    let names = directory.names()?.into_iter();
    let numbered = names.filter_map(|found| Some((number_of(&found)?, found.into())));
    Ok(numbered.collect())
}

/// What has the name of an archive, oldest first.
fn archives(directory: &LogDirectory, name: &Path) -> io::Result<BTreeMap<u32, PathBuf>> {
    numbered(directory, |found| {
        log_set::archive_number(name.as_os_str(), found)
    })
}

/// The archives, oldest first.
fn archive_files(directory: &LogDirectory, name: &Path) -> io::Result<Vec<PathBuf>> {
    let named = archives(directory, name)?.into_values();
    Ok(named.filter(|name| directory.has_file(name)).collect())
}

/// Removes the oldest archives that can be removed, so that at most `most` are left.
fn remove_archives(
    directory: &LogDirectory,
    name: &Path,
    most: u32,
    removal: &mut Removal,
) -> io::Result<()> {
    let archives = archive_files(directory, name)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let excess = archives.len().saturating_sub(most);
    let enough = removal.removed.len() + excess;
    for archive in archives {
        if removal.removed.len() >= enough {
            break;
        }
        removal.remove(directory, archive);
    }
    Ok(())
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

    /// An empty directory, and the name of a log in it.
    fn empty() -> (tempfile::TempDir, LogDirectory, &'static Path) {
        let place = tempfile::tempdir().unwrap();
        let directory = LogDirectory::of(&place.path().join("a")).unwrap();
        (place, directory, Path::new("a"))
    }

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
        let (place, directory, name) = empty();
        for round in 1..=4 {
            fs::write(place.path().join("a"), round.to_string()).unwrap();
            rotate(&directory, name, 3).unwrap();
        }
        assert_eq!(names(place.path()), ["a.1=4", "a.2=3"]);
    }

    #[test]
    fn logs_after_a_free_name_are_not_renamed() {
        let (place, directory, name) = empty();
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
        let (place, directory, name) = empty();
        fs::write(place.path().join("new"), "x").unwrap();
        let number = name_archive(&directory, name, Path::new("new"), 0, 7).unwrap();
        assert_eq!(number, 8);
        assert_eq!(names(place.path()), ["a.000008.zst=x"]);
    }

    #[test]
    fn shift_removes_no_log() {
        let (place, directory, name) = empty();
        for round in 1..=4 {
            fs::write(place.path().join("a"), round.to_string()).unwrap();
            shift(&directory, name).unwrap();
        }
        assert_eq!(names(place.path()), ["a.1=4", "a.2=3", "a.3=2", "a.4=1"]);
        let removal = remove_excess(&directory, name, 2).unwrap();
        assert_eq!(removal.removed, ["a.2", "a.3", "a.4"].map(PathBuf::from));
        assert_eq!(names(place.path()), ["a.1=4"]);
    }

    #[test]
    fn undone_rotation_moves_no_other_log() {
        let (place, directory, name) = empty();
        for (name, text) in [("a", "3"), ("a.1", "2"), ("a.2", "1")] {
            fs::write(place.path().join(name), text).unwrap();
        }
        assert!(undo(&directory, name).unwrap());
        rotate(&directory, name, 9).unwrap();
        assert!(undo(&directory, name).unwrap());
        let undone = ["a.2=2", "a.3=1", "a=3"];
        assert_eq!(names(place.path()), undone);
        rotate(&directory, name, 9).unwrap();
        assert!(undo(&directory, name).unwrap());
        assert_eq!(names(place.path()), undone);
    }

    #[test]
    fn what_is_no_file_is_no_archive() {
        let (place, directory, name) = empty();
        let foreign = ["a.000001.zst", "a.000009.zst"].map(|name| place.path().join(name));
        fs::create_dir(&foreign[0]).unwrap();
        std::os::unix::fs::symlink("nowhere", &foreign[1]).unwrap();
        for number in 1..=4 {
            fs::write(place.path().join(format!("a.00000{}.zst", number + 1)), "").unwrap();
            fs::write(place.path().join("a"), "").unwrap();
            let removal = rotate(&directory, name, 4).unwrap();
            assert!(removal.failed.is_none());
            let oldest = old_files(&directory, name).unwrap().swap_remove(0);
            directory.remove(&oldest).unwrap();
        }
        assert!(foreign[0].is_dir() && foreign[1].is_symlink());
        // Their numbers are taken.
        fs::write(place.path().join("new"), "").unwrap();
        let number = name_archive(&directory, name, Path::new("new"), 0, 0).unwrap();
        assert_eq!(number, 10);
    }

    /// Names have six digits: a greater number would hide the archive.
    #[test]
    fn archives_are_numbered_again_after_the_last_number() {
        let (place, directory, name) = empty();
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
