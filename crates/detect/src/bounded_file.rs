//! Reads files that others wrote.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

use crate::sigma::Mistake;
use crate::sigma::document::MAX_FILE_BYTES;

/// Reads a file that is no larger than files of rules are.
///
/// # Errors
/// It cannot be read, is no regular file, too large, or not UTF-8.
pub(crate) fn read(path: &Path) -> Result<String, Mistake> {
    let failed = |error: std::io::Error| {
        let reason = format!("the file cannot be read: {error}");
        Mistake::new(1, reason, "correct the path or the permissions")
    };
    // A pipe would wait for a writer.
    let flags = OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
        .map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(Mistake::new(
            1,
            "it is not a regular file",
            "name a regular file",
        ));
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX);
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() > MAX_FILE_BYTES {
        let reason = format!("the file has more than {MAX_FILE_BYTES} bytes");
        return Err(Mistake::new(1, reason, "split it"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to());
        let lines = valid
            .unwrap_or_default()
            .iter()
            .filter(|byte| **byte == b'\n');
        Mistake::new(
            lines.count() + 1,
            "the line is not UTF-8",
            "convert the file",
        )
    })
}
