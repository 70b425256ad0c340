//! What `-e 2` has locked, kept for daemons that come after this one until the machine starts again.
//!
//! A file beside the control socket: the boot in which it holds, the rules and the settings. It keeps a
//! restart of the daemon from being a way round `-e 2`, and restores what is locked; it does not keep
//! out root, who can remove the file.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::control::rule::RuleForm;
use crate::control::wire::Settings;

/// Name of the file, in the directory of the control socket.
const NAME: &str = "locked";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Longer files are not of ours.
const LIMIT_BYTES: u64 = 256 << 20;

/// What is locked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Locked {
    pub(super) settings: Settings,
    /// In evaluation order.
    pub(super) rules: Vec<RuleForm>,
}

/// The file.
#[derive(Clone, Debug)]
pub(super) struct LockFile {
    /// `None` without a control socket.
    path: Option<PathBuf>,
    boot: String,
}

/// Contents of the file.
#[derive(Serialize, Deserialize)]
struct Kept {
    boot_id: String,
    locked: Locked,
}

impl LockFile {
    /// The file beside a control socket.
    ///
    /// # Errors
    /// When the kernel does not tell which boot this is.
    pub(super) fn beside(socket: Option<&Path>) -> anyhow::Result<Self> {
        Ok(Self {
            path: socket.map(|socket| socket.with_file_name(NAME)),
            boot: boot_id()?,
        })
    }

    /// What was locked since the machine started; nothing when nothing was.
    ///
    /// # Errors
    /// When there is a file that cannot be read or is not ours: it may say that all is locked.
    pub(super) fn read(&self) -> anyhow::Result<Option<Locked>> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let shown = path.display();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot open `{shown}`")),
        };
        let about = file
            .metadata()
            .with_context(|| format!("cannot look at `{shown}`"))?;
        ensure!(
            about.is_file() && about.uid() == geteuid().as_raw() && about.mode() & 0o022 == 0,
            "`{shown}` is no file that only root can write to: it was not written by tollgate"
        );
        let mut text = Vec::new();
        file.take(LIMIT_BYTES)
            .read_to_end(&mut text)
            .with_context(|| format!("cannot read `{shown}`"))?;
        let kept: Kept = serde_json::from_slice(&text).with_context(|| {
            format!(
                "`{shown}` says what `-e 2` has locked, and cannot be read; it holds until the \
                 machine starts again"
            )
        })?;
        Ok((kept.boot_id == self.boot).then_some(kept.locked))
    }

    /// Keeps what is locked. Without a control socket there is nothing to keep: rules change by a restart
    /// only.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(&self, locked: &Locked) -> anyhow::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let shown = path.display();
        let kept = Kept {
            boot_id: self.boot.clone(),
            locked: locked.clone(),
        };
        let text = serde_json::to_vec(&kept).context("cannot write JSON")?;
        let new = path.with_extension("new");
        let written = remove(&new)
            .and_then(|()| {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&new)
            })
            .and_then(|mut file: File| file.write_all(&text).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&new, path));
        written.with_context(|| format!("cannot write `{shown}`, which keeps what is locked"))
    }
}

/// Which boot of the machine this is.
///
/// # Errors
/// When the kernel does not tell.
pub(super) fn boot_id() -> anyhow::Result<String> {
    let text = fs::read_to_string(BOOT_ID).with_context(|| format!("cannot read `{BOOT_ID}`"))?;
    Ok(text.trim().to_owned())
}

/// Removes a file that an interrupted write may have left.
fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked() -> Locked {
        Locked {
            settings: Settings {
                enabled: 2,
                ..Settings::default()
            },
            rules: Vec::new(),
        }
    }

    #[test]
    fn what_is_locked_holds_in_this_boot_only() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control");
        let file = LockFile::beside(Some(&socket)).unwrap();
        assert_eq!(file.read().unwrap(), None);
        file.write(&locked()).unwrap();
        file.write(&locked()).unwrap();
        assert_eq!(file.read().unwrap(), Some(locked()));
        let about = fs::metadata(directory.path().join(NAME)).unwrap();
        assert_eq!(about.mode() & 0o777, 0o600);
        let later = LockFile {
            boot: "another".into(),
            ..file
        };
        assert_eq!(later.read().unwrap(), None);
    }

    #[test]
    fn a_file_that_is_not_ours_is_no_way_round() {
        let directory = tempfile::tempdir().unwrap();
        let file = LockFile::beside(Some(&directory.path().join("control"))).unwrap();
        fs::write(directory.path().join(NAME), "{").unwrap();
        let error = format!("{:#}", file.read().unwrap_err());
        assert!(error.contains("cannot be read"), "{error}");
        fs::remove_file(directory.path().join(NAME)).unwrap();
        std::os::unix::fs::symlink("/dev/null", directory.path().join(NAME)).unwrap();
        file.read().unwrap_err();
    }

    #[test]
    fn without_a_control_socket_nothing_is_kept() {
        let file = LockFile::beside(None).unwrap();
        file.write(&locked()).unwrap();
        assert_eq!(file.read().unwrap(), None);
    }
}
