//! Indexes the log as it grows, in the log thread: the lines that it has just written are in the processor's caches.
//!
//! Events come first. While batches wait, or work is put off, nothing is indexed; what was left out is read back in
//! small steps when there is time. If that is more than [`MOST_BEHIND`], the rest of the log is left to the first
//! search, which needs some milliseconds for each megabyte; the next log is indexed again.

use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use logs::index::growing::GrowingIndex;
use logs::log_file::LogError;
use logs::log_set;

use super::put_off::PutOff;
use crate::sinks::log_file::Log;

/// Length at which a log can be recognised by its start.
///
/// # Units
/// Bytes.
const LEAST_LOG: u64 = 4096;
/// Text that is read back although batches wait: such as the first records of a new log.
///
/// # Units
/// Bytes.
const LITTLE: u64 = 64 << 10;
/// Text that is read back at once.
///
/// # Units
/// Bytes.
const READ_AT_ONCE: u64 = 1 << 20;
/// Time between two such steps: they cost at most some 3 % of a CPU.
const BETWEEN_STEPS: Duration = Duration::from_millis(100);
/// Most text that is read back: less than `flush.rs` leaves in the page cache. If more lacks its index, the index file
/// is left to others; it is opened again after the log has grown as much, because a search may have completed it.
///
/// # Units
/// Bytes.
const MOST_BEHIND: u64 = 24 << 20;

/// The index of the open log.
pub(super) struct Indexer {
    growing: Option<GrowingIndex>,
    /// Length of the log at which its index is opened.
    open_at: u64,
    /// When text was read back last.
    read_back: Instant,
    /// End of the text that was written.
    end: u64,
    put_off: Arc<PutOff>,
    warn: Arc<dyn Fn(&str) + Send + Sync>,
    /// The last failure was reported, and no index was extended since.
    has_failed: bool,
}

impl Indexer {
    /// Indexes nothing yet. Failures go to `warn`.
    pub(super) fn new(put_off: Arc<PutOff>, warn: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        Self {
            growing: None,
            open_at: LEAST_LOG,
            read_back: Instant::now(),
            end: 0,
            put_off,
            warn,
            has_failed: false,
        }
    }

    /// Lines were written at `offset` to the log `log` at `path`, the last ones in it.
    pub(super) fn written(
        &mut self,
        path: &Path,
        log: &Log,
        lines: &[u8],
        offset: u64,
        is_busy: &dyn Fn() -> bool,
    ) {
        self.end = offset + u64::try_from(lines.len()).unwrap_or_default();
        let indexed = self.index(path, log, lines, offset..self.end, is_busy);
        self.note(indexed);
    }

    /// Time until [`Self::read_back`] has something to do, if nothing is written.
    pub(super) fn next_step(&self) -> Option<Duration> {
        let index = self.growing.as_ref()?;
        if index.position() >= self.end {
            return None;
        }
        let pause = BETWEEN_STEPS.saturating_sub(self.read_back.elapsed());
        Some(pause.max(self.put_off.left().unwrap_or_default()))
    }

    /// Reads back text that was left out, if there is time.
    pub(super) fn read_back(&mut self, is_busy: &dyn Fn() -> bool) {
        if self.next_step() != Some(Duration::ZERO) || is_busy() {
            return;
        }
        let Some(index) = &mut self.growing else {
            return;
        };
        self.read_back = Instant::now();
        let end = self.end.min(index.position() + READ_AT_ONCE);
        let read = index.advance(end);
        self.note(read);
    }

    fn index(
        &mut self,
        path: &Path,
        log: &Log,
        lines: &[u8],
        written: Range<u64>,
        is_busy: &dyn Fn() -> bool,
    ) -> Result<(), LogError> {
        let is_put_off = self.put_off.left().is_some();
        if self.growing.is_none() && !is_put_off && written.end >= self.open_at {
            // A search has it for a moment, or it cannot be written.
            self.open_at = written.end + READ_AT_ONCE;
            self.growing = open(path, log)?;
        }
        let Some(index) = &mut self.growing else {
            return Ok(());
        };
        let Some(behind) = written.start.checked_sub(index.position()) else {
            // Somebody cut the log: the rest of the index is that of other text.
            self.forget();
            return Ok(());
        };
        if behind > MOST_BEHIND {
            self.open_at = written.end + MOST_BEHIND;
            return self.growing.take().map_or(Ok(()), GrowingIndex::save);
        }
        if is_put_off {
            return Ok(());
        }
        if behind > LITTLE {
            if is_busy() || self.read_back.elapsed() < BETWEEN_STEPS {
                return Ok(());
            }
            self.read_back = Instant::now();
        }
        if behind > 0 {
            index.advance(written.start.min(index.position() + READ_AT_ONCE))?;
        }
        // What it does not index now is read back.
        index
            .add_lines(lines, written.start, is_busy)
            .map(|_all| ())
    }

    /// The log was rotated: the index gets the rest of it.
    pub(super) fn rotated(&mut self) {
        if let Some(index) = self.growing.take() {
            let ended = match index.log().size() {
                Ok(Some(size))
                    if self.put_off.left().is_none()
                        && size.saturating_sub(index.position()) <= READ_AT_ONCE =>
                {
                    index.finish()
                }
                _ => index.save(),
            };
            self.note(ended);
        }
        self.forget();
    }

    /// The log is closed, and may be opened again.
    pub(super) fn closed(&mut self) {
        if let Some(index) = self.growing.take() {
            let saved = index.save();
            self.note(saved);
        }
        self.forget();
    }

    /// Drops the index. It is opened again soon.
    fn forget(&mut self) {
        self.growing = None;
        (self.open_at, self.end) = (LEAST_LOG, 0);
    }

    /// Notes the result of a step.
    fn note(&mut self, result: Result<(), LogError>) {
        match result {
            Ok(()) => self.has_failed &= self.growing.is_none(),
            // The index of other text is replaced when it is opened.
            Err(LogError::Cut { .. }) => self.forget(),
            Err(error) => {
                self.growing = None;
                self.open_at = self.end + MOST_BEHIND;
                if !std::mem::replace(&mut self.has_failed, true) {
                    let error = anyhow::Error::new(error);
                    (self.warn)(&format!(
                        "cannot index the log, the next search does: {error:#}"
                    ));
                }
            }
        }
    }
}

/// The index of a log, unless another file has its path, or the index cannot be written.
fn open(path: &Path, log: &Log) -> Result<Option<GrowingIndex>, LogError> {
    let opened = match log_set::open_no_link(path) {
        Ok(opened) => opened,
        Err(error) if error.is_missing() => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_same = log.metadata().is_ok_and(|about| {
        let found = opened.id().map(|id| (id.device, id.inode));
        found == Some((about.dev(), about.ino()))
    });
    if is_same {
        GrowingIndex::open(opened)
    } else {
        Ok(None)
    }
}
