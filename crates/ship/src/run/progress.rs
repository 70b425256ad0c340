//! What a run does, for `tollgate ship status`: the file `status` in the state directory.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use logs::cursor::Cursor;
use logs::log_set::LogEntries;
use serde::{Deserialize, Serialize};

use crate::output::now_ms;
use crate::position::Position;

/// Name of the file.
pub(crate) const STATUS: &str = "status";
/// Most bytes of it: some hundred for each destination and reason of losses.
pub(crate) const MAX_STATUS_BYTES: u64 = 4 << 20;
/// Version of the file: another one cannot be read.
const VERSION: u32 = 1;

/// What a run does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Progress<D = SharedProgress> {
    version: u32,
    /// In milliseconds since the epoch.
    pub(crate) started_ms: u64,
    /// The log.
    pub(crate) log: String,
    pub(crate) host: String,
    pub(crate) destinations: Vec<D>,
}

/// What a destination does; its thread changes it.
pub(crate) type SharedProgress = Arc<Mutex<DestinationProgress>>;

/// What a destination does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DestinationProgress {
    pub(crate) name: String,
    /// What it is, for people.
    pub(crate) description: String,
    pub(crate) state: ConnectionState,
    /// Why it failed last, if it does not work again.
    pub(crate) error: Option<String>,
    /// Failures since it worked.
    pub(crate) failures: u32,
    /// What it has confirmed.
    pub(crate) position: Position,
    /// Events that were sent and are not confirmed.
    pub(crate) unconfirmed: u64,
}

/// Whether a destination takes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ConnectionState {
    /// It is being connected.
    Connecting,
    /// It takes events.
    Connected,
    /// It failed, and is tried again later.
    Waiting,
    /// It takes no more events.
    Ended,
}

impl ConnectionState {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Waiting => "waiting",
            Self::Ended => "ended",
        }
    }
}

impl DestinationProgress {
    /// Bytes of the log that the destination has not confirmed.
    ///
    /// # Errors
    /// The log cannot be read, or no longer has the position.
    pub(crate) fn behind(&self, log: &str) -> anyhow::Result<u64> {
        let cursor: Cursor = self.position.cursor()?.context("no position yet")?;
        // The run has written the name, and root must not wait for a pipe.
        let is_file = fs::metadata(log).is_ok_and(|about| about.is_file());
        ensure!(is_file, "the log is not there");
        let log = Path::new(log);
        // What cannot be opened the run cannot send either.
        let logs = LogEntries::rotated(log)?.readable_with(log, |_| ())?;
        let mut files = logs
            .as_files()
            .iter()
            .skip_while(|file| file.id() != Some(cursor.file));
        let first = files.next().context("the log no longer has the position")?;
        let mut bytes = first.size()?.unwrap_or(0).saturating_sub(cursor.offset);
        for file in files {
            bytes += file.size()?.unwrap_or(0);
        }
        Ok(bytes)
    }
}

impl Progress {
    /// A run that begins.
    pub(super) fn new(log: &Path, host: &str) -> Self {
        Self {
            version: VERSION,
            started_ms: now_ms(),
            log: absolute(log),
            host: host.to_owned(),
            destinations: Vec::new(),
        }
    }

    /// Text of the file.
    ///
    /// # Errors
    /// None is known.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let copy = |shared: &SharedProgress| {
            shared
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        };
        let copied = Progress {
            version: self.version,
            started_ms: self.started_ms,
            log: self.log.clone(),
            host: self.host.clone(),
            destinations: self.destinations.iter().map(copy).collect(),
        };
        Ok(serde_json::to_string(&copied)? + "\n")
    }
}

impl Progress<DestinationProgress> {
    /// Reads the file.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let progress: Self = serde_json::from_str(text)?;
        ensure!(
            progress.version == VERSION,
            "it has version {}, and this program reads {VERSION}: use the version of the run",
            progress.version
        );
        Ok(progress)
    }
}

/// Name of a log that does not depend on the working directory.
fn absolute(log: &Path) -> String {
    let absolute = std::path::absolute(log);
    absolute
        .as_deref()
        .unwrap_or(log)
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use logs::event_reader::EventReader;
    use logs::log_set::LogSet;

    use super::*;

    #[test]
    fn old_logs_that_cannot_be_opened_do_not_hide_how_far_a_destination_is() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("audit.log");
        fs::write(&log, "type=CWD msg=audit(1.000:1): cwd=\"/\"\n").unwrap();
        let mut position = Position::new();
        let mut reader = EventReader::new(LogSet::rotated(&log).unwrap());
        position.set_cursor(reader.cursor().unwrap());
        fs::create_dir(place.path().join("audit.log.4")).unwrap();
        let progress = DestinationProgress {
            name: "a".to_owned(),
            description: String::new(),
            state: ConnectionState::Connected,
            error: None,
            failures: 0,
            position,
            unconfirmed: 0,
        };
        let length = fs::metadata(&log).unwrap().len();
        assert_eq!(progress.behind(log.to_str().unwrap()).unwrap(), length);
    }
}
