//! Files that hold state of the daemon: replaced as a whole, and read only if nobody but this user can have written
//! them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

/// Longer files were not written by tollgate.
const LIMIT_BYTES: u64 = 256 << 20;

/// Flags with which a state file is opened: no link is followed, and a pipe does not block.
pub(crate) const OPEN_FLAGS: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK);

/// Reads a state file. `None` if it does not exist.
///
/// # Errors
/// It cannot be read, or was not written by tollgate.
pub(crate) fn read(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let shown = path.display();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(OPEN_FLAGS.bits())
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot open `{shown}`")),
    };
    ensure_own(&file, path)?;
    let mut text = Vec::new();
    file.take(LIMIT_BYTES)
        .read_to_end(&mut text)
        .with_context(|| format!("cannot read `{shown}`"))?;
    Ok(Some(text))
}

/// Checks that nobody but this user can have written an open state file.
///
/// # Errors
/// Somebody else can.
pub(crate) fn ensure_own(file: &File, path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let about = file
        .metadata()
        .with_context(|| format!("cannot inspect `{shown}`"))?;
    ensure!(
        about.is_file()
            && about.uid() == geteuid().as_raw()
            && about.nlink() == 1
            && about.mode() & 0o022 == 0,
        "`{shown}` is not a regular file without hard links that only root can write: it was not written by tollgate; remove it"
    );
    Ok(())
}

/// Replaces a file atomically, or creates it. After a failure the old file remains, and no other.
///
/// # Errors
/// The kernel's error.
pub(crate) fn replace(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let written = write_new(&new, mode, content).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The write error is the one to report.
        let _removed = remove(&new);
    }
    written
}

fn write_new(new: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    // Of a daemon that was killed here.
    remove(new)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(new)?;
    // Not reduced by the umask.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()
}

/// Removes a file. A missing file is not an error.
///
/// # Errors
/// The kernel's error.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn file_is_replaced_and_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        assert_eq!(read(&path).unwrap(), None);
        fs::write(directory.path().join("state.new"), "of a killed daemon").unwrap();
        for content in [&b"long content"[..], b"short"] {
            replace(&path, 0o640, content).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(content));
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
    }

    #[test]
    fn failed_replacement_leaves_the_old_state() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        fs::create_dir(&path).unwrap();
        replace(&path, 0o600, b"x").unwrap_err();
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn files_that_others_can_write_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        replace(&path, 0o600, b"x").unwrap();
        symlink(&path, directory.path().join("link")).unwrap();
        read(&directory.path().join("link")).unwrap_err();
        read(directory.path()).unwrap_err();
        fs::set_permissions(&path, Permissions::from_mode(0o620)).unwrap();
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.contains("not written by tollgate"), "{error}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(&path, directory.path().join("second")).unwrap();
        read(&path).unwrap_err();
    }
}
