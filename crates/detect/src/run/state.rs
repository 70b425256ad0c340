//! The state directory: where the next run continues, and what this one has done.
//!
//! The file `cursor` has a line: the cursor and its checksum; the file `status` is that of [`super::progress`]; the file `windows` has
//! what correlation rules remember, the cursor to which that belongs, and the one before. Each is replaced as a whole:
//! `cursor.new` is written, synced and renamed, so that a program or machine that ends at any time leaves the old or the
//! new one. `windows` is written before `cursor`; a program that ends between both leaves a `cursor` that is the one
//! before in `windows`, and the next run continues at that of `windows`. No link is followed in the directory, and a
//! lock keeps a second program out.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use bstr::ByteSlice as _;
use logs::cursor::Cursor;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::saver::Snapshot;
use crate::output::info;
use crate::sigma::correlation::Correlations;
use crate::sigma::correlation::saved::{MAX_TEXT_BYTES, Saved};

const CURSOR: &str = "cursor";
const NEW_CURSOR: &str = "cursor.new";
const STATUS: &str = "status";
const NEW_STATUS: &str = "status.new";
const WINDOWS: &str = "windows";
const NEW_WINDOWS: &str = "windows.new";
const LOCK: &str = "lock";
/// Most bytes of a cursor: five numbers.
const MAX_CURSOR_BYTES: u64 = 256;
/// Most bytes of a status: some hundred for each of at most 20,000 rules.
const MAX_STATUS_BYTES: u64 = 32 << 20;

/// Where a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// There was no run before.
    None,
    /// Where the last run ended.
    At(Cursor),
    /// What the last run saved is damaged: any event may not have been evaluated.
    Unknown,
}

impl Position {
    const fn cursor(self) -> Option<Cursor> {
        match self {
            Self::At(cursor) => Some(cursor),
            Self::None | Self::Unknown => None,
        }
    }
}

/// The state directory, locked.
#[derive(Debug)]
pub(super) struct State {
    path: PathBuf,
    directory: OwnedFd,
    /// The cursor that was read or written last.
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

    /// Where the last run ended. A damaged position is told.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn position(&mut self) -> anyhow::Result<Position> {
        let Some(text) = read(&self.directory, &self.path, CURSOR, MAX_CURSOR_BYTES)? else {
            return Ok(Position::None);
        };
        match parse_position(&text) {
            Some(cursor) => {
                self.saved = Some(cursor);
                Ok(Position::At(cursor))
            }
            None => {
                info(format_args!(
                    "`{}` is damaged: continuing with the oldest event of the log; alerts that are repeated have the same ids",
                    self.shown(CURSOR)
                ));
                Ok(Position::Unknown)
            }
        }
    }

    /// Where the last run ended, with what its correlation rules remembered, which these get.
    ///
    /// # Errors
    /// The position cannot be read. Windows that cannot be used are told.
    pub(super) fn restore(&mut self, correlations: &mut Correlations) -> anyhow::Result<Position> {
        let position = self.position()?;
        if correlations.rules().is_empty() {
            // They would be too old for the next run with correlation rules.
            match unlinkat(&self.directory, WINDOWS, UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => info(format_args!(
                    "cannot remove `{}`: {errno}",
                    self.shown(WINDOWS)
                )),
            }
            return Ok(position);
        }
        match self.windows(position.cursor()) {
            Ok(None) => Ok(position),
            Ok(Some((saved, cursor))) => {
                let left_out = correlations.restore(saved);
                if left_out > 0 {
                    info(format_args!(
                        "{left_out} groups of correlation rules begin anew: their rules have changed"
                    ));
                }
                Ok(Position::At(cursor))
            }
            Err(error) => {
                info(format_args!(
                    "correlation rules begin anew: cannot use `{}`: {error:#}",
                    self.shown(WINDOWS)
                ));
                Ok(position)
            }
        }
    }

    /// What correlation rules remembered, and where; `None` if nothing was saved.
    fn windows(&self, cursor: Option<Cursor>) -> anyhow::Result<Option<(Saved, Cursor)>> {
        let text = read(&self.directory, &self.path, WINDOWS, MAX_TEXT_BYTES)?;
        let Some(text) = text else {
            return Ok(None);
        };
        let saved = Saved::parse(&text)?;
        let cursor = cursor.map(|cursor| cursor.to_string());
        if cursor.as_ref() != Some(&saved.cursor) && cursor != saved.before {
            bail!("it belongs to another position in the log");
        }
        let position = saved.cursor.parse()?;
        Ok(Some((saved, position)))
    }

    fn shown(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// Replaces what correlation rules remember and then the cursor, if it is another one than the last, and then the
    /// status.
    ///
    /// # Errors
    /// One cannot be written; the old ones stay.
    pub(super) fn save(&mut self, snapshot: Snapshot) -> anyhow::Result<()> {
        if let Some(cursor) = snapshot.cursor.filter(|_| self.saved != snapshot.cursor) {
            if let Some(mut windows) = snapshot.windows {
                windows.before = self.saved.map(|cursor| cursor.to_string());
                let text = serde_json::to_string(&windows).context("cannot write the windows")?;
                self.replace(WINDOWS, NEW_WINDOWS, &text)?;
            }
            self.replace(CURSOR, NEW_CURSOR, &position_text(cursor))?;
            self.saved = Some(cursor);
        }
        match snapshot.status {
            Some(text) => self.replace(STATUS, NEW_STATUS, &text),
            None => Ok(()),
        }
    }

    fn replace(&self, name: &str, new: &str, text: &str) -> anyhow::Result<()> {
        self.try_replace(name, new, text)
            .with_context(|| format!("cannot write `{}`", self.shown(name)))
    }

    fn try_replace(&self, name: &str, new: &str, text: &str) -> io::Result<()> {
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

/// Text of the file `cursor`. A position with another number is often one of the log too, and would hide the events before
/// it: the checksum tells.
fn position_text(cursor: Cursor) -> String {
    let cursor = cursor.to_string();
    let sum = checksum(&cursor);
    format!("{cursor} {sum:08x}\n")
}

/// The position in a text, unless it is damaged. Earlier versions wrote no checksum.
fn parse_position(text: &str) -> Option<Cursor> {
    let text = text.trim_end();
    let (cursor, sum) = text.split_once(' ').unwrap_or((text, ""));
    let is_whole = sum.is_empty() || sum == format!("{:08x}", checksum(cursor));
    cursor.parse().ok().filter(|_| is_whole)
}

/// # Source
/// FNV-1a of Fowler, Noll and Vo, with 32 bits.
fn checksum(text: &str) -> u32 {
    let next = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, next)
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

/// Text of a file in a directory, up to a number of bytes; `None` if there is none. No link is followed. Bytes that are no
/// text, in a damaged file, become U+FFFD.
fn read(directory: &OwnedFd, path: &Path, name: &str, most: u64) -> anyhow::Result<Option<String>> {
    let shown = path.join(name);
    let shown = shown.display();
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(errno).with_context(|| format!("cannot open `{shown}`")),
    };
    let mut text = Vec::new();
    file.take(most)
        .read_to_end(&mut text)
        .with_context(|| format!("cannot read `{shown}`"))?;
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
    fn cursor_is_replaced_and_no_link_followed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path();
        let mut state = State::open(path).unwrap();
        let at = |cursor| Snapshot {
            cursor: Some(cursor),
            ..Snapshot::default()
        };
        assert!(state.position().unwrap() == Position::None);
        let cursor: Cursor = "1:2:3:4:5".parse().unwrap();
        let target = path.join("target");
        fs::write(&target, "kept").unwrap();
        symlink(&target, path.join(NEW_CURSOR)).unwrap();
        state.save(at(cursor)).unwrap();
        assert_eq!(state.position().unwrap(), Position::At(cursor));
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        fs::remove_file(path.join(CURSOR)).unwrap();
        symlink(&target, path.join(CURSOR)).unwrap();
        assert!(state.position().is_err());
        // The same again is not written.
        state.save(at(cursor)).unwrap();
        assert!(state.position().is_err());
        let next: Cursor = "1:2:3:5:6".parse().unwrap();
        state.save(at(next)).unwrap();
        assert_eq!(state.position().unwrap(), Position::At(next));
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        let error = format!("{:#}", State::open(path).unwrap_err());
        assert!(
            error.starts_with("another `tollgate-detect run` uses"),
            "{error}"
        );
    }

    #[test]
    fn damaged_positions_are_unknown_and_missing_directories_are_errors() {
        let place = tempfile::tempdir().unwrap();
        let mut state = State::open(place.path()).unwrap();
        let cursor: Cursor = "1:2:3:4:5".parse().unwrap();
        let whole = position_text(cursor);
        let mut damaged = vec![String::new(), "1:2".to_owned(), "\0\0\0\0".to_owned()];
        // Another number is a position too.
        damaged.push(whole.replace(":4:", ":5:"));
        damaged.push(whole.replace(":4:", ":\u{fffd}:"));
        for text in damaged {
            fs::write(place.path().join(CURSOR), &text).unwrap();
            assert_eq!(state.position().unwrap(), Position::Unknown, "{text}");
        }
        for text in [whole.as_str(), "1:2:3:4:5\n"] {
            fs::write(place.path().join(CURSOR), text).unwrap();
            assert_eq!(state.position().unwrap(), Position::At(cursor));
        }
        assert_eq!(checksum("foobar"), 0xbf9c_f968);
        let absent = place.path().join("absent");
        let error = format!("{:#}", State::open(&absent).unwrap_err());
        assert!(error.starts_with("cannot open state directory"), "{error}");
    }
}
