//! The log file: whole batches of records, appended.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

/// Bits of a mode that let others than the owner write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// An open log file.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    /// A write has ended within a line: the next one starts a new line.
    torn: bool,
}

impl Log {
    /// Opens the log for appending; makes it, readable by its owner only, and its directory.
    ///
    /// # Errors
    /// When the path leads through a link at its end, to something that is no regular file, or into a
    /// directory where other users could put one.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let directory = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => bail!("the log must be a file, `{}` is none", path.display()),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .with_context(|| format!("cannot make directory `{}`", directory.display()))?;
        let about = std::fs::metadata(directory)
            .with_context(|| format!("cannot look at directory `{}`", directory.display()))?;
        let foreign = about.uid() != geteuid().as_raw() && about.uid() != 0;
        let open_to_others = about.mode() & WRITABLE_BY_OTHERS != 0 && about.mode() & STICKY == 0;
        if foreign || open_to_others {
            bail!(
                "directory `{}` belongs to, or can be written by, other users, who could replace the log; choose another one",
                directory.display()
            );
        }
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits() | OFlag::O_NONBLOCK.bits())
            .open(path)
            .with_context(|| format!("cannot open log `{}`", path.display()))?;
        let about = file
            .metadata()
            .with_context(|| format!("cannot look at log `{}`", path.display()))?;
        if !about.is_file() || about.nlink() != 1 || about.uid() != geteuid().as_raw() {
            bail!(
                "log `{}` is no regular file of our own with one name",
                path.display()
            );
        }
        Ok(Self { file, torn: false })
    }

    /// Appends a batch of whole lines.
    ///
    /// # Errors
    /// What `write(2)` answered; a part of the batch may have been written, and the next batch starts
    /// on a line of its own.
    pub(crate) fn append(&mut self, batch: &[u8]) -> io::Result<()> {
        if self.torn {
            self.file.write_all(b"\n")?;
            self.torn = false;
        }
        let mut left = batch;
        while !left.is_empty() {
            match self.file.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => left = left.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let written = batch.len() - left.len();
                    self.torn = batch
                        .get(..written)
                        .is_some_and(|text| text.last().is_some_and(|&last| last != b'\n'));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Waits until everything written is on the disk.
    ///
    /// # Errors
    /// What `fdatasync(2)` answered.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn batches_are_appended_to_a_file_of_the_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/audit.log");
        Log::open(&path).unwrap().append(b"one\n").unwrap();
        Log::open(&path).unwrap().append(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn a_link_or_a_directory_in_place_of_the_log_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        std::fs::write(&target, b"").unwrap();
        symlink(&target, directory.path().join("link")).unwrap();
        assert!(Log::open(&directory.path().join("link")).is_err());
        assert!(Log::open(directory.path()).is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"");
    }

    #[test]
    fn a_file_with_a_second_name_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        std::fs::write(&path, b"").unwrap();
        std::fs::hard_link(&path, directory.path().join("other")).unwrap();
        let error = Log::open(&path).unwrap_err();
        assert!(format!("{error:#}").contains("one name"), "{error:#}");
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Log::open(&open.join("audit.log")).is_err());
    }
}
