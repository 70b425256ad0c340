//! Directories of the files, and the files before they have their names.
//!
//! ```text
//! DIRECTORY/date=2026-10-02/host=web1/.tollgate.NAME.1.tmp -> NAME-BOOT-....parquet
//! DIRECTORY/upload/host=web1/.tollgate.NAME.1.tmp -> a bucket
//! ```
//!
//! Others may write in the directory: below it no link is followed, a new file is never one that exists, and a file that
//! was exchanged before it got its name is an error. A temporary file is locked, so that one without a lock is left over.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, Flock, FlockArg, OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat};

/// In place of the directory of a date, where files are until they are in a bucket.
pub(super) const UPLOADS: &str = "upload";
/// Most names that are tried for a temporary file.
const MOST_NAMES: u32 = 1000;

/// The directory of a destination.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    file: OwnedFd,
}

/// A directory of a date and a host.
#[derive(Debug)]
pub(super) struct Partition {
    path: PathBuf,
    file: OwnedFd,
}

/// A file that readers do not see. It is removed unless it gets its name.
#[derive(Debug)]
pub(super) struct TemporaryFile {
    partition: Partition,
    name: String,
    file: Flock<File>,
    is_published: bool,
}

impl Directory {
    /// Opens a directory, which must exist.
    ///
    /// # Errors
    /// There is none, or it cannot be written.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let file = open(path, flags, Mode::empty())
            .with_context(|| format!("cannot open directory `{shown}`: create it, and start the run again, which may use only what was there when it began"))?;
        let access = AccessFlags::W_OK | AccessFlags::X_OK;
        faccessat(AT_FDCWD, path, access, AtFlags::AT_EACCESS).with_context(|| {
            format!("cannot write directory `{shown}`: let the user of this program write it")
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Opens the directory of a date and a host, and creates it if there is none.
    ///
    /// # Errors
    /// It cannot be created, or is a link.
    pub(super) fn partition(&self, date: &str, host: &str) -> anyhow::Result<Partition> {
        let mut path = self.path.clone();
        let mut opened: Option<OwnedFd> = None;
        for name in [date, host] {
            let parent = opened.as_ref().unwrap_or(&self.file);
            path.push(name);
            let made = make_directory(parent, name);
            opened =
                Some(made.with_context(|| format!("cannot use directory `{}`", path.display()))?);
        }
        let file = opened.context("a partition has no name")?;
        Ok(Partition { path, file })
    }

    /// Removes the temporary files that a run with this destination and host has left. Returns their number. What cannot
    /// be read or removed is of others.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn remove_left_over(&self, host: &str, destination: &str) -> anyhow::Result<u32> {
        let mut count = 0;
        let found = each_name(&self.file, |date| {
            if !date.starts_with(b"date=") && date != UPLOADS.as_bytes() {
                return;
            }
            let opened = openat(&self.file, date, directory_flags(), Mode::empty())
                .and_then(|date| openat(&date, host, directory_flags(), Mode::empty()));
            let Ok(partition) = opened else { return };
            let _unreadable = each_name(&partition, |name| {
                let is_ours = is_temporary(name, destination) && is_left_over(&partition, name);
                if is_ours && remove(&partition, name).is_ok() {
                    count += 1;
                }
            });
        });
        found.with_context(|| format!("cannot read directory `{}`", self.path.display()))?;
        Ok(count)
    }
}

impl Partition {
    /// Creates a temporary file.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn create(self, destination: &str) -> anyhow::Result<TemporaryFile> {
        let flags =
            OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR | Mode::S_IRGRP;
        let mut number = 1;
        let (name, file) = loop {
            let name = format!("{}{number}.tmp", prefix(destination));
            match openat(&self.file, name.as_str(), flags, mode) {
                Err(Errno::EEXIST) if number < MOST_NAMES => number += 1,
                file => break (name, file),
            }
        };
        let path = self.path.join(&name);
        let failed = || format!("cannot create `{}`", path.display());
        let file = Flock::lock(
            File::from(file.with_context(failed)?),
            FlockArg::LockExclusiveNonblock,
        )
        .map_err(|(_, errno)| errno)
        .with_context(failed)?;
        Ok(TemporaryFile {
            partition: self,
            name,
            file,
            is_published: false,
        })
    }
}

impl TemporaryFile {
    /// Path of the file.
    pub(super) fn path(&self) -> PathBuf {
        self.partition.path.join(&self.name)
    }

    /// The file, to be read from its start.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name, for readers, when it and its name are on the disk. It replaces a file of this name.
    ///
    /// # Errors
    /// It cannot be written to the disk or renamed, or another file was put in its place.
    pub(super) fn publish(mut self, name: &str) -> anyhow::Result<()> {
        let shown = self.path();
        let shown = shown.display();
        let (partition, file) = (&self.partition.file, &self.file);
        file.sync_all()
            .with_context(|| format!("cannot write `{shown}` to the disk"))?;
        renameat(partition, self.name.as_str(), partition, name)
            .with_context(|| format!("cannot rename `{shown}` to `{name}`"))?;
        self.is_published = true;
        let (partition, file) = (&self.partition.file, &self.file);
        let found = fstatat(partition, name, AtFlags::AT_SYMLINK_NOFOLLOW)
            .and_then(|found| Ok((found, fstat(file.as_fd())?)));
        let is_ours = found.is_ok_and(|(found, ours)| id(&found) == id(&ours));
        let directory = self.partition.path.display();
        ensure!(
            is_ours,
            "`{directory}/{name}` was exchanged by another program: let only this program write there"
        );
        sync(partition).with_context(|| format!("cannot write `{directory}` to the disk"))
    }
}

impl io::Write for TemporaryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.is_published {
            // Else the next run removes it.
            let _removed = remove(&self.partition.file, self.name.as_bytes());
        }
    }
}

/// Name of the directory of a host.
pub(super) fn host_directory(host: &str) -> String {
    match host {
        // What Hive writes for an empty value.
        "" => "host=__HIVE_DEFAULT_PARTITION__".to_owned(),
        host => format!("host={}", component(host)),
    }
}

/// A text as a part of a name: what a path or a reader of files would not take is encoded.
pub(super) fn component(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn prefix(destination: &str) -> String {
    format!(".tollgate.{destination}.")
}

/// Whether a name is that of a temporary file of a destination.
fn is_temporary(name: &[u8], destination: &str) -> bool {
    let number = name
        .strip_prefix(prefix(destination).as_bytes())
        .and_then(|rest| rest.strip_suffix(b".tmp"));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// Whether a file is one that no program writes.
fn is_left_over(directory: &OwnedFd, name: &[u8]) -> bool {
    let is_file = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|found| found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits());
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    is_file
        && openat(directory, name, flags, Mode::empty()).is_ok_and(|file| {
            Flock::lock(File::from(file), FlockArg::LockExclusiveNonblock).is_ok()
        })
}

/// Calls a function with each name in a directory, which may have any number of them.
fn each_name(directory: &OwnedFd, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut opened = Dir::openat(directory, ".", directory_flags(), Mode::empty())?;
    for entry in opened.iter() {
        take(entry?.file_name().to_bytes());
    }
    Ok(())
}

/// Opens a directory, which is created if there is none, and is on the disk then.
fn make_directory(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let mode = Mode::S_IRWXU | Mode::S_IRWXG;
    match mkdirat(parent, name, mode) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let opened = openat(parent, name, directory_flags(), Mode::empty())?;
    sync(parent)?;
    Ok(opened)
}

fn sync(directory: &OwnedFd) -> io::Result<()> {
    Ok(nix::unistd::fsync(directory)?)
}

fn remove(directory: &OwnedFd, name: &[u8]) -> io::Result<()> {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

const fn id(file: &FileStat) -> (u64, u64) {
    (file.st_dev, file.st_ino)
}

const fn directory_flags() -> OFlag {
    OFlag::O_DIRECTORY
        .union(OFlag::O_NOFOLLOW)
        .union(OFlag::O_RDONLY)
        .union(OFlag::O_CLOEXEC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_are_safe_in_a_path() {
        for (host, directory) in [
            ("web-1.example_a", "host=web-1.example_a"),
            ("fd00::7", "host=fd00%3A%3A7"),
            ("../a/b=c%", "host=..%2Fa%2Fb%3Dc%25"),
            ("..", "host=.."),
            ("", "host=__HIVE_DEFAULT_PARTITION__"),
        ] {
            assert_eq!(host_directory(host), directory);
        }
    }

    #[test]
    fn temporary_files_are_those_of_a_destination() {
        for (name, is_ours) in [
            (".tollgate.a.1.tmp", true),
            (".tollgate.a.12.tmp", true),
            (".tollgate.a.tmp", false),
            (".tollgate.a..tmp", false),
            (".tollgate.a.1x.tmp", false),
            (".tollgate.a-1.1.tmp", false),
            ("tollgate.a.1.tmp", false),
        ] {
            assert_eq!(is_temporary(name.as_bytes(), "a"), is_ours, "{name}");
        }
    }

    #[test]
    fn file_that_was_exchanged_is_told() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let partition = directory.partition("date=2026-10-02", "host=h").unwrap();
        let temporary = partition.create("a").unwrap();
        std::fs::remove_file(temporary.path()).unwrap();
        std::fs::write(temporary.path(), "other").unwrap();
        let error = temporary.publish("a.parquet").unwrap_err().to_string();
        assert!(
            error.contains("was exchanged by another program"),
            "{error}"
        );
    }
}
