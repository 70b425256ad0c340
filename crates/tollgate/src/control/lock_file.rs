//! State locked by `-e 2`, kept for the next daemon until the machine reboots.
//!
//! A file beside the control socket, and a lock note in the pin directory, which takes precedence: the boot ID, the
//! rules and the settings, including those of the log. With it a daemon restart cannot undo `-e 2`, and the next
//! daemon restores the locked state. Root can remove the file. The note is protected where the kernel lets BPF
//! programs deny calls.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use engine::read_lock_note;
use serde::{Deserialize, Serialize};

use crate::config::capture::CaptureOptions;
use crate::control::protocol::AuditSettings;
use crate::control::rule_json::RuleJson;
use crate::json_bytes::JsonBytes;
use crate::sinks::audit_log::LockedLogSettings;
use crate::state_file;

/// File name, in the directory of the control socket.
const FILE_NAME: &str = "locked";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The locked state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LockedState {
    /// Settings that commands change, without the counters of one daemon.
    pub(crate) settings: AuditSettings,
    /// Capture options at the start of the daemon.
    #[serde(rename = "means")]
    pub(crate) capture: CaptureOptions,
    /// Keys of the rules that deny a syscall which cannot be recorded.
    pub(crate) deny: Vec<JsonBytes>,
    /// Path and settings of the log. Older daemons did not store them: then the current settings are taken, and
    /// stored.
    #[serde(default)]
    pub(crate) log: Option<LockedLogSettings>,
    /// In evaluation order.
    pub(crate) rules: Vec<RuleJson>,
}

/// The lock file and the lock note.
#[derive(Clone, Debug)]
pub(crate) struct LockFile {
    /// `None` without a control socket.
    path: Option<PathBuf>,
    /// Lock note found in the pin directory.
    pinned_state: Option<Vec<u8>>,
    boot: String,
}

/// Contents of the file.
#[derive(Serialize, Deserialize)]
struct LockFileContent {
    boot_id: String,
    locked: LockedState,
}

/// Whether a file beside a control socket is a lock file.
pub(crate) fn is_name(name: &OsStr) -> bool {
    name == FILE_NAME
}

/// The error of a locked rule that this build cannot read.
pub(crate) fn unreadable_rule(number: u32, why: &str) -> anyhow::Error {
    anyhow!(
        "cannot read rule {number} that `-e 2` locked: {why}; start the build of tollgate that locked it, or restart the \
         machine"
    )
}

impl LockFile {
    /// Locates the file beside the control socket, and reads the note of the pin directory.
    ///
    /// # Errors
    /// The note or the boot ID cannot be read.
    pub(crate) fn locate(socket: Option<&Path>, pins: Option<&Path>) -> anyhow::Result<Self> {
        let pinned_state = pins.map(|pins| {
            read_lock_note(pins).with_context(|| {
                format!(
                    "cannot read what `-e 2` locked in `{}`: only the tollgate program that locked it can; start that \
                     program, or restart the machine",
                    pins.display()
                )
            })
        });
        Ok(Self {
            path: socket.map(|socket| socket.with_file_name(FILE_NAME)),
            pinned_state: pinned_state.transpose()?.flatten(),
            boot: boot_id()?,
        })
    }

    /// Reads the state locked since the machine started. `None` if nothing is locked.
    ///
    /// # Errors
    /// The note or the file cannot be read or was not written by tollgate: the state may be locked.
    pub(crate) fn read(&self) -> anyhow::Result<Option<LockedState>> {
        if let Some(pinned_state) = &self.pinned_state {
            return self.of(pinned_state, "the pinned lock note");
        }
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let text = state_file::read(path).map_err(|error| {
            anyhow!(
                "cannot read what `-e 2` locked: {error:#}; if `-e 2` was not given since the machine started, remove `{}`",
                path.display()
            )
        })?;
        let Some(text) = text else {
            return Ok(None);
        };
        self.of(&text, &format!("`{}`", path.display()))
    }

    /// Parses a lock note or file. `None` if it is of another boot.
    fn of(&self, text: &[u8], shown: &str) -> anyhow::Result<Option<LockedState>> {
        let content: LockFileContent = serde_json::from_slice(text).map_err(|error| {
            anyhow!(
                "cannot read {shown}, which has what `-e 2` locked: another build of tollgate wrote it, or it is damaged \
                 ({error}); start that build, or restart the machine"
            )
        })?;
        Ok((content.boot_id == self.boot).then_some(content.locked))
    }

    /// Writes the state to the file and returns the text of the lock note. Without a control socket there is no file:
    /// then only a restart can change rules.
    ///
    /// # Errors
    /// The file cannot be written. The old file remains.
    pub(crate) fn write(&self, locked: &LockedState) -> anyhow::Result<Vec<u8>> {
        let content = LockFileContent {
            boot_id: self.boot.clone(),
            locked: locked.clone(),
        };
        let text = serde_json::to_vec(&content).context("cannot encode JSON")?;
        let Some(path) = &self.path else {
            return Ok(text);
        };
        state_file::replace(path, 0o600, &text)
            .with_context(|| format!("cannot write the lock file `{}`", path.display()))?;
        Ok(text)
    }

    /// Removes the file because its state is not in force.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        state_file::remove(path).with_context(|| {
            let shown = path.display();
            format!(
                "cannot remove the lock file `{shown}`, which is not in force: remove it by hand"
            )
        })
    }
}

/// Returns the kernel's boot ID.
///
/// # Errors
/// The boot ID cannot be read.
pub(crate) fn boot_id() -> anyhow::Result<String> {
    let text = fs::read_to_string(BOOT_ID).with_context(|| format!("cannot read `{BOOT_ID}`"))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::config::capture::tests::USUAL;
    use crate::sinks::audit_log::LogConfig;

    fn locked() -> LockedState {
        LockedState {
            settings: AuditSettings {
                enabled: 2,
                ..AuditSettings::default()
            },
            capture: USUAL,
            deny: vec![JsonBytes::new(b"key")],
            log: Some(LogConfig::plain("/log".into()).locked_settings()),
            rules: Vec::new(),
        }
    }

    #[test]
    fn locked_state_is_valid_in_this_boot_only() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control");
        let file = LockFile::locate(Some(&socket), None).unwrap();
        assert_eq!(file.read().unwrap(), None);
        file.write(&locked()).unwrap();
        file.write(&locked()).unwrap();
        assert_eq!(file.read().unwrap(), Some(locked()));
        let about = fs::metadata(directory.path().join(FILE_NAME)).unwrap();
        assert_eq!(about.mode() & 0o777, 0o600);
        let later = LockFile {
            boot: "another".into(),
            ..file
        };
        assert_eq!(later.read().unwrap(), None);
    }

    /// A note of a daemon that did not store the log settings.
    #[test]
    fn lock_file_of_an_older_daemon_is_read() {
        let file = LockFile::locate(None, None).unwrap();
        let text = String::from_utf8(file.write(&locked()).unwrap()).unwrap();
        let log = r#""log":{"path":"/log","conf":null},"#;
        let older = text.replacen(log, "", 1);
        assert_ne!(older, text);
        let expected = LockedState {
            log: None,
            ..locked()
        };
        let pinned = LockFile {
            pinned_state: Some(older.into_bytes()),
            ..file
        };
        assert_eq!(pinned.read().unwrap(), Some(expected));
    }

    #[test]
    fn foreign_lock_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = LockFile::locate(Some(&directory.path().join("control")), None).unwrap();
        fs::write(directory.path().join(FILE_NAME), "{").unwrap();
        let error = format!("{:#}", file.read().unwrap_err());
        assert!(
            error.contains("another build of tollgate wrote it, or it is damaged"),
            "{error}"
        );
        fs::remove_file(directory.path().join(FILE_NAME)).unwrap();
        std::os::unix::fs::symlink("/dev/null", directory.path().join(FILE_NAME)).unwrap();
        file.read().unwrap_err();
    }

    #[test]
    fn failed_write_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = LockFile::locate(Some(&directory.path().join("control")), None).unwrap();
        let place = directory.path().join(FILE_NAME);
        fs::create_dir(&place).unwrap();
        file.write(&locked()).unwrap_err();
        fs::remove_dir(&place).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        file.write(&locked()).unwrap();
        file.remove().unwrap();
        file.remove().unwrap();
        assert_eq!(file.read().unwrap(), None);
    }

    #[test]
    fn no_lock_file_is_written_without_a_control_socket() {
        let file = LockFile::locate(None, None).unwrap();
        file.write(&locked()).unwrap();
        assert_eq!(file.read().unwrap(), None);
    }

    #[test]
    fn pinned_lock_note_precedes_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control");
        let file = LockFile::locate(Some(&socket), None).unwrap();
        let text = file.write(&locked()).unwrap();
        fs::write(directory.path().join(FILE_NAME), "{").unwrap();
        let pinned = |text: &[u8]| LockFile {
            pinned_state: Some(text.to_vec()),
            ..file.clone()
        };
        assert_eq!(pinned(&text).read().unwrap(), Some(locked()));
        pinned(b"{").read().unwrap_err();
    }
}
