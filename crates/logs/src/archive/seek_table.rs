//! The seek table at the end of an archive: length of each frame, compressed and not.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::{MAX_FRAME_TEXT, SKIPPABLE_HEADER_BYTES};
use crate::line_buffer::len;

/// Magic number of the skippable frame.
const TABLE_FRAME: u32 = 0x184d_2a5e;
/// Last bytes of the file.
const TABLE_END: u32 = 0x8f92_eab1;
/// Number of frames, descriptor and [`TABLE_END`].
const FOOTER_BYTES: usize = 9;
/// Flag of the descriptor: each entry ends with a checksum of four bytes.
const HAS_CHECKSUMS: u8 = 0x80;
/// Bits of the descriptor that must be zero.
const RESERVED: u8 = 0x7c;
/// Most frames of an archive: 1 TiB of text in blocks of 1 MiB.
const MAX_FRAMES: usize = 1 << 20;
/// Longest frame.
const MAX_FRAME_BYTES: usize = 64 << 20;

/// A frame of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// First byte in the archive.
    pub(crate) start: u64,
    /// Length in the archive.
    pub(crate) len: usize,
    /// Offset of its text.
    pub(crate) text_start: u64,
    /// Length of its text; 0 for frames that are skipped.
    pub(crate) text_len: usize,
}

impl Frame {
    /// Offset of the text after it.
    pub(crate) fn text_end(&self) -> u64 {
        self.text_start + len(self.text_len)
    }
}

/// Reads the frames of an archive, without that of the table; `None` if the file has no seek table.
///
/// # Errors
/// The file cannot be read, or the table is damaged.
pub(crate) fn read(file: &File) -> io::Result<Option<Vec<Frame>>> {
    let size = file.metadata()?.len();
    let mut footer = [0; FOOTER_BYTES];
    let Some(footer_start) = size.checked_sub(len(FOOTER_BYTES)) else {
        return Ok(None);
    };
    file.read_exact_at(&mut footer, footer_start)?;
    let [a, b, c, d, descriptor, end @ ..] = footer;
    if u32::from_le_bytes(end) != TABLE_END {
        return Ok(None);
    }
    let count = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    let entry_bytes = if descriptor & HAS_CHECKSUMS == 0 {
        8
    } else {
        12
    };
    if count > MAX_FRAMES || descriptor & RESERVED != 0 {
        return Err(damaged("it has too many entries, or an unknown flag"));
    }
    let content = count * entry_bytes + FOOTER_BYTES;
    let mut table = vec![0; SKIPPABLE_HEADER_BYTES + content];
    let Some(start) = size.checked_sub(len(table.len())) else {
        return Err(damaged("it is longer than the file"));
    };
    file.read_exact_at(&mut table, start)?;
    let is_header = |number: Option<usize>, at: usize| {
        let bytes = table.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
        bytes.map(|bytes| usize::try_from(u32::from_le_bytes(*bytes)).ok()) == Some(number)
    };
    if !is_header(usize::try_from(TABLE_FRAME).ok(), 0) || !is_header(Some(content), 4) {
        return Err(damaged("it does not begin where it should"));
    }
    let entries = table
        .get(SKIPPABLE_HEADER_BYTES..SKIPPABLE_HEADER_BYTES + count * entry_bytes)
        .unwrap_or_default();
    let (mut at, mut text_at) = (0, 0);
    let mut frames = Vec::with_capacity(count);
    for entry in entries.chunks_exact(entry_bytes) {
        let frame = frame(entry, at, text_at)?;
        at += len(frame.len);
        text_at = frame.text_end();
        frames.push(frame);
    }
    if at != start {
        return Err(damaged("its frames are not as long as the file"));
    }
    Ok(Some(frames))
}

fn frame(entry: &[u8], start: u64, text_start: u64) -> io::Result<Frame> {
    let ([first, second, ..], _) = entry.as_chunks::<4>() else {
        return Err(damaged("an entry is too short"));
    };
    let number = |bytes: &[u8; 4]| usize::try_from(u32::from_le_bytes(*bytes));
    match (number(first), number(second)) {
        (Ok(len), Ok(text_len)) if len <= MAX_FRAME_BYTES && text_len <= MAX_FRAME_TEXT => {
            Ok(Frame {
                start,
                len,
                text_start,
                text_len,
            })
        }
        _ => Err(damaged("a frame is too long")),
    }
}

fn damaged(what: &str) -> io::Error {
    let text = format!("the seek table of the archive is damaged: {what}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Bytes of the table, as a frame.
pub(crate) fn encode(frames: &[Frame]) -> Vec<u8> {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = TABLE_FRAME.to_le_bytes().to_vec();
    bytes.extend_from_slice(&number(frames.len() * 8 + FOOTER_BYTES));
    for frame in frames {
        bytes.extend_from_slice(&number(frame.len));
        bytes.extend_from_slice(&number(frame.text_len));
    }
    bytes.extend_from_slice(&number(frames.len()));
    bytes.push(0);
    bytes.extend_from_slice(&TABLE_END.to_le_bytes());
    bytes
}
