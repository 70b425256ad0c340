//! `tollgate search`: finds events in logs.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser as _;
use logs::event_reader::EventReader;
use logs::log_set::LogSet;

/// Find events in the audit log
#[derive(Debug, clap::Parser)]
#[command(name = "tollgate-search", version, max_term_width = 100)]
struct Args {
    /// Logs to search, oldest first; `-` is standard input
    #[arg(long, value_name = "FILE")]
    log: Vec<PathBuf>,
}

/// Prints the records of all events.
///
/// # Errors
/// When a log cannot be read, or the output cannot be written.
pub(crate) fn run(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let args = Args::parse_from(words);
    let logs = match args.log.as_slice() {
        [] => LogSet::rotated(Path::new("/var/log/audit/audit.log"))?,
        files => LogSet::files(files)?,
    };
    let mut out = io::stdout().lock();
    let mut reader = EventReader::new(logs);
    while let Some(event) = reader.next_event()? {
        out.write_all(event.text())?;
    }
    Ok(ExitCode::SUCCESS)
}
