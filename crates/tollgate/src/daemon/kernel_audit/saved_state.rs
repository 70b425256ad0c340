//! Previous settings of the kernel's audit, stored in a file while the daemon changes them.
//!
//! The user of the file holds a lock on it. The file is emptied but never removed, so that the lock applies to the
//! file that the next daemon opens.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::control::lock_file::boot_id;
use crate::control::server::ensure_private_directory;
use crate::messages::info;
use crate::state_file;

/// Longer files were not written by tollgate.
const LIMIT_BYTES: u64 = 4096;

/// Settings to restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PreviousSettings {
    pub(super) enabled: u32,
    pub(super) backlog_limit: u32,
    pub(super) backlog_wait_time: u32,
    /// Whether `-a never,task` was loaded.
    pub(super) never_task: bool,
}

/// The file and its contents.
#[derive(Debug)]
pub(super) struct SavedStateFile {
    path: PathBuf,
    file: File,
    boot: String,
    before: Option<PreviousSettings>,
}

/// Contents of the file.
#[derive(Serialize, Deserialize)]
struct SavedState {
    boot_id: String,
    before: PreviousSettings,
}

impl SavedStateFile {
    /// Opens and locks the file; `None` if another process has locked it.
    ///
    /// # Errors
    /// The file cannot be opened, or was not written by tollgate.
    pub(super) fn take(path: &Path) -> anyhow::Result<Option<Self>> {
        let shown = path.display();
        if let Some(directory) = path.parent() {
            ensure_private_directory(directory)?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(state_file::OPEN_FLAGS.bits())
            .open(path)
            .with_context(|| format!("cannot open `{shown}`"))?;
        state_file::ensure_own(&file, path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock `{shown}`"));
            }
        }
        let boot = boot_id()?;
        let mut text = Vec::new();
        (&mut file)
            .take(LIMIT_BYTES)
            .read_to_end(&mut text)
            .with_context(|| format!("cannot read `{shown}`"))?;
        let before = if text.is_empty() {
            None
        } else {
            match serde_json::from_slice::<SavedState>(&text) {
                Ok(saved) => (saved.boot_id == boot).then_some(saved.before),
                Err(error) => {
                    info(&format!(
                        "cannot read the previous settings of the kernel's audit from `{shown}`: {error}; they are not restored"
                    ));
                    None
                }
            }
        };
        Ok(Some(Self {
            path: path.to_owned(),
            file,
            boot,
            before,
        }))
    }

    /// Previous settings that are not restored yet.
    pub(super) const fn before(&self) -> Option<PreviousSettings> {
        self.before
    }

    /// Stores the previous settings.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn keep(&mut self, before: PreviousSettings) -> anyhow::Result<()> {
        let saved = SavedState {
            boot_id: self.boot.clone(),
            before,
        };
        let text = serde_json::to_vec(&saved).context("cannot encode JSON")?;
        self.write(&text)
            .with_context(|| format!("cannot write `{}`", self.path.display()))?;
        self.before = Some(before);
        Ok(())
    }

    /// Empties the file: the previous settings are restored.
    pub(super) fn clear(&mut self) {
        self.before = None;
        if let Err(error) = self.write(&[]) {
            info(&format!("cannot write `{}`: {error}", self.path.display()));
        }
    }

    fn write(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: PreviousSettings = PreviousSettings {
        enabled: 0,
        backlog_limit: 64,
        backlog_wait_time: 15_000,
        never_task: false,
    };

    #[test]
    fn saved_state_persists_until_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kernel-audit");
        let mut saved = SavedStateFile::take(&path).unwrap().unwrap();
        assert_eq!(saved.before(), None);
        saved.keep(BEFORE).unwrap();
        assert!(
            SavedStateFile::take(&path).unwrap().is_none(),
            "it is locked"
        );
        drop(saved);
        let mut saved = SavedStateFile::take(&path).unwrap().unwrap();
        assert_eq!(saved.before(), Some(BEFORE));
        saved.clear();
        drop(saved);
        assert_eq!(SavedStateFile::take(&path).unwrap().unwrap().before(), None);
    }

    #[test]
    fn state_of_another_boot_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kernel-audit");
        let mut saved = SavedStateFile::take(&path).unwrap().unwrap();
        saved.boot = "another".into();
        saved.keep(BEFORE).unwrap();
        drop(saved);
        assert_eq!(SavedStateFile::take(&path).unwrap().unwrap().before(), None);
        std::fs::write(&path, "{").unwrap();
        assert_eq!(SavedStateFile::take(&path).unwrap().unwrap().before(), None);
    }

    #[test]
    fn symlink_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kernel-audit");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        SavedStateFile::take(&path).unwrap_err();
    }
}
