//! Archives of logs.

use std::fs::File;
use std::path::Path;

use anyhow::Context as _;
use logs::archive_writer::{self, Written};
use logs::log_file::LogFile;

/// Writes a new archive with the text of a log.
///
/// # Errors
/// The log cannot be read, or the archive exists or cannot be written.
pub fn write(log: &Path, archive: &Path) -> anyhow::Result<Written> {
    let out = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(archive)
        .with_context(|| format!("cannot create `{}`", archive.display()))?;
    Ok(archive_writer::write(
        &mut LogFile::open(log)?,
        &out,
        &|| false,
    )?)
}
