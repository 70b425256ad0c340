//! Answers a question from the part of the log that the index leaves.
//!
//! The index tells for each block of a log whether a record in it may have a value. An event that matches has a record
//! for each condition of the question, and all its records are in the blocks from the one where it begins to the one
//! where it must be complete. Only blocks where such an event may begin are read, with as much before and after them as
//! decides which records belong to their events, and in which order these leave: see [`plan`].
//!
//! The answer is that of a search without an index, whatever the log. Where what was skipped could matter nevertheless,
//! the search is repeated without it.

mod conditions;
mod needle;
mod plan;

use std::io::{self, Read as _};
use std::path::PathBuf;

use logs::index::LogIndex;
use logs::index::store::{Extent, Indexes};
use logs::log_file::LogFile;

use crate::events::{Events, Passed, Sink, Step};
use crate::filter::Filter;
use crate::log_times::greatest_second;
use crate::part_reader::PartReader;
use conditions::Question;
use needle::stamps_with_all;
use plan::{Piece, Plan};

/// Smallest log of which an index pays.
const MIN_BYTES: u64 = 8 << 20;
/// Bytes of a block.
const BLOCK_BYTES: u64 = 1 << 20;
/// Parts that the kernel reads from the disk while others are searched.
const PARTS_AHEAD: usize = 8;
/// Set to a number of bytes, it is the size of a block, and logs of any size are indexed. Set to 0, none are. For tests.
const TEST_BLOCKS: &str = "TOLLGATE_INDEX_BLOCK";

/// The log that a question is asked about, with the plan to read it.
pub(crate) struct Narrowed<'q> {
    files: Vec<LogFile>,
    plan: Plan,
    question: Question<'q>,
    /// Which needles of the question each part has, once that was looked at: a bit each.
    found: Vec<Option<u16>>,
    /// Text of the part that was looked at last.
    text: Vec<u8>,
    /// Number of that part.
    loaded: Option<usize>,
}

impl<'q> Narrowed<'q> {
    /// Looks at the indexes of some files; `None` if they do not help.
    pub(crate) fn new(paths: &[PathBuf], filter: &'q Filter, timeout_seconds: u64) -> Option<Self> {
        let question = Question::new(filter);
        if timeout_seconds == 0 || question.is_empty() && filter.start == 0 && filter.end == 0 {
            return None;
        }
        let (block_bytes, min_bytes) = match std::env::var(TEST_BLOCKS) {
            Ok(bytes) => (bytes.parse().ok().filter(|&bytes| bytes > 0)?, 0),
            Err(_) => (BLOCK_BYTES, MIN_BYTES),
        };
        let mut files = Vec::with_capacity(paths.len());
        let mut sizes = Vec::with_capacity(paths.len());
        for path in paths {
            let file = LogFile::open(path).ok()?;
            sizes.push(file.size().ok()??);
            files.push(file);
        }
        if sizes.iter().sum::<u64>() < min_bytes {
            return None;
        }
        let mut plan = Plan::new(filter, timeout_seconds);
        let mut indexes = Indexes::with_blocks(block_bytes);
        let last = files.len().saturating_sub(1);
        for (number, (file, size)) in files.iter_mut().zip(sizes).enumerate() {
            let is_archive = file.path().extension().is_some_and(|name| name == "zst");
            let extent = match number == last && !is_archive {
                true => Extent::FullSegments,
                false => Extent::Whole,
            };
            let index = indexes.open(file, extent, |_| ()).ok()?;
            add_blocks(&mut plan, number, &index, &question);
            if number == last {
                plan.add_last(number, index.end(), size);
            } else if index.end() < size {
                let greatest = greatest_second(file, index.end(), size)?;
                plan.add_unindexed(number, index.end()..size, greatest);
            }
        }
        plan.finish();
        let found = vec![None; plan.parts().len()];
        Some(Self {
            files,
            plan,
            question,
            found,
            text: Vec::new(),
            loaded: None,
        })
    }

    /// Passes the events to a sink, in order.
    ///
    /// # Errors
    /// When the sink fails.
    pub(crate) fn read(&mut self, events: &mut Events, sink: &mut impl Sink) -> io::Result<Step> {
        if self.question.is_empty() {
            return match Piece::all(self.plan.parts()) {
                Some(piece) => self.read_piece(&piece, events, sink),
                None => Ok(Step::Next),
            };
        }
        let mut pending: Option<Piece> = None;
        let mut at = 0;
        let (mut ahead, mut advised) = (0, 0);
        while let Some(next) = self.plan.next_candidate(at) {
            at = next + 1;
            while advised < PARTS_AHEAD
                && let Some(later) = self.plan.next_candidate(ahead)
            {
                (ahead, advised) = (later + 1, advised + 1);
                self.will_need(later);
            }
            advised -= 1;
            if !self.may_match(next) {
                continue;
            }
            let piece = self.plan.piece(next);
            if let Some(before) = pending.as_mut().filter(|before| before.touches(&piece)) {
                before.merge(piece);
                continue;
            }
            if let Some(before) = pending.take() {
                let step = self.read_piece(&before, events, sink)?;
                if step != Step::Next {
                    return Ok(step);
                }
            }
            if self.plan.is_apart(next) && self.load(next) {
                let step = self.read_loaded(events, sink)?;
                if step != Step::Next {
                    return Ok(step);
                }
            } else {
                pending = Some(piece);
            }
        }
        match pending {
            Some(piece) => self.read_piece(&piece, events, sink),
            None => Ok(Step::Next),
        }
    }

    /// Passes on the events of the loaded part, which stands apart.
    fn read_loaded(&self, events: &mut Events, sink: &mut impl Sink) -> io::Result<Step> {
        let stamps = stamps_with_all(&self.question.needles, &self.text);
        let passed = stamps.as_deref().map_or(Passed::All, Passed::Only);
        events.restart(false);
        let step = events.read_part(self.text.as_slice(), passed, sink)?;
        if step != Step::Next {
            return Ok(step);
        }
        events.finish(sink)
    }

    fn will_need(&self, number: usize) {
        if let Some(part) = self
            .plan
            .parts()
            .get(number)
            .filter(|part| part.is_regular())
            && let Some(file) = self.files.get(part.file)
        {
            file.will_need(part.start..part.end);
        }
    }

    fn read_piece(
        &mut self,
        piece: &Piece,
        events: &mut Events,
        sink: &mut impl Sink,
    ) -> io::Result<Step> {
        events.restart(piece.first == 0);
        let mut wanted = piece.wanted.iter().copied().peekable();
        for number in piece.first..=piece.last {
            let Some(part) = self.plan.parts().get(number) else {
                break;
            };
            let passed = match wanted.next_if_eq(&number) {
                Some(_) => Passed::All,
                None => Passed::None,
            };
            let Some(file) = self.files.get_mut(part.file) else {
                break;
            };
            let input = PartReader {
                file,
                at: part.start,
                end: part.end,
            };
            let step = events.read_part(input, passed, sink)?;
            if step != Step::Next {
                return Ok(step);
            }
        }
        events.finish(sink)
    }

    /// Whether the parts where an event that begins in a part may have records have all needles.
    fn may_match(&mut self, number: usize) -> bool {
        let all = (1 << self.question.needles.len()) - 1;
        let (from, to) = self.plan.reach(number);
        let mut found = 0;
        for number in from..=to {
            if found == all {
                break;
            }
            let known = self.found.get(number).copied().flatten();
            let needles = known.unwrap_or_else(|| self.find_needles(number));
            if let Some(known) = self.found.get_mut(number) {
                *known = Some(needles);
            }
            found |= needles & all;
        }
        found == all
    }

    /// Bits of the needles that a part may have.
    fn find_needles(&mut self, number: usize) -> u16 {
        if !self.load(number) {
            return u16::MAX;
        }
        let needles = self.question.needles.iter().enumerate();
        needles
            .filter(|(_, needle)| needle.is_in(&self.text))
            .fold(0, |found, (number, _)| found | 1 << number)
    }

    /// Reads the text of a part, unless it is unclear, too large, or cannot be read; whether that was done.
    fn load(&mut self, number: usize) -> bool {
        const MAX_TEXT: u64 = 8 << 20;
        if self.loaded == Some(number) {
            return true;
        }
        self.loaded = None;
        let Some(part) = self.plan.parts().get(number) else {
            return false;
        };
        let size = part.end - part.start;
        let (true, Some(file)) = (
            part.is_regular() && size <= MAX_TEXT,
            self.files.get_mut(part.file),
        ) else {
            return false;
        };
        self.text
            .resize(usize::try_from(size).unwrap_or_default(), 0);
        let mut input = PartReader {
            file,
            at: part.start,
            end: part.end,
        };
        if input.read_exact(&mut self.text).is_err() {
            return false;
        }
        self.loaded = Some(number);
        true
    }
}

fn add_blocks(plan: &mut Plan, number: usize, index: &LogIndex, question: &Question<'_>) {
    let mut candidates: Vec<_> = question
        .conditions
        .iter()
        .map(|condition| index.candidates(condition).into_iter().peekable())
        .collect();
    for blocks in index.segments() {
        plan.begin_segment();
        for block in blocks {
            let meets = candidates
                .iter_mut()
                .map(|candidates| {
                    let next = candidates.next_if(|next| next.start == block.start);
                    next.is_some()
                })
                .collect();
            plan.add_block(number, block, meets);
        }
    }
}
