//! Archives: compressed text of a log that can be read from any offset, with its index.
//!
//! ```text
//! archive:  zstd frames, each with a checksum: the text, a block of the index in each
//!           skippable frame: MAGIC  device u64  inode u64  created u64  length of the text u64  checksum u64
//!                            segments of the index
//!           skippable frame: seek table
//! ```
//!
//! Any program that reads zstd decompresses an archive to the text, byte for byte. The seek table is that of the zstd
//! seekable format; other seekable files are read too, without an index.
//!
//! Archives are untrusted: lengths are bounded and compared with the file, and damaged text is an error, never other
//! text.
//!
//! # Source
//! RFC 8878, and `contrib/seekable_format/zstd_seekable_compression_format.md` of zstd 1.5.

pub(crate) mod seek_table;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::SystemTime;

use zstd::bulk::Decompressor;

use crate::cursor::FileId;
use crate::hash::checksum;
use crate::line_buffer::len;
use seek_table::Frame;

/// Most text in a frame. A reader decompresses a frame at a time.
///
/// # Units
/// Bytes.
pub(crate) const MAX_FRAME_TEXT: usize = 4 << 20;
/// Magic number of the skippable frame with the index.
pub(crate) const ABOUT_FRAME: u32 = 0x184d_2a51;
/// The first of the 16 magic numbers of skippable frames.
const FIRST_SKIPPABLE: u32 = 0x184d_2a50;
/// Start of the content of that frame.
const MAGIC: &[u8; 8] = b"TLGARC01";
const ABOUT_BYTES: usize = 48;
/// Magic number and length of a skippable frame.
const SKIPPABLE_HEADER_BYTES: usize = 8;

/// An open archive.
pub(crate) struct Archive {
    file: Arc<File>,
    /// Frames with text, in order.
    frames: Vec<Frame>,
    text_len: u64,
    about: Option<About>,
    decompressor: Decompressor<'static>,
    /// Bytes of a frame as read.
    compressed: Vec<u8>,
    /// Text of the frame with the number.
    text: Vec<u8>,
    current: Option<usize>,
}

/// What an archive tells about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// The text file that it was made of.
    source: FileId,
    /// Length of the text.
    text_len: u64,
    /// Where the segments of the index are in the archive.
    segments: (u64, u64),
}

/// Magic numbers of frames.
const TEXT_FRAME: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

impl Archive {
    /// Whether a file that begins with these bytes is one.
    pub(crate) fn is_start(bytes: &[u8]) -> bool {
        bytes.starts_with(&TEXT_FRAME) || bytes.starts_with(&ABOUT_FRAME.to_le_bytes())
    }

    /// Opens an archive; `None` if the file has no seek table.
    ///
    /// # Errors
    /// The file cannot be read, or its seek table is damaged.
    pub(crate) fn open(file: File) -> io::Result<Option<Self>> {
        let Some(frames) = seek_table::read(&file)? else {
            return Ok(None);
        };
        for frame in frames.iter().filter(|frame| frame.text_len == 0) {
            if !is_skippable(&file, frame)? {
                return Err(damaged(frame.start, "has text, but not in the seek table"));
            }
        }
        let about = match frames.iter().rev().find(|frame| frame.text_len == 0) {
            Some(last) => About::read(&file, last)?,
            None => None,
        };
        let frames: Vec<Frame> = frames
            .into_iter()
            .filter(|frame| frame.text_len > 0)
            .collect();
        let text_len = frames.last().map_or(0, Frame::text_end);
        if about.is_some_and(|about| about.text_len != text_len) {
            return Err(damaged(
                0,
                "has another length of text than the archive tells",
            ));
        }
        Ok(Some(Self {
            file: Arc::new(file),
            frames,
            text_len,
            about,
            decompressor: Decompressor::new()?,
            compressed: Vec::new(),
            text: Vec::new(),
            current: None,
        }))
    }

    /// Length of the text.
    ///
    /// # Units
    /// Bytes.
    pub(crate) const fn text_len(&self) -> u64 {
        self.text_len
    }

    /// When the archive was last written to: the archiver makes it as old as the text.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        self.file.metadata().ok()?.modified().ok()
    }

    /// Length of the archive.
    ///
    /// # Units
    /// Bytes.
    pub(crate) fn stored_len(&self) -> io::Result<u64> {
        self.file.metadata().map(|about| about.len())
    }

    /// Identity of the archive itself.
    pub(crate) fn file_id(&self) -> io::Result<FileId> {
        self.file.metadata().map(|about| FileId::of(&about))
    }

    /// The text file that the archive was made of, if it tells.
    pub(crate) fn source(&self) -> Option<FileId> {
        self.about.map(|about| about.source)
    }

    /// The file, and where the segments of the index are in it; `None` if there are none.
    pub(crate) fn segments(&self) -> Option<(&Arc<File>, Range<u64>)> {
        let (start, end) = self.about?.segments;
        Some((&self.file, start..end))
    }

    /// Reads text from `offset`, at most to the end of its frame. Returns 0 at the end of the text.
    ///
    /// # Errors
    /// The file cannot be read, or the frame is damaged.
    pub(crate) fn read_at(&mut self, room: &mut [u8], offset: u64) -> io::Result<usize> {
        let after = self
            .frames
            .partition_point(|frame| frame.text_start <= offset);
        let Some(number) = after.checked_sub(1) else {
            return Ok(0);
        };
        let Some(frame) = self.frames.get(number).copied() else {
            return Ok(0);
        };
        if offset >= frame.text_end() || room.is_empty() {
            return Ok(0);
        }
        if self.current != Some(number) {
            self.current = None;
            self.decompress(&frame)?;
            self.current = Some(number);
        }
        let at = usize::try_from(offset - frame.text_start).unwrap_or(usize::MAX);
        let text = self.text.get(at..).unwrap_or_default();
        let count = text.len().min(room.len());
        if let (Some(room), Some(text)) = (room.get_mut(..count), text.get(..count)) {
            room.copy_from_slice(text);
        }
        Ok(count)
    }

    /// Offset of the text after the frame that has the text at `offset`; `None` at the end.
    pub(crate) fn after_frame(&self, offset: u64) -> Option<u64> {
        let after = self
            .frames
            .partition_point(|frame| frame.text_start <= offset);
        self.frames.get(after).map(|frame| frame.text_start)
    }

    fn decompress(&mut self, frame: &Frame) -> io::Result<()> {
        self.compressed.resize(frame.len, 0);
        let read = self.file.read_exact_at(&mut self.compressed, frame.start);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged(frame.start, "is cut off"),
            _ => error,
        })?;
        self.text.clear();
        self.text.reserve(frame.text_len);
        let result = self
            .decompressor
            .decompress_to_buffer(&self.compressed, &mut self.text);
        match result {
            Ok(count) if count == frame.text_len => Ok(()),
            Ok(_) => Err(damaged(frame.start, "has text of another length")),
            Err(error) => Err(damaged(frame.start, &error.to_string())),
        }
    }
}

/// Whether a frame is one that is skipped.
fn is_skippable(file: &File, frame: &Frame) -> io::Result<bool> {
    let mut magic = [0; 4];
    if frame.len < SKIPPABLE_HEADER_BYTES {
        return Ok(false);
    }
    file.read_exact_at(&mut magic, frame.start)?;
    Ok(u32::from_le_bytes(magic) & 0xffff_fff0 == FIRST_SKIPPABLE)
}

fn damaged(start: u64, what: &str) -> io::Error {
    let text = format!("the archive is damaged: the frame at byte {start}: {what}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl About {
    /// Reads the frame with the index; `None` if `frame` is another one.
    fn read(file: &File, frame: &Frame) -> io::Result<Option<Self>> {
        let mut bytes = [0; SKIPPABLE_HEADER_BYTES + ABOUT_BYTES];
        if frame.len < bytes.len() {
            return Ok(None);
        }
        file.read_exact_at(&mut bytes, frame.start)?;
        let end = frame.start + len(frame.len);
        let start = frame.start + len(bytes.len());
        Ok(Self::parse(&bytes, start..end))
    }

    fn parse(bytes: &[u8], segments: Range<u64>) -> Option<Self> {
        let (magic, bytes) = bytes.split_first_chunk::<4>()?;
        let content = bytes.get(4..)?;
        let (text, sum) = content.split_last_chunk::<8>()?;
        let is_about = u32::from_le_bytes(*magic) == ABOUT_FRAME
            && text.starts_with(MAGIC)
            && checksum(text) == u64::from_le_bytes(*sum);
        let numbers = text.get(8..)?.as_chunks::<8>().0;
        let &[device, inode, created, text_len] = numbers else {
            return None;
        };
        is_about.then_some(Self {
            source: FileId {
                device: u64::from_le_bytes(device),
                inode: u64::from_le_bytes(inode),
                created_ns: u64::from_le_bytes(created),
            },
            text_len: u64::from_le_bytes(text_len),
            segments: (segments.start, segments.end),
        })
    }

    /// Content of the frame, before the segments.
    pub(crate) fn encode(source: FileId, text_len: u64) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for number in [source.device, source.inode, source.created_ns, text_len] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }
}
