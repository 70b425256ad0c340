//! The state directory: where the next run continues, and what this one has done.
//!
//! The file `cursor` has a line: the cursor; the file `status` is that of [`super::progress`]; the file `windows` has
//! what correlation rules remember, the cursor to which that belongs, and the one before. [`StateDirectory`] replaces
//! each as a whole. `windows` is written before `cursor`; a program that ends between both leaves a `cursor` that is the
//! one before in `windows`, and the next run continues at that of `windows`.

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

    /// Where the last run ended; `None` before the first.
    ///
    /// # Errors
    /// The file cannot be read, or is no cursor.
    pub(super) fn cursor(&mut self) -> anyhow::Result<Option<Cursor>> {
        let shown = self.shown(CURSOR);
        let Some(text) = self.directory.read(CURSOR, MAX_CURSOR_BYTES)? else {
            return Ok(None);
        };
        let cursor = text.trim_end().parse();
        let cursor = cursor.with_context(|| {
            format!("`{shown}` is damaged: remove it; the next run begins at the end of the log, or with --from-start at its start")
        })?;
        self.saved = Some(cursor);
        Ok(self.saved)
    }

    /// Where the last run ended, with what its correlation rules remembered, which these get.
    ///
    /// # Errors
    /// The position cannot be read. Windows that cannot be used are told.
    pub(super) fn restore(
        &mut self,
        correlations: &mut Correlations,
    ) -> anyhow::Result<Option<Cursor>> {
        let cursor = self.cursor()?;
        if correlations.rules().is_empty() {
            // They would be too old for the next run with correlation rules.
            if let Err(error) = self.directory.remove(WINDOWS) {
                info(format_args!("{:#}", anyhow::Error::from(error)));
            }
            return Ok(cursor);
        }
        match self.windows(cursor) {
            Ok(None) => Ok(cursor),
            Ok(Some((saved, position))) => {
                let left_out = correlations.restore(saved);
                if left_out > 0 {
                    info(format_args!(
                        "{left_out} groups of correlation rules begin anew: their rules have changed"
                    ));
                }
                Ok(Some(position))
            }
            Err(error) => {
                info(format_args!(
                    "correlation rules begin anew: cannot use `{}`: {error:#}",
                    self.shown(WINDOWS)
                ));
                Ok(cursor)
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
            self.directory.replace(CURSOR, &format!("{cursor}\n"))?;
            self.saved = Some(cursor);
        }
        match snapshot.status {
            Some(text) => Ok(self.directory.replace(STATUS, &text)?),
            None => Ok(()),
        }
    }
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
        assert!(state.cursor().unwrap().is_none());
        let cursor: Cursor = "1:2:3:4:5".parse().unwrap();
        let target = path.join("target");
        fs::write(&target, "kept").unwrap();
        symlink(&target, path.join("cursor.new")).unwrap();
        state.save(at(cursor)).unwrap();
        assert_eq!(state.cursor().unwrap(), Some(cursor));
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        fs::remove_file(path.join(CURSOR)).unwrap();
        symlink(&target, path.join(CURSOR)).unwrap();
        assert!(state.cursor().is_err());
        // The same again is not written.
        state.save(at(cursor)).unwrap();
        assert!(state.cursor().is_err());
        let next: Cursor = "1:2:3:5:6".parse().unwrap();
        state.save(at(next)).unwrap();
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
        let mut state = State::open(place.path()).unwrap();
        let error = format!("{:#}", state.cursor().unwrap_err());
        assert!(error.contains("is damaged: remove it"), "{error}");
        let absent = place.path().join("absent");
        let error = format!("{:#}", State::open(&absent).unwrap_err());
        assert!(error.starts_with("cannot open state directory"), "{error}");
    }
}
