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

mod directory;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use directory::{CleanedDirectories, IndexDirectory};

use super::LogIndex;
use super::builder::BLOCK_BYTES;
use super::segment::{Header, MAX_BLOCKS};
use crate::cursor::FileId;
use crate::hash::checksum;
use crate::log_file::{LogError, LogFile};

const MAGIC: &[u8; 8] = b"TLGIDX02";
const HEADER_BYTES: usize = 48;
/// Text at the start of a log, and before a position of it, that identifies it.
const FINGERPRINT_BYTES: u64 = 4096;
/// Size of the checksum behind a segment.
const CHECK_BYTES: u64 = 8;
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
    Indexes::default().open(log, extent, progress)
}

/// Opens the indexes of several files. Each directory of indexes is cleaned once.
#[derive(Debug)]
pub struct Indexes {
    block_bytes: u64,
    cleaned: CleanedDirectories,
}

impl Default for Indexes {
    fn default() -> Self {
        Self::with_blocks(BLOCK_BYTES)
    }
}

impl Indexes {
    /// New blocks have at least `block_bytes`.
    #[must_use]
    pub fn with_blocks(block_bytes: u64) -> Self {
        Self {
            block_bytes,
            cleaned: CleanedDirectories::default(),
        }
    }

    /// As the function [`open`].
    ///
    /// # Errors
    /// As of [`open`].
    pub fn open(
        &mut self,
        log: &mut LogFile,
        extent: Extent,
        mut progress: impl FnMut(u64),
    ) -> Result<LogIndex, LogError> {
        let block_bytes = self.block_bytes;
        let Some(size) = log.size()? else {
            return Ok(LogIndex::default());
        };
        if let Some(index) = embedded(log) {
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
            if let Some(index) = existing_in(place, &identity, log, size)
                && (index.end() >= size
                    || whole_only && size - index.end() < block_bytes * MAX_BLOCKS_U64)
            {
                return Ok(index);
            }
        }
        for place in places.drain(..) {
            if let Some(mut store) = Store::open(place, &identity, &mut self.cleaned) {
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
}

/// The index of a log as far as there is one, inside it or beside it, and as far as the end of each segment has the text
/// of the log.
///
/// # Errors
/// [`LogError::Read`] if the log cannot be read.
pub fn existing(log: &mut LogFile) -> Result<LogIndex, LogError> {
    if let Some(index) = embedded(log) {
        return Ok(index);
    }
    let size = log.size()?.unwrap_or(0);
    let Some(identity) = Identity::of(log)? else {
        return Ok(LogIndex::default());
    };
    let place = IndexDirectory::beside(log.path(), identity.file);
    let file = place.and_then(|place| place.file(&identity.file_name()));
    let read = file.and_then(|file| read(&Arc::new(file), &identity, size));
    let Some((mut index, _, checks)) = read else {
        return Ok(LogIndex::default());
    };
    for (number, (text, _)) in checks.iter().enumerate() {
        if !text.is_in(log)? {
            index.segments.truncate(number);
            break;
        }
    }
    Ok(index)
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
        .and_then(|place| Store::open(place, &identity, &mut CleanedDirectories::default()));
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
    if log.fill_at(&mut text, start)? < text.len() {
        return Ok(None);
    }
    Ok(Some(checksum(&text)))
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
    /// Opens an index file for writing; `None` if it cannot be written.
    fn open(
        place: IndexDirectory,
        identity: &Identity,
        cleaned: &mut CleanedDirectories,
    ) -> Option<Self> {
        let file = place.locked_file(&identity.file_name(), cleaned)?;
        Some(Self {
            file: Arc::new(file),
            end: 0,
            failed: false,
        })
    }

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

/// Reads an index; `None` if there is none for this text.
fn existing_in(
    place: &IndexDirectory,
    identity: &Identity,
    log: &mut LogFile,
    size: u64,
) -> Option<LogIndex> {
    let file = place.file(&identity.file_name())?;
    let (index, _) = load(&Arc::new(file), identity, log, size)?;
    Some(index)
}

/// Reads the segments of an index file, up to the first that is damaged or covers text that the log lacks. Returns
/// the end of the last one; `None` if the file belongs to other text.
fn load(
    file: &Arc<File>,
    identity: &Identity,
    log: &mut LogFile,
    size: u64,
) -> Option<(LogIndex, u64)> {
    let (mut index, mut end, mut checks) = read(file, identity, size)?;
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

/// Reads the segments of an index file as [`segments`] does; `None` if the file belongs to other text.
fn read(file: &Arc<File>, identity: &Identity, size: u64) -> Option<Covered> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0).ok()?;
    if !is_for(&header, identity) {
        return None;
    }
    let file_len = file.metadata().ok()?.len();
    let first = crate::line_buffer::len(HEADER_BYTES);
    Some(segments(file, first..file_len, size, Checks::Behind))
}

/// Segments with the end of the last one, and for each the text that it covers and where it begins.
type Covered = (LogIndex, u64, Vec<(TextEnd, u64)>);

/// Whether segments have checksums of their text behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checks {
    Behind,
    None,
}

/// The index inside an archive; `None` for other files, or if it is damaged or another user could have written it.
pub(crate) fn embedded(log: &LogFile) -> Option<LogIndex> {
    let archive = log.archive()?;
    let (file, part) = archive.segments()?;
    // Who can write an index can hide events from a search.
    if !directory::is_trusted(file) {
        return None;
    }
    let whole = part.end;
    let (index, end, _) = segments(file, part, archive.text_len(), Checks::None);
    (end == whole && !index.is_empty()).then_some(index)
}

/// Reads the segments in a part of a file, up to the first that is damaged or covers text that the log lacks: the log
/// has `size` bytes.
fn segments(file: &Arc<File>, part: Range<u64>, size: u64, checks: Checks) -> Covered {
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
