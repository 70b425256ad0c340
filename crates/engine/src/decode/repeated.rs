//! Text of events that occurred before: calls that a task repeats are neither decoded nor formatted again.
//!
//! The text of an event is a function of its sample, of the key of its rule, and of its stamp: [`Decoder::event`] reads
//! nothing else, and [`encode::event`](audit::record::encode::event) only its event. So two samples that have the same
//! bytes, of rules with the same key, have the same text, but for the stamp. Samples that are equal outside three
//! members of the header have texts that differ where these are printed:
//!
//! | member | used for | so |
//! | --- | --- | --- |
//! | `jiffies` | nothing; its user converts it to the time of the stamp | is not compared |
//! | `args` | `a0=` to `a3=`; names of programs; records of `io_uring` | is not compared, but programs and operations are not remembered |
//! | `exit` | `success=` and `exit=`; which PATH items a failed call has | is compared if it is negative |
//!
//! All other bytes are compared, padding too, so nobody can choose names that give a wrong text. Events that have the
//! stamp of another record are not remembered. Which slot to compare with is a guess.
//!
//! A sample is kept when it is first seen, and its text when it is seen again: what never returns costs a copy of its
//! sample. Memory is bounded by [`SLOTS`], [`MAX_SAMPLE`] and [`MAX_TEXT`].

use core::mem::offset_of;

use audit::event::{Timestamp, reported_exit};
use audit::ids::Serial;
use audit::record::call_result::CallResult;
use audit::record::stamp::StampText;
use audit::record::template::EventTemplate;
use bstr::{BString, ByteSlice as _};

use super::header;
use super::rule_keys::RuleKeys;
use crate::abi::{self, WireEvent, WireObject};
use zerocopy::FromBytes as _;

/// Samples that are kept; a power of two.
const SLOTS: usize = 1024;
/// Longest sample that is kept.
const MAX_SAMPLE: usize = 1024;
/// Longest text that is kept.
const MAX_TEXT: usize = 4096;

/// Events whose text depends on more than what is compared.
const NOT_REMEMBERED: u16 = abi::EVENT_STARTED
    | abi::EVENT_SCRIPT
    | abi::EVENT_URING
    | abi::EVENT_URING_ENTER
    | abi::EVENT_STAMPED
    | abi::EVENT_JOINED
    | abi::EVENT_LOADED;

/// Texts of events.
#[derive(Debug)]
pub struct RepeatedEvents {
    slots: Vec<Slot>,
    stamp: StampText,
}

/// A sample, and perhaps its text.
#[derive(Debug, Default)]
struct Slot {
    sample: Vec<u8>,
    /// Key of its rule.
    key: Option<BString>,
    template: EventTemplate,
}

/// Where the text of a sample is, or will be.
#[derive(Clone, Copy, Debug)]
pub struct RepeatedEvent {
    slot: usize,
    call: CallResult,
    /// The slot has this sample, outside the members that are not compared.
    is_known: bool,
}

impl RepeatedEvent {
    /// Whether a sample like this one was seen.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.is_known
    }
}

impl Default for RepeatedEvents {
    fn default() -> Self {
        let mut slots = Vec::new();
        slots.resize_with(SLOTS, Slot::default);
        Self {
            slots,
            stamp: StampText::default(),
        }
    }
}

impl RepeatedEvents {
    /// Finds the slot of a sample; `None` if it is not to be remembered.
    #[must_use]
    pub fn find(&self, sample: &[u8], keys: &RuleKeys) -> Option<RepeatedEvent> {
        let (head, rest) = header(sample).ok()?;
        if head.flags & NOT_REMEMBERED != 0 || sample.len() > MAX_SAMPLE {
            return None;
        }
        let key = keys.get(head.rule)?;
        let number = slot_of(head, rest);
        let slot = self.slots.get(number)?;
        let exit = head.exit.cast_signed();
        let is_known = is_same(&slot.sample, sample, exit)
            && slot.key.as_ref().map(|key| key.as_bstr()) == key;
        let returned = head.flags & abi::EVENT_RETURNED != 0;
        Some(RepeatedEvent {
            slot: number,
            call: CallResult {
                exit: returned.then(|| reported_exit(exit)),
                args: head.args,
            },
            is_known,
        })
    }

    /// Appends the text of a sample. Returns false, and appends nothing, if it is not known.
    #[must_use]
    pub fn append(
        &mut self,
        event: &RepeatedEvent,
        time: Timestamp,
        serial: Serial,
        out: &mut Vec<u8>,
    ) -> bool {
        if !event.is_known {
            return false;
        }
        let Some(slot) = self.slots.get(event.slot) else {
            return false;
        };
        let stamp = self.stamp.set(time, serial);
        slot.template.append(stamp, &event.call, out)
    }

    /// Remembers the text of a sample that [`RepeatedEvents::append`] did not know, or at first the sample.
    pub fn learn(
        &mut self,
        event: &RepeatedEvent,
        sample: &[u8],
        keys: &RuleKeys,
        (time, serial): (Timestamp, Serial),
        text: &[u8],
    ) {
        let Some(slot) = self.slots.get_mut(event.slot) else {
            return;
        };
        if event.is_known {
            if text.len() <= MAX_TEXT {
                slot.template
                    .learn(text, self.stamp.set(time, serial), &event.call);
            }
            return;
        }
        slot.template.forget();
        slot.sample.clear();
        let Some(key) = header(sample)
            .ok()
            .and_then(|(head, _)| keys.get(head.rule))
        else {
            return;
        };
        slot.sample.extend_from_slice(sample);
        match (&mut slot.key, key) {
            (Some(kept), Some(key)) => {
                kept.clear();
                kept.extend_from_slice(key);
            }
            (kept, key) => *kept = key.map(BString::from),
        }
    }
}

/// Slot of a sample, by its task, syscall and first object.
fn slot_of(head: &WireEvent, rest: &[u8]) -> usize {
    let object = (head.objects != 0)
        .then(|| WireObject::ref_from_prefix(rest).ok())
        .flatten();
    let ino = object.map_or(0, |(object, _)| object.inode.ino);
    let task = u64::from(head.pid) << 32 | u64::from(head.nr);
    // By the golden ratio: the inodes of a directory are often consecutive, and then get slots of their own.
    let spread = ino
        .wrapping_add(task.wrapping_mul(0xd6e8_feb8_6659_fd93))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(spread >> (u64::BITS - SLOTS.trailing_zeros())).unwrap_or(0)
}

/// Whether two samples have the same text, but for the stamp, the arguments, and a result that is not negative.
fn is_same(known: &[u8], sample: &[u8], exit: i64) -> bool {
    const BEFORE: usize = offset_of!(WireEvent, jiffies);
    const EXIT: usize = offset_of!(WireEvent, exit);
    const BEHIND: usize = offset_of!(WireEvent, abi);
    const {
        // Only the members that are not compared lie between these.
        assert!(
            offset_of!(WireEvent, args) == BEFORE + 8 && EXIT == BEFORE + 40 && BEHIND == EXIT + 8
        );
    }
    let has_same = |from: usize, to: usize| known.get(from..to) == sample.get(from..to);
    let known_exit = header(known).map_or(0, |(head, _)| head.exit.cast_signed());
    known.len() == sample.len()
        && (exit == known_exit || exit >= 0 && known_exit >= 0)
        && has_same(BEHIND, sample.len())
        && has_same(0, BEFORE)
}

#[cfg(test)]
mod tests;
