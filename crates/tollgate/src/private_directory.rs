//! Directories that the daemon creates for its files.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::messages::info;

/// Directory that tollgate names itself, so that it is not mistyped: sockets and state until the next boot.
pub(crate) const RUN: &str = "/run/tollgate";

/// Creates a directory with mode 0700 if it is missing, and says so. The directory above it must exist: otherwise the
/// path is probably mistyped.
///
/// # Errors
/// The directory cannot be created.
pub(crate) fn create(directory: &Path) -> anyhow::Result<()> {
    let shown = directory.display();
    if directory.is_dir() {
        return Ok(());
    }
    let created = DirBuilder::new()
        .mode(0o700)
        .recursive(directory == Path::new(RUN))
        .create(directory);
    match created {
        Ok(()) => {
            info(&format!("created directory `{shown}`"));
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let above = directory.parent().unwrap_or(directory).display();
            bail!("directory `{above}` does not exist: correct the path, or create the directory")
        }
        Err(error) => Err(error).with_context(|| format!("cannot create directory `{shown}`")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn one_directory_is_created() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("audit");
        create(&directory).unwrap();
        create(&directory).unwrap();
        assert_eq!(
            fs::metadata(&directory).unwrap().permissions().mode() & 0o777,
            0o700
        );
        create(Path::new(".")).unwrap();
    }

    #[test]
    fn mistyped_path_creates_nothing() {
        let above = tempfile::tempdir().unwrap();
        let error = create(&above.path().join("vra/log"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("vra` does not exist: correct the path"),
            "{error}"
        );
        assert_eq!(fs::read_dir(above.path()).unwrap().count(), 0);
        fs::write(above.path().join("file"), "").unwrap();
        let error = format!("{:#}", create(&above.path().join("file/log")).unwrap_err());
        assert!(error.contains("cannot create"), "{error}");
    }
}
