//! Rotation: `audit.log` becomes `audit.log.1`, that `audit.log.2`, and so on.
//!
//! # Source
//! `rotate_logs`, `shift_logs` and `check_excess_logs` in `src/auditd-event.c`, audit-userspace 4.2.1.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

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

/// Renames the log and keeps `num_logs` files in all: the oldest is replaced.
///
/// # Errors
/// The log cannot be renamed. Older logs may have moved by one; while the first name is free, a retry moves none.
pub(crate) fn rotate(directory: &LogDirectory, name: &Path, num_logs: u32) -> io::Result<()> {
    // The log has already been renamed, and the new one could not be created.
    if !directory.has(name) {
        return Ok(());
    }
    let free = (1..num_logs).find(|&number| !directory.has(&old(name, number)));
    let last = free.unwrap_or(num_logs - 1);
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
    let last = (1..MOST)
        .find(|&number| !directory.has(&old(name, number)))
        .unwrap_or(MOST);
    rotate(directory, name, last + 1)
}

/// Removes logs beyond `num_logs`; returns their number.
///
/// # Errors
/// The kernel's error.
pub(crate) fn remove_excess(
    directory: &LogDirectory,
    name: &Path,
    num_logs: u32,
) -> io::Result<u32> {
    let mut number = num_logs;
    while directory.remove(&old(name, number))? {
        number += 1;
    }
    Ok(number - num_logs)
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
        assert_eq!(remove_excess(&directory, name, 2).unwrap(), 3);
        assert_eq!(names(place.path()), ["a.1=4"]);
    }
}
