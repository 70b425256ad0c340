//! Which blocks of a log are read, and from where.
//!
//! Records are grouped as [`crate::grouping`] does. Let `t` be the timeout. When a record begins an event whose second
//! is greater by `t` than those of all events that began in or before a block, these are complete, and all of them have
//! left. Hence, for a block `i`:
//!
//! - `reach(i)` is the first block after it that is known to have such a record: there the events that began in `i` are
//!   complete. If no block up to there continues an event, they end in `i`.
//! - `lead(i)` is the last block such that a block from it on and before `i` has a record greater by `t` than all before
//!   `lead(i)`: a reader that begins there has, at `i`, the same open events as one that read everything.
//!   If the events that begin in `i` come in order and no record in `i` continues an earlier event, a reader may begin
//!   at `i` itself: events that were open before leave before those of `i`, and have no record in it.
//!
//! A part that the index does not tell enough about has every value, and may continue or reorder events.

use std::ops::Range;

use logs::index::Block;

use crate::filter::Filter;
use crate::grouping::MOST_OPEN_BYTES;

/// Bytes of open events that are certainly not too many. The log may grow a little meanwhile.
const MOST_HELD_BYTES: u64 = (MOST_OPEN_BYTES - (16 << 20)) as u64;

/// Seconds after which the index takes an event for complete.
const INDEX_TIMEOUT_SECONDS: u64 = audit::record::assemble::END_OF_EVENT_TIMEOUT_SECS;

/// A block, or text that no index covers.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) file: usize,
    pub(super) start: u64,
    /// [`u64::MAX`] if the file is read to its end.
    pub(super) end: u64,
    /// Bytes of its text.
    bytes: u64,
    /// Greatest second that a record in it can have.
    most: u64,
    /// A second that a record in it has, which can begin an event; 0 if none is known.
    known: u64,
    /// The index does not tell all about it.
    is_unclear: bool,
    /// A record may be of an event that began before.
    is_continued: bool,
    /// An event may have a smaller stamp than one before.
    is_unordered: bool,
    /// Which conditions an event may meet by a record of it.
    meets: Vec<bool>,
    /// First and last part that can have records of an event that begins in this one, or values of such records.
    reach: (usize, usize),
    /// Where a reader begins.
    lead: usize,
    /// The part up to which a reader must read.
    last: usize,
    /// Its events come in order, and have no record elsewhere.
    is_apart: bool,
}

impl Part {
    /// Whether all text that is read in it is written as the index expects.
    pub(super) const fn is_regular(&self) -> bool {
        !self.is_unclear
    }
}

/// A range of parts to be read.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) first: usize,
    pub(super) last: usize,
    /// The parts whose events are wanted.
    pub(super) wanted: Vec<usize>,
}

impl Piece {
    /// All parts; `None` if there is none.
    pub(super) fn all(parts: &[Part]) -> Option<Self> {
        Some(Self {
            first: 0,
            last: parts.len().checked_sub(1)?,
            wanted: (0..parts.len()).collect(),
        })
    }

    /// Whether a later piece begins in this one.
    pub(super) const fn touches(&self, next: &Self) -> bool {
        next.first <= self.last
    }

    pub(super) fn merge(&mut self, mut next: Self) {
        self.first = self.first.min(next.first);
        self.last = self.last.max(next.last);
        self.wanted.append(&mut next.wanted);
    }
}

/// The parts of a log that have records in the time that is asked for.
pub(super) struct Plan {
    parts: Vec<Part>,
    /// Whether an event that meets all conditions may begin in a part.
    candidates: Vec<bool>,
    start: i64,
    end: i64,
    timeout: u64,
    /// Greatest second before the segment, and so far.
    before_segment: u64,
    greatest: u64,
}

impl Plan {
    pub(super) const fn new(filter: &Filter, timeout: u64) -> Self {
        Self {
            parts: Vec::new(),
            candidates: Vec::new(),
            start: filter.start,
            end: filter.end,
            timeout,
            before_segment: 0,
            greatest: 0,
        }
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) const fn begin_segment(&mut self) {
        self.before_segment = self.greatest;
    }

    /// Adds a block of the index.
    pub(super) fn add_block(&mut self, file: usize, block: &Block, meets: Vec<bool>) {
        let (least, greatest) = (*block.seconds.start(), *block.seconds.end());
        self.greatest = self.greatest.max(greatest);
        let marks = block.marks;
        if !marks.is_irregular && !self.is_in_time(least, greatest) {
            return;
        }
        // The index knows about events of the same segment.
        let is_new = least > self.before_segment && !marks.is_irregular;
        let is_known = !marks.is_irregular && (self.end == 0 || greatest.cast_signed() <= self.end);
        self.parts.push(Part {
            file,
            start: block.start,
            end: block.end,
            bytes: block.end - block.start,
            most: self.most(greatest),
            known: if is_known { greatest } else { 0 },
            is_unclear: marks.is_irregular,
            is_continued: marks.is_continued || !is_new,
            is_unordered: marks.is_unordered || !is_new,
            meets,
            reach: (0, 0),
            lead: 0,
            last: 0,
            is_apart: false,
        });
    }

    /// Adds text without an index.
    pub(super) fn add_unindexed(&mut self, file: usize, text: Range<u64>, most: u64) {
        let bytes = text.end - text.start;
        self.add_text(file, text, bytes, most);
    }

    fn add_text(&mut self, file: usize, text: Range<u64>, bytes: u64, most: u64) {
        self.greatest = self.greatest.max(most);
        self.parts.push(Part {
            file,
            start: text.start,
            end: text.end,
            bytes,
            most: self.most(most),
            known: 0,
            is_unclear: true,
            is_continued: true,
            is_unordered: true,
            meets: Vec::new(),
            reach: (0, 0),
            lead: 0,
            last: 0,
            is_apart: false,
        });
    }

    /// Adds the end of the last file, which may grow.
    pub(super) fn add_last(&mut self, file: usize, start: u64, size: u64) {
        self.add_text(file, start..u64::MAX, size.saturating_sub(start), u64::MAX);
    }

    /// Whether a record of these seconds may be read.
    fn is_in_time(&self, least: u64, greatest: u64) -> bool {
        (self.start == 0 || greatest.cast_signed() >= self.start || greatest == u64::MAX)
            && (self.end == 0 || least.cast_signed() <= self.end)
            && least <= greatest
    }

    /// The greatest second that counts: later records are not read.
    fn most(&self, greatest: u64) -> u64 {
        match self.end {
            0 => greatest,
            end => greatest.min(u64::try_from(end).unwrap_or(0)),
        }
    }

    /// Finds out which parts decide about which.
    pub(super) fn finish(&mut self) {
        let before = sums(0, self.parts.iter().map(|part| part.most), u64::max);
        let leads = self.leads(&before);
        let continued = self.count(|part| part.is_continued || part.is_unclear);
        let disordered =
            self.count(|part| part.is_continued || part.is_unordered || part.is_unclear);
        let bytes = sums(
            0,
            self.parts.iter().map(|part| part.bytes),
            u64::saturating_add,
        );
        let at = |sums: &[u64], at: usize| sums.get(at).copied().unwrap_or_default();
        let some = |sums: &[u64], from: usize, to: usize| at(sums, to + 1) > at(sums, from);
        let lead = |at: usize| leads.get(at).copied().unwrap_or_default();
        let final_part = self.parts.len().saturating_sub(1);
        let mut complete_at = 0;
        for number in 0..self.parts.len() {
            let wanted = at(&before, number + 1).saturating_add(self.timeout);
            complete_at = complete_at.max(number + 1);
            while self
                .parts
                .get(complete_at)
                .is_some_and(|part| part.known < wanted)
            {
                complete_at += 1;
            }
            let complete = complete_at.min(final_part);
            let is_continued = some(&continued, number, number);
            let continues = some(&continued, number + 1, complete);
            let is_disordered = some(&disordered, number, number);
            let disorders = some(&disordered, number + 1, complete);
            let last = if disorders { complete } else { number };
            // What the open events can hold at most decides whether all are ended at once.
            let held = at(&bytes, last + 1) - at(&bytes, lead(lead(number)));
            let Some(part) = self.parts.get_mut(number) else {
                break;
            };
            part.reach = (
                if is_continued { lead(number) } else { number },
                if continues { complete } else { number },
            );
            part.lead = match is_disordered {
                _ if held >= MOST_HELD_BYTES => 0,
                true => lead(number),
                false => number,
            };
            part.last = last;
            part.is_apart = !is_disordered && !disorders && held < MOST_HELD_BYTES;
        }
        self.candidates = self.find_candidates();
    }

    /// For each part the last one where a reader can begin.
    fn leads(&self, before: &[u64]) -> Vec<usize> {
        let timeout = self.timeout.max(INDEX_TIMEOUT_SECONDS);
        let starts = self.parts.iter().enumerate().map(|(number, part)| {
            let before = before.get(..=number).unwrap_or_default();
            before
                .partition_point(|greatest| greatest.saturating_add(timeout) <= part.known)
                .saturating_sub(1)
        });
        sums(0, starts, usize::max)
    }

    /// How many parts before each one have a property.
    fn count(&self, has: impl Fn(&Part) -> bool) -> Vec<u64> {
        let parts = self.parts.iter();
        sums(0, parts.map(|part| u64::from(has(part))), |sum, one| {
            sum + one
        })
    }

    /// Whether an event that meets all conditions may begin, for each part.
    fn find_candidates(&self) -> Vec<bool> {
        let conditions = self.parts.iter().map(|part| part.meets.len()).max();
        let meets: Vec<Vec<u64>> = (0..conditions.unwrap_or_default())
            .map(|condition| {
                self.count(|part| {
                    part.is_unclear || part.meets.get(condition).is_none_or(|&meets| meets)
                })
            })
            .collect();
        let parts = self.parts.iter();
        parts
            .map(|part| {
                let (from, to) = part.reach;
                meets.iter().all(|meets| {
                    meets
                        .get(to + 1)
                        .is_none_or(|to| meets.get(from) < Some(to))
                })
            })
            .collect()
    }

    /// The next part from one on in which an event may begin that meets all conditions.
    pub(super) fn next_candidate(&self, at: usize) -> Option<usize> {
        let found = self
            .candidates
            .get(at..)?
            .iter()
            .position(|&is_candidate| is_candidate)?;
        Some(at + found)
    }

    /// First and last part that can have records of an event that begins in a part, or values of such records.
    pub(super) fn reach(&self, number: usize) -> (usize, usize) {
        self.parts
            .get(number)
            .map_or((number, number), |part| part.reach)
    }

    /// Whether the events of a part come in order and have no record elsewhere, and all their text is written as the
    /// index expects: then each of them can be read without the others.
    pub(super) fn is_apart(&self, number: usize) -> bool {
        self.parts.get(number).is_some_and(|part| part.is_apart)
    }

    /// What must be read for the events that begin in a part.
    pub(super) fn piece(&self, number: usize) -> Piece {
        let range = self.parts.get(number).map(|part| (part.lead, part.last));
        let (first, last) = range.unwrap_or((number, number));
        Piece {
            first,
            last,
            wanted: vec![number],
        }
    }
}

/// What came before each value, and before the end.
fn sums<T: Copy>(start: T, values: impl Iterator<Item = T>, add: impl Fn(T, T) -> T) -> Vec<T> {
    let mut sum = start;
    let mut sums = vec![start];
    sums.extend(values.map(|value| {
        sum = add(sum, value);
        sum
    }));
    sums
}
