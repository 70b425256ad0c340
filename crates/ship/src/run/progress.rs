//! What a run does, for `tollgate ship status`: the file `status` in the state directory.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::output::now_ms;
use crate::position::Position;

/// Name of the file.
pub(crate) const STATUS: &str = "status";
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
        anyhow::ensure!(
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
