//! Reads the events of a log that may meet a condition, with the help of indexes.
//!
//! The index of each file names the blocks in which such an event may begin. Of these, blocks whose text does not
//! contain what every such event contains are skipped without being parsed. The caller checks each event.

use audit::record::assemble::EventRecords;

use crate::event_reader::{EventReader, TextRange};
use crate::index::store::{Extent, Indexes, TextEnd};
use crate::index::{Condition, LogIndex};
use crate::log_file::{LogError, LogFile};
use crate::log_set::LogSet;

/// A longer piece of a log is read event by event, not searched as text.
///
/// # Units
/// Bytes.
const MAX_PIECE_BYTES: u64 = 4 << 20;

/// After so many blocks in a row that the filter accepted, one in so many is filtered.
const PATIENCE: u32 = 8;

/// Whether a text may contain an event that is searched for.
pub type TextFilter<'a> = Box<dyn Fn(&[u8]) -> bool + 'a>;

/// Reads the events of a log that may meet a condition: block by block, and in a block in the order in which they end.
pub struct Candidates<'a> {
    reader: EventReader,
    /// Pieces of text to be read, in reverse.
    pieces: Vec<Piece>,
    filter: TextFilter<'a>,
    /// Text of a block, for the filter.
    text: Vec<u8>,
    /// Blocks that the filter accepted in a row.
    accepted: u32,
    done: Progress,
    is_open: bool,
    /// Ends of the files when the search began, with their numbers.
    ends: Vec<(usize, TextEnd)>,
}

/// How much of the log was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of text that were read or excluded.
    pub done_bytes: u64,
    /// Bytes of text in all.
    pub all_bytes: u64,
}

/// A block, or text that no index covers.
#[derive(Clone, Copy, Debug)]
struct Piece {
    range: TextRange,
    /// Bytes from the end of the last piece to the end of this one.
    bytes: u64,
    /// All records of the events that begin in the piece are in it: its text can be filtered.
    is_closed: bool,
}

impl<'a> Candidates<'a> {
    /// Reads the events of `logs` that may meet `condition`, and whose text `filter` accepts. Indexes are extended
    /// first; `building` gets the progress of that.
    ///
    /// # Errors
    /// [`LogError::Read`].
    pub fn new(
        logs: LogSet,
        condition: &Condition<'_>,
        filter: TextFilter<'a>,
        mut building: impl FnMut(Progress),
    ) -> Result<Self, LogError> {
        let grows = logs.current().is_some();
        let mut files = logs.into_files();
        let sizes = files
            .iter()
            .map(|file| file.size().map(Option::unwrap_or_default))
            .collect::<Result<Vec<u64>, LogError>>()?;
        let mut progress = Progress {
            done_bytes: 0,
            all_bytes: sizes.iter().sum(),
        };
        let mut pieces = Pieces::default();
        let mut ends = Vec::new();
        let mut indexes = Indexes::default();
        let last = files.len().saturating_sub(1);
        for (number, (file, size)) in files.iter_mut().zip(&sizes).enumerate() {
            let extent = match grows && number == last && !file.is_archive() {
                true => Extent::FullSegments,
                false => Extent::Whole,
            };
            // An archive does not grow, and is not cut.
            if file.id().is_some() && !file.is_archive() {
                let end = TextEnd::at(file, *size)?.ok_or_else(|| file.cut())?;
                ends.push((number, end));
            }
            let before = progress.done_bytes;
            let opened = indexes.open(file, extent, |end| {
                progress.done_bytes = before + end;
                building(progress);
            });
            let index = match opened {
                // What cannot be read of it is met again, and reported, when the events are read.
                Err(_) if file.is_archive() => LogIndex::default(),
                opened => opened?,
            };
            progress.done_bytes = before + size;
            pieces.add(number, file, *size, &index, condition);
        }
        progress.done_bytes = 0;
        let mut pieces = pieces.pieces;
        pieces.reverse();
        Ok(Self {
            reader: EventReader::new(LogSet::of_files(files)),
            pieces,
            filter,
            text: Vec::new(),
            accepted: 0,
            done: progress,
            is_open: false,
            ends,
        })
    }

    /// Returns the next event; `None` at the end. A caller can go on after an error, without the text that cannot be
    /// read.
    ///
    /// # Errors
    /// [`LogError::Read`], and [`LogError::Cut`] at the end if text was cut off from a file since the search began.
    pub fn next_event(&mut self) -> Result<Option<&EventRecords>, LogError> {
        loop {
            if self.is_open {
                if self.reader.advance_where(&self.filter)? {
                    return Ok(self.reader.event());
                }
                self.is_open = false;
            }
            if !self.next_piece() {
                return self.check_ends().map(|()| None);
            }
        }
    }

    /// How much was looked at.
    #[must_use]
    pub const fn progress(&self) -> Progress {
        self.done
    }

    /// Checks that the files still have the text that they had.
    fn check_ends(&mut self) -> Result<(), LogError> {
        while let Some((number, end)) = self.ends.pop() {
            if let Some(file) = self.reader.file_mut(number)
                && !end.is_in(file)?
            {
                return Err(file.cut());
            }
        }
        Ok(())
    }

    /// Begins to read the next piece. Returns false if there is none.
    fn next_piece(&mut self) -> bool {
        while let Some(piece) = self.pieces.pop() {
            self.done.done_bytes += piece.bytes;
            // Where most blocks are accepted, it costs less to read their events at once.
            let is_filtered = self.accepted < PATIENCE || self.accepted.is_multiple_of(PATIENCE);
            self.accepted = self.accepted.wrapping_add(1);
            if piece.is_closed && is_filtered && !self.may_match(&piece.range) {
                self.accepted = 0;
                continue;
            }
            self.reader.jump(piece.range);
            self.is_open = true;
            return true;
        }
        false
    }

    fn may_match(&mut self, range: &TextRange) -> bool {
        let ((number, start), (_, end)) = (range.from, range.until);
        let Some(file) = self.reader.file_mut(number) else {
            return false;
        };
        // A hostile log can have a larger block, without a record in it.
        if end - start > MAX_PIECE_BYTES {
            return true;
        }
        let size = usize::try_from(end - start).unwrap_or(usize::MAX);
        if self.text.len() < size {
            self.text.resize(size, 0);
        }
        let room = self.text.get_mut(..size).unwrap_or_default();
        // What cannot be read is met again, and reported, when the events are read.
        let Ok(count) = file.fill_at(room, start) else {
            return true;
        };
        (self.filter)(self.text.get(..count).unwrap_or_default())
    }
}

/// Collects the pieces of several files.
#[derive(Default)]
struct Pieces {
    pieces: Vec<Piece>,
    /// Where the last file must be read for the first events of the next one, if events are open at its end.
    lead: Option<(usize, u64)>,
    /// Bytes of the files before.
    skipped: u64,
}

impl Pieces {
    /// Adds the pieces of a file.
    fn add(
        &mut self,
        number: usize,
        file: &LogFile,
        size: u64,
        index: &LogIndex,
        condition: &Condition<'_>,
    ) {
        let lead = self.lead.take();
        let is_stream = file.id().is_none();
        let mut at = 0;
        if !is_stream {
            self.blocks(number, index, condition, lead, &mut at);
        }
        let end = index.end();
        let is_tail_open = end < size || is_stream || index.is_open_at_end();
        if end < size || is_stream {
            let lead = match lead.filter(|_| end == 0) {
                Some(lead) => lead,
                None => (number, index.next_lead()),
            };
            let bytes = size.saturating_sub(at);
            self.push(lead, (number, end), (number + 1, 0), bytes, false);
            at = size;
        }
        self.skipped += size.saturating_sub(at);
        if is_tail_open && !is_stream {
            let last_block = index.blocks().last().map_or(0, |block| block.lead);
            self.lead = Some((
                number,
                if end < size {
                    index.next_lead()
                } else {
                    last_block
                },
            ));
        }
    }

    fn blocks(
        &mut self,
        number: usize,
        index: &LogIndex,
        condition: &Condition<'_>,
        lead: Option<(usize, u64)>,
        at: &mut u64,
    ) {
        let mut candidates = index.candidates(condition).into_iter().peekable();
        let mut blocks = index.blocks().peekable();
        while let Some(block) = blocks.next() {
            let next_lead = blocks
                .peek()
                .map_or_else(|| index.next_lead(), |next| next.lead);
            let is_first = block.start == 0;
            let continues = is_first && lead.is_some();
            let is_last_open = blocks.peek().is_none() && index.is_open_at_end();
            let is_candidate = candidates
                .next_if(|next| next.start == block.start)
                .is_some();
            // Values of events that span two files are in neither index.
            if !is_candidate && !continues && !is_last_open {
                continue;
            }
            let lead = match lead.filter(|_| is_first) {
                Some(lead) => lead,
                None => (number, block.lead),
            };
            let is_closed = next_lead >= block.end && !is_last_open;
            let bytes = block.end - *at;
            self.push(
                lead,
                (number, block.start),
                (number, block.end),
                bytes,
                is_closed,
            );
            *at = block.end;
        }
    }

    fn push(
        &mut self,
        lead: (usize, u64),
        from: (usize, u64),
        until: (usize, u64),
        bytes: u64,
        is_closed: bool,
    ) {
        let range = TextRange { lead, from, until };
        let bytes = bytes + std::mem::take(&mut self.skipped);
        self.pieces.push(Piece {
            range,
            bytes,
            is_closed,
        });
    }
}

impl std::fmt::Debug for Candidates<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidates")
            .field("pieces", &self.pieces.len())
            .field("progress", &self.done)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod robustness;
#[cfg(test)]
mod tests;
