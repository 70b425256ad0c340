//! Recognises events of a block whose text was indexed before: only time and serial differ.
//!
//! Such an event adds no values. It is recognised by comparing all bytes outside the stamps with those of an event
//! that is kept, so nobody can choose names that hide an event. Which one to compare with is a guess: the event that
//! followed the last one before, or else one with the same hash. An EOE record right behind an event is kept and
//! compared with it.

use std::hash::{BuildHasher as _, Hasher as _};
use std::ops::Range;

use audit::event::Timestamp;
use audit::ids::Serial;
use audit::record::assemble::whole::WholeEvent;
use audit::record::decode;
use bstr::ByteSlice as _;

/// Most events that are kept.
const MAX_EVENTS: usize = 4096;
/// Most bytes of text that are kept.
const MAX_BYTES: usize = 1 << 20;
/// Events that are not found in a row before most others are not looked up.
const PATIENCE: u32 = 256;
/// Of the others, one in so many is looked up.
const RARELY: u32 = 16;

/// Events of a block.
#[derive(Debug)]
pub(super) struct SeenEvents {
    text: Vec<u8>,
    /// Where the stamps of each event begin, from the start of its text.
    stamps: Vec<usize>,
    events: Vec<SeenEvent>,
    /// For a part of each hash, one more than the number of an event; 0 if there is none.
    by_hash: Vec<u16>,
    /// Key of the hash: nobody knows which events have the same.
    key: foldhash::fast::RandomState,
    /// Event that was recognised or kept last.
    last: usize,
    misses: u32,
    seconds: LastSeconds,
}

/// The seconds that were parsed last.
#[derive(Debug, Default)]
struct LastSeconds {
    /// Their text, and the dot behind them.
    text: Vec<u8>,
    sec: u64,
}

#[derive(Debug)]
struct SeenEvent {
    text: Range<usize>,
    stamps: Range<usize>,
    stamp_len: usize,
    hash: u64,
    /// The events that followed this one, the last one first.
    next: [usize; 2],
}

/// An event that was recognised at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeated {
    pub(super) len: usize,
    pub(super) time: Timestamp,
    pub(super) serial: Serial,
}

impl Default for SeenEvents {
    fn default() -> Self {
        Self {
            text: Vec::new(),
            stamps: Vec::new(),
            events: Vec::new(),
            by_hash: vec![0; 2 * MAX_EVENTS],
            key: foldhash::fast::RandomState::default(),
            last: 0,
            misses: 0,
            seconds: LastSeconds::default(),
        }
    }
}

impl SeenEvents {
    /// Forgets all: another block begins.
    pub(super) fn clear(&mut self) {
        if !self.events.is_empty() {
            self.by_hash.fill(0);
        }
        self.text.clear();
        self.stamps.clear();
        self.events.clear();
        self.last = 0;
    }

    /// The event at the start of `text`, if it is the one that followed the last one before.
    pub(super) fn next(&mut self, text: &[u8]) -> Option<Repeated> {
        let [newer, older] = self.events.get(self.last)?.next;
        let (number, found) = match self.compare_with(newer, text) {
            Some(found) => (newer, found),
            None if newer == older => return None,
            None => (older, self.compare_with(older, text)?),
        };
        self.follows_last(number);
        self.misses = 0;
        Some(found)
    }

    /// The event, if it is one of those that are kept. If not, it is kept from now on.
    pub(super) fn find_or_keep(&mut self, event: &WholeEvent<'_>) -> Option<Repeated> {
        if self.misses > PATIENCE && !self.misses.is_multiple_of(RARELY) {
            self.misses += 1;
            return None;
        }
        let hash = self.hash(event);
        let slot = slot(hash, self.by_hash.len());
        let number = usize::from(self.by_hash.get(slot).copied().unwrap_or(0)).checked_sub(1);
        let found = number.and_then(|number| {
            let known = self.events.get(number).filter(|known| known.hash == hash)?;
            Some((
                number,
                compare(
                    known,
                    &self.text,
                    &self.stamps,
                    &mut self.seconds,
                    event.text_with_end(),
                )?,
            ))
        });
        let (number, repeated) = match found {
            Some((number, repeated)) => {
                self.misses = 0;
                (number, Some(repeated))
            }
            None => {
                self.misses = self.misses.saturating_add(1);
                (self.keep(event, hash)?, None)
            }
        };
        if let (Some(to), Ok(number)) = (self.by_hash.get_mut(slot), u16::try_from(number + 1)) {
            *to = number;
        }
        self.follows_last(number);
        repeated
    }

    /// Notes that an event followed the last one.
    fn follows_last(&mut self, number: usize) {
        if let Some(last) = self.events.get_mut(self.last) {
            let [newer, _] = last.next;
            if newer != number {
                last.next = [number, newer];
            }
        }
        self.last = number;
    }

    /// Keeps an event, if there is room, and returns its number.
    fn keep(&mut self, event: &WholeEvent<'_>, hash: u64) -> Option<usize> {
        let number = self.events.len();
        if number >= MAX_EVENTS || self.text.len() + event.text_with_end().len() > MAX_BYTES {
            return None;
        }
        let (text, stamps) = (self.text.len(), self.stamps.len());
        self.text.extend_from_slice(event.text_with_end());
        self.stamps.extend(event.stamps_with_end());
        self.events.push(SeenEvent {
            text: text..self.text.len(),
            stamps: stamps..self.stamps.len(),
            stamp_len: event.stamp_len(),
            hash,
            next: [number; 2],
        });
        Some(number)
    }

    /// Hash of all bytes outside the stamps.
    fn hash(&self, event: &WholeEvent<'_>) -> u64 {
        let mut hasher = self.key.build_hasher();
        let (text, mut start) = (event.text_with_end(), 0);
        for stamp in event.stamps_with_end() {
            hasher.write(text.get(start..stamp).unwrap_or_default());
            start = stamp + event.stamp_len();
        }
        hasher.write(text.get(start..).unwrap_or_default());
        hasher.finish()
    }

    fn compare_with(&mut self, number: usize, text: &[u8]) -> Option<Repeated> {
        let known = self.events.get(number)?;
        compare(known, &self.text, &self.stamps, &mut self.seconds, text)
    }
}

impl LastSeconds {
    /// The stamp at the start of a text, before a `)`, and its length.
    fn stamp(&mut self, text: &[u8]) -> Option<(Timestamp, Serial, usize)> {
        // Most events are of the same second as the one before.
        if let Some(rest) = text.strip_prefix(self.text.as_slice())
            && !self.text.is_empty()
        {
            let (milli, serial, len) = decode::millis_and_serial(rest)?;
            let sec = self.sec;
            return Some((Timestamp { sec, milli }, serial, self.text.len() + len));
        }
        let (time, serial, len) = decode::time_and_serial(text)?;
        let dot = text.find_byte(b'.')?;
        self.text.clear();
        self.text.extend_from_slice(text.get(..=dot)?);
        self.sec = time.sec;
        Some((time, serial, len))
    }
}

/// Whether `text` begins with an event that differs from a known one only in time and serial, and has the same ones in
/// all lines.
fn compare(
    known: &SeenEvent,
    texts: &[u8],
    stamps: &[usize],
    last: &mut LastSeconds,
    text: &[u8],
) -> Option<Repeated> {
    let known_text = texts.get(known.text.clone())?;
    let (first, others) = stamps.get(known.stamps.clone())?.split_first()?;
    let rest = text.strip_prefix(known_text.get(..*first)?)?;
    let (time, serial, len) = last.stamp(rest)?;
    let (stamp, mut rest) = rest.split_at_checked(len)?;
    let mut at = first + known.stamp_len;
    for next in others {
        rest = rest.strip_prefix(known_text.get(at..*next)?)?;
        rest = rest.strip_prefix(stamp)?;
        at = next + known.stamp_len;
    }
    rest = rest.strip_prefix(known_text.get(at..)?)?;
    Some(Repeated {
        len: text.len() - rest.len(),
        time,
        serial,
    })
}

/// Slot of a hash in a table.
pub(super) fn slot(hash: u64, slots: usize) -> usize {
    let slots = crate::line_buffer::len(slots.max(1));
    usize::try_from(hash % slots).unwrap_or(0)
}
