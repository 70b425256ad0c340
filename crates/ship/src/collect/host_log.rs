//! The log of a host: `audit.log` and its rotated predecessors `audit.log.1` to `audit.log.N`, in a directory of the name
//! of the host.
//!
//! The directory belongs to an unprivileged user; no link is followed. A line is written whole or not at all: what a failed
//! write has left of it is cut off, and so is, when the log is opened, what a killed one has left.

use std::fs::File;
use std::io::{self, Write as _};
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use bstr::ByteSlice as _;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::config::LogSettings;
use super::frame::MAX_SYSLOG_BYTES;
use super::repeated::LogPart;

const LOG: &str = "audit.log";
/// The next file, before the current one is rotated.
const NEW: &str = "audit.log.new";
/// Rotated files that wait to be synced; with more, rotation waits for the disk.
const MAX_UNSYNCED: usize = 4;

/// The log of a host, open for writing.
#[derive(Debug)]
pub(super) struct HostLog {
    directory: OwnedFd,
    file: File,
    bytes: u64,
    settings: LogSettings,
    /// Whether the file has bytes that may not be on the disk.
    is_dirty: bool,
    /// Rotated files with such bytes.
    unsynced: Vec<File>,
}

impl HostLog {
    /// Opens the log of a host, whose name must be that of a file. A directory is made if it is missing.
    ///
    /// # Errors
    /// The directory or file cannot be made or opened, or is none, or is a link.
    pub(super) fn open(logs: impl AsFd, host: &str, settings: LogSettings) -> io::Result<Self> {
        match mkdirat(&logs, host, Mode::S_IRWXU | Mode::S_IRGRP | Mode::S_IXGRP) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let directory = openat(&logs, host, flags, Mode::empty())?;
        let file = create(&directory, LOG)?;
        let mut log = Self {
            directory,
            bytes: size_of(&file)?,
            file,
            settings,
            is_dirty: false,
            unsynced: Vec::new(),
        };
        log.cut_unfinished_line()?;
        log.remove_excess();
        Ok(log)
    }

    /// Writes whole lines. A file that has become too large is rotated before.
    ///
    /// # Errors
    /// Nothing is written.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let length = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if self.bytes > 0 && self.bytes.saturating_add(length) > self.settings.file_bytes {
            self.rotate()?;
        }
        self.is_dirty = true;
        if let Err(error) = self.file.write_all(lines) {
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += length;
        Ok(())
    }

    /// The current file and the one before, the oldest first.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub(super) fn recent(&self) -> io::Result<Vec<LogPart>> {
        let mut parts = Vec::new();
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        match openat(&self.directory, old(1).as_str(), flags, Mode::empty()) {
            Ok(file) => {
                let file = File::from(file);
                let end = size_of(&file)?;
                parts.push(LogPart {
                    file,
                    start: 0,
                    end,
                });
            }
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        parts.push(LogPart {
            file: self.file.try_clone()?,
            start: 0,
            end: self.bytes,
        });
        Ok(parts)
    }

    /// Files whose bytes may not be on the disk; they count as synced then.
    ///
    /// # Errors
    /// There are too many open files; they still count as not synced.
    pub(super) fn take_unsynced(&mut self) -> io::Result<Vec<File>> {
        let current = match self.is_dirty {
            true => Some(self.file.try_clone()?),
            false => None,
        };
        self.is_dirty = false;
        let mut files = mem::take(&mut self.unsynced);
        files.extend(current);
        Ok(files)
    }

    /// Whether somebody has removed the file.
    pub(super) fn is_removed(&self) -> bool {
        fstat(&self.file).is_ok_and(|about| about.st_nlink == 0)
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.unsynced.len() >= MAX_UNSYNCED {
            for file in self.unsynced.drain(..) {
                file.sync_data()?;
            }
        }
        // If this fails, no old file is removed for it.
        let file = create(&self.directory, NEW)?;
        // Else a rotation that failed has moved it.
        if !self.is_missing(LOG) {
            self.make_room()?;
            self.rename(LOG, &old(1))?;
        }
        self.rename(NEW, LOG)?;
        self.remove_excess();
        self.bytes = size_of(&file)?;
        let rotated = mem::replace(&mut self.file, file);
        if mem::take(&mut self.is_dirty) {
            self.unsynced.push(rotated);
        }
        Ok(())
    }

    /// Makes the name of the first old file free. Where a number is free already, files behind it stay.
    fn make_room(&self) -> io::Result<()> {
        let last = self.last_old();
        let free = (1..=last).find(|number| self.is_missing(&old(*number)));
        if free.is_none() {
            let name = old(last);
            unlinkat(&self.directory, name.as_str(), UnlinkatFlags::NoRemoveDir)?;
        }
        for number in (1..free.unwrap_or(last)).rev() {
            self.rename(&old(number), &old(number + 1))?;
        }
        Ok(())
    }

    /// Removes old files that are no longer kept, up to the first missing one. What cannot be removed is no reason to take
    /// no records.
    fn remove_excess(&self) {
        for number in self.last_old() + 1.. {
            let name = old(number);
            if unlinkat(&self.directory, name.as_str(), UnlinkatFlags::NoRemoveDir).is_err() {
                return;
            }
        }
    }

    /// Number of the oldest file that is kept.
    fn last_old(&self) -> u32 {
        self.settings.files.saturating_sub(1).max(1)
    }

    fn is_missing(&self, name: &str) -> bool {
        let about = fstatat(&self.directory, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        matches!(about, Err(Errno::ENOENT))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.directory, from, &self.directory, to)?)
    }

    /// Cuts off what a write that was killed has left of a line, which was not acknowledged.
    fn cut_unfinished_line(&mut self) -> io::Result<()> {
        let most = u64::try_from(MAX_SYSLOG_BYTES + 1)
            .unwrap_or(u64::MAX)
            .min(self.bytes);
        let mut end = vec![0; usize::try_from(most).unwrap_or(0)];
        let start = self.bytes - most;
        self.file.read_exact_at(&mut end, start)?;
        match end.rfind_byte(b'\n') {
            Some(at) if at + 1 == end.len() => {}
            Some(at) => {
                let kept = start + u64::try_from(at).unwrap_or(0) + 1;
                self.file.set_len(kept)?;
                self.bytes = kept;
            }
            None if start == 0 => {
                self.file.set_len(0)?;
                self.bytes = 0;
            }
            // No line of this program: it stays, and ends.
            None => {
                self.file.write_all(b"\n")?;
                self.bytes += 1;
            }
        }
        Ok(())
    }
}

/// Name of an old file.
fn old(number: u32) -> String {
    format!("{LOG}.{number}")
}

/// Opens a file to which lines are appended; it is made if it is missing.
fn create(directory: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlag::O_RDWR
        | OFlag::O_APPEND
        | OFlag::O_CREAT
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR | Mode::S_IRGRP;
    let file = File::from(openat(directory, name, flags, mode)?);
    match is_kind(fstat(&file)?.st_mode, SFlag::S_IFREG) {
        true => Ok(file),
        false => Err(io::Error::other(format!(
            "`{name}` is no regular file: remove it"
        ))),
    }
}

fn is_kind(mode: u32, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(mode) & SFlag::S_IFMT == kind
}

fn size_of(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.len())
}

/// Whether a directory has a directory of a name.
pub(super) fn has_directory(logs: impl AsFd, name: &str) -> bool {
    let about = fstatat(logs, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    about.is_ok_and(|about| is_kind(about.st_mode, SFlag::S_IFDIR))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    pub(in crate::collect) const fn settings(file_bytes: u64) -> LogSettings {
        LogSettings {
            file_bytes,
            files: 3,
            reserve_bytes: 0,
        }
    }

    fn open(place: &Path, file_bytes: u64) -> io::Result<HostLog> {
        HostLog::open(File::open(place).unwrap(), "h", settings(file_bytes))
    }

    #[test]
    fn full_files_are_rotated_and_the_oldest_removed() {
        let place = tempfile::tempdir().unwrap();
        let mut log = open(place.path(), 8).unwrap();
        for line in [
            "one\n",
            "two\n",
            "three\n",
            "longer than a file\n",
            "five\n",
        ] {
            log.write(line.as_bytes()).unwrap();
        }
        let text = |name: &str| fs::read_to_string(place.path().join("h").join(name)).unwrap();
        assert_eq!(text("audit.log"), "five\n");
        assert_eq!(text("audit.log.1"), "longer than a file\n");
        assert_eq!(text("audit.log.2"), "three\n");
        assert_eq!(fs::read_dir(place.path().join("h")).unwrap().count(), 3);
        assert_eq!(log.take_unsynced().unwrap().len(), 4);
        assert_eq!(log.take_unsynced().unwrap().len(), 0);
        let recent: Vec<u64> = log.recent().unwrap().iter().map(|part| part.end).collect();
        assert_eq!(recent, [19, 5]);
        // The next run continues.
        let mut log = open(place.path(), 8).unwrap();
        log.write(b"6\n").unwrap();
        assert_eq!(text("audit.log"), "five\n6\n");
    }

    /// `num_logs` was lowered to 3.
    #[test]
    fn files_that_are_no_longer_kept_are_removed() {
        let place = tempfile::tempdir().unwrap();
        drop(open(place.path(), 8).unwrap());
        let path = |number: u32| place.path().join("h").join(old(number));
        let write = |numbers: std::ops::RangeInclusive<u32>| {
            numbers.for_each(|number| fs::write(path(number), "old\n").unwrap());
        };
        let kept = || {
            (1..9)
                .filter(|number| path(*number).exists())
                .collect::<Vec<_>>()
        };
        write(1..=6);
        let mut log = open(place.path(), 1).unwrap();
        assert_eq!(kept(), [1, 2]);
        write(3..=4);
        // Not of this log.
        write(8..=8);
        for _ in 0..2 {
            log.write(b"new\n").unwrap();
        }
        assert_eq!(kept(), [1, 2, 8]);
    }

    #[test]
    fn rotation_that_fails_removes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let mut log = open(place.path(), 1).unwrap();
        for line in ["1\n", "2\n", "3\n"] {
            log.write(line.as_bytes()).unwrap();
        }
        let path = |name: &str| place.path().join("h").join(name);
        let texts = || {
            ["audit.log", "audit.log.1", "audit.log.2"]
                .map(|name| fs::read_to_string(path(name)).ok())
        };
        let three = || ["3\n", "2\n", "1\n"].map(|text| Some(text.to_owned()));
        fs::create_dir(path(NEW)).unwrap();
        for _ in 0..3 {
            log.write(b"4\n").unwrap_err();
            assert_eq!(texts(), three());
        }
        fs::remove_dir(path(NEW)).unwrap();
        // A rotation ended before the new file got its name.
        fs::rename(path("audit.log"), path("moved")).unwrap();
        log.write(b"4\n").unwrap();
        let [_, two, one] = three();
        assert_eq!(texts(), [Some("4\n".to_owned()), two, one]);
        // One ended before all old files were moved.
        fs::rename(path("audit.log.1"), path("audit.log.2")).unwrap();
        log.write(b"5\n").unwrap();
        assert_eq!(
            texts(),
            ["5\n", "4\n", "2\n"].map(|text| Some(text.to_owned()))
        );
    }

    #[test]
    fn unfinished_line_is_cut_off() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("h/audit.log");
        drop(open(place.path(), 8).unwrap());
        for (left, kept) in [
            ("", ""),
            ("one\n", "one\n"),
            ("one\ntw", "one\n"),
            ("tw", ""),
        ] {
            fs::write(&path, left).unwrap();
            let mut log = open(place.path(), 99).unwrap();
            log.write(b"next\n").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{kept}next\n"));
        }
    }

    #[test]
    fn no_link_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("target");
        fs::create_dir(&target).unwrap();
        symlink(&target, place.path().join("h")).unwrap();
        open(place.path(), 8).unwrap_err();
        fs::remove_file(place.path().join("h")).unwrap();
        fs::create_dir(place.path().join("h")).unwrap();
        fs::write(target.join("file"), "kept\n").unwrap();
        symlink(target.join("file"), place.path().join("h/audit.log")).unwrap();
        open(place.path(), 8).unwrap_err();
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "kept\n");
        fs::remove_file(place.path().join("h/audit.log")).unwrap();
        nix::unistd::mkfifo(&place.path().join("h/audit.log"), Mode::S_IRWXU).unwrap();
        open(place.path(), 8).unwrap_err();
    }

    /// `/dev/full` takes nothing.
    #[test]
    fn failed_write_leaves_whole_lines() {
        let place = tempfile::tempdir().unwrap();
        let mut log = open(place.path(), 1 << 20).unwrap();
        log.write(b"one\n").unwrap();
        let current = log.file.try_clone().unwrap();
        log.file = File::options().append(true).open("/dev/full").unwrap();
        let error = log.write(b"two\n").unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(28 | 22)), "{error}");
        log.file = current;
        log.write(b"three\n").unwrap();
        let text = fs::read_to_string(place.path().join("h/audit.log")).unwrap();
        assert_eq!(text, "one\nthree\n");
    }
}
