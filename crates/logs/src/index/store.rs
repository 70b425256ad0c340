//! Index files: where they are, which of them are trusted, and how they grow.
//!
//! ```text
//! file: MAGIC  device u64  inode u64  length of the fingerprinted text u64  fingerprint u64  checksum u64
//!       segments (see the module segment), each followed by a checksum u64 of the end of its text
//! ```
//!
//! The index of `/var/log/audit/audit.log` is `/var/log/audit/.tollgate-index/INODE.idx`: it needs no new name when
//! the log is rotated. If that directory cannot be written, or other users can write it, the index is in
//! `$XDG_CACHE_HOME/tollgate-index`, and without that in memory. Only files that this user or root owns, and that
//! nobody else can write, are read. Links are not followed below the directory of the log. One process at a time
//! extends an index; a torn end is cut off.

use std::env;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::LogIndex;
use super::builder::BLOCK_BYTES;
use super::segment::{Header, MAX_BLOCKS, checksum};
use crate::cursor::FileId;
use crate::log_file::{LogError, LogFile};

const MAGIC: &[u8; 8] = b"TLGIDX02";
const HEADER_BYTES: usize = 48;
/// Text at the start of a log, and before a position of it, that identifies it.
const FINGERPRINT_BYTES: u64 = 4096;
/// Size of the checksum behind a segment.
const CHECK_BYTES: u64 = 8;
/// Name of the directories.
const DIRECTORY: &str = ".tollgate-index";
const CACHE_DIRECTORY: &str = "tollgate-index";
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Most index files in the cache.
const MAX_CACHED: usize = 256;

/// How much of a log is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it: it no longer grows.
    Whole,
    /// Whole segments: it grows.
    FullSegments,
}

/// Opens the index of a file and extends it. An index that cannot be stored stays in memory; a stream has none.
/// `progress` gets the end of the text that is covered, after each segment.
///
/// # Errors
/// [`LogError::Read`] if the log cannot be read.
pub fn open(
    log: &mut LogFile,
    extent: Extent,
    progress: impl FnMut(u64),
) -> Result<LogIndex, LogError> {
    open_with_blocks(log, BLOCK_BYTES, extent, progress)
}

/// As [`open`], with blocks of at least `block_bytes` in the text that is not yet indexed.
///
/// # Errors
/// As of [`open`].
pub fn open_with_blocks(
    log: &mut LogFile,
    block_bytes: u64,
    extent: Extent,
    mut progress: impl FnMut(u64),
) -> Result<LogIndex, LogError> {
    let Some(size) = log.size()? else {
        return Ok(LogIndex::default());
    };
    if let Some(index) = log.embedded_index() {
        return Ok(index);
    }
    let Some(identity) = Identity::of(log)? else {
        return Ok(LogIndex::default());
    };
    let whole_only = extent == Extent::FullSegments;
    let places = [
        IndexDirectory::beside(log.path(), identity.file),
        IndexDirectory::cache(),
    ];
    let mut places: Vec<IndexDirectory> = places.into_iter().flatten().collect();
    for place in &places {
        if let Some(index) = place.load(&identity, log, size)
            && (index.end() >= size
                || whole_only && size - index.end() < block_bytes * MAX_BLOCKS_U64)
        {
            return Ok(index);
        }
    }
    for place in places.drain(..) {
        if let Some(mut store) = place.writable(&identity) {
            let mut index = store.load(&identity, log, size);
            index.extend(log, block_bytes, whole_only, |segment, text| {
                store.append(segment, text);
                progress(text.end);
            })?;
            return Ok(index);
        }
    }
    let mut index = LogIndex::default();
    index.extend(log, block_bytes, whole_only, |_, text| progress(text.end))?;
    Ok(index)
}

/// The index of a log as far as there is one, inside it or beside it.
///
/// # Errors
/// [`LogError::Read`] if the log cannot be read.
pub fn existing(log: &mut LogFile) -> Result<LogIndex, LogError> {
    if let Some(index) = log.embedded_index() {
        return Ok(index);
    }
    let size = log.size()?.unwrap_or(0);
    let Some(identity) = Identity::of(log)? else {
        return Ok(LogIndex::default());
    };
    let place = IndexDirectory::beside(log.path(), identity.file);
    let index = place.and_then(|place| place.load(&identity, log, size));
    Ok(index.unwrap_or_default())
}

/// Opens the index file beside a log for writing; `None` if it cannot be written, or the log is too short to be
/// recognised when it has grown.
///
/// # Errors
/// [`LogError::Read`] if the log cannot be read.
pub(super) fn open_beside(log: &mut LogFile) -> Result<Option<(Store, LogIndex)>, LogError> {
    let size = log.size()?.unwrap_or(0);
    let Some(identity) = Identity::of(log)? else {
        return Ok(None);
    };
    let place = IndexDirectory::beside(log.path(), identity.file);
    let store = place
        .filter(|_| identity.len == FINGERPRINT_BYTES)
        .and_then(|place| place.writable(&identity));
    Ok(store.map(|mut store| {
        let index = store.load(&identity, log, size);
        (store, index)
    }))
}

/// Growth of a log by less than that many blocks needs no new segment.
const MAX_BLOCKS_U64: u64 = MAX_BLOCKS as u64;

/// What identifies the text of a log.
struct Identity {
    file: FileId,
    len: u64,
    fingerprint: u64,
}

impl Identity {
    fn of(log: &mut LogFile) -> Result<Option<Self>, LogError> {
        let (Some(file), Some(size)) = (log.id(), log.size()?) else {
            return Ok(None);
        };
        let len = size.min(FINGERPRINT_BYTES);
        Ok(fingerprint(log, 0, len)?.map(|fingerprint| Self {
            file,
            len,
            fingerprint,
        }))
    }

    fn header(&self) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        let FileId { device, inode, .. } = self.file;
        for number in [device, inode, self.len, self.fingerprint] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        let sum = checksum(&header);
        header.extend_from_slice(&sum.to_le_bytes());
        header
    }

    fn file_name(&self) -> PathBuf {
        format!("{:x}-{}.idx", self.file.device, self.file.inode).into()
    }
}

/// A position in the text of a log, and a hash of the text before it: log text that was cut off there, and written
/// again, has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextEnd {
    pub(crate) end: u64,
    hash: u64,
}

impl TextEnd {
    /// The text of `log` that ends at `end`; `None` if the log is shorter.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub(crate) fn at(log: &mut LogFile, end: u64) -> Result<Option<Self>, LogError> {
        let len = end.min(FINGERPRINT_BYTES);
        let hash = fingerprint(log, end - len, len)?;
        Ok(hash.map(|hash| Self { end, hash }))
    }

    /// Whether the log still has this text.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub(crate) fn is_in(&self, log: &mut LogFile) -> Result<bool, LogError> {
        Ok(Self::at(log, self.end)? == Some(*self))
    }
}

fn fingerprint(log: &mut LogFile, start: u64, len: u64) -> Result<Option<u64>, LogError> {
    let mut text = vec![0; usize::try_from(len).unwrap_or(0)];
    let mut at = 0;
    while let Some(room) = text.get_mut(at..).filter(|room| !room.is_empty()) {
        match log.read_at(room, start + crate::line_buffer::len(at))? {
            0 => return Ok(None),
            count => at += count,
        }
    }
    Ok(Some(checksum(&text)))
}

/// A trusted directory of index files.
struct IndexDirectory {
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
    fn beside(log: &Path, id: FileId) -> Option<Self> {
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
    fn cache() -> Option<Self> {
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

    /// Reads an index; `None` if there is none for this text.
    fn load(&self, identity: &Identity, log: &mut LogFile, size: u64) -> Option<LogIndex> {
        if matches!(self.kind, IndexDirectoryKind::Missing(_)) {
            return None;
        }
        let file = open_file(&self.directory, &identity.file_name(), OFlag::O_RDONLY)?;
        let (index, _) = load(&Arc::new(file), identity, log, size)?;
        Some(index)
    }

    /// The index file for writing, locked; `None` if it cannot be written.
    fn writable(self, identity: &Identity) -> Option<Store> {
        let (directory, logs) = match self.kind {
            IndexDirectoryKind::Cache => (self.directory, None),
            IndexDirectoryKind::Beside(logs) => (self.directory, Some(logs)),
            IndexDirectoryKind::Missing(name) => {
                let made = make_directory(&self.directory, name)?;
                let logs = (name == DIRECTORY).then_some(self.directory);
                (made, logs)
            }
        };
        let name = identity.file_name();
        let flags = OFlag::O_RDWR | OFlag::O_CREAT;
        let file = open_file(&directory, &name, flags)?;
        file.try_lock().ok()?;
        remove_stale(&directory, logs.as_ref(), &name);
        Some(Store {
            file: Arc::new(file),
            end: 0,
            failed: false,
        })
    }
}

/// An index file that this process may extend.
#[derive(Debug)]
pub(super) struct Store {
    file: Arc<File>,
    /// End of the valid segments.
    end: u64,
    failed: bool,
}

impl Store {
    /// Reads the valid segments and cuts off everything else.
    fn load(&mut self, identity: &Identity, log: &mut LogFile, size: u64) -> LogIndex {
        let (index, end) = load(&self.file, identity, log, size).unwrap_or_default();
        self.end = end;
        if end == 0 {
            let header = identity.header();
            let written = self.file.set_len(0);
            let written = written.and_then(|()| self.file.write_all_at(&header, 0));
            self.failed = written.is_err();
            self.end = crate::line_buffer::len(header.len());
        } else {
            self.failed = self.file.set_len(end).is_err();
        }
        index
    }

    /// Appends a segment. After an error nothing more is written; the index goes on in memory.
    pub(super) fn append(&mut self, segment: &[u8], text: &TextEnd) {
        if self.failed {
            return;
        }
        let check = self.end + crate::line_buffer::len(segment.len());
        let written = self.file.write_all_at(segment, self.end);
        let written =
            written.and_then(|()| self.file.write_all_at(&text.hash.to_le_bytes(), check));
        self.failed = written.is_err();
        if self.failed {
            let _torn_end = self.file.set_len(self.end);
        }
        self.end = check + CHECK_BYTES;
    }
}

/// Reads the segments of an index file, up to the first that is damaged or covers text that the log lacks. Returns
/// the end of the last one; `None` if the file belongs to other text.
fn load(
    file: &Arc<File>,
    identity: &Identity,
    log: &mut LogFile,
    size: u64,
) -> Option<(LogIndex, u64)> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0).ok()?;
    if !is_for(&header, identity) {
        return None;
    }
    let file_len = file.metadata().ok()?.len();
    let first = crate::line_buffer::len(HEADER_BYTES);
    let (mut index, mut end, mut checks) = segments(file, first..file_len, size, Checks::Behind);
    // A log that was cut off and has grown again has other text at the end of the later segments.
    while let Some((text, start)) = checks.pop() {
        if text.is_in(log).ok()? {
            break;
        }
        index.segments.pop();
        end = start;
    }
    Some((index, end))
}

/// Whether segments have checksums of their text behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checks {
    Behind,
    None,
}

/// The segments in a part of an archive; the archive has `size` bytes of text. `None` if they are damaged.
pub(crate) fn in_archive(file: &Arc<File>, part: Range<u64>, size: u64) -> Option<LogIndex> {
    let whole = part.end;
    let (index, end, _) = segments(file, part, size, Checks::None);
    (end == whole && !index.is_empty()).then_some(index)
}

/// Reads the segments in a part of a file, up to the first that is damaged or covers text that the log lacks: the log
/// has `size` bytes. Returns the end of the last one, and for each the text that it covers and where it begins.
fn segments(
    file: &Arc<File>,
    part: Range<u64>,
    size: u64,
    checks: Checks,
) -> (LogIndex, u64, Vec<(TextEnd, u64)>) {
    let mut index = LogIndex::default();
    let mut covered = Vec::new();
    let mut end = part.start;
    let mut bytes = vec![0; Header::max_len()];
    while let Ok(count) = read_up_to(file, &mut bytes, end) {
        let Some(header) = Header::parse(bytes.get(..count).unwrap_or_default()) else {
            break;
        };
        let text_end = header.blocks.last().map_or(u64::MAX, |block| block.end);
        let mut next = end + crate::line_buffer::len(header.segment_len());
        let mut hash = [0; 8];
        if checks == Checks::Behind {
            if file.read_exact_at(&mut hash, next).is_err() {
                break;
            }
            next += CHECK_BYTES;
        }
        if text_end > size || next > part.end || !index.push(header, file, end) {
            break;
        }
        let hash = u64::from_le_bytes(hash);
        covered.push((
            TextEnd {
                end: text_end,
                hash,
            },
            end,
        ));
        end = next;
    }
    (index, end, covered)
}

/// Whether the header of an index file is that of this text, which may have grown since.
fn is_for(header: &[u8; HEADER_BYTES], identity: &Identity) -> bool {
    let Some((text, sum)) = header.split_last_chunk::<8>() else {
        return false;
    };
    let numbers = text.get(8..).unwrap_or_default().as_chunks::<8>().0;
    let Some([device, inode, len, fingerprint]) = numbers.first_chunk::<4>() else {
        return false;
    };
    let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    // The text of a short log that grew has another fingerprint: its index is small and is built again.
    text.starts_with(MAGIC)
        && checksum(text) == u64::from_le_bytes(*sum)
        && number(device) == identity.file.device
        && number(inode) == identity.file.inode
        && number(len) == identity.len
        && number(fingerprint) == identity.fingerprint
}

fn read_up_to(file: &File, room: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut count = 0;
    while let Some(rest) = room.get_mut(count..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + crate::line_buffer::len(count))? {
            0 => break,
            read => count += read,
        }
    }
    Ok(count)
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

fn is_trusted(file: &File) -> bool {
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
