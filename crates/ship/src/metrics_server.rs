//! Metrics of a run for Prometheus: they are made of its file `status`, so that they tell nothing more.

use std::path::Path;

use anyhow::Context as _;
use logs::state_directory;
use metrics::{MetricsAddress, Server};

use crate::output::info;

/// The status of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusFile {
    pub(crate) name: &'static str,
    pub(crate) max_bytes: u64,
    /// Makes the metrics of its text.
    pub(crate) metrics: fn(&str) -> anyhow::Result<String>,
}

/// Listens at the address, if there is one and no other process has it.
///
/// # Errors
/// As of [`Server::listen`].
pub(crate) fn listen(address: Option<&MetricsAddress>) -> anyhow::Result<Option<Server>> {
    address.map_or(Ok(None), |address| Server::listen(address, info))
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
    let text = move || {
        let status = state_directory::read(&directory, file.name, file.max_bytes)?;
        (file.metrics)(&status.context("there is no status yet: ask again")?)
    };
    server.start(text, |error| {
        info(format_args!(
            "metrics are no longer served: {error}; start the run again"
        ));
    })
}
