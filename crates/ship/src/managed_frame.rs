//! Frames of the managed format of stock `auditd` and `audisp-remote`: a header of 16 bytes, with numbers in little endian,
//! and a body.
//!
//! ```text
//! 0        4        5        6     10       12        16
//! | magic  | header | message | type | length | sequence | body: length bytes
//!            version  version
//! ```
//!
//! An answer has the sequence of the message that it answers.
//!
//! # Source
//! audit-userspace 3.0.9 and 4.2.1: `lib/private.h`, `src/auditd-listen.c`, `audisp/plugins/remote/audisp-remote.c`.

/// First bytes of a header.
pub(crate) const MAGIC: [u8; 4] = 0xff00_00fe_u32.to_le_bytes();
/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 16;
/// Most bytes of a body: `MAX_AUDIT_MESSAGE_LENGTH`.
pub(crate) const MAX_BODY_BYTES: usize = 8970;

/// A frame with a record.
pub(crate) const MESSAGE: u32 = 0;
pub(crate) const HEARTBEAT: u32 = 1;
/// The bit of all answers.
pub(crate) const ANSWER: u32 = 0x4000_0000;
/// The bit of answers to records that are not in the log.
pub(crate) const FATAL: u32 = 0x2000_0000;
/// The bit of answers to records that are in the log, with a warning.
pub(crate) const WARNING: u32 = 0x1000_0000;
/// The record is in the log, or the heartbeat has come.
pub(crate) const ACKNOWLEDGED: u32 = ANSWER;
/// The listener ends.
pub(crate) const ENDING: u32 = ANSWER | 1;
/// The record is in the log, and the disk has little room.
pub(crate) const DISK_LOW: u32 = ANSWER | WARNING | 1;
/// The record is not in the log, because the disk has no room.
pub(crate) const DISK_FULL: u32 = ANSWER | FATAL | 1;
/// The record is not in the log, because it cannot be written.
pub(crate) const DISK_ERROR: u32 = ANSWER | FATAL | 2;

/// What no peer of the protocol sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("a frame without the magic number of audisp-remote")]
    Magic,
    #[error("version {0} of the protocol, and only 0 is known")]
    Version(u8),
    #[error("a message of more than {MAX_BODY_BYTES} bytes")]
    TooLong,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// The type.
    pub(crate) kind: u32,
    /// Bytes of the body.
    length: usize,
    pub(crate) sequence: u32,
}

impl FrameHeader {
    /// The header of the first frame in `bytes`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The bytes are not of the protocol.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>, HeaderError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes.get(..known) != MAGIC.get(..known) {
            return Err(HeaderError::Magic);
        }
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [
            _,
            _,
            _,
            _,
            header_version,
            message_version,
            t0,
            t1,
            t2,
            t3,
            l0,
            l1,
            s0,
            s1,
            s2,
            s3,
        ] = *header;
        let mut versions = [header_version, message_version].into_iter();
        if let Some(version) = versions.find(|&version| version != 0) {
            return Err(HeaderError::Version(version));
        }
        let length = usize::from(u16::from_le_bytes([l0, l1]));
        if length > MAX_BODY_BYTES {
            return Err(HeaderError::TooLong);
        }
        Ok(Some(Self {
            kind: u32::from_le_bytes([t0, t1, t2, t3]),
            length,
            sequence: u32::from_le_bytes([s0, s1, s2, s3]),
        }))
    }

    /// Bytes of the frame.
    pub(crate) const fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.length
    }

    /// The body of the frame at the start of `bytes`; `None` if more bytes are needed.
    pub(crate) fn body<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(HEADER_BYTES..self.frame_bytes())
    }
}

/// Appends a frame. What is longer than a body can be is cut.
pub(crate) fn append(kind: u32, sequence: u32, body: &[u8], to: &mut Vec<u8>) {
    let length = body.len().min(MAX_BODY_BYTES);
    to.extend_from_slice(&MAGIC);
    to.extend_from_slice(&[0, 0]);
    to.extend_from_slice(&kind.to_le_bytes());
    to.extend_from_slice(&u16::try_from(length).unwrap_or(0).to_le_bytes());
    to.extend_from_slice(&sequence.to_le_bytes());
    to.extend_from_slice(body.get(..length).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_the_stock_programs_read_them() {
        let mut frames = Vec::new();
        append(ACKNOWLEDGED, 0x0102_0304, b"", &mut frames);
        append(DISK_FULL, 9, b"full", &mut frames);
        assert_eq!(
            frames,
            b"\xfe\0\0\xff\0\0\0\0\0\x40\0\0\x04\x03\x02\x01\xfe\0\0\xff\0\0\x01\0\0\x60\x04\0\x09\0\0\0full"
        );
        for end in 0..HEADER_BYTES {
            assert_eq!(FrameHeader::decode(&frames[..end]), Ok(None), "{end}");
        }
        let header = FrameHeader::decode(&frames).unwrap().unwrap();
        assert_eq!((header.kind, header.sequence), (ACKNOWLEDGED, 0x0102_0304));
        assert_eq!(
            (header.body(&frames), header.frame_bytes()),
            (Some(&b""[..]), 16)
        );
        let second = &frames[16..];
        let header = FrameHeader::decode(second).unwrap().unwrap();
        assert_eq!(header.body(&second[..19]), None);
        assert_eq!(header.body(second), Some(&b"full"[..]));
    }

    #[test]
    fn long_bodies_are_cut() {
        let mut frame = Vec::new();
        append(MESSAGE, 1, &[b'a'; MAX_BODY_BYTES + 1], &mut frame);
        let header = FrameHeader::decode(&frame).unwrap().unwrap();
        assert_eq!(header.frame_bytes(), frame.len());
        assert_eq!(frame.len(), HEADER_BYTES + MAX_BODY_BYTES);
    }

    #[test]
    fn headers_that_are_not_of_the_protocol_are_errors() {
        let mut frame = Vec::new();
        append(MESSAGE, 1, b"", &mut frame);
        for (at, byte, error) in [
            (0, 0, HeaderError::Magic),
            (3, 0, HeaderError::Magic),
            (4, 1, HeaderError::Version(1)),
            (5, 7, HeaderError::Version(7)),
            (11, 0x24, HeaderError::TooLong),
        ] {
            let mut frame = frame.clone();
            frame[at] = byte;
            assert_eq!(FrameHeader::decode(&frame), Err(error));
        }
    }
}
