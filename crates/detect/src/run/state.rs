//! The state directory: where the next run continues, and what this one has done.
//!
//! The file `cursor` has a line: the cursor and its checksum; the file `status` is that of [`super::progress`]; the file
//! `windows` has what correlation rules remember, the cursor to which that belongs, and the one before.
//! [`StateDirectory`] replaces each as a whole. `windows` is written before `cursor`; a program that ends between both
//! leaves a `cursor` that is the one before in `windows`, and the next run continues at that of `windows`.

use std::path::Path;

use anyhow::{Context as _, bail};
use logs::cursor::Cursor;
use logs::state_directory::{self, StateDirectory, StateError};

use super::saver::Snapshot;
use crate::output::info;
use crate::sigma::correlation::Correlations;
use crate::sigma::correlation::saved::{MAX_TEXT_BYTES, Saved};

const CURSOR: &str = "cursor";
const STATUS: &str = "status";
const WINDOWS: &str = "windows";
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
    directory: StateDirectory,
    /// The cursor that was read or written last.
    saved: Option<Cursor>,
}

impl State {
    /// Opens and locks the directory, which must exist.
    ///
    /// # Errors
    /// It is no directory, or another program has locked it.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let directory = match StateDirectory::open(path) {
            Err(StateError::Directory(path, error)) => {
                let shown = path.display();
                return Err(error).with_context(|| {
                    format!("cannot open state directory `{shown}`: create it, or name another with --state")
                });
            }
            Err(StateError::Locked(path)) => bail!(
                "another `tollgate-detect run` uses state directory `{}`",
                path.display()
            ),
            directory => directory?,
        };
        Ok(Self {
            directory,
            saved: None,
        })
    }

    /// Where the last run ended. A damaged position is told.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn position(&mut self) -> anyhow::Result<Position> {
        let Some(text) = self.directory.read(CURSOR, MAX_CURSOR_BYTES)? else {
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
            if let Err(error) = self.directory.remove(WINDOWS) {
                info(format_args!("{:#}", anyhow::Error::from(error)));
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
        let text = self.directory.read(WINDOWS, MAX_TEXT_BYTES)?;
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
        self.directory.path_of(name).display().to_string()
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
                self.directory.replace(WINDOWS, &text)?;
            }
            self.directory.replace(CURSOR, &position_text(cursor))?;
            self.saved = Some(cursor);
        }
        match snapshot.status {
            Some(text) => Ok(self.directory.replace(STATUS, &text)?),
            None => Ok(()),
        }
    }
}

/// Text of the file `cursor`. A position with another number is often one of the log too, and would hide the events before
/// it: the checksum tells.
fn position_text(cursor: Cursor) -> String {
    let cursor = cursor.to_string();
    let sum = checksum(&cursor);
    format!("{cursor} {sum:08x}\n")
}

/// The position in a text, unless it is damaged.
fn parse_position(text: &str) -> Option<Cursor> {
    let (cursor, sum) = text.trim_end().split_once(' ')?;
    let is_whole = sum == format!("{:08x}", checksum(cursor));
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
    match state_directory::read(path, STATUS, MAX_STATUS_BYTES) {
        Err(StateError::Directory(path, error)) => Err(error).with_context(|| {
            let shown = path.display();
            format!("cannot open state directory `{shown}`: name that of the run with --state, or be root")
        }),
        text => Ok(text?),
    }
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
        symlink(&target, path.join("cursor.new")).unwrap();
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
        damaged.push("1:2:3:4:5\n".to_owned());
        for text in damaged {
            fs::write(place.path().join(CURSOR), &text).unwrap();
            assert_eq!(state.position().unwrap(), Position::Unknown, "{text}");
        }
        fs::write(place.path().join(CURSOR), whole).unwrap();
        assert_eq!(state.position().unwrap(), Position::At(cursor));
        assert_eq!(checksum("foobar"), 0xbf9c_f968);
        let absent = place.path().join("absent");
        let error = format!("{:#}", State::open(&absent).unwrap_err());
        assert!(error.starts_with("cannot open state directory"), "{error}");
    }
}
