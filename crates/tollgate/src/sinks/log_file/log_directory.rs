//! The directory of a log, held open: it cannot be replaced by a link or another directory while the log is rotated
//! or reopened.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstatat};
use nix::unistd::{Gid, UnlinkatFlags, fchown, geteuid, unlinkat};

use super::{LogAccess, ReadOnlyLog};
use crate::private_directory;

/// Mode bits that allow others to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// Mode bits that can be set.
const MODE: u32 = 0o7777;
/// Mode of a directory that the group of the logs may read.
const ADMITTED: u32 = 0o750;
/// The directory of indexes, without its dot.
const INDEX_DIRECTORY: &[u8] = b"tollgate-index";

/// An open directory in which no other user can replace files.
#[derive(Debug)]
pub(crate) struct LogDirectory {
    file: File,
    shown: String,
}

impl LogDirectory {
    /// Path of the directory of `log`.
    ///
    /// # Errors
    /// The path has no file name.
    pub(crate) fn path_of(log: &Path) -> anyhow::Result<PathBuf> {
        match log.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Ok(".".into()),
            Some(parent) => Ok(parent.to_owned()),
            None => bail!("the log path `{}` has no file name", log.display()),
        }
    }

    /// Opens the directory of `log`. Creates it with mode 0700 if it is missing, but not the one above it, whose name
    /// is then mistyped.
    ///
    /// # Errors
    /// Other users could replace files in it, or it is a symbolic link.
    pub(crate) fn of(log: &Path) -> anyhow::Result<Self> {
        private_directory::create(&Self::path_of(log)?)?;
        Self::existing(log)
    }

    /// Opens the directory of `log`, which exists.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(crate) fn existing(log: &Path) -> anyhow::Result<Self> {
        let path = &Self::path_of(log)?;
        let is_link = path
            .symlink_metadata()
            .is_ok_and(|about| about.is_symlink());
        if is_link {
            bail!(
                "directory `{}` is a symbolic link: use the path of its target",
                path.display()
            );
        }
        let file = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits())
            .open(path)
            .with_context(|| format!("cannot open directory `{}`", path.display()))?;
        let about = file
            .metadata()
            .with_context(|| format!("cannot inspect directory `{}`", path.display()))?;
        let foreign = about.uid() != geteuid().as_raw() && about.uid() != 0;
        let open_to_others = about.mode() & WRITABLE_BY_OTHERS != 0 && about.mode() & STICKY == 0;
        if foreign || open_to_others {
            bail!(
                "directory `{}` can be written by other users, who could replace the log; choose a directory that only root can write",
                path.display()
            );
        }
        Ok(Self {
            file,
            shown: path.display().to_string(),
        })
    }

    /// Opens a log for appending, and creates it if it is missing.
    ///
    /// # Errors
    /// The file is a link, not a regular file, owned by another user, or has a second name.
    pub(crate) fn open_log(&self, name: &Path, access: &LogAccess) -> anyhow::Result<File> {
        let shown = || format!("{}/{}", self.shown, name.display());
        let flags = OFlag::O_RDWR
            | OFlag::O_APPEND
            | OFlag::O_CREAT
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_CLOEXEC
            | access.flags;
        let open = || openat(&self.file, name, flags, Mode::from_bits_truncate(0o600));
        let mut opened = open();
        // The confined daemon cannot override file modes.
        if matches!(opened, Err(Errno::EACCES))
            && access.closed == ReadOnlyLog::Reopen
            && self.make_writable(name).is_ok()
        {
            opened = open();
        }
        let file = opened
            .map(File::from)
            .with_context(|| format!("cannot open log `{}`", shown()))?;
        let own =
            is_owned_log(&file).with_context(|| format!("cannot inspect log `{}`", shown()))?;
        if !own {
            bail!(
                "log `{}` must be a regular file without hard links, owned by the user who runs tollgate",
                shown()
            );
        }
        if let Some(group) = access.group {
            let mode = if group == 0 { 0o600 } else { 0o640 };
            set_group_and_mode(&file, group, mode)
                .with_context(|| format!("cannot set group and mode of log `{}`", shown()))?;
        }
        Ok(file)
    }

    /// Opens or creates the file that locks a log.
    ///
    /// # Errors
    /// The kernel's error, or the file is not one that tollgate made.
    pub(super) fn open_lock(&self, name: &Path) -> io::Result<File> {
        let flags = OFlag::O_RDWR
            | OFlag::O_CREAT
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_CLOEXEC;
        let file = File::from(openat(
            &self.file,
            name,
            flags,
            Mode::from_bits_truncate(0o600),
        )?);
        if is_owned_log(&file)? {
            Ok(file)
        } else {
            Err(io::Error::other("it was not written by tollgate"))
        }
    }

    /// Whether an open file has this name.
    pub(super) fn is_named(&self, name: &Path, file: &File) -> bool {
        let named = fstatat(&self.file, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        match (named, file.metadata()) {
            (Ok(named), Ok(about)) => (named.st_dev, named.st_ino) == (about.dev(), about.ino()),
            _ => false,
        }
    }

    /// Makes a log writable by its owner again.
    fn make_writable(&self, name: &Path) -> io::Result<()> {
        let file = self.open_for_reading(name)?;
        if is_owned_log(&file)? {
            fchmod(&file, Mode::from_bits_truncate(0o600))?;
        }
        Ok(())
    }

    /// Opens a file of any type for reading.
    fn open_for_reading(&self, name: &Path) -> nix::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = openat(&self.file, name, flags, Mode::empty())?;
        Ok(file.into())
    }

    /// Opens a file of this user for reading; `None` if it does not exist.
    ///
    /// # Errors
    /// The kernel's error, or it is a link, not a regular file, or has a second name.
    pub(crate) fn open_own(&self, name: &Path) -> io::Result<Option<File>> {
        let file = match self.open_for_reading(name) {
            Ok(file) => file,
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        if is_owned_log(&file)? {
            Ok(Some(file))
        } else {
            Err(io::Error::other("it was not written by tollgate"))
        }
    }

    /// The open directory.
    pub(crate) const fn as_file(&self) -> &File {
        &self.file
    }

    /// Gives the group of the logs access to the directory. Without a group, revokes the access given before, and
    /// otherwise changes nothing.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn grant_group(&self, group: u32) -> io::Result<()> {
        if group != 0 {
            return set_group_and_mode(&self.file, group, ADMITTED);
        }
        let about = self.file.metadata()?;
        if about.gid() != 0 && about.mode() & MODE == ADMITTED {
            set_group_and_mode(&self.file, 0, 0o700)?;
        }
        Ok(())
    }

    /// The same for a directory that others cannot enter and that has no other files than a log named `log`: they may not
    /// be for the group.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn grant_group_if_own(&self, log: &Path, group: u32) -> io::Result<()> {
        if self.file.metadata()?.mode() & 0o007 != 0 {
            return Ok(());
        }
        let log = log.as_os_str().as_bytes();
        let is_of_log = |name: &[u8]| {
            let name = name.strip_prefix(b".").unwrap_or(name);
            name.is_empty() || name == b"." || name.starts_with(log) || name == INDEX_DIRECTORY
        };
        if self.names()?.iter().all(|name| is_of_log(name.as_bytes())) {
            return self.grant_group(group);
        }
        Ok(())
    }

    /// Gives an old log to a group. Returns false if it does not exist. A file that is not a log of the daemon stays
    /// unchanged.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn set_group_of_old_log(&self, name: &Path, group: u32) -> io::Result<bool> {
        let file = match self.open_for_reading(name) {
            Ok(file) => file,
            Err(Errno::ENOENT) => return Ok(false),
            Err(Errno::ELOOP) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        };
        let about = file.metadata()?;
        let mode = read_only_mode(group);
        if is_owned_log(&file)? && (about.gid(), about.mode() & MODE) != (group, mode) {
            set_group_and_mode(&file, group, mode)?;
        }
        Ok(true)
    }

    /// Renames a file, replacing the target. Returns false if it does not exist.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<bool> {
        match renameat(&self.file, from, &self.file, to) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes a file. Returns false if it does not exist.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn remove(&self, name: &Path) -> io::Result<bool> {
        match unlinkat(&self.file, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates a file that only its owner can read.
    ///
    /// # Errors
    /// The kernel's error; the name exists.
    pub(crate) fn create_new(&self, name: &Path) -> io::Result<File> {
        let flags =
            OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&self.file, name, flags, Mode::from_bits_truncate(0o600))?;
        Ok(file.into())
    }

    /// Names in the directory.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut entries = Dir::openat(&self.file, ".", flags, Mode::empty())?;
        let name = |entry: nix::Result<nix::dir::Entry>| {
            Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned())
        };
        entries.iter().map(name).collect()
    }

    /// Device and inode of a file; `None` if it does not exist.
    pub(crate) fn identity(&self, name: &Path) -> Option<(u64, u64)> {
        let about = fstatat(&self.file, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        Some((about.st_dev, about.st_ino))
    }

    /// Whether something has this name.
    pub(crate) fn has(&self, name: &Path) -> bool {
        fstatat(&self.file, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
    }

    /// Whether a regular file has this name.
    pub(crate) fn has_file(&self, name: &Path) -> bool {
        let about = fstatat(&self.file, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        about.is_ok_and(|about| about.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits())
    }
}

/// Mode of a log that is no longer written.
pub(super) const fn read_only_mode(group: u32) -> u32 {
    if group == 0 { 0o400 } else { 0o440 }
}

/// Whether it is a regular file owned by this user, with one name.
fn is_owned_log(file: &File) -> io::Result<bool> {
    let about = file.metadata()?;
    Ok(about.is_file() && about.nlink() == 1 && about.uid() == geteuid().as_raw())
}

/// Gives an open file to a group.
///
/// # Errors
/// The kernel's error.
pub(crate) fn set_group_and_mode(file: &File, group: u32, mode: u32) -> io::Result<()> {
    fchown(file, None, Some(Gid::from_raw(group)))?;
    fchmod(file, Mode::from_bits_truncate(mode))?;
    Ok(())
}
