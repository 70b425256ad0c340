//! Positions in a log.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::str::FromStr;
use std::time::UNIX_EPOCH;

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
    /// Checksum of the text before the offset, by which a file that was emptied and has grown again is told from the one
    /// that was read. `None` at the start of a file, in a cursor of an older version, or if the text could not be read.
    pub before: Option<u64>,
}

/// Identity of a file. Two with the same time of creation are equal also on different devices: some file systems have
/// another device number after each mount.
#[derive(Clone, Copy, Debug, Eq)]
pub struct FileId {
    /// Device of the file system. It counts only if the time of creation is not known.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Time of creation: a file system gives the number of a removed file to a new one. 0 if it does not tell.
    ///
    /// # Units
    /// Nanoseconds since the epoch.
    pub created_ns: u64,
}

impl PartialEq for FileId {
    fn eq(&self, other: &Self) -> bool {
        let is_device_same = self.created_ns != 0 || self.device == other.device;
        (self.inode, self.created_ns) == (other.inode, other.created_ns) && is_device_same
    }
}

impl FileId {
    /// Identity of a file.
    #[must_use]
    pub fn of(about: &Metadata) -> Self {
        let created = about.created().ok();
        let since_epoch = created.and_then(|created| created.duration_since(UNIX_EPOCH).ok());
        let created_ns = since_epoch.and_then(|time| u64::try_from(time.as_nanos()).ok());
        Self {
            device: about.dev(),
            inode: about.ino(),
            created_ns: created_ns.unwrap_or(0),
        }
    }
}

/// Text that is no cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a cursor: expected DEVICE:INODE:CREATED:OFFSET:SERIAL[:CHECKSUM]")]
pub struct CursorError(String);

/// `DEVICE:INODE:CREATED:OFFSET:SERIAL[:CHECKSUM]` in decimal.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileId {
            device,
            inode,
            created_ns,
        } = self.file;
        let (offset, serial) = (self.offset, self.serial.0);
        write!(f, "{device}:{inode}:{created_ns}:{offset}:{serial}")?;
        match self.before {
            Some(before) => write!(f, ":{before}"),
            None => Ok(()),
        }
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
                created_ns: number()?,
            };
            let (offset, serial) = (number()?, number()?);
            let before = parts.next().map(str::parse).transpose().ok()?;
            let cursor = Self {
                file,
                offset,
                serial: Serial(u32::try_from(serial).ok()?),
                before,
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
    fn device_counts_only_without_a_time_of_creation() {
        let file = |device, inode, created_ns| FileId {
            device,
            inode,
            created_ns,
        };
        assert_eq!(file(1, 7, 5), file(2, 7, 5));
        assert_ne!(file(1, 7, 5), file(1, 8, 5));
        assert_ne!(file(1, 7, 5), file(1, 7, 6));
        assert_eq!(file(1, 7, 0), file(1, 7, 0));
        assert_ne!(file(1, 7, 0), file(2, 7, 0));
        assert_ne!(file(1, 7, 0), file(1, 7, 5));
    }

    #[test]
    fn text_of_a_cursor_parses_to_the_same() {
        for before in [None, Some(u64::MAX)] {
            let cursor = Cursor {
                file: FileId {
                    device: 2049,
                    inode: u64::MAX,
                    created_ns: 1_700_000_000_000_000_000,
                },
                offset: 1 << 40,
                serial: Serial(u32::MAX),
                before,
            };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in [
            "",
            "1:2:3:4",
            "1:2:3:4:5:",
            "1:2:3:4:5:6:7",
            "1:2:3:4:4294967296",
            "1:2:3:x:4",
        ] {
            let error = text.parse::<Cursor>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not a cursor")));
        }
    }
}
