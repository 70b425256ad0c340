//! How many bytes of texts the searches of an engine have, at most: a rule for several record types is in the search of
//! each, and a text of any field in the search of each field.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of texts of which the fastest searches are built, which take some 500 bytes for each.
const FASTEST: usize = 128 << 10;
/// Bytes of texts of all searches, which take up to 200 bytes for each. Beyond it, rules are evaluated without a search.
const ALL: usize = 1 << 20;

/// What is left for the searches of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    fastest: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
}

/// A part of a budget, which has it again afterwards.
#[derive(Debug)]
pub(super) struct Taken {
    from: Arc<AtomicUsize>,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            fastest: Arc::new(AtomicUsize::new(FASTEST)),
            all: Arc::new(AtomicUsize::new(ALL)),
        }
    }
}

impl Budget {
    /// Bytes for a search of any kind; `None` if fewer are left.
    pub(super) fn take(&self, bytes: usize) -> Option<Taken> {
        Taken::new(&self.all, bytes)
    }

    /// Bytes for one of the fastest searches; `None` if fewer are left.
    pub(super) fn take_fastest(&self, bytes: usize) -> Option<Taken> {
        Taken::new(&self.fastest, bytes)
    }
}

impl Taken {
    fn new(from: &Arc<AtomicUsize>, bytes: usize) -> Option<Self> {
        let less = |left: usize| left.checked_sub(bytes);
        from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .ok()?;
        let from = Arc::clone(from);
        Some(Self { from, bytes })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.from.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_taken_while_some_are_left_and_given_back() {
        let budget = Budget::default();
        let most = budget.take(ALL - 1).unwrap();
        assert!(budget.take(2).is_none());
        assert!(budget.take(1).is_some());
        drop(most);
        assert!(budget.take(ALL).is_some());
        assert!(budget.take_fastest(FASTEST + 1).is_none());
        assert!(budget.take_fastest(FASTEST).is_some());
    }
}
