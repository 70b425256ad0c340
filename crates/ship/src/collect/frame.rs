//! The protocol of stock `audisp-remote`, and of syslog over TCP.
//!
//! In the managed format each message is a frame of [`managed_frame`]; in the ascii format it is a line without header, and
//! nothing is answered. Messages of syslog have the number of their bytes before them. Requests of HTTP are recognized,
//! and left to others. A connection keeps its format.
//!
//! # Source
//! audit-userspace 3.0.9 and 4.2.1: `audisp/plugins/remote/audisp-remote.c`. RFC 6587, section 3.4.1 (octet counting).

use std::str;

use bstr::ByteSlice as _;

use crate::managed_frame::{
    self, ACKNOWLEDGED, DISK_ERROR, DISK_FULL, ENDING, FrameHeader, HEARTBEAT, HeaderError, MAGIC,
    MAX_BODY_BYTES, MESSAGE,
};

/// Most bytes of a message of syslog, and of any line: `tollgate-ship` sends lines whole.
pub(super) const MAX_SYSLOG_BYTES: usize = 128 << 10;
/// Most digits of that number.
const MAX_DIGITS: usize = 6;
/// The record is refused for ever: an answer of tollgate, which a stock peer takes for an error that it does not know.
const REFUSED: u32 = 0x6000_0003;

/// What a peer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Managed,
    Ascii,
    Syslog,
    Http,
}

/// What a peer has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// A record without its newline; in the managed format with the sequence of the answer.
    Line {
        sequence: Option<u32>,
        line: &'a [u8],
    },
    Heartbeat {
        sequence: u32,
    },
    /// A message of syslog.
    Syslog(&'a [u8]),
}

/// What no peer of the protocol sends. The connection cannot be used further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error(
        "neither the protocol of audisp-remote with `transport = tcp`, syslog with octet counting, nor HTTP"
    )]
    Format,
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("frame type {0:#x}, and only messages and heartbeats are known")]
    Type(u32),
    #[error(
        "a message of syslog without the number of its bytes, which is at most {MAX_SYSLOG_BYTES}"
    )]
    Count,
}

impl Format {
    /// The format of a connection that begins with a byte.
    ///
    /// # Errors
    /// None begins with it.
    fn of(first: u8) -> Result<Self, FrameError> {
        match first {
            // `type=` or `node=`.
            b't' | b'n' => Ok(Self::Ascii),
            b'1'..=b'9' => Ok(Self::Syslog),
            // A method.
            b'A'..=b'Z' => Ok(Self::Http),
            _ if first == MAGIC[0] => Ok(Self::Managed),
            _ => Err(FrameError::Format),
        }
    }
}

/// The first message in `bytes` and the number of its bytes; `None` if more bytes are needed. The first byte of a
/// connection decides its format; that of HTTP has none of these messages.
///
/// # Errors
/// The bytes are not of the protocol.
pub(super) fn decode<'a>(
    bytes: &'a [u8],
    format: &mut Option<Format>,
) -> Result<Option<(Message<'a>, usize)>, FrameError> {
    let Some(&first) = bytes.first() else {
        return Ok(None);
    };
    let format = match *format {
        Some(format) => format,
        None => *format.insert(Format::of(first)?),
    };
    match format {
        Format::Managed => decode_managed(bytes),
        Format::Ascii => decode_ascii(bytes),
        Format::Syslog => decode_syslog(bytes),
        Format::Http => Ok(None),
    }
}

fn decode_managed(bytes: &[u8]) -> Result<Option<(Message<'_>, usize)>, FrameError> {
    let Some(header) = FrameHeader::decode(bytes)? else {
        return Ok(None);
    };
    let (kind, sequence) = (header.kind, header.sequence);
    if kind != MESSAGE && kind != HEARTBEAT {
        return Err(FrameError::Type(kind));
    }
    let Some(body) = header.body(bytes) else {
        return Ok(None);
    };
    let message = match kind {
        HEARTBEAT => Message::Heartbeat { sequence },
        _ => Message::Line {
            sequence: Some(sequence),
            line: body.strip_suffix(b"\n").unwrap_or(body),
        },
    };
    Ok(Some((message, header.frame_bytes())))
}

fn decode_ascii(bytes: &[u8]) -> Result<Option<(Message<'_>, usize)>, FrameError> {
    let start = bytes.get(..MAX_BODY_BYTES).unwrap_or(bytes);
    let Some(end) = start.find_byte(b'\n') else {
        return match bytes.len() < MAX_BODY_BYTES {
            true => Ok(None),
            false => Err(HeaderError::TooLong.into()),
        };
    };
    let line = start.get(..end).unwrap_or_default();
    let sequence = None;
    Ok(Some((Message::Line { sequence, line }, end + 1)))
}

fn decode_syslog(bytes: &[u8]) -> Result<Option<(Message<'_>, usize)>, FrameError> {
    let head = bytes.get(..=MAX_DIGITS).unwrap_or(bytes);
    let digits = head.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let start = digits + 1;
    let count = str::from_utf8(head.get(..digits).unwrap_or_default());
    let count = count.ok().and_then(|count| count.parse().ok());
    let length = match (count, head.get(digits)) {
        (Some(length @ 1..=MAX_SYSLOG_BYTES), Some(b' ')) => length,
        (Some(1..), None) if digits <= MAX_DIGITS && head.len() <= MAX_DIGITS => return Ok(None),
        _ => return Err(FrameError::Count),
    };
    let message = bytes.get(start..start + length);
    Ok(message.map(|message| (Message::Syslog(message), start + length)))
}

/// What a listener sends, in the managed format only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The record is in the log, or the heartbeat has come.
    Acknowledged,
    /// The record is refused for ever. A stock peer does `generic_error_action`, and goes on with the next one.
    Refused,
    /// The record is not in the log, because the disk has no room. A stock peer does `disk_full_action` and disconnects.
    DiskFull,
    /// The record is not in the log, because it cannot be written. A stock peer does `disk_error_action` and disconnects.
    DiskError,
    /// The listener ends. A stock peer does `remote_ending_action`.
    Ending,
}

impl Answer {
    const fn kind(self) -> u32 {
        match self {
            Self::Acknowledged => ACKNOWLEDGED,
            Self::Refused => REFUSED,
            Self::DiskFull => DISK_FULL,
            Self::DiskError => DISK_ERROR,
            Self::Ending => ENDING,
        }
    }

    /// Appends the frame. `text` is for people; what is longer than a body can be is cut.
    pub(super) fn encode(self, sequence: u32, text: &str, out: &mut Vec<u8>) {
        managed_frame::append(self.kind(), sequence, text.as_bytes(), out);
    }
}

#[cfg(test)]
mod tests {
    use inputs::fuzz::fuzz;

    use super::*;
    use crate::managed_frame::HEADER_BYTES;

    /// Most bytes of a frame.
    const MOST: usize = MAX_DIGITS + 1 + MAX_SYSLOG_BYTES;
    const LINE: &[u8] = b"type=CWD msg=audit(1700000000.000:7): cwd=\"/\"";

    fn frame(kind: u32, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        managed_frame::append(kind, sequence, body, &mut out);
        out
    }

    fn first(bytes: &[u8]) -> Result<Option<(Message<'_>, usize)>, FrameError> {
        decode(bytes, &mut None)
    }

    #[test]
    fn torn_frames_need_more_bytes() {
        let line = [LINE, b"\n"].concat();
        for whole in [frame(MESSAGE, 3, &line), frame(HEARTBEAT, 4, b""), line] {
            for end in 0..whole.len() {
                assert_eq!(first(&whole[..end]), Ok(None), "{end}");
            }
            let (message, bytes) = first(&whole).unwrap().unwrap();
            assert_eq!(bytes, whole.len());
            match message {
                Message::Line { line, .. } => assert_eq!(line, LINE),
                Message::Heartbeat { sequence } => assert_eq!(sequence, 4),
                Message::Syslog(_) => panic!("{message:?}"),
            }
        }
        let whole = b"17 <86>1 - - - - - -";
        assert_eq!(whole.len(), 20);
        for end in 0..whole.len() {
            assert_eq!(first(&whole[..end]), Ok(None), "{end}");
        }
        assert_eq!(first(whole), Ok(Some((Message::Syslog(&whole[3..]), 20))));
    }

    #[test]
    fn frames_that_are_not_of_the_protocol_are_errors() {
        let mut version = frame(MESSAGE, 1, LINE);
        version[4] = 1;
        // A hello of TLS, a token of Kerberos, a blank line.
        for bytes in [&b"\x16\x03\x01"[..], b"\0\0\0\0", b"\n"] {
            assert_eq!(first(bytes), Err(FrameError::Format));
        }
        let mut format = None;
        assert_eq!(decode(b"GET / HTTP/1.1\r\n\r\n", &mut format), Ok(None));
        assert_eq!(format, Some(Format::Http));
        for bytes in [&b"12x"[..], b"131073 <", b"1234567", b"999999 "] {
            assert_eq!(first(bytes), Err(FrameError::Count));
        }
        assert_eq!(first(b"131072 <"), Ok(None));
        assert_eq!(
            decode(b"0 ", &mut Some(Format::Syslog)),
            Err(FrameError::Count)
        );
        assert_eq!(first(b"\xfe\0\0\x01"), Err(HeaderError::Magic.into()));
        assert_eq!(first(&version), Err(HeaderError::Version(1).into()));
        assert_eq!(first(&frame(7, 1, b"")), Err(FrameError::Type(7)));
        let longest = vec![b'n'; MAX_BODY_BYTES];
        assert!(first(&frame(MESSAGE, 1, &longest)).unwrap().is_some());
        assert_eq!(first(&longest), Err(HeaderError::TooLong.into()));
        assert_eq!(first(&longest[1..]), Ok(None));
        let mut longer = frame(MESSAGE, 1, &longest);
        longer[10..12].copy_from_slice(&u16::try_from(MAX_BODY_BYTES + 1).unwrap().to_le_bytes());
        // Before the body has come.
        assert_eq!(
            first(&longer[..HEADER_BYTES]),
            Err(HeaderError::TooLong.into())
        );
    }

    #[test]
    fn a_connection_keeps_its_format() {
        let mut format = Some(Format::Managed);
        assert_eq!(
            decode(b"type=CWD\n", &mut format),
            Err(HeaderError::Magic.into())
        );
        let mut format = Some(Format::Ascii);
        let managed = frame(MESSAGE, 1, b"\n");
        let (message, bytes) = decode(&managed, &mut format).unwrap().unwrap();
        let Message::Line { sequence, .. } = message else {
            panic!("{message:?}");
        };
        assert_eq!((sequence, bytes), (None, managed.len()));
    }

    /// As the stock program reads it.
    #[test]
    fn answers_have_the_sequence_and_a_text() {
        let mut out = Vec::new();
        Answer::Acknowledged.encode(0x0102_0304, "", &mut out);
        Answer::DiskFull.encode(9, "full", &mut out);
        assert_eq!(
            out,
            b"\xfe\0\0\xff\0\0\0\0\0\x40\0\0\x04\x03\x02\x01\xfe\0\0\xff\0\0\x01\0\0\x60\x04\0\x09\0\0\0full"
        );
    }

    /// Whatever comes, in whatever parts: the same messages, and none longer than a body.
    #[test]
    fn fuzz_collect_frames() {
        let stream = [
            frame(MESSAGE, 1, LINE),
            frame(HEARTBEAT, 2, b""),
            frame(MESSAGE, 3, &[LINE, b"\n"].concat()),
        ];
        let lines = [LINE, b"\nnode=a ", LINE, b"\n"].concat();
        let syslog = b"17 <86>1 - - - - - -17 <86>1 - - - - - -".to_vec();
        let corpus = [stream.concat(), lines, syslog];
        let words = ["\u{fe}", "\n", "type=", "node=a "];
        fuzz("fuzz_collect_frames", &corpus, &words, 2000, |bytes| {
            let whole = messages(bytes, bytes.len().max(1));
            assert_eq!(messages(bytes, 1), whole);
            assert_eq!(messages(bytes, 7), whole);
        });
    }

    /// The sequence and line of a message.
    type Decoded = (Option<u32>, Vec<u8>);

    /// What is decoded if the bytes come in parts of a length.
    fn messages(bytes: &[u8], part: usize) -> (Vec<Decoded>, Option<FrameError>) {
        let (mut format, mut found, mut rest) = (None, Vec::new(), Vec::new());
        for part in bytes.chunks(part) {
            rest.extend_from_slice(part);
            loop {
                match decode(&rest, &mut format) {
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                    Ok(Some((message, length))) => {
                        found.push(match message {
                            Message::Line { sequence, line } => {
                                assert!(line.len() <= MAX_BODY_BYTES);
                                (sequence, line.to_vec())
                            }
                            Message::Heartbeat { sequence } => (Some(sequence), Vec::new()),
                            Message::Syslog(text) => {
                                assert!(text.len() <= MAX_SYSLOG_BYTES);
                                (None, text.to_vec())
                            }
                        });
                        assert!((1..=MOST).contains(&length));
                        rest.drain(..length);
                    }
                }
            }
            assert!(rest.len() < MOST || format == Some(Format::Http));
        }
        (found, None)
    }
}
