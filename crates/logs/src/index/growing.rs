//! The index of a log that its writer extends as it grows.

mod text_before;

use std::fmt;

use text_before::TextBefore;

use super::builder::BLOCK_BYTES;
use super::store::{self, Store, TextEnd};
use super::{Builder, Header, feed};
use bstr::ByteSlice as _;

use crate::line_buffer::{LineBuffer, MAX_LINE, len};
use crate::log_file::{LogError, LogFile};

/// Text that is parsed before it is asked whether there is something better to do.
///
/// # Units
/// Bytes.
const BETWEEN_LOOKS: usize = 64 << 10;
/// Text of repeated events for which one byte more may be parsed before the next look.
///
/// # Units
/// Bytes.
const REPEATED_FOR_PARSED: usize = 16;
/// Text that is read again at the start of a segment, for events that are open there, while lines are passed.
///
/// # Units
/// Bytes.
const MOST_READ_AGAIN: u64 = 4 << 20;
/// The same at the end of a log that no longer grows.
///
/// # Units
/// Bytes.
const MOST_READ_AT_END: u64 = 16 << 20;

/// The index file of a log that grows. Each part of the log is read once, soon after it was written.
pub struct GrowingIndex {
    log: LogFile,
    store: Store,
    builder: Builder,
    /// Start of the builder's segment.
    start: u64,
    lines: LineBuffer,
    /// Text that may be parsed before the next look.
    ///
    /// # Units
    /// Bytes.
    credit: usize,
    /// Text before the offset up to which `lines` has read.
    before: TextBefore,
}

impl GrowingIndex {
    /// Opens the index file beside a log, and creates it if it is missing. `None` if it cannot be written, another
    /// process extends it, or the log is too short to be recognised.
    ///
    /// # Errors
    /// [`LogError::Read`] if the log cannot be read.
    pub fn open(mut log: LogFile) -> Result<Option<Self>, LogError> {
        let Some((store, index)) = store::open_beside(&mut log)? else {
            return Ok(None);
        };
        let (start, lead) = (index.end(), index.next_lead());
        let mut growing = Self {
            log,
            store,
            builder: Builder::new(start, lead.min(start), BLOCK_BYTES),
            start,
            lines: LineBuffer::default(),
            credit: BETWEEN_LOOKS,
            before: TextBefore::default(),
        };
        growing.lines.restart(lead.min(start));
        let before = TextBefore::read(&mut growing.log, lead.min(start))?;
        growing.before = before.ok_or_else(|| growing.log.cut())?;
        Ok(Some(growing))
    }

    /// The log.
    #[must_use]
    pub const fn log(&self) -> &LogFile {
        &self.log
    }

    /// Whether the log became shorter than what was read of it, or has other text there: the index is that of other text.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub fn is_cut(&mut self) -> Result<bool, LogError> {
        Ok(!self.before.is_in(&mut self.log, self.lines.read_offset())?)
    }

    /// Indexes the text up to the offset `end`, which stays as it is. Text that fills no segment is remembered, and
    /// written later.
    ///
    /// # Errors
    /// [`LogError::Read`], and [`LogError::Cut`] for [`GrowingIndex::is_cut`].
    pub fn advance(&mut self, end: u64) -> Result<(), LogError> {
        if self.is_cut()? {
            return Err(self.log.cut());
        }
        self.read_to(end)
    }

    fn read_to(&mut self, end: u64) -> Result<(), LogError> {
        loop {
            let Self {
                log, before, lines, ..
            } = self;
            let read = |room: &mut [u8], offset| {
                let count = log.read_at(room, offset)?;
                // Afterwards: then what was read continues the text before it.
                if !before.is_in(log, offset)? {
                    return Err(log.cut());
                }
                before.push(room.get(..count).unwrap_or_default());
                Ok(count)
            };
            if !feed(&mut self.builder, lines, read, end)? {
                return Ok(());
            }
            self.write_segment()?;
        }
    }

    /// End of the text whose index is in the file.
    #[must_use]
    pub const fn indexed(&self) -> u64 {
        self.start
    }

    /// Offset of the text that was not yet read.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.lines.offset()
    }

    /// Indexes lines that were written to the log at `offset`, [`GrowingIndex::position`], without reading them again.
    /// Returns false if it has not indexed all of them: `is_busy` told so, the offset is another one, or much text must be
    /// read again. Repeated events are so cheap that `is_busy` is asked only if most of the text must be parsed.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub fn add_lines(
        &mut self,
        lines: &[u8],
        offset: u64,
        is_busy: &dyn Fn() -> bool,
    ) -> Result<bool, LogError> {
        if self.lines.offset() != offset || self.lines.read_offset() != offset {
            return Ok(false);
        }
        let (mut at, mut pushed) = (0, 0);
        while let Some(rest) = lines.get(at..).filter(|rest| !rest.is_empty()) {
            let here = offset + len(at);
            let mut parsed = 0;
            if let Some(event) = self.builder.whole_event(rest, here) {
                at += event.len;
                if event.is_repeated {
                    let gained = self.credit + event.len / REPEATED_FOR_PARSED;
                    self.credit = gained.min(BETWEEN_LOOKS);
                } else {
                    parsed = event.len;
                }
            } else {
                let Some(end) = rest.find_byte(b'\n') else {
                    break;
                };
                let line = rest.get(..end).unwrap_or_default();
                if line.len() > MAX_LINE {
                    self.builder.too_long();
                } else if self.builder.line(line, here) {
                    self.before.push(lines.get(pushed..at).unwrap_or_default());
                    pushed = at;
                    self.lines.restart(here);
                    self.write_segment()?;
                    // Events that are open there began before.
                    if here - self.position().min(here) > MOST_READ_AGAIN {
                        return Ok(false);
                    }
                    self.read_to(here)?;
                    continue;
                }
                at += end + 1;
                parsed = end + 1;
            }
            self.credit = self.credit.saturating_sub(parsed);
            if self.credit == 0 {
                self.credit = BETWEEN_LOOKS;
                if is_busy() {
                    break;
                }
            }
        }
        self.lines.restart(offset + len(at));
        self.before.push(lines.get(pushed..at).unwrap_or_default());
        Ok(at == lines.len())
    }

    /// Indexes the rest of the text: the log no longer grows. Where events are open at the end of a segment, and much text
    /// must be read again for them, the rest is left to others.
    ///
    /// # Errors
    /// As of [`GrowingIndex::advance`].
    pub fn finish(mut self) -> Result<(), LogError> {
        if self.is_cut()? {
            return Err(self.log.cut());
        }
        loop {
            self.read_to(u64::MAX)?;
            let text_end = self.position();
            if self.indexed() >= text_end
                || self.write_segment()? >= text_end
                || text_end - self.position() > MOST_READ_AT_END
            {
                return Ok(());
            }
        }
    }

    /// Writes what was indexed, if it is at least a block, and leaves the rest to others.
    ///
    /// # Errors
    /// As of [`GrowingIndex::advance`].
    pub fn save(mut self) -> Result<(), LogError> {
        if self.position().saturating_sub(self.start) < BLOCK_BYTES {
            return Ok(());
        }
        if self.is_cut()? {
            return Err(self.log.cut());
        }
        self.write_segment().map(|_start| ())
    }

    /// Writes the segment of the builder and begins the next one; returns where that starts.
    fn write_segment(&mut self) -> Result<u64, LogError> {
        let text_end = self.lines.offset();
        let builder = std::mem::replace(
            &mut self.builder,
            Builder::new(text_end, text_end, BLOCK_BYTES),
        );
        let bytes = builder.finish(text_end).unwrap_or_default();
        let Some(header) = Header::parse(&bytes) else {
            return Ok(text_end);
        };
        let start = header.blocks.last().map_or(text_end, |block| block.end);
        let covered = TextEnd::at(&mut self.log, start)?.ok_or_else(|| self.log.cut())?;
        let lead = header.next_lead.min(start);
        let before = TextBefore::read(&mut self.log, lead)?;
        // Afterwards: then both are parts of what was indexed.
        if self.is_cut()? {
            return Err(self.log.cut());
        }
        self.before = before.ok_or_else(|| self.log.cut())?;
        self.store.append(&bytes, &covered);
        self.start = start;
        self.builder = Builder::new(start, lead, BLOCK_BYTES);
        self.lines.restart(lead);
        Ok(start)
    }
}

impl fmt::Debug for GrowingIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrowingIndex")
            .field("log", &self.log)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::path::Path;

    use super::*;
    use crate::index::LogIndex;
    use crate::index::store::{Extent, open};

    /// Lines of events, four of which are open at a time.
    fn lines(from: u32, count: u32) -> String {
        let line = |number: u32| {
            let (kind, event) = match number % 2 {
                0 => ("SYSCALL", number / 2),
                _ => ("EOE", (number / 2).saturating_sub(4)),
            };
            let exe = "x".repeat(100);
            format!("type={kind} msg=audit(1700000000.000:{event}): pid={event} exe=\"/{exe}\"\n")
        };
        (from..from + count).map(line).collect()
    }

    fn index_file(directory: &Path) -> Vec<u8> {
        let mut entries = fs::read_dir(directory.join(".tollgate-index")).unwrap();
        fs::read(entries.next().unwrap().unwrap().path()).unwrap()
    }

    fn index(path: &Path) -> LogIndex {
        open(&mut LogFile::open(path).unwrap(), Extent::Whole, |_| ()).unwrap()
    }

    #[test]
    fn log_that_grows_gets_the_index_of_the_whole_text() {
        let (grown, whole) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = grown.path().join("audit.log");
        let mut file = File::create(&path).unwrap();
        file.write_all(lines(0, 100).as_bytes()).unwrap();
        let mut growing = GrowingIndex::open(LogFile::open(&path).unwrap())
            .unwrap()
            .unwrap();
        let mut size = 0;
        for part in 1..=40 {
            file.write_all(lines(part * 2000, 2000).as_bytes()).unwrap();
            // What was written last stays out: it may be cut off.
            growing.advance(size).unwrap();
            size = file.metadata().unwrap().len() - u64::from(part % 3);
            if part == 20 {
                // The writer was started again.
                drop(growing);
                growing = GrowingIndex::open(LogFile::open(&path).unwrap())
                    .unwrap()
                    .unwrap();
            }
        }
        assert!(
            GrowingIndex::open(LogFile::open(&path).unwrap())
                .unwrap()
                .is_none(),
            "locked"
        );
        growing.finish().unwrap();
        let other = whole.path().join("audit.log");
        fs::copy(&path, &other).unwrap();
        let blocks = index(&other).blocks().count();
        assert!(blocks > 64, "{blocks} blocks, {size} bytes");
        // The headers name the files.
        let (grown, whole) = (index_file(grown.path()), index_file(whole.path()));
        assert!(grown[48..] == whole[48..]);
    }

    #[test]
    fn lines_that_are_passed_give_the_same_index() {
        let (passed, whole) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = passed.path().join("audit.log");
        let mut file = File::create(&path).unwrap();
        let first = lines(0, 100);
        file.write_all(first.as_bytes()).unwrap();
        let mut growing = GrowingIndex::open(LogFile::open(&path).unwrap())
            .unwrap()
            .unwrap();
        growing.advance(len(first.len())).unwrap();
        let mut size = growing.position();
        for part in 0..40 {
            let text = lines(100 + part * 2000, 2000);
            file.write_all(text.as_bytes()).unwrap();
            let is_busy = part % 7 == 3;
            let all = growing
                .add_lines(text.as_bytes(), size, &|| is_busy)
                .unwrap();
            assert_eq!(all, !is_busy);
            size += len(text.len());
            // What was left out is read.
            assert_eq!(
                growing.add_lines(b"x\n", size, &|| false).unwrap(),
                !is_busy
            );
            if is_busy {
                growing.advance(size).unwrap();
            } else {
                file.write_all(b"x\n").unwrap();
                size += 2;
            }
            assert_eq!(growing.position(), size);
        }
        growing.finish().unwrap();
        let other = whole.path().join("audit.log");
        fs::copy(&path, &other).unwrap();
        assert!(index(&other).blocks().count() > 64);
        let (passed, whole) = (index_file(passed.path()), index_file(whole.path()));
        assert!(passed[48..] == whole[48..]);
    }

    /// An event that stays open makes the next segment begin far before the first one ends.
    #[test]
    fn log_with_an_open_event_is_read_again_by_another_thread() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("audit.log");
        let open = "type=CONFIG_CHANGE msg=audit(1700000000.000:1): op=set\n";
        let event = |serial: u32| {
            // The open event ends by its age.
            let second = serial / 29_000 * 3;
            let stamp = format!("msg=audit(170000000{second}.000:{serial}):");
            let exe = "x".repeat(400 + usize::try_from(serial % 7).unwrap());
            format!("type=SYSCALL {stamp} pid={serial} exe=\"/{exe}\"\ntype=PROCTITLE {stamp} p\n")
        };
        let text: String = (2..30_000).map(event).collect();
        fs::write(&path, format!("{open}{text}")).unwrap();
        let mut growing = GrowingIndex::open(LogFile::open(&path).unwrap())
            .unwrap()
            .unwrap();
        growing.advance(len(open.len())).unwrap();
        let all = growing
            .add_lines(text.as_bytes(), len(open.len()), &|| false)
            .unwrap();
        assert!(!all);
        assert!(growing.indexed() > 2 * MOST_READ_AGAIN);
        assert_eq!(growing.position(), 0);
        let size = len(open.len() + text.len());
        growing.advance(size).unwrap();
        growing.finish().unwrap();
        let growing = GrowingIndex::open(LogFile::open(&path).unwrap());
        assert_eq!(growing.unwrap().unwrap().indexed(), size);
    }

    #[test]
    fn cut_log_is_recognised() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("audit.log");
        fs::write(&path, "short\n").unwrap();
        assert!(
            GrowingIndex::open(LogFile::open(&path).unwrap())
                .unwrap()
                .is_none()
        );
        fs::write(&path, lines(0, 1000)).unwrap();
        let mut growing = GrowingIndex::open(LogFile::open(&path).unwrap())
            .unwrap()
            .unwrap();
        growing.advance(u64::MAX).unwrap();
        assert!(!growing.is_cut().unwrap());
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(10_000)
            .unwrap();
        assert!(growing.is_cut().unwrap());
    }

    /// The index of the old text is not continued, whoever has it when the log is cut off and grows again.
    #[test]
    fn cut_log_that_grew_again_is_recognised() {
        for by_lines in [false, true] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("audit.log");
            fs::write(&path, lines(0, 1000)).unwrap();
            let log = LogFile::open(&path).unwrap();
            let mut growing = GrowingIndex::open(log).unwrap().unwrap();
            assert!(!growing.is_cut().unwrap());
            growing.advance(u64::MAX).unwrap();
            let mut file = File::options().append(true).open(&path).unwrap();
            if by_lines {
                let text = lines(1000, 10);
                file.write_all(text.as_bytes()).unwrap();
                let at = growing.position();
                assert!(growing.add_lines(text.as_bytes(), at, &|| false).unwrap());
            }
            assert!(!growing.is_cut().unwrap());
            file.set_len(10_000).unwrap();
            file.write_all(lines(5000, 2000).as_bytes()).unwrap();
            assert!(growing.is_cut().unwrap());
            let error = growing.advance(u64::MAX).unwrap_err();
            assert!(matches!(error, LogError::Cut { .. }), "{error:?}");
            assert!(matches!(growing.finish(), Err(LogError::Cut { .. })));
        }
    }
}
