//! Opens all predecessors of a log that is rotated meanwhile.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::{LogError, LogFile, predecessors};
use crate::cursor::FileId;

/// How often predecessors are looked for if the log is rotated meanwhile.
const MAX_PASSES: usize = 64;

/// Adds the predecessors of a log to `files`, which has the log, if there is one. The newest is first.
///
/// # Errors
/// A predecessor cannot be opened.
pub(super) fn open_predecessors(current: &Path, files: &mut Vec<LogFile>) -> Result<(), LogError> {
    for _ in 0..MAX_PASSES {
        if add_predecessors(current, files)? {
            break;
        }
    }
    Ok(())
}

/// Opens the predecessors of a log that are not among `files`, and adds each behind the next newer one. Returns whether
/// these are all: if not, a rotation meanwhile may have hidden a file, because the directory is not listed at once and
/// files move to greater numbers, even past those that were listed.
///
/// A file that is newer than all of `files` came since, and is left out.
fn add_predecessors(current: &Path, files: &mut Vec<LogFile>) -> Result<bool, LogError> {
    let known = files.len();
    let place = |files: &[LogFile], id: Option<FileId>| {
        id.and_then(|id| files.iter().position(|file| file.id() == Some(id)))
    };
    let (newest, paths) = (id_of(current), predecessors(current));
    // Where the next older file is to be, and the path of the file before it.
    let mut next = match files.first() {
        None => Some((0, None)),
        Some(first) if first.id().is_none() => Some((1, None)),
        Some(_) => place(files, newest).map(|at| (at + 1, Some(current))),
    };
    for path in &paths {
        let mut id = id_of(path);
        if place(files, id).is_none() {
            let file = match LogFile::open_text(path) {
                Ok(file) => file,
                Err(error) if error.is_missing() => continue,
                Err(error) => return Err(error),
            };
            id = file.id();
            if let (None, Some((at, before))) = (place(files, id), next) {
                // Otherwise two rotations may have brought a newer file here.
                let newer = at.checked_sub(1).and_then(|at| files.get(at)?.id());
                if before.is_some_and(|before| id_of(before) != newer) {
                    return Ok(false);
                }
                files.insert(at.min(files.len()), file);
            }
        }
        if let Some(at) = place(files, id) {
            next = Some((at + 1, Some(path)));
        }
    }
    let is_unchanged = newest == id_of(current) && paths == predecessors(current);
    Ok(is_unchanged && next.is_some() && files.len() == known)
}

/// Identity of the file that a path names.
fn id_of(path: &Path) -> Option<FileId> {
    let about = fs::metadata(path).ok()?;
    Some(FileId {
        device: about.dev(),
        inode: about.ino(),
    })
}
