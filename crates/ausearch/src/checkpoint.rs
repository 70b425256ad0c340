//! `--checkpoint`: the file that says where the last search ended. The stock tool reads and writes the same.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use bstr::ByteSlice as _;

use crate::ctext::{self, low_32, low_i32};
use crate::event::{Event, EventId};
use crate::interpret::message;

/// Seconds after which an event that was not found cannot come.
const MOST_DELTA_SECONDS: u64 = 2;

/// Device and inode of a log file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileId {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self {
            device: file.dev(),
            inode: file.ino(),
        })
    }
}

/// The last event of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastEvent {
    pub(crate) id: EventId,
    pub(crate) kind: i32,
}

/// Where a search ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) file: FileId,
    pub(crate) event: LastEvent,
}

impl Checkpoint {
    /// Reads a checkpoint; `None` if there is none yet.
    ///
    /// # Errors
    /// The message when the file cannot be read or is none.
    pub(crate) fn load(path: &Path) -> Result<Option<Self>, String> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let (path, error) = (path.display(), message(&error));
                return Err(format!("Cannot open checkpoint file - {path}: {error}\n"));
            }
        };
        Self::parse(&text, path).map(Some)
    }

    fn parse(text: &[u8], path: &Path) -> Result<Self, String> {
        let mut checkpoint = Self::default();
        let mut failure = String::new();
        for line in text.lines() {
            let shown = line.to_str_lossy();
            let number = |text: &[u8], base| {
                let number = ctext::unsigned(text, base);
                (!number.overflow).then_some(number.value)
            };
            let read = if let Some(value) = line.strip_prefix(b"dev=") {
                let device = number(value, 16).map(|device| checkpoint.file.device = device);
                device.ok_or_else(|| format!("Malformed dev checkpoint line - [{shown}]\n"))
            } else if let Some(value) = line.strip_prefix(b"inode=") {
                let inode = number(value, 0).map(|inode| checkpoint.file.inode = inode);
                inode.ok_or_else(|| format!("Malformed inode checkpoint line - [{shown}]\n"))
            } else if let Some(value) = line.strip_prefix(b"output=") {
                parse_event(value).map(|event| checkpoint.event = event)
            } else {
                Err(format!("Unknown checkpoint line - [{shown}]\n"))
            };
            if let Err(error) = read {
                failure = error;
                break;
            }
        }
        if checkpoint.file.device == 0 || checkpoint.file.inode == 0 {
            let path = path.display();
            failure = format!("{failure}Missing dev/inode lines from checkpoint file {path}\n");
        }
        if failure.is_empty() {
            Ok(checkpoint)
        } else {
            Err(failure)
        }
    }

    /// Writes the checkpoint.
    ///
    /// # Errors
    /// The message when the file cannot be written.
    pub(crate) fn save(&self, path: &Path) -> Result<(), String> {
        fs::write(path, self.text()).map_err(|error| {
            let (path, error) = (path.display(), message(&error));
            format!("Cannot open checkpoint file - {path}: {error}\n")
        })
    }

    fn text(&self) -> Vec<u8> {
        let FileId { device, inode } = self.file;
        let LastEvent { id, kind } = &self.event;
        let mut text = format!("dev=0x{device:X}\ninode={inode}\noutput=").into_bytes();
        text.extend_from_slice(id.node.as_deref().unwrap_or(b"-"));
        let (seconds, millis, serial) = (id.seconds, id.millis, id.serial);
        text.extend_from_slice(format!(" {seconds}.{millis:03}:{serial} 0x{kind:X}\n").as_bytes());
        text
    }
}

fn parse_event(value: &[u8]) -> Result<LastEvent, String> {
    let shown = value.to_str_lossy();
    let Some((node, rest)) = value.split_once_str(b" ") else {
        return Err(format!(
            "Malformed output/event checkpoint line near node - [output={shown}]\n"
        ));
    };
    let malformed = || {
        let node = node.to_str_lossy();
        format!("Malformed output/event checkpoint line after node - [output={node}]\n")
    };
    let (seconds, millis, serial, kind) = numbers(rest).ok_or_else(malformed)?;
    Ok(LastEvent {
        id: EventId {
            seconds,
            millis,
            serial,
            node: (node.first() != Some(&b'-')).then(|| node.to_vec()),
        },
        kind,
    })
}

/// Reads `SECONDS.MILLISECONDS:SERIAL 0xTYPE`.
fn numbers(text: &[u8]) -> Option<(u64, u32, u64, i32)> {
    let mut rest = text;
    let mut part = |base, end: &[u8]| {
        let number = ctext::unsigned(rest, base);
        let behind = rest.get(number.length..)?.strip_prefix(end)?;
        rest = behind;
        (number.length > 0).then_some(number.value)
    };
    let seconds = part(10, b".")?;
    let millis = part(10, b":")?;
    let serial = part(10, b" ")?;
    let kind = part(16, b"")?;
    Some((seconds, low_32(millis), serial, low_i32(kind)))
}

/// Whether to print an event of a search that goes on where the last one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Not yet.
    Skip,
    /// This one and all later ones.
    Print,
    /// The log is not the one of the checkpoint.
    Corrupted,
}

/// Decides event by event.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    /// The event to wait for; `None` once it was found.
    until: Option<LastEvent>,
    time_only: bool,
}

impl Gate {
    pub(crate) fn new(checkpoint: Option<&Checkpoint>, time_only: bool) -> Self {
        let until = checkpoint.map(|checkpoint| checkpoint.event.clone());
        Self {
            until: until.filter(|event| event.id.seconds != 0),
            time_only,
        }
    }

    pub(crate) fn decide(&mut self, event: &Event) -> Decision {
        let Some(last) = &self.until else {
            return Decision::Print;
        };
        let time = (event.id.seconds, event.id.millis);
        let last_time = (last.id.seconds, last.id.millis);
        if self.time_only && time >= last_time {
            self.until = None;
            return Decision::Print;
        }
        if last.id == event.id && last.kind == event.kind {
            self.until = None;
            return Decision::Skip;
        }
        if event.id.seconds > last.id.seconds
            && event.id.seconds - last.id.seconds > MOST_DELTA_SECONDS
        {
            return Decision::Corrupted;
        }
        Decision::Skip
    }

    /// The event that was waited for.
    pub(crate) fn last(&self) -> Option<&LastEvent> {
        self.until.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_round_trip() {
        let text = b"dev=0xFE00\ninode=42\noutput=web1 1700000000.007:9 0x514\n";
        let checkpoint = Checkpoint::parse(text, Path::new("x")).unwrap();
        assert_eq!(
            checkpoint.file,
            FileId {
                device: 0xfe00,
                inode: 42
            }
        );
        assert_eq!(checkpoint.event.kind, 1300);
        assert_eq!(checkpoint.text(), text);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            (
                "x\n",
                "Unknown checkpoint line - [x]\nMissing dev/inode lines from checkpoint file x\n",
            ),
            (
                "dev=0x1\ninode=1\noutput=-\n",
                "Malformed output/event checkpoint line near node - [output=-]\n",
            ),
            (
                "dev=0x1\ninode=1\noutput=- 1.2 0x3\n",
                "Malformed output/event checkpoint line after node - [output=-]\n",
            ),
            (
                "inode=1\n",
                "Missing dev/inode lines from checkpoint file x\n",
            ),
        ] {
            assert_eq!(
                Checkpoint::parse(text.as_bytes(), Path::new("x")),
                Err(message.to_owned())
            );
        }
    }
}
