//! The state directory: where the next run continues, and what this one has done.
//!
//! The file `cursor` has a line: the cursor; the file `status` is that of [`super::progress`]. Each is replaced as a whole: `cursor.new` is written, synced and renamed, so
//! that a program or machine that ends at any time leaves the old or the new one. No link is followed in the directory,
//! and a lock keeps a second program out.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use logs::cursor::Cursor;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

const CURSOR: &str = "cursor";
const NEW_CURSOR: &str = "cursor.new";
const STATUS: &str = "status";
const NEW_STATUS: &str = "status.new";
const LOCK: &str = "lock";
/// Most bytes of a cursor: five numbers.
const MAX_CURSOR_BYTES: u64 = 256;
/// Most bytes of a status: some hundred for each of at most 20,000 rules.
const MAX_STATUS_BYTES: u64 = 32 << 20;

/// The state directory, locked.
#[derive(Debug)]
pub(super) struct State {
    path: PathBuf,
    directory: OwnedFd,
    /// The cursor that was written last.
    saved: Option<Cursor>,
    _lock: Flock<File>,
}

impl State {
    /// Opens and locks the directory, which must exist.
    ///
    /// # Errors
    /// It is no directory, or another program has locked it.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(path, flags, Mode::empty()).with_context(|| {
            format!(
                "cannot open state directory `{shown}`: create it, or name another with --state"
            )
        })?;
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let lock = openat(&directory, LOCK, flags, mode())
            .with_context(|| format!("cannot open `{shown}/{LOCK}`"))?;
        let lock = match Flock::lock(File::from(lock), FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, Errno::EWOULDBLOCK)) => {
                bail!("another `tollgate-detect run` uses state directory `{shown}`")
            }
            Err((_, errno)) => {
                return Err(errno).with_context(|| format!("cannot lock `{shown}/{LOCK}`"));
            }
        };
        Ok(Self {
            path: path.to_owned(),
            directory,
            saved: None,
            _lock: lock,
        })
    }

    /// Where the last run ended; `None` before the first.
    ///
    /// # Errors
    /// The file cannot be read, or is no cursor.
    pub(super) fn cursor(&self) -> anyhow::Result<Option<Cursor>> {
        let shown = self.path.join(CURSOR);
        let shown = shown.display();
        let Some(text) = read(&self.directory, &self.path, CURSOR, MAX_CURSOR_BYTES)? else {
            return Ok(None);
        };
        let cursor = text.trim_end().parse();
        cursor.map(Some).with_context(|| {
            format!("`{shown}` is damaged: remove it; the next run begins at the end of the log, or with --from-start at its start")
        })
    }

    /// Replaces the cursor, if it is another one than the last.
    ///
    /// # Errors
    /// It cannot be written; the old one stays.
    pub(super) fn save(&mut self, cursor: Cursor) -> anyhow::Result<()> {
        if self.saved == Some(cursor) {
            return Ok(());
        }
        self.replace(CURSOR, NEW_CURSOR, &format!("{cursor}\n"))
            .with_context(|| format!("cannot write `{}`", self.path.join(CURSOR).display()))?;
        self.saved = Some(cursor);
        Ok(())
    }

    /// Replaces the status.
    ///
    /// # Errors
    /// It cannot be written; the old one stays.
    pub(super) fn save_status(&self, text: &str) -> anyhow::Result<()> {
        self.replace(STATUS, NEW_STATUS, text)
            .with_context(|| format!("cannot write `{}`", self.path.join(STATUS).display()))
    }

    fn replace(&self, name: &str, new: &str, text: &str) -> io::Result<()> {
        match unlinkat(&self.directory, new, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(&self.directory, new, flags, mode())?);
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        renameat(&self.directory, new, &self.directory, name)?;
        Ok(())
    }
}

/// The status in a state directory; `None` if it has none.
///
/// # Errors
/// The directory or the file cannot be read.
pub(crate) fn status(path: &Path) -> anyhow::Result<Option<String>> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = open(path, flags, Mode::empty()).with_context(|| {
        let shown = path.display();
        format!(
            "cannot open state directory `{shown}`: name that of the run with --state, or be root"
        )
    })?;
    read(&directory, path, STATUS, MAX_STATUS_BYTES)
}

/// Text of a file in a directory, up to a number of bytes; `None` if there is none. No link is followed.
fn read(directory: &OwnedFd, path: &Path, name: &str, most: u64) -> anyhow::Result<Option<String>> {
    let shown = path.join(name);
    let shown = shown.display();
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(errno).with_context(|| format!("cannot open `{shown}`")),
    };
    let mut text = String::new();
    file.take(most)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read `{shown}`"))?;
    Ok(Some(text))
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
    fn cursor_is_replaced_and_no_link_followed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path();
        let mut state = State::open(path).unwrap();
        assert!(state.cursor().unwrap().is_none());
        let cursor: Cursor = "1:2:3:4:5".parse().unwrap();
        let target = path.join("target");
        fs::write(&target, "kept").unwrap();
        symlink(&target, path.join(NEW_CURSOR)).unwrap();
        state.save(cursor).unwrap();
        assert_eq!(state.cursor().unwrap(), Some(cursor));
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        fs::remove_file(path.join(CURSOR)).unwrap();
        symlink(&target, path.join(CURSOR)).unwrap();
        assert!(state.cursor().is_err());
        // The same again is not written.
        state.save(cursor).unwrap();
        assert!(state.cursor().is_err());
        let next: Cursor = "1:2:3:5:6".parse().unwrap();
        state.save(next).unwrap();
        assert_eq!(state.cursor().unwrap(), Some(next));
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        let error = format!("{:#}", State::open(path).unwrap_err());
        assert!(
            error.starts_with("another `tollgate-detect run` uses"),
            "{error}"
        );
    }

    #[test]
    fn damaged_cursors_and_missing_directories_are_errors() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join(CURSOR), "1:2").unwrap();
        let state = State::open(place.path()).unwrap();
        let error = format!("{:#}", state.cursor().unwrap_err());
        assert!(error.contains("is damaged: remove it"), "{error}");
        let absent = place.path().join("absent");
        let error = format!("{:#}", State::open(&absent).unwrap_err());
        assert!(error.starts_with("cannot open state directory"), "{error}");
    }
}
