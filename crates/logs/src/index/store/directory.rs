//! Directories of index files, which only this user and root can write.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use crate::cursor::FileId;

/// Name of the directories.
const DIRECTORY: &str = ".tollgate-index";
const CACHE_DIRECTORY: &str = "tollgate-index";
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Most index files in the cache.
const MAX_CACHED: usize = 256;

/// A trusted directory of index files.
pub(super) struct IndexDirectory {
    directory: File,
    kind: IndexDirectoryKind,
}

/// Where a directory of index files is, or is to be made.
enum IndexDirectoryKind {
    /// Beside the logs in this directory.
    Beside(File),
    /// In the user's cache.
    Cache,
    /// `directory` is to have one of this name, beside logs or in a cache.
    Missing(&'static str),
}

impl IndexDirectory {
    /// The directory beside a log.
    pub(super) fn beside(log: &Path, id: FileId) -> Option<Self> {
        let parent = match log.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let logs = trusted_directory(parent)?;
        // The path may have led elsewhere meanwhile: nothing is written to a directory without the log.
        let named = fstatat(&logs, log.file_name()?, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        if (named.st_dev, named.st_ino) != (id.device, id.inode) {
            return None;
        }
        Some(match open_directory(&logs, DIRECTORY) {
            Some(directory) => Self {
                directory,
                kind: IndexDirectoryKind::Beside(logs),
            },
            None => Self {
                directory: logs,
                kind: IndexDirectoryKind::Missing(DIRECTORY),
            },
        })
    }

    /// The user's cache.
    pub(super) fn cache() -> Option<Self> {
        let absolute = |name: &str| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        // `su` keeps HOME: there a link of its user could lead root elsewhere.
        let base = match absolute("XDG_CACHE_HOME") {
            Some(cache) => trusted_directory(&cache)?,
            None => open_directory(trusted_directory(&absolute("HOME")?)?, ".cache")?,
        };
        Some(match open_directory(&base, CACHE_DIRECTORY) {
            Some(directory) => Self {
                directory,
                kind: IndexDirectoryKind::Cache,
            },
            None => Self {
                directory: base,
                kind: IndexDirectoryKind::Missing(CACHE_DIRECTORY),
            },
        })
    }

    /// Opens the index file `name` for reading; `None` if there is none.
    pub(super) fn file(&self, name: &Path) -> Option<File> {
        if matches!(self.kind, IndexDirectoryKind::Missing(_)) {
            return None;
        }
        open_file(&self.directory, name, OFlag::O_RDONLY)
    }

    /// The index file `name` for writing, locked; `None` if it cannot be written. Index files of logs that are gone are
    /// removed, unless the directory is among those that are `cleaned`.
    pub(super) fn locked_file(self, name: &Path, cleaned: &mut CleanedDirectories) -> Option<File> {
        let (directory, logs) = match self.kind {
            IndexDirectoryKind::Cache => (self.directory, None),
            IndexDirectoryKind::Beside(logs) => (self.directory, Some(logs)),
            IndexDirectoryKind::Missing(name) => {
                let made = make_directory(&self.directory, name)?;
                let logs = (name == DIRECTORY).then_some(self.directory);
                (made, logs)
            }
        };
        let flags = OFlag::O_RDWR | OFlag::O_CREAT;
        let file = open_file(&directory, name, flags)?;
        file.try_lock().ok()?;
        if cleaned.add(&directory) {
            remove_stale(&directory, logs.as_ref(), name);
        }
        Some(file)
    }
}

/// Directories of which index files of logs that are gone were removed: with many logs, looking for them takes long.
#[derive(Debug, Default)]
pub(super) struct CleanedDirectories(BTreeSet<(u64, u64)>);

impl CleanedDirectories {
    /// Adds a directory; returns false if it was there.
    fn add(&mut self, directory: &File) -> bool {
        directory
            .metadata()
            .is_ok_and(|about| self.0.insert((about.dev(), about.ino())))
    }
}

/// Opens a directory that only this user and root can write.
fn trusted_directory(path: &Path) -> Option<File> {
    let directory = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).bits())
        .open(path)
        .ok()?;
    is_trusted(&directory).then_some(directory)
}

fn open_directory(parent: impl AsFd, name: &str) -> Option<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = openat(parent, name, flags, Mode::empty()).ok()?;
    let directory = File::from(directory);
    is_trusted(&directory).then_some(directory)
}

fn make_directory(parent: &File, name: &str) -> Option<File> {
    let _exists = mkdirat(parent, name, Mode::S_IRWXU);
    open_directory(parent, name)
}

/// Opens a regular file that only this user or root can write, and that has one name.
fn open_file(directory: &File, name: &Path, flags: OFlag) -> Option<File> {
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR).ok()?;
    let file = File::from(file);
    let about = file.metadata().ok()?;
    (about.is_file() && about.nlink() == 1 && is_trusted(&file)).then_some(file)
}

pub(super) fn is_trusted(file: &File) -> bool {
    file.metadata().is_ok_and(|about| {
        (about.uid() == geteuid().as_raw() || about.uid() == 0)
            && about.mode() & WRITABLE_BY_OTHERS == 0
    })
}

/// Removes index files of logs that are gone; in the cache, all but the newest.
fn remove_stale(directory: &File, logs: Option<&File>, keep: &Path) {
    let Some(names) = names(directory) else {
        return;
    };
    let indexes = names
        .into_iter()
        .filter(|(name, _)| name.ends_with(".idx") && OsStr::new(name) != keep.as_os_str());
    let stale: Vec<String> = match logs {
        Some(logs) => {
            let Some(present) = self::names(logs) else {
                return;
            };
            let inode = |name: &str| {
                let (_, inode) = name.strip_suffix(".idx")?.rsplit_once('-')?;
                inode.parse::<u64>().ok()
            };
            let is_gone = |name: &str| {
                let inode = inode(name);
                !present.iter().any(|(_, present)| inode == Some(*present))
            };
            indexes
                .map(|(name, _)| name)
                .filter(|name| is_gone(name))
                .collect()
        }
        None => indexes.map(|(name, _)| name).skip(MAX_CACHED).collect(),
    };
    for name in stale {
        let _error = unlinkat(directory, name.as_str(), UnlinkatFlags::NoRemoveDir);
    }
}

/// Names and inodes in a directory.
fn names(directory: &File) -> Option<Vec<(String, u64)>> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut directory = Dir::openat(directory, ".", flags, Mode::empty()).ok()?;
    let entries = directory.iter().filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().to_str().ok()?;
        Some((name.to_owned(), entry.ino()))
    });
    Some(entries.collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::index::store::{Extent, Indexes};
    use crate::log_file::LogFile;

    #[test]
    fn directory_is_cleaned_once_for_several_logs() {
        let place = tempfile::tempdir().unwrap();
        let open = |indexes: &mut Indexes, number: u32| {
            let path = place.path().join(format!("audit.log.{number}"));
            let text = format!("type=USER msg=audit(1.000:{number}): pid=1\n");
            fs::write(&path, text).unwrap();
            let mut log = LogFile::open(&path).unwrap();
            indexes.open(&mut log, Extent::Whole, |_| ()).unwrap();
        };
        let mut indexes = Indexes::default();
        open(&mut indexes, 1);
        let stale = place.path().join(".tollgate-index/1-1.idx");
        fs::write(&stale, "").unwrap();
        open(&mut indexes, 2);
        assert!(stale.exists());
        open(&mut Indexes::default(), 3);
        assert!(!stale.exists());
    }
}
