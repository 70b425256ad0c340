//! Names on a bpf file system: what has one outlives the process that made it.

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

use crate::sys::descriptor::fd_from_libbpf;

/// A directory of names that belongs to one daemon at a time.
#[derive(Clone, Debug)]
pub struct PinDirectory(Arc<LockedDirectory>);

#[derive(Debug)]
struct LockedDirectory {
    path: PathBuf,
    /// Held for as long as the directory is used, and let go by the kernel however the process ends.
    lock: Flock<File>,
}

/// Why nothing can be pinned in a directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// It is on another file system.
    #[error("`{}` is not on a bpf file system; `mount -t bpf bpf /sys/fs/bpf` mounts one, as systemd does", path.display())]
    NotBpf {
        /// The directory.
        path: PathBuf,
    },
    /// Others could put something into it.
    #[error("`{}` is no directory of root alone", path.display())]
    Unsafe {
        /// The directory.
        path: PathBuf,
    },
    /// Another daemon uses it.
    #[error("another daemon uses `{}`", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// The kernel refuses something.
    #[error("cannot use `{}`", path.display())]
    Refused {
        /// The directory, or the name in it.
        path: PathBuf,
        /// The answer.
        #[source]
        source: io::Error,
    },
    /// What is pinned there lasts as long as the machine.
    #[error("what is pinned in `{}` is locked until the machine starts again", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
}

impl PinDirectory {
    /// Opens the directory, and makes it, for root alone, if there is none.
    ///
    /// # Errors
    /// [`PinError`].
    pub fn open(path: &Path) -> Result<Self, PinError> {
        let refused = |source: io::Error| PinError::Refused {
            path: path.to_owned(),
            source,
        };
        let above = path.parent().unwrap_or(path);
        if !is_bpf_filesystem(above).map_err(refused)? {
            return Err(PinError::NotBpf {
                path: path.to_owned(),
            });
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(refused(error));
            }
            _ => {}
        }
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits())
            .open(path)
            .map_err(refused)?;
        let about = directory.metadata().map_err(refused)?;
        if about.uid() != geteuid().as_raw() || about.mode() & 0o077 != 0 {
            return Err(PinError::Unsafe {
                path: path.to_owned(),
            });
        }
        let lock = Flock::lock(directory, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|_taken| PinError::Busy {
            path: path.to_owned(),
        })?;
        Ok(Self(Arc::new(LockedDirectory {
            path: path.to_owned(),
            lock,
        })))
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The directory, as it is open and locked.
    pub(crate) fn directory(&self) -> &File {
        &self.0.lock
    }

    /// Gives something a name, which replaces what has it.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn pin(&self, name: &str, fd: impl AsFd) -> io::Result<()> {
        self.remove(name)?;
        let path = self.c_path(name)?;
        // SAFETY: the path is a string that outlives the call.
        let answer =
            unsafe { libbpf_sys::bpf_obj_pin(fd.as_fd().as_raw_fd(), path.as_c_str().as_ptr()) };
        if answer < 0 {
            return Err(io::Error::from_raw_os_error(-answer));
        }
        Ok(())
    }

    /// Gives something a name in one step: whatever ends this process, what has had the name or this has it.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn replace(&self, name: &str, fd: impl AsFd) -> io::Result<()> {
        let new = format!("{name}-new");
        self.pin(&new, fd)?;
        let exchanged = fs::rename(self.path().join(&new), self.path().join(name));
        if exchanged.is_err() {
            // That it stays keeps nobody from anything.
            let _removed = self.remove(&new);
        }
        exchanged
    }

    /// What has a name; an error of kind `NotFound` when nothing has.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn get(&self, name: &str) -> io::Result<OwnedFd> {
        let path = self.c_path(name)?;
        // SAFETY: the path is a string that outlives the call.
        let answer = unsafe { libbpf_sys::bpf_obj_get(path.as_c_str().as_ptr()) };
        fd_from_libbpf(answer)
    }

    /// Whether something has a name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.path().join(name).symlink_metadata().is_ok()
    }

    /// Takes a name away, if something has it.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path().join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// All names that start so, without that start.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub(crate) fn names(&self, start: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path())? {
            let name = entry?.file_name();
            if let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(start)) {
                names.push(rest.to_owned());
            }
        }
        Ok(names)
    }

    /// Whether what is pinned is locked until the machine starts again.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.contains(LOCK_NOTE_PIN)
    }

    /// Takes all names away, and with them what nobody else holds. [`CHECKPOINT_PIN`] is the first: without it the
    /// others are nothing.
    ///
    /// # Errors
    /// [`PinError::Locked`], with all names in their places, and [`PinError::Refused`].
    pub fn clear(&self) -> Result<(), PinError> {
        if self.is_locked() {
            return Err(PinError::Locked {
                path: self.path().to_owned(),
            });
        }
        let clear = || {
            self.remove(CHECKPOINT_PIN)?;
            self.names("")?
                .iter()
                .try_for_each(|name| self.remove(name))
        };
        clear().map_err(|source| PinError::Refused {
            path: self.path().to_owned(),
            source,
        })
    }

    fn c_path(&self, name: &str) -> io::Result<CString> {
        c_path(&self.path().join(name))
    }
}

/// A path for the kernel.
///
/// # Errors
/// When there is a zero byte in it.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// Name of the checkpoint, which is given when all others are, and taken away before them.
pub(crate) const CHECKPOINT_PIN: &str = "header";
/// What names of links, and of the programs that are copies, begin with; behind it comes the attach point.
pub(crate) const LINK_PREFIX: &str = "link-";
pub(crate) const COPY_PREFIX: &str = "copy-";
/// What names of maps begin with.
pub(crate) const MAP_PREFIX: &str = "map-";
/// What names of notes about plans begin with; behind it comes the epoch.
pub(crate) const PLAN_PREFIX: &str = "plan-";
/// Name of the note about what is locked.
pub(crate) const LOCK_NOTE_PIN: &str = "locked";

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
