//! Compressed text that is not an archive: zstd streams are decompressed, other formats are refused.

use std::fmt;
use std::io::{self, BufReader, Read};

use zstd::stream::read::Decoder;

use crate::archive::Archive;

/// A format that is not read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    magic: &'static [u8],
    /// Name of the format.
    pub(crate) format: &'static str,
    /// Program that decompresses it.
    pub(crate) program: &'static str,
}

const REFUSED: [Format; 3] = [
    Format {
        magic: b"\x1f\x8b",
        format: "gzip",
        program: "zcat",
    },
    Format {
        magic: b"\xfd7zXZ\0",
        format: "xz",
        program: "xzcat",
    },
    Format {
        magic: b"BZh",
        format: "bzip2",
        program: "bzcat",
    },
];
/// Bytes that tell the format.
const MAX_MAGIC: usize = 6;
const ZSTD_MAGIC: usize = 4;

/// The format of a file that is refused, by its first bytes.
pub(crate) fn refused(start: &[u8]) -> Option<Format> {
    REFUSED
        .into_iter()
        .find(|format| start.starts_with(format.magic))
}

/// A stream of text, which is decompressed if it is compressed with zstd.
///
/// Other formats are an error. After an error that is not a timeout or an interruption the stream has ended.
pub struct TextStream {
    state: State,
}

enum State {
    /// The first bytes are being read.
    Start(Box<dyn Read + Send>, Vec<u8>),
    Text(io::Chain<io::Cursor<Vec<u8>>, Box<dyn Read + Send>>),
    Zstd(Box<Decoder<'static, BufReader<Started>>>),
    Ended,
}

type Started = io::Chain<io::Cursor<Vec<u8>>, Box<dyn Read + Send>>;

impl TextStream {
    /// Reads `stream`; its first bytes tell the format.
    #[must_use]
    pub fn new(stream: Box<dyn Read + Send>) -> Self {
        Self {
            state: State::Start(stream, Vec::new()),
        }
    }

    /// Reads the first bytes, until they tell the format.
    fn start(&mut self) -> io::Result<()> {
        let State::Start(stream, start) = &mut self.state else {
            return Ok(());
        };
        while may_be_compressed(start) {
            let mut room = [0; MAX_MAGIC];
            let room = room.get_mut(start.len()..).unwrap_or_default();
            let count = stream.read(room)?;
            if count == 0 {
                break;
            }
            start.extend_from_slice(room.get(..count).unwrap_or_default());
        }
        let State::Start(stream, start) = std::mem::replace(&mut self.state, State::Ended) else {
            return Ok(());
        };
        if let Some(Format {
            format, program, ..
        }) = refused(&start)
        {
            let text = format!(
                "it is compressed with {format}: decompress it first, as in `{program} FILE | ...`"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let is_zstd = start.len() >= ZSTD_MAGIC && Archive::is_start(&start);
        let text = io::Cursor::new(start).chain(stream);
        self.state = match is_zstd {
            true => State::Zstd(Box::new(Decoder::new(text)?)),
            false => State::Text(text),
        };
        Ok(())
    }
}

/// Whether more bytes are needed to tell the format.
fn may_be_compressed(start: &[u8]) -> bool {
    let zstd = [&b"\x28\xb5\x2f\xfd"[..], b"\x51\x2a\x4d\x18"];
    let magics = REFUSED.iter().map(|format| format.magic).chain(zstd);
    let mut magics = magics.filter(|magic| start.len() < magic.len());
    magics.any(|magic| magic.starts_with(start))
}

impl Read for TextStream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.start()?;
        let read = match &mut self.state {
            State::Text(text) => return text.read(room),
            State::Zstd(text) => text.read(room),
            State::Start(..) | State::Ended => return Ok(0),
        };
        read.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {
                error
            }
            kind => {
                self.state = State::Ended;
                let what = match kind {
                    io::ErrorKind::UnexpectedEof => {
                        "the zstd stream is cut off: the rest is missing".to_owned()
                    }
                    _ => format!("the zstd stream is damaged: {error}"),
                };
                io::Error::new(io::ErrorKind::InvalidData, what)
            }
        })
    }
}

impl fmt::Debug for TextStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextStream").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte at a time, and a timeout before each.
    struct Slow(io::Cursor<Vec<u8>>, bool);

    impl Read for Slow {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.0.read(&mut room[..1])
        }
    }

    fn text(bytes: &[u8]) -> Result<Vec<u8>, String> {
        let bytes = io::Cursor::new(bytes.to_vec());
        let mut stream = TextStream::new(Box::new(Slow(bytes, false)));
        let (mut text, mut room, mut failed) = (Vec::new(), [0; 64], None);
        loop {
            match stream.read(&mut room) {
                Ok(0) => break,
                Ok(count) => text.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                Err(error) => assert!(failed.replace(error.to_string()).is_none()),
            }
        }
        failed.map_or(Ok(text), Err)
    }

    /// A frame with a checksum.
    fn frame(text: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        io::Write::write_all(&mut encoder, text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn zstd_is_decompressed_and_text_is_kept() {
        let log = b"type=USER msg=audit(1.000:1): pid=1\n".repeat(100);
        let mut frames = frame(&log[..1000]);
        frames.extend_from_slice(b"\x51\x2a\x4d\x18\x03\0\0\0abc");
        frames.extend(frame(&log[1000..]));
        assert!(text(&frames).unwrap() == log);
        for plain in [&log[..], b"", b"B", b"BZ", b"\x28\xb5\x2f", b"\x1f"] {
            assert!(text(plain).unwrap() == plain);
        }
        let cut = text(&frames[..frames.len() - 5]).unwrap_err();
        assert!(cut.contains("cut off"), "{cut}");
        let last = frames.len() - 1;
        frames[last] ^= 0xff;
        let damaged = text(&frames).unwrap_err();
        assert!(damaged.contains("is damaged"), "{damaged}");
    }

    #[test]
    fn other_formats_are_refused_with_the_program() {
        for (start, program) in [
            (&b"\x1f\x8b\x08\0"[..], "`zcat FILE | ...`"),
            (b"\xfd7zXZ\0\0", "`xzcat FILE | ...`"),
            (b"BZh91", "`bzcat FILE | ...`"),
        ] {
            let error = text(start).unwrap_err();
            assert!(error.contains(program), "{error}");
        }
    }
}
