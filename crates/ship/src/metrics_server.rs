//! Metrics of a run for Prometheus: they are made of its file `status`, so that they tell nothing more.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use logs::state_directory;
use metrics::{MetricsAddress, Server};

use crate::output::info;

/// How old an answer may be: clients cannot make the run read its status more often.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The status of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusFile {
    pub(crate) name: &'static str,
    pub(crate) max_bytes: u64,
    /// Makes the metrics of its text.
    pub(crate) metrics: fn(&str) -> anyhow::Result<String>,
}

/// Listens at the address, if there is one.
///
/// # Errors
/// The address is in use or invalid.
pub(crate) fn listen(address: Option<&MetricsAddress>) -> anyhow::Result<Option<Server>> {
    address.map(Server::listen).transpose()
}

/// Serves the metrics of a state directory until the process ends, if there is a server.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(
    server: Option<Server>,
    directory: &Path,
    file: StatusFile,
) -> anyhow::Result<()> {
    let Some(server) = server else {
        return Ok(());
    };
    let directory = directory.to_owned();
    let mut last: Option<(Instant, String)> = None;
    let text = move || {
        if let Some((since, text)) = &last
            && since.elapsed() < MAX_AGE
        {
            return Ok(text.clone());
        }
        let status = state_directory::read(&directory, file.name, file.max_bytes)?;
        let text = (file.metrics)(&status.context("there is no status yet: ask again")?)?;
        last = Some((Instant::now(), text.clone()));
        Ok(text)
    };
    server.start(text, |error| {
        info(format_args!(
            "metrics are no longer served: {error}; start the run again"
        ));
    })
}
