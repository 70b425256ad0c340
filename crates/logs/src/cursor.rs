//! Positions in a log.

use std::fmt;
use std::str::FromStr;

use audit::ids::Serial;

/// A position in a log that survives rotation: the file is named by its inode.
///
/// A reader that continues at a cursor returns every event that had not ended there. An event that ended while an
/// older one was open may be returned twice, so a consumer that must not see it twice compares the serial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// File that the position is in.
    pub file: FileId,
    /// Offset of a line in the file, in bytes of text.
    pub offset: u64,
    /// Serial of the last event before the position; 0 before the first.
    pub serial: Serial,
}

/// Identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Device of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// Text that is no cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a cursor: expected DEVICE:INODE:OFFSET:SERIAL")]
pub struct CursorError(String);

/// `DEVICE:INODE:OFFSET:SERIAL` in decimal.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileId { device, inode } = self.file;
        write!(f, "{device}:{inode}:{}:{}", self.offset, self.serial.0)
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let parse = || {
            let mut parts = text.split(':');
            let mut number = || parts.next()?.parse::<u64>().ok();
            let file = FileId {
                device: number()?,
                inode: number()?,
            };
            let (offset, serial) = (number()?, number()?);
            let cursor = Self {
                file,
                offset,
                serial: Serial(u32::try_from(serial).ok()?),
            };
            parts.next().is_none().then_some(cursor)
        };
        parse().ok_or_else(|| CursorError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_cursor_parses_to_the_same() {
        let cursor = Cursor {
            file: FileId {
                device: 2049,
                inode: u64::MAX,
            },
            offset: 1 << 40,
            serial: Serial(u32::MAX),
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "1:2:3", "1:2:3:4:5", "1:2:3:4294967296", "1:2:x:4"] {
            let error = text.parse::<Cursor>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not a cursor")));
        }
    }
}
