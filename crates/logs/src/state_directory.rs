//! The state directory of a program that follows a log: where its next run continues, and what this one has done.
//!
//! Each file is replaced as a whole: `NAME.new` is written, synced and renamed, so that a program or machine that ends
//! at any time leaves the old or the new one. No link is followed in the directory, and the file `lock` keeps a second
//! program out. The directory belongs to an unprivileged user: what root reads of it is bounded.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use bstr::ByteSlice as _;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

const LOCK: &str = "lock";

/// Error of a state directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The directory cannot be opened.
    #[error("cannot open state directory `{}`", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// Another program has the lock.
    #[error("another program uses state directory `{}`", .0.display())]
    Locked(PathBuf),
    /// A file cannot be opened: it may be a link.
    #[error("cannot open `{}`", .0.display())]
    Open(PathBuf, #[source] io::Error),
    /// A file cannot be read.
    #[error("cannot read `{}`", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// A file cannot be written or removed; the old one stays.
    #[error("cannot write `{}`", .0.display())]
    Write(PathBuf, #[source] io::Error),
}

/// A state directory, locked.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    directory: OwnedFd,
    _lock: Flock<File>,
}

impl StateDirectory {
    /// Opens and locks the directory, which must exist.
    ///
    /// # Errors
    /// It is no directory, or another program has locked it.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let directory = open_directory(path)?;
        let failed = |errno: Errno| StateError::Write(path.join(LOCK), errno.into());
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let lock = openat(&directory, LOCK, flags, mode()).map_err(failed)?;
        match Flock::lock(File::from(lock), FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self {
                path: path.to_owned(),
                directory,
                _lock: lock,
            }),
            Err((_, Errno::EWOULDBLOCK)) => Err(StateError::Locked(path.to_owned())),
            Err((_, errno)) => Err(failed(errno)),
        }
    }

    /// Path of a file.
    #[must_use]
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Text of a file, up to a number of bytes; `None` if there is none. Bytes that are no text, in a damaged file, become
    /// U+FFFD.
    ///
    /// # Errors
    /// It cannot be read, or is a link.
    pub fn read(&self, name: &str, most_bytes: u64) -> Result<Option<String>, StateError> {
        read_at(&self.directory, &self.path, name, most_bytes)
    }

    /// Replaces a file.
    ///
    /// # Errors
    /// It cannot be written; the old one stays.
    pub fn replace(&self, name: &str, text: &str) -> Result<(), StateError> {
        self.try_replace(name, text)
            .map_err(|error| StateError::Write(self.path_of(name), error))
    }

    /// Removes a file, if it exists.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), StateError> {
        self.try_remove(name)
            .map_err(|error| StateError::Write(self.path_of(name), error))
    }

    fn try_replace(&self, name: &str, text: &str) -> io::Result<()> {
        let new = format!("{name}.new");
        self.try_remove(&new)?;
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(&self.directory, new.as_str(), flags, mode())?);
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        renameat(&self.directory, new.as_str(), &self.directory, name)?;
        Ok(())
    }

    fn try_remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// As [`StateDirectory::read`], in a directory that another program may have locked.
///
/// # Errors
/// The directory or the file cannot be read.
pub fn read(path: &Path, name: &str, most_bytes: u64) -> Result<Option<String>, StateError> {
    read_at(&open_directory(path)?, path, name, most_bytes)
}

/// Whether a program has locked a directory.
///
/// # Errors
/// The directory or its lock cannot be read.
pub fn is_locked(path: &Path) -> Result<bool, StateError> {
    let failed = |errno: Errno| StateError::Open(path.join(LOCK), errno.into());
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let lock = match openat(&open_directory(path)?, LOCK, flags, Mode::empty()) {
        Ok(lock) => File::from(lock),
        Err(Errno::ENOENT) => return Ok(false),
        Err(errno) => return Err(failed(errno)),
    };
    // Shared: two programs that ask do not take each other for the owner.
    match Flock::lock(lock, FlockArg::LockSharedNonblock) {
        Ok(_) => Ok(false),
        Err((_, Errno::EWOULDBLOCK)) => Ok(true),
        Err((_, errno)) => Err(failed(errno)),
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, StateError> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty())
        .map_err(|errno| StateError::Directory(path.to_owned(), errno.into()))
}

fn read_at(
    directory: &OwnedFd,
    path: &Path,
    name: &str,
    most_bytes: u64,
) -> Result<Option<String>, StateError> {
    let failed = |error: io::Error| StateError::Read(path.join(name), error);
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(StateError::Open(path.join(name), errno.into())),
    };
    let mut text = Vec::new();
    file.take(most_bytes)
        .read_to_end(&mut text)
        .map_err(failed)?;
    Ok(Some(text.to_str_lossy().into_owned()))
}

const fn mode() -> Mode {
    Mode::S_IRUSR.union(Mode::S_IWUSR)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_replaced_and_no_link_followed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path();
        assert!(!is_locked(path).unwrap());
        let state = StateDirectory::open(path).unwrap();
        assert!(is_locked(path).unwrap());
        assert_eq!(state.read("a", 9).unwrap(), None);
        let target = path.join("target");
        fs::write(&target, "kept").unwrap();
        symlink(&target, path.join("a.new")).unwrap();
        state.replace("a", "one").unwrap();
        assert_eq!(read(path, "a", 9).unwrap().as_deref(), Some("one"));
        assert_eq!(state.read("a", 2).unwrap().as_deref(), Some("on"));
        fs::write(path.join("a"), b"a\xff").unwrap();
        assert_eq!(state.read("a", 9).unwrap().as_deref(), Some("a\u{fffd}"));
        state.remove("a").unwrap();
        state.remove("a").unwrap();
        symlink(&target, path.join("a")).unwrap();
        assert!(state.read("a", 9).is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        let error = StateDirectory::open(path).unwrap_err().to_string();
        assert!(error.starts_with("another program uses"), "{error}");
        drop(state);
        assert!(!is_locked(path).unwrap());
        let error = StateDirectory::open(&path.join("absent")).unwrap_err();
        assert!(error.to_string().starts_with("cannot open state directory"));
    }
}
