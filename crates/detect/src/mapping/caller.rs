//! Who makes syscalls: the fields behind the process id in the records of syscalls.
//!
//! They are the same in many events, and are decoded once: [`Callers`] remembers them by their text.

use std::hash::BuildHasher as _;

use audit::record::decode::{Field, Record};
use bstr::ByteSlice as _;
use foldhash::fast::RandomState;
use logs::event_values::decoded;

use super::record::{self, decimal};
use crate::sigma::gate::{Passed, SyscallGate};

/// Callers that are remembered, at most.
const SLOTS: usize = 1024;
/// Longest text that is remembered, in bytes.
const MAX_TEXT: usize = 1024;

/// Who made a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    pub(super) uid: u32,
    pub(super) euid: u32,
    /// Path of the program.
    pub(super) exe: Option<Box<[u8]>>,
    /// What these fields let through.
    pub(super) passed: Passed,
}

impl Caller {
    /// Decodes the fields behind the process id, and those that `auditd` added.
    pub(super) fn of<'a>(
        record: &Record<'a>,
        fields: impl Iterator<Item = Field<'a>>,
        gate: &SyscallGate<'_>,
    ) -> Self {
        let mut caller = Self::default();
        for field in fields {
            match field.name.as_bytes() {
                b"uid" => caller.uid = decimal(field.value).unwrap_or(0),
                b"euid" => caller.euid = decimal(field.value).unwrap_or(0),
                b"exe" => caller.exe = decoded(record, &field).map(Into::into),
                _ => {}
            }
            record::pass_field(record, &field, gate, &mut caller.passed);
        }
        record::pass_enrichment(record, gate, &mut caller.passed);
        caller
    }
}

/// The callers of the last events.
#[derive(Debug, Default)]
pub(super) struct Callers {
    /// By the hash of the text; empty before the first event.
    slots: Vec<Option<Remembered>>,
    hasher: RandomState,
    /// Version of the engine whose gate was asked.
    version: u64,
    /// The last one that is not remembered.
    long: Caller,
}

#[derive(Clone, Debug)]
struct Remembered {
    kind: Box<[u8]>,
    text: Box<[u8]>,
    enrichment: Box<[u8]>,
    caller: Caller,
}

impl Callers {
    /// The caller in a record, of which `text` are the fields behind the process id; `new` decodes it.
    pub(super) fn get(
        &mut self,
        version: u64,
        record: &Record<'_>,
        text: &[u8],
        new: impl FnOnce() -> Caller,
    ) -> &Caller {
        if self.slots.is_empty() || self.version != version {
            self.slots = vec![None; SLOTS];
            self.version = version;
        }
        let (kind, enrichment) = (record.kind.as_bytes(), record.enrichment_text());
        let hash = self.hasher.hash_one((kind, text, enrichment));
        let number = usize::try_from(hash % (SLOTS as u64)).unwrap_or(0);
        let slot = self.slots.get_mut(number);
        let Some(slot) = slot.filter(|_| text.len() + enrichment.len() <= MAX_TEXT) else {
            self.long = new();
            return &self.long;
        };
        let is_same = |old: &Remembered| {
            *old.text == *text && *old.kind == *kind && *old.enrichment == *enrichment
        };
        let old = slot.take().filter(is_same);
        let remembered = old.unwrap_or_else(|| Remembered {
            kind: kind.into(),
            text: text.into(),
            enrichment: enrichment.into(),
            caller: new(),
        });
        &slot.insert(remembered).caller
    }
}
