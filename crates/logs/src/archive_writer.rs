//! Writes archives.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

use crate::archive::seek_table::{self, Frame};
use crate::archive::{ABOUT_FRAME, About, Archive, MAX_FRAME_TEXT};
use crate::index::store;
use crate::index::{BLOCK_BYTES, LogIndex};
use crate::line_buffer::len;
use crate::log_file::{LogError, LogFile};

/// Level of compression. Measured on logs: level 1 is as small, and higher levels are not worth their time.
const LEVEL: i32 = 3;
/// Text of a frame where no index tells the blocks.
const FRAME_TEXT: u64 = 1 << 20;

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Length of the text.
    ///
    /// # Units
    /// Bytes.
    pub text_len: u64,
    /// Length of the archive.
    ///
    /// # Units
    /// Bytes.
    pub archive_len: u64,
}

/// Error of writing an archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The archive cannot be written.
    #[error("cannot write the archive")]
    Write(#[from] io::Error),
    /// What was written is not the text.
    #[error("the archive does not have the text that was written to it")]
    Different,
    /// The caller stopped it.
    #[error("stopped")]
    Stopped,
    /// The caller left no room for it.
    #[error("no room for the archive")]
    NoRoom,
}

/// Whether a file that begins with these bytes may be an archive that was begun. After a crash of the machine a file may
/// have only zeros.
#[must_use]
pub fn is_begun(start: &[u8]) -> bool {
    start.iter().all(|&byte| byte == 0) || Archive::is_start(start)
}

/// Writes the text of a log that no longer grows to `out`, an empty file, and reads it back. `is_stopped` is asked after
/// each frame, and after each block that is indexed.
///
/// # Errors
/// [`ArchiveError`]. What was written is then no archive.
pub fn write(
    log: &mut LogFile,
    out: &File,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Written, ArchiveError> {
    write_with_room(log, out, is_stopped, &|_| true)
}

/// As [`write`], but asks `has_room` before each write whether the file may grow by that many bytes.
///
/// # Errors
/// [`ArchiveError`]. What was written is then no archive.
pub fn write_with_room(
    log: &mut LogFile,
    out: &File,
    is_stopped: &dyn Fn() -> bool,
    has_room: &dyn Fn(u64) -> bool,
) -> Result<Written, ArchiveError> {
    let mut index = store::existing(log)?;
    index.extend_unless(is_stopped, log, BLOCK_BYTES, false, |_, _| ())?;
    if is_stopped() {
        return Err(ArchiveError::Stopped);
    }
    let text_len = log.size()?.unwrap_or(0);
    let mut writer = Writer {
        out,
        has_room,
        compressor: Compressor::new(LEVEL)?,
        frames: Vec::new(),
        text: Vec::new(),
        compressed: Vec::new(),
    };
    writer.compressor.include_checksum(true)?;
    for end in frame_ends(&index, text_len) {
        writer.text(log, end)?;
        if is_stopped() {
            return Err(ArchiveError::Stopped);
        }
    }
    let archive_len = writer.end(log, &index, text_len)?;
    verify(out, log, text_len, is_stopped)?;
    Ok(Written {
        text_len,
        archive_len,
    })
}

/// Where frames end: at the ends of the index's blocks, and where they would be too long.
fn frame_ends(index: &LogIndex, text_len: u64) -> Vec<u64> {
    let mut ends = Vec::new();
    let mut at = 0;
    let blocks = index.blocks().map(|block| block.end);
    for end in blocks.chain([text_len]).filter(|&end| end <= text_len) {
        // Text without an index has frames of another length than its blocks.
        let most = if end == text_len {
            FRAME_TEXT
        } else {
            len(MAX_FRAME_TEXT)
        };
        while end.saturating_sub(at) > len(MAX_FRAME_TEXT) {
            at += most;
            ends.push(at);
        }
        if end > at {
            at = end;
            ends.push(at);
        }
    }
    ends
}

/// Compares an archive with its text.
fn verify(
    out: &File,
    log: &mut LogFile,
    text_len: u64,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), ArchiveError> {
    let archive = Archive::open(out.try_clone()?)?;
    let mut archive = archive
        .filter(|archive| archive.text_len() == text_len)
        .ok_or(ArchiveError::Different)?;
    let read = &mut |room: &mut [u8], at| archive.read_at(room, at).map_err(ArchiveError::from);
    match is_text_of(read, log, text_len, is_stopped)? {
        true => Ok(()),
        false => Err(ArchiveError::Different),
    }
}

/// Whether two files have the same text; all of it is compared. `is_stopped` is asked after each MiB or so.
///
/// # Errors
/// [`ArchiveError`].
pub fn have_same_text(
    one: &mut LogFile,
    other: &mut LogFile,
    is_stopped: &dyn Fn() -> bool,
) -> Result<bool, ArchiveError> {
    let len = one.size()?;
    if len != other.size()? {
        return Ok(false);
    }
    let read = &mut |room: &mut [u8], at| one.read_at(room, at).map_err(ArchiveError::from);
    is_text_of(read, other, len.unwrap_or(0), is_stopped)
}

/// Reads text from an offset.
type ReadAt<'r> = dyn FnMut(&mut [u8], u64) -> Result<usize, ArchiveError> + 'r;

/// Whether `read` returns the first `text_len` bytes of a log.
fn is_text_of(
    read: &mut ReadAt<'_>,
    log: &mut LogFile,
    text_len: u64,
    is_stopped: &dyn Fn() -> bool,
) -> Result<bool, ArchiveError> {
    let (mut ours, mut theirs) = (vec![0; MAX_FRAME_TEXT], vec![0; MAX_FRAME_TEXT]);
    let mut at = 0;
    while at < text_len {
        let count = read(&mut ours, at)?;
        let theirs = theirs.get_mut(..count).unwrap_or_default();
        if count == 0 || !read_exact(log, theirs, at)? || ours.get(..count) != Some(theirs) {
            return Ok(false);
        }
        at += len(count);
        if is_stopped() {
            return Err(ArchiveError::Stopped);
        }
    }
    Ok(true)
}

/// Fills `room` with text; returns false if the text ends before.
fn read_exact(log: &mut LogFile, room: &mut [u8], offset: u64) -> Result<bool, LogError> {
    Ok(log.fill_at(room, offset)? == room.len())
}

struct Writer<'f> {
    out: &'f File,
    has_room: &'f dyn Fn(u64) -> bool,
    compressor: Compressor<'static>,
    /// Frames that were written.
    frames: Vec<Frame>,
    text: Vec<u8>,
    compressed: Vec<u8>,
}

impl Writer<'_> {
    /// End of the archive, and of the text in it.
    fn end_so_far(&self) -> (u64, u64) {
        self.frames.last().map_or((0, 0), |frame| {
            (frame.start + len(frame.len), frame.text_end())
        })
    }

    /// Writes the text up to `end`.
    fn text(&mut self, log: &mut LogFile, end: u64) -> Result<(), ArchiveError> {
        let (_, start) = self.end_so_far();
        let count = usize::try_from(end - start).unwrap_or(usize::MAX);
        self.text.resize(count, 0);
        if !read_exact(log, &mut self.text, start)? {
            return Err(ArchiveError::Different);
        }
        self.compressed.clear();
        self.compressed.reserve(compress_bound(count));
        self.compressor
            .compress_to_buffer(&self.text, &mut self.compressed)?;
        self.frame(count)?;
        Ok(())
    }

    /// Writes the compressed bytes as a frame of `text_len` bytes of text.
    fn frame(&mut self, text_len: usize) -> Result<(), ArchiveError> {
        let (start, text_start) = self.end_so_far();
        self.write(&self.compressed, start)?;
        self.frames.push(Frame {
            start,
            len: self.compressed.len(),
            text_start,
            text_len,
        });
        Ok(())
    }

    /// Writes the index and the seek table. Returns the length of the archive.
    fn end(&mut self, log: &LogFile, index: &LogIndex, text_len: u64) -> Result<u64, ArchiveError> {
        let source = log.id().ok_or(ArchiveError::Different)?;
        let mut content = About::encode(source, text_len);
        index.write_segments(&mut content)?;
        self.compressed.clear();
        self.compressed
            .extend_from_slice(&ABOUT_FRAME.to_le_bytes());
        let content_len = u32::try_from(content.len()).unwrap_or(u32::MAX);
        self.compressed
            .extend_from_slice(&content_len.to_le_bytes());
        self.compressed.append(&mut content);
        self.frame(0)?;
        let table = seek_table::encode(&self.frames);
        let (end, _) = self.end_so_far();
        self.write(&table, end)?;
        Ok(end + len(table.len()))
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), ArchiveError> {
        if !(self.has_room)(len(bytes.len())) {
            return Err(ArchiveError::NoRoom);
        }
        Ok(self.out.write_all_at(bytes, at)?)
    }
}

#[cfg(test)]
mod tests;
