//! The logs of a command line: what of them can be read is read, and the rest is reported.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use logs::log_file::LogError;
use logs::log_set::{LogEntries, LogSet};

use crate::info;

/// The log without another one.
pub(crate) const DEFAULT_LOG: &str = "/var/log/audit/audit.log";

/// Logs by their paths, with the files that were reported because they cannot be read.
#[derive(Debug)]
pub(crate) struct Logs {
    program: &'static str,
    paths: Vec<PathBuf>,
    reported: RefCell<BTreeSet<Option<PathBuf>>>,
}

impl Logs {
    /// One path is a log with its predecessors and archives, several are files; without any it is the default log.
    /// `program` names the program in messages.
    pub(crate) const fn new(program: &'static str, paths: Vec<PathBuf>) -> Self {
        Self {
            program,
            paths,
            reported: RefCell::new(BTreeSet::new()),
        }
    }

    /// The only path, if it is not standard input.
    pub(crate) fn single(&self) -> Option<&Path> {
        match self.paths.as_slice() {
            [] => Some(Path::new(DEFAULT_LOG)),
            [path] if path.as_os_str() != "-" => Some(path),
            _ => None,
        }
    }

    /// Opens the files.
    ///
    /// # Errors
    /// There is no log, or its directory cannot be read.
    pub(crate) fn entries(&self) -> Result<LogEntries, LogError> {
        match self.single() {
            Some(path) => LogEntries::rotated(path),
            None => Ok(LogEntries::files(&self.paths)),
        }
    }

    /// Opens the files that can be opened, and reports the others.
    ///
    /// # Errors
    /// As of [`Logs::entries`].
    pub(crate) fn open(&self) -> Result<LogSet, LogError> {
        Ok(self.entries()?.readable(|error| self.report(&error)))
    }

    /// Reports a file that cannot be read, once.
    pub(crate) fn report(&self, error: &LogError) {
        if self.note(error) {
            info(&format!("{}: {}", self.program, error.report()));
        }
    }

    /// Says why an answer may not be whole; it counts as an error.
    pub(crate) fn complain(&self, text: &str) {
        info(&format!("{}: {text}", self.program));
        self.reported.borrow_mut().insert(None);
    }

    /// Remembers an error without a message; returns false if one of the file is known.
    pub(crate) fn note(&self, error: &LogError) -> bool {
        let path = error.path().map(Path::to_owned);
        self.reported.borrow_mut().insert(path)
    }

    /// Whether a file could not be read.
    pub(crate) fn have_errors(&self) -> bool {
        !self.reported.borrow().is_empty()
    }
}
