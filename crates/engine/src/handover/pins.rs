//! The pin directory on bpffs. A pinned object outlives the process that created it.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libbpf_rs::libbpf_sys;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::statfs::{BPF_FS_MAGIC, fstatfs};
use nix::unistd::geteuid;

use crate::sys::descriptor::{check_libbpf, fd_from_libbpf};

/// A directory of pins, locked by one daemon at a time.
#[derive(Clone, Debug)]
pub struct PinDirectory(Arc<LockedDirectory>);

#[derive(Debug)]
struct LockedDirectory {
    path: PathBuf,
    /// `flock(2)` on the directory; the kernel releases it when the process ends.
    lock: Flock<File>,
}

/// Why a pin directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The directory is not on bpffs.
    #[error("`{}` is not a directory in a bpf file system, below its root; systemd mounts one at /sys/fs/bpf, as does `mount -t bpf bpf /sys/fs/bpf`", path.display())]
    NotBpf {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has another owner, or grants permissions to group or others.
    #[error("`{}` must be owned by root with mode 0700: run `chown root:root` and `chmod 0700` on it, or set another directory with `pins` in tollgate.toml", path.display())]
    Unsafe {
        /// The directory.
        path: PathBuf,
    },
    /// Another daemon has locked the directory.
    #[error("a daemon uses `{}`: stop it, for example with `systemctl stop tollgate`, or set another directory with `pins` in tollgate.toml", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// An operation on the directory failed.
    #[error("cannot use `{}`", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The error number.
        #[source]
        source: io::Error,
    },
    /// The pins are locked by `-e 2`.
    #[error("`-e 2` has locked the pins in `{}` until the machine restarts", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
}

impl PinDirectory {
    /// Opens and locks the directory. Creates it with mode 0700 if it does not exist.
    ///
    /// # Errors
    /// [`PinError`].
    pub fn open(path: &Path) -> Result<Self, PinError> {
        let failed = |source: io::Error| PinError::Io {
            path: path.to_owned(),
            source,
        };
        let parent = path.parent().unwrap_or(path);
        if !is_bpf_filesystem(parent).map_err(failed)? {
            return Err(PinError::NotBpf {
                path: path.to_owned(),
            });
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits())
            .open(path)
            .map_err(failed)?;
        let metadata = directory.metadata().map_err(failed)?;
        if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            return Err(PinError::Unsafe {
                path: path.to_owned(),
            });
        }
        let lock = Flock::lock(directory, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|_locked| PinError::Busy {
            path: path.to_owned(),
        })?;
        Ok(Self(Arc::new(LockedDirectory {
            path: path.to_owned(),
            lock,
        })))
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The opened and locked directory.
    pub(crate) fn directory(&self) -> &File {
        &self.0.lock
    }

    /// Pins an object. Removes an existing pin of that name first.
    ///
    /// # Errors
    /// As `BPF_OBJ_PIN` of `bpf(2)`.
    pub(crate) fn pin(&self, name: &str, fd: impl AsFd) -> io::Result<()> {
        self.remove(name)?;
        let path = self.c_path(name)?;
        // SAFETY: `path` is NUL-terminated and lives until after the call.
        let result =
            unsafe { libbpf_sys::bpf_obj_pin(fd.as_fd().as_raw_fd(), path.as_c_str().as_ptr()) };
        check_libbpf(result)
    }

    /// Pins an object and atomically replaces an existing pin of that name.
    ///
    /// # Errors
    /// As `BPF_OBJ_PIN` of `bpf(2)` and `rename(2)`.
    pub(crate) fn replace(&self, name: &str, fd: impl AsFd) -> io::Result<()> {
        let new = format!("{name}-new");
        self.pin(&new, fd)?;
        let exchanged = fs::rename(self.path().join(&new), self.path().join(name));
        if exchanged.is_err() {
            // A leftover `-new` pin is removed by the next `pin` or `clear`.
            let _result = self.remove(&new);
        }
        exchanged
    }

    /// Opens a pinned object.
    ///
    /// # Errors
    /// `NotFound` when there is no such pin; others as `BPF_OBJ_GET` of `bpf(2)`.
    pub(crate) fn get(&self, name: &str) -> io::Result<OwnedFd> {
        let path = self.c_path(name)?;
        // SAFETY: `path` is NUL-terminated and lives until after the call.
        let result = unsafe { libbpf_sys::bpf_obj_get(path.as_c_str().as_ptr()) };
        fd_from_libbpf(result)
    }

    /// Whether a pin exists.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.path().join(name).symlink_metadata().is_ok()
    }

    /// Removes a pin, if it exists.
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path().join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Names of the pins with a prefix, without that prefix.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub(crate) fn names(&self, prefix: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path())? {
            let name = entry?.file_name();
            if let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(prefix)) {
                names.push(rest.to_owned());
            }
        }
        Ok(names)
    }

    /// Whether the pins are locked until reboot.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.contains(LOCK_NOTE_PIN)
    }

    /// Notes that the programs of a daemon are about to be replaced by others that are not pinned yet. A daemon
    /// that finds this note reports that calls can be missing since. [`Self::clear`] leaves it in place.
    ///
    /// # Errors
    /// When the checkpoint cannot be opened, or the note cannot be pinned.
    pub fn begin_restart(&self) -> io::Result<()> {
        self.pin(RESTART_NOTE_PIN, self.get(CHECKPOINT_PIN)?)
    }

    /// Whether a daemon ended between [`Self::begin_restart`] and [`Self::end_restart`].
    #[must_use]
    pub fn is_restarting(&self) -> bool {
        self.contains(RESTART_NOTE_PIN)
    }

    /// Removes the note of [`Self::begin_restart`].
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub fn end_restart(&self) -> io::Result<()> {
        self.remove(RESTART_NOTE_PIN)
    }

    /// Removes all pins; objects that nothing else holds end. Removes [`CHECKPOINT_PIN`] first, because a set
    /// of pins without it is incomplete.
    ///
    /// # Errors
    /// [`PinError::Locked`], with all pins in place; [`PinError::Io`].
    pub fn clear(&self) -> Result<(), PinError> {
        if self.is_locked() {
            return Err(PinError::Locked {
                path: self.path().to_owned(),
            });
        }
        let clear = || {
            self.remove(CHECKPOINT_PIN)?;
            let names = self.names("")?;
            let mut names = names.iter().filter(|name| *name != RESTART_NOTE_PIN);
            names.try_for_each(|name| self.remove(name))
        };
        clear().map_err(|source| PinError::Io {
            path: self.path().to_owned(),
            source,
        })
    }

    fn c_path(&self, name: &str) -> io::Result<CString> {
        c_path(&self.path().join(name))
    }
}

/// A path as a C string.
///
/// # Errors
/// When it contains a NUL byte.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// Name of the pin of the checkpoint: the last one created, the first one removed.
pub(crate) const CHECKPOINT_PIN: &str = "header";
/// Prefix of the pins of links: `link-ATTACH_POINT`.
pub(crate) const LINK_PREFIX: &str = "link-";
/// Prefix of the pins of stub copies: `copy-ATTACH_POINT`.
pub(crate) const COPY_PREFIX: &str = "copy-";
/// Prefix of the pins of maps.
pub(crate) const MAP_PREFIX: &str = "map-";
/// Prefix of the pins of plan snapshots: `plan-EPOCH`.
pub(crate) const PLAN_PREFIX: &str = "plan-";
/// Name of the pin of the lock note.
pub(crate) const LOCK_NOTE_PIN: &str = "locked";

/// Name of the pin of [`PinDirectory::begin_restart`].
const RESTART_NOTE_PIN: &str = "restarting";

fn is_bpf_filesystem(path: &Path) -> io::Result<bool> {
    Ok(fstatfs(File::open(path)?)?.filesystem_type() == BPF_FS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_directory_must_be_on_bpffs() {
        let directory = tempfile::tempdir().unwrap();
        let error = PinDirectory::open(&directory.path().join("pins")).unwrap_err();
        assert!(matches!(error, PinError::NotBpf { .. }), "{error}");
        assert!(!directory.path().join("pins").exists());
    }
}
