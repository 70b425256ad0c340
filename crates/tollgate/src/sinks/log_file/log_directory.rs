//! The directory of a log: held open, so that nobody can put a link, or another directory, in the way
//! of a log that is rotated or opened again.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod, fstatat};
use nix::unistd::{Gid, UnlinkatFlags, fchown, geteuid, unlinkat};

use super::{LogAccess, ReadOnlyLog};

/// Bits of a mode that let others than the owner write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// Bits of a mode that can be set.
const MODE: u32 = 0o7777;
/// Mode of a directory that the group of its logs may read.
const ADMITTED: u32 = 0o750;

/// An open directory in which nobody else can replace files.
#[derive(Debug)]
pub(crate) struct LogDirectory {
    file: File,
    shown: String,
}

impl LogDirectory {
    /// Where the directory of `log` is.
    ///
    /// # Errors
    /// When it can have none.
    pub(crate) fn path_of(log: &Path) -> anyhow::Result<PathBuf> {
        match log.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Ok(".".into()),
            Some(parent) => Ok(parent.to_owned()),
            None => bail!("the log must be a file, `{}` is none", log.display()),
        }
    }

    /// Opens the directory of `log`, and makes it, for its owner only, if there is none.
    ///
    /// # Errors
    /// When other users could replace files in it, and when it is a symbolic link: who has put that there may
    /// lead the log away.
    pub(crate) fn of(log: &Path) -> anyhow::Result<Self> {
        let path = &Self::path_of(log)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("cannot make directory `{}`", path.display()))?;
        let is_link = path
            .symlink_metadata()
            .is_ok_and(|about| about.is_symlink());
        if is_link {
            bail!(
                "directory `{}` is a symbolic link: name the directory that it leads to",
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
            .with_context(|| format!("cannot look at directory `{}`", path.display()))?;
        let foreign = about.uid() != geteuid().as_raw() && about.uid() != 0;
        let open_to_others = about.mode() & WRITABLE_BY_OTHERS != 0 && about.mode() & STICKY == 0;
        if foreign || open_to_others {
            bail!(
                "directory `{}` belongs to, or can be written by, other users, who could replace the log; choose another one",
                path.display()
            );
        }
        Ok(Self {
            file,
            shown: path.display().to_string(),
        })
    }

    /// Opens a log in it for appending, and makes it if there is none.
    ///
    /// # Errors
    /// When it is a link, no regular file, another user's or known by a second name.
    pub(crate) fn open_log(&self, name: &Path, access: &LogAccess) -> anyhow::Result<File> {
        let shown = || format!("{}/{}", self.shown, name.display());
        let flags = OFlag::O_WRONLY
            | OFlag::O_APPEND
            | OFlag::O_CREAT
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_CLOEXEC
            | access.flags;
        let open = || openat(&self.file, name, flags, Mode::from_bits_truncate(0o600));
        let mut opened = open();
        // The daemon is root without the right to pass over modes.
        if matches!(opened, Err(Errno::EACCES))
            && access.closed == ReadOnlyLog::Reopen
            && self.open_to_writers(name).is_ok()
        {
            opened = open();
        }
        let file = opened
            .map(File::from)
            .with_context(|| format!("cannot open log `{}`", shown()))?;
        let own = is_own(&file).with_context(|| format!("cannot look at log `{}`", shown()))?;
        if !own {
            bail!(
                "log `{}` is no regular file of our own with one name",
                shown()
            );
        }
        if let Some(group) = access.group {
            let mode = if group == 0 { 0o600 } else { 0o640 };
            permit(&file, group, mode)
                .with_context(|| format!("cannot give log `{}` to its group", shown()))?;
        }
        Ok(file)
    }

    /// Opens a log of our own to writers again.
    fn open_to_writers(&self, name: &Path) -> io::Result<()> {
        let file = self.look_into(name)?;
        if is_own(&file)? {
            fchmod(&file, Mode::from_bits_truncate(0o600))?;
        }
        Ok(())
    }

    /// Opens what is there for reading, whatever it is.
    fn look_into(&self, name: &Path) -> nix::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = openat(&self.file, name, flags, Mode::empty())?;
        Ok(file.into())
    }

    /// Lets the group of the logs into the directory. Without one, it is taken from the group that was let in
    /// before, and otherwise left as somebody has made it.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn admit(&self, group: u32) -> io::Result<()> {
        if group != 0 {
            return permit(&self.file, group, ADMITTED);
        }
        let about = self.file.metadata()?;
        if about.gid() != 0 && about.mode() & MODE == ADMITTED {
            permit(&self.file, 0, 0o700)?;
        }
        Ok(())
    }

    /// Gives an old log to a group; `false` when there is nothing of that name. What is no log of our own stays
    /// as it is.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn permit_old(&self, name: &Path, group: u32) -> io::Result<bool> {
        let file = match self.look_into(name) {
            Ok(file) => file,
            Err(Errno::ENOENT) => return Ok(false),
            Err(Errno::ELOOP) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        };
        let about = file.metadata()?;
        let mode = closed_mode(group);
        if is_own(&file)? && (about.gid(), about.mode() & MODE) != (group, mode) {
            permit(&file, group, mode)?;
        }
        Ok(true)
    }

    /// Gives a file another name, which replaces what has it; `false` when there is no such file.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<bool> {
        match renameat(&self.file, from, &self.file, to) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes a file; `false` when there is no such file.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn remove(&self, name: &Path) -> io::Result<bool> {
        match unlinkat(&self.file, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether there is a file of that name.
    pub(crate) fn has(&self, name: &Path) -> bool {
        fstatat(&self.file, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
    }
}

/// Mode of a log that nobody writes any more.
pub(super) const fn closed_mode(group: u32) -> u32 {
    if group == 0 { 0o400 } else { 0o440 }
}

/// Whether it is a regular file of our own that has one name.
fn is_own(file: &File) -> io::Result<bool> {
    let about = file.metadata()?;
    Ok(about.is_file() && about.nlink() == 1 && about.uid() == geteuid().as_raw())
}

/// Gives an open file to a group.
///
/// # Errors
/// What the kernel answers.
pub(crate) fn permit(file: &File, group: u32, mode: u32) -> io::Result<()> {
    fchown(file, None, Some(Gid::from_raw(group)))?;
    fchmod(file, Mode::from_bits_truncate(mode))?;
    Ok(())
}
