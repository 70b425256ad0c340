//! What was found out about texts of records: most events repeat those of earlier ones.

use std::hash::{BuildHasher as _, Hasher as _};

use foldhash::fast::RandomState;

/// Texts that are remembered, at most.
const SLOTS: usize = 1024;
/// Longest text that is remembered, in bytes.
const MAX_BYTES: usize = 1024;

/// What a value depends on, but for the engine: type of the record, a part of the kernel's text, and the text that
/// `auditd` added.
pub(super) type Key<'t> = [&'t [u8]; 3];

/// Values for the last texts.
#[derive(Debug, Default)]
pub(super) struct Memo<T> {
    /// By the hash of the text; empty before the first one.
    slots: Vec<Slot<T>>,
    hasher: RandomState,
    /// Version of the engine of which the values are.
    version: u64,
    /// Value for the last text that is not remembered.
    last: T,
}

#[derive(Clone, Debug, Default)]
struct Slot<T> {
    /// All of the key; empty if there is none yet.
    text: Vec<u8>,
    lengths: [usize; 3],
    value: T,
}

impl<T: Clone + Default> Memo<T> {
    /// The value for a key; `new` makes it.
    pub(super) fn get(&mut self, version: u64, key: Key<'_>, new: impl FnOnce() -> T) -> &T {
        if self.slots.is_empty() || self.version != version {
            self.slots = vec![Slot::default(); SLOTS];
            self.version = version;
        }
        let [_, text, enrichment] = key;
        let mut hasher = self.hasher.build_hasher();
        hasher.write(text);
        hasher.write(enrichment);
        let hash = hasher.finish();
        let number = usize::try_from(hash % (SLOTS as u64)).unwrap_or(0);
        let bytes: usize = key.iter().map(|part| part.len()).sum();
        let slot = self.slots.get_mut(number);
        let Some(slot) = slot.filter(|_| (1..=MAX_BYTES).contains(&bytes)) else {
            self.last = new();
            return &self.last;
        };
        if !slot.is_of(key) {
            slot.text.clear();
            for part in key {
                slot.text.extend_from_slice(part);
            }
            slot.lengths = key.map(<[u8]>::len);
            slot.value = new();
        }
        &slot.value
    }
}

impl<T> Slot<T> {
    fn is_of(&self, key: Key<'_>) -> bool {
        let mut rest = &*self.text;
        self.lengths == key.map(<[u8]>::len)
            && key.into_iter().all(|part| {
                // The C library's comparison reads at the address of an empty part too, where no memory is: that costs 150 ns.
                let is_same = part.is_empty() || rest.starts_with(part);
                rest = rest.get(part.len()..).unwrap_or_default();
                is_same
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_their_text_and_engine() {
        let mut memo = Memo::default();
        let long = vec![b'x'; MAX_BYTES + 1];
        let keys: [Key<'_>; 6] = [
            [b"CWD", b"ab", b""],
            [b"CWD", b"a", b"b"],
            [b"CW", b"Dab", b""],
            [b"", b"", b""],
            [b"CWD", &long, b""],
            [b"CWD", b"", b"ab"],
        ];
        for version in [1, 2, 1] {
            for (number, key) in keys.into_iter().enumerate() {
                // A key that comes between may have the same slot.
                for is_first in [true, false] {
                    let is_kept = !is_first && !matches!(number, 3 | 4);
                    let new = || {
                        assert!(!is_kept, "{number}");
                        (version, number)
                    };
                    assert_eq!(*memo.get(version, key, new), (version, number));
                }
            }
        }
    }

    #[test]
    fn texts_of_the_same_slot_replace_each_other() {
        let mut memo = Memo::default();
        for number in (0..3 * SLOTS).chain(0..3 * SLOTS) {
            let text = number.to_string();
            let key: Key<'_> = [b"PATH", text.as_bytes(), b""];
            assert_eq!(*memo.get(1, key, || number), number);
        }
    }
}
